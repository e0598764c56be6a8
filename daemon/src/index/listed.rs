//! Listing and description of the items that a project sees, including items that must not be used.

use globset::{GlobBuilder, GlobMatcher};
use rye_core::capability::Primary;
use rye_core::definition;
use rye_core::directive;
use rye_core::id::{ItemKind, ItemRef};
use rye_item::library::{Entry, Shadowed};
use rye_item::{Library, Space};
use serde_json::Value;

use super::one::find_item;
use super::{Caller, Error};

/// Filter of a listing.
#[derive(Debug, Clone)]
pub struct ItemFilter {
    kind: Option<ItemKind>,
    ids: Option<GlobMatcher>,
    space: Option<Space>,
    /// Last item of the previous page.
    after: Option<ItemRef>,
    most: usize,
}

impl ItemFilter {
    /// Filters at most `most` items by type, id pattern and space; an empty text matches all. `after` is the page token
    /// of the previous answer.
    pub fn new(
        kind: Option<ItemKind>,
        pattern: &str,
        space: &str,
        after: &str,
        most: usize,
    ) -> Result<Self, Error> {
        let glob = |pattern: &str| {
            let glob = GlobBuilder::new(pattern).literal_separator(false).build();
            let glob = glob.map_err(|error| Error::Invalid(format!("`pattern`: {error}")));
            Ok::<_, Error>(glob?.compile_matcher())
        };
        let given = |text: &'_ str| !text.is_empty();
        let after = given(after).then(|| ItemRef::parse(after, ItemKind::Tool));
        let after = after.transpose().map_err(|source| Error::Id {
            field: "page_token",
            source,
        })?;
        Ok(Self {
            kind,
            ids: given(pattern).then(|| glob(pattern)).transpose()?,
            space: given(space)
                .then(|| super::space("space", space))
                .transpose()?,
            after,
            most,
        })
    }

    fn holds(&self, item: &ItemRef) -> bool {
        self.kind.is_none_or(|kind| kind == item.kind)
            && self
                .ids
                .as_ref()
                .is_none_or(|ids| ids.is_match(item.id.as_str()))
            && self.after.as_ref().is_none_or(|after| item > after)
    }
}

/// Returns the matching items that may be fetched, ordered by type and id, and the token of the next page if there is
/// one.
pub fn list(
    library: &Library,
    wanted: &ItemFilter,
    caller: &Caller<'_>,
) -> (Vec<Entry>, Option<ItemRef>) {
    let mut seen = library
        .catalog(wanted.space)
        .into_iter()
        .filter(|(item, _)| wanted.holds(item) && caller.may(Primary::Fetch, item).is_ok());
    let mut entries = Vec::new();
    let mut last = None;
    for (item, seen) in seen.by_ref().take(wanted.most) {
        entries.extend(library.entry(&seen));
        last = Some(item);
    }
    let next = if seen.next().is_some() { last } else { None };
    (entries, next)
}

/// Description of an item.
#[derive(Debug)]
pub struct Described {
    /// Metadata and verification of the item.
    pub entry: Entry,
    /// JSON Schema of its inputs.
    pub inputs: Option<Value>,
    /// Permissions it declares.
    pub permissions: Option<Vec<String>>,
    /// Files that it shadows.
    pub shadows: Vec<Shadowed>,
}

/// Describes the item `id`, whose type is optional, if it may be fetched.
pub fn describe(
    library: &Library,
    id: &str,
    kind: Option<ItemKind>,
    caller: &Caller<'_>,
) -> Result<Described, Error> {
    let look = |item: &ItemRef| library.describe(item).map_err(Box::new);
    let entry = find_item(library, id, kind, caller, look)?;
    let (item, path) = (&entry.report.item, &entry.report.path);
    let shadows = library.shadowed_by(item, entry.space, path, Space::Project);
    let (inputs, permissions) = declared(&entry);
    Ok(Described {
        entry,
        inputs,
        permissions,
        shadows,
    })
}

/// Declared inputs and permissions of an item.
fn declared(entry: &Entry) -> (Option<Value>, Option<Vec<String>>) {
    let (item, metadata) = (&entry.report.item, &entry.metadata);
    match item.kind {
        ItemKind::Directive => match directive::parse(&entry.text, &item.id) {
            Ok((directive, _)) => {
                let permissions = directive.permissions.map(|declared| declared.patterns);
                (directive.inputs, permissions)
            }
            Err(_) => (None, None),
        },
        ItemKind::Tool if metadata.tool_type.as_deref() == Some("graph") => {
            let graph = definition::parse(&entry.text).ok();
            let permissions = graph.and_then(|(graph, _)| graph.permissions);
            (metadata.config_schema.clone(), permissions)
        }
        ItemKind::Tool | ItemKind::Knowledge | ItemKind::Config => {
            (metadata.config_schema.clone(), None)
        }
    }
}
