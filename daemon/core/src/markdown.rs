//! Fenced blocks in a Markdown text.
//!
//! Directives and knowledge hold machine-readable data in a fenced block. All readers find it here: two readers that
//! find different blocks in one text would verify one block and use another.

use std::ops::Range;

/// A fenced block of three backticks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fence {
    /// Number of lines above the first line of the content.
    pub line: usize,
    /// Byte range between the two fences.
    pub content: Range<usize>,
    /// Offset of the first byte after the line of the closing fence.
    pub end: usize,
}

/// Finds the first block of `language` in `text`. A block within another fence does not count, nor does an unclosed
/// block.
pub fn fence(text: &str, language: &str) -> Option<Fence> {
    let mut offset = 0;
    let mut outer: Option<usize> = None;
    let mut inner: Option<(usize, usize)> = None;
    for (index, line) in text.split_inclusive('\n').enumerate() {
        let ticks = line.bytes().take_while(|byte| *byte == b'`').count();
        let word = line.get(ticks..).unwrap_or("").trim();
        let end = offset + line.len();
        match (inner, outer) {
            (Some((line, start)), _) if ticks == 3 && word.is_empty() => {
                return Some(Fence {
                    line,
                    content: start..offset,
                    end,
                });
            }
            (Some(_), _) => {}
            (None, Some(open)) => {
                if ticks >= open && word.is_empty() {
                    outer = None;
                }
            }
            (None, None) => {
                if ticks == 3 && word == language {
                    inner = Some((index + 1, end));
                } else if ticks >= 3 {
                    outer = Some(ticks);
                }
            }
        }
        offset = end;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Option<(usize, &str, &str)> {
        let fence = fence(text, "xml")?;
        Some((fence.line, &text[fence.content], &text[fence.end..]))
    }

    #[test]
    fn the_first_block_outside_of_other_fences_is_found() {
        for (text, expected) in [
            ("", None),
            ("```xml\n<a/>\n```", Some((1, "<a/>\n", ""))),
            (
                "# T\n```xml\n<a/>\n```\nbody\n",
                Some((2, "<a/>\n", "body\n")),
            ),
            ("```xml\n<a/>\n", None),
            (
                "```yaml\n```xml\n```\n```xml\nb\n```\n",
                Some((4, "b\n", "")),
            ),
            (
                "````\n```xml\nhidden\n```\n````\n```xml\nb\n```\nrest",
                Some((6, "b\n", "rest")),
            ),
            ("```xml\n```sh\n```\nrest", Some((1, "```sh\n", "rest"))),
            ("````xml\n<a/>\n````\n", None),
        ] {
            assert_eq!(found(text), expected, "{text:?}");
        }
    }
}
