//! Constants at the top of a JavaScript or TypeScript file: `export const __version__ = "1.0.0";`.

use serde_json::{Map, Value};

use super::Error;

const NAMES: [(&str, &str); 8] = [
    ("__version__", "version"),
    ("__tool_type__", "tool_type"),
    ("__executor_id__", "executor_id"),
    ("__category__", "category"),
    ("__name__", "name"),
    ("__tool_name__", "name"),
    ("__tool_description__", "description"),
    ("__effect__", "effect"),
];

/// Objects, which this release does not read: no JavaScript runtime is shipped yet.
const OBJECTS: [(&str, &str); 3] = [
    ("CONFIG_SCHEMA", "x_config_schema"),
    ("ENV_CONFIG", "x_env_config"),
    ("CONFIG", "x_config"),
];

/// The constants we read, under their YAML names.
pub(super) fn constants(text: &str) -> Result<Map<String, Value>, Error> {
    let mut fields = Map::new();
    for (index, line) in text.lines().enumerate() {
        let Some((name, value)) = constant(line) else {
            continue;
        };
        if let Some((_, field)) = NAMES.iter().find(|(known, _)| *known == name) {
            let value = literal(value).ok_or_else(|| Error::NotLiteral {
                line: index + 1,
                name: name.to_owned(),
            })?;
            fields.insert((*field).to_owned(), value);
        } else if let Some((_, field)) = OBJECTS.iter().find(|(known, _)| *known == name) {
            fields.insert((*field).to_owned(), Value::Null);
        }
    }
    Ok(fields)
}

/// Name and right side of `[export] const|let|var NAME [: TYPE] = VALUE[;]`.
fn constant(line: &str) -> Option<(&str, &str)> {
    let line = line.strip_prefix("export ").unwrap_or(line);
    let line = ["const ", "let ", "var "]
        .iter()
        .find_map(|word| line.strip_prefix(word))?;
    let (left, right) = line.split_once('=')?;
    let name = left.split(':').next()?.trim();
    Some((name, right.trim().trim_end_matches(';').trim_end()))
}

fn literal(value: &str) -> Option<Value> {
    if value == "null" {
        return Some(Value::Null);
    }
    ['"', '\'']
        .iter()
        .find_map(|quote| value.strip_prefix(*quote)?.strip_suffix(*quote))
        .filter(|text| !text.contains(['\\', '"', '\'']))
        .map(Value::from)
}
