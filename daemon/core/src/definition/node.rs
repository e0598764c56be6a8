//! One node: its type, the handling of its action, its assignments and its edges.

use std::collections::HashSet;
use std::time::Duration;

use serde_json::Value;

use super::backoff::Retry;
use super::keys::{self, TYPES};
use super::processes::SERVICE_KEYS;
use super::read::{At, Reader};
use super::roots::Roots;
use super::scope;
use super::work::{Caching, Edge, Next, Node, Work};
use crate::declared::{TOO_COMPLEX, Zero, brief, is_inert};
use crate::expr::{Condition, did_you_mean, nearest};
use crate::model::{Effect, Object};
use crate::seal::canonical;

/// The types of nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Action,
    Foreach,
    Gate,
    Return,
    Fail,
    Wait,
    Approval,
    Parallel,
    Service,
    /// A `wait` with a `process`.
    ProcessWait,
}

impl Kind {
    fn reads(self, key: &str) -> bool {
        let own: &[&str] = match self {
            Self::Action => &["action", "timeout"],
            Self::Foreach => &[
                "action",
                "timeout",
                "over",
                "as",
                "collect",
                "collect_value",
                "parallel",
                "max_concurrency",
                "on_item_error",
            ],
            Self::Gate => &[],
            Self::Return => &["output"],
            Self::Fail => &["message", "code", "output"],
            Self::Wait => &["for", "until", "process", "line", "ready", "exit"],
            Self::ProcessWait => &["for", "process", "line", "ready", "exit"],
            Self::Service => &SERVICE_KEYS,
            Self::Approval => &["message", "schema", "timeout"],
            Self::Parallel => &["branches", "timeout", "max_concurrency", "on_item_error"],
        };
        match key {
            "type" | "comment" | "description" | "env_requires" => true,
            "effect" | "retry" | "cache_result" => self.runs(),
            "assign" | "next" | "on_error" => self.goes_on(),
            key => own.contains(&key),
        }
    }

    /// True if it uses items.
    const fn runs(self) -> bool {
        matches!(self, Self::Action | Self::Foreach | Self::Parallel)
    }

    /// True if `assign` and `next` see a result.
    const fn has_result(self) -> bool {
        self.runs() || matches!(self, Self::Approval | Self::Service | Self::ProcessWait)
    }

    /// True if a run may continue after it.
    const fn goes_on(self) -> bool {
        !matches!(self, Self::Return | Self::Fail)
    }

    /// Returns the name of the type, with its article.
    const fn as_str(self) -> &'static str {
        match self {
            Self::Action => "a node with an action",
            Self::Foreach => "a foreach node",
            Self::Gate => "a gate",
            Self::Return => "a return node",
            Self::Fail => "a node that fails",
            Self::Wait => "a node that waits",
            Self::Approval => "an approval node",
            Self::Parallel => "a parallel node",
            Self::Service => "a service",
            Self::ProcessWait => "a node that waits for a process",
        }
    }
}

/// The handling of a node, mostly of its action.
#[derive(Default)]
struct Handling {
    effect: Effect,
    retry: Option<Retry>,
    timeout: Option<Duration>,
    caching: Caching,
    env_requires: Vec<String>,
}

impl<'d> Reader<'d> {
    /// Reads a node; `None` after an error that leaves a part of it without a value.
    pub(super) fn read_node(&mut self, name: &str, at: &At<'d>) -> Option<Node> {
        let map = self.map(at, &keys::NODE)?;
        self.begin_scope();
        if name.is_empty() || name.chars().any(char::is_control) {
            self.error(
                "bad_name",
                at.named(),
                format!(
                    "{name:?} is not a name for a node: it is empty or holds a control character"
                ),
            );
        }
        for key in ["comment", "description"] {
            self.text(at, key);
        }
        let kind = self.node_kind(at, map)?;
        self.unused_keys(at, kind);
        self.muted_keys(at, kind);
        let work = self.work(at, kind);
        let handling = match kind {
            Kind::Action | Kind::Foreach | Kind::Parallel => self.handling(at)?,
            Kind::Approval => Handling {
                timeout: self.seconds(at, "timeout", Zero::Refused),
                env_requires: self.env_requires(at),
                ..Handling::default()
            },
            Kind::Gate
            | Kind::Return
            | Kind::Fail
            | Kind::Wait
            | Kind::Service
            | Kind::ProcessWait => Handling {
                env_requires: self.env_requires(at),
                ..Handling::default()
            },
        };
        let (assign, next, on_error) = if kind.goes_on() {
            let roots = Roots {
                result: kind.has_result(),
                ..Roots::default()
            };
            let keys = work.as_ref().and_then(scope::result_keys);
            let (assign, next) = self.among(Some(roots), keys, |reader| {
                (reader.assign(at), reader.next(at))
            });
            let on_error = match at.given("on_error") {
                Some(at) => self.target(&at).map(Some),
                None => Some(None),
            };
            (assign?, next?, on_error?)
        } else {
            (Vec::new(), Next::End, None)
        };
        Some(Node {
            name: name.to_owned(),
            work: work?,
            assign,
            next,
            on_error,
            effect: handling.effect,
            retry: handling.retry,
            timeout: handling.timeout,
            caching: handling.caching,
            env_requires: handling.env_requires,
        })
    }

    fn node_kind(&mut self, at: &At<'d>, map: &'d Object) -> Option<Kind> {
        let Some(kind) = at.given("type") else {
            if let Some(over) = at.given("over") {
                let message = "only a foreach has `over`: write `type: foreach`";
                self.error("missing_key", over.named(), message);
                return None;
            }
            if at.given("action").is_some() {
                return Some(Kind::Action);
            }
            if map.contains_key("assign") || map.contains_key("next") {
                return Some(Kind::Gate);
            }
            self.error(
                "missing_action",
                at.named(),
                "the node does nothing: give it an `action`, `assign`, `next` or `type: return`",
            );
            return None;
        };
        match kind.value.as_str() {
            Some("return") => Some(Kind::Return),
            Some("gate") => Some(Kind::Gate),
            Some("foreach") => Some(Kind::Foreach),
            Some("fail") => Some(Kind::Fail),
            Some("wait") if at.given("process").is_some() => Some(Kind::ProcessWait),
            Some("wait") => Some(Kind::Wait),
            Some("service") => Some(Kind::Service),
            Some("approval") => Some(Kind::Approval),
            Some("parallel") => Some(Kind::Parallel),
            other => {
                let hint = did_you_mean(other.and_then(|other| nearest(other, TYPES)));
                let message = format!(
                    "unknown node type `{}`{hint}; there are {}, and no `type` for a node with an action",
                    brief(kind.value),
                    TYPES.join(", ")
                );
                self.error("unknown_type", &kind, message);
                None
            }
        }
    }

    /// Warns of keys that this kind of node does not read.
    fn unused_keys(&mut self, at: &At<'d>, kind: Kind) {
        for key in keys::NODE.known().filter(|key| !kind.reads(key)) {
            let Some(child) = at.child(key).filter(|child| !is_inert(child.value)) else {
                continue;
            };
            let message = match (key, kind) {
                ("output", _) => "`output` has an effect on a return or fail node only".to_owned(),
                ("cache", _) => {
                    "`cache` has no effect: with `cache_result: true` an equal call takes the result of an earlier one"
                        .to_owned()
                }
                ("action", Kind::Gate) => "a gate runs no `action`".to_owned(),
                _ => format!("`{key}` has no effect on {}", kind.as_str()),
            };
            self.warn("no_effect", child.named(), message);
        }
    }

    /// Warns of keys that have no effect because of another key.
    fn muted_keys(&mut self, at: &At<'d>, kind: Kind) {
        let says = |key: &str, word: &str| {
            at.given(key)
                .is_some_and(|given| given.value.as_str() == Some(word))
        };
        let runs = kind.runs();
        let collects = runs && kind != Kind::Action && says("on_item_error", "collect");
        let retry = at.given("retry").filter(|_| runs);
        if let Some(retry) = &retry
            && says("effect", "at_most_once")
        {
            let message = "`retry` beside `effect: at_most_once`: there is no second try unless the first one provably \
                           never began";
            self.warn("no_effect", retry.named(), message);
        }
        if let Some(on_error) = at.given("on_error").filter(|_| collects) {
            let message = "no failed item leads to `on_error` beside `on_item_error: collect`: only an `over` or `assign` \
                           that cannot be evaluated does";
            self.warn("no_effect", on_error.named(), message);
        }
    }

    fn work(&mut self, at: &At<'d>, kind: Kind) -> Option<Work> {
        match kind {
            Kind::Action => {
                let action = at.child("action")?;
                self.action(&action, &keys::ACTION).map(Work::Action)
            }
            Kind::Fail => self.fail(at).map(Work::Fail),
            Kind::Wait => self.pause(at).map(Work::Wait),
            Kind::ProcessWait => self.process_wait(at).map(Work::ProcessWait),
            Kind::Service => self.service(at).map(Work::Service),
            Kind::Approval => self.ask(at).map(Work::Approval),
            Kind::Parallel => self.parallel(at).map(Work::Parallel),
            Kind::Foreach => self.foreach(at).map(Work::Foreach),
            Kind::Gate => Some(Work::Gate),
            Kind::Return => {
                let output = at.given("output");
                if let Some(output) = &output {
                    self.template(output);
                }
                Some(Work::Return {
                    output: output.map(|at| at.value.clone()),
                })
            }
        }
    }

    fn handling(&mut self, at: &At<'d>) -> Option<Handling> {
        let effects = &[
            ("idempotent", Effect::Idempotent),
            ("pure", Effect::Pure),
            ("at_most_once", Effect::AtMostOnce),
        ];
        let effect = self.word(at, "effect", effects);
        let retry = self.retry(at);
        let timeout = self.seconds(at, "timeout", Zero::Refused);
        let caching = match self.switch(at, "cache_result") {
            Some(true) => Caching::On,
            Some(false) | None => Caching::Off,
        };
        let env_requires = self.env_requires(at);
        if (effect, caching) == (Some(Effect::AtMostOnce), Caching::On)
            && let Some(cache) = at.child("cache_result")
        {
            let message = "a result from the cache would leave out an effect that is wanted once per run: drop `cache_result` or `effect: at_most_once`";
            self.error("conflict", cache.named(), message);
        }
        Some(Handling {
            effect: effect?,
            retry,
            timeout,
            caching,
            env_requires,
        })
    }

    fn assign(&mut self, node: &At<'d>) -> Option<Vec<(String, Value)>> {
        let Some(at) = node.given("assign") else {
            return Some(Vec::new());
        };
        let members = self.members(&at, "a map of state keys and templates")?;
        for (key, entry) in &members {
            self.template(entry);
            self.state_key(entry, key);
        }
        let assigned = members.into_iter();
        Some(
            assigned
                .map(|(key, at)| (key.to_owned(), at.value.clone()))
                .collect(),
        )
    }

    /// Checks a key of the state to which `at` assigns a value.
    pub(super) fn state_key(&mut self, at: &At<'d>, key: &str) {
        if key == "inputs" {
            let message = "`inputs` cannot be assigned: the inputs of a run never change";
            self.error("bad_assign", at.named(), message);
        } else if key.contains(['.', '[']) {
            let message =
                format!("`{key}` is one key with a dot or bracket in it; no path can read it");
            self.warn("bad_assign", at.named(), message);
        }
    }

    fn next(&mut self, node: &At<'d>) -> Option<Next> {
        let Some(at) = node.child("next") else {
            return Some(Next::End);
        };
        match at.value {
            Value::Null => Some(Next::End),
            Value::String(_) => self.target(&at).map(Next::Always),
            Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
                let what = "the name of a node or a list of edges {to, when}";
                let entries = self.entries(&at, what)?;
                let edges: Vec<_> = entries.iter().map(|entry| self.edge(entry)).collect();
                let edges = edges.into_iter().collect::<Option<Vec<Edge>>>()?;
                self.dead_edges(&entries, &edges);
                Some(Next::Edges(edges))
            }
        }
    }

    fn edge(&mut self, at: &At<'d>) -> Option<Edge> {
        if !at.value.is_object() {
            let message = format!(
                "an edge is a map: write {{to: {}}}",
                at.value.as_str().unwrap_or("NODE")
            );
            self.error("wrong_type", at, message);
            return None;
        }
        self.map(at, &keys::EDGE)?;
        let to = at.child("to").and_then(|to| self.target(&to));
        let when = match at.given("when") {
            None => Some(None),
            Some(when) => self.condition(&when, when.value).map(Some),
        };
        Some(Edge {
            to: to?,
            when: when?,
        })
    }

    /// Reads `value`, found at `at`, as a condition.
    pub(super) fn condition(&mut self, at: &At<'d>, value: &Value) -> Option<Condition> {
        let was_over = self.context.patterns.is_over();
        match Condition::parse_among(value, &mut self.context.patterns) {
            Ok((condition, warnings)) => {
                self.adopt("bad_condition", at, warnings);
                self.check_paths(at, &condition);
                Some(condition)
            }
            Err(faults) => {
                let is_too_much = self.context.patterns.is_over() && !was_over;
                let code = if is_too_much {
                    TOO_COMPLEX
                } else {
                    "bad_condition"
                };
                self.adopt(code, at, faults);
                None
            }
        }
    }

    /// Warns of the first edge that can never be taken, and of edges with the condition of an earlier one.
    fn dead_edges(&mut self, entries: &[At<'d>], edges: &[Edge]) {
        let mut conditions = HashSet::new();
        let mut entries = entries.iter().zip(edges);
        while let Some((entry, edge)) = entries.next() {
            if edge.always() {
                if let Some((dead, _)) = entries.next() {
                    let message =
                        "the edge before holds always: this one and those after it are never taken";
                    self.warn("no_effect", dead, message);
                }
                return;
            }
            if let Some(when) = entry.given("when")
                && !conditions.insert(canonical(when.value))
            {
                let message = "an edge before has the same `when`: this one is never taken";
                self.warn("no_effect", entry, message);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rye_pages::Table;

    use super::*;

    /// The types of nodes, as the reference names them.
    const KINDS: [(&str, Kind); 9] = [
        ("action", Kind::Action),
        ("foreach", Kind::Foreach),
        ("gate", Kind::Gate),
        ("return", Kind::Return),
        ("fail", Kind::Fail),
        ("wait", Kind::Wait),
        ("approval", Kind::Approval),
        ("parallel", Kind::Parallel),
        ("service", Kind::Service),
    ];

    #[test]
    fn the_reference_lists_the_keys_of_each_type_of_node() {
        let table = Table::read("docs/reference.md", "node keys");
        table.assert_lists(keys::NODE.known());
        for key in keys::NODE.known() {
            let on = KINDS.into_iter().filter(|(_, kind)| kind.reads(key));
            let on: Vec<&str> = on.map(|(word, _)| word).collect();
            if on.len() == KINDS.len() {
                assert_eq!(table.cell(key, "on"), "all", "{key}");
            } else {
                table.assert_cell_lists(key, "on", on);
            }
        }
    }
}
