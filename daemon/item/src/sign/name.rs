//! The line by which an item names itself: a signature covers the name only if the text holds it, and without it the file could be
//! copied over another one of its folder.

use rye_core::id::ItemKind;
use rye_core::yaml;

/// Fields behind which the name is put, the best place first.
const NEIGHBOURS: [&str; 2] = ["category", "version"];

/// `text` with a line that names the item; `None` if no line of it is a good place for that. Whether the name can be read
/// there is for the caller to see.
pub(super) fn added(kind: ItemKind, extension: &str, text: &str, name: &str) -> Option<String> {
    // A directive is named by an attribute of its element.
    if kind == ItemKind::Directive {
        return None;
    }
    let (keys, line) = match extension {
        "py" => (script_keys(), format!("__tool_name__ = \"{name}\"")),
        "js" | "ts" | "mjs" | "cjs" => (
            script_keys(),
            format!("export const __tool_name__ = \"{name}\";"),
        ),
        "toml" => (plain_keys(), format!("name = \"{name}\"")),
        _ => (plain_keys(), format!("name: {}", scalar(name))),
    };
    let at = keys.iter().find_map(|key| end_of(text, key))?;
    let (above, below) = text.split_at(at);
    let end = if above.ends_with('\n') { "" } else { "\n" };
    Some(format!("{above}{end}{line}\n{below}"))
}

fn plain_keys() -> [String; 2] {
    NEIGHBOURS.map(str::to_owned)
}

fn script_keys() -> [String; 2] {
    NEIGHBOURS.map(|field| format!("__{field}__"))
}

/// `name` as a text of YAML: some names would be read as numbers.
fn scalar(name: &str) -> String {
    match yaml::parse(name) {
        Ok(document) if document.value == name => name.to_owned(),
        Ok(_) | Err(_) => format!("\"{name}\""),
    }
}

/// Where the first line ends that assigns `key`.
fn end_of(text: &str, key: &str) -> Option<usize> {
    let mut end = 0;
    for line in text.split_inclusive('\n') {
        end += line.len();
        let line = line.strip_prefix("export ").unwrap_or(line);
        let line = line.strip_prefix("const ").unwrap_or(line);
        let assigned = line.strip_prefix(key).map(str::trim_start);
        if assigned.is_some_and(|rest| rest.starts_with([':', '='])) {
            return Some(end);
        }
    }
    None
}
