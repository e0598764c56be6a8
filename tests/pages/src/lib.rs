//! What the documents say, for tests that hold them against the code.
//!
//! Two marks in a page make a part of it checkable, each on a line of its own before that part:
//!
//! * `<!-- table: NAME -->`: a table whose first column lists what the code knows. The test stands beside the list in the code and
//!   asks for both directions ([`Table::assert_lists`]): what the code knows and no page says, and what a page says and no code knows.
//! * `<!-- example: NAME -->`: a block that is a whole file ([`Block::example`]); `<!-- nodes -->`: one that is some nodes of a graph.
//!
//! **Failure.** A page or a table that is not there panics with its name, for a test has nothing else to do.

#![expect(
    clippy::panic,
    reason = "a test that cannot read its page has nothing else to do"
)]

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// The root of the repository.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("this crate lies in tests/pages")
}

/// The text of a page, by its path from the root.
pub fn read(page: &str) -> String {
    let text = fs::read_to_string(root().join(page));
    text.unwrap_or_else(|error| panic!("the page {page} cannot be read: {error}"))
}

/// The pages for users: the README and those in `docs`.
pub fn for_users() -> Vec<String> {
    let mut pages = vec!["README.md".to_owned()];
    pages.extend(below("docs"));
    pages
}

/// Every page: those for users, those about the design, and those that lie at the root.
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
    /// The page.
    pub page: String,
    /// The line of its opening fence, from 1.
    pub line: usize,
    /// What stands in the comment on the line before it; empty if there is none.
    pub mark: String,
    /// The word behind the opening fence.
    pub language: String,
    /// What stands between the fences.
    pub text: String,
}

impl Block {
    /// The name of the file that it is, if it is marked as one.
    pub fn example(&self) -> Option<&str> {
        self.mark.strip_prefix("example: ")
    }

    /// Where it stands, for messages.
    pub fn place(&self) -> String {
        format!("{}:{}", self.page, self.line)
    }
}

/// The fenced blocks of a page, in order. A fence is closed by one that is as long.
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
        open.map_or_else(String::new, |(_, block)| block.place())
    );
    found
}

/// The text of a line that is a comment and nothing else.
fn comment(line: &str) -> Option<&str> {
    let text = line.strip_prefix("<!--")?.strip_suffix("-->")?;
    Some(text.trim())
}

/// A marked table of a page.
#[derive(Debug, Clone)]
pub struct Table {
    place: String,
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// The table behind the mark `name` of `page`.
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
            // The row of dashes.
            rows: rows.skip(1).collect(),
            place,
        }
    }

    /// All that the first column names, in order: what stands in backticks there.
    pub fn names(&self) -> Vec<String> {
        let firsts = self.rows.iter().filter_map(|row| row.first());
        firsts.flat_map(|cell| in_backticks(cell)).collect()
    }

    /// Asserts that it names each of `known`, and nothing else, and nothing twice.
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
            self.place,
            names.len() - said.len()
        );
    }

    /// Asserts that what stands in backticks under `column`, in the row that names `name`, is `known`, in whatever order.
    #[track_caller]
    pub fn assert_cell_lists<S: AsRef<str>>(
        &self,
        name: &str,
        column: &str,
        known: impl IntoIterator<Item = S>,
    ) {
        let said: BTreeSet<String> = in_backticks(self.cell(name, column)).into_iter().collect();
        let known: BTreeSet<String> = known.into_iter().map(|one| one.as_ref().into()).collect();
        assert_eq!(said, known, "`{name}` in {}", self.place);
    }

    /// Asserts that what stands under `column`, in the row that names `name`, begins with `value`.
    #[track_caller]
    pub fn assert_cell(&self, name: &str, column: &str, value: impl fmt::Display) {
        let (cell, value) = (self.cell(name, column), value.to_string());
        let rest = cell.strip_prefix(&value);
        assert!(
            rest.is_some_and(|rest| !rest.starts_with(|next: char| next.is_ascii_alphanumeric())),
            "`{name}` in {} is `{cell}`, and in the code `{value}`",
            self.place
        );
    }

    /// What stands under `column` in the row that names `name`.
    #[track_caller]
    pub fn cell(&self, name: &str, column: &str) -> &str {
        let at = self.columns.iter().position(|head| head == column);
        let at = at.unwrap_or_else(|| panic!("{} has no column `{column}`", self.place));
        let mut rows = self.rows.iter();
        let row = rows.find(|row| in_backticks(&row[0]).iter().any(|one| one == name));
        let row = row.unwrap_or_else(|| panic!("{} has no row `{name}`", self.place));
        row.get(at).map_or("", String::as_str)
    }
}

/// The cells of a row. A bar behind a backslash is none between cells.
fn cells(line: &str) -> Vec<String> {
    let hidden = line.replace("\\|", "\0");
    let inner = hidden.trim().trim_matches('|');
    let cells = inner.split('|').map(|cell| cell.trim().replace('\0', "|"));
    cells.collect()
}

/// What stands in single backticks.
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
    fn a_table_names_what_its_first_column_names() {
        let table = Table::of("p.md", "keys", PAGE);
        assert_eq!(table.names(), ["a", "b", "c"]);
        assert_eq!(table.cell("b", "means"), "first | last");
        table.assert_lists(["c", "b", "a"]);
    }

    #[test]
    #[should_panic(expected = "it lacks [\"d\"], the code does not know [\"c\"]")]
    fn a_table_that_differs_says_in_what() {
        Table::of("p.md", "keys", PAGE).assert_lists(["a", "b", "d"]);
    }

    #[test]
    #[should_panic(expected = "the table `other` of p.md is not there")]
    fn a_table_that_is_not_there_says_so() {
        let _table = Table::of("p.md", "other", PAGE);
    }

    #[test]
    fn blocks_have_the_mark_before_them_and_hold_shorter_fences() {
        let blocks = blocks_of("p.md", PAGE);
        assert_eq!(blocks.len(), 2);
        assert_eq!(blocks[0].example(), Some("x/y"));
        assert_eq!(blocks[0].text, "Text\n```yaml\na: 1\n```\n");
        assert_eq!(blocks[0].place(), "p.md:10");
        assert_eq!(
            (blocks[1].mark.as_str(), blocks[1].language.as_str()),
            ("", "sh")
        );
    }
}
