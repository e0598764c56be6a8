//! Retries, limits and terms of child runs from `resilience`.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::children;
use super::part::ConfigSection;
use crate::declared::Fields;
use crate::model::{ChildTerms, Limits};
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
/// Keys without effect here, which other programs read: at the top, and below `limits.enforcement` and `retry`.
const IGNORED: [&str; 2] = ["checkpoint", "coordination"];
const IGNORED_CHECKS: [&str; 2] = ["check_before_turn", "check_after_turn"];
const IGNORED_RETRIES: [&str; 1] = ["policies"];
/// Keys of `limits`.
const LIMITS: [&str; 3] = ["defaults", "enforcement", "repeated_calls"];

/// Keys of `limits.defaults`; all but `spend` apply to threads only.
const DEFAULT_LIMITS: [&str; 7] = [
    "spend",
    "spend_currency",
    "turns",
    "tokens",
    "spawns",
    "depth",
    "duration_seconds",
];

/// The content of `resilience`; absent entries have their defaults.
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
    /// Entries without effect.
    pub(super) ignored: Vec<String>,
}

/// The handling of a thread that has reached a limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnExceed {
    /// It is suspended, and requests a higher limit.
    #[default]
    Escalate,
    /// It is suspended.
    Suspend,
    /// It ends with the code of the limit.
    Fail,
}

/// The space for tools that a model is offered by name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Preload {
    /// Limit of the tokens of all of them, for a window of any size.
    cap: u64,
}

/// Divisor of the model's window: tools offered by name may take this part of it, unless the configuration sets less.
const WINDOW_SHARE: u64 = 10;

impl Preload {
    /// Returns the limit of the tokens of all of them, for a model with this window. Tools that a directive names are
    /// offered in addition.
    pub fn most_tokens(self, window: u32) -> u64 {
        self.cap.min(u64::from(window) / WINDOW_SHARE)
    }
}

impl Resilience {
    /// Reads the merged section.
    pub(super) fn read(config: &Value) -> Result<Self, String> {
        let mut ignored = Vec::new();
        let file = ConfigSection::file(RESILIENCE, config, &KEYS, &IGNORED, &mut ignored)?;
        let Some(file) = file else {
            return Ok(Self {
                children: children::usual(),
                ..Self::default()
            });
        };
        let limits = file.part("limits", &LIMITS)?;
        let limits = limits.as_ref();
        let repeated = limits.map(|limits| limits.whole("repeated_calls"));
        Ok(Self {
            retries: retries(&file, &mut ignored)?,
            limits: default_limits(limits)?,
            on_exceed: on_exceed(limits, &mut ignored)?,
            repeated_calls: repeated.transpose()?.flatten().unwrap_or_default(),
            preload: preload(&file)?,
            children: children::read(&file)?,
            ignored,
        })
    }
}

/// Reads `retry.max_retries`, if it is set.
fn retries(file: &ConfigSection<'_>, ignored: &mut Vec<String>) -> Result<Option<u32>, String> {
    let known = [&["max_retries"], IGNORED_RETRIES.as_slice()].concat();
    let Some(retry) = file.part("retry", &known)? else {
        return Ok(None);
    };
    retry.ignore(IGNORED_RETRIES, ignored);
    retry.whole("max_retries")
}

/// Returns the part `key` of `limits`.
fn of_limits<'c>(
    limits: Option<&ConfigSection<'c>>,
    key: &str,
    known: &[&str],
) -> Result<Option<ConfigSection<'c>>, String> {
    limits.map_or(Ok(None), |limits| limits.part(key, known))
}

/// Reads `limits.enforcement.on_exceed`.
fn on_exceed(
    limits: Option<&ConfigSection<'_>>,
    ignored: &mut Vec<String>,
) -> Result<OnExceed, String> {
    const WORDS: [(&str, OnExceed); 4] = [
        ("escalate", OnExceed::Escalate),
        ("suspend", OnExceed::Suspend),
        ("fail", OnExceed::Fail),
        ("abort", OnExceed::Fail),
    ];
    let known = [&["on_exceed"], IGNORED_CHECKS.as_slice()].concat();
    let Some(enforcement) = of_limits(limits, "enforcement", &known)? else {
        return Ok(OnExceed::default());
    };
    enforcement.ignore(IGNORED_CHECKS, ignored);
    let expected = "escalate, suspend, fail or abort";
    let word = enforcement.word("on_exceed", &WORDS, expected)?;
    Ok(word.unwrap_or_default())
}

/// Reads `limits.defaults`.
fn default_limits(limits: Option<&ConfigSection<'_>>) -> Result<Limits, String> {
    let Some(defaults) = of_limits(limits, "defaults", &DEFAULT_LIMITS)? else {
        return Ok(Limits::default());
    };
    let seconds: Option<u64> = limit(&defaults, "duration_seconds")?;
    Ok(Limits {
        steps: None,
        depth: limit(&defaults, "depth")?,
        spawns: limit(&defaults, "spawns")?,
        turns: limit(&defaults, "turns")?,
        tokens: limit(&defaults, "tokens")?,
        duration_ms: seconds.map(|seconds| seconds.saturating_mul(1000)),
        spend: default_spend(&defaults)?,
    })
}

/// Returns the value of one of `limits.defaults`; `none` is no limit.
fn limited<'c>(defaults: &ConfigSection<'c>, key: &str) -> Option<&'c Value> {
    defaults.given(key).filter(|given| **given != "none")
}

/// Reads one of `limits.defaults`, a whole number.
fn limit<N: TryFrom<u64>>(defaults: &ConfigSection<'_>, key: &str) -> Result<Option<N>, String> {
    limited(defaults, key).map_or(Ok(None), |_| defaults.whole(key))
}

/// Reads `limits.defaults.spend`.
fn default_spend(defaults: &ConfigSection<'_>) -> Result<Option<Usd>, String> {
    let amount = limited(defaults, "spend").map(Usd::from_json).transpose();
    amount.map_err(|error| {
        defaults.fault(&format!(
            "`limits.defaults.spend`: {error}, and `none` is no limit"
        ))
    })
}

/// Reads `tool_preload`: no space if it is not enabled.
fn preload(file: &ConfigSection<'_>) -> Result<Preload, String> {
    let Some(preload) = file.part("tool_preload", &["enabled", "max_tokens"])? else {
        return Ok(Preload::default());
    };
    let is_enabled = preload.switch("enabled")?.unwrap_or(true);
    let cap = preload.whole("max_tokens")?.unwrap_or(u64::MAX);
    Ok(if is_enabled {
        Preload { cap }
    } else {
        Preload::default()
    })
}
