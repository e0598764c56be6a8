//! The content of a call that starts a thread, in each of its forms: an action on a directive, or one of the tools for
//! that purpose.
//!
//! Besides the inputs, parameters describe the thread: `async model provider limit_overrides capabilities`. The inputs
//! are below `inputs`; without it, all other parameters are inputs. **Never** names the requester: names by which a
//! caller could claim to be another run, or to continue a conversation that did not happen, are refused.

use std::time::Duration;

use serde_json::Value;

use crate::expr::{did_you_mean, nearest};
use crate::id::{ItemId, ItemKind, ItemRef};
use crate::machine::{Params, wrong};
use crate::model::{Failure, Limits, Object};
use crate::money::Usd;

/// Names of the parameter for the directive; a call gives one of them.
const NAMES: [&str; 3] = ["directive_id", "directive_name", "directive"];

/// The limits that a caller may set.
const LIMITS: [&str; 7] = [
    "turns",
    "tokens",
    "spend",
    "spawns",
    "depth",
    "duration_seconds",
    "duration",
];

/// A tool whose only purpose is to start threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThreadTool {
    /// `rye/agent/threads/thread_directive`: the answer is that of the thread, unless the call does not wait.
    Directive,
    /// `rye/agent/threads/thread_tool`: the call does not wait.
    Start,
}

/// A thread that a call requests.
#[derive(Debug, Clone, PartialEq)]
pub struct ThreadOrder {
    pub directive: ItemRef,
    pub inputs: Object,
    /// True if the caller continues without waiting.
    pub is_async: bool,
    /// True if the thread must not begin: the call only checks that it could.
    pub is_only_checked: bool,
    /// The model, or a tier; the directive decides if none is named.
    pub model: Option<String>,
    pub provider: Option<String>,
    /// Limits that replace those of the directive.
    pub limits: Limits,
    /// Patterns that restrict the permissions of the thread.
    pub capabilities: Option<Vec<String>>,
    /// A warning for the author of the call.
    pub warning: Option<String>,
}

impl ThreadTool {
    /// Returns the tool of that id, if it is one of these.
    pub fn of(id: &ItemId) -> Option<Self> {
        match id.as_str() {
            "rye/agent/threads/thread_directive" => Some(Self::Directive),
            "rye/agent/threads/thread_tool" => Some(Self::Start),
            _ => None,
        }
    }

    const fn key_of_inputs(self) -> &'static str {
        match self {
            Self::Directive => "inputs",
            Self::Start => "directive_inputs",
        }
    }
}

impl ThreadOrder {
    /// Reads an action on `directive` with these parameters.
    pub fn of_action(directive: ItemRef, params: Object) -> Result<Self, Failure> {
        let mut params = checked(params)?;
        let order = Self::begin(directive, &mut params)?;
        let (inputs, _) = inputs(params, "inputs")?;
        Ok(Self { inputs, ..order })
    }

    /// Reads a call of `tool` with these parameters.
    pub fn of_tool(tool: ThreadTool, params: Object) -> Result<Self, Failure> {
        let mut params = checked(params)?;
        let directive = named(&mut params)?;
        let mut order = Self::begin(directive, &mut params)?;
        match tool {
            ThreadTool::Directive => order.is_async |= params.flag("async_exec")?,
            ThreadTool::Start => {
                order.is_async = true;
                order.is_only_checked = params.switch("execute_directive")? == Some(false);
                // The caller's own name for it, which the answer repeats.
                params.text("thread_id", "a text")?;
            }
        }
        let (inputs, beside) = inputs(params, tool.key_of_inputs())?;
        let first = inputs.keys().next().filter(|_| beside);
        let warning = first.map(|first| {
            let key = tool.key_of_inputs();
            format!(
                "`{first}` is read as an input of `{}`: inputs belong below `{key}`",
                order.directive
            )
        });
        Ok(Self {
            inputs,
            warning,
            ..order
        })
    }

    /// Reads the order without its inputs.
    fn begin(directive: ItemRef, params: &mut Params) -> Result<Self, Failure> {
        Ok(Self {
            directive,
            inputs: Object::new(),
            is_async: params.flag("async")?,
            is_only_checked: false,
            model: params.text("model", "the name of a model or a tier")?,
            provider: params.text("provider", "the name of a provider")?,
            limits: limits_of("limit_overrides", params.map("limit_overrides")?)?,
            capabilities: params.patterns("capabilities")?,
            warning: None,
        })
    }
}

/// Returns the parameters, if none of them states facts that only the daemon knows.
fn checked(params: Object) -> Result<Params, Failure> {
    let is_claim = |name: &&String| {
        name.starts_with('_') || name.starts_with("parent_") || *name == "resume_messages"
    };
    match params.keys().find(is_claim) {
        Some(name) => Err(wrong(format!(
            "`{name}`: who starts a thread, and what it begins with, is set by the daemon; leave it out"
        ))),
        None => Ok(Params::new(params, "a directive")),
    }
}

/// Returns the directive that the tool must start.
fn named(params: &mut Params) -> Result<ItemRef, Failure> {
    let mut named = None;
    for key in NAMES {
        let Some(id) = params.text(key, "the id of a directive")? else {
            continue;
        };
        let item = ItemRef::parse(&id, ItemKind::Directive);
        let item = item.map_err(|error| wrong(format!("`{key}`: {error}")))?;
        if item.kind != ItemKind::Directive {
            return Err(wrong(format!("`{key}`: `{item}` is no directive")));
        }
        if named.replace(item).is_some() {
            return Err(wrong(format!(
                "only one of {} names the directive",
                NAMES.join(", ")
            )));
        }
    }
    named.ok_or_else(|| wrong("`directive_id` names the directive to start, like \"team/review\""))
}

/// Returns the inputs, and true if they were given next to the other parameters.
fn inputs(mut params: Params, key: &str) -> Result<(Object, bool), Failure> {
    let Some(inputs) = params.map(key)? else {
        let rest = params.into_rest();
        return Ok((rest, true));
    };
    match params.names().next() {
        Some(other) => Err(wrong(format!(
            "`{other}` is beside `{key}`, which holds all inputs: put it there, or leave it out"
        ))),
        None => Ok((inputs, false)),
    }
}

/// Reads the limits that a caller sets under `key`.
pub fn limits_of(key: &str, given: Option<Object>) -> Result<Limits, Failure> {
    let given = given.unwrap_or_default();
    if let Some(other) = given.keys().find(|name| !LIMITS.contains(&name.as_str())) {
        let near = did_you_mean(nearest(other, LIMITS));
        let known = LIMITS.join(", ");
        return Err(wrong(format!(
            "`{key}` has no `{other}`{near}; there are {known}"
        )));
    }
    let mut params = Params::new(given, "the limits");
    let spend = params.take("spend").map(|given| Usd::from_json(&given));
    let spend = spend.transpose();
    let mut seconds = None;
    for name in ["duration_seconds", "duration"] {
        seconds = params.take(name).or(seconds);
    }
    Ok(Limits {
        steps: None,
        depth: params.number("depth")?,
        spawns: params.number("spawns")?,
        turns: params.number("turns")?,
        tokens: params.whole("tokens")?,
        duration_ms: seconds.map(|given| milliseconds(key, &given)).transpose()?,
        spend: spend.map_err(|error| wrong(format!("`{key}.spend`: {error}")))?,
    })
}

fn milliseconds(key: &str, given: &Value) -> Result<u64, Failure> {
    let seconds = given.as_f64().map(Duration::try_from_secs_f64);
    let time = seconds.and_then(Result::ok);
    let time =
        time.ok_or_else(|| wrong(format!("`{key}.duration` is a number of seconds from 0")))?;
    Ok(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(value: &Value) -> Object {
        value.as_object().cloned().unwrap()
    }

    fn directive() -> ItemRef {
        ItemRef::parse("directive:t/d", ItemKind::Directive).unwrap()
    }

    fn action(params: &Value) -> Result<ThreadOrder, Failure> {
        ThreadOrder::of_action(directive(), object(params))
    }

    fn tool(tool: ThreadTool, params: &Value) -> Result<ThreadOrder, Failure> {
        ThreadOrder::of_tool(tool, object(params))
    }

    #[test]
    fn thread_settings_are_no_inputs() {
        let how = json!({
            "async": true, "model": "fast", "provider": "p", "capabilities": ["rye.*"],
            "limit_overrides": {"turns": 3, "tokens": 5_000_000_000_u64, "spend": 0.25, "spawns": 1, "depth": 0, "duration_seconds": 1.5},
            "dir": "src", "none": null,
        });
        let order = action(&how).unwrap();
        assert_eq!(json!(order.inputs), json!({"dir": "src", "none": null}));
        assert!(order.is_async && !order.is_only_checked);
        assert_eq!(
            (order.model.as_deref(), order.provider.as_deref()),
            (Some("fast"), Some("p"))
        );
        assert_eq!(order.capabilities, Some(vec!["rye.*".to_owned()]));
        let limits = Limits {
            steps: None,
            depth: Some(0),
            spawns: Some(1),
            turns: Some(3),
            tokens: Some(5_000_000_000),
            duration_ms: Some(1500),
            spend: Usd::parse("0.25").ok(),
        };
        assert_eq!(order.limits, limits);
        let order = action(&json!({"inputs": {"model": "T"}, "model": "fast"})).unwrap();
        assert_eq!(json!(order.inputs), json!({"model": "T"}));
        assert_eq!(order.warning, None);
    }

    #[test]
    fn order_warns_of_misplaced_inputs() {
        for key in NAMES {
            for id in ["t/d", "directive:t/d"] {
                let order = tool(ThreadTool::Directive, &json!({key: id})).unwrap();
                assert_eq!((order.directive, order.is_async), (directive(), false));
            }
        }
        let beside = json!({"directive": "t/d", "dir": "src", "async_exec": true});
        let order = tool(ThreadTool::Directive, &beside).unwrap();
        assert_eq!(
            (json!(order.inputs), order.is_async),
            (json!({"dir": "src"}), true)
        );
        assert!(order.warning.unwrap().contains("`inputs`"));
        let start =
            json!({"directive_name": "t/d", "directive_inputs": {"a": 1}, "thread_id": "mine"});
        let order = tool(ThreadTool::Start, &start).unwrap();
        assert_eq!(json!(order.inputs), json!({"a": 1}));
        assert!(order.is_async && !order.is_only_checked && order.warning.is_none());
        let check = json!({"directive_name": "t/d", "execute_directive": false});
        assert!(tool(ThreadTool::Start, &check).unwrap().is_only_checked);
    }

    #[test]
    fn misfit_is_named_with_fix() {
        let of_tool = |params: Value| tool(ThreadTool::Directive, &params).unwrap_err();
        let table = [
            (of_tool(json!({})), "`directive_id`"),
            (of_tool(json!({"directive_id": "../x"})), "`directive_id`"),
            (of_tool(json!({"directive_id": 7})), "`directive_id`"),
            (
                of_tool(json!({"directive_id": "tool:a/b"})),
                "is no directive",
            ),
            (
                of_tool(json!({"directive_id": "a/b", "directive": "a/b"})),
                "only one of",
            ),
            (
                of_tool(json!({"directive": "a/b", "inputs": {}, "dir": 1})),
                "`dir` is beside `inputs`",
            ),
            (
                of_tool(json!({"directive": "a/b", "inputs": []})),
                "`inputs`",
            ),
            (action(&json!({"async": "yes"})).unwrap_err(), "`async`"),
            (
                action(&json!({"limit_overrides": {"turn": 1}})).unwrap_err(),
                "did you mean `turns`?",
            ),
            (
                action(&json!({"limit_overrides": {"spend": -1}})).unwrap_err(),
                "`limit_overrides.spend`",
            ),
            (
                action(&json!({"limit_overrides": {"duration": -1}})).unwrap_err(),
                "`limit_overrides.duration`",
            ),
            (
                action(&json!({"limit_overrides": {"turns": 1.5}})).unwrap_err(),
                "`turns`",
            ),
            (
                action(&json!({"parent_thread_id": "t-1"})).unwrap_err(),
                "`parent_thread_id`",
            ),
            (
                action(&json!({"resume_messages": []})).unwrap_err(),
                "`resume_messages`",
            ),
            (action(&json!({"_token": "t"})).unwrap_err(), "`_token`"),
            (
                of_tool(json!({"directive": "a/b", "_thread_id": 1})),
                "`_thread_id`",
            ),
        ];
        for (failure, words) in table {
            assert_eq!(failure.code, "invalid_params");
            assert!(failure.message.contains(words), "{}", failure.message);
        }
    }
}
