//! The paths that the templates and conditions of a graph read, with their positions.

use serde_json::Value;

use super::actor::Actor;
use super::graph::Graph;
use super::hook::{Hook, HookAction};
use super::roots::Roots;
use super::segments::segments;
use super::work::{Action, Next, Node, Pause, Work};
use crate::expr::{self, Condition};
use crate::yaml::push_segment;

#[derive(Debug, Clone)]
pub(super) struct Read {
    pub(super) path: String,
    /// JSON pointer from the node or hook to the text or condition that reads it.
    pub(super) at: String,
}

impl Read {
    /// Returns the name with which the path starts.
    pub(super) fn root(&self) -> &str {
        segments(&self.path).next().unwrap_or_default()
    }

    /// Returns `key` of `state.key…`.
    pub(super) fn state_key(&self) -> Option<&str> {
        let mut segments = segments(&self.path);
        (segments.next() == Some("state")).then(|| segments.next())?
    }
}

/// All paths that a graph reads.
#[derive(Debug)]
pub(super) struct Reads {
    /// By node, in the order of the file.
    pub(super) nodes: Vec<Vec<Read>>,
    /// By hook, in the order of the file.
    pub(super) hooks: Vec<Vec<Read>>,
}

impl Reads {
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

    pub(super) fn iter(&self) -> impl Iterator<Item = &Read> {
        self.nodes.iter().chain(&self.hooks).flatten()
    }
}

/// Returns all paths of a node. Reads of an item of a foreach by its variable, in either form, are no paths of the
/// state and are left out.
fn of_node(node: &Node) -> Vec<Read> {
    let mut reads = Vec::new();
    let roots = Roots::default();
    let behind = Roots {
        result: true,
        ..roots
    };
    match &node.work {
        Work::Action(action) => of_action(roots, "/action", action, &mut reads),
        Work::Foreach(foreach) => {
            let variable = foreach.variable.as_str();
            let of_items = |roots| Roots {
                variable: Some(variable),
                ..roots
            };
            of_action(of_items(roots), "/action", &foreach.action, &mut reads);
            if let Some(value) = &foreach.collect_value {
                of_template(of_items(behind), "/collect_value", value, &mut reads);
            }
            reads.retain(|read| read.root() != variable && read.state_key() != Some(variable));
            of_template(roots, "/over", &foreach.over, &mut reads);
        }
        Work::Gate => {}
        Work::Return { output } => {
            if let Some(output) = output {
                of_template(roots, "/output", output, &mut reads);
            }
        }
        Work::Fail(fail) => {
            of_template(roots, "/message", &fail.message, &mut reads);
            if let Some(output) = &fail.output {
                of_template(roots, "/output", output, &mut reads);
            }
        }
        Work::Wait(Pause::For(time)) => of_template(roots, "/for", time, &mut reads),
        Work::Wait(Pause::Until(time)) => of_template(roots, "/until", time, &mut reads),
        Work::Service(action) => of_service(roots, action, &mut reads),
        Work::ProcessWait(action) => of_process_wait(roots, action, &mut reads),
        Work::Approval(ask) => of_template(roots, "/message", &ask.message, &mut reads),
        Work::Parallel(parallel) => {
            for (name, action) in &parallel.branches {
                let mut at = "/branches".to_owned();
                push_segment(&mut at, name);
                of_action(roots, &at, action, &mut reads);
            }
        }
    }
    for (key, template) in &node.assign {
        let mut at = "/assign".to_owned();
        push_segment(&mut at, key);
        of_template(behind, &at, template, &mut reads);
    }
    if let Next::Edges(edges) = &node.next {
        for (index, edge) in edges.iter().enumerate() {
            if let Some(condition) = &edge.when {
                let at = format!("/next/{index}/when");
                of_condition(&at, condition, &mut reads);
            }
        }
    }
    reads
}

/// The keys of a service are keys of the node.
fn of_service(roots: Roots<'_>, action: &Action, reads: &mut Vec<Read>) {
    for (key, template) in action.params.as_object().into_iter().flatten() {
        of_template(roots, &format!("/{key}"), template, reads);
    }
}

fn of_process_wait(roots: Roots<'_>, action: &Action, reads: &mut Vec<Read>) {
    for (key, param) in [
        ("process", "handle_id"),
        ("line", "pattern"),
        ("for", "timeout"),
    ] {
        if let Some(template) = action.params.get(param) {
            of_template(roots, &format!("/{key}"), template, reads);
        }
    }
}

fn of_hook(hook: &Hook) -> Vec<Read> {
    let mut reads = Vec::new();
    let roots = Roots {
        event: Some(hook.event),
        ..Roots::default()
    };
    if let Some(condition) = &hook.condition {
        of_condition("/condition", condition, &mut reads);
    }
    match &hook.action {
        HookAction::Control(template) => {
            of_template(roots, "/action/params", template, &mut reads);
        }
        HookAction::Call(action) => of_action(roots, "/action", action, &mut reads),
    }
    reads
}

fn of_action(roots: Roots<'_>, at: &str, action: &Action, reads: &mut Vec<Read>) {
    let id = action.id.as_str().into();
    of_template(roots, &format!("{at}/item_id"), &id, reads);
    of_template(roots, &format!("{at}/params"), &action.params, reads);
}

fn of_template(roots: Roots<'_>, at: &str, template: &Value, reads: &mut Vec<Read>) {
    expr::each_read(template, &|name| roots.has(name), &mut |read| {
        reads.push(Read {
            path: read.path.into_owned(),
            at: format!("{at}{}", read.at),
        });
    });
}

fn of_condition(at: &str, condition: &Condition, reads: &mut Vec<Read>) {
    let paths = condition.paths().into_iter();
    reads.extend(paths.map(|path| Read {
        path: path.to_owned(),
        at: at.to_owned(),
    }));
}
