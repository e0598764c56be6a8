//! Rules for the elements of a chain: their keys, accepted versions, and required outputs.

use std::sync::Arc;

use rye_core::declared::Fields as _;
use rye_core::expr::did_you_mean;
use rye_core::id::{ItemId, ItemRef};
use rye_item::Item;
use rye_item::metadata::Unread;
use semver::Version;
use serde_json::{Value, json};

use super::error::Error;
use super::fields::{Section, malformed};
use super::terminal::{STATE_GRAPH, Terminal};

/// Keys of `child_constraints`.
pub(super) const KEYS: [&str; 2] = ["min_version", "max_version"];

/// Checks each pair of `elements`, tool first. Returns the entry for a trace.
pub(super) fn check(elements: &[impl AsRef<Item>]) -> Result<Value, Error> {
    let (mut pairs, mut constraints) = (0_usize, 0_usize);
    for pair in elements.windows(2) {
        let [child, parent] = pair else { continue };
        let (child, parent) = (child.as_ref(), parent.as_ref());
        pairs += 1;
        constraints += usize::from(versions(child, parent)?);
        constraints += usize::from(data(child, parent)?);
    }
    Ok(json!({"step": "validate", "pairs": pairs, "constraints": constraints}))
}

/// Checks the version of `child` against the bounds of `parent`, both inclusive. Returns false without
/// `child_constraints`.
fn versions(child: &Item, parent: &Item) -> Result<bool, Error> {
    let Some(asked) = &parent.metadata.child_constraints else {
        return Ok(false);
    };
    let asked = Section::new(parent, "child_constraints", asked, &KEYS)?;
    let bound = |key: &str| {
        asked.read(key, "a version such as \"1.0.0\"", |value| {
            Version::parse(value.as_str()?).ok()
        })
    };
    let (min, max) = (bound("min_version")?, bound("max_version")?);
    let told = child.metadata.version.as_deref().unwrap_or_default();
    let Ok(version) = Version::parse(told) else {
        let problem = format!("is `{told}`, which is no version such as \"1.0.0\"");
        return Err(malformed(child, "version", &problem));
    };
    let below = min.as_ref().is_some_and(|min| version < *min);
    let above = max.as_ref().is_some_and(|max| version > *max);
    if !below && !above {
        return Ok(true);
    }
    let end = |bound: &Option<Version>| bound.as_ref().map(Version::to_string);
    let wanted = match (end(&min), end(&max)) {
        (Some(min), Some(max)) => format!("{min} to {max}"),
        (Some(min), None) => format!("{min} or later"),
        (None, Some(max)) => format!("{max} or earlier"),
        (None, None) => return Ok(true),
    };
    Err(Error::Version {
        child: child.path.clone(),
        version: told.to_owned(),
        parent: parent.path.clone(),
        wanted,
    })
}

/// Checks that `child` has each output that `parent` requires. Returns false unless both declare theirs.
fn data(child: &Item, parent: &Item) -> Result<bool, Error> {
    let (Some(given), Some(taken)) = (&child.metadata.outputs, &parent.metadata.inputs) else {
        return Ok(false);
    };
    let missing: Vec<_> = taken.iter().filter(|name| !given.contains(name)).collect();
    if missing.is_empty() {
        return Ok(true);
    }
    let missing: Vec<_> = missing.iter().map(|name| format!("`{name}`")).collect();
    Err(Error::Data {
        child: child.path.clone(),
        parent: parent.path.clone(),
        missing: missing.join(", "),
    })
}

/// Refuses a library, and an element with keys that this version does not implement.
pub(super) fn refuse_unread(element: &Item) -> Result<(), Error> {
    let path = element.path.clone();
    if element.metadata.tool_type.as_deref() == Some("library") {
        return Err(Error::Library { path });
    }
    let executor = element.metadata.executor_id.as_deref();
    let executor = executor.and_then(|id| ItemId::new(id).ok());
    // Only a file with `tool_type: graph` may have the keys of a graph.
    let is_graph = element.metadata.tool_type.as_deref() == Some("graph");
    if !is_graph
        && executor.is_some_and(|id| ItemRef::tool(id).canonical().id.as_str() == STATE_GRAPH)
    {
        let problem =
            "must be `graph` where the `executor_id` is that of graphs: write `tool_type: graph`";
        return Err(malformed(element, "tool_type", problem));
    }
    let Some(unread) = element.metadata.unread.first() else {
        return Ok(());
    };
    let Unread {
        key,
        line,
        suggestion: near,
    } = unread.clone();
    let hint = did_you_mean(near);
    Err(Error::UnknownKey {
        path,
        key,
        line,
        hint,
    })
}

/// Refuses an element with `tool_type: graph` in a chain that does not end at the graph runtime. The keys of a graph
/// are checked only by the graph parser, which would not see this file.
pub(super) fn refuse_graph(elements: &[Arc<Item>], terminal: Terminal) -> Result<(), Error> {
    let is_graph = |element: &&Arc<Item>| element.metadata.tool_type.as_deref() == Some("graph");
    match elements.iter().find(is_graph) {
        Some(element) if terminal != Terminal::Graph => {
            let problem = format!(
                "is `graph`, and no graph is run by its `executor_id`: write another `tool_type`, or `executor_id: {STATE_GRAPH}`"
            );
            Err(malformed(element, "tool_type", &problem))
        }
        Some(_) | None => Ok(()),
    }
}
