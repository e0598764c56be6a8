//! What is special to an api: the body of a request, and what the events of its streams mean.

mod anthropic;
mod openai_chat;

use super::choice::ResolvedModel;
use super::protocol::Api;
use super::stream::{Ended, Fault, Signal};
use crate::conversation::{Conversation, Message, Raw};

/// A conversation as it is sent. A message that was pushed keeps its bytes: each body begins with all of the one before, but for
/// the marks of a cache, which are no content.
#[derive(Debug, Clone)]
pub struct Wire(Sent);

#[derive(Debug, Clone)]
enum Sent {
    Anthropic(anthropic::Wire),
    OpenaiChat(openai_chat::Wire),
}

impl Wire {
    /// A conversation as it is sent to `model`.
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

    /// Adds a message.
    pub fn push(&mut self, message: &Message) {
        match &mut self.0 {
            Sent::Anthropic(wire) => wire.push(message),
            Sent::OpenaiChat(wire) => wire.push(message),
        }
    }

    /// The body of a request for an answer of at most `max_output` tokens.
    pub fn body(&self, model: &ResolvedModel, max_output: u32) -> String {
        match &self.0 {
            Sent::Anthropic(wire) => wire.body(model, max_output),
            Sent::OpenaiChat(wire) => wire.body(model, max_output),
        }
    }
}

/// Reads the events of one answer. What an event means, its api says; when the answer is over, this one.
#[derive(Debug)]
pub struct Decoder {
    reading: Reading,
    is_over: bool,
}

#[derive(Debug)]
enum Reading {
    Anthropic(anthropic::Decoder),
    OpenaiChat(openai_chat::Decoder),
}

impl Decoder {
    /// A decoder for the answer of `model` to the call of a turn.
    pub fn new(model: &ResolvedModel, turn: u32) -> Self {
        let reading = match model.api {
            Api::Anthropic => Reading::Anthropic(anthropic::Decoder::new(model.quirks.end, turn)),
            Api::OpenaiChat => Reading::OpenaiChat(openai_chat::Decoder::new(model.quirks, turn)),
        };
        Self {
            reading,
            is_over: false,
        }
    }

    /// Reads the data of an event, and adds what it says to `signals`. None of `secrets` is in what an error says. After
    /// [`Signal::Ended`] and [`Signal::Broken`] nothing is added.
    pub fn event(&mut self, data: &str, secrets: &[&str], signals: &mut Vec<Signal>) {
        if self.is_over {
            return;
        }
        let read = match &mut self.reading {
            Reading::Anthropic(decoder) => decoder.event(data, secrets, signals),
            Reading::OpenaiChat(decoder) => decoder.event(data, secrets, signals),
        };
        if let Some(end) = read.transpose() {
            self.end(end, signals);
        }
    }

    /// The body ended as it should.
    pub fn finish(&mut self, signals: &mut Vec<Signal>) {
        if self.is_over {
            return;
        }
        let end = match &mut self.reading {
            Reading::Anthropic(decoder) => decoder.finish(signals),
            Reading::OpenaiChat(decoder) => decoder.finish(signals),
        };
        self.end(end, signals);
    }

    fn end(&mut self, end: Result<Ended, Fault>, signals: &mut Vec<Signal>) {
        self.is_over = true;
        signals.push(match end {
            Ok(ended) => Signal::Ended(ended),
            Err(fault) => Signal::Broken(fault),
        });
    }
}

/// The message that complete parts of a broken stream make, as it is sent back; `None` if it is put together from its blocks.
pub fn assemble<'a>(api: Api, parts: impl IntoIterator<Item = &'a str>) -> Option<Raw> {
    match api {
        Api::Anthropic => anthropic::assemble(parts),
        Api::OpenaiChat => None,
    }
}
