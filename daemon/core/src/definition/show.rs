//! A graph as a diagram.
//!
//! **Owns** the three forms: Mermaid flowcharts, Graphviz digraphs and indented text. **Never** trusts a name or a
//! condition: characters with a meaning in the form are escaped, control characters are replaced.
//!
//! Nodes are in the order of the file. An action is a box, a foreach or parallel node a hexagon, a gate a rhombus, an
//! approval a parallelogram; a wait and the nodes that end the graph are rounded. Edges carry their conditions, error
//! edges are dashed. The progress of a run is shown as colours (classes in Mermaid) or, in text, as symbols.

mod dot;
mod mermaid;
mod text;

use std::borrow::Cow;
use std::collections::BTreeMap;

use strum::{EnumString, IntoStaticStr, VariantArray};

use super::graph::Graph;
use super::hook::{Hook, HookAction};
use super::work::{Edge, Next, Node, Pause, Work};
use crate::expr::text_of;
use crate::id::ItemId;
use crate::printable;

/// Length of the longest condition that is shown whole, in characters.
const MAX_LABEL: usize = 80;
/// Replacement for an invisible character.
const HIDDEN: char = '\u{fffd}';
/// Name of the end of a graph without a return node.
const END: &str = "finish";

/// The form of a diagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Mermaid,
    Dot,
    Text,
}

/// The progress of a run at a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeState {
    /// Status of the last visit.
    pub status: NodeStatus,
    pub visits: u32,
    /// Duration of the last visit in milliseconds.
    pub elapsed_ms: u64,
    /// Items or branches of the last visit that failed, although the node did not.
    pub failed: u32,
}

/// Status of the last visit of a node.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    EnumString,
    IntoStaticStr,
    VariantArray,
)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum NodeStatus {
    Ok,
    Error,
    /// Its action is in flight.
    Running,
    /// Its result came from the cache.
    Cached,
    /// A person declared it done.
    Declared,
    /// It ended the run.
    Return,
    /// It assigned state and chose an edge.
    Gate,
    /// All items are done.
    Foreach,
    /// All branches are done.
    Parallel,
    /// The wait is over.
    Wait,
    /// A person approved.
    Approval,
    /// Its process is ready.
    Service,
    /// The run comes here next.
    Pending,
    /// The run ended while it was here.
    Interrupted,
}

impl NodeStatus {
    pub const fn as_str(self) -> &'static str {
        self.into_str()
    }

    pub fn parse(word: &str) -> Option<Self> {
        word.parse().ok()
    }

    /// Returns its symbol, for people.
    pub const fn icon(self) -> &'static str {
        match self {
            Self::Ok
            | Self::Cached
            | Self::Declared
            | Self::Gate
            | Self::Foreach
            | Self::Parallel
            | Self::Wait
            | Self::Approval
            | Self::Service => "✓",
            Self::Error => "✗",
            Self::Running => "…",
            Self::Return => "⏹",
            Self::Pending => "·",
            Self::Interrupted => "⊘",
        }
    }

    /// Returns fill and border, as both diagram forms write colours.
    const fn colours(self) -> (&'static str, &'static str) {
        match self {
            Self::Ok
            | Self::Gate
            | Self::Foreach
            | Self::Parallel
            | Self::Wait
            | Self::Approval
            | Self::Service
            | Self::Declared => ("#d7f5dd", "#2da44e"),
            Self::Error => ("#ffd8d3", "#cf222e"),
            Self::Running => ("#fff3c4", "#bf8700"),
            Self::Cached => ("#e6dcfa", "#8250df"),
            Self::Return => ("#d6e9ff", "#0969da"),
            Self::Pending => ("#f3f4f6", "#8c959f"),
            Self::Interrupted => ("#ffe7d1", "#bc4c00"),
        }
    }
}

/// Draws `graph`, which has this id; `overlay` gives the progress of a run by node name.
pub fn render(
    graph: &Graph,
    id: &ItemId,
    format: Format,
    overlay: &BTreeMap<String, NodeState>,
) -> String {
    let title = format!("{id} {}", graph.version);
    match format {
        Format::Mermaid => mermaid::render(graph, overlay),
        Format::Dot => dot::render(graph, &title, overlay),
        Format::Text => text::render(graph, &title, overlay),
    }
}

/// A way out of a node.
struct Way<'g> {
    /// `None` leads to the end of the graph.
    to: Option<&'g str>,
    label: Option<Cow<'g, str>>,
    on_error: bool,
}

/// Returns all ways out of a node, in the order in which they are checked, the error edge last.
fn ways(node: &Node) -> Vec<Way<'_>> {
    let mut ways = Vec::new();
    let mut push = |to, label| {
        ways.push(Way {
            to,
            label,
            on_error: false,
        });
    };
    match &node.next {
        Next::End if matches!(node.work, Work::Return { .. } | Work::Fail(_)) => {}
        Next::End => push(None, None),
        Next::Always(to) => push(Some(to), None),
        Next::Edges(edges) => {
            for Edge { to, when } in edges {
                let label = match when {
                    Some(when) => shorten(&when.to_string()).into(),
                    None => "default".into(),
                };
                push(Some(to), Some(label));
            }
            if !edges.iter().any(Edge::always) {
                push(None, (!edges.is_empty()).then_some("default".into()));
            }
        }
    }
    ways.extend(node.on_error.as_deref().map(|to| Way {
        to: Some(to),
        label: Some("on error".into()),
        on_error: true,
    }));
    ways
}

/// Returns the edges of a drawing: index of the node, its way out, and the name of the target in the drawing. A way to
/// an unknown node is left out.
fn edges(graph: &Graph) -> impl Iterator<Item = (usize, Way<'_>, String)> {
    graph
        .nodes
        .iter()
        .enumerate()
        .flat_map(move |(from, node)| {
            ways(node).into_iter().filter_map(move |way| {
                let to = match way.to {
                    Some(to) => format!("n{}", graph.nodes.index(to)?),
                    None => END.to_owned(),
                };
                Some((from, way, to))
            })
        })
}

/// True if a way of the graph leads to its end without a return node.
fn has_open_end(graph: &Graph) -> bool {
    let mut nodes = graph.nodes.iter();
    nodes.any(|node| ways(node).iter().any(|way| way.to.is_none()))
}

/// Describes the work of a node in a few words.
fn work(node: &Node) -> String {
    match &node.work {
        Work::Action(action) => action.id.clone(),
        Work::Foreach(foreach) => {
            let over = shorten(&text_of(&foreach.over));
            format!(
                "for each {} in {over}: {}",
                foreach.variable, foreach.action.id
            )
        }
        Work::Gate => "gate".to_owned(),
        Work::Return { .. } => "return".to_owned(),
        Work::Fail(fail) => format!("fail: {}", shorten(&text_of(&fail.message))),
        Work::Wait(Pause::For(time)) => format!("wait for {}", shorten(&text_of(time))),
        Work::Wait(Pause::Until(time)) => format!("wait until {}", shorten(&text_of(time))),
        Work::Approval(ask) => format!("approval: {}", shorten(&text_of(&ask.message))),
        Work::Service(action) => {
            let command = action.params.get("command").map(text_of);
            format!("service: {}", shorten(&command.unwrap_or_default()))
        }
        Work::ProcessWait(action) => {
            let param = |name: &str| action.params.get(name).map(text_of).unwrap_or_default();
            let what = match &*param("for") {
                "line" => format!("the line {}", param("pattern")),
                "exit" => "the end".to_owned(),
                ready => ready.to_owned(),
            };
            shorten(&format!("wait for {what} of {}", param("handle_id")))
        }
        Work::Parallel(parallel) => {
            let branches = parallel.branches.iter();
            let branches: Vec<String> = branches
                .map(|(name, action)| format!("{name}: {}", action.id))
                .collect();
            shorten(&format!("parallel {}", branches.join(", ")))
        }
    }
}

/// True if the shape of a node does not express all of its work.
const fn needs_description(work: &Work) -> bool {
    !matches!(work, Work::Gate | Work::Return { .. })
}

/// `✓ 1.2s ×3 (cached)`, `! 1.2s (2 failed)`.
fn status_label(state: NodeState) -> String {
    let partly = state.failed > 0 && state.status != NodeStatus::Error;
    let icon = if partly { "!" } else { state.status.icon() };
    let mut words = vec![icon.to_owned()];
    let tenths = state.elapsed_ms.saturating_add(50) / 100;
    if tenths > 0 {
        words.push(format!("{}.{}s", tenths / 10, tenths % 10));
    }
    if state.visits > 1 {
        words.push(format!("×{}", state.visits));
    }
    if state.status == NodeStatus::Cached {
        words.push("(cached)".to_owned());
    }
    if state.failed > 0 {
        words.push(format!("({} failed)", state.failed));
    }
    words.join(" ")
}

/// Describes the action of a hook in a few words.
fn hook(hook: &Hook) -> String {
    let does = match &hook.action {
        HookAction::Call(action) => action.id.clone(),
        HookAction::Control(template) => {
            let answer = template.get("action").and_then(serde_json::Value::as_str);
            let most = template.get("max_retries").filter(|most| !most.is_null());
            match (answer, most) {
                (Some(answer), Some(most)) => format!("{answer}, at most {most} times"),
                (Some(answer), None) => answer.to_owned(),
                (None, _) => "control".to_owned(),
            }
        }
    };
    match &hook.condition {
        Some(condition) => format!("{does} if {}", shorten(&condition.to_string())),
        None => does,
    }
}

fn shorten(text: &str) -> String {
    match text.char_indices().nth(MAX_LABEL) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Prepares text for a terminal or a file of lines.
fn plain(text: &str) -> String {
    printable::in_line(text, HIDDEN)
}
