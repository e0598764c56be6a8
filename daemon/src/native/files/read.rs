//! `rye/file-system/read`.

use std::fmt::Write as _;

use serde::Deserialize;
use serde_json::{Value, json};

use super::lines::{LineId, shown as line_shown, split};
use super::place::Workspace;
use super::{Error, shown};

/// Maximum number of lines of an answer.
const MOST_LINES: usize = 2_000;
/// Maximum size in bytes of the lines of an answer, in the format of `cat -n`.
const MOST_BYTES: usize = 48 * 1024;
/// Bytes of a line number in the format of `cat -n`, with the tab after it.
const NUMBER_BYTES: usize = 7;

#[derive(Debug, Deserialize)]
pub(super) struct ReadParams {
    path: String,
    offset: Option<usize>,
    limit: Option<usize>,
}

/// Reads lines of a file, each with its number and its id.
pub(super) fn read(place: &Workspace, asked: &ReadParams) -> Result<Value, Error> {
    let found = place.file(&asked.path)?;
    let content = found.lines()?;
    if content.contains(&0) {
        return Err(Error::Not {
            path: asked.path.clone(),
            expected: "a text: it has a NUL byte in it",
        });
    }
    let lines = split(&content);
    let total = lines.len();
    let first = asked.offset.unwrap_or(1).max(1);
    if first > 1 && first > total {
        return Err(Error::Invalid(format!(
            "`offset` {first} is after the end: `{}` has {total} lines",
            asked.path
        )));
    }
    let most = asked.limit.unwrap_or(MOST_LINES).min(MOST_LINES);
    let mut told = String::new();
    let (mut count, mut bytes) = (0, 0);
    for (number, line) in (1..).zip(&lines).skip(first - 1).take(most) {
        let text = line_shown(line.text);
        bytes += NUMBER_BYTES + text.len() + 1;
        if count > 0 && bytes > MOST_BYTES {
            break;
        }
        let id = LineId::of(number, line.text);
        writeln!(told, "{number}:{id}│ {text}").expect("writing to a String cannot fail");
        count += 1;
    }
    let path = shown(&found.path);
    let next = first + count;
    let is_truncated = next <= total;
    let mut output = if total == 0 {
        format!("{path} is empty\n")
    } else {
        format!("{path}: lines {first} to {} of {total}\n", next - 1)
    };
    output.push_str(&told);
    if is_truncated {
        let more = total - next + 1;
        let note = format!("[{more} more lines: read on with offset {next}]\n");
        output.push_str(&note);
    }
    Ok(json!({
        "success": true,
        "output": output,
        "line_count": count,
        "total_lines": total,
        "truncated": is_truncated,
        "offset": first,
    }))
}
