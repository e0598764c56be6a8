//! That an item lies where it says it belongs.

use super::error::Error;
use crate::metadata::Metadata;
use crate::spaces::Place;

/// That the item does not name itself.
pub(crate) fn nameless(place: &Place) -> Error {
    Error::Misplaced {
        item: place.item.clone(),
        path: place.path(),
        field: "name",
        declared: None,
        expected: place.item.id.name().to_owned(),
    }
}

/// Checks that an item lies where it says it belongs.
pub(crate) fn declared_place(place: &Place, metadata: &Metadata) -> Result<(), Error> {
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
    // At the top of the type folder there is nothing to declare.
    if metadata.category.as_deref().unwrap_or("") != id.category() {
        return misplaced("category", &metadata.category, id.category());
    }
    if metadata.name.as_ref().is_some_and(|name| name != id.name()) {
        return misplaced("name", &metadata.name, id.name());
    }
    Ok(())
}
