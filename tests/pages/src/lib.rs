//! Reads the documents, for tests that compare them with the code.
//!
//! Two comments in a page make a part of it checkable, each on its own line before that part:
//!
//! * `<!-- table: NAME -->`: a table whose first column lists items that the code knows. The test is next to the list
//!   in the code and checks both directions ([`Table::assert_lists`]).
//! * `<!-- example: NAME -->`: a block that is a whole file ([`Block::example`]); `<!-- nodes -->`: one with some nodes
//!   of a graph.
//!
//! **Failure.** A missing page or table panics with its name.

#![expect(
    clippy::panic,
    reason = "a test that cannot read its page has nothing else to do"
)]

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// Returns the root of the repository.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("this crate lies in tests/pages")
}

/// Returns the text of a page, by its path from the root.
pub fn read(page: &str) -> String {
    let text = fs::read_to_string(root().join(page));
    text.unwrap_or_else(|error| panic!("the page {page} cannot be read: {error}"))
}

/// Lists the pages for users: the README and those in `docs`.
pub fn for_users() -> Vec<String> {
    let mut pages = vec!["README.md".to_owned()];
    pages.extend(below("docs"));
    pages
}

/// Lists all pages: those for users, those about the design, and those at the root.
pub fn all() -> Vec<String> {
    let mut pages = for_users();
    pages.extend(["ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"].map(str::to_owned));
    pages.extend(below("daemon/docs"));
    pages
}

fn below(folder: &str) -> Vec<String> {
    let entries = fs::read_dir(root().join(folder)).expect("the folder of the pages is there");
    let paths = entries.map(|entry| entry.expect("it can be listed").path());
    let is_page = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "md");
    let names = paths.filter(is_page).filter_map(|path| {
        let name = path.file_name()?.to_str()?;
        Some(format!("{folder}/{name}"))
    });
    let mut pages: Vec<String> = names.collect();
    pages.sort();
    pages
}

/// A fenced block of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    pub page: String,
    /// Line of its opening fence, counted from 1.
    pub line: usize,
    /// Text of the comment on the line before; empty if there is none.
    pub mark: String,
    /// Word after the opening fence.
    pub language: String,
    pub text: String,
}

impl Block {
    /// Returns the name of the file that the block contains, if its comment names one.
    pub fn example(&self) -> Option<&str> {
        self.mark.strip_prefix("example: ")
    }

    /// Returns page and line, for messages.
    pub fn location(&self) -> String {
        format!("{}:{}", self.page, self.line)
    }
}

/// Returns the fenced blocks of a page, in order. A block ends at a fence of the same length.
pub fn blocks(page: &str) -> Vec<Block> {
    blocks_of(page, &read(page))
}

fn blocks_of(page: &str, text: &str) -> Vec<Block> {
    let mut found = Vec::new();
    let mut open: Option<(String, Block)> = None;
    let mut before = "";
    for (index, line) in text.lines().enumerate() {
        let word = line.trim_start_matches('`');
        let fence = &line[..line.len() - word.len()];
        match &mut open {
            Some((opening, _)) if fence == opening && word.is_empty() => {
                found.extend(open.take().map(|(_, block)| block));
            }
            Some((_, block)) => {
                block.text.push_str(line);
                block.text.push('\n');
            }
            None if fence.len() >= 3 => {
                let block = Block {
                    page: page.to_owned(),
                    line: index + 1,
                    mark: comment(before).unwrap_or_default().to_owned(),
                    language: word.trim().to_owned(),
                    text: String::new(),
                };
                open = Some((fence.to_owned(), block));
            }
            None => {}
        }
        before = line;
    }
    assert!(
        open.is_none(),
        "{page}: a block is never closed: {}",
        open.map_or_else(String::new, |(_, block)| block.location())
    );
    found
}

/// Returns the text of a line that is only a comment.
fn comment(line: &str) -> Option<&str> {
    let text = line.strip_prefix("<!--")?.strip_suffix("-->")?;
    Some(text.trim())
}

/// A table of a page, found by its comment.
#[derive(Debug, Clone)]
pub struct Table {
    title: String,
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Reads the table after the comment `name` of `page`.
    pub fn read(page: &str, name: &str) -> Self {
        Self::of(page, name, &read(page))
    }

    fn of(page: &str, name: &str, text: &str) -> Self {
        let mark = format!("table: {name}");
        let lines = text.lines().skip_while(|line| comment(line) != Some(&mark));
        let lines = lines.skip(1).skip_while(|line| line.is_empty());
        let mut rows = lines.take_while(|line| line.starts_with('|')).map(cells);
        let place = format!("the table `{name}` of {page}");
        let columns = rows.next();
        let columns = columns.unwrap_or_else(|| panic!("{place} is not there"));
        Self {
            columns,
            // The first row is the line of dashes.
            rows: rows.skip(1).collect(),
            title: place,
        }
    }

    /// Returns the names in the first column, in order: all texts in backticks.
    pub fn names(&self) -> Vec<String> {
        let firsts = self.rows.iter().filter_map(|row| row.first());
        firsts.flat_map(|cell| in_backticks(cell)).collect()
    }

    /// Asserts that the table names each of `known`, nothing else, and nothing twice.
    #[track_caller]
    pub fn assert_lists<S: AsRef<str>>(&self, known: impl IntoIterator<Item = S>) {
        let known: BTreeSet<String> = known.into_iter().map(|one| one.as_ref().into()).collect();
        let names = self.names();
        let said: BTreeSet<String> = names.iter().cloned().collect();
        let missing: Vec<&String> = known.difference(&said).collect();
        let unknown: Vec<&String> = said.difference(&known).collect();
        assert!(
            missing.is_empty() && unknown.is_empty() && names.len() == said.len(),
            "{} and the code differ; it lacks {missing:?}, the code does not know {unknown:?}, and it has {} names twice",
            self.title,
            names.len() - said.len()
        );
    }

    /// Asserts that the texts in backticks under `column`, in the row that names `name`, are `known`, in any order.
    #[track_caller]
    pub fn assert_cell_lists<S: AsRef<str>>(
        &self,
        name: &str,
        column: &str,
        known: impl IntoIterator<Item = S>,
    ) {
        let said: BTreeSet<String> = in_backticks(self.cell(name, column)).into_iter().collect();
        let known: BTreeSet<String> = known.into_iter().map(|one| one.as_ref().into()).collect();
        assert_eq!(said, known, "`{name}` in {}", self.title);
    }

    /// Asserts that the cell under `column`, in the row that names `name`, begins with `value`.
    #[track_caller]
    pub fn assert_cell(&self, name: &str, column: &str, value: impl fmt::Display) {
        let (cell, value) = (self.cell(name, column), value.to_string());
        let rest = cell.strip_prefix(&value);
        assert!(
            rest.is_some_and(|rest| !rest.starts_with(|next: char| next.is_ascii_alphanumeric())),
            "`{name}` in {} is `{cell}`, and in the code `{value}`",
            self.title
        );
    }

    /// Returns the cell under `column` in the row that names `name`.
    #[track_caller]
    pub fn cell(&self, name: &str, column: &str) -> &str {
        let at = self.columns.iter().position(|head| head == column);
        let at = at.unwrap_or_else(|| panic!("{} has no column `{column}`", self.title));
        let mut rows = self.rows.iter();
        let row = rows.find(|row| in_backticks(&row[0]).iter().any(|one| one == name));
        let row = row.unwrap_or_else(|| panic!("{} has no row `{name}`", self.title));
        row.get(at).map_or("", String::as_str)
    }
}

/// Splits a row into cells. A bar after a backslash is part of a cell.
fn cells(line: &str) -> Vec<String> {
    let hidden = line.replace("\\|", "\0");
    let inner = hidden.trim().trim_matches('|');
    let cells = inner.split('|').map(|cell| cell.trim().replace('\0', "|"));
    cells.collect()
}

/// Returns the texts in single backticks.
pub fn in_backticks(text: &str) -> Vec<String> {
    let parts = text.split('`').skip(1).step_by(2);
    parts.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# Page\n\n<!-- table: keys -->\n| key | means |\n| --- | --- |\n| `a`, `b` | first \\| last |\n| `c` | |\n\n\
                        <!-- example: x/y -->\n````markdown\nText\n```yaml\na: 1\n```\n````\n```sh\nls\n```\n";

    #[test]
    fn table_names_come_from_first_column() {
        let table = Table::of("p.md", "keys", PAGE);
        assert_eq!(table.names(), ["a", "b", "c"]);
        assert_eq!(table.cell("b", "means"), "first | last");
        table.assert_lists(["c", "b", "a"]);
    }

    #[test]
    #[should_panic(expected = "it lacks [\"d\"], the code does not know [\"c\"]")]
    fn differing_table_panics_with_differences() {
        Table::of("p.md", "keys", PAGE).assert_lists(["a", "b", "d"]);
    }

    #[test]
    #[should_panic(expected = "the table `other` of p.md is not there")]
    fn missing_table_panics_with_its_name() {
        let _table = Table::of("p.md", "other", PAGE);
    }

    #[test]
    fn blocks_have_preceding_comment_and_contain_shorter_fences() {
        let blocks = blocks_of("p.md", PAGE);
        assert_eq!(blocks.len(), 2);
        assert_eq!(blocks[0].example(), Some("x/y"));
        assert_eq!(blocks[0].text, "Text\n```yaml\na: 1\n```\n");
        assert_eq!(blocks[0].location(), "p.md:10");
        assert_eq!(
            (blocks[1].mark.as_str(), blocks[1].language.as_str()),
            ("", "sh")
        );
    }
}
