//! The fenced metadata of knowledge and directives, as far as verifying and signing need it.

use serde_json::{Map, Value};

use super::{Error, mapping};

/// The first ```` ```yaml ```` fence, or the `---` block at the top, of a knowledge file.
pub(super) fn knowledge(text: &str) -> Result<Map<String, Value>, Error> {
    let (line, block) =
        fence(text, "yaml")
            .or_else(|| front_matter(text))
            .ok_or(Error::WrongShape {
                expected: "its metadata in a ```yaml fence",
            })?;
    mapping(block, line)
}

/// Name, version, category and description of the `<directive>` in the first ```` ```xml ```` fence.
pub(super) fn directive(text: &str) -> Result<Map<String, Value>, Error> {
    let missing = || Error::WrongShape {
        expected: "a <directive> element in an ```xml fence",
    };
    let (_, block) = fence(text, "xml").ok_or_else(missing)?;
    let start = block.find("<directive").ok_or_else(missing)?;
    let tag = block[start..].split('>').next().ok_or_else(missing)?;
    let found = [
        ("name", attribute(tag, "name")),
        ("version", attribute(tag, "version")),
        ("category", element(block, "category")),
        ("description", element(block, "description")),
    ];
    Ok(found
        .into_iter()
        .filter_map(|(field, text)| Some((field.to_owned(), Value::from(text?))))
        .collect())
}

/// The lines between the first fence of `language` and its end, with the number of lines above them. Fences of four
/// and more backticks hide what is in them.
fn fence<'a>(text: &'a str, language: &str) -> Option<(usize, &'a str)> {
    let mut offset = 0;
    let mut outer: Option<usize> = None;
    let mut inner: Option<(usize, usize)> = None;
    for (index, line) in text.split_inclusive('\n').enumerate() {
        let ticks = line.bytes().take_while(|byte| *byte == b'`').count();
        let word = line.get(ticks..).unwrap_or("").trim();
        match (inner, outer) {
            (Some((line, start)), _) if ticks == 3 && word.is_empty() => {
                return Some((line, &text[start..offset]));
            }
            (Some(_), _) => {}
            (None, Some(open)) => {
                if ticks >= open && word.is_empty() {
                    outer = None;
                }
            }
            (None, None) => {
                if ticks == 3 && word == language {
                    inner = Some((index + 1, offset + line.len()));
                } else if ticks >= 3 {
                    outer = Some(ticks);
                }
            }
        }
        offset += line.len();
    }
    None
}

/// The text below the signature line, if there is one, and the number of lines above it.
pub(super) fn below_signature(text: &str) -> (usize, &str) {
    match text.split_once('\n') {
        Some((first, rest)) if first.starts_with("<!--") => (1, rest),
        Some(_) | None => (0, text),
    }
}

/// The block between two `---` lines at the top, below the signature.
fn front_matter(text: &str) -> Option<(usize, &str)> {
    let (above, text) = below_signature(text);
    let block = text.strip_prefix("---\n")?;
    let end = block.find("\n---")?;
    Some((above + 1, &block[..end]))
}

fn attribute<'a>(tag: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = tag.split_once(&format!(" {name}=\""))?;
    rest.split_once('"').map(|(value, _)| value)
}

fn element<'a>(block: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = block.split_once(&format!("<{name}>"))?;
    rest.split_once(&format!("</{name}>"))
        .map(|(value, _)| value.trim())
}
