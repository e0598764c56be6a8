//! Events as sentences on one line.

use rye_core::id::RunId;
use rye_core::model::event::{ChildStarted, RetryScheduled, StepStarted, StepWaiting};
use rye_core::model::graph::Waits;
use rye_core::model::{
    ApprovalAnswer, Event, Failure, GraphEvent, ProcessEvent, ReadySign, RestartReason, RunEvent,
    StepStatus, Suspension,
};
use serde_json::Value;

use super::words::ThreadText;
use super::{elapsed, one_line};

/// Renders an event as a sentence, or its payload if there is no sentence for it.
pub(crate) fn sentence(event_type: &str, payload: &Value) -> String {
    let text = payload.to_string();
    let said = match Event::read(event_type, &text) {
        Ok(Event::Run(event)) => Some(of_run(&event)),
        Ok(Event::Graph(event)) => Some(of_graph(&event)),
        Ok(Event::Thread(event)) => ThreadText::of(&event).map(|said| said.sentence),
        Ok(Event::Process(event)) => Some(of_process(&event)),
        Ok(Event::Tool(_)) | Err(_) => None,
    };
    let is_empty = payload.as_object().is_some_and(serde_json::Map::is_empty);
    match said {
        Some(said) => one_line(&said, usize::MAX),
        None if is_empty => String::new(),
        None => one_line(&text, usize::MAX),
    }
}

/// Renders an attempt of a node: `build`, `build, try 2`.
fn tried(node: &str, attempt: u32) -> String {
    match attempt {
        0 | 1 => node.to_owned(),
        attempt => format!("{node}, try {attempt}"),
    }
}

fn of_run(event: &RunEvent) -> String {
    match event {
        RunEvent::RunCreated(spec) => {
            format!("{} is accepted, requested by {}", spec.item, spec.principal)
        }
        RunEvent::RunStarted(started) => {
            format!("the daemon owns the run (its life {})", started.epoch.0)
        }
        RunEvent::RunSuspended(why) => suspended(why),
        RunEvent::RunResumed(_) => "resumed".to_owned(),
        RunEvent::CancelRequested(asked) => format!("asked to stop by {}", asked.cause),
        RunEvent::KillRequested(kill) => format!("to be killed, by {}", kill.by),
        RunEvent::RunKilled(killed) => {
            let ended = killed.receipt.processes.len();
            format!("killed by {}; {ended} processes ended", killed.cause)
        }
        RunEvent::Emitted(emitted) => format!("{} {}", emitted.name, emitted.content),
        RunEvent::ItemSigned(signed) => format!("signed {}", signed.item),
        RunEvent::Warning(warning) => match &warning.node {
            Some(node) => format!("{node}: {}", warning.message),
            None => warning.message.clone(),
        },
        RunEvent::StepStarted(started) => begun(started),
        RunEvent::ProcessExited(exited) => exited.end.to_string(),
        RunEvent::ProcessStarted(started) => {
            let level = started.isolation.filter(|level| !level.is_default());
            let level = level.map(|level| format!(", isolation {}", level.as_str()));
            let limits = Some(started.resources).filter(|limits| !limits.is_empty());
            let limits = limits.map(|limits| format!(", limits: {limits}"));
            let pid = started.process.pid;
            let (level, limits) = (level.unwrap_or_default(), limits.unwrap_or_default());
            format!("process {pid}{level}{limits}")
        }
        RunEvent::CallbackStarted(started) => {
            format!("its program started {} as {}", started.item, started.child)
        }
        RunEvent::CallbackEnded(ended) => {
            let (ordinal, child, status) = (ended.ordinal, &ended.child, ended.status);
            format!("call {ordinal} of its program, {child}, has ended: {status}")
        }
        RunEvent::ToolCallProgress(progress) => match progress.fraction {
            Some(fraction) => format!("{:.0} %: {}", fraction * 100.0, progress.message),
            None => progress.message.clone(),
        },
        RunEvent::UncertainAnswered(answer) => {
            let (step, slot, verdict) = (answer.step, answer.slot, answer.verdict.as_str());
            format!(
                "step {step} {slot} is declared `{verdict}` by {}",
                answer.by
            )
        }
        RunEvent::ApprovalRequested(asked) => format!("asks: {}", asked.message),
        RunEvent::ApprovalExpired(_) => "no one answered in time".to_owned(),
        RunEvent::ApprovalInvalidated(old) => {
            format!("the call has changed since the question {}", old.id)
        }
        RunEvent::ApprovalAnswered(answer) => answered(answer),
        RunEvent::BudgetHeld(held) => {
            format!("{} USD are held for a call of {}", held.amount, held.model)
        }
        RunEvent::BudgetSettled(settled) => {
            let about = if settled.estimated { "about " } else { "" };
            format!("the call cost {about}{} USD", settled.usage.money)
        }
        RunEvent::BudgetRaised(raised) => {
            format!("may spend {} USD now, by {}", raised.to, raised.by)
        }
        RunEvent::HookStarted(asked) => format!("hook {} is asked ({})", asked.hook, asked.event),
        RunEvent::HookCompleted(done) => match &done.error {
            Some(error) => format!(
                "hook {} failed ({}): {}",
                done.hook, done.event, error.message
            ),
            None => format!("hook {} answered ({})", done.hook, done.event),
        },
        RunEvent::HooksBegun(begun) => {
            format!("{} hooks are asked ({})", begun.hooks.len(), begun.event)
        }
        RunEvent::ChildStarted(started) => child_started(started),
    }
}

fn child_started(started: &ChildStarted) -> String {
    let what = if started.is_server {
        "MCP server"
    } else {
        "process"
    };
    format!("started the {what} {}, as {}", started.name, started.child)
}

fn of_process(event: &ProcessEvent) -> String {
    match event {
        ProcessEvent::ProcessLaunched(launched) => {
            let ports = launched.ports.iter();
            let ports = ports.map(|(name, port)| format!(", {name} on port {port}"));
            format!(
                "attempt {} starts{}",
                launched.attempt,
                ports.collect::<String>()
            )
        }
        ProcessEvent::ProcessReady(ready) => {
            let sign = match ready.by {
                ReadySign::Alive => "it is alive",
                ReadySign::Pattern => "a line matches",
                ReadySign::Port => "it listens on its port",
                ReadySign::Http => "it answers",
            };
            let (attempt, after) = (ready.attempt, elapsed(ready.after_ms));
            format!("attempt {attempt} is ready after {after}: {sign}")
        }
        ProcessEvent::ProcessUnready(unready) => {
            format!(
                "attempt {} is not ready in time: {}",
                unready.attempt, unready.why
            )
        }
        ProcessEvent::ProcessRestartRequested(asked) => {
            format!("restart requested by {}", asked.by)
        }
        ProcessEvent::ProcessFrozen(frozen) => format!("frozen by {}", frozen.by),
        ProcessEvent::ProcessThawed(thawed) => format!("thawed by {}", thawed.by),
        ProcessEvent::ProcessRestartScheduled(scheduled) => {
            let why = match (scheduled.because, &scheduled.error) {
                (RestartReason::Failed, Some(error)) => error.message.as_str(),
                (RestartReason::Failed, None) => "it failed",
                (RestartReason::Interrupted, _) => "the daemon went down",
                (RestartReason::Requested, _) => "as requested",
                (RestartReason::PortForeign, _) => "another process took its port",
            };
            format!("attempt {} follows: {why}", scheduled.attempt)
        }
        ProcessEvent::ProcessWatched(watched) => {
            let lines = match watched.matched {
                1 => "1 line matches".to_owned(),
                count => format!("{count} lines match"),
            };
            let rests = match watched.suppressed {
                0 => String::new(),
                count => format!("; {count} more suppressed, and it rests"),
            };
            format!("rule {}: {lines}{rests}", watched.rule)
        }
        ProcessEvent::ProcessWatchChanged(changed) => {
            let rules: Vec<&str> = changed.rules.iter().map(|rule| &*rule.id).collect();
            format!("watches for {}", rules.join(", "))
        }
        ProcessEvent::ProcessEnded(ended) => match (&ended.cancelled, &ended.error) {
            (Some(cause), _) => format!("stopped by {cause}"),
            (None, Some(error)) => error.message.clone(),
            (None, None) => "ended with exit code 0".to_owned(),
        },
    }
}

fn begun(started: &StepStarted) -> String {
    let items = started.items.map(|count| format!(", {count} items"));
    let (step, name) = (started.step, tried(&started.node, started.attempt));
    format!(
        "step {step} {name} runs {}{}{}",
        started.action_id,
        items.unwrap_or_default(),
        carried_out_by(started.child.as_ref())
    )
}

/// Renders the child run that executes an attempt: `, as <id>`. Returns an empty text if there is none.
fn carried_out_by(child: Option<&RunId>) -> String {
    child.map_or_else(String::new, |child| format!(", as {child}"))
}

fn suspended(why: &Suspension) -> String {
    let node = why.node.as_ref();
    let place = node.map_or_else(String::new, |node| format!(" at {node}"));
    let code = why.code.as_ref();
    let code = code.map_or_else(String::new, |code| format!(" ({code})"));
    format!("suspended{place}: {}{code}", why.reason.as_str())
}

fn answered(answer: &ApprovalAnswer) -> String {
    let word = if answer.approved {
        "approved"
    } else {
        "denied"
    };
    let comment = answer.comment.as_ref();
    let comment = comment.map_or_else(String::new, |text| format!(": {text}"));
    format!("{word} by {}{comment}", answer.by)
}

fn of_graph(event: &GraphEvent) -> String {
    match event {
        GraphEvent::GraphStarted(started) => format!("begins at {}", started.start_node),
        GraphEvent::ServiceStarted(started) => {
            format!("{} is the process {}", started.node, started.handle)
        }
        GraphEvent::ProcessWaited(waited) => format!("has waited for {}", waited.handle),
        GraphEvent::LimitExtended(extended) => {
            format!(
                "may take {} steps now, by {}",
                extended.max_steps, extended.by
            )
        }
        GraphEvent::GraphEnding(_) => "is about to end".to_owned(),
        GraphEvent::GraphCompleted(end) => {
            let time = elapsed(end.elapsed_ms);
            format!(
                "{} after {} steps in {time}",
                end.status.as_str(),
                end.steps
            )
        }
        GraphEvent::GraphError(end) => {
            let time = elapsed(end.elapsed_ms);
            format!(
                "failed after {} steps in {time}: {}",
                end.steps, end.error.message
            )
        }
        GraphEvent::GraphCancelled(end) => {
            format!("cancelled by {} after {} steps", end.cause, end.steps)
        }
        GraphEvent::StepFailed(failed) => {
            let node = tried(&failed.node, failed.attempt);
            format!(
                "step {} {node} failed: {}",
                failed.step, failed.error.message
            )
        }
        GraphEvent::StepWaiting(waiting) => waits(waiting),
        GraphEvent::ForeachCompleted(end) => {
            format!(
                "step {} {}: {} items, {} failed",
                end.step, end.node, end.items, end.failed
            )
        }
        GraphEvent::ParallelCompleted(end) => {
            format!(
                "step {} {}: {} branches, {} failed",
                end.step, end.node, end.branches, end.failed
            )
        }
        GraphEvent::RetryScheduled(retry) => retried(retry),
        GraphEvent::StepCompleted(done) => {
            let ended = ended(done.status, done.elapsed_ms, done.error.as_ref());
            let next = done.next_node.as_ref().map(|next| format!(" → {next}"));
            format!(
                "step {} {} {ended}{}",
                done.step,
                done.node,
                next.unwrap_or_default()
            )
        }
        GraphEvent::ItemStarted(started) => {
            let name = tried(
                &format!("{}[{}]", started.node, started.item),
                started.attempt,
            );
            let child = carried_out_by(started.child.as_ref());
            format!(
                "step {} {name} runs {}{child}",
                started.step, started.action_id
            )
        }
        GraphEvent::ItemCompleted(done) => {
            let ended = ended(done.status, done.elapsed_ms, done.error.as_ref());
            format!("step {} {}[{}] {ended}", done.step, done.node, done.item)
        }
    }
}

fn retried(retry: &RetryScheduled) -> String {
    let item = retry.item.map(|item| format!("[{item}]"));
    let name = format!("{}{}", retry.node, item.unwrap_or_default());
    let failed = retry.error.as_ref();
    let failed = failed.map(|error| format!("failed: {}; ", error.message));
    format!(
        "step {} {name} {}is tried again (try {}) at {}, requested by {}",
        retry.step,
        failed.unwrap_or_default(),
        retry.attempt,
        retry.due,
        retry.by
    )
}

fn waits(waiting: &StepWaiting) -> String {
    let (step, node) = (waiting.step, &waiting.node);
    match &waiting.waits {
        Waits::Until { at, .. } => format!("step {step} {node} waits until {at}"),
        Waits::Answer => format!("step {step} {node} waits for an answer"),
    }
}

/// Renders the end of a step or an item: `error after 14ms: no route`.
fn ended(status: StepStatus, elapsed_ms: u64, error: Option<&Failure>) -> String {
    let error = error.map(|error| format!(": {}", error.message));
    let (status, time) = (status.as_str(), elapsed(elapsed_ms));
    format!("{status} after {time}{}", error.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn event_sentence_begins_with_text_or_action() {
        let call = json!({"turn": 1, "position": 0, "call_id": "a", "tool": "rye_execute", "item": "tool:rye/bash",
                          "input": {"x": 1}, "attempt": 1, "effect": "idempotent", "key": "k"});
        let result = json!({"turn": 1, "position": 0, "call_id": "a", "output": "no\nroute", "is_error": true,
                            "duration_ms": 4});
        let message =
            json!({"role": "assistant", "origin": {"provider": "p", "model": "m"}, "blocks": []});
        let table = [
            (
                "cognition_out",
                json!({"turn": 2, "attempt": 2, "text": "Hello", "message": message}),
                "turn 2 (try 2): Hello",
            ),
            ("tool_call_start", call, "turn 1: tool:rye/bash {\"x\":1}"),
            ("tool_call_result", result, "turn 1: failed: no route"),
            (
                "run_started",
                json!({"epoch": 1}),
                "the daemon owns the run (its life 1)",
            ),
            (
                "cancel_requested",
                json!({"cause": "uid:1: slow"}),
                "asked to stop by uid:1: slow",
            ),
            (
                "step_completed",
                json!({"step": 2, "node": "fetch", "status": "error", "elapsed_ms": 14, "next_node": "mend", "assigned": {},
                       "error": {"message": "no\nroute", "code": "node_error", "retryable": false}}),
                "step 2 fetch error after 14ms: no route → mend",
            ),
            (
                "graph_completed",
                json!({"status": "completed", "steps": 3, "elapsed_ms": 22_700, "output": {}}),
                "completed after 3 steps in 22.7s",
            ),
            ("moon_landed", json!({"by": "us"}), "{\"by\":\"us\"}"),
            ("moon_landed", json!({}), ""),
        ];
        for (name, payload, expected) in table {
            assert_eq!(sentence(name, &payload), expected, "{name}");
        }
    }
}
