//! Names of items, runs and positions. Each is a type of its own, validated once when it is made.

mod alias;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use self::alias::STATE_GRAPH;

/// A name or a key with many cheap copies.
pub type Name = Arc<str>;

/// Reason why a text is not a valid id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is not {what}: {reason}", crate::error::excerpt(text))]
pub struct InvalidId {
    pub text: String,
    /// Expected kind of id, with its article.
    pub what: &'static str,
    pub reason: &'static str,
}

impl crate::error::Kinded for InvalidId {
    fn kind(&self) -> crate::error::ErrorKind {
        crate::error::ErrorKind::Invalid
    }
}

/// Type of an item, which also determines its folder below `.ai`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ItemKind {
    /// Executable: a program, a graph, a runtime or a primitive.
    Tool,
    /// A prompt with a contract, run by a model.
    Directive,
    Knowledge,
    /// Settings that tools and the daemon resolve.
    Config,
}

impl ItemKind {
    /// All kinds, in the order of listings.
    pub const ALL: [Self; 4] = [Self::Tool, Self::Directive, Self::Knowledge, Self::Config];

    /// Returns the name used in ids and on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tool => "tool",
            Self::Directive => "directive",
            Self::Knowledge => "knowledge",
            Self::Config => "config",
        }
    }

    /// Returns the folder below `.ai`.
    pub const fn folder(self) -> &'static str {
        match self {
            Self::Tool => "tools",
            Self::Directive => "directives",
            Self::Knowledge => "knowledge",
            Self::Config => "config",
        }
    }

    /// Returns the file extensions of items of this kind, in order of precedence.
    pub const fn extensions(self) -> &'static [&'static str] {
        match self {
            Self::Tool => &[
                "py", "yaml", "yml", "json", "js", "ts", "mjs", "cjs", "sh", "toml", "md",
            ],
            Self::Directive => &["md"],
            Self::Knowledge => &["md", "yaml", "yml"],
            Self::Config => &["yaml", "yml", "toml"],
        }
    }
}

impl fmt::Display for ItemKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for ItemKind {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.as_str() == text)
            .ok_or_else(|| InvalidId {
                text: text.to_owned(),
                what: "an item type",
                reason: "use tool, directive, knowledge or config",
            })
    }
}

/// Path of an item below its type folder, without extension: `rye/core/echo`.
///
/// It is normalised: no empty, `.` or `..` segment, not absolute, no control character, backslash or colon, at most 255
/// bytes. A capability check on an `ItemId` is therefore a check on exactly the file that is opened.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ItemId(String);

impl ItemId {
    /// Validates and wraps `text`.
    pub fn new(text: impl Into<String>) -> Result<Self, InvalidId> {
        let text = text.into();
        match Self::fault(&text) {
            None => Ok(Self(text)),
            Some(reason) => Err(InvalidId {
                text,
                what: "an item id",
                reason,
            }),
        }
    }

    fn fault(text: &str) -> Option<&'static str> {
        if text.is_empty() {
            Some("it is empty")
        } else if text.len() > 255 {
            Some("it is longer than 255 bytes")
        } else if text.starts_with('/') {
            Some("it is absolute; name the item by its path below the type folder")
        } else if text
            .chars()
            .any(|c| c.is_control() || c == '\\' || c == ':')
        {
            Some("it holds a control character, a backslash or a colon")
        } else if text.split('/').any(str::is_empty) {
            Some("it has an empty path segment")
        } else if text
            .split('/')
            .any(|segment| segment == "." || segment == "..")
        {
            Some("it has a `.` or `..` segment; ids cannot leave their space")
        } else {
            None
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the directory part, which is the item's `category`; empty at the top of the type folder.
    pub fn category(&self) -> &str {
        self.0.rsplit_once('/').map_or("", |(category, _)| category)
    }

    /// Returns the last segment, which is the item's `name`.
    pub fn name(&self) -> &str {
        self.0.rsplit_once('/').map_or(&self.0, |(_, name)| name)
    }
}

impl fmt::Display for ItemId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for ItemId {
    type Error = InvalidId;

    fn try_from(text: String) -> Result<Self, InvalidId> {
        Self::new(text)
    }
}

impl From<ItemId> for String {
    fn from(id: ItemId) -> Self {
        id.0
    }
}

/// An item by type and id: `tool:rye/core/echo`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ItemRef {
    pub kind: ItemKind,
    pub id: ItemId,
}

impl ItemRef {
    pub fn tool(id: ItemId) -> Self {
        Self {
            kind: ItemKind::Tool,
            id,
        }
    }

    /// Reads `TYPE:ID`, or a bare `ID` of type `default`.
    pub fn parse(text: &str, default: ItemKind) -> Result<Self, InvalidId> {
        match text.split_once(':') {
            Some((kind, id)) => Ok(Self {
                kind: kind.parse()?,
                id: ItemId::new(id)?,
            }),
            None => Ok(Self {
                kind: default,
                id: ItemId::new(text)?,
            }),
        }
    }
}

impl fmt::Display for ItemRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind, self.id)
    }
}

/// Id of a run: `<item id, / as ->-<unix seconds>-<10 random base32 characters>`.
///
/// It is safe as a file name, selectable by a double click, and sortable by time among the runs of one item. A clone
/// copies a pointer.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RunId(Arc<str>);

const BASE32: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

impl RunId {
    /// Makes the id of a new run from the item, the time in seconds and 50 random bits.
    pub fn generate(item: &ItemId, unix_seconds: i64, random: u64) -> Self {
        Self::with_stem(item.as_str(), unix_seconds, random)
    }

    /// Makes the id of a new run from the text that it begins with, the time in seconds and 50 random bits.
    pub fn with_stem(stem: &str, unix_seconds: i64, random: u64) -> Self {
        let stem: String = stem
            .chars()
            .map(|c| {
                if c.is_ascii_alphanumeric() || c == '_' || c == '.' {
                    c
                } else {
                    '-'
                }
            })
            .collect();
        let tail: String = (0..10)
            .map(|place| {
                char::from(
                    BASE32[usize::try_from((random >> (place * 5)) & 31).expect("5 bits fit")],
                )
            })
            .collect();
        let stem: String = stem
            .trim_start_matches(['.', '-'])
            .chars()
            .take(160)
            .collect();
        Self(
            format!(
                "{}-{unix_seconds}-{tail}",
                if stem.is_empty() { "run" } else { &stem }
            )
            .into(),
        )
    }

    /// Returns the id of a run of a single node: this id with the suffix `-step`.
    #[must_use]
    pub fn single_step(&self) -> Self {
        Self(format!("{}-step", self.0).into())
    }

    pub fn is_single_step(&self) -> bool {
        self.0.ends_with("-step")
    }

    /// Validates and wraps a text given by a user or read from disk.
    pub fn new(text: impl Into<String>) -> Result<Self, InvalidId> {
        let text = text.into();
        let reason = if text.is_empty() || text.len() > 200 {
            "it must have 1 to 200 characters"
        } else if !text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
        {
            "only ASCII letters, digits, `-`, `_` and `.` occur in run ids"
        } else if text.starts_with(['.', '-']) {
            "it starts with a dot or a dash"
        } else {
            return Ok(Self(text.into()));
        };
        Err(InvalidId {
            text,
            what: "a run id",
            reason,
        })
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for RunId {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        Self::new(text)
    }
}

impl TryFrom<String> for RunId {
    type Error = InvalidId;

    fn try_from(text: String) -> Result<Self, InvalidId> {
        Self::new(text)
    }
}

impl From<RunId> for String {
    fn from(id: RunId) -> Self {
        id.as_str().to_owned()
    }
}

/// Number of a life of the daemon; it grows by one at every start.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Epoch(pub u64);

/// Position of a commit in the log: dense over the whole daemon, starting at 1. 0 precedes the first.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Lsn(pub u64);

impl Lsn {
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Position of an event within its run: dense, starting at 1, never reused. 0 precedes the first.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Seq(pub u64);

impl Seq {
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn item_ids_cannot_leave_their_space() {
        for bad in [
            "",
            "/a",
            "a//b",
            "a/../b",
            "..",
            "./a",
            "a/",
            "a\\b",
            "a\nb",
            "tool:x",
            &"x".repeat(256),
        ] {
            assert!(ItemId::new(bad).is_err(), "{bad:?} was accepted");
        }
        let id = ItemId::new("rye/core/echo").unwrap();
        assert_eq!((id.category(), id.name()), ("rye/core", "echo"));
        assert_eq!(ItemId::new("top").unwrap().category(), "");
    }

    #[test]
    fn run_ids_are_safe_paths_for_any_item() {
        for item in [
            "rye/examples/project-stats",
            "...",
            "a b/c$d",
            "ünï/x",
            &"y".repeat(255),
        ] {
            let run = RunId::generate(
                &ItemId::new(item).unwrap_or_else(|_| ItemId::new("z").unwrap()),
                1_700_000_000,
                u64::MAX,
            );
            assert_eq!(RunId::new(run.as_str()).unwrap(), run);
        }
        for bad in ["", ".", "..", ".hidden", "a/b", "a b", "-x"] {
            assert!(RunId::new(bad).is_err(), "{bad:?} was accepted");
        }
    }

    #[test]
    fn item_refs_are_read_with_and_without_type() {
        assert_eq!(
            ItemRef::parse("tool:a/b", ItemKind::Directive)
                .unwrap()
                .to_string(),
            "tool:a/b"
        );
        assert_eq!(
            ItemRef::parse("a/b", ItemKind::Directive)
                .unwrap()
                .to_string(),
            "directive:a/b"
        );
        assert!(ItemRef::parse("thing:a", ItemKind::Tool).is_err());
    }
}
