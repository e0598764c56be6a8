//! `rye/file-system/edit_lines`.
//!
//! **Rule.** A line is named by the id under which it was read. Ids are looked up in the file as it is: a line that has another text or
//! another number by now has another id, and nothing is written.

use std::collections::HashMap;
use std::ops::RangeInclusive;

use serde::Deserialize;
use serde_json::{Value, json};

use super::lines::{Line, LineId, split};
use super::place::Workspace;
use super::write::difference;
use super::{Error, shown};

#[derive(Debug, Deserialize)]
pub(super) struct Asked {
    path: String,
    changes: Vec<Change>,
}

#[derive(Debug, Deserialize)]
struct Change {
    line_id: Option<String>,
    start_line_id: Option<String>,
    end_line_id: Option<String>,
    new_content: String,
}

/// A change whose lines were found, from 0.
struct Located<'a> {
    lines: RangeInclusive<usize>,
    new_content: &'a str,
}

/// Replaces lines of a file.
pub(super) fn edit(place: &Workspace, asked: &Asked) -> Result<Value, Error> {
    let target = place.target(&asked.path)?;
    let existing = target.existing.as_ref().ok_or_else(|| Error::Missing {
        path: asked.path.clone(),
    })?;
    let before = existing.lines()?;
    let lines = split(&before);
    let changes = locate(asked, &lines)?;
    let after = applied(&lines, &changes);
    if after == before {
        let text = format!("the changes leave `{}` as it is", asked.path);
        return Err(Error::Invalid(text));
    }
    let touched: usize = changes
        .iter()
        .map(|change| change.lines.clone().count())
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

/// The changes with the lines that they are about, in the order of the file.
fn locate<'a>(asked: &'a Asked, lines: &[Line<'_>]) -> Result<Vec<Located<'a>>, Error> {
    if asked.changes.is_empty() {
        return Err(Error::Invalid("`changes` is empty".to_owned()));
    }
    let ids = Ids::of(asked, lines);
    let mut located = Vec::new();
    for (number, change) in asked.changes.iter().enumerate() {
        let (first, last) = match (&change.line_id, &change.start_line_id, &change.end_line_id) {
            (Some(line), None, None) => (line, line),
            (None, Some(first), Some(last)) => (first, last),
            _ => {
                return Err(Error::Invalid(format!(
                    "`changes[{number}]` names `line_id`, or `start_line_id` and `end_line_id`"
                )));
            }
        };
        let (first, last) = (ids.line(first)?, ids.line(last)?);
        if first > last {
            return Err(Error::Invalid(format!(
                "`changes[{number}]` begins at line {}, behind its end at line {}",
                first + 1,
                last + 1
            )));
        }
        located.push(Located {
            lines: first..=last,
            new_content: &change.new_content,
        });
    }
    located.sort_by_key(|change| *change.lines.start());
    for pair in located.windows(2) {
        if pair[1].lines.start() <= pair[0].lines.end() {
            return Err(Error::Invalid(format!(
                "two changes are about line {}: make them one",
                pair[1].lines.start() + 1
            )));
        }
    }
    Ok(located)
}

impl Change {
    /// What names lines.
    fn names(&self) -> impl Iterator<Item = &str> {
        let names = [&self.line_id, &self.start_line_id, &self.end_line_id];
        names.into_iter().flatten().map(String::as_str)
    }
}

/// The number and the id of a line, as `given` names it.
fn parts(given: &str) -> (Option<&str>, &str) {
    let given = given.trim().trim_end_matches('│');
    match given.split_once(':') {
        Some((number, id)) => (Some(number), id),
        None => (None, given),
    }
}

/// The lines of a file as it is that have the ids that are asked for.
struct Ids<'a> {
    path: &'a str,
    lines: HashMap<LineId, Vec<usize>>,
}

impl<'a> Ids<'a> {
    fn of(asked: &'a Asked, lines: &[Line<'_>]) -> Self {
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

    /// The line, from 0, that `given` names: its id, or its number and its id as `read` tells them.
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

/// The content with the changes, which are in order and apart from each other.
fn applied(lines: &[Line<'_>], changes: &[Located<'_>]) -> Vec<u8> {
    let of_file = lines
        .iter()
        .map(|line| line.end)
        .find(|end| !end.is_empty());
    let mut content = Vec::new();
    let mut next = 0;
    for change in changes {
        let (first, last) = (*change.lines.start(), *change.lines.end());
        for line in &lines[next..first] {
            content.extend_from_slice(line.text);
            content.extend_from_slice(line.end);
        }
        let own = Some(lines[first].end).filter(|end| !end.is_empty());
        let end = own.or(of_file).unwrap_or(b"\n");
        let new: Vec<&str> = change.new_content.lines().collect();
        for (at, text) in new.iter().enumerate() {
            content.extend_from_slice(text.as_bytes());
            let is_last = at + 1 == new.len();
            // A file whose last line nothing ends stays like that.
            content.extend_from_slice(if is_last && lines[last].end.is_empty() {
                b""
            } else {
                end
            });
        }
        next = last + 1;
    }
    for line in &lines[next..] {
        content.extend_from_slice(line.text);
        content.extend_from_slice(line.end);
    }
    content
}
