//! The line per step that `run` shows.
//!
//! ```text
//! [graph:<id>] step 2/8 batch_scrape ✓ 8.1s (+key1, key2)
//! ```

use std::collections::HashSet;

use rye_core::clock::Timestamp;
use rye_core::expr::Vars;
use rye_core::model::{Event, Failure, GraphEvent, RunEvent, StepStatus};

use super::screen::in_line;
use super::{Style, elapsed, one_line};

/// Longest error in a step line; the whole text stands in the result.
const MAX_ERROR_CHARS: usize = 160;

/// What a step line tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Line {
    /// The step is in flight: shown until the next line takes its place.
    Started(String),
    /// The step is done.
    Done(String),
    /// More of a text.
    More(String),
    /// The rest of a text that was shown as it came.
    Rest(String),
}

/// Makes step lines out of the events of one run.
#[derive(Debug)]
pub(crate) struct Steps {
    graph: String,
    nodes: u32,
    style: Style,
    /// State keys seen so far: only new ones are worth a word.
    known: HashSet<String>,
    /// Why the try failed that is shown next.
    failed: Option<String>,
    /// Items of the foreach node that is shown next, and how many of them failed.
    items: Option<(u32, u32)>,
}

impl Steps {
    /// For a graph of `nodes` nodes.
    pub(crate) fn new(graph: &str, nodes: u32, style: Style) -> Self {
        Self {
            graph: graph.to_owned(),
            nodes,
            style,
            known: HashSet::new(),
            failed: None,
            items: None,
        }
    }

    /// Takes state keys for known.
    pub(crate) fn know<'k>(&mut self, keys: impl Iterator<Item = &'k String>) {
        self.known.extend(keys.cloned());
    }

    /// The line for `event`, which happened `at`, if it gets one.
    pub(crate) fn line(&mut self, event: &Event, at: Option<Timestamp>) -> Option<Line> {
        if let Event::Graph(GraphEvent::GraphStarted { state, .. }) = event {
            self.known.extend(state.names().map(str::to_owned));
        }
        if let Event::Run(RunEvent::StepStarted { step, node, .. }) = event {
            return Some(Line::Started(format!("{} ...", self.head(*step, node))));
        }
        if let Event::Run(RunEvent::Warning { node, message }) = event {
            let node = node.as_ref().map(|node| format!("{node}: "));
            let text = one_line(message, MAX_ERROR_CHARS);
            let node = node.unwrap_or_default();
            return Some(Line::Done(format!(
                "[graph:{}] warning: {node}{text}",
                self.graph
            )));
        }
        if let Event::Graph(GraphEvent::StepFailed { error, .. }) = event {
            self.failed = Some(one_line(&error.message, MAX_ERROR_CHARS));
        }
        if let Event::Graph(GraphEvent::StepWaiting { step, node, .. }) = event {
            return Some(Line::Started(format!(
                "{} waits ...",
                self.head(*step, node)
            )));
        }
        if let Event::Graph(
            GraphEvent::ForeachCompleted { items, failed, .. }
            | GraphEvent::ParallelCompleted {
                branches: items,
                failed,
                ..
            },
        ) = event
        {
            self.items = Some((*items, *failed));
        }
        if let Event::Graph(GraphEvent::RetryScheduled {
            step,
            node,
            retries,
            due,
            by,
            ..
        }) = event
        {
            let wait = at.map_or(0, |at| due.ms_since(at));
            let (head, icon, wait) = (self.head(*step, node), self.style.red("✗"), elapsed(wait));
            // The failure behind which a run was suspended was shown when it was suspended.
            let why = self.failed.take();
            let why = why.map_or_else(String::new, |why| format!("{icon} ({why}) "));
            let by = in_line(by);
            let asked = match &*by {
                "node" => "by `retry` of the node".to_owned(),
                "resume" => "by `resume`".to_owned(),
                _ => format!("by hook {by}"),
            };
            return Some(Line::Done(format!(
                "{head} {why}retry {retries} in {wait} ({asked})"
            )));
        }
        let Event::Graph(GraphEvent::StepCompleted {
            step,
            node,
            status,
            elapsed_ms,
            assigned,
            error,
            ..
        }) = event
        else {
            return None;
        };
        let mut words = vec![self.head(*step, node), self.icon(*status)];
        // Less than a twentieth of a second would read `0.0s`.
        if *elapsed_ms >= 50 {
            words.push(elapsed(*elapsed_ms));
        }
        if let Some(detail) = self.detail(*status, assigned, error.as_ref()) {
            words.push(format!("({detail})"));
        }
        Some(Line::Done(words.join(" ")))
    }

    fn head(&self, step: u32, node: &str) -> String {
        let node = in_line(node);
        format!("[graph:{}] step {step}/{} {node}", self.graph, self.nodes)
    }

    fn icon(&self, status: StepStatus) -> String {
        match status {
            StepStatus::Ok
            | StepStatus::Gate
            | StepStatus::Foreach
            | StepStatus::Parallel
            | StepStatus::Wait
            | StepStatus::Approval
            | StepStatus::Cached => self.style.green("✓"),
            StepStatus::Error => self.style.red("✗"),
            StepStatus::Return => "⏹".to_owned(),
        }
    }

    fn detail(
        &mut self,
        status: StepStatus,
        assigned: &Vars,
        error: Option<&Failure>,
    ) -> Option<String> {
        let new: Vec<&str> = assigned
            .names()
            .filter(|key| self.known.insert((*key).to_owned()))
            .collect();
        if let Some(error) = error {
            return Some(one_line(&error.message, MAX_ERROR_CHARS));
        }
        match status {
            StepStatus::Foreach | StepStatus::Parallel => Some(match self.items.take() {
                Some((items, failed)) if failed > 0 => {
                    format!("{}, {failed} of {items} failed", status.as_str())
                }
                Some(_) | None => status.as_str().to_owned(),
            }),
            StepStatus::Gate | StepStatus::Cached | StepStatus::Wait | StepStatus::Approval => {
                Some(status.as_str().to_owned())
            }
            StepStatus::Ok | StepStatus::Error | StepStatus::Return => {
                (!new.is_empty()).then(|| in_line(&format!("+{}", new.join(", "))))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn event(event_type: &str, payload: &Value) -> Event {
        Event::read(event_type, &payload.to_string()).unwrap()
    }

    fn completed(status: &str, elapsed_ms: u64, assigned: &Value, error: &Value) -> Event {
        event(
            "step_completed",
            &json!({"step": 2, "node": "scrape", "status": status, "elapsed_ms": elapsed_ms, "next_node": null,
                    "assigned": assigned, "error": error}),
        )
    }

    fn done(steps: &mut Steps, event: &Event) -> String {
        match steps.line(event, None) {
            Some(Line::Done(line)) => line,
            other => panic!("no finished step: {other:?}"),
        }
    }

    #[test]
    fn a_step_line_names_new_keys_only() {
        let mut steps = Steps::new("scraper", 8, Style::Plain);
        let started = event(
            "graph_started",
            &json!({"graph_id": "scraper", "graph_run_id": "r", "start_node": "scrape", "state": {"old": 0}}),
        );
        assert_eq!(steps.line(&started, None), None);
        let event = completed(
            "ok",
            8_100,
            &json!({"old": 1, "a": 1, "b": 2}),
            &Value::Null,
        );
        assert_eq!(
            done(&mut steps, &event),
            "[graph:scraper] step 2/8 scrape ✓ 8.1s (+a, b)"
        );
        assert_eq!(
            done(&mut steps, &event),
            "[graph:scraper] step 2/8 scrape ✓ 8.1s"
        );
    }

    #[test]
    fn every_status_has_its_icon_and_detail() {
        let mut steps = Steps::new("g", 2, Style::Plain);
        let failure =
            json!({"message": "connection\nrefused", "code": "node_error", "retryable": false});
        for (status, error, line) in [
            (
                "error",
                &failure,
                "[graph:g] step 2/2 scrape ✗ (connection refused)",
            ),
            ("return", &Value::Null, "[graph:g] step 2/2 scrape ⏹"),
            ("gate", &Value::Null, "[graph:g] step 2/2 scrape ✓ (gate)"),
            (
                "foreach",
                &Value::Null,
                "[graph:g] step 2/2 scrape ✓ (foreach)",
            ),
            (
                "cached",
                &Value::Null,
                "[graph:g] step 2/2 scrape ✓ (cached)",
            ),
        ] {
            assert_eq!(
                done(&mut steps, &completed(status, 3, &json!({}), error)),
                line
            );
        }
    }

    #[test]
    fn a_retry_tells_why_and_when() {
        let mut steps = Steps::new("g", 2, Style::Plain);
        let failed = event(
            "step_failed",
            &json!({"step": 2, "node": "scrape", "visit": 0, "attempt": 1, "now": 0, "result": null, "classification": {},
                    "repeatable": true, "error": {"message": "no\nroute", "code": "node_error", "retryable": true}}),
        );
        assert_eq!(steps.line(&failed, None), None);
        let retry = event(
            "retry_scheduled",
            &json!({"step": 2, "node": "scrape", "attempt": 2, "retries": 1, "due": 3_500, "by": "node"}),
        );
        assert_eq!(
            steps.line(&retry, Some(Timestamp::from_ms(1_500))),
            Some(Line::Done(
                "[graph:g] step 2/2 scrape ✗ (no route) retry 1 in 2.0s (by `retry` of the node)"
                    .to_owned()
            ))
        );
    }

    #[test]
    fn a_retry_of_a_failure_told_before_tells_no_empty_reason() {
        let retry = event(
            "retry_scheduled",
            &json!({"step": 2, "node": "scrape", "attempt": 2, "retries": 1, "due": 0, "by": "resume"}),
        );
        assert_eq!(
            done(&mut Steps::new("g", 2, Style::Plain), &retry),
            "[graph:g] step 2/2 scrape retry 1 in 0.0s (by `resume`)"
        );
    }

    #[test]
    fn a_foreach_tells_how_many_items_failed() {
        let mut steps = Steps::new("g", 2, Style::Plain);
        let closed = event(
            "foreach_completed",
            &json!({"step": 2, "node": "scrape", "items": 5, "failed": 2, "next_node": null}),
        );
        assert_eq!(steps.line(&closed, None), None);
        let ended = completed("foreach", 3, &json!({}), &Value::Null);
        assert_eq!(
            done(&mut steps, &ended),
            "[graph:g] step 2/2 scrape ✓ (foreach, 2 of 5 failed)"
        );
        assert_eq!(
            done(&mut steps, &ended),
            "[graph:g] step 2/2 scrape ✓ (foreach)"
        );
    }

    #[test]
    fn a_step_in_flight_ends_with_dots() {
        let started = event(
            "step_started",
            &json!({"step": 1, "node": "n", "visit": 0, "attempt": 1, "action_id": "tool:x", "effect": "idempotent",
                    "key": "k", "now": 0}),
        );
        assert_eq!(
            Steps::new("g", 3, Style::Plain).line(&started, None),
            Some(Line::Started("[graph:g] step 1/3 n ...".to_owned()))
        );
    }
}
