//! Check that an item is at the path it declares.

use super::error::Error;
use crate::metadata::Metadata;
use crate::spaces::ItemLocation;

/// Error of an item that does not declare its name.
pub(crate) fn nameless(place: &ItemLocation) -> Error {
    Error::Misplaced {
        item: place.item.clone(),
        path: place.path(),
        field: "name",
        declared: None,
        expected: place.item.id.name().to_owned(),
    }
}

/// Checks that the declared category and name match the item's path.
pub(crate) fn check_location(place: &ItemLocation, metadata: &Metadata) -> Result<(), Error> {
    let id = &place.item.id;
    let misplaced = |field, declared: &Option<String>, expected: &str| {
        Err(Error::Misplaced {
            item: place.item.clone(),
            path: place.path(),
            field,
            declared: declared.clone(),
            expected: expected.to_owned(),
        })
    };
    // Directly in the folder of a type there is no category to declare.
    if metadata.category.as_deref().unwrap_or("") != id.category() {
        return misplaced("category", &metadata.category, id.category());
    }
    if metadata.name.as_ref().is_some_and(|name| name != id.name()) {
        return misplaced("name", &metadata.name, id.name());
    }
    Ok(())
}
