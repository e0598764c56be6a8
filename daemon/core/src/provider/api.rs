//! API-specific parts: the body of a request, and the decoding of stream events.

mod anthropic;
mod openai_chat;

use super::choice::ResolvedModel;
use super::protocol::Api;
use super::stream::{Ended, Fault, StreamSignal};
use crate::conversation::{Conversation, Message, Raw};

/// A conversation in the form of its API. Bytes of a pushed message never change: each body begins with the whole
/// previous one, except for cache breakpoints, which are not content.
#[derive(Debug, Clone)]
pub struct Wire(Sent);

#[derive(Debug, Clone)]
enum Sent {
    Anthropic(anthropic::Wire),
    OpenaiChat(openai_chat::Wire),
}

impl Wire {
    /// Encodes a conversation for `model`.
    pub fn new(conversation: &Conversation, model: &ResolvedModel) -> Self {
        let root = &conversation.root;
        let mut wire = Self(match model.api {
            Api::Anthropic => Sent::Anthropic(anthropic::Wire::begin(root)),
            Api::OpenaiChat => Sent::OpenaiChat(openai_chat::Wire::begin(root, model.quirks)),
        });
        for message in &conversation.messages {
            wire.push(message);
        }
        wire
    }

    pub fn push(&mut self, message: &Message) {
        match &mut self.0 {
            Sent::Anthropic(wire) => wire.push(message),
            Sent::OpenaiChat(wire) => wire.push(message),
        }
    }

    /// Returns the body of a request for an answer of at most `max_output` tokens.
    pub fn body(&self, model: &ResolvedModel, max_output: u32) -> String {
        match &self.0 {
            Sent::Anthropic(wire) => wire.body(model, max_output),
            Sent::OpenaiChat(wire) => wire.body(model, max_output),
        }
    }
}

/// Decoder of one answer. The API's decoder interprets events; this one ensures that the answer ends once.
#[derive(Debug)]
pub struct Decoder {
    decoder: ApiDecoder,
    is_over: bool,
}

#[derive(Debug)]
enum ApiDecoder {
    Anthropic(anthropic::Decoder),
    OpenaiChat(openai_chat::Decoder),
}

impl Decoder {
    /// Creates a decoder for the answer of `model` to the call of turn `turn`.
    pub fn new(model: &ResolvedModel, turn: u32) -> Self {
        let reading = match model.api {
            Api::Anthropic => {
                ApiDecoder::Anthropic(anthropic::Decoder::new(model.quirks.end, turn))
            }
            Api::OpenaiChat => {
                ApiDecoder::OpenaiChat(openai_chat::Decoder::new(model.quirks, turn))
            }
        };
        Self {
            decoder: reading,
            is_over: false,
        }
    }

    /// Decodes the data of an event and appends the signals. Errors contain none of `secrets`. Nothing is appended
    /// after [`StreamSignal::Ended`] or [`StreamSignal::Broken`].
    pub fn event(&mut self, data: &str, secrets: &[&str], signals: &mut Vec<StreamSignal>) {
        if self.is_over {
            return;
        }
        let read = match &mut self.decoder {
            ApiDecoder::Anthropic(decoder) => decoder.event(data, secrets, signals),
            ApiDecoder::OpenaiChat(decoder) => decoder.event(data, secrets, signals),
        };
        if let Some(end) = read.transpose() {
            self.end(end, signals);
        }
    }

    /// Ends the answer after the complete body.
    pub fn finish(&mut self, signals: &mut Vec<StreamSignal>) {
        if self.is_over {
            return;
        }
        let end = match &mut self.decoder {
            ApiDecoder::Anthropic(decoder) => decoder.finish(signals),
            ApiDecoder::OpenaiChat(decoder) => decoder.finish(signals),
        };
        self.end(end, signals);
    }

    fn end(&mut self, end: Result<Ended, Fault>, signals: &mut Vec<StreamSignal>) {
        self.is_over = true;
        signals.push(match end {
            Ok(ended) => StreamSignal::Ended(ended),
            Err(fault) => StreamSignal::Broken(fault),
        });
    }
}

/// Joins complete parts of a broken stream to the raw message that is sent back. Returns `None` if the API builds it
/// from blocks.
pub fn assemble<'a>(api: Api, parts: impl IntoIterator<Item = &'a str>) -> Option<Raw> {
    match api {
        Api::Anthropic => anthropic::assemble(parts),
        Api::OpenaiChat => None,
    }
}
