//! After a turn: its entry in the conversation, and what follows from the message.

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

/// How often a model is reminded of what it has to return.
const MOST_NUDGES: u8 = 2;
/// How often a model is asked to continue an answer that was too long.
const MOST_LENGTHS: u8 = 3;
/// Bytes from which on an answer is not continued: the record holds its text until the end.
const MOST_UNFINISHED: usize = 4 << 20;

/// What follows from a message.
enum Next {
    /// Another turn.
    Turn,
    /// Another turn, which begins with this.
    Tell(Source, String),
    /// The thread has ended.
    End(Outcome),
}

impl ThreadMachine {
    /// All calls of the turn have ended: its entry is to be kept. What a model said that refused is no part of the conversation.
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
            Next::Tell(source, text) => {
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
                Next::Tell(
                    Source::Continuation,
                    "Continue where you stopped.".to_owned(),
                )
            }
            Some(Stop::Window) => fail("context_exhausted", "the context of the model is full"),
            Some(Stop::BadCall) if self.state().nudges < MOST_NUDGES => {
                let text = "Your call of a tool could not be read. Call the tool again, with arguments that fit its schema.";
                Next::Tell(Source::Nudge, text.to_owned())
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

    /// The end of a model that makes one call for ever, although it is asked not to.
    fn goes_round(&self, turn: &Turn) -> Option<Next> {
        let most = self.contract().repeated_calls.saturating_mul(2);
        let times = self.repeats(turn).into_iter().max()?;
        let text = format!("the model made the same call {times} times in a row");
        (most > 0 && times >= most).then(|| fail("repeated_calls", &text))
    }

    /// The model has nothing more to do, unless somebody has said something. What it was to return may be missing.
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
            return Next::Tell(Source::Nudge, text);
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

    /// Warns if the text that the thread gives back lacks its end.
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
            let text = text.unwrap_or("the model says that it could not do what it was asked for");
            Outcome::Error {
                error: Failure::permanent("directive_error", text),
            }
        }
    }
}

/// What was said in the turn: what the model received first, its message, and the results in the order of its calls.
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
