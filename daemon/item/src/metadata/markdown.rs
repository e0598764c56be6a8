//! Fenced metadata of knowledge and directives, as far as verifying and signing need it.

use serde_json::{Map, Value};

use super::{Error, mapping};

/// The first ```` ```yaml ```` fence, or the `---` block at the top, of a knowledge file.
pub(super) fn knowledge(text: &str) -> Result<Map<String, Value>, Error> {
    let (line, block) = fence(text, "yaml")
        .or_else(|| front_matter(text).map(|(line, block, _)| (line, block)))
        .ok_or(Error::WrongShape {
            expected: "its metadata in a ```yaml fence",
        })?;
    mapping(block, line)
}

/// Text of a knowledge file without the block that [`knowledge`] reads.
pub(super) fn body(text: &str) -> String {
    let (_, text) = below_signature(text);
    let (above, below) = match (rye_core::markdown::fence(text, "yaml"), front_matter(text)) {
        (Some(fence), _) => {
            let above = text[..fence.content.start].trim_end_matches('\n');
            let above = above
                .rsplit_once('\n')
                .map_or("", |(above, _opening)| above);
            (above, &text[fence.end..])
        }
        (None, Some((.., rest))) => ("", rest),
        (None, None) => (text, ""),
    };
    let parts = [above, below].map(str::trim);
    parts.join("\n\n").trim().to_owned()
}

/// Name, version, category, description and callers of the `<directive>` in the first ```` ```xml ```` fence.
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
    let mut fields: Map<String, Value> = found
        .into_iter()
        .filter_map(|(field, text)| Some((field.to_owned(), Value::from(text?))))
        .collect();
    if let Some(callers) = element(block, "callers") {
        let words = callers.split(',').map(str::trim);
        fields.insert("callers".to_owned(), words.collect());
    }
    Ok(fields)
}

/// Content of the first fence of `language`, with the number of lines above it.
fn fence<'a>(text: &'a str, language: &str) -> Option<(usize, &'a str)> {
    let fence = rye_core::markdown::fence(text, language)?;
    Some((fence.line, &text[fence.content]))
}

/// Text below the signature line, if there is one, and the number of lines above it.
pub(super) fn below_signature(text: &str) -> (usize, &str) {
    match text.split_once('\n') {
        Some((first, rest)) if first.starts_with("<!--") => (1, rest),
        Some(_) | None => (0, text),
    }
}

/// Block between two `---` lines at the top, below the signature, with the number of lines above it; then the rest of
/// the text.
fn front_matter(text: &str) -> Option<(usize, &str, &str)> {
    let (above, text) = below_signature(text);
    let block = text.strip_prefix("---\n")?;
    let end = block.find("\n---")?;
    let rest = block[end + 1..].split_once('\n');
    Some((above + 1, &block[..end], rest.map_or("", |(_, rest)| rest)))
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
