//! Adds the line by which an item names itself. A signature covers the name only if the text holds it; without it, the
//! file could be copied over another one of its folder.

use rye_core::id::ItemKind;
use rye_core::yaml;

/// Fields after which the name is inserted, preferred one first.
const NEIGHBOURS: [&str; 2] = ["category", "version"];

/// Inserts a line that names the item; `None` if no line of `text` is a suitable place. The caller checks that the name
/// can be read there.
pub(super) fn added(kind: ItemKind, extension: &str, text: &str, name: &str) -> Option<String> {
    // A directive is named by an attribute of its element.
    if kind == ItemKind::Directive {
        return None;
    }
    let field = format!("name: {}", scalar(name));
    let ways: Vec<(&str, String)> = match extension {
        "py" => vec![("__*__", format!("__tool_name__ = \"{name}\""))],
        "js" | "ts" | "mjs" | "cjs" => vec![
            ("__*__", format!("export const __tool_name__ = \"{name}\";")),
            ("*", format!("export const NAME = \"{name}\";")),
        ],
        "toml" => vec![("*", format!("name = \"{name}\""))],
        "sh" => vec![("# *", format!("# {field}"))],
        _ => vec![("*", field)],
    };
    let neighbour = |spelling: &str, field: &str| {
        let is_constant = matches!(extension, "js" | "ts" | "mjs" | "cjs") && spelling == "*";
        let field = if is_constant {
            field.to_uppercase()
        } else {
            field.to_owned()
        };
        spelling.replace('*', &field)
    };
    let (at, line) = ways.into_iter().find_map(|(spelling, line)| {
        let mut keys = NEIGHBOURS.iter().map(|field| neighbour(spelling, field));
        Some((keys.find_map(|key| end_of(text, &key))?, line))
    })?;
    let (above, below) = text.split_at(at);
    let line_end = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let end = if above.ends_with('\n') { "" } else { line_end };
    Some(format!("{above}{end}{line}{line_end}{below}"))
}

/// `name` as a YAML string: some names would be read as numbers.
fn scalar(name: &str) -> String {
    match yaml::parse(name) {
        Ok(document) if document.value == name => name.to_owned(),
        Ok(_) | Err(_) => format!("\"{name}\""),
    }
}

/// Offset of the end of the first line that assigns `key`.
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
