//! What an event says, as a sentence on one line.

use rye_core::model::graph::Waits;
use rye_core::model::{ApprovalAnswer, Event, GraphEvent, RunEvent, Suspension, ThreadEvent};
use serde_json::Value;

use super::transcript::place;
use super::{elapsed, one_line};

/// What an event says, as one line: a sentence, or for one that has none its payload.
pub(crate) fn sentence(event_type: &str, payload: &Value) -> String {
    let text = payload.to_string();
    let said = match Event::read(event_type, &text) {
        Ok(Event::Run(event)) => Some(of_run(&event)),
        Ok(Event::Graph(event)) => of_graph(&event),
        Ok(Event::Thread(event)) => said(&event),
        Ok(Event::Tool(_)) | Err(_) => None,
    };
    let is_empty = payload.as_object().is_some_and(serde_json::Map::is_empty);
    match said {
        Some(said) => one_line(&said, usize::MAX),
        None if is_empty => String::new(),
        None => one_line(&text, usize::MAX),
    }
}

/// An attempt of a node: `build`, `build, try 2`.
fn tried(node: &str, attempt: u32) -> String {
    match attempt {
        0 | 1 => node.to_owned(),
        attempt => format!("{node}, try {attempt}"),
    }
}

fn of_run(event: &RunEvent) -> String {
    match event {
        RunEvent::RunCreated(spec) => {
            format!("{} is accepted, asked for by {}", spec.item, spec.principal)
        }
        RunEvent::RunStarted { epoch, .. } => {
            format!("the daemon owns the run (its life {})", epoch.0)
        }
        RunEvent::RunSuspended(why) => suspended(why),
        RunEvent::RunResumed { .. } => "resumed".to_owned(),
        RunEvent::CancelRequested { cause } => format!("asked to stop by {cause}"),
        RunEvent::KillRequested(kill) => format!("to be killed, by {}", kill.by),
        RunEvent::RunKilled { cause, receipt } => {
            format!(
                "killed by {cause}; {} processes ended",
                receipt.processes.len()
            )
        }
        RunEvent::Emitted { name, content } => format!("{name} {content}"),
        RunEvent::ItemSigned { item, .. } => format!("signed {item}"),
        RunEvent::Warning { node, message } => match node {
            Some(node) => format!("{node}: {message}"),
            None => message.clone(),
        },
        RunEvent::StepStarted {
            step,
            node,
            attempt,
            action_id,
            items,
            child,
            ..
        } => {
            let items = items.map_or_else(String::new, |count| format!(", {count} items"));
            let child = child.as_ref();
            let child = child.map_or_else(String::new, |child| format!(", as {child}"));
            format!(
                "step {step} {} runs {action_id}{items}{child}",
                tried(node, *attempt)
            )
        }
        RunEvent::ProcessStarted { process, .. } => format!("process {}", process.pid),
        RunEvent::UncertainAnswered {
            step,
            slot,
            verdict,
            by,
            ..
        } => {
            format!(
                "step {step} {slot} is declared `{}` by {by}",
                verdict.as_str()
            )
        }
        RunEvent::ApprovalRequested(asked) => format!("asks: {}", asked.message),
        RunEvent::ApprovalExpired(_) => "nobody answered in time".to_owned(),
        RunEvent::ApprovalAnswered(answer) => answered(answer),
        RunEvent::BudgetHeld { amount, model, .. } => {
            format!("{amount} USD are held for a call of {model}")
        }
        RunEvent::BudgetSettled {
            usage, estimated, ..
        } => {
            let about = if *estimated { "about " } else { "" };
            format!("the call cost {about}{} USD", usage.money)
        }
        RunEvent::BudgetRaised { to, by, .. } => format!("may spend {to} USD now, by {by}"),
        RunEvent::HookStarted { hook, event, .. } => format!("hook {hook} is asked ({event})"),
        RunEvent::HookCompleted {
            hook, event, error, ..
        } => match error {
            Some(error) => format!("hook {hook} failed ({event}): {}", error.message),
            None => format!("hook {hook} answered ({event})"),
        },
        RunEvent::HooksBegun { event, hooks, .. } => {
            format!("{} hooks are asked ({event})", hooks.len())
        }
    }
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

fn of_graph(event: &GraphEvent) -> Option<String> {
    Some(match event {
        GraphEvent::GraphStarted { start_node, .. } => format!("begins at {start_node}"),
        GraphEvent::LimitExtended { max_steps, by } => {
            format!("may take {max_steps} steps now, by {by}")
        }
        GraphEvent::GraphEnding { .. } => "is about to end".to_owned(),
        GraphEvent::GraphCompleted {
            status,
            steps,
            elapsed_ms,
            ..
        } => {
            format!(
                "{} after {steps} steps in {}",
                status.as_str(),
                elapsed(*elapsed_ms)
            )
        }
        GraphEvent::GraphError {
            error,
            steps,
            elapsed_ms,
        } => {
            format!(
                "failed after {steps} steps in {}: {}",
                elapsed(*elapsed_ms),
                error.message
            )
        }
        GraphEvent::GraphCancelled { cause, steps, .. } => {
            format!("cancelled by {cause} after {steps} steps")
        }
        GraphEvent::StepFailed { .. }
        | GraphEvent::RetryScheduled { .. }
        | GraphEvent::StepWaiting { .. }
        | GraphEvent::StepCompleted { .. } => return of_step(event),
        GraphEvent::ItemStarted { .. }
        | GraphEvent::ItemCompleted { .. }
        | GraphEvent::ForeachCompleted { .. }
        | GraphEvent::ParallelCompleted { .. } => return of_item(event),
    })
}

/// What an event of a step says, or of one that is tried again or waits.
fn of_step(event: &GraphEvent) -> Option<String> {
    Some(match event {
        GraphEvent::StepFailed {
            step,
            node,
            attempt,
            error,
            ..
        } => {
            format!(
                "step {step} {} failed: {}",
                tried(node, *attempt),
                error.message
            )
        }
        GraphEvent::RetryScheduled {
            step,
            node,
            attempt,
            due,
            by,
            ..
        } => {
            format!("step {step} {node} is tried again (try {attempt}) at {due}, asked for by {by}")
        }
        GraphEvent::StepWaiting {
            step, node, waits, ..
        } => match waits {
            Waits::Until { at, .. } => format!("step {step} {node} waits until {at}"),
            Waits::Answer => format!("step {step} {node} waits for an answer"),
        },
        GraphEvent::StepCompleted {
            step,
            node,
            status,
            elapsed_ms,
            next_node,
            error,
            ..
        } => {
            let next = next_node.as_ref();
            let next = next.map_or_else(String::new, |next| format!(" → {next}"));
            let error = error.as_ref();
            let error = error.map_or_else(String::new, |error| format!(": {}", error.message));
            let (status, time) = (status.as_str(), elapsed(*elapsed_ms));
            format!("step {step} {node} {status} after {time}{error}{next}")
        }
        GraphEvent::GraphStarted { .. }
        | GraphEvent::LimitExtended { .. }
        | GraphEvent::GraphEnding { .. }
        | GraphEvent::GraphCompleted { .. }
        | GraphEvent::GraphError { .. }
        | GraphEvent::GraphCancelled { .. }
        | GraphEvent::ItemStarted { .. }
        | GraphEvent::ItemCompleted { .. }
        | GraphEvent::ForeachCompleted { .. }
        | GraphEvent::ParallelCompleted { .. } => return None,
    })
}

/// What an event says of the items or branches of a step.
fn of_item(event: &GraphEvent) -> Option<String> {
    Some(match event {
        GraphEvent::ItemStarted {
            step,
            node,
            item,
            attempt,
            action_id,
            child,
            ..
        } => {
            let child = child.as_ref();
            let child = child.map_or_else(String::new, |child| format!(", as {child}"));
            let name = tried(&format!("{node}[{item}]"), *attempt);
            format!("step {step} {name} runs {action_id}{child}")
        }
        GraphEvent::ItemCompleted {
            step,
            node,
            item,
            status,
            elapsed_ms,
            error,
            ..
        } => {
            let (status, time) = (status.as_str(), elapsed(*elapsed_ms));
            let error = error.as_ref();
            let error = error.map_or_else(String::new, |error| format!(": {}", error.message));
            format!("step {step} {node}[{item}] {status} after {time}{error}")
        }
        GraphEvent::ForeachCompleted {
            step,
            node,
            items,
            failed,
            ..
        } => {
            format!("step {step} {node}: {items} items, {failed} failed")
        }
        GraphEvent::ParallelCompleted {
            step,
            node,
            branches,
            failed,
            ..
        } => {
            format!("step {step} {node}: {branches} branches, {failed} failed")
        }
        GraphEvent::GraphStarted { .. }
        | GraphEvent::LimitExtended { .. }
        | GraphEvent::GraphEnding { .. }
        | GraphEvent::GraphCompleted { .. }
        | GraphEvent::GraphError { .. }
        | GraphEvent::GraphCancelled { .. }
        | GraphEvent::StepFailed { .. }
        | GraphEvent::RetryScheduled { .. }
        | GraphEvent::StepWaiting { .. }
        | GraphEvent::StepCompleted { .. } => return None,
    })
}

/// What an event of a thread says, where its payload begins with something else.
fn said(event: &ThreadEvent) -> Option<String> {
    Some(match event {
        ThreadEvent::CognitionIn { turn, text, .. }
        | ThreadEvent::CognitionReasoning { turn, text } => format!("turn {turn}: {text}"),
        ThreadEvent::CognitionOut {
            turn,
            attempt,
            text,
            message,
            ..
        } => {
            let blocks = message.blocks().len();
            let turn = place(*turn, *attempt);
            match text.trim() {
                "" => format!("{turn}: no text, {blocks} blocks"),
                text => format!("{turn}: {text}"),
            }
        }
        ThreadEvent::ToolCallStart(call) => {
            let input = Value::Object((*call.input).clone());
            format!("turn {}: {} {input}", call.turn, call.item)
        }
        ThreadEvent::ToolCallResult {
            turn,
            output,
            is_error,
            ..
        } => {
            let failed = if *is_error { "failed: " } else { "" };
            format!("turn {turn}: {failed}{output}")
        }
        ThreadEvent::ErrorClassified { turn, error, .. } => {
            format!("turn {turn}: {} ({})", error.message, error.code)
        }
        ThreadEvent::SystemPrompt { text } | ThreadEvent::MessageQueued { text, .. } => {
            text.clone()
        }
        ThreadEvent::ThreadStarted { .. }
        | ThreadEvent::PromptComposed { .. }
        | ThreadEvent::StepStart { .. }
        | ThreadEvent::StepFinish { .. }
        | ThreadEvent::TurnRetryScheduled { .. }
        | ThreadEvent::ContextReseeded { .. }
        | ThreadEvent::RetrySucceeded { .. }
        | ThreadEvent::LimitEscalationRequested { .. }
        | ThreadEvent::DirectiveReturn(_)
        | ThreadEvent::ThreadCompleted { .. }
        | ThreadEvent::ThreadError { .. }
        | ThreadEvent::ThreadCancelled { .. } => return None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_was_said_and_done_stands_first() {
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
