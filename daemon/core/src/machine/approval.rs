//! Calls that need the answer of a person before they start: those that a rule names, and questions of models.
//!
//! **Order.** A call is checked here after everything that could refuse it, and immediately before its start. So nobody
//! is asked about a call that could not start, and what starts is what the answer was about: a call that has changed
//! since gets another question. A call in flight is never asked about again. **Never** waits: the machine of the run
//! leaves a call with an open question out, and suspends the run when nothing else is left to do.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Call, CallOutcome};
use crate::capability::{self, Primary};
use crate::cas::InputHashes;
use crate::clock::Timestamp;
use crate::definition::duration;
use crate::id::{ItemKind, ItemRef};
use crate::model::event::ApprovalInvalidated;
use crate::model::{
    Approval, ApprovalAnswer, ApprovalKind, ApprovalRule, Failure, Object, OnExpiry, Requested,
    Run, RunEvent, RunKind, Slot, Spec,
};
use crate::printable;
use crate::seal::sha256_hex;

/// Tool by which a model puts a question.
pub const ASK: &str = "rye/agent/threads/ask";
/// Code of the failure of a call about which nobody answered in time.
pub const APPROVAL_EXPIRED: &str = "approval_expired";
/// Limit of the choices of a question.
const MOST_CHOICES: usize = 20;

/// Decision about a call that was looked up.
#[derive(Debug, Clone, PartialEq)]
pub enum Gate {
    Start,
    /// It waits for the answer to the question in these events.
    Ask(Vec<RunEvent>),
    /// Its question is open.
    Wait,
    /// It does not start; this is its outcome.
    End(Box<CallOutcome>),
}

/// A question about a call.
struct Question {
    kind: ApprovalKind,
    message: String,
    schema: Option<Arc<Value>>,
    expires: Option<Duration>,
    on_expiry: OnExpiry,
}

/// Decides whether `call` of `run` may start, which runs on contents with these hashes. `created` is the item of the child
/// run that it starts; a tool may start one for another item.
pub fn gate(
    run: &Run,
    call: &Call,
    created: Option<&ItemRef>,
    hashes: &InputHashes,
    now: Timestamp,
) -> Gate {
    let calls_model = run.spec.kind() == RunKind::Thread && call.slot == Slot::Main;
    if call.attached.is_some() || calls_model {
        return Gate::Start;
    }
    let question = match question(run, call, created) {
        Ok(Some(question)) => question,
        Ok(None) => return Gate::Start,
        Err(problem) => return refused("invalid_params", problem),
    };
    if let Slot::Hook(_) = call.slot {
        let text = format!(
            "`{}` needs an approval, for which a hook cannot wait",
            call.item
        );
        return refused("approval_needed", text);
    }
    let digest = digest(hashes);
    let mut events = Vec::new();
    if let Some(asked) = run.approvals.of_call(call.step, call.slot) {
        if asked.approval.digest.as_deref() == Some(&*digest) {
            return after(asked);
        }
        let id = Arc::clone(&asked.approval.id);
        events.push(RunEvent::ApprovalInvalidated(ApprovalInvalidated { id }));
    }
    let seq = (0..events.len()).fold(run.seq.next(), |seq, _| seq.next());
    let approval = Approval {
        schema: question.schema,
        node: Some(call.node.clone()).filter(|node| !node.is_empty()),
        step: Some(call.step),
        slot: Some(call.slot),
        expires_at: question.expires.map(|expires| now.plus(expires)),
        on_expiry: question.on_expiry,
        digest: Some(digest),
        // A step that has not begun keeps its time, which its parameters may have.
        created_at: if call.slot == Slot::Main {
            call.now
        } else {
            now
        },
        ..Approval::new(&run.id, seq, now, question.kind, &question.message)
    };
    events.push(RunEvent::ApprovalRequested(approval));
    Gate::Ask(events)
}

/// True if a person is asked about calls of `item` before they start.
pub fn asks(spec: &Spec, primary: Primary, item: &ItemRef) -> bool {
    let item = item.canonical();
    is_question(primary, &item) || rule(spec, primary, &item).is_some()
}

fn is_question(primary: Primary, item: &ItemRef) -> bool {
    primary == Primary::Execute && item.kind == ItemKind::Tool && item.id.as_str() == ASK
}

/// Returns the first rule that names that action on `item`.
fn rule<'s>(spec: &'s Spec, primary: Primary, item: &ItemRef) -> Option<&'s ApprovalRule> {
    let mut rules = spec.approvals.iter();
    rules.find(|rule| capability::covers_action(&rule.pattern, primary, item))
}

fn refused(code: &'static str, text: String) -> Gate {
    let failure = Failure::permanent(code, text).decided();
    Gate::End(Box::new(CallOutcome::never_started(failure)))
}

/// Hash over a call and the contents that it runs on.
fn digest(hashes: &InputHashes) -> String {
    debug_assert!(hashes.call.is_some(), "the answer is about a known call");
    let (call, chain) = (hashes.call.as_deref(), hashes.chain.as_deref());
    sha256_hex(json!(["rye-approval-of/1", call, chain]).to_string())
}

/// Returns what follows for a call whose question is `asked`.
fn after(asked: &Requested) -> Gate {
    match &asked.answer {
        None if asked.is_open() => Gate::Wait,
        None => {
            let outcome = CallOutcome::never_started(expired(&asked.approval));
            Gate::End(Box::new(outcome))
        }
        Some((answer, _)) if !answer.approved => {
            Gate::End(Box::new(CallOutcome::never_started(answer.denial())))
        }
        Some((answer, at)) if asked.approval.kind == ApprovalKind::Question => {
            Gate::End(Box::new(CallOutcome::known(said(answer, *at))))
        }
        Some(_) => Gate::Start,
    }
}

/// Failure of a call about which nobody has answered in time.
pub(crate) fn expired(approval: &Approval) -> Failure {
    let at = approval.expires_at.unwrap_or_default();
    Failure::permanent(APPROVAL_EXPIRED, format!("expired at {at}: no answer")).decided()
}

/// Result of a question of a model.
fn said(answer: &ApprovalAnswer, at: Timestamp) -> Value {
    json!({
        "success": true,
        "answer": answer.answer,
        "comment": answer.comment,
        "by": answer.by,
        "at": at.to_string(),
    })
}

/// Returns the question about `call`; `None` if it needs no answer. The error states which parameter is wrong.
fn question(run: &Run, call: &Call, created: Option<&ItemRef>) -> Result<Option<Question>, String> {
    let item = call.item.canonical();
    if is_question(call.primary, &item) {
        return asked_by_model(&call.params).map(Some);
    }
    let mut items = std::iter::once(&item).chain(created);
    let rule = items.find_map(|item| rule(&run.spec, call.primary, item));
    Ok(rule.map(|rule| Question {
        kind: ApprovalKind::Call,
        message: message(&item, &call.params),
        schema: None,
        expires: rule.expires_ms.map(Duration::from_millis),
        on_expiry: rule.on_expiry,
    }))
}

fn message(item: &ItemRef, params: &Object) -> String {
    let params = Value::Object(params.clone()).to_string();
    format!(
        "Execute `{item}` with {}?",
        printable::escape_invisible(&params, &[])
    )
}

/// Reads the parameters of the tool by which a model puts a question.
fn asked_by_model(params: &Object) -> Result<Question, String> {
    let text = |key: &str| params.get(key).and_then(Value::as_str);
    let message = text("question")
        .map(str::trim)
        .filter(|text| !text.is_empty());
    let message = message.ok_or("`question` must be a text that is not empty")?;
    if message.chars().count() > Approval::MESSAGE_CHARS {
        let most = Approval::MESSAGE_CHARS;
        return Err(format!("`question` has at most {most} characters"));
    }
    let schema = match params.get("choices") {
        None | Some(Value::Null) => Some(json!({"type": "string"})),
        Some(Value::Array(choices)) if (1..=MOST_CHOICES).contains(&choices.len()) => {
            Some(json!({"enum": choices}))
        }
        Some(_) => {
            return Err(format!(
                "`choices` must be a list of 1 to {MOST_CHOICES} values"
            ));
        }
    };
    let expires = params.get("expires").filter(|expires| !expires.is_null());
    let expires = expires.map(duration).transpose();
    let on_expiry = match params.get("on_expiry") {
        None | Some(Value::Null) => OnExpiry::Deny,
        Some(given) => {
            let words = OnExpiry::WORDS;
            let found = words.iter().find(|(word, _)| given.as_str() == Some(word));
            let (_, found) = found.ok_or("`on_expiry` must be `keep`, `deny` or `fail`")?;
            *found
        }
    };
    Ok(Question {
        kind: ApprovalKind::Question,
        message: printable::escape_invisible(message, &['\n', '\t']),
        schema: schema.map(Arc::new),
        expires: expires.map_err(|problem| format!("`expires` {problem}"))?,
        on_expiry,
    })
}

#[cfg(test)]
mod tests;
