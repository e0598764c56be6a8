//! The model call in flight, with the parts received so far.

use std::sync::Arc;

use crate::conversation::Block;
use crate::model::thread::{Class, MessagePart};
use crate::model::{Failure, Object};
use crate::provider::Received;
use crate::provider::failure::Charge;
use crate::provider::stream::{self, Arguments, Ended, Refused};

/// The longest pause that a provider may request; on a longer one a person decides.
pub(super) const LONGEST_PAUSE_MS: u64 = 300_000;

/// A signal of a streaming model.
#[derive(Debug, Clone, PartialEq)]
pub enum ModelSignal {
    /// A text or a thought is complete.
    Part(stream::BlockPart),
    /// A call of a tool is complete.
    Call(stream::Call),
    /// The message is complete.
    Complete {
        /// The whole message.
        ended: Box<Ended>,
        /// Id by which the provider finds the call again.
        request_id: Option<String>,
    },
    /// There will be no message, or no more of it.
    Failed(Box<CallFailure>),
    /// The call was cut because its run stops. These parts had arrived.
    Stopped(Received),
}

/// The failure of a model call.
#[derive(Debug, Clone, PartialEq)]
pub struct CallFailure {
    pub failure: Failure,
    /// The class, which decides what follows.
    pub class: Class,
    /// The charge of the call.
    pub charge: Charge,
    /// The part of the answer that arrived.
    pub received: Received,
    /// The pause before another try, in milliseconds.
    pub pause_ms: u64,
}

/// The parts of the answer so far.
#[derive(Debug, Clone, Default)]
pub(super) struct PartialMessage {
    /// The complete parts of the message.
    pub(super) parts: Vec<Arc<MessagePart>>,
    /// Its calls, in their order.
    pub(super) calls: Vec<StreamedCall>,
    /// Calls that are refused because of their invalid form, by their ids, with the answers.
    pub(super) bad: Vec<(String, Refused)>,
}

/// A call that the model requests while it streams.
#[derive(Debug, Clone)]
pub(super) struct StreamedCall {
    pub(super) position: u32,
    pub(super) id: String,
    pub(super) name: String,
    pub(super) input: Arc<Object>,
    /// Number of parts of the message up to this call.
    pub(super) parts: usize,
}

impl PartialMessage {
    pub(super) fn ask(&mut self, call: stream::Call) {
        let position = u32::try_from(self.calls.len() + self.bad.len()).unwrap_or(u32::MAX);
        let block = call.block();
        let input = match call.arguments {
            Arguments::Object(input) => input,
            Arguments::Refused(refused) => {
                // Only the end of the message answers it, so no call that starts before may record it.
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
