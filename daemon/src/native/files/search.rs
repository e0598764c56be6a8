//! `rye/file-system/ls`, `glob` and `grep`.

use std::ops::ControlFlow;
use std::path::Path;

use globset::GlobMatcher;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{Searcher, SearcherBuilder, Sink, SinkMatch};
use serde::Deserialize;
use serde_json::{Value, json};

use super::lines::{LineId, shown as line_shown, split};
use super::place::Workspace;
use super::walk::{Cut, Foreign, MOST_ENTRIES, Visit, Walk, is_ignored, pattern, rules_of};
use super::{Error, Watch, failed, shown};
use rye_host::safe_path::{Dir, EntryKind};

/// Maximum number of entries, files and matches of an answer.
const MOST_FOUND: usize = 100;
/// Maximum size of the lines of an answer, in bytes.
const MOST_OUTPUT: usize = 50 * 1024;
/// Maximum size of a searched file, in bytes.
const MOST_SEARCHED: u64 = 8 * 1024 * 1024;
/// Maximum size of a pattern's automaton, in bytes.
const MOST_PATTERN: usize = 4 * 1024 * 1024;

#[derive(Debug, Deserialize)]
pub(super) struct LsParams {
    path: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Globbed {
    pattern: String,
    path: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Grepped {
    pattern: String,
    path: Option<String>,
    include: Option<String>,
}

/// Lists a directory, subdirectories first.
pub(super) fn ls(place: &Workspace, asked: &LsParams) -> Result<Value, Error> {
    let given = asked.path.as_deref().unwrap_or(".");
    let (directory, path) = place.directory(given)?;
    let listed = directory.entries(MOST_ENTRIES);
    let listed = listed.map_err(|error| failed(&path, error))?;
    let mut rules = place.rules_above(&path);
    rules.extend(rules_of(&directory, &path, &listed.list));
    let mut foreign = Foreign::default();
    foreign.note(&listed, &rules, &path);
    let mut entries = listed.list;
    entries.retain(|entry| {
        let is_directory = entry.kind == EntryKind::Directory;
        !entry.name.starts_with('.') && !is_ignored(&rules, &path.join(&entry.name), is_directory)
    });
    entries.sort_by_key(|entry| {
        let is_directory = entry.kind == EntryKind::Directory;
        (!is_directory, entry.name.to_lowercase(), entry.name.clone())
    });
    let is_truncated = listed.is_cut || entries.len() > MOST_FOUND;
    entries.truncate(MOST_FOUND);
    let mut output = String::new();
    let mut told = Vec::new();
    for entry in &entries {
        let word = match entry.kind {
            EntryKind::File => "file",
            EntryKind::Directory => "directory",
            EntryKind::Link => "link",
            EntryKind::Other => "other",
        };
        output.push_str(&entry.name);
        output.push_str(match entry.kind {
            EntryKind::Directory => "/\n",
            EntryKind::Link => "@\n",
            EntryKind::File | EntryKind::Other => "\n",
        });
        told.push(json!({"name": shown(&path.join(&entry.name)), "type": word}));
    }
    Ok(json!({
        "success": true,
        "output": noted(output, is_truncated.then_some(Cut::Enough), &foreign, "nothing is in it"),
        "entries": told,
        "count": told.len(),
        "truncated": is_truncated,
        "not_utf8": foreign.count,
    }))
}

/// Collects files whose paths match a pattern.
struct Files<'a> {
    pattern: &'a GlobMatcher,
    above: &'a Path,
    found: Vec<String>,
}

impl Visit for Files<'_> {
    fn file(&mut self, path: &Path, _directory: &Dir, _name: &str) -> ControlFlow<()> {
        if !self.pattern.is_match(path) {
            return ControlFlow::Continue(());
        }
        if self.found.len() == MOST_FOUND {
            return ControlFlow::Break(());
        }
        self.found.push(shown(&self.above.join(path)));
        ControlFlow::Continue(())
    }
}

/// Finds files by path.
pub(super) fn glob(place: &Workspace, asked: &Globbed, watch: &Watch) -> Result<Value, Error> {
    let glob = pattern(&asked.pattern)?;
    let (directory, path) = place.directory(asked.path.as_deref().unwrap_or("."))?;
    let mut files = Files {
        pattern: &glob,
        above: &path,
        found: Vec::new(),
    };
    let walk = Walk::new(place, watch, [asked.pattern.as_str()])?;
    let (cut, foreign) = walk.run(&directory, &path, &mut files);
    let found = files.found;
    let mut output = found.join("\n");
    output.push_str(if found.is_empty() { "" } else { "\n" });
    Ok(json!({
        "success": true,
        "output": noted(output, cut, &foreign, "no file fits the pattern"),
        "files": found,
        "count": found.len(),
        "truncated": cut.is_some(),
        "not_utf8": foreign.count,
    }))
}

/// Collects lines that match a pattern, in files whose paths match another.
struct Lines<'a> {
    matcher: RegexMatcher,
    searcher: Searcher,
    include: Option<GlobMatcher>,
    above: &'a Path,
    watch: &'a Watch,
    matches: Vec<Value>,
    output: String,
    /// Number of files that were too large.
    skipped: usize,
}

impl Lines<'_> {
    fn search(&mut self, path: &Path, content: &[u8]) -> ControlFlow<()> {
        if content.contains(&0) {
            return ControlFlow::Continue(());
        }
        let mut hits = Hits {
            path: shown(path),
            matches: &mut self.matches,
            output: &mut self.output,
            watch: self.watch,
            is_full: false,
        };
        let searched = self
            .searcher
            .search_slice(&self.matcher, content, &mut hits);
        let is_full = hits.is_full;
        // A search in memory cannot fail.
        drop(searched);
        if is_full {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }
}

impl Visit for Lines<'_> {
    fn file(&mut self, path: &Path, directory: &Dir, name: &str) -> ControlFlow<()> {
        if self
            .include
            .as_ref()
            .is_some_and(|include| !include.is_match(path))
        {
            return ControlFlow::Continue(());
        }
        match directory.read(name, MOST_SEARCHED) {
            Ok(Some(content)) => self.search(&self.above.join(path), &content),
            Err(error) if error.kind() == std::io::ErrorKind::FileTooLarge => {
                self.skipped += 1;
                ControlFlow::Continue(())
            }
            // The file was removed, or cannot be read.
            Ok(None) | Err(_) => ControlFlow::Continue(()),
        }
    }
}

/// Collects the matches in one file.
struct Hits<'a> {
    path: String,
    matches: &'a mut Vec<Value>,
    output: &'a mut String,
    watch: &'a Watch,
    is_full: bool,
}

impl Sink for Hits<'_> {
    type Error = std::io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> Result<bool, Self::Error> {
        if self.watch.is_given_up()
            || self.matches.len() == MOST_FOUND
            || self.output.len() >= MOST_OUTPUT
        {
            self.is_full = true;
            return Ok(false);
        }
        let number = found.line_number().unwrap_or_default();
        let number = usize::try_from(number).unwrap_or_default();
        for line in split(found.bytes()) {
            let told = line_shown(line.text);
            let line_told = format!("{}:{number}: {told}\n", self.path);
            self.output.push_str(&line_told);
            self.matches.push(json!({
                "file": self.path,
                "line": number,
                "content": told,
                "line_id": LineId::of(number, line.text).to_string(),
            }));
        }
        Ok(true)
    }
}

/// Finds lines by content.
pub(super) fn grep(place: &Workspace, asked: &Grepped, watch: &Watch) -> Result<Value, Error> {
    let matcher = RegexMatcherBuilder::new()
        .line_terminator(Some(b'\n'))
        .size_limit(MOST_PATTERN)
        .dfa_size_limit(MOST_PATTERN)
        .build(&asked.pattern)
        .map_err(|error| Error::Invalid(format!("`{}` is no pattern: {error}", asked.pattern)))?;
    let given = asked.path.as_deref().unwrap_or(".");
    let begin = match place.directory(given) {
        Ok((directory, path)) => Some((directory, path)),
        Err(Error::Not { .. }) => None,
        Err(error) => return Err(error),
    };
    let above = begin
        .as_ref()
        .map_or_else(Default::default, |(_, path)| path.clone());
    let mut lines = Lines {
        matcher,
        searcher: SearcherBuilder::new().line_number(true).build(),
        include: asked.include.as_deref().map(pattern).transpose()?,
        above: &above,
        watch,
        matches: Vec::new(),
        output: String::new(),
        skipped: 0,
    };
    let (cut, foreign) = if let Some((directory, path)) = &begin {
        let walk = Walk::new(place, watch, asked.include.as_deref())?;
        walk.run(directory, path, &mut lines)
    } else {
        let found = place.file(given)?;
        let cut = if let Some(content) = found.content(MOST_SEARCHED)? {
            let searched = lines.search(&found.path, &content);
            searched.is_break().then_some(Cut::Enough)
        } else {
            lines.skipped += 1;
            None
        };
        (cut, Foreign::default())
    };
    let mut output = noted(lines.output, cut, &foreign, "no line fits the pattern");
    if lines.skipped > 0 {
        let note = format!(
            "[{} files larger than {} MiB were not searched]\n",
            lines.skipped,
            MOST_SEARCHED / (1024 * 1024)
        );
        output.push_str(&note);
    }
    Ok(json!({
        "success": true,
        "output": output,
        "matches": lines.matches,
        "count": lines.matches.len(),
        "truncated": cut.is_some(),
        "not_utf8": foreign.count,
    }))
}

/// Appends notes if there are no or incomplete results.
fn noted(mut output: String, cut: Option<Cut>, foreign: &Foreign, nothing: &str) -> String {
    if output.is_empty() && cut.is_none() && foreign.count == 0 {
        return format!("[{nothing}]\n");
    }
    output.push_str(match cut {
        None => "",
        Some(Cut::Enough) => "[there is more: ask for less]\n",
        Some(Cut::Late) => "[it took too long: look in fewer directories]\n",
        Some(Cut::Large) => {
            "[some directories are too large or too deep, and were not looked through]\n"
        }
    });
    output.push_str(&foreign.line());
    output
}
