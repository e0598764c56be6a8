//! Page about a thread for people: its messages and tool calls turn by turn, as a pure function of its events.
//!
//! The cost of rendering is bounded: besides the prompt, only the last [`KEPT`] bytes are kept, each section as its
//! rendered text. **Never** lets a text of the run act as markup: messages are quoted line by line, and inputs and
//! outputs of tools are in fences that they cannot close.

use std::collections::{HashMap, VecDeque};
use std::fmt::Write as _;

use rye_core::clock::Timestamp;
use rye_core::conversation::Source;
use rye_core::error::beginning;
use rye_core::id::{RunId, Seq};
use rye_core::ledger::Usage;
use rye_core::model::{Event, RunEvent, Spec, Status, ThreadEvent};
use rye_core::money::Usd;
use rye_core::printable;
use serde_json::{Value, json};

use super::graph_page::{duration, entry_of_run, plain};

/// Maximum size in bytes of the sections after the prompt.
const KEPT: usize = 512 << 10;
/// Maximum length in characters of a message.
const MAX_MESSAGE_CHARS: usize = 20_000;
/// Maximum length in characters of a tool's input, and of its output.
const MAX_TOOL_CHARS: usize = 2000;

#[derive(Debug)]
pub(super) struct ThreadPage {
    run: RunId,
    directive: String,
    permissions: Vec<String>,
    model: String,
    status: String,
    turns: u32,
    input: u64,
    output: u64,
    spend: Usd,
    began: Timestamp,
    updated_at: Timestamp,
    seq: Seq,
    /// Sections before the first turn.
    prompt: String,
    /// True once the first turn has begun.
    has_begun: bool,
    sections: VecDeque<String>,
    bytes: usize,
    /// Number of dropped sections.
    earlier: u64,
    /// Sections about calls that began before their message was complete. The message must precede them.
    early_sections: Option<Vec<String>>,
    /// Items of the calls in flight, by call id.
    calls: HashMap<String, String>,
}

impl ThreadPage {
    /// Initial page of a thread, from its spec only.
    pub(super) fn new(run: &RunId, spec: &Spec) -> Self {
        let own = spec.layers.last();
        Self {
            run: run.clone(),
            directive: spec.item.id.to_string(),
            permissions: own.map_or_else(Vec::new, |layer| layer.patterns.clone()),
            model: String::new(),
            status: Status::Created.as_str().to_owned(),
            turns: 0,
            input: 0,
            output: 0,
            spend: Usd::ZERO,
            began: Timestamp::default(),
            updated_at: Timestamp::default(),
            seq: Seq::default(),
            prompt: String::new(),
            has_begun: false,
            sections: VecDeque::new(),
            bytes: 0,
            earlier: 0,
            early_sections: None,
            calls: HashMap::new(),
        }
    }

    /// Time of the last event.
    pub(super) const fn updated_at(&self) -> Timestamp {
        self.updated_at
    }

    /// Applies one event.
    pub(super) fn take(&mut self, seq: Seq, at: Timestamp, event: &Event) {
        self.seq = seq;
        self.updated_at = at;
        if let Some(outcome) = event.outcome() {
            outcome.status().as_str().clone_into(&mut self.status);
        }
        if let Event::Run(event) = event {
            self.note_run(at, event);
        }
        if let Event::Thread(event) = event {
            self.note_thread(at, event);
        }
    }

    fn note_run(&mut self, at: Timestamp, event: &RunEvent) {
        if let RunEvent::RunCreated(_) = event {
            self.began = at;
        }
        if let RunEvent::RunStarted(_) | RunEvent::RunResumed(_) = event {
            Status::Running.as_str().clone_into(&mut self.status);
        }
        if let RunEvent::RunSuspended(why) = event {
            self.status = format!("{} ({})", Status::Suspended.as_str(), why.reason.as_str());
        }
        if let RunEvent::BudgetSettled(settled) = event {
            self.count(&settled.usage);
            return;
        }
        if let Some(entry) = entry_of_run(event) {
            self.push(format!("- {at} {entry}\n"));
        }
    }

    fn count(&mut self, usage: &Usage) {
        self.input = self.input.saturating_add(usage.input);
        self.output = self.output.saturating_add(usage.output);
        self.spend = self.spend.checked_add(usage.money).unwrap_or(self.spend);
    }

    fn note_thread(&mut self, at: Timestamp, event: &ThreadEvent) {
        match event {
            ThreadEvent::ThreadStarted(started) => {
                self.model = format!("{}/{}", started.provider, started.model);
            }
            ThreadEvent::SystemPrompt(prompt) => {
                self.push(format!("## System Prompt\n\n{}", quoted(&prompt.text)));
            }
            ThreadEvent::CognitionIn(received) => {
                self.add_input(received.turn, received.source, &received.text);
            }
            ThreadEvent::StepStart(_) => {
                self.has_begun = true;
                self.early_sections = Some(Vec::new());
            }
            ThreadEvent::CognitionReasoning(thought) => {
                self.keep(format!("> *Reasoning*\n>\n{}", quoted(&thought.text)));
            }
            ThreadEvent::CognitionOut(said) => {
                if !said.text.trim().is_empty() {
                    let (turn, text) = (said.turn, quoted(&said.text));
                    self.keep(format!("### Response — Turn {turn}\n\n{text}"));
                }
                self.settle();
            }
            ThreadEvent::ToolCallStart(call) => {
                let input = Value::Object((*call.input).clone());
                let input = serde_json::to_string_pretty(&input).unwrap_or_default();
                let section = format!(
                    "### Tool: {}\n\n{}",
                    plain(&call.item),
                    fenced("json", &input)
                );
                self.calls.insert(call.call_id.clone(), plain(&call.item));
                self.push(section);
            }
            ThreadEvent::ToolCallResult(result) => {
                let item = self.calls.remove(&result.call_id);
                let head = if result.is_error { "Error" } else { "Result" };
                let item = item.map_or_else(String::new, |item| format!(": {item}"));
                let output = fenced("", &result.output);
                self.push(format!("### {head}{item}\n\n{output}"));
            }
            ThreadEvent::StepFinish(finish) => {
                self.turns = finish.turn;
                self.settle();
            }
            ThreadEvent::ErrorClassified(failed) => {
                self.settle();
                let (turn, why) = (failed.turn, plain(&failed.error.message));
                self.push(format!(
                    "- {at} the call of the model failed in turn {turn}: {why}\n"
                ));
            }
            ThreadEvent::ContextReseeded(reseeded) => self.push(format!(
                "- {at} the conversation is sent again without reasoning, for turn {}\n",
                reseeded.turn
            )),
            ThreadEvent::DirectiveReturn(returned) => {
                let outputs = Value::Object(returned.outputs.clone());
                let outputs = serde_json::to_string_pretty(&outputs).unwrap_or_default();
                self.push(format!("### Outputs\n\n{}", fenced("json", &outputs)));
            }
            ThreadEvent::ThreadError(end) => {
                self.settle();
                self.push(format!("- {at} ❌ error: {}\n", plain(&end.error.message)));
            }
            ThreadEvent::ThreadCancelled(end) => {
                self.settle();
                self.push(format!("- {at} cancelled by {}\n", plain(&end.cause)));
            }
            ThreadEvent::PromptComposed(_)
            | ThreadEvent::MessageQueued(_)
            | ThreadEvent::TurnRetryScheduled(_)
            | ThreadEvent::TurnWaiting(_)
            | ThreadEvent::RetrySucceeded(_)
            | ThreadEvent::LimitEscalationRequested(_)
            | ThreadEvent::ThreadCompleted(_) => {}
        }
    }

    fn add_input(&mut self, turn: u32, source: Source, text: &str) {
        let from = match source {
            Source::Tools => return,
            Source::Directive => "",
            Source::Message => " (message)",
            Source::Nudge => " (reminder)",
            Source::Hook => " (hook)",
            Source::Summary => " (summary)",
            Source::Continuation => " (continuation)",
        };
        self.push(format!("## Input — Turn {turn}{from}\n\n{}", quoted(text)));
    }

    /// Adds a section; one about a call waits until the message that contains the call is complete.
    fn push(&mut self, section: String) {
        match &mut self.early_sections {
            Some(ahead) => ahead.push(section),
            None => self.keep(section),
        }
    }

    /// Adds the waiting sections after the message.
    fn settle(&mut self) {
        for section in self.early_sections.take().into_iter().flatten() {
            self.keep(section);
        }
    }

    fn keep(&mut self, section: String) {
        if !self.has_begun {
            self.prompt.push_str(&section);
            self.prompt.push('\n');
            return;
        }
        self.bytes += section.len();
        self.sections.push_back(section);
        while self.bytes > KEPT {
            let Some(dropped) = self.sections.pop_front() else {
                return;
            };
            self.bytes -= dropped.len();
            self.earlier += 1;
        }
    }

    pub(super) fn render(&self) -> String {
        let elapsed = duration(self.updated_at.ms_since(self.began));
        let mut out = String::with_capacity(4096 + self.prompt.len() + self.bytes);
        out.push_str(&self.front(&elapsed));
        let mut put = |args: std::fmt::Arguments<'_>| {
            out.write_fmt(args)
                .expect("writing to a String cannot fail");
        };
        put(format_args!(
            "# {}\n\n{}",
            plain(&self.directive),
            self.prompt
        ));
        if self.earlier > 0 {
            put(format_args!(
                "{} earlier sections are left out; all events are in `.ai/state/threads/{}/transcript.jsonl`.\n\n",
                self.earlier, self.run
            ));
        }
        for section in self
            .sections
            .iter()
            .chain(self.early_sections.iter().flatten())
        {
            put(format_args!("{section}\n"));
        }
        put(format_args!(
            "---\n\n**{}** | Turns: {} | Tokens: {} | {} USD | Duration: {elapsed}\n",
            self.status,
            self.turns,
            self.input.saturating_add(self.output),
            self.spend
        ));
        out
    }

    /// Front matter; values are written as JSON, which is YAML, so a text cannot break out of its line.
    fn front(&self, elapsed: &str) -> String {
        let title = self.directive.rsplit('/').next().unwrap_or_default();
        let place = format!("agent/threads/{}", self.directive);
        let seconds = self.updated_at.ms_since(self.began) / 1000;
        let fields = [
            ("id", json!(format!("{place}/{}", self.run))),
            ("name", json!(self.run)),
            ("title", json!(title)),
            ("entry_type", json!("thread_transcript")),
            ("category", json!(place)),
            ("version", json!("1.0.0")),
            ("author", json!("rye")),
            ("created_at", json!(self.began.to_string())),
            ("updated_at", json!(self.updated_at.to_string())),
            ("thread_id", json!(self.run)),
            ("directive", json!(self.directive)),
            ("status", json!(self.status)),
            ("model", json!(self.model)),
            ("duration", json!(elapsed)),
            ("elapsed_seconds", json!(seconds)),
            ("turns", json!(self.turns)),
            ("input_tokens", json!(self.input)),
            ("output_tokens", json!(self.output)),
            ("spend", json!(self.spend)),
            ("permissions", json!(self.permissions)),
            ("seq", json!(self.seq)),
            ("tags", json!(["thread", self.status])),
        ];
        let mut lines = String::from("```yaml\n");
        for (key, value) in fields {
            writeln!(lines, "{key}: {value}").expect("writing to a String cannot fail");
        }
        lines.push_str("```\n\n");
        lines
    }
}

/// The beginning of a text, without invisible characters.
fn shown(text: &str, most: usize) -> String {
    let text = beginning(text.trim_end(), most);
    printable::replace_invisible(&text, &['\n'], |_, out| out.push(' '))
}

/// Renders a text as a quotation; consecutive blank lines become one.
fn quoted(text: &str) -> String {
    let mut out = String::new();
    let mut was_blank = true;
    for line in shown(text, MAX_MESSAGE_CHARS).lines() {
        let is_blank = line.trim().is_empty();
        if is_blank && was_blank {
            continue;
        }
        was_blank = is_blank;
        out.push_str(if is_blank { ">" } else { "> " });
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// Renders a text in a fence that none of its lines can close.
fn fenced(language: &str, text: &str) -> String {
    let text = shown(text, MAX_TOOL_CHARS);
    let runs = text.split(|c| c != '`').map(str::len).max();
    let ticks = "`".repeat(runs.unwrap_or_default().max(2) + 1);
    format!("{ticks}{language}\n{text}\n{ticks}\n")
}

#[cfg(test)]
mod tests;
