//! The end of a turn: its entry in the conversation, and the consequences of the message.

use std::sync::Arc;

use serde_json::Value;

use crate::clock::Timestamp;
use crate::conversation::{Block, Digest, Entry, Message, Source, Stop};
use crate::machine::Move;
use crate::model::event::{CognitionIn, StepFinish, Warning};
use crate::model::thread::{CallAt, ReturnStatus, Returned, Turn};
use crate::model::{Event, Failure, Outcome};

use super::calls::is_refusal;
use super::live::ThreadMachine;
use super::query::ThreadQuery;

/// Limit of the reminders to a model of its required outputs.
const MOST_NUDGES: u8 = 2;
/// Limit of the requests to a model to continue an answer that was too long.
const MOST_LENGTHS: u8 = 3;
/// Bytes above which an answer is not continued: the record holds its text until the end.
const MOST_UNFINISHED: usize = 4 << 20;

/// The consequence of a message.
enum Next {
    Turn,
    /// Another turn, which begins with this text.
    Deliver(Source, String),
    End(Outcome),
}

impl ThreadMachine {
    /// Stores the entry of the turn: all of its calls have ended. A refusal of the model is not part of the
    /// conversation.
    pub(super) fn close_turn(&mut self, now: Timestamp, turn: &Turn) -> Move<ThreadQuery> {
        if is_refusal(turn) {
            let failure = Failure::permanent("refused", "the model refused to answer");
            return Move::End(self.fail(now, failure));
        }
        let head = self.state().head.expect("a turn follows the prompt");
        let entry = Entry::turn(head, turn.number, messages(turn));
        Move::Query(Vec::new(), Box::new(ThreadQuery::Keep(entry)))
    }

    /// The entry of the turn is on disk.
    pub(super) fn kept(&mut self, now: Timestamp, head: Digest) -> Vec<Event> {
        let Some(turn) = self.acted() else {
            return Vec::new();
        };
        let mut events = Vec::new();
        let next = self.next_after(&turn);
        let finished = StepFinish {
            turn: turn.number,
            head,
            tokens: self.state().used.tokens,
            calls: u32::try_from(turn.calls.len()).unwrap_or(u32::MAX),
            duration_ms: now.ms_since(turn.now),
        };
        self.record(now, &mut events, finished);
        match next {
            Next::Turn => {}
            Next::Deliver(source, text) => {
                let told = CognitionIn {
                    turn: turn.number + 1,
                    source,
                    text,
                };
                self.record(now, &mut events, told);
            }
            Next::End(outcome) => {
                self.warn_of_cut(now, &mut events, &outcome);
                let end = self.run.ending(now, outcome);
                self.rest(now, &mut events, end);
            }
        }
        events
    }

    fn next_after(&self, turn: &Turn) -> Next {
        if let Some(returned) = &self.state().returned {
            return Next::End(outcome_of(returned));
        }
        if let Some(end) = self.goes_round(turn) {
            return end;
        }
        if !turn.calls.is_empty() {
            return Next::Turn;
        }
        match turn.stop() {
            Some(Stop::Pause) if self.may_be_longer(turn) => Next::Turn,
            Some(Stop::Length)
                if self.state().lengths < MOST_LENGTHS && self.may_be_longer(turn) =>
            {
                Next::Deliver(
                    Source::Continuation,
                    "Continue where you stopped.".to_owned(),
                )
            }
            Some(Stop::Window) => fail("context_exhausted", "the context of the model is full"),
            Some(Stop::BadCall) if self.state().nudges < MOST_NUDGES => {
                let text = "Your call of a tool could not be read. Call the tool again, with arguments that fit its schema.";
                Next::Deliver(Source::Nudge, text.to_owned())
            }
            Some(Stop::BadCall) => fail(
                "bad_call",
                "the model called tools in a way that cannot be read",
            ),
            Some(Stop::End | Stop::Calls | Stop::Length | Stop::Pause | Stop::Refusal) | None => {
                self.last_word(turn)
            }
        }
    }

    /// Returns the failure of a model that keeps making one call although it is refused.
    fn goes_round(&self, turn: &Turn) -> Option<Next> {
        let most = self.contract().repeated_calls.saturating_mul(2);
        let times = self.repeats(turn).into_iter().max()?;
        let text = format!("the model made the same call {times} times in a row");
        (most > 0 && times >= most).then(|| fail("repeated_calls", &text))
    }

    /// Decides the consequence of a message without calls: a turn if a message waits, a reminder if outputs are
    /// missing, else the end.
    fn last_word(&self, turn: &Turn) -> Next {
        if !self.state().queue.is_empty() {
            return Next::Turn;
        }
        let outputs = &self.contract().directive.directive.outputs;
        let missing: Vec<&str> = outputs.iter().map(|output| output.name.as_str()).collect();
        if !missing.is_empty() && self.state().nudges < MOST_NUDGES {
            let text = format!(
                "You have not returned your outputs. Call the tool `directive_return` with {}.",
                missing.join(", ")
            );
            return Next::Deliver(Source::Nudge, text);
        }
        if outputs.iter().any(|output| output.required) {
            let text = format!("the model ended without returning {}", missing.join(", "));
            return fail("outputs_missing", &text);
        }
        Next::End(Outcome::Completed {
            output: Arc::new(Value::String(self.state().whole_text(turn))),
        })
    }

    fn may_be_longer(&self, turn: &Turn) -> bool {
        self.state().whole_text(turn).len() < MOST_UNFINISHED
    }

    /// Warns if the text that the thread returns lacks its end.
    fn warn_of_cut(&mut self, now: Timestamp, events: &mut Vec<Event>, outcome: &Outcome) {
        let is_text = matches!(outcome, Outcome::Completed { output } if output.is_string());
        if is_text && self.state().is_cut_short {
            let message = "the result is incomplete: the answer of the model was cut off by its length, and is not continued any more; \
                           a higher `max_output` of the model allows longer answers";
            let (node, message) = (None, message.to_owned());
            self.record(now, events, Warning { node, message });
        }
    }
}

fn fail(code: &str, text: &str) -> Next {
    Next::End(Outcome::Error {
        error: Failure::permanent(code, text),
    })
}

fn outcome_of(returned: &Returned) -> Outcome {
    match returned.status {
        ReturnStatus::Success => Outcome::Completed {
            output: Arc::new(Value::Object(returned.outputs.clone())),
        },
        ReturnStatus::Error => {
            let text = returned.error_detail.as_deref();
            let text = text.unwrap_or("the model says that it could not do its task");
            Outcome::Error {
                error: Failure::permanent("directive_error", text),
            }
        }
    }
}

/// Returns the messages of the turn: the texts that the model received first, its message, and the results in the order
/// of its calls.
fn messages(turn: &Turn) -> Vec<Message> {
    let told = turn
        .texts
        .iter()
        .map(|told| Message::text(told.source, told.text.clone()));
    let said = turn.said.iter().map(|said| Message::clone(said));
    let results: Vec<Block> = turn
        .calls
        .iter()
        .filter_map(|call| match &call.at {
            CallAt::Done(answered) => Some(Block::Result {
                id: call.id.clone(),
                content: answered.content.clone(),
                is_error: answered.is_error,
            }),
            CallAt::Ready | CallAt::Running { .. } => None,
        })
        .collect();
    let results = (!results.is_empty()).then_some(Message::User {
        source: Source::Tools,
        blocks: results,
    });
    told.chain(said).chain(results).collect()
}
