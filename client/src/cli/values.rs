//! Values of arguments, and their parsers.

use std::str::FromStr;
use std::time::Duration;

use clap::ValueEnum;
use globset::{GlobBuilder, GlobMatcher};
use rye_core::id::{ItemId, ItemKind};
use rye_core::model::{self, Status, Verdict};
use rye_core::money::Usd;
use rye_core::{capability, clock};

/// Forms of a limit, for error messages.
const LIMITS: &str = "steps=N, depth=N, spawns=N, spend=USD, turns=N, tokens=N or duration=TIME";

/// A limit of a run. A limit given on resume replaces the present one and includes what is already used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limit {
    /// Most steps of a graph run.
    Steps(u32),
    /// Most levels of runs below the run.
    Depth(u32),
    /// Most child runs that the run starts.
    Spawns(u32),
    /// Most money that the run and all its descendants spend.
    Spend(Usd),
    /// Most turns of a thread.
    Turns(u32),
    /// Most tokens of all turns together.
    Tokens(u64),
    /// Longest time of all turns together.
    Duration(Duration),
}

impl FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('=');
        let (key, value) = parts.ok_or_else(|| format!("expected {LIMITS}"))?;
        match key {
            "steps" => steps(value).map(Self::Steps),
            "depth" => number(value, "levels").map(Self::Depth),
            "spawns" => number(value, "child runs").map(Self::Spawns),
            "spend" => usd(value).map(Self::Spend),
            "turns" => number(value, "turns").map(Self::Turns),
            "tokens" => number(value, "tokens").map(Self::Tokens),
            "duration" => duration(value).map(Self::Duration),
            _ => Err(format!("there is no limit `{key}`; use {LIMITS}")),
        }
    }
}

fn steps(value: &str) -> Result<u32, String> {
    match value.parse() {
        Ok(steps) if steps > 0 => Ok(steps),
        Ok(_) | Err(_) => Err(format!("`{value}` is not a number of steps")),
    }
}

/// Parses an amount of money in US dollars.
pub(super) fn usd(text: &str) -> Result<Usd, String> {
    Usd::parse(text).map_err(|error| error.to_string())
}

fn number<N: FromStr>(value: &str, what: &str) -> Result<N, String> {
    let number = value.parse();
    number.map_err(|_error| format!("`{value}` is not a number of {what}"))
}

/// Parses a time: `90`, `90s`, `1m30s`, `1.5h`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    clock::duration(text)
        .ok_or_else(|| format!("`{text}` is no time; write it like 90, 90s or 1m30s"))
}

/// Verdict on an attempt whose outcome is unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    /// Name of the attempt in its run.
    pub(crate) item: String,
    pub(crate) verdict: Verdict,
}

impl FromStr for Answer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.rsplit_once('=').filter(|(item, _)| !item.is_empty());
        let (item, word) = parts.ok_or("expected ITEM=retry, ITEM=done or ITEM=fail")?;
        let verdict = Verdict::parse(word)
            .ok_or_else(|| format!("`{word}` is not one of retry, done and fail"))?;
        Ok(Self {
            item: item.to_owned(),
            verdict,
        })
    }
}

/// When a step counts as done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Durability {
    /// When it is on disk.
    Strict,
    /// When it is written; a power cut may take back the last ones.
    Relaxed,
}

impl From<Durability> for model::Durability {
    fn from(durability: Durability) -> Self {
        match durability {
            Durability::Strict => Self::Strict,
            Durability::Relaxed => Self::Relaxed,
        }
    }
}

pub(super) fn item_id(text: &str) -> Result<ItemId, String> {
    ItemId::new(text).map_err(|error| error.to_string())
}

/// Accepts a pattern of capabilities that at least one action can match.
pub(super) fn capability(text: &str) -> Result<String, String> {
    if capability::can_match(&capability::normalise(text)) {
        Ok(text.to_owned())
    } else {
        Err("no action has such a capability; they read like rye.execute.tool.a.b, with * for any text".to_owned())
    }
}

pub(super) fn executable(text: &str) -> Result<ItemKind, String> {
    match text.parse() {
        Ok(kind @ (ItemKind::Tool | ItemKind::Directive | ItemKind::Knowledge)) => Ok(kind),
        Ok(ItemKind::Config) => Err("config is not executed".to_owned()),
        Err(_) if text.contains('/') => Err(format!(
            "the type of the item comes first: `ryectl execute tool {text}`; `ryectl run {text}` needs none"
        )),
        Err(error) => Err(error.to_string()),
    }
}

pub(super) fn status(text: &str) -> Result<Status, String> {
    Status::ALL
        .into_iter()
        .find(|status| status.as_str() == text)
        .ok_or_else(|| format!("use one of {}", Status::ALL.map(Status::as_str).join(", ")))
}

/// Parses a pattern of item ids. A type before a colon is ignored.
pub(super) fn item_glob(text: &str) -> Result<GlobMatcher, String> {
    let pattern = text.split_once(':').map_or(text, |(_, id)| id);
    let glob = GlobBuilder::new(pattern).literal_separator(false).build();
    let glob = glob.map_err(|error| error.kind().to_string())?;
    Ok(glob.compile_matcher())
}
