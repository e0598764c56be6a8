//! Check of the head of a graph that is unsigned or changed: problems that would prevent signing or running it later.
//!
//! **Owns** the keys that bind a file to its path and its executor. Their presence and type are checked by the graph
//! parser.

use rye_core::definition::{Finding, Severity};
use rye_core::error::{ErrorKind, Kinded as _, with_sources};
use rye_core::id::{ItemId, ItemRef};
use rye_core::yaml::{self, Document};
use rye_item::{Library, sign};

use super::check::severity_of;
use crate::chain::{self, STATE_GRAPH, Terminal};

/// Findings that prevent signing or running `item`, whose file holds `text`, other than its signature.
pub(super) fn check(library: &Library, item: &ItemRef, text: &str) -> Vec<Finding> {
    let Ok(document) = yaml::parse(text) else {
        return Vec::new();
    };
    if !document.value.is_object() {
        return Vec::new();
    }
    let head = Head(document);
    let place = &item.id;
    let found = [
        head.text("version")
            .filter(|version| !sign::is_version(version))
            .map(|version| {
                let message =
                    format!("`version` must be three numbers, as in \"1.0.0\" or \"1.0.0-rc.1\", not \"{version}\"");
                head.error("bad_version", "version", message)
            }),
        head.misplaced("category", place.category(), "the folder of the file"),
        head.misplaced("name", place.name(), "the name of the file"),
        head.executor(library),
    ];
    found.into_iter().flatten().collect()
}

struct Head(Document);

impl Head {
    fn text(&self, key: &str) -> Option<&str> {
        self.0.value.get(key)?.as_str()
    }

    fn error(&self, code: &'static str, key: &str, message: String) -> Finding {
        self.finding(Severity::Error, code, key, message)
    }

    /// A finding at the value of `key`, or at the top of the file if it is missing.
    fn finding(
        &self,
        severity: Severity,
        code: &'static str,
        key: &str,
        message: String,
    ) -> Finding {
        let position = self.0.position(&format!("/{key}"));
        Finding {
            code,
            message,
            node: None,
            line: position.line,
            column: position.column,
            severity,
        }
    }

    /// Finding that `key` differs from `expected`, the value that the path requires.
    fn misplaced(&self, key: &str, expected: &str, what: &str) -> Option<Finding> {
        let declared = self.text(key).filter(|declared| *declared != expected)?;
        let message = format!(
            "`{key}` is `{declared}`, but {what} is `{expected}`: move the file, or correct the field"
        );
        Some(self.error("misplaced", key, message))
    }

    /// Finding that the executor is missing, or does not run graphs.
    fn executor(&self, library: &Library) -> Option<Finding> {
        const KEY: &str = "executor_id";
        let named = match self.0.value.get(KEY) {
            None => {
                let message = format!("`{KEY}` is missing: write {KEY}: {STATE_GRAPH}");
                return Some(self.error("missing_key", KEY, message));
            }
            Some(value) => value.as_str()?,
        };
        let executor = match ItemId::new(named) {
            Ok(id) => ItemRef::tool(id).canonical(),
            Err(error) => {
                let message = format!("`{KEY}` is malformed: {}", with_sources(&error));
                return Some(self.error("bad_executor", KEY, message));
            }
        };
        match chain::resolve(library, &executor, None) {
            Ok(chain) if chain.terminal == Terminal::Graph => None,
            Ok(_) => {
                let message = format!("`{named}` does not run graphs: write {KEY}: {STATE_GRAPH}");
                Some(self.error("bad_executor", KEY, message))
            }
            Err(refusal) => {
                let (severity, _) = severity_of(&refusal);
                let hint = if refusal.kind() == ErrorKind::NotFound {
                    format!("; the runtime of graphs is `{STATE_GRAPH}`")
                } else {
                    String::new()
                };
                let message = format!("{}{hint}", with_sources(&refusal));
                Some(self.finding(severity, "bad_executor", KEY, message))
            }
        }
    }
}
