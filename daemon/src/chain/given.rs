//! Configuration that a tool requests by `config_resolve`, and receives in addition to its parameters.

use rye_core::id::{ItemId, ItemKind, ItemRef};
use rye_core::model::Object;
use rye_core::seal::{canonical, sha256_hex};
use rye_item::library::Layers;
use rye_item::{Item, Library};
use serde_json::{Value, json};

use super::error::Error;
use super::fields::{Section, malformed};

/// Member of the tool's parameters that holds the configuration.
pub(super) const MEMBER: &str = "resolved_config";

const FIELD: &str = "config_resolve";
pub(super) const KEYS: [&str; 2] = ["path", "mode"];

/// Configuration for one tool.
#[derive(Debug, Clone)]
pub(super) struct Given {
    pub(super) value: Value,
    /// SHA-256 of its canonical JSON.
    pub(super) hash: String,
    pub(super) traced: Vec<Value>,
    /// The verified files it was merged from, in the form of a lock.
    pub(super) files: Vec<Value>,
}

/// Reads and merges the configuration that `tool` requests; `None` if it requests none. Each file is verified like any
/// item.
pub(super) fn look_up(tool: &Item, library: &Library) -> Result<Option<Given>, Error> {
    let Some(asked) = &tool.metadata.config_resolve else {
        return Ok(None);
    };
    if declares(tool) {
        let problem =
            "may not declare `resolved_config`: it is put in after the caller's words are checked";
        return Err(malformed(tool, "config_schema.properties", problem));
    }
    let (mut traced, mut files) = (Vec::new(), Vec::new());
    let value = match asked {
        Value::Object(spec) => file(tool, FIELD, spec, library, (&mut traced, &mut files))?.1,
        Value::Array(specs) => {
            let mut all = Object::new();
            for (at, spec) in specs.iter().enumerate() {
                let field = format!("{FIELD}.{at}");
                let Some(spec) = spec.as_object() else {
                    return Err(malformed(
                        tool,
                        &field,
                        "must be a mapping of `path` and `mode`",
                    ));
                };
                let (path, value) = file(tool, &field, spec, library, (&mut traced, &mut files))?;
                let _same_path = all.insert(path, value);
            }
            Value::Object(all)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            let problem = "must be a mapping of `path` and `mode`, or a list of these";
            return Err(malformed(tool, FIELD, problem));
        }
    };
    let hash = sha256_hex(canonical(&value));
    Ok(Some(Given {
        value,
        hash,
        traced,
        files,
    }))
}

/// True if the schema of `tool` declares a parameter [`MEMBER`].
fn declares(tool: &Item) -> bool {
    let schema = tool.metadata.config_schema.as_ref();
    schema.is_some_and(|schema| schema["properties"].get(MEMBER).is_some())
}

/// Reads one configuration file that `tool` requests. Returns its path in the request and its value.
fn file(
    tool: &Item,
    field: &str,
    spec: &Object,
    library: &Library,
    (traced, files): (&mut Vec<Value>, &mut Vec<Value>),
) -> Result<(String, Value), Error> {
    let section = Section::new(tool, field, spec, &KEYS)?;
    let wrong = |key: &str, problem: &str| section.malformed(key, problem);
    let path = spec.get("path").and_then(Value::as_str);
    let path = path.ok_or_else(|| wrong("path", "must be a path below `.ai/config`"))?;
    let extensions = ItemKind::Config.extensions();
    let id = path
        .rsplit_once('.')
        .filter(|(_, extension)| extensions.contains(extension))
        .and_then(|(id, _)| ItemId::new(id).ok());
    let Some(id) = id else {
        let problem = format!(
            "is `{path}`; it must be the path of a file below `.ai/config`, such as `web/search.yaml`, with one of the \
             extensions {}",
            extensions.join(", ")
        );
        return Err(wrong("path", &problem));
    };
    let (layers, mode) = match spec.get("mode").and_then(Value::as_str) {
        Some("deep_merge") => (Layers::Merged, "deep_merge"),
        None if !spec.contains_key("mode") => (Layers::Merged, "deep_merge"),
        Some("first_match") => (Layers::First, "first_match"),
        _ => return Err(wrong("mode", "must be `deep_merge` or `first_match`")),
    };
    let item = ItemRef {
        kind: ItemKind::Config,
        id,
    };
    let found = library.layered(&item, layers);
    let (value, of) = found.map_err(|error| Error::Item(Box::new(error)))?;
    let paths: Vec<_> = of.iter().map(|file| &file.path).collect();
    traced.push(json!({"step": "config_resolve", "path": path, "mode": mode, "files": paths}));
    files.extend(of.iter().map(|file| {
        let space = file.space.as_str();
        json!({"path": path, "space": space, "integrity": file.content_hash})
    }));
    Ok((path.to_owned(), Value::Object(value)))
}
