//! The meaning of a failure, and the pause before the next try.

use std::time::Duration;

use serde_json::{Value, json};

use super::CLASSIFICATION;
use super::part::{ConfigSection, ORIGIN, fault};
use crate::declared::Fields;
use crate::definition::Backoff;
use crate::expr::Names;
use crate::model::Failure;
use crate::pattern::{Pattern, Row, backoff, folded};
use crate::provider::failure::ErrorRow;

/// Code of the daemon for the failure of a tool; the meaning is in the tool's result.
const TOOL_FAILED: &str = "tool_failed";

/// Codes of refused calls and of broken items. They are permanent whatever their text is: the name of a refused item
/// may well contain the word `network`.
pub(super) const REFUSALS: [&str; 37] = [
    "permission_denied",
    "caller_not_allowed",
    "item_refused",
    "item_not_found",
    "executor_not_found",
    "invalid_action",
    "invalid_item_id",
    "invalid_params",
    "invalid_inject_state",
    "precondition_failed",
    "unsupported",
    "interpolation_failed",
    "input_validation_failed",
    "configuration_invalid",
    "graph_validation_failed",
    "graph_missing",
    "directive_validation_failed",
    "model_unusable",
    "missing_environment_variables",
    "node_not_found",
    "target_node_not_found",
    "terminal_thread_not_found",
    "run_not_found",
    "waits_for_itself",
    "kills_itself",
    "depth_exceeded",
    "spawns_exceeded",
    "too_many_children",
    "hierarchical_budget_exceeded",
    "child_lost",
    "child_busy",
    "child_over",
    "result_refused",
    "project_gone",
    "max_steps_exceeded",
    "internal",
    "panicked",
];

/// Codes of stopped calls. A try that broke off may have had its effect, so it is not repeated without a request.
pub(super) const STOPPED: [&str; 5] = [
    "stopped",
    "interrupted",
    "cancelled",
    "child_cancelled",
    "child_killed",
];

/// Categories that are worth another try, if a pattern does not decide.
const RETRYABLE: [&str; 2] = ["transient", "rate_limited"];

/// The pause after a transient failure for which no pattern names one.
const DEFAULT_BACKOFF: Backoff = Backoff::Exponential {
    base: 1.0,
    max: Duration::from_secs(30),
};

/// The longest pause that a result may request: a run must not sleep for a year at the request of a server.
const LONGEST_REQUESTED_PAUSE: Duration = Duration::from_hours(1);

/// The parts of a failure that a pattern may read.
const READ: [&str; 5] = [
    "error.type",
    "error.message",
    "error.code",
    "status_code",
    "cancelled",
];

const KEYS: [&str; 3] = ["patterns", PROVIDER_ERRORS, "default"];
/// Keys by which the original documents its language.
const IGNORED: [&str; 3] = ["operators", "combinators", "retry_policy_types"];
/// The list of rows that classify the errors of providers.
const PROVIDER_ERRORS: &str = "provider_errors";
/// Keys of a pattern besides those of every row.
const ROW_KEYS: [&str; 2] = ["retryable", ORIGIN];
const DEFAULT_KEYS: [&str; 3] = ["category", "retryable", "retry_policy"];

/// The class of a failure.
#[derive(Debug, Clone, PartialEq)]
pub struct Classification {
    /// `permanent`, `transient`, `rate_limited`, `cancelled`, or a category of the configuration.
    pub category: String,
    /// The pattern that matched; the failure's own code if no pattern was tried; `default`.
    pub code: String,
    /// True if another try may succeed.
    pub retryable: bool,
    /// The pause before it.
    pub backoff: Backoff,
}

impl Classification {
    /// Returns `classification` as hooks read it: `{category, code, retryable, retry_policy}`.
    pub fn to_json(&self) -> Value {
        let policy = match self.backoff {
            Backoff::None => Value::Null,
            Backoff::Fixed(delay) => json!({"type": "fixed", "delay": delay.as_secs_f64()}),
            Backoff::Exponential { base, max } => {
                json!({"type": "exponential", "base": base, "max": max.as_secs_f64()})
            }
        };
        json!({
            "category": self.category,
            "code": self.code,
            "retryable": self.retryable,
            "retry_policy": policy,
        })
    }
}

/// The patterns, in their order.
#[derive(Debug, Clone)]
pub(super) struct Classifier {
    rules: Vec<Rule>,
    default: Class,
    /// The rows that classify the errors of providers; each is known to be readable.
    provider_errors: Vec<Value>,
}

/// A pattern with the class of the failures it matches.
#[derive(Debug, Clone)]
struct Rule {
    pattern: Pattern,
    class: Class,
}

/// The class of the failures that a pattern matches.
#[derive(Debug, Clone)]
struct Class {
    category: String,
    retryable: bool,
    pause: Pause,
}

#[derive(Debug, Clone)]
struct Pause {
    /// The header that may request a pause, if results may request any.
    header: Option<String>,
    backoff: Backoff,
}

impl Class {
    /// Reads `category`, `retryable` and `retry_policy`.
    fn read(row: &Row<'_>) -> Result<Self, String> {
        let category = row.read("category", "a word", |given| {
            given.as_str().filter(|word| !word.is_empty())
        })?;
        let category = category.ok_or("it has no `category`")?;
        let retryable = row.switch("retryable")?;
        let retryable = retryable.unwrap_or_else(|| RETRYABLE.contains(&category));
        let usual = || Pause {
            header: None,
            backoff: if retryable {
                DEFAULT_BACKOFF
            } else {
                Backoff::None
            },
        };
        let pause = row.given("retry_policy").map(Pause::read).transpose()?;
        Ok(Self {
            category: category.to_owned(),
            retryable,
            pause: pause.unwrap_or_else(usual),
        })
    }

    fn applied(&self, code: &str, result: &Value) -> Classification {
        let asked = self
            .pause
            .header
            .as_ref()
            .and_then(|header| requested_pause(header, result));
        Classification {
            category: self.category.clone(),
            code: code.to_owned(),
            retryable: self.retryable,
            backoff: asked.map_or(self.pause.backoff, Backoff::Fixed),
        }
    }
}

impl Pause {
    fn read(policy: &Value) -> Result<Self, String> {
        if policy.get("type").and_then(Value::as_str) != Some("use_header") {
            return Ok(Self {
                header: None,
                backoff: backoff(policy)?,
            });
        }
        let row = Row::of_policy(policy, &["type", "header", "fallback"])?;
        let header = row.text("header")?.unwrap_or("retry-after");
        let fallback = row.given("fallback");
        Ok(Self {
            header: Some(header.to_lowercase()),
            backoff: fallback.map_or(Ok(DEFAULT_BACKOFF), backoff)?,
        })
    }
}

impl Classifier {
    /// Reads the section; without one only the daemon's own codes are known. Entries without effect are added to
    /// `ignored`.
    pub(super) fn read(config: &Value, ignored: &mut Vec<String>) -> Result<Self, String> {
        let mut classifier = Self {
            rules: Vec::new(),
            provider_errors: Vec::new(),
            default: Class {
                category: "permanent".to_owned(),
                retryable: false,
                pause: Pause {
                    header: None,
                    backoff: Backoff::None,
                },
            },
        };
        let file = ConfigSection::file(CLASSIFICATION, config, &KEYS, &IGNORED, ignored)?;
        let Some(file) = file else {
            return Ok(classifier);
        };
        for entry in file.entries("patterns")? {
            let rule = Rule::read(entry)
                .map_err(|problem| fault(CLASSIFICATION, Some(("pattern", entry)), &problem))?;
            classifier.rules.push(rule);
        }
        for entry in file.entries(PROVIDER_ERRORS)? {
            let mut row = entry.clone();
            if let Value::Object(row) = &mut row {
                row.shift_remove(ORIGIN);
            }
            ErrorRow::read(&row).map_err(|problem| {
                let place = Some(("entry of `provider_errors`", entry));
                fault(CLASSIFICATION, place, &problem)
            })?;
            classifier.provider_errors.push(row);
        }
        if let Some(default) = file.given("default") {
            classifier.default = Row::closed(default, "it", DEFAULT_KEYS)
                .and_then(|row| Class::read(&row))
                .map_err(|problem| file.fault(&format!("`default`: {problem}")))?;
        }
        Ok(classifier)
    }

    pub(super) fn provider_errors(&self) -> &[Value] {
        &self.provider_errors
    }

    pub(super) fn classify(&self, failure: &Failure, result: &Value) -> Classification {
        if failure.is_decided {
            return decided(failure);
        }
        let code = code(failure, result);
        let own = |category: &str, retryable, backoff| Classification {
            category: category.to_owned(),
            code: code.as_str().unwrap_or(&failure.code).to_owned(),
            retryable,
            backoff,
        };
        let is = |codes: &[&str]| code.as_str().is_some_and(|code| codes.contains(&code));
        if is(&REFUSALS) {
            return own("permanent", false, Backoff::None);
        }
        if is(&STOPPED) {
            return own("cancelled", false, Backoff::None);
        }
        if let Some(class) = by_word(failure, result, &own) {
            return class;
        }
        let told = result.get("error");
        let error = json!({
            "type": folded(told.and_then(|told| told.get("type")).or(result.get("error_type"))),
            "message": folded(Some(&message(failure, result))),
            "code": folded(Some(&code)),
        });
        let status = folded(stated(result, "status_code"));
        let cancelled = folded(stated(result, "cancelled"));
        let scope = Names::new(vec![
            ("error", &error),
            ("status_code", &status),
            ("cancelled", &cancelled),
        ]);
        let mut rules = self.rules.iter();
        match rules.find(|rule| rule.pattern.holds(&scope)) {
            Some(rule) => rule.class.applied(&rule.pattern.id, result),
            None if failure.retryable => own("transient", true, DEFAULT_BACKOFF),
            None => self.default.applied("default", result),
        }
    }
}

/// Returns the class that a failure carries itself.
fn decided(failure: &Failure) -> Classification {
    let stopped = STOPPED.contains(&failure.code.as_str());
    let (category, retryable, backoff) = match (stopped, failure.retryable) {
        (true, _) => ("cancelled", false, Backoff::None),
        (false, true) => ("transient", true, DEFAULT_BACKOFF),
        (false, false) => ("permanent", false, Backoff::None),
    };
    Classification {
        category: category.to_owned(),
        code: failure.code.clone(),
        retryable,
        backoff,
    }
}

/// Returns the class that a tool names itself: `error_class`, or `retryable`, next to its `error` or in it.
fn by_word(
    failure: &Failure,
    result: &Value,
    class: &impl Fn(&str, bool, Backoff) -> Classification,
) -> Option<Classification> {
    if failure.code != TOOL_FAILED {
        return None;
    }
    let word = stated(result, "error_class").and_then(Value::as_str);
    let said = stated(result, "retryable").and_then(truth);
    let retryable = said.or_else(|| word.map(|word| RETRYABLE.contains(&word)))?;
    let by_default = if retryable { "transient" } else { "permanent" };
    let backoff = match (retryable, requested_pause("retry-after", result)) {
        (false, _) => Backoff::None,
        (true, Some(pause)) => Backoff::Fixed(pause),
        (true, None) => DEFAULT_BACKOFF,
    };
    Some(class(word.unwrap_or(by_default), retryable, backoff))
}

/// Reads a boolean, or the text of one.
fn truth(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(truth) => Some(*truth),
        Value::String(text) => text.to_lowercase().parse().ok(),
        Value::Null | Value::Number(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

impl Rule {
    fn read(entry: &Value) -> Result<Self, String> {
        let row = Row::new(entry, &ROW_KEYS)?;
        Ok(Self {
            pattern: Pattern::read(&row, &READ)?,
            class: Class::read(&row)?,
        })
    }
}

/// Returns the member `name` of the result, or of its `error`.
fn stated<'r>(result: &'r Value, name: &str) -> Option<&'r Value> {
    let in_error = || result.get("error")?.get(name);
    result.get(name).or_else(in_error).filter(|v| !v.is_null())
}

/// Returns the code of the failure; for a tool's own failure, the tool's code.
fn code(failure: &Failure, result: &Value) -> Value {
    let own = || Value::String(failure.code.clone());
    if failure.code != TOOL_FAILED {
        return own();
    }
    match stated(result, "code") {
        Some(code @ (Value::String(_) | Value::Number(_))) => code.clone(),
        Some(Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_)) | None => own(),
    }
}

/// Returns the text of the failure; of a tool that failed with an `error` map, the message in it.
fn message(failure: &Failure, result: &Value) -> Value {
    let told = result
        .get("error")
        .and_then(|told| told.get("message"))
        .filter(|told| told.is_string() && failure.code == TOOL_FAILED);
    told.cloned()
        .unwrap_or_else(|| Value::String(failure.message.clone()))
}

/// Returns the pause that the result requests in seconds: `retry_after`, or that header of its `headers`.
fn requested_pause(header: &str, result: &Value) -> Option<Duration> {
    let in_headers = || {
        let headers = result.get("headers")?.as_object()?;
        let named = headers
            .iter()
            .find(|(name, _)| name.to_lowercase() == header);
        named.map(|(_, value)| value)
    };
    let seconds = match stated(result, "retry_after").or_else(in_headers)? {
        Value::Number(seconds) => seconds.as_f64()?,
        Value::String(text) => text.trim().parse().ok()?,
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => return None,
    };
    let pause = Duration::try_from_secs_f64(seconds).ok()?;
    Some(pause.min(LONGEST_REQUESTED_PAUSE))
}
