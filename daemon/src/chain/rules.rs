//! What two neighbours of a chain ask of each other: the versions an executor takes, and the data it takes from what it runs.

use rye_core::declared::Fields as _;
use rye_item::Item;
use semver::Version;
use serde_json::{Value, json};

use super::error::Error;
use super::fields::{Section, malformed};

/// Keys of `child_constraints`.
pub(super) const KEYS: [&str; 2] = ["min_version", "max_version"];

/// Checks each pair of `elements`, tool first; answers the entry of a trace.
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

/// Whether `parent` asks for a version at all; the one of `child` must then be within what it asks for, both ends included.
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

/// Whether both say what passes between them; each name that `parent` takes must then be one that `child` gives.
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
