//! Hooks: actions and answers at the events of a graph run.

use serde_json::{Value, json};

use super::hook::{Authority, CONTROL, GRAPH_LAYER, Hook, HookAction, HookEvent};
use super::keys;
use super::read::{At, Context, Reader};
use super::roots::Roots;
use crate::declared::errors;
use crate::expr::{Condition, did_you_mean};
use crate::model::{Control, Object};
use crate::yaml::Document;

/// The layer with the highest number, that of the infrastructure.
const LAST_LAYER: u8 = 3;

impl Hook {
    /// Reads a hook from a file of policies; `fallback_id` is its id if it names none. The error lists all its
    /// problems.
    pub fn from_value(value: &Value, fallback_id: &str) -> Result<Self, String> {
        let document = Document::without_positions(value.clone());
        let mut reader = Reader::new(&document, Context::default());
        let hook = reader.hook(&reader.root(), fallback_id);
        let hook = reader.end(hook).map_err(|findings| {
            let messages = errors(&findings).map(|error| error.message.as_str());
            messages.collect::<Vec<_>>().join("; ")
        })?;
        Ok(hook.0)
    }
}

impl Hook {
    /// True if its only answer is to try a failed node again.
    pub fn only_retries(&self) -> bool {
        let HookAction::Control(answer) = &self.action else {
            return false;
        };
        matches!(Control::parse(answer), Ok(Some(Control::Retry { .. })))
    }
}

impl<'d> Reader<'d> {
    /// Reads a hook; `None` after an error that leaves a part of it without a value.
    pub(super) fn hook(&mut self, at: &At<'d>, fallback_id: &str) -> Option<Hook> {
        self.map(at, &keys::HOOK)?;
        let id = match at.given("id") {
            Some(given) => {
                let id = self.text(at, "id");
                if id == Some("") {
                    self.error("bad_name", &given, "`id` of a hook is empty");
                }
                id
            }
            None => Some(fallback_id),
        };
        if at.given("description").is_some() {
            self.text(at, "description");
        }
        let event = self.event(at);
        let layer = self.layer(at);
        self.begin_scope();
        let roots = event.map(|event| Roots {
            event: Some(event),
            ..Roots::default()
        });
        let (condition, action) = self.among(roots, None, |reader| {
            let condition = match at.given("condition") {
                Some(condition) => reader.hook_condition(&condition).map(Some),
                None => Some(None),
            };
            let action = at.child("action");
            (condition, action.and_then(|at| reader.hook_action(&at)))
        });
        let (event, action) = (event?, action?);
        self.pointless_control(at, event, &action);
        let layer = layer?;
        Some(Hook {
            id: id?.to_owned(),
            event,
            condition: condition?,
            action,
            layer,
            authority: if layer == GRAPH_LAYER {
                Authority::Run
            } else {
                Authority::Node
            },
        })
    }

    fn event(&mut self, hook: &At<'d>) -> Option<HookEvent> {
        let words = HookEvent::ALL.map(HookEvent::as_str);
        let word = self.text(hook, "event")?;
        let event = HookEvent::parse(word);
        if event.is_none() {
            let hint = did_you_mean(self.nearest(word, words));
            let message = format!(
                "graphs have no event `{word}`{hint}; there are {}",
                words.join(", ")
            );
            self.error("unknown_value", hook.at("/event"), message);
        }
        event
    }

    fn layer(&mut self, hook: &At<'d>) -> Option<u8> {
        if hook.given("layer").is_none() {
            return Some(GRAPH_LAYER);
        }
        let layer = self.whole(hook, "layer", GRAPH_LAYER.into())?;
        let known = u8::try_from(layer)
            .ok()
            .filter(|layer| *layer <= LAST_LAYER);
        if known.is_none() {
            let message = "`layer` is 1 (graph), 2 (built in) or 3 (infrastructure)";
            self.error("unknown_value", hook.at("/layer"), message);
        }
        known
    }

    /// Reads a condition. `state.step_count` in it means the `step_count` of the event: the run has no such state.
    fn hook_condition(&mut self, at: &At<'d>) -> Option<Condition> {
        let mut value = at.value.clone();
        if rename_step_count(&mut value) {
            let message = "`state.step_count` is read as `step_count`";
            self.warn("old_spelling", at, message);
        }
        self.condition(at, &value)
    }

    fn hook_action(&mut self, at: &At<'d>) -> Option<HookAction> {
        if at.given("retry").is_some() || at.given("max_retries").is_some() {
            return self.retry_shorthand(at);
        }
        let action = self.action(at, &keys::HOOK_ACTION)?;
        if action.id != CONTROL {
            return Some(HookAction::Call(action));
        }
        let place = at.child("params").unwrap_or_else(|| at.clone());
        let params = action.params;
        let literal = self.is_literal(&params);
        let known = match Control::parse(&params) {
            Ok(Some(_)) => Ok(()),
            Ok(None) => Err("`params` of a control action needs `action`".to_owned()),
            // The value of a template is known when the hook acts.
            Err(_) if !literal => Ok(()),
            Err(wrong) => Err(wrong),
        };
        known
            .map(|()| HookAction::Control(params))
            .map_err(|wrong| self.error("bad_control", &place, wrong))
            .ok()
    }

    /// `{retry: true, max_retries: N}`.
    fn retry_shorthand(&mut self, at: &At<'d>) -> Option<HookAction> {
        self.map(at, &keys::HOOK_ACTION)?;
        for key in ["primary", "item_type", "kind", "item_id", "params"] {
            if let Some(child) = at.child(key) {
                let message = format!("`{key}` beside `retry`: a hook retries or uses an item");
                self.error("conflict", child.named(), message);
            }
        }
        if self.switch(at, "retry") != Some(true) {
            let message = "a hook that retries says `retry: true`";
            self.error("bad_control", at, message);
            return None;
        }
        let mut control = Object::from_iter([("action".to_owned(), json!("retry"))]);
        if at.given("max_retries").is_some() {
            let most = self.whole(at, "max_retries", 0)?;
            control.insert("max_retries".to_owned(), json!(most));
        }
        Some(HookAction::Control(Value::Object(control)))
    }

    /// Warns of an answer that has no effect at its event.
    fn pointless_control(&mut self, hook: &At<'d>, event: HookEvent, action: &HookAction) {
        let HookAction::Control(template) = action else {
            return;
        };
        let Ok(Some(control)) = Control::parse(template) else {
            return;
        };
        let Some(why) = pointless(&control, event) else {
            return;
        };
        let (control, event) = (control.as_str(), event.as_str());
        let message = format!("`{control}` {why}; at `{event}` it has no effect");
        self.warn("no_effect", hook.at("/action"), message);
    }
}

/// Returns the reason for which `control` has no effect at `event`, if it has none.
const fn pointless(control: &Control, event: HookEvent) -> Option<&'static str> {
    match (event, control) {
        (HookEvent::Error, _)
        | (
            HookEvent::Limit,
            Control::Continue { .. }
            | Control::Fail { .. }
            | Control::Abort
            | Control::Suspend { .. }
            | Control::Escalate,
        )
        | (
            HookEvent::GraphStarted | HookEvent::AfterStep,
            Control::Fail { .. } | Control::Abort | Control::Suspend { .. } | Control::Escalate,
        ) => None,
        (
            HookEvent::GraphStarted
            | HookEvent::AfterStep
            | HookEvent::Limit
            | HookEvent::GraphCompleted,
            Control::Retry { .. } | Control::Skip,
        ) => Some("answers the event `error`"),
        (
            HookEvent::GraphStarted | HookEvent::AfterStep | HookEvent::GraphCompleted,
            Control::Continue { .. },
        ) => Some("answers the events `error` and `limit`"),
        (
            HookEvent::GraphCompleted,
            Control::Fail { .. } | Control::Abort | Control::Suspend { .. } | Control::Escalate,
        ) => Some("stops a run that has not ended"),
    }
}

/// Replaces the path `state.step_count` in a condition; returns true if it occurred.
fn rename_step_count(condition: &mut Value) -> bool {
    match condition {
        Value::Object(map) => {
            let mut found = false;
            for (key, value) in map {
                if key == "path" && value == "state.step_count" {
                    *value = json!("step_count");
                    found = true;
                } else if key != "value" {
                    found |= rename_step_count(value);
                }
            }
            found
        }
        Value::Array(list) => {
            let found = list.iter_mut().map(rename_step_count);
            found.reduce(|one, other| one || other).unwrap_or(false)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}
