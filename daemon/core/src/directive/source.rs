//! Positions of the parts of a directive file: its element, its body, and opaque elements.

use std::ops::Range;

use roxmltree::{Document, ParsingOptions};

use super::MOST_BYTES;
use crate::definition::{Finding, Severity};
use crate::markdown;
use crate::yaml::Position;

/// Limit of the XML nodes of a file.
const MOST_NODES: u32 = 10_000;

/// Limit of the quotation marks between two `<`: the XML reader compares the attributes of an element pairwise.
const MOST_QUOTES: usize = 10_000;

/// Elements whose content is for the model only.
pub(super) const OPAQUE: [&str; 3] = ["template", "example", "raw"];

/// A directive file with the content of opaque elements blanked.
pub(super) struct Source<'t> {
    text: &'t str,
    /// Byte range of the XML.
    xml: Range<usize>,
    /// Offset of the first byte of the body.
    body: usize,
    /// The XML with the content of opaque elements replaced by as many blanks: all offsets stay as they are.
    blanked: String,
    /// Offset of each line.
    lines: Vec<usize>,
}

impl<'t> Source<'t> {
    pub(super) fn find(text: &'t str) -> Result<Self, Finding> {
        if text.len() > MOST_BYTES {
            let message = format!("the file is larger than {} MiB", MOST_BYTES >> 20);
            return Err(finding("too_large", Position::START, message));
        }
        let fence = markdown::fence(text, "xml").ok_or_else(|| {
            let message = "there is no ```xml block that holds a <directive>; it begins and ends with a line of three backticks";
            finding("missing_directive", Position::START, message.to_owned())
        })?;
        let blanked = blank(&text[fence.content.clone()]);
        Ok(Self {
            text,
            xml: fence.content,
            body: fence.end,
            blanked,
            lines: std::iter::once(0)
                .chain(text.match_indices('\n').map(|(at, _)| at + 1))
                .collect(),
        })
    }

    /// Returns the XML as a tree, with offsets from the beginning of the XML.
    pub(super) fn document(&self) -> Result<Document<'_>, Finding> {
        let start = self.position(0);
        let crowded = |part: &str| part.matches(['"', '\'']).count() > MOST_QUOTES;
        if self.blanked.split('<').any(crowded) {
            let message = format!("one element has more than {} attributes", MOST_QUOTES / 2);
            return Err(finding("too_large", start, message));
        }
        let options = ParsingOptions {
            allow_dtd: false,
            nodes_limit: MOST_NODES,
            ..ParsingOptions::default()
        };
        Document::parse_with_options(&self.blanked, options).map_err(|error| {
            let at = error.pos();
            let position = Position {
                line: start.line + one_based(at.row) - 1,
                column: one_based(at.col),
            };
            // The library's texts name a line of the block.
            let problem = error.to_string().replace(&format!(" at {at}"), "");
            finding("xml", position, format!("the XML is broken: {problem}"))
        })
    }

    /// Returns the position of a byte of the XML.
    pub(super) fn position(&self, in_xml: usize) -> Position {
        self.position_of(self.xml.start + in_xml)
    }

    /// Returns the position of a byte of the file.
    pub(super) fn position_of(&self, byte: usize) -> Position {
        let line = self.lines.partition_point(|start| *start <= byte);
        let start = self.lines.get(line - 1).copied().unwrap_or_default();
        let column = self
            .text
            .get(start..byte)
            .map_or(0, |above| above.chars().count());
        Position {
            line,
            column: column + 1,
        }
    }

    /// Returns a part of the XML as written.
    pub(super) fn written(&self, range: Range<usize>) -> &'t str {
        let start = self.xml.start;
        &self.text[start + range.start..start + range.end]
    }

    /// Returns the XML without opaque content, and the body, each with its first byte.
    pub(super) fn shown(&self) -> [(usize, &str); 2] {
        [(self.xml.start, &self.blanked), (self.body, self.body())]
    }

    /// Returns the text after the fence.
    pub(super) fn body(&self) -> &'t str {
        &self.text[self.body..]
    }
}

pub(super) fn finding(code: &'static str, at: Position, message: String) -> Finding {
    Finding {
        code,
        message,
        node: None,
        line: at.line,
        column: at.column,
        severity: Severity::Error,
    }
}

/// Converts a line or column of the XML reader.
fn one_based(counted: u32) -> usize {
    usize::try_from(counted).unwrap_or(1).max(1)
}

/// Blanks the content of opaque elements of `xml`. An element ends at the first end tag of its name; tags in comments
/// and CDATA sections begin none.
fn blank(xml: &str) -> String {
    let mut bytes = xml.as_bytes().to_vec();
    let mut at = 0;
    while let Some(found) = xml[at..].find('<') {
        let start = at + found;
        let rest = &xml[start..];
        at = match hidden(rest) {
            Some(length) => start + length,
            None => match opaque(rest) {
                Some((content, end)) => {
                    for byte in &mut bytes[start + content..start + end] {
                        if *byte != b'\n' {
                            *byte = b' ';
                        }
                    }
                    start + end
                }
                None => start + 1,
            },
        };
    }
    String::from_utf8(bytes).expect("whole characters were replaced by blanks")
}

/// Returns the length of a comment or a CDATA section at the beginning of `rest`.
fn hidden(rest: &str) -> Option<usize> {
    let end = match rest {
        _ if rest.starts_with("<!--") => "-->",
        _ if rest.starts_with("<![CDATA[") => "]]>",
        _ => return None,
    };
    Some(rest.find(end).map_or(rest.len(), |at| at + end.len()))
}

/// Returns begin and end of the content of an opaque element at the beginning of `rest`.
fn opaque(rest: &str) -> Option<(usize, usize)> {
    let name = OPAQUE.into_iter().find(|name| {
        let after = rest[1..].strip_prefix(name);
        after.is_some_and(|after| after.starts_with(|c: char| c == '>' || c.is_whitespace()))
    })?;
    let mut quote = None;
    let (content, _) = rest.match_indices(['"', '\'', '>']).find(|(_, mark)| {
        match quote {
            Some(open) if open == *mark => quote = None,
            Some(_) => {}
            None if *mark == ">" => return true,
            None => quote = Some(*mark),
        }
        false
    })?;
    if rest[..content].ends_with('/') {
        return None;
    }
    let end = rest[content..].find(&format!("</{name}"))?;
    Some((content + 1, content + end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opaque_content_is_blanked_in_place() {
        for (xml, expected) in [
            ("<a><raw>x < é</raw></a>", "<a><raw>      </raw></a>"),
            ("<raw a=\">\">x</raw>", "<raw a=\">\"> </raw>"),
            ("<example>a\nb</example>", "<example> \n </example>"),
            ("<raw/><b>x</b></raw>", "<raw/><b>x</b></raw>"),
            ("<rawer>x</rawer>", "<rawer>x</rawer>"),
            ("<!-- <raw> --><b/></raw>", "<!-- <raw> --><b/></raw>"),
            ("<![CDATA[<raw>]]><b/></raw>", "<![CDATA[<raw>]]><b/></raw>"),
            ("<raw>never closed", "<raw>never closed"),
            (
                "<template>1</template><raw>2</raw>",
                "<template> </template><raw> </raw>",
            ),
            ("<raw><raw>1</raw>", "<raw>      </raw>"),
            ("<raw", "<raw"),
        ] {
            assert_eq!(blank(xml), expected, "{xml}");
        }
    }
}
