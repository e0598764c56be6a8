//! How much runs may bear: what `resilience` says.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{ITEM_KEYS, children, fault, section, unknown_key};
use crate::model::{ChildTerms, Limits, Object};
use crate::money::Usd;

/// The name of the file.
pub(super) const RESILIENCE: &str = "resilience";

/// Keys at the top.
const KEYS: [&str; 5] = [
    "retry",
    "limits",
    "tool_preload",
    "child_policy",
    "concurrency",
];
/// Keys at the top, and below `limits.enforcement` and `retry`, that other programs read and that decide nothing here.
const IGNORED: [&str; 2] = ["checkpoint", "coordination"];
const IGNORED_CHECKS: [&str; 2] = ["check_before_turn", "check_after_turn"];
const IGNORED_RETRIES: [&str; 1] = ["policies"];
/// Keys of `limits`.
const LIMITS: [&str; 3] = ["defaults", "enforcement", "repeated_calls"];

/// Keys of `limits.defaults`; all but `spend` concern threads only.
const DEFAULT_LIMITS: [&str; 7] = [
    "spend",
    "spend_currency",
    "turns",
    "tokens",
    "spawns",
    "depth",
    "duration_seconds",
];

/// What `resilience` says; nothing where it says nothing.
#[derive(Debug, Clone, Default)]
pub(super) struct Resilience {
    /// `retry.max_retries`.
    pub(super) retries: Option<u32>,
    /// `limits.defaults`.
    pub(super) limits: Limits,
    /// `limits.enforcement.on_exceed`.
    pub(super) on_exceed: OnExceed,
    /// `limits.repeated_calls`.
    pub(super) repeated_calls: u32,
    /// `tool_preload`.
    pub(super) preload: Preload,
    /// `child_policy` and `concurrency`.
    pub(super) children: ChildTerms,
    /// What it says that decides nothing.
    pub(super) ignored: Vec<String>,
}

/// What becomes of a thread that has reached a limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnExceed {
    /// It is suspended, and asks for a higher limit.
    #[default]
    Escalate,
    /// It is suspended.
    Suspend,
    /// It ends with the code of the limit.
    Fail,
}

/// How much room there is for tools that a model is offered by name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Preload {
    /// Most tokens of all of them, however large the window is.
    cap: u64,
}

/// The part of the window of a model that tools offered by name may take, unless the configuration says less.
const WINDOW_SHARE: u64 = 10;

impl Preload {
    /// Most tokens of all of them, for a model with such a window; those that a directive names are offered beyond that.
    pub fn most_tokens(self, window: u32) -> u64 {
        self.cap.min(u64::from(window) / WINDOW_SHARE)
    }
}

impl Resilience {
    /// Reads the merged section.
    pub(super) fn read(config: &Value) -> Result<Self, String> {
        let Some(map) = section(RESILIENCE, config)? else {
            return Ok(Self {
                children: children::usual(),
                ..Self::default()
            });
        };
        let known = KEYS.into_iter().chain(IGNORED).chain(ITEM_KEYS);
        if let Some(problem) = unknown_key(map, known) {
            return Err(fault(RESILIENCE, None, &problem));
        }
        let mut ignored = Vec::new();
        ignore(&mut ignored, map, "", &IGNORED);
        let limits = part(map, "limits", "limits", &LIMITS)?;
        let repeated =
            limits.map(|limits| whole(limits, "repeated_calls", "limits.repeated_calls"));
        Ok(Self {
            retries: retries(map, &mut ignored)?,
            limits: default_limits(limits)?,
            on_exceed: on_exceed(limits, &mut ignored)?,
            repeated_calls: repeated.transpose()?.flatten().unwrap_or_default(),
            preload: preload(map)?,
            children: children::read(map)?,
            ignored,
        })
    }
}

/// `retry.max_retries`, if it is set.
fn retries(map: &Object, ignored: &mut Vec<String>) -> Result<Option<u32>, String> {
    let known = [&["max_retries"], IGNORED_RETRIES.as_slice()].concat();
    let Some(retry) = part(map, "retry", "retry", &known)? else {
        return Ok(None);
    };
    ignore(ignored, retry, "retry.", &IGNORED_RETRIES);
    whole(retry, "max_retries", "retry.max_retries")
}

fn ignore(ignored: &mut Vec<String>, map: &Object, path: &str, keys: &[&str]) {
    ignore_of(RESILIENCE, ignored, map, path, keys);
}

/// Notes which keys of `map`, in the file `section`, decide nothing.
pub(super) fn ignore_of(
    section: &str,
    ignored: &mut Vec<String>,
    map: &Object,
    path: &str,
    keys: &[&str],
) {
    let there = keys.iter().filter(|key| map.contains_key(**key));
    ignored.extend(there.map(|key| {
        format!("`config:agent/{section}`: `{path}{key}` has no effect; nothing here reads it (no_effect)")
    }));
}

/// `limits.enforcement.on_exceed`.
fn on_exceed(limits: Option<&Object>, ignored: &mut Vec<String>) -> Result<OnExceed, String> {
    let known = [&["on_exceed"], IGNORED_CHECKS.as_slice()].concat();
    let path = "limits.enforcement";
    let enforcement = match limits {
        Some(limits) => part(limits, "enforcement", path, &known)?,
        None => None,
    };
    let Some(enforcement) = enforcement else {
        return Ok(OnExceed::default());
    };
    ignore(ignored, enforcement, "limits.enforcement.", &IGNORED_CHECKS);
    match enforcement.get("on_exceed") {
        None | Some(Value::Null) => Ok(OnExceed::default()),
        Some(word) => match word.as_str() {
            Some("escalate") => Ok(OnExceed::Escalate),
            Some("suspend") => Ok(OnExceed::Suspend),
            Some("fail" | "abort") => Ok(OnExceed::Fail),
            Some(_) | None => {
                let problem =
                    format!("`{path}.on_exceed` is escalate, suspend, fail or abort, not {word}");
                Err(fault(RESILIENCE, None, &problem))
            }
        },
    }
}

/// `limits.defaults`.
fn default_limits(limits: Option<&Object>) -> Result<Limits, String> {
    let defaults = match limits {
        Some(limits) => part(limits, "defaults", "limits.defaults", &DEFAULT_LIMITS)?,
        None => None,
    };
    let Some(defaults) = defaults else {
        return Ok(Limits::default());
    };
    let seconds: Option<u64> = limit(defaults, "duration_seconds")?;
    Ok(Limits {
        steps: None,
        depth: limit(defaults, "depth")?,
        spawns: limit(defaults, "spawns")?,
        turns: limit(defaults, "turns")?,
        tokens: limit(defaults, "tokens")?,
        duration_ms: seconds.map(|seconds| seconds.saturating_mul(1000)),
        spend: default_spend(defaults)?,
    })
}

/// One of `limits.defaults`, a whole number; `none` is no limit.
fn limit<N: TryFrom<u64>>(defaults: &Object, key: &str) -> Result<Option<N>, String> {
    if defaults.get(key).is_some_and(|given| given == "none") {
        return Ok(None);
    }
    whole(defaults, key, &format!("limits.defaults.{key}"))
}

/// `limits.defaults.spend`; `none` is no limit.
fn default_spend(defaults: &Object) -> Result<Option<Usd>, String> {
    let Some(given) = defaults
        .get("spend")
        .filter(|given| !given.is_null() && **given != "none")
    else {
        return Ok(None);
    };
    Usd::from_json(given).map(Some).map_err(|error| {
        let problem = format!("`limits.defaults.spend`: {error}, and `none` is no limit");
        fault(RESILIENCE, None, &problem)
    })
}

/// `tool_preload`: no room if it is not enabled.
fn preload(map: &Object) -> Result<Preload, String> {
    let Some(preload) = part(
        map,
        "tool_preload",
        "tool_preload",
        &["enabled", "max_tokens"],
    )?
    else {
        return Ok(Preload::default());
    };
    let is_enabled = match preload.get("enabled") {
        None | Some(Value::Null) => true,
        Some(Value::Bool(enabled)) => *enabled,
        Some(other) => {
            let problem = format!("`tool_preload.enabled` is true or false, not {other}");
            return Err(fault(RESILIENCE, None, &problem));
        }
    };
    let cap = whole(preload, "max_tokens", "tool_preload.max_tokens")?;
    Ok(if is_enabled {
        Preload {
            cap: cap.unwrap_or(u64::MAX),
        }
    } else {
        Preload::default()
    })
}

pub(super) fn part<'c>(
    map: &'c Object,
    key: &str,
    path: &str,
    known: &[&str],
) -> Result<Option<&'c Object>, String> {
    part_of(RESILIENCE, map, key, path, known)
}

/// The map `key` of `map`, which is found at `path` of the file `section` and knows only these keys; null and absent are none.
pub(super) fn part_of<'c>(
    section: &str,
    map: &'c Object,
    key: &str,
    path: &str,
    known: &[&str],
) -> Result<Option<&'c Object>, String> {
    let part = match map.get(key) {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Object(part)) => part,
        Some(other) => {
            let problem = format!("`{path}` is a map with {}, not {other}", known.join(", "));
            return Err(fault(section, None, &problem));
        }
    };
    match unknown_key(part, known.iter().copied()) {
        Some(problem) => Err(fault(section, None, &format!("`{path}`: {problem}"))),
        None => Ok(Some(part)),
    }
}

pub(super) fn whole<N: TryFrom<u64>>(
    map: &Object,
    key: &str,
    path: &str,
) -> Result<Option<N>, String> {
    whole_of(RESILIENCE, map, key, path)
}

/// The whole number `key` of `map`, which is found at `path` of the file `section`; null and absent are none.
pub(super) fn whole_of<N: TryFrom<u64>>(
    section: &str,
    map: &Object,
    key: &str,
    path: &str,
) -> Result<Option<N>, String> {
    let Some(given) = map.get(key).filter(|given| !given.is_null()) else {
        return Ok(None);
    };
    let number = given.as_u64().and_then(|given| N::try_from(given).ok());
    number.map(Some).ok_or_else(|| {
        let problem = format!("`{path}` is a whole number from 0, not {given}");
        fault(section, None, &problem)
    })
}
