//! The documents about a run that callers get.

use std::sync::Arc;

use serde_json::{Value, json};

use super::failure::Failure;
use super::life::{Life, Outcome};
use super::run::Run;
use super::thread::{self, MOST_RESULT_CHARS};

impl Run {
    /// Its status and position, for errors.
    pub(super) fn describe(&self) -> String {
        let status = self.status();
        match (self.current_node(), self.step()) {
            (Some(node), Some(step)) => format!("{status} at step {step} (`{node}`)"),
            (Some(node), None) => format!("{status} before `{node}`"),
            (None, _) => status.to_string(),
        }
    }

    /// Returns the failure with which it ended, or after which it is suspended.
    pub fn failure(&self) -> Option<Failure> {
        let stopped = |code: &str, message: String| Failure {
            node: self.stood_at().map(str::to_owned),
            ..Failure::permanent(code, message)
        };
        match &self.life {
            Life::Ended(outcome) => match &**outcome {
                Outcome::Completed { .. } | Outcome::CompletedWithErrors { .. } => None,
                Outcome::Error { error } => Some(error.clone()),
                Outcome::Cancelled { cause } => {
                    Some(stopped("cancelled", format!("cancelled by {cause}")))
                }
                Outcome::Killed { cause, .. } if cause.is_empty() => {
                    Some(stopped("killed", "killed".to_owned()))
                }
                Outcome::Killed { cause, .. } => {
                    Some(stopped("killed", format!("killed by {cause}")))
                }
            },
            Life::Suspended(why) => why.failure.as_deref().cloned(),
            Life::Created | Life::Running => None,
        }
    }

    /// Returns its output, or the result that a failed tool returned all the same.
    pub fn output(&self) -> Option<&Arc<Value>> {
        match self.outcome() {
            Some(Outcome::Completed { output } | Outcome::CompletedWithErrors { output }) => {
                Some(output)
            }
            Some(Outcome::Error { .. }) => self.work.state().result(),
            Some(Outcome::Cancelled { .. } | Outcome::Killed { .. }) | None => None,
        }
    }

    /// Returns the result document of a run, the same shape for every outcome. For graph runs and threads it is the
    /// `${result}` of a child run, without the cost of a thread; for a tool run `output` is the tool's result.
    pub fn result(&self) -> Value {
        if let Some(state) = self.thread() {
            return self.thread_result(state);
        }
        let status = self.status();
        let success = status.is_success();
        // A step that could not be taken has no start, only its flag.
        if self.spec.is_single_step() || self.id.is_single_step() {
            return self.single_step(success);
        }
        let mut document =
            json!({"success": success, "status": status.as_str(), "run_id": self.id});
        document["output"] = self
            .output()
            .map_or_else(|| json!({}), |output| Value::clone(output));
        if let Some(state) = self.graph() {
            document["state"] = state.vars.to_value();
            document["steps"] = json!(state.steps);
            document["graph_run_id"] = json!(self.id);
        }
        if let Some(error) = self.failure() {
            document["error"] = json!(error.message);
            document["code"] = json!(error.code);
            document["node"] = json!(error.node);
        }
        if let Some(errors) = self.suppressed() {
            document["errors_suppressed"] = json!(errors.len());
            document["errors"] = json!(errors);
        }
        document
    }

    /// True for a thread that has completed with a text whose end was cut off.
    pub fn is_truncated(&self) -> bool {
        let is_cut = |state: &thread::ThreadState| state.is_cut_short && state.returned.is_none();
        self.status().is_success() && self.thread().is_some_and(is_cut)
    }

    /// Returns the result of a thread: its outputs if it declares some, else its last text. `result` is always a text, cut
    /// to its limit: the last one of the model or, if its last message has none, the outputs as JSON.
    fn thread_result(&self, state: &thread::ThreadState) -> Value {
        let status = self.status();
        let mut document = json!({
            "success": status.is_success(),
            "status": status.as_str(),
            "run_id": self.id,
            "thread_id": self.id,
            "directive": self.spec.item.id,
            "output": {},
        });
        if let Some(output) = self.output() {
            document["output"] = Value::clone(output);
            let text = match (output.as_str(), &state.closing_text) {
                (Some(text), _) => text.to_owned(),
                (None, Some(text)) => text.to_string(),
                (None, None) => output.to_string(),
            };
            let cut: String = text.chars().take(MOST_RESULT_CHARS).collect();
            if cut.len() < text.len() {
                document["result_truncated"] = json!(true);
            }
            document["result"] = json!(cut);
        }
        if self.is_truncated() {
            document["truncated"] = json!(true);
        }
        if let Some(returned) = &state.returned {
            document["outputs"] = json!(returned.outputs);
        }
        if let Some(error) = self.failure() {
            document["error"] = json!(error.message);
            document["code"] = json!(error.code);
            document["error_context"] = state.recent.context();
            if let Some(failures) = state.recent.failures() {
                document["recent_llm_errors"] = failures;
            }
        }
        if let Some(why) = self.suspension() {
            document["suspend"] = json!(why);
        }
        document
    }

    /// Returns the result of a run over one node: always this shape, even if the node failed.
    fn single_step(&self, success: bool) -> Value {
        let last = self.graph().and_then(|state| state.last.as_ref());
        let failed = match self.outcome() {
            Some(Outcome::Error { error }) => Some(error),
            Some(_) | None => last.and_then(|last| last.error.as_ref()),
        };
        let mut document = json!({
            "success": success && failed.is_none(),
            "state": self.vars(),
            "executed_node": last.map(|last| &last.node),
            "next_node": last.and_then(|last| last.next_node.as_ref()),
            "step_count": self.steps(),
        });
        if let Some(error) = failed {
            document["error"] = json!(error.message);
            document["code"] = json!(error.code);
        }
        document
    }
}
