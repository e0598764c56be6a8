//! How much runs may bear: what `resilience` says.

use serde_json::Value;

use super::{ITEM_KEYS, fault, section, unknown_key};
use crate::model::Object;
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
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Resilience {
    /// `retry.max_retries`.
    pub(super) retries: Option<u32>,
    /// `limits.defaults.spend`.
    pub(super) spend: Option<Usd>,
    /// `tool_preload`.
    pub(super) preload: Preload,
}

/// How much room there is for tools that a model is told of by name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Preload {
    /// Most tokens of all of them; those that a directive names are told of beyond that.
    pub most_tokens: u64,
}

impl Resilience {
    /// Reads the merged section.
    pub(super) fn read(config: &Value) -> Result<Self, String> {
        let Some(map) = section(RESILIENCE, config)? else {
            return Ok(Self::default());
        };
        if let Some(problem) = unknown_key(map, KEYS.into_iter().chain(ITEM_KEYS)) {
            return Err(fault(RESILIENCE, None, &problem));
        }
        Ok(Self {
            retries: retries(map)?,
            spend: default_spend(map)?,
            preload: preload(map)?,
        })
    }
}

/// `retry.max_retries`, if it is set.
fn retries(map: &Object) -> Result<Option<u32>, String> {
    match part(map, "retry", "retry", &["max_retries"])? {
        Some(retry) => whole(retry, "max_retries", "retry.max_retries"),
        None => Ok(None),
    }
}

/// `limits.defaults.spend`; `none` is no limit.
fn default_spend(map: &Object) -> Result<Option<Usd>, String> {
    let defaults = match part(map, "limits", "limits", &["defaults"])? {
        Some(limits) => part(limits, "defaults", "limits.defaults", &DEFAULT_LIMITS)?,
        None => None,
    };
    let given = defaults.and_then(|defaults| defaults.get("spend"));
    let Some(given) = given.filter(|given| !given.is_null() && **given != "none") else {
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
    let most_tokens = whole(preload, "max_tokens", "tool_preload.max_tokens")?;
    Ok(Preload {
        most_tokens: most_tokens.filter(|_| is_enabled).unwrap_or_default(),
    })
}

/// The map `key` of `map`, which is found at `path` and knows only these keys; null and absent are none.
fn part<'c>(
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
            return Err(fault(RESILIENCE, None, &problem));
        }
    };
    match unknown_key(part, known.iter().copied()) {
        Some(problem) => Err(fault(RESILIENCE, None, &format!("`{path}`: {problem}"))),
        None => Ok(Some(part)),
    }
}

/// The whole number `key` of `map`, which is found at `path`; null and absent are none.
fn whole<N: TryFrom<u64>>(map: &Object, key: &str, path: &str) -> Result<Option<N>, String> {
    let Some(given) = map.get(key).filter(|given| !given.is_null()) else {
        return Ok(None);
    };
    let number = given.as_u64().and_then(|given| N::try_from(given).ok());
    number.map(Some).ok_or_else(|| {
        let problem = format!("`{path}` is a whole number from 0, not {given}");
        fault(RESILIENCE, None, &problem)
    })
}
