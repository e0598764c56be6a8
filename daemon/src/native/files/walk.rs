//! Recursive walk of a directory of the project.
//!
//! **Never** follows a link, and never leaves the project. Never shows files that a `.gitignore` excludes, or hidden
//! files unless they are named. **Order.** By path. **Failure.** A directory that cannot be opened is skipped. A
//! directory that is too large or too deep makes the result incomplete.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use globset::{Glob, GlobBuilder, GlobSet, GlobSetBuilder};
use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

use super::place::Workspace;
use super::{Error, Watch};
use rye_host::safe_path::{Dir, Entries, Entry, EntryKind};

/// Maximum number of entries read from one directory.
pub(super) const MOST_ENTRIES: usize = 100_000;
/// Maximum depth below the start of a walk.
const MOST_DEPTH: usize = 64;
/// Time limit of a walk.
const LONGEST: Duration = Duration::from_secs(10);
/// Maximum size of a `.gitignore`, in bytes; a larger one is ignored.
const MOST_RULES: u64 = 1024 * 1024;

/// Reason why a walk is incomplete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cut {
    /// The visitor has enough results.
    Enough,
    /// The time limit expired.
    Late,
    /// A directory has too many entries, or is too deep.
    Large,
}

/// Visible entries whose names are not UTF-8: no call can name them.
#[derive(Debug, Default)]
pub(super) struct Foreign {
    pub(super) count: usize,
    /// The first name, with U+FFFD for each invalid part.
    first: Option<String>,
}

impl Foreign {
    /// Counts the visible ones of `entries` of the directory `here`.
    pub(super) fn note(&mut self, entries: &Entries, rules: &[Gitignore], here: &Path) {
        for (name, kind) in &entries.foreign {
            let shown = name.to_string_lossy();
            let is_directory = *kind == EntryKind::Directory;
            if !shown.starts_with('.') && !is_ignored(rules, &here.join(name), is_directory) {
                self.count += 1;
                self.first.get_or_insert_with(|| shown.into_owned());
            }
        }
    }

    /// A line about them; empty if there are none.
    pub(super) fn line(&self) -> String {
        let Some(first) = &self.first else {
            return String::new();
        };
        format!(
            "[left out, because the name is not UTF-8: {}, such as `{first}`; rename, or use rye/bash]\n",
            self.count
        )
    }
}

/// A walk of a directory.
pub(super) struct Walk<'a> {
    pub(super) workspace: &'a Workspace,
    pub(super) watch: &'a Watch,
    /// Names of hidden entries that are visited anyway.
    pub(super) named: GlobSet,
    until: Instant,
    cut: Option<Cut>,
    foreign: Foreign,
}

/// Visitor of a walk.
pub(super) trait Visit {
    /// Called for a regular file: `path` is relative to the start of the walk, `name` is the name in `directory`.
    fn file(&mut self, path: &Path, directory: &Dir, name: &str) -> ControlFlow<()>;
}

impl<'a> Walk<'a> {
    /// Makes a walk that visits hidden directories only if parts of `patterns` name them.
    pub(super) fn new<'p>(
        place: &'a Workspace,
        watch: &'a Watch,
        patterns: impl IntoIterator<Item = &'p str>,
    ) -> Result<Self, Error> {
        let mut named = GlobSetBuilder::new();
        for part in patterns.into_iter().flat_map(|pattern| pattern.split('/')) {
            if part.starts_with('.') && !matches!(part, "." | "..") {
                named.add(Glob::new(part).map_err(|error| bad_pattern(part, &error))?);
            }
        }
        Ok(Self {
            workspace: place,
            watch,
            named: named.build().map_err(|error| bad_pattern("", &error))?,
            until: Instant::now() + LONGEST,
            cut: None,
            foreign: Foreign::default(),
        })
    }

    /// Walks `directory`, whose path is `path`.
    pub(super) fn run(
        mut self,
        directory: &Dir,
        path: &Path,
        visit: &mut impl Visit,
    ) -> (Option<Cut>, Foreign) {
        let mut rules = self.workspace.rules_above(path);
        let begun = path.to_owned();
        if self
            .below(directory, &begun, Path::new(""), &mut rules, visit)
            .is_break()
        {
            self.cut.get_or_insert(Cut::Enough);
        }
        (self.cut, self.foreign)
    }

    /// True if the walk must end now.
    pub(super) fn is_over(&mut self) -> bool {
        if self.watch.is_given_up() || Instant::now() >= self.until {
            self.cut = Some(Cut::Late);
            return true;
        }
        false
    }

    fn below(
        &mut self,
        directory: &Dir,
        begun: &Path,
        path: &Path,
        rules: &mut Vec<Gitignore>,
        visit: &mut impl Visit,
    ) -> ControlFlow<()> {
        let here = begun.join(path);
        let Ok(entries) = directory.entries(MOST_ENTRIES) else {
            return ControlFlow::Continue(());
        };
        if entries.is_cut {
            self.cut = Some(Cut::Large);
        }
        let own = rules_of(directory, &here, &entries.list);
        let has_own = own.is_some();
        rules.extend(own);
        self.foreign.note(&entries, rules, &here);
        let done = self.through(directory, begun, path, &entries.list, rules, visit);
        if has_own {
            rules.pop();
        }
        done
    }

    fn through(
        &mut self,
        directory: &Dir,
        begun: &Path,
        path: &Path,
        entries: &[Entry],
        rules: &mut Vec<Gitignore>,
        visit: &mut impl Visit,
    ) -> ControlFlow<()> {
        let here = begun.join(path);
        for Entry { name, kind } in entries {
            if self.is_over() {
                return ControlFlow::Break(());
            }
            let is_directory = *kind == EntryKind::Directory;
            let is_hidden = name.starts_with('.') && !self.named.is_match(name);
            if is_hidden || is_ignored(rules, &here.join(name), is_directory) {
                continue;
            }
            let below = path.join(name);
            match kind {
                EntryKind::File => visit.file(&below, directory, name)?,
                EntryKind::Directory if below.components().count() > MOST_DEPTH => {
                    self.cut = Some(Cut::Large);
                }
                EntryKind::Directory => {
                    if let Ok(inner) = directory.enter(Path::new(name)) {
                        self.below(&inner, begun, &below, rules, visit)?;
                    }
                }
                EntryKind::Link | EntryKind::Other => {}
            }
        }
        ControlFlow::Continue(())
    }
}

impl Workspace {
    /// Rules of the directories above `path`, from the project down.
    pub(super) fn rules_above(&self, path: &Path) -> Vec<Gitignore> {
        let mut above: Vec<&Path> = path.ancestors().skip(1).collect();
        above.reverse();
        let rules = |path: &Path| rules_in(&self.enter(path).ok()?, path);
        above.into_iter().filter_map(rules).collect()
    }
}

/// Rules of a directory with these entries, if it has any.
pub(super) fn rules_of(directory: &Dir, path: &Path, entries: &[Entry]) -> Option<Gitignore> {
    let has_rules = entries
        .iter()
        .any(|entry| entry.name == ".gitignore" && entry.kind == EntryKind::File);
    has_rules.then(|| rules_in(directory, path)).flatten()
}

fn rules_in(directory: &Dir, path: &Path) -> Option<Gitignore> {
    // An unreadable file excludes nothing.
    let text = directory.read(".gitignore", MOST_RULES).ok()??;
    let mut rules = GitignoreBuilder::new(rooted(path));
    for line in String::from_utf8_lossy(&text).lines() {
        // As in git, an invalid line has no effect.
        drop(rules.add_line(None, line));
    }
    rules.build().ok()
}

/// True if `path` is excluded; the deepest matching rule decides.
pub(super) fn is_ignored(rules: &[Gitignore], path: &Path, is_directory: bool) -> bool {
    let path = rooted(path);
    for rules in rules.iter().rev() {
        match rules.matched(&path, is_directory) {
            Match::None => {}
            Match::Ignore(_) => return true,
            Match::Whitelist(_) => return false,
        }
    }
    false
}

/// Absolute form of a path: the rules match paths by prefix.
fn rooted(path: &Path) -> PathBuf {
    Path::new("/").join(path)
}

/// Compiles a pattern of paths, in which `*` does not cross `/`. Without `/` it matches names in every directory.
pub(super) fn pattern(text: &str) -> Result<globset::GlobMatcher, Error> {
    let anywhere = if text.contains('/') {
        text.trim_start_matches("./").to_owned()
    } else {
        format!("**/{text}")
    };
    let glob = GlobBuilder::new(&anywhere).literal_separator(true).build();
    let glob = glob.map_err(|error| bad_pattern(text, &error))?;
    Ok(glob.compile_matcher())
}

fn bad_pattern(pattern: &str, error: &globset::Error) -> Error {
    Error::Invalid(format!("`{pattern}` is no pattern: {}", error.kind()))
}
