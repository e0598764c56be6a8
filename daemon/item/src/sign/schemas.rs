//! Schemas of configuration, `*.config-schema.yaml`, which are checked before signing.
//!
//! Such a file is a tool with two more keys: `target_config`, a path or a pattern of paths below `.ai/config`, and
//! `schema`, a JSON schema. A schema of the file's own space or of a lesser one counts whether or not it is signed: it
//! can only prevent a signature. **Failure.** An unusable schema is an error, and blocks the signing of all
//! configuration until it is fixed.

use std::fs;
use std::path::Path;

use globset::GlobBuilder;
use rye_core::id::ItemKind;
use rye_core::yaml;
use rye_schema::{CheckError, Schema};
use serde_json::Value;

use super::Error;
use crate::metadata;
use crate::spaces::{FOLDER, ItemLocation, MAX_SIZE, SKIPPED, Space, Spaces};

const SUFFIX: &str = ".config-schema.yaml";
/// Maximum number of problems reported at once.
const MAX_REPORTED: usize = 5;

/// Refuses configuration that does not match a schema, and an invalid schema.
pub(super) fn check(spaces: &Spaces, place: &ItemLocation, text: &str) -> Result<(), Error> {
    let path = place.path();
    match place.item.kind {
        ItemKind::Tool if is_schema(&path) => read(&path, text).map(drop),
        ItemKind::Config => against_all(spaces, place, text),
        ItemKind::Tool | ItemKind::Directive | ItemKind::Knowledge => Ok(()),
    }
}

fn is_schema(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.ends_with(SUFFIX))
}

fn against_all(spaces: &Spaces, place: &ItemLocation, text: &str) -> Result<(), Error> {
    let target = format!("{}.{}", place.item.id, place.extension);
    for &space in place.space.visible() {
        // The system space has no schemas of configuration.
        let root = spaces.root(space).filter(|_| space != Space::System);
        let mut open: Vec<_> = root
            .map(|root| root.join(FOLDER).join(ItemKind::Tool.folder()))
            .into_iter()
            .collect();
        while let Some(folder) = open.pop() {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                let path = entry.path();
                match entry.file_type() {
                    Ok(kind) if kind.is_dir() => {
                        let is_skipped = SKIPPED.iter().any(|name| entry.file_name() == *name);
                        open.extend((!is_skipped).then_some(path));
                    }
                    Ok(kind) if kind.is_file() && is_schema(&path) => {
                        against(&path, place, &target, text)?;
                    }
                    Ok(_) | Err(_) => {}
                }
            }
        }
    }
    Ok(())
}

/// Checks configuration against the schema in the file `path`, if its target matches.
fn against(path: &Path, place: &ItemLocation, target: &str, text: &str) -> Result<(), Error> {
    let wrong = |problem: String| Error::Schema {
        path: path.to_owned(),
        problem,
    };
    let about = fs::metadata(path).map_err(|error| wrong(error.to_string()))?;
    if about.len() > MAX_SIZE {
        return Err(wrong(format!("it is larger than {MAX_SIZE} bytes")));
    }
    let content = fs::read(path).map_err(|error| wrong(error.to_string()))?;
    let content = metadata::utf8(&content).map_err(|error| wrong(error.to_string()))?;
    let (pattern, schema) = read(path, content)?;
    let glob = GlobBuilder::new(&pattern).literal_separator(true).build();
    let glob = glob.map_err(|error| wrong(format!("`target_config` is no pattern: {error}")))?;
    if !glob.compile_matcher().is_match(target) {
        return Ok(());
    }
    let unfit = |problem: String| Error::Unfit {
        path: place.path(),
        problem,
        schema: path.to_owned(),
    };
    let config = metadata::configuration(place.extension, text);
    let config = config.map_err(|source| Error::Metadata {
        path: place.path(),
        source,
    })?;
    match schema.problems(&Value::Object(config), MAX_REPORTED) {
        Ok(problems) if problems.is_empty() => Ok(()),
        Ok(problems) => {
            let told = problems.iter().map(|problem| {
                let place = problem.at.trim_start_matches('/').replace('/', ".");
                let message = &problem.message;
                if place.is_empty() {
                    message.clone()
                } else {
                    format!("`{place}`: {message}")
                }
            });
            Err(unfit(told.collect::<Vec<_>>().join("; ")))
        }
        Err(untold @ (CheckError::Misfit | CheckError::TooComplex)) => {
            Err(unfit(format!("it {untold}")))
        }
    }
}

/// Target pattern and schema of the file `path`.
fn read(path: &Path, text: &str) -> Result<(String, Schema), Error> {
    let wrong = |problem: String| Error::Schema {
        path: path.to_owned(),
        problem,
    };
    let document = yaml::parse(text).map_err(|error| wrong(error.to_string()))?;
    let target = document.value.get("target_config").and_then(Value::as_str);
    let target = target.ok_or_else(|| {
        let problem = "`target_config` must be a path or a pattern of paths below `.ai/config`";
        wrong(problem.to_owned())
    })?;
    let schema = document.value.get("schema");
    let schema = schema.ok_or_else(|| wrong("`schema` must be a JSON schema".to_owned()))?;
    let schema = Schema::new(schema).map_err(|unusable| {
        wrong(format!(
            "`schema{}`: {}",
            unusable.at.replace('/', "."),
            unusable.problem
        ))
    })?;
    Ok((target.trim_start_matches(".ai/config/").to_owned(), schema))
}
