//! One call of the model, from its body to its end.
//!
//! **Order.** Model output is sent to listeners as it arrives, and before the machine is notified that a part is
//! complete.

use rye_core::conversation::Message;
use rye_core::error::with_sources;
use rye_core::machine::{Call, CallOutcome};
use rye_core::model::thread::Class;
use rye_core::model::{Failure, KillReceipt};
use rye_core::provider::Received;
use rye_core::provider::failure::Charge;
use rye_core::provider::stream::StreamSignal;
use rye_core::thread::{CallFailure, ModelSignal};
use serde_json::Value;

use super::ThreadRun;
use super::delta_stream::DeltaStream;
use crate::drive::Reports;
use crate::provider::{self, Trouble};
use crate::services::Ended;
use crate::stop::Stop;

/// Calls the model, and reports its output. A stopped call closes its connection, which the provider notices.
pub(super) async fn carry_out(
    thread: &ThreadRun,
    call: &Call,
    stop: &Stop,
    reports: &Reports<ModelSignal>,
) -> Ended {
    let ended = Ended::Outcome(Box::new(CallOutcome::known(Value::Null)));
    let model = &thread.terms.contract.model;
    let place = thread.take_permit();
    let body = body(thread).await;
    let (place, (body, mut voice)) = match (place, body) {
        (Some(place), Ok(body)) => (place, body),
        (None, Ok(_)) => {
            let failure = Failure::permanent("internal", "the model was called without a place");
            reports.send(unsent(failure)).await;
            return ended;
        }
        (_, Err(failure)) => {
            reports.send(unsent(failure)).await;
            return ended;
        }
    };
    let mut answer = place.call(model, &thread.terms.errors, call.step, body);
    let clock = &thread.at.services.clock;
    let due = call.timeout.map(|left| clock.up().plus(left));
    let late = async {
        match due {
            Some(due) => clock.sleep_until(due).await,
            None => std::future::pending().await,
        }
    };
    let mut late = std::pin::pin!(late);
    let mut stopped = std::pin::pin!(stop.due());
    loop {
        let heard = tokio::select! {
            biased;
            () = &mut stopped => {
                voice.reset();
                reports.send(ModelSignal::Stopped(answer.received())).await;
                return Ended::Stopped(KillReceipt::default());
            }
            () = &mut late => {
                voice.reset();
                reports.send(cut(answer.received())).await;
                return ended;
            }
            () = voice.joined() => continue,
            heard = answer.next() => heard,
        };
        match heard {
            Some(provider::CallProgress::Signal(signal)) => {
                voice.send(&signal);
                if let Some(heard) = complete(signal) {
                    reports.send(heard).await;
                }
            }
            Some(provider::CallProgress::Message(message)) => {
                let complete = ModelSignal::Complete {
                    ended: Box::new(message.ended),
                    request_id: message.request_id,
                };
                reports.send(complete).await;
            }
            Some(provider::CallProgress::Failed(failure)) => {
                voice.reset();
                let jitter = jitter(thread);
                let received = answer.received();
                reports
                    .send(failed(thread, &failure, received, jitter))
                    .await;
            }
            None => return ended,
        }
    }
}

/// Body of the request: the conversation, and the new messages of this turn. Also returns the stream of the model's
/// output for listeners.
async fn body(thread: &ThreadRun) -> Result<(String, DeltaStream), Failure> {
    let journal = &thread.at.services.journal;
    let record = journal.snapshot(&thread.at.run);
    let known = record.as_ref().and_then(|record| {
        let state = record.thread()?;
        Some((record.seq, state.head.as_ref()?, state.turn()?))
    });
    let no_turn = || Failure::permanent("internal", "no turn has begun");
    let (seq, head, turn) = known.ok_or_else(no_turn)?;
    let voice = DeltaStream::new(journal, &thread.at.run, seq, turn);
    let told: Vec<Message> = turn
        .texts
        .iter()
        .map(|told| Message::text(told.source, told.text.clone()))
        .collect();
    let model = &thread.terms.contract.model;
    let body = thread
        .conversation
        .body(head, &told, model, turn.max_output);
    Ok((body.await?, voice))
}

/// The report to the machine for a signal that completes a part.
fn complete(signal: StreamSignal) -> Option<ModelSignal> {
    match signal {
        StreamSignal::Block(part) => Some(ModelSignal::Part(part)),
        StreamSignal::CallReady(call) => Some(ModelSignal::Call(call)),
        StreamSignal::Begun { .. }
        | StreamSignal::Text { .. }
        | StreamSignal::Thinking { .. }
        | StreamSignal::CallBegun { .. }
        | StreamSignal::CallArgs { .. }
        | StreamSignal::Usage(_)
        | StreamSignal::Stopped(_)
        | StreamSignal::Ended(_)
        | StreamSignal::Broken(_) => None,
    }
}

/// Random fraction of the pause, in thousandths, so that many threads do not retry at once.
fn jitter(thread: &ThreadRun) -> u16 {
    u16::try_from(thread.at.services.journal.random() % 1001).unwrap_or_default()
}

fn failed(
    thread: &ThreadRun,
    failure: &provider::Failure,
    received: Received,
    jitter: u16,
) -> ModelSignal {
    let record = thread.at.services.journal.snapshot(&thread.at.run);
    let turn = record.as_ref().and_then(|record| record.thread()?.turn());
    let before = turn.map_or(0, |turn| turn.retries);
    let verdict = &failure.verdict;
    let pause = verdict.pause(before.into(), jitter);
    let told = Failure {
        retryable: verdict.is_retryable(),
        ..Failure::permanent(
            code(&failure.trouble, verdict.class),
            with_sources(&failure.trouble),
        )
    };
    ModelSignal::Failed(Box::new(CallFailure {
        failure: told,
        class: verdict.class,
        charge: verdict.charge,
        received,
        pause_ms: u64::try_from(pause.as_millis()).unwrap_or(u64::MAX),
    }))
}

/// Error code for programs: the provider's own, or the class of the failure.
fn code(trouble: &Trouble, class: Class) -> &str {
    match trouble {
        Trouble::Reported(error) if !error.kind.is_empty() => &error.kind,
        Trouble::Unreadable(_) => "unreadable_answer",
        Trouble::Reported(_) | Trouble::Met(_) => match class {
            Class::Transient | Class::Interrupted => "provider_unavailable",
            Class::RateLimited => "rate_limited",
            Class::Quota => "quota_exceeded",
            Class::Context => "context_exhausted",
            Class::Reasoning | Class::Permanent => "provider_error",
        },
    }
}

/// Failure of a call that was cut at the time limit of the thread.
fn cut(received: Received) -> ModelSignal {
    let text = "the time of the thread was over before the answer was complete";
    ModelSignal::Failed(Box::new(CallFailure {
        failure: Failure::permanent("timeout", text),
        class: Class::Interrupted,
        charge: Charge::Known,
        received,
        pause_ms: 0,
    }))
}

/// Failure of a call that was never sent.
fn unsent(failure: Failure) -> ModelSignal {
    ModelSignal::Failed(Box::new(CallFailure {
        failure,
        class: Class::Permanent,
        charge: Charge::Nothing,
        received: Received::default(),
        pause_ms: 0,
    }))
}
