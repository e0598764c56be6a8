//! Events as sentences on one line.

use rye_core::model::graph::Waits;
use rye_core::model::{
    ApprovalAnswer, Event, Failure, GraphEvent, RunEvent, StepStatus, Suspension,
};
use serde_json::Value;

use super::words::Said;
use super::{elapsed, one_line};

/// The sentence for an event, or its payload if it has none.
pub(crate) fn sentence(event_type: &str, payload: &Value) -> String {
    let text = payload.to_string();
    let said = match Event::read(event_type, &text) {
        Ok(Event::Run(event)) => Some(of_run(&event)),
        Ok(Event::Graph(event)) => of_graph(&event),
        Ok(Event::Thread(event)) => Said::of(&event).map(|said| said.sentence),
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
            let time = elapsed(*elapsed_ms);
            format!("{} after {steps} steps in {time}", status.as_str())
        }
        GraphEvent::GraphError {
            error,
            steps,
            elapsed_ms,
        } => {
            let time = elapsed(*elapsed_ms);
            format!("failed after {steps} steps in {time}: {}", error.message)
        }
        GraphEvent::GraphCancelled { cause, steps, .. } => {
            format!("cancelled by {cause} after {steps} steps")
        }
        GraphEvent::StepFailed {
            step,
            node,
            attempt,
            error,
            ..
        } => {
            let node = tried(node, *attempt);
            format!("step {step} {node} failed: {}", error.message)
        }
        GraphEvent::StepWaiting {
            step, node, waits, ..
        } => match waits {
            Waits::Until { at, .. } => format!("step {step} {node} waits until {at}"),
            Waits::Answer => format!("step {step} {node} waits for an answer"),
        },
        GraphEvent::ForeachCompleted {
            step,
            node,
            items,
            failed,
            ..
        } => format!("step {step} {node}: {items} items, {failed} failed"),
        GraphEvent::ParallelCompleted {
            step,
            node,
            branches,
            failed,
            ..
        } => format!("step {step} {node}: {branches} branches, {failed} failed"),
        GraphEvent::RetryScheduled { .. }
        | GraphEvent::StepCompleted { .. }
        | GraphEvent::ItemStarted { .. }
        | GraphEvent::ItemCompleted { .. } => return of_attempt(event),
    })
}

/// The sentence for a step or an item that begins, ends, or is tried again.
fn of_attempt(event: &GraphEvent) -> Option<String> {
    if let GraphEvent::RetryScheduled {
        step,
        node,
        attempt,
        due,
        by,
        ..
    } = event
    {
        return Some(format!(
            "step {step} {node} is tried again (try {attempt}) at {due}, asked for by {by}"
        ));
    }
    if let GraphEvent::StepCompleted {
        step,
        node,
        status,
        elapsed_ms,
        next_node,
        error,
        ..
    } = event
    {
        let ended = ended(*status, *elapsed_ms, error.as_ref());
        let next = next_node.as_ref().map(|next| format!(" → {next}"));
        return Some(format!(
            "step {step} {node} {ended}{}",
            next.unwrap_or_default()
        ));
    }
    if let GraphEvent::ItemStarted {
        step,
        node,
        item,
        attempt,
        action_id,
        child,
        ..
    } = event
    {
        let child = child.as_ref().map(|child| format!(", as {child}"));
        let name = tried(&format!("{node}[{item}]"), *attempt);
        let child = child.unwrap_or_default();
        return Some(format!("step {step} {name} runs {action_id}{child}"));
    }
    let GraphEvent::ItemCompleted {
        step,
        node,
        item,
        status,
        elapsed_ms,
        error,
        ..
    } = event
    else {
        return None;
    };
    let ended = ended(*status, *elapsed_ms, error.as_ref());
    Some(format!("step {step} {node}[{item}] {ended}"))
}

/// How a step or an item ended: `error after 14ms: no route`.
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
