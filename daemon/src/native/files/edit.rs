//! `rye/file-system/edit_lines`.
//!
//! **Rule.** A change names the replaced text itself, which must occur in the file exactly once, or the ids under which
//! lines were read. Both are looked up in the current file. If the text is gone, or a line has another text or number
//! by now, it is not found, and nothing is written.

use std::collections::HashMap;
use std::ops::Range;

use memchr::memmem;
use serde::Deserialize;
use serde_json::{Value, json};

use super::lines::{Line, LineId, split};
use super::place::Workspace;
use super::write::difference;
use super::{Error, shown};

#[derive(Debug, Deserialize)]
pub(super) struct EditParams {
    path: String,
    changes: Vec<Change>,
}

#[derive(Debug, Deserialize)]
struct Change {
    line_id: Option<String>,
    start_line_id: Option<String>,
    end_line_id: Option<String>,
    old_content: Option<String>,
    new_content: String,
}

/// A change with its position in the file.
struct Located {
    /// In bytes.
    range: Range<usize>,
    new: Vec<u8>,
}

/// Replaces lines of a file.
pub(super) fn edit(place: &Workspace, asked: &EditParams) -> Result<Value, Error> {
    let target = place.target(&asked.path)?;
    let existing = target.existing.as_ref().ok_or_else(|| Error::Missing {
        path: asked.path.clone(),
    })?;
    let before = existing.lines()?;
    let changes = locate(asked, &before)?;
    let after = applied(&before, &changes);
    if after == before {
        let text = format!("the changes leave `{}` as it is", asked.path);
        return Err(Error::Invalid(text));
    }
    let touched: usize = changes
        .iter()
        .map(|change| split(&before[change.range.clone()]).len())
        .sum();
    let answer = json!({
        "success": true,
        "output": difference(&shown(&target.path), &before, &after),
        "changes_applied": changes.len(),
        "lines_changed": touched,
    });
    place.draft(target, &after)?.put()?;
    Ok(answer)
}

/// The changes with their positions, in the order of the file.
fn locate(asked: &EditParams, before: &[u8]) -> Result<Vec<Located>, Error> {
    if asked.changes.is_empty() {
        return Err(Error::Invalid("`changes` is empty".to_owned()));
    }
    let lines = split(before);
    let ids = Ids::of(asked, &lines);
    let mut located = Vec::new();
    for (number, change) in asked.changes.iter().enumerate() {
        let names = (&change.line_id, &change.start_line_id, &change.end_line_id);
        let (first, last) = match (names, &change.old_content) {
            ((None, None, None), Some(old)) => {
                located.push(by_text(asked, number, old, before)?);
                continue;
            }
            ((Some(line), None, None), None) => (line, line),
            ((None, Some(first), Some(last)), None) => (first, last),
            _ => {
                return Err(Error::Invalid(format!(
                    "`changes[{number}]` names `old_content`, or `line_id`, or `start_line_id` and `end_line_id`"
                )));
            }
        };
        let (first, last) = (ids.line(first)?, ids.line(last)?);
        if first > last {
            return Err(Error::Invalid(format!(
                "`changes[{number}]` begins at line {}, after its end at line {}",
                first + 1,
                last + 1
            )));
        }
        located.push(by_lines(&lines, first, last, &change.new_content));
    }
    located.sort_by_key(|change| change.range.start);
    for pair in located.windows(2) {
        if pair[1].range.start < pair[0].range.end {
            return Err(Error::Invalid(format!(
                "two changes are about line {}: make them one",
                line_at(before, pair[1].range.start)
            )));
        }
    }
    Ok(located)
}

/// Line number, from 1, of the byte at `at`.
fn line_at(content: &[u8], at: usize) -> usize {
    memchr::memchr_iter(b'\n', &content[..at]).count() + 1
}

/// Change of the text `old`, which must occur exactly once. `read` shows all line ends as `\n`, so `old` also matches
/// `\r\n`.
fn by_text(asked: &EditParams, number: usize, old: &str, before: &[u8]) -> Result<Located, Error> {
    if old.is_empty() {
        let text = format!("`changes[{number}].old_content` is empty");
        return Err(Error::Invalid(text));
    }
    let new = &asked.changes[number].new_content;
    let as_windows = |text: &str| text.replace("\r\n", "\n").replace('\n', "\r\n");
    let mut found = places(before, old.as_bytes());
    let (mut length, mut new) = (old.len(), new.clone());
    if found.is_empty() && memmem::find(before, b"\r\n").is_some() {
        let old = as_windows(old);
        found = places(before, old.as_bytes());
        (length, new) = (old.len(), as_windows(&new));
    }
    match found.as_slice() {
        [] => Err(Error::Stale {
            path: asked.path.clone(),
            problem: format!("does not have the text of `changes[{number}].old_content`"),
        }),
        [at] => Ok(Located {
            range: *at..at + length,
            new: new.into_bytes(),
        }),
        [first, second, ..] => Err(Error::Invalid(format!(
            "`changes[{number}].old_content` is in `{}` more than once, at the lines {} and {}: give more of the text around it",
            asked.path,
            line_at(before, *first),
            line_at(before, *second)
        ))),
    }
}

/// Offsets of the first two occurrences of `text` in `content`.
fn places(content: &[u8], text: &[u8]) -> Vec<usize> {
    let Some(first) = memmem::find(content, text) else {
        return Vec::new();
    };
    let second = memmem::find(&content[first + 1..], text).map(|at| first + 1 + at);
    std::iter::once(first).chain(second).collect()
}

/// Change of the lines `first` to `last`, from 0.
fn by_lines(lines: &[Line<'_>], first: usize, last: usize, new_content: &str) -> Located {
    let length = |lines: &[Line<'_>]| -> usize {
        let lines = lines.iter();
        lines.map(|line| line.text.len() + line.end.len()).sum()
    };
    let start = length(&lines[..first]);
    let mut ends = lines.iter().map(|line| line.end);
    let of_file = ends.find(|end| !end.is_empty());
    let own = Some(lines[first].end).filter(|end| !end.is_empty());
    let end = own.or(of_file).unwrap_or(b"\n");
    let new: Vec<&str> = new_content.lines().collect();
    let mut content = Vec::new();
    for (at, text) in new.iter().enumerate() {
        content.extend_from_slice(text.as_bytes());
        let is_last = at + 1 == new.len();
        // A file without a final line end keeps that.
        content.extend_from_slice(if is_last && lines[last].end.is_empty() {
            b""
        } else {
            end
        });
    }
    Located {
        range: start..start + length(&lines[first..=last]),
        new: content,
    }
}

impl Change {
    fn names(&self) -> impl Iterator<Item = &str> {
        let names = [&self.line_id, &self.start_line_id, &self.end_line_id];
        names.into_iter().flatten().map(String::as_str)
    }
}

/// Number and id in a line name.
fn parts(given: &str) -> (Option<&str>, &str) {
    let given = given.trim().trim_end_matches('│');
    match given.split_once(':') {
        Some((number, id)) => (Some(number), id),
        None => (None, given),
    }
}

/// Lines of the current file that have the requested ids.
struct Ids<'a> {
    path: &'a str,
    lines: HashMap<LineId, Vec<usize>>,
}

impl<'a> Ids<'a> {
    fn of(asked: &'a EditParams, lines: &[Line<'_>]) -> Self {
        let names = asked.changes.iter().flat_map(Change::names);
        let ids = names.filter_map(|name| LineId::read(parts(name).1));
        let mut ids: HashMap<LineId, Vec<usize>> = ids.map(|id| (id, Vec::new())).collect();
        for (at, line) in lines.iter().enumerate() {
            if let Some(found) = ids.get_mut(&LineId::of(at + 1, line.text)) {
                found.push(at);
            }
        }
        let path = &asked.path;
        Self { path, lines: ids }
    }

    /// Index, from 0, of the line that `given` names: by id, or by number and id as shown by `read`.
    fn line(&self, given: &str) -> Result<usize, Error> {
        let (number, id) = parts(given);
        let stale = |problem: String| Error::Stale {
            path: self.path.to_owned(),
            problem,
        };
        let found = LineId::read(id).and_then(|id| self.lines.get(&id));
        let found = found.map_or(&[][..], Vec::as_slice);
        let at = match number {
            Some(number) => found
                .iter()
                .find(|at| (**at + 1).to_string() == number)
                .copied(),
            None if found.len() > 1 => {
                return Err(Error::Invalid(format!(
                    "`{id}` names several lines of `{}`; write it with the number before it, as `read` tells it",
                    self.path
                )));
            }
            None => found.first().copied(),
        };
        at.ok_or_else(|| stale(format!("has no line `{given}` now")))
    }
}

/// Applies the changes, which must be ordered and disjoint.
fn applied(before: &[u8], changes: &[Located]) -> Vec<u8> {
    let mut content = Vec::new();
    let mut next = 0;
    for change in changes {
        content.extend_from_slice(&before[next..change.range.start]);
        content.extend_from_slice(&change.new);
        next = change.range.end;
    }
    content.extend_from_slice(&before[next..]);
    content
}
