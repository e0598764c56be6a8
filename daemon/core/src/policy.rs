//! The decisions of the configuration about a run: built-in hooks, and the meaning of failures.
//!
//! **Owns** the reading of the merged configuration (`hook_conditions`, `error_classification`, `resilience`,
//! `coordination`) into a [`Policy`], and the classification of failures. **Never** reads a file: the caller that
//! starts a run merges and verifies the configuration. It fixes the text in the run's record, so that an edit never
//! changes a run.
//!
//! **Authority.** A hook that comes unchanged from the system space acts under the node's own grant. The merge records
//! for each entry of a list its space of origin, under the key [`ORIGIN`], which no file may use. Without the origin
//! `system` a hook acts under the run's capabilities, so a file of a project can only take authority away.
//! **Failure.** The first fault ends the reading; its text names the item, the space, the entry and the fix.

mod children;
mod classify;
mod coordination;
mod part;
mod resilience;
mod risk;

use serde_json::Value;

use crate::definition::{Authority, Hook, HookAction, HookEvent};
use crate::model::{ChildTerms, Failure, Limits, Waits};
use crate::money::Usd;

pub use self::classify::Classification;
use self::classify::Classifier;
use self::coordination::COORDINATION;
pub use self::part::ORIGIN;
use self::part::{ConfigSection, fault};
pub use self::resilience::{OnExceed, Preload};
use self::resilience::{RESILIENCE, Resilience};
pub use self::risk::{CAPABILITY_RISK, Risk, RiskPolicy, RiskVerdict, Risks};

/// The value of [`ORIGIN`] for entries that are part of the program.
pub const SYSTEM: &str = "system";

const HOOKS: &str = "hook_conditions";
const CLASSIFICATION: &str = "error_classification";

/// Names of the files that a policy is read from.
pub const FILES: [&str; 4] = [COORDINATION, CLASSIFICATION, HOOKS, RESILIENCE];

/// The lists of hooks, with their layers.
const LAYERS: [(&str, u8); 2] = [("builtin_hooks", 2), ("infra_hooks", 3)];

/// Keys of `hook_conditions` for threads only, whose hooks are not supported yet.
const THREAD_KEYS: [&str; 3] = ["context_hooks", "action_primaries", "action_item_types"];

/// Events of threads only.
const THREAD_EVENTS: [&str; 8] = [
    "resolve_extends",
    "build_system_prompt",
    "thread_started",
    "thread_continued",
    "after_complete",
    "directive_return",
    "context_limit_reached",
    "context_window_pressure",
];

/// Hooks and classification of one run.
#[derive(Debug, Clone)]
pub struct Policy {
    hooks: Vec<Hook>,
    classifier: Classifier,
    resilience: Resilience,
    waits: Waits,
    /// Entries without effect.
    ignored: Vec<String>,
}

impl Policy {
    /// Reads the merged configuration: a map from the name of each file to its content; a file may be absent. The error
    /// names the problem, its position and the fix.
    pub fn from_config(config: &Value) -> Result<Self, String> {
        let mut resilience = Resilience::read(&config[RESILIENCE])?;
        let mut ignored = std::mem::take(&mut resilience.ignored);
        Ok(Self {
            hooks: hooks(&config[HOOKS], resilience.retries, &mut ignored)?,
            classifier: Classifier::read(&config[CLASSIFICATION], &mut ignored)?,
            waits: coordination::read(&config[COORDINATION], &mut ignored)?,
            resilience,
            ignored,
        })
    }

    /// Returns the terms of the child runs of a thread.
    pub const fn children(&self) -> ChildTerms {
        ChildTerms {
            waits: self.waits,
            ..self.resilience.children
        }
    }

    /// Returns the default number of tries after a failure.
    pub const fn default_retries(&self) -> Option<u32> {
        self.resilience.retries
    }

    /// Returns the spending limit of a run whose account has none above it, if neither the run nor its item sets one;
    /// `None` is no limit.
    pub const fn default_spend(&self) -> Option<Usd> {
        self.resilience.limits.spend
    }

    /// Returns the limits of a thread, for those that neither its start nor its directive sets.
    pub const fn default_limits(&self) -> &Limits {
        &self.resilience.limits
    }

    /// Returns the handling of a thread that has reached a limit.
    pub const fn on_exceed(&self) -> OnExceed {
        self.resilience.on_exceed
    }

    /// Returns the number of equal calls in a row of which the last is refused; 0 is no limit.
    pub const fn repeated_calls(&self) -> u32 {
        self.resilience.repeated_calls
    }

    /// Returns the entries without effect.
    pub fn ignored(&self) -> &[String] {
        &self.ignored
    }

    /// Returns the space for tools that a model is offered by name.
    pub const fn preload(&self) -> Preload {
        self.resilience.preload
    }

    /// Returns the built-in hooks (layer 2), then those of the infrastructure (layer 3).
    pub fn hooks(&self) -> &[Hook] {
        &self.hooks
    }

    /// Returns the rows that classify the errors of providers, in their order.
    pub fn provider_errors(&self) -> &[Value] {
        self.classifier.provider_errors()
    }

    /// Returns the class of `failure` with its `result` (null if there is none).
    pub fn classify(&self, failure: &Failure, result: &Value) -> Classification {
        self.classifier.classify(failure, result)
    }
}

fn hooks(
    config: &Value,
    retries: Option<u32>,
    ignored: &mut Vec<String>,
) -> Result<Vec<Hook>, String> {
    let lists = LAYERS.map(|(key, _)| key);
    let Some(file) = ConfigSection::file(HOOKS, config, &lists, &THREAD_KEYS, ignored)? else {
        return Ok(Vec::new());
    };
    let mut hooks = Vec::new();
    for (key, layer) in LAYERS {
        for (at, entry) in file.entries(key)?.iter().enumerate() {
            let read = hook(entry, layer, &format!("{key}-{at}"), retries);
            let read = read.map_err(|problem| fault(HOOKS, Some(("hook", entry)), &problem))?;
            if read.is_none() {
                ignored.push(of_threads(entry));
            }
            hooks.extend(read);
        }
    }
    Ok(hooks)
}

/// Returns the note that the hook `entry`, which is for threads, has no effect.
fn of_threads(entry: &Value) -> String {
    let word = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or("?");
    format!(
        "`config:agent/{HOOKS}`: the hook `{}` of `{}` has no effect: hooks of threads are not carried out yet (no_effect)",
        word("id"),
        word("event")
    )
}

/// Reads one hook; `None` if it is for threads.
fn hook(
    entry: &Value,
    layer: u8,
    fallback_id: &str,
    retries: Option<u32>,
) -> Result<Option<Hook>, String> {
    let event = entry.get("event").and_then(Value::as_str);
    if event.is_some_and(|event| THREAD_EVENTS.contains(&event)) {
        return Ok(None);
    }
    if let Some(event) = event
        && HookEvent::parse(event).is_none()
    {
        let known = HookEvent::ALL.map(HookEvent::as_str);
        return Err(format!(
            "there is no event `{event}`; graphs have {}",
            known.join(", ")
        ));
    }
    if let Some(given) = entry.get("layer")
        && given.as_u64() != Some(layer.into())
    {
        return Err(format!(
            "`layer: {given}` in the list of layer {layer}; leave `layer` out"
        ));
    }
    let mut plain = entry.clone();
    if let Value::Object(map) = &mut plain {
        map.shift_remove(ORIGIN);
    }
    let mut hook = Hook::from_value(&plain, fallback_id)?;
    hook.layer = layer;
    hook.authority = match entry.get(ORIGIN).and_then(Value::as_str) {
        Some(SYSTEM) => Authority::Node,
        Some(_) | None => Authority::Run,
    };
    if let HookAction::Control(Value::Object(answer)) = &mut hook.action
        && answer.get("action").and_then(Value::as_str) == Some("retry")
        && let Some(retries) = retries
    {
        answer.entry("max_retries").or_insert(retries.into());
    }
    Ok(Some(hook))
}

#[cfg(test)]
mod tests;
