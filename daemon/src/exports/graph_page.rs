//! Page about a graph run for people: its nodes and its history, as a pure function of its events.
//!
//! The cost of rendering is bounded: only the last [`HISTORY`] entries of the history are kept, each as its rendered
//! text. **Never** lets a text of the run act as markup: names and messages are escaped for Markdown and HTML.

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::fmt::Write as _;
use std::sync::Arc;

use rye_core::clock::Timestamp;
use rye_core::definition::{self, Work};
use rye_core::id::{RunId, Seq};
use rye_core::model::graph::Waits;
use rye_core::model::{Event, GraphEvent, RunEvent, Spec, Status, StepStatus};
use rye_core::printable;
use rye_host::cache::{self, Cache};
use serde_json::json;

use super::receipts::{SYSTEM_VERSION, StepArtifacts};

/// Maximum number of history entries.
const HISTORY: usize = 200;
/// Maximum length in characters of a text of the run.
const TEXT: usize = 300;
/// Capacity of the cache of outlines.
const OUTLINES: usize = 64;

/// A node as declared in its graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Outline {
    name: String,
    action: String,
}

/// Nodes of graphs, by content hash: parsing a graph costs more than most of its runs.
#[derive(Debug)]
pub(super) struct Outlines(Cache<String, Vec<Outline>>);

impl Default for Outlines {
    fn default() -> Self {
        Self(cache::of_count(OUTLINES))
    }
}

impl Outlines {
    /// Nodes of the graph of a run as created, in the order of the file.
    pub(super) fn of(&self, spec: &Spec) -> Arc<Vec<Outline>> {
        let outline = || Ok::<_, Infallible>(Arc::new(outline(spec)));
        let Ok(outline) = self.0.get_or_insert_with(&spec.content_hash, outline);
        outline
    }
}

fn outline(spec: &Spec) -> Vec<Outline> {
    let graph = spec
        .graph()
        .and_then(|source| definition::parse(&source.text).ok());
    let nodes = graph.iter().flat_map(|(graph, _)| &graph.nodes);
    nodes
        .map(|node| Outline {
            name: node.name.clone(),
            action: match &node.work {
                Work::Action(action) => action.id.clone(),
                Work::Foreach(foreach) => format!("foreach {}", foreach.action.id),
                Work::Gate => "gate".to_owned(),
                Work::Return { .. } => "return".to_owned(),
                Work::Fail(_) => "fail".to_owned(),
                Work::Wait(_) | Work::ProcessWait(_) => "wait".to_owned(),
                Work::Service(_) => "service".to_owned(),
                Work::Approval(_) => "approval".to_owned(),
                Work::Parallel(parallel) => {
                    let branches = parallel.branches.iter();
                    let branches: Vec<&str> =
                        branches.map(|(_, action)| action.id.as_str()).collect();
                    format!("parallel {}", branches.join(", "))
                }
            },
        })
        .collect()
}

/// State of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum VisitState {
    Pending,
    Running,
    Done,
    Failed,
    /// The run ended during the visit.
    Interrupted,
}

impl VisitState {
    const fn icon(self) -> &'static str {
        match self {
            Self::Pending => "⏳",
            Self::Running => "🔄",
            Self::Done => "✅",
            Self::Failed => "❌",
            Self::Interrupted => "⛔",
        }
    }
}

/// Table row of a node, about its last visit.
#[derive(Debug)]
struct Row {
    name: String,
    action: String,
    state: VisitState,
    visits: u32,
    elapsed_ms: Option<u64>,
    details: Vec<String>,
}

#[derive(Debug)]
pub(super) struct Page {
    run: RunId,
    graph: String,
    version: String,
    rows: Vec<Row>,
    by_name: HashMap<String, usize>,
    history: VecDeque<String>,
    /// Number of dropped history entries.
    earlier: u64,
    /// Step of the last heading in the history.
    heading: u32,
    status: String,
    /// Current step.
    step: u32,
    /// Last step that ended.
    steps: u32,
    began: Timestamp,
    updated_at: Timestamp,
    seq: Seq,
}

impl Page {
    /// Initial page of a run, from its spec only.
    pub(super) fn new(run: &RunId, spec: &Spec, outline: &[Outline]) -> Self {
        let graph = spec.graph();
        let mut page = Self {
            run: run.clone(),
            graph: spec.item.id.to_string(),
            version: graph.map_or_else(String::new, |graph| graph.version.clone()),
            rows: Vec::with_capacity(outline.len()),
            by_name: HashMap::with_capacity(outline.len()),
            history: VecDeque::new(),
            earlier: 0,
            heading: 0,
            status: Status::Created.as_str().to_owned(),
            step: 0,
            steps: spec.start_from().map_or(0, |start| start.state.steps),
            began: Timestamp::default(),
            updated_at: Timestamp::default(),
            seq: Seq::default(),
        };
        for node in outline {
            page.row(&node.name).action.clone_from(&node.action);
        }
        page
    }

    /// Time of the last event.
    pub(super) const fn updated_at(&self) -> Timestamp {
        self.updated_at
    }

    /// Row of a node; one that the graph does not declare is appended.
    fn row(&mut self, name: &str) -> &mut Row {
        let next = self.rows.len();
        let at = *self.by_name.entry(name.to_owned()).or_insert(next);
        if at == next {
            self.rows.push(Row {
                name: name.to_owned(),
                action: String::new(),
                state: VisitState::Pending,
                visits: 0,
                elapsed_ms: None,
                details: Vec::new(),
            });
        }
        &mut self.rows[at]
    }

    /// Applies one event with the objects it produced.
    pub(super) fn take(
        &mut self,
        seq: Seq,
        at: Timestamp,
        event: &Event,
        left: Option<&StepArtifacts>,
    ) {
        self.seq = seq;
        self.updated_at = at;
        self.note_node(event, left);
        self.note_run(at, event);
        self.add_to_history(at, event);
    }

    /// Updates the row of a node.
    fn note_node(&mut self, event: &Event, left: Option<&StepArtifacts>) {
        if let Event::Run(RunEvent::StepStarted(started)) = event {
            self.step = started.step;
            let row = self.row(&started.node);
            row.state = VisitState::Running;
            row.elapsed_ms = None;
            let items = started.items.map(|items| format!("{items} items"));
            let child = started.child.as_ref();
            let child = child.map(|child| format!("run {}", plain(child.as_str())));
            row.details = items.into_iter().chain(child).collect();
        }
        if let Event::Graph(GraphEvent::StepCompleted(completed)) = event {
            self.step = completed.step;
            self.steps = completed.step;
            let row = self.row(&completed.node);
            if !matches!(completed.status, StepStatus::Foreach | StepStatus::Parallel) {
                row.details.retain(|detail| detail.starts_with("run "));
            }
            row.state = if completed.status == StepStatus::Error {
                VisitState::Failed
            } else {
                VisitState::Done
            };
            row.visits += 1;
            row.elapsed_ms = Some(completed.elapsed_ms);
            let cached = completed.cache_hit.then(|| "cached".to_owned());
            row.details.extend(cached);
            if let Some(left) = left.filter(|left| !left.node_input_hash.is_empty()) {
                let (input, result) = (short(&left.node_input_hash), short(&left.result.hash));
                row.details.push(format!("in `{input}`, out `{result}`"));
            }
        }
        if let Event::Graph(GraphEvent::StepWaiting(waiting)) = event {
            self.step = waiting.step;
            let row = self.row(&waiting.node);
            row.state = VisitState::Running;
            row.elapsed_ms = None;
            row.details.clear();
        }
        if let Event::Graph(GraphEvent::StepFailed(failed)) = event {
            self.row(&failed.node).state = VisitState::Failed;
        }
        if let Event::Graph(GraphEvent::RetryScheduled(retry)) = event
            && retry.item.is_none()
        {
            self.row(&retry.node).state = VisitState::Running;
        }
    }

    /// Updates the state of the run.
    fn note_run(&mut self, at: Timestamp, event: &Event) {
        if let Some(outcome) = event.outcome() {
            outcome.status().as_str().clone_into(&mut self.status);
            // The step in flight was not completed.
            self.step = self.steps;
            for row in &mut self.rows {
                if row.state == VisitState::Running {
                    row.state = VisitState::Interrupted;
                    row.visits += 1;
                }
            }
        }
        if let Event::Run(RunEvent::RunCreated(_)) = event {
            self.began = at;
        }
        if let Event::Run(RunEvent::RunStarted(_) | RunEvent::RunResumed(_)) = event {
            Status::Running.as_str().clone_into(&mut self.status);
        }
        if let Event::Run(RunEvent::RunSuspended(why)) = event {
            self.status = format!("{} ({})", Status::Suspended.as_str(), why.reason.as_str());
        }
    }

    /// Adds the entry of the event to the history.
    fn add_to_history(&mut self, at: Timestamp, event: &Event) {
        if let Event::Run(RunEvent::StepStarted(started)) = event {
            let again = match started.attempt {
                1 => String::new(),
                more => format!(" (try {more})"),
            };
            let (node, action) = (plain(&started.node), plain(&started.action_id));
            self.head(started.step, &format!("{node} → {action}{again}"));
        }
        if let Event::Graph(GraphEvent::StepCompleted(completed)) = event
            && completed.step != self.heading
        {
            self.head(completed.step, &plain(&completed.node));
        }
        if let Some(text) = entry(event) {
            let printed = printed(event);
            self.push(format!("- {at} {text}{printed}"));
        }
    }

    fn head(&mut self, step: u32, text: &str) {
        self.heading = step;
        self.push(format!("### Step {step} – {text}"));
    }

    fn push(&mut self, entry: String) {
        if self.history.len() == HISTORY {
            self.history.pop_front();
            self.earlier += 1;
        }
        self.history.push_back(entry);
    }

    /// Renders the unsigned page. `receipts` is the number of receipts.
    pub(super) fn render(&self, receipts: usize) -> String {
        let elapsed = duration(self.updated_at.ms_since(self.began));
        let mut out = String::with_capacity(4096);
        let mut put = |args: std::fmt::Arguments<'_>| {
            out.write_fmt(args)
                .expect("writing to a String cannot fail");
        };
        put(format_args!("{}", self.front(&elapsed)));
        let (graph, run) = (plain(&self.graph), plain(self.run.as_str()));
        put(format_args!(
            "# {graph}\n\nRun {run}\n\n**Status:** {} | **Step:** {} | **Elapsed:** {elapsed}\n\n",
            self.status, self.step
        ));
        put(format_args!(
            "| # | Node | Status | Visits | Duration | Action | Details |\n| --- | --- | --- | --- | --- | --- | --- |\n"
        ));
        for (row, number) in self.rows.iter().zip(1..) {
            put(format_args!(
                "| {number} | {} | {} | {} | {} | {} | {} |\n",
                plain(&row.name),
                row.state.icon(),
                row.visits,
                row.elapsed_ms.map(duration).unwrap_or_default(),
                plain(&row.action),
                row.details.join(", ")
            ));
        }
        put(format_args!("\n## Events\n\n"));
        if self.earlier > 0 {
            put(format_args!(
                "{} earlier entries are left out; all events are in `.ai/state/threads/{}/transcript.jsonl`.\n\n",
                self.earlier, self.run
            ));
        }
        for entry in &self.history {
            let gap = if entry.starts_with("###") { "\n" } else { "" };
            put(format_args!("{gap}{entry}\n"));
        }
        put(format_args!(
            "\n---\n\n**{}** | Steps: {} | Duration: {elapsed} | {}\n\nryed {SYSTEM_VERSION} | receipts: {receipts}\n",
            self.status, self.steps, self.updated_at
        ));
        out
    }

    /// Front matter; values are written as JSON, which is YAML, so a text cannot break out of its line.
    fn front(&self, elapsed: &str) -> String {
        let name = self.graph.rsplit('/').next().unwrap_or_default();
        let fields = [
            (
                "id",
                json!(format!("agent/threads/{}/{}", self.graph, self.run)),
            ),
            ("name", json!(self.run)),
            ("title", json!(format!("Graph: {}", self.graph))),
            ("entry_type", json!("graph_transcript")),
            ("category", json!(format!("agent/threads/{}", self.graph))),
            ("version", json!(self.version)),
            ("author", json!("rye")),
            ("created_at", json!(self.began.to_string())),
            ("updated_at", json!(self.updated_at.to_string())),
            ("graph_id", json!(self.graph)),
            ("graph_run_id", json!(self.run)),
            ("status", json!(self.status)),
            ("step_count", json!(self.steps)),
            ("seq", json!(self.seq)),
            ("duration", json!(elapsed)),
            ("tags", json!(["graph", name])),
        ];
        let mut lines = String::from("```yaml\n");
        for (key, value) in fields {
            writeln!(lines, "{key}: {value}").expect("writing to a String cannot fail");
        }
        lines.push_str("```\n\n");
        lines
    }
}

/// Last output of a failed step's process, as a quotation below its entry.
fn printed(event: &Event) -> String {
    let Event::Graph(GraphEvent::StepFailed(failed)) = event else {
        return String::new();
    };
    let lines = failed.error.printed.iter().flat_map(|end| end.lines());
    let lines = lines.map(|line| format!("\n  > {}  ", plain(line.trim())));
    lines.collect()
}

/// History entry of an event, if it has one.
fn entry(event: &Event) -> Option<String> {
    if let Event::Run(event) = event {
        entry_of_run(event)
    } else if let Event::Graph(event) = event {
        entry_of_graph(event)
    } else {
        None
    }
}

/// The same for an event that every kind of run has.
pub(super) fn entry_of_run(event: &RunEvent) -> Option<String> {
    Some(match event {
        RunEvent::RunStarted(_) => "the daemon starts the run".to_owned(),
        RunEvent::HookCompleted(done) => {
            let (hook, event) = (plain(&done.hook), &done.event);
            match &done.error {
                Some(error) => format!("hook {hook} ({event}) failed: {}", plain(&error.message)),
                None => format!("hook {hook} answered ({event})"),
            }
        }
        RunEvent::UncertainAnswered(answer) => {
            let (slot, verdict) = (answer.slot, answer.verdict.as_str());
            format!("{slot} declared `{verdict}` by {}", plain(&answer.by))
        }
        RunEvent::Emitted(emitted) => format!("event {}", plain(&emitted.name)),
        RunEvent::ItemSigned(signed) => format!("signed {}", plain(&signed.item)),
        RunEvent::Warning(warning) => {
            let message = plain(&warning.message);
            match &warning.node {
                Some(node) => format!("warning at {}: {message}", plain(node)),
                None => format!("warning: {message}"),
            }
        }
        RunEvent::BudgetSettled(settled) => {
            let about = if settled.estimated { "about " } else { "" };
            format!("a call cost {about}{} USD", settled.usage.money)
        }
        RunEvent::BudgetRaised(raised) => {
            format!("limit raised to {} USD by {}", raised.to, plain(&raised.by))
        }
        RunEvent::ApprovalRequested(asked) => format!("asks: {}", plain(&asked.message)),
        RunEvent::ApprovalAnswered(answer) => {
            let word = if answer.approved {
                "approved"
            } else {
                "denied"
            };
            let comment = answer.comment.as_ref();
            let comment = comment.map_or_else(String::new, |text| format!(": {}", plain(text)));
            format!("{word} by {}{comment}", plain(&answer.by))
        }
        RunEvent::ApprovalExpired(_) => "no one answered in time".to_owned(),
        RunEvent::ApprovalInvalidated(_) => "the call has changed since the question".to_owned(),
        RunEvent::CancelRequested(asked) => format!("asked to stop by {}", plain(&asked.cause)),
        RunEvent::KillRequested(kill) => format!("to be killed by {}", plain(&kill.by)),
        RunEvent::RunSuspended(why) => format!("suspended: {}", why.reason.as_str()),
        RunEvent::RunResumed(_) => "resumed".to_owned(),
        RunEvent::RunKilled(killed) => format!("killed by {}", plain(&killed.cause)),
        RunEvent::ChildStarted(started) => {
            let what = if started.is_server {
                "MCP server"
            } else {
                "process"
            };
            format!("started the {what} {}", plain(&started.name))
        }
        RunEvent::RunCreated(_)
        | RunEvent::StepStarted(_)
        | RunEvent::ProcessStarted(_)
        | RunEvent::ProcessExited(_)
        | RunEvent::CallbackStarted(_)
        | RunEvent::CallbackEnded(_)
        | RunEvent::ToolCallProgress(_)
        | RunEvent::HooksBegun(_)
        | RunEvent::BudgetHeld(_)
        | RunEvent::HookStarted(_) => return None,
    })
}

fn entry_of_graph(event: &GraphEvent) -> Option<String> {
    Some(match event {
        GraphEvent::GraphStarted(started) => format!("started at {}", plain(&started.start_node)),
        GraphEvent::StepFailed(failed) => format!("❌ failed: {}", plain(&failed.error.message)),
        GraphEvent::RetryScheduled(retry) => {
            let (attempt, due, by) = (retry.attempt, retry.due, plain(&retry.by));
            let failed = retry.item.zip(retry.error.as_ref()).map(|(item, error)| {
                let (node, message) = (plain(&retry.node), plain(&error.message));
                format!("{node}[{item}] ❌ {message}; ")
            });
            let failed = failed.unwrap_or_default();
            format!("{failed}try {attempt} not before {due}, asked by {by}")
        }
        GraphEvent::ItemCompleted(done) => {
            let (node, item) = (plain(&done.node), done.item);
            match &done.error {
                Some(error) => format!("{node}[{item}] ❌ {}", plain(&error.message)),
                None => format!("{node}[{item}] {}", done.status.as_str()),
            }
        }
        GraphEvent::ForeachCompleted(end) => format!("{} items, {} failed", end.items, end.failed),
        GraphEvent::ParallelCompleted(end) => {
            format!("{} branches, {} failed", end.branches, end.failed)
        }
        GraphEvent::StepWaiting(waiting) => match &waiting.waits {
            Waits::Until { at, .. } => format!("waits until {at}"),
            Waits::Answer => "waits for an answer".to_owned(),
        },
        GraphEvent::ServiceStarted(started) => {
            format!("{} is the process {}", plain(&started.node), started.handle)
        }
        GraphEvent::LimitExtended(extended) => {
            let (most, by) = (extended.max_steps, plain(&extended.by));
            format!("the limit is {most} steps now, by {by}")
        }
        GraphEvent::StepCompleted(done) => {
            let onward = done.next_node.as_ref();
            let onward = onward.map_or_else(String::new, |node| format!(" → {}", plain(node)));
            let elapsed = duration(done.elapsed_ms);
            match &done.error {
                Some(error) => format!(
                    "❌ error after {elapsed}: {}{onward}",
                    plain(&error.message)
                ),
                None => format!("✅ {} after {elapsed}{onward}", done.status.as_str()),
            }
        }
        GraphEvent::GraphCompleted(end) => end.status.as_str().to_owned(),
        GraphEvent::GraphError(end) => format!("❌ error: {}", plain(&end.error.message)),
        GraphEvent::GraphCancelled(end) => format!("cancelled by {}", plain(&end.cause)),
        GraphEvent::ItemStarted(_) | GraphEvent::ProcessWaited(_) | GraphEvent::GraphEnding(_) => {
            return None;
        }
    })
}

/// The first 16 digits of a hash.
fn short(hash: &str) -> &str {
    hash.get(..16).unwrap_or(hash)
}

/// `850ms`, `1.2s`, `2m 03s`.
pub(super) fn duration(ms: u64) -> String {
    let seconds = ms / 1000;
    match ms {
        0..1000 => format!("{ms}ms"),
        1000..60_000 => format!("{seconds}.{}s", ms % 1000 / 100),
        _ => format!("{}m {:02}s", seconds / 60, seconds % 60),
    }
}

/// Escapes a text of the run to one line of plain text: no markup, no table cell, no HTML.
pub(super) fn plain(text: &str) -> String {
    let begin: String = text.chars().take(TEXT + 1).collect();
    let seen = printable::in_line(&begin, ' ');
    let mut out = String::with_capacity(seen.len());
    let mut before = ' ';
    let mut rest = seen.chars().peekable();
    for _ in 0..TEXT {
        let Some(c) = rest.next() else {
            return out;
        };
        let inner = before.is_alphanumeric() && rest.peek().is_some_and(|c| c.is_alphanumeric());
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            // Inside a word it is not markup.
            '_' if inner => out.push(c),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '~' | '#' | '!' | '$' => {
                out.push('\\');
                out.push(c);
            }
            c => out.push(c),
        }
        before = c;
    }
    if rest.peek().is_some() {
        out.push('…');
    }
    out
}

#[cfg(test)]
mod tests;
