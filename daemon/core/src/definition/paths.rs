//! What a graph reads: the paths of its templates and conditions, and where each stands.

use serde_json::Value;

use super::action::Actor;
use super::{Action, Graph, Hook, HookAction, HookEvent, Next, Node, Pause, Work};
use crate::expr::{Condition, references};
use crate::yaml::push_segment;

/// The part of a node or hook a path stands in; it decides which names there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// The list of a foreach.
    Over,
    /// An action.
    Action,
    /// An assignment.
    Assign,
    /// The condition of an edge.
    Next,
    /// The output of a return node.
    Output,
    /// A hook of this event.
    Hook(HookEvent),
}

/// A path, and where it stands.
#[derive(Debug, Clone)]
pub(super) struct Read {
    pub(super) part: Part,
    pub(super) path: String,
    /// The JSON pointer, from the node or hook, to the text or condition that reads it.
    pub(super) at: String,
}

impl Read {
    /// The name of the scope it starts at.
    pub(super) fn root(&self) -> &str {
        segments(&self.path).next().unwrap_or_default()
    }

    /// `key` of `state.key…`.
    pub(super) fn state_key(&self) -> Option<&str> {
        let mut segments = segments(&self.path);
        (segments.next() == Some("state")).then(|| segments.next())?
    }
}

/// All that a graph reads.
#[derive(Debug)]
pub(super) struct Reads {
    /// By node, in the order of the file.
    pub(super) nodes: Vec<Vec<Read>>,
    /// By hook, in the order of the file.
    pub(super) hooks: Vec<Vec<Read>>,
}

impl Reads {
    /// What one node or hook reads.
    pub(super) fn of_actor(&self, actor: &Actor<'_>) -> &[Read] {
        let reads = match actor {
            Actor::Node(index, _) => self.nodes.get(*index),
            Actor::Hook(index, _) => self.hooks.get(*index),
        };
        reads.map_or(&[], Vec::as_slice)
    }

    pub(super) fn of(graph: &Graph) -> Self {
        Self {
            nodes: graph.nodes.iter().map(of_node).collect(),
            hooks: graph.hooks.iter().map(of_hook).collect(),
        }
    }

    /// All of them.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Read> {
        self.nodes.iter().chain(&self.hooks).flatten()
    }
}

/// The steps of a path: `a`, `0` and `b` of `a[0].b`.
pub(super) fn segments(path: &str) -> impl Iterator<Item = &str> {
    path.split(['.', '['])
        .map(|segment| segment.trim_end_matches(']'))
}

/// All paths of a node. What an item of a foreach reads by its variable is no path of the state, whichever way it is
/// written, and left out.
fn of_node(node: &Node) -> Vec<Read> {
    let mut reads = Vec::new();
    match &node.work {
        Work::Action(action) => of_action(Part::Action, "/action", action, &mut reads),
        Work::Foreach(foreach) => {
            of_action(Part::Action, "/action", &foreach.action, &mut reads);
            if let Some(value) = &foreach.collect_value {
                of_template(Part::Assign, "/collect_value", value, &mut reads);
            }
            let variable = foreach.variable.as_str();
            reads.retain(|read| read.root() != variable && read.state_key() != Some(variable));
            of_template(Part::Over, "/over", &foreach.over, &mut reads);
        }
        Work::Gate => {}
        Work::Return { output } => {
            if let Some(output) = output {
                of_template(Part::Output, "/output", output, &mut reads);
            }
        }
        Work::Fail(fail) => {
            of_template(Part::Output, "/message", &fail.message, &mut reads);
            if let Some(output) = &fail.output {
                of_template(Part::Output, "/output", output, &mut reads);
            }
        }
        Work::Wait(Pause::For(time)) => of_template(Part::Action, "/for", time, &mut reads),
        Work::Wait(Pause::Until(time)) => of_template(Part::Action, "/until", time, &mut reads),
        Work::Approval(ask) => of_template(Part::Action, "/message", &ask.message, &mut reads),
        Work::Parallel(parallel) => {
            for (name, action) in &parallel.branches {
                let mut at = "/branches".to_owned();
                push_segment(&mut at, name);
                of_action(Part::Action, &at, action, &mut reads);
            }
        }
    }
    for (key, template) in &node.assign {
        let mut at = "/assign".to_owned();
        push_segment(&mut at, key);
        of_template(Part::Assign, &at, template, &mut reads);
    }
    if let Next::Edges(edges) = &node.next {
        for (index, edge) in edges.iter().enumerate() {
            if let Some(condition) = &edge.when {
                let at = format!("/next/{index}/when");
                of_condition(Part::Next, &at, condition, &mut reads);
            }
        }
    }
    reads
}

/// All paths of a hook.
fn of_hook(hook: &Hook) -> Vec<Read> {
    let mut reads = Vec::new();
    let part = Part::Hook(hook.event);
    if let Some(condition) = &hook.condition {
        of_condition(part, "/condition", condition, &mut reads);
    }
    match &hook.action {
        HookAction::Control(template) => {
            of_template(part, "/action/params", template, &mut reads);
        }
        HookAction::Call(action) => of_action(part, "/action", action, &mut reads),
    }
    reads
}

fn of_action(part: Part, at: &str, action: &Action, reads: &mut Vec<Read>) {
    let id = action.id.as_str().into();
    of_template(part, &format!("{at}/item_id"), &id, reads);
    of_template(part, &format!("{at}/params"), &action.params, reads);
}

fn of_template(part: Part, at: &str, template: &Value, reads: &mut Vec<Read>) {
    let mut below = |segment: &str, value: &Value| {
        let mut at = at.to_owned();
        push_segment(&mut at, segment);
        of_template(part, &at, value, reads);
    };
    match template {
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
        Value::Array(list) => {
            for (index, value) in list.iter().enumerate() {
                below(&index.to_string(), value);
            }
        }
        Value::Object(map) => map.iter().for_each(|(key, value)| below(key, value)),
        Value::String(_) => {
            let paths = references(template).into_iter();
            reads.extend(paths.map(|path| Read {
                part,
                path,
                at: at.to_owned(),
            }));
        }
    }
}

fn of_condition(part: Part, at: &str, condition: &Condition, reads: &mut Vec<Read>) {
    let paths = condition.paths().into_iter();
    reads.extend(paths.map(|path| Read {
        part,
        path: path.to_owned(),
        at: at.to_owned(),
    }));
}
