//! Fetches one item by its id.

use std::sync::Arc;

use rye_core::capability::Primary;
use rye_core::directive;
use rye_core::error::{ErrorKind, Kinded as _};
use rye_core::id::{ItemKind, ItemRef};
use rye_item::{Item, Library, Space, library};
use serde_json::{Value, json};

use super::copy::copy;
use super::query::kind;
use super::{Caller, Error, FetchRequest, TRIED, space};

/// Returns the verified item `id`, and copies it if requested.
pub(super) fn fetch(
    library: &Library,
    id: &str,
    asked: &FetchRequest,
    caller: &Caller<'_>,
) -> Result<Value, Error> {
    let source = asked.source.as_deref().map(|word| space("source", word));
    let source = source.transpose()?;
    let item = named(library, id, asked, source, caller)?;
    let mut answer = describe(library, &item);
    if asked.parsed {
        answer["parsed"] = parsed(&item)?;
    }
    if let Some(word) = &asked.destination {
        let destination = space("destination", word)?;
        caller.may(Primary::Sign, &item.item)?;
        let path = copy(library, &item, destination, asked.replace, caller.random)?;
        answer["copied_to"] = json!(destination.as_str());
        answer["destination_path"] = json!(path.display().to_string());
    }
    Ok(answer)
}

/// Resolves the requested item, if it may be fetched.
fn named(
    library: &Library,
    id: &str,
    asked: &FetchRequest,
    source: Option<Space>,
    caller: &Caller<'_>,
) -> Result<Arc<Item>, Error> {
    let of_type = asked.item_type.as_deref().map(kind).transpose()?;
    let look = |item: &ItemRef| look(library, item, source);
    find_item(library, id, of_type, caller, look)
}

/// Result of `look` for the item `id`, whose type is optional, among the items that may be fetched.
pub(super) fn find_item<T>(
    library: &Library,
    id: &str,
    of_type: Option<ItemKind>,
    caller: &Caller<'_>,
    look: impl Fn(&ItemRef) -> Result<T, Box<library::Error>>,
) -> Result<T, Error> {
    let parse = |kind| {
        let item = ItemRef::parse(id, kind).map_err(|source| Error::Id {
            field: "item_id",
            source,
        });
        item.map(|item| item.canonical())
    };
    let known = of_type.or_else(|| id.contains(':').then_some(ItemKind::Tool));
    if let Some(kind) = known {
        let item = parse(kind)?;
        if let Some(kind) = of_type.filter(|kind| *kind != item.kind) {
            return Err(Error::Invalid(format!(
                "`item_id` names a {}, and `item_type` a {kind}",
                item.kind
            )));
        }
        caller.may(Primary::Fetch, &item)?;
        return look(&item).map_err(|mut error| {
            suggest(&mut error, library, caller);
            error.into()
        });
    }
    let mut found = Vec::new();
    let mut tried = Vec::new();
    for kind in TRIED {
        let item = parse(kind)?;
        if caller.may(Primary::Fetch, &item).is_err() {
            continue;
        }
        match look(&item) {
            Err(error) if error.kind() == ErrorKind::NotFound => tried.push(item),
            looked => found.push((item, looked)),
        }
    }
    match found.len() {
        0 => Err(Error::NotFound {
            id: id.to_owned(),
            near: tried
                .iter()
                .find_map(|item| suggestion(library, item, caller)),
        }),
        1 => Ok(found.remove(0).1?),
        _ => {
            let names: Vec<String> = found.iter().map(|(item, _)| item.to_string()).collect();
            Err(Error::Invalid(format!(
                "`{id}` is several items: {}; say which by `item_type`",
                names.join(", ")
            )))
        }
    }
}

/// Suggestion for `item`, if it may be fetched.
fn suggestion(library: &Library, item: &ItemRef, caller: &Caller<'_>) -> Option<ItemRef> {
    let id = library.nearest(item)?;
    let near = ItemRef {
        kind: item.kind,
        id,
    };
    caller.may(Primary::Fetch, &near).is_ok().then_some(near)
}

/// Adds a suggestion to a `NotFound` error.
fn suggest(error: &mut library::Error, library: &Library, caller: &Caller<'_>) {
    if let library::Error::NotFound {
        item, near: meant, ..
    } = error
    {
        *meant = suggestion(library, item, caller).map(|near| near.id);
    }
}

fn look(
    library: &Library,
    item: &ItemRef,
    source: Option<Space>,
) -> Result<Arc<Item>, Box<library::Error>> {
    let Some(space) = source else {
        return Ok(library.resolve(item, Space::Project)?);
    };
    let found = library.in_space(item, space)?;
    found.ok_or_else(|| {
        Box::new(library::Error::NotFound {
            item: item.clone(),
            searched: format!("the {space} space"),
            near: None,
        })
    })
}

fn describe(library: &Library, item: &Item) -> Value {
    let shadows: Vec<Value> = library
        .shadowed(item, Space::Project)
        .iter()
        .map(|other| json!({"path": other.path.display().to_string(), "space": other.space.as_str()}))
        .collect();
    let path = item.path.display().to_string();
    let metadata = &item.metadata;
    json!({
        "status": "success",
        "item_id": item.item.id,
        "item_type": item.item.kind.as_str(),
        "content": &*item.text,
        "metadata": {
            "name": item.item.id.name(),
            "category": item.item.id.category(),
            "path": path,
            "extension": item.extension,
            "version": metadata.version,
            "title": metadata.title,
            "description": metadata.description,
            "tags": metadata.tags,
            "tool_type": metadata.tool_type,
            "executor_id": metadata.executor_id,
            "signer": item.signer().map(|signer| signer.key.fingerprint().to_string()),
        },
        "path": path,
        "source": item.space.as_str(),
        "mode": "id",
        "verified": true,
        "shadows": shadows,
    })
}

/// Parsed parts of a directive.
fn parsed(item: &Item) -> Result<Value, Error> {
    if item.item.kind != ItemKind::Directive {
        return Err(Error::Invalid(format!(
            "`parsed` is for directives, and {} is none",
            item.item
        )));
    }
    let read = directive::parse(&item.text, item.id()).map_err(|findings| {
        let told: Vec<String> = findings.iter().map(ToString::to_string).collect();
        Error::Invalid(format!("`{}`: {}", item.path.display(), told.join("; ")))
    });
    Ok(json!(read?.0))
}
