//! The call of a model that is in flight, as far as it was heard.

use std::sync::Arc;

use crate::conversation::Block;
use crate::model::thread::{Class, MessagePart};
use crate::model::{Failure, Object};
use crate::provider::Received;
use crate::provider::failure::Charge;
use crate::provider::stream::{self, Arguments, Ended, Refused};

/// The longest pause that a provider may ask for; a longer one is for people to decide on.
pub(super) const LONGEST_PAUSE_MS: u64 = 300_000;

/// What is heard of a model that speaks.
#[derive(Debug, Clone, PartialEq)]
pub enum ModelSignal {
    /// A text or a thought is complete.
    Part(stream::BlockPart),
    /// A call of a tool is complete.
    Call(stream::Call),
    /// The message is complete.
    Complete {
        /// All of it.
        ended: Box<Ended>,
        /// By which the provider finds the call again.
        request_id: Option<String>,
    },
    /// There will be no message, or no more of it.
    Failed(Box<CallFailure>),
    /// The call was cut because its run stops. It had received this.
    Stopped(Received),
}

/// Why a call of a model failed.
#[derive(Debug, Clone, PartialEq)]
pub struct CallFailure {
    /// What happened.
    pub failure: Failure,
    /// What becomes of it.
    pub class: Class,
    /// What it is charged at.
    pub charge: Charge,
    /// The part of the answer that arrived.
    pub received: Received,
    /// The pause before another try, in milliseconds.
    pub pause_ms: u64,
}

/// What was heard of the model so far.
#[derive(Debug, Clone, Default)]
pub(super) struct PartialMessage {
    /// The complete parts of the message.
    pub(super) parts: Vec<Arc<MessagePart>>,
    /// Its calls, in their order.
    pub(super) calls: Vec<StreamedCall>,
    /// Calls that are not carried out because of the form in which they came, by their ids, and what they are answered.
    pub(super) bad: Vec<(String, Refused)>,
}

/// A call that the model asks for while it speaks.
#[derive(Debug, Clone)]
pub(super) struct StreamedCall {
    pub(super) position: u32,
    pub(super) id: String,
    pub(super) name: String,
    pub(super) input: Arc<Object>,
    /// How many parts the message has with it.
    pub(super) parts: usize,
}

impl PartialMessage {
    pub(super) fn ask(&mut self, call: stream::Call) {
        let position = u32::try_from(self.calls.len() + self.bad.len()).unwrap_or(u32::MAX);
        let block = call.block();
        let input = match call.arguments {
            Arguments::Object(input) => input,
            Arguments::Refused(refused) => {
                // Only the end of the message answers it, so no call that starts before may bring it along.
                self.bad.push((call.id, refused));
                return;
            }
        };
        self.parts.push(Arc::new(MessagePart {
            block,
            raw: call.raw,
        }));
        self.calls.push(StreamedCall {
            position,
            id: call.id,
            name: call.name,
            input: Arc::new(input),
            parts: self.parts.len(),
        });
    }
}

pub(super) fn reasoning(blocks: &[Block]) -> String {
    let thoughts = blocks.iter().filter_map(|block| match block {
        Block::Thinking { text } => Some(text.as_str()),
        Block::Text { .. } | Block::Call { .. } | Block::Result { .. } => None,
    });
    thoughts.collect::<Vec<_>>().join("\n\n")
}
