//! What the events of a stream mean.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::conversation::{Block, Raw, Stop};
use crate::provider::failure::ApiError;
use crate::provider::stream::{
    Call, Ended, Fault, MOST_POSITION, Meter, Part, Signal, arguments, begun, malformed, parsed,
    shaped, tokens_of,
};
use crate::provider::{EndMark, Tokens};

/// What says that a part continues.
const MORE: &str = "content_block_delta";

/// Reads the events of one answer.
#[derive(Debug)]
pub(in crate::provider) struct Decoder {
    end: EndMark,
    begun: bool,
    /// Parts that are not complete.
    open: BTreeMap<u32, Open>,
    /// Parts that are, by their place.
    done: BTreeMap<u32, Done>,
    /// Complete calls without arguments: whether they have none or were cut off, what comes next tells.
    waiting: BTreeMap<u32, Map<String, Value>>,
    meter: Meter,
    usage: Option<Tokens>,
    negative_usage: bool,
    stop: Option<Stop>,
}

/// A part that continues.
#[derive(Debug)]
struct Open {
    kind: Kind,
    /// The part as it began.
    first: Map<String, Value>,
    /// What was added to it.
    text: String,
    signature: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Thinking,
    Call,
    /// Nobody knows it; it goes back as it came.
    Other,
}

#[derive(Debug)]
struct Done {
    block: Option<Block>,
    raw: String,
}

/// More of a part, as nearly all events are. One that is shaped otherwise is read as JSON of any shape.
#[derive(Deserialize)]
struct More<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    index: u64,
    #[serde(borrow)]
    delta: Delta<'a>,
}

/// What is added to a part: the text that its kind says.
#[derive(Deserialize)]
struct Delta<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    text: Option<String>,
    thinking: Option<String>,
    signature: Option<String>,
    partial_json: Option<String>,
}

impl<'a> Delta<'a> {
    /// The same, of JSON of any shape: what is no text counts as none.
    fn of(delta: &'a Value) -> Self {
        let said = |key: &str| delta[key].as_str().map(ToOwned::to_owned);
        Self {
            kind: delta["type"].as_str().unwrap_or_default(),
            text: said("text"),
            thinking: said("thinking"),
            signature: said("signature"),
            partial_json: said("partial_json"),
        }
    }
}

type Signals<'a> = &'a mut Vec<Signal>;

impl Decoder {
    /// A decoder for one answer.
    pub(in crate::provider) fn new(end: EndMark) -> Self {
        Self {
            end,
            begun: false,
            open: BTreeMap::new(),
            done: BTreeMap::new(),
            waiting: BTreeMap::new(),
            meter: Meter::default(),
            usage: None,
            negative_usage: false,
            stop: None,
        }
    }

    /// Reads the data of an event, and adds what it says to `signals`; the message, if that was its end. None of `secrets` is in
    /// what an error says.
    pub(in crate::provider) fn event(
        &mut self,
        data: &str,
        secrets: &[&str],
        signals: Signals<'_>,
    ) -> Result<Option<Ended>, Fault> {
        if let Some(more) = shaped::<More<'_>>(data)
            && (self.begun && more.kind == MORE)
        {
            return self
                .delta(position(more.index)?, more.delta, signals)
                .map(|()| None);
        }
        let event = parsed(data)?;
        let kind = event["type"].as_str().unwrap_or_default();
        if kind == "error" {
            return Err(Fault::Api(ApiError::read(None, data, secrets)));
        }
        let is_known = matches!(
            kind,
            "message_start"
                | "content_block_start"
                | MORE
                | "content_block_stop"
                | "message_delta"
                | "message_stop"
        );
        if is_known && self.begun == (kind == "message_start") {
            return Err(malformed("`message_start` does not come first, once"));
        }
        let said = match kind {
            "message_stop" => return self.ended().map(Some),
            "message_start" => self.begin(&event["message"], signals),
            "content_block_start" => self.start(event, signals),
            MORE => self.delta(position_of(&event)?, Delta::of(&event["delta"]), signals),
            "content_block_stop" => self.close(&event, signals),
            "message_delta" => self.message_delta(&event, signals),
            "ping" => Ok(()),
            _ => self.meter.skip(),
        };
        said.map(|()| None)
    }

    /// The body ended: the message, if the provider leaves it at that.
    pub(in crate::provider) fn finish(&mut self) -> Result<Ended, Fault> {
        let complete = self.stop.is_some() && self.open.is_empty();
        match self.end {
            EndMark::Lenient if complete => self.ended(),
            EndMark::Lenient | EndMark::Strict => Err(Fault::Cut),
        }
    }

    fn begin(&mut self, message: &Value, signals: Signals<'_>) -> Result<(), Fault> {
        self.begun = true;
        signals.push(begun(&message["model"]));
        self.count(&message["usage"], signals)
    }

    fn start(&mut self, mut event: Value, signals: Signals<'_>) -> Result<(), Fault> {
        let position = position_of(&event)?;
        self.settle(None, signals);
        if self.open.contains_key(&position) || self.done.contains_key(&position) {
            return Err(malformed("two blocks have one index"));
        }
        let first = event.get_mut("content_block").map(Value::take);
        let Some(Value::Object(first)) = first else {
            return Err(malformed("a block is no object"));
        };
        self.meter
            .weigh(crate::seal::canonical_object(&first).len())?;
        let said = |key: &str| first.get(key).and_then(Value::as_str).unwrap_or_default();
        let (kind, text) = match said("type") {
            "text" => (Kind::Text, said("text")),
            "thinking" => (Kind::Thinking, said("thinking")),
            "tool_use" => {
                self.call_begins(position, said("id"), said("name"), signals)?;
                (Kind::Call, "")
            }
            "" => return Err(malformed("a block has no type")),
            _ => (Kind::Other, ""),
        };
        let text = text.to_owned();
        match kind {
            Kind::Text if !text.is_empty() => signals.push(Signal::Text {
                position,
                text: text.clone(),
            }),
            Kind::Thinking if !text.is_empty() => signals.push(Signal::Thinking {
                position,
                text: text.clone(),
            }),
            Kind::Text | Kind::Thinking | Kind::Call | Kind::Other => {}
        }
        let open = Open {
            kind,
            signature: said("signature").to_owned(),
            text,
            first,
        };
        self.open.insert(position, open);
        Ok(())
    }

    fn call_begins(
        &mut self,
        position: u32,
        id: &str,
        name: &str,
        signals: Signals<'_>,
    ) -> Result<(), Fault> {
        self.meter.call(id, name)?;
        let name = name.to_owned();
        signals.push(Signal::CallBegun { position, name });
        Ok(())
    }

    fn delta(
        &mut self,
        position: u32,
        delta: Delta<'_>,
        signals: Signals<'_>,
    ) -> Result<(), Fault> {
        let kind = delta.kind;
        let (of, text) = match kind {
            "text_delta" => (Kind::Text, delta.text),
            "thinking_delta" => (Kind::Thinking, delta.thinking),
            "signature_delta" => (Kind::Thinking, delta.signature),
            "input_json_delta" => (Kind::Call, delta.partial_json),
            _ => return self.meter.skip(),
        };
        let text = text.unwrap_or_default();
        self.meter.weigh(text.len())?;
        let open = self.open.get_mut(&position);
        let open = open.ok_or_else(|| malformed("a block that is not open continues"))?;
        if open.kind != of {
            return Err(malformed("a block continues as another one"));
        }
        if kind == "signature_delta" {
            open.signature.push_str(&text);
            return Ok(());
        }
        open.text.push_str(&text);
        if of == Kind::Call {
            Meter::arguments(&open.text)?;
        }
        if !text.is_empty() {
            signals.push(match of {
                Kind::Text => Signal::Text { position, text },
                Kind::Thinking => Signal::Thinking { position, text },
                Kind::Call | Kind::Other => Signal::CallArgs { position, text },
            });
        }
        Ok(())
    }

    fn close(&mut self, event: &Value, signals: Signals<'_>) -> Result<(), Fault> {
        let position = position_of(event)?;
        let open = self.open.remove(&position);
        let Open {
            kind,
            mut first,
            text,
            signature,
        } = open.ok_or_else(|| malformed("a block that is not open ends"))?;
        let block = match kind {
            Kind::Call => {
                self.close_call(position, first, &text, signals);
                return Ok(());
            }
            Kind::Text => {
                first.insert("text".to_owned(), text.as_str().into());
                (!text.is_empty()).then_some(Block::Text { text })
            }
            Kind::Thinking => {
                first.insert("thinking".to_owned(), text.as_str().into());
                first.insert("signature".to_owned(), signature.into());
                Some(Block::Thinking { text })
            }
            Kind::Other => None,
        };
        if kind == Kind::Text && block.is_none() {
            // The vendor does not take back a text that is empty.
            return Ok(());
        }
        let raw = Value::Object(first).to_string();
        if let Some(block) = block.clone() {
            let raw = raw.clone();
            signals.push(Signal::Block(Part {
                position,
                block,
                raw,
            }));
        }
        self.done.insert(position, Done { block, raw });
        Ok(())
    }

    fn close_call(
        &mut self,
        position: u32,
        first: Map<String, Value>,
        text: &str,
        signals: Signals<'_>,
    ) {
        let whole = first.get("input").filter(|input| {
            let given = input.as_object();
            given.is_some_and(|given| !given.is_empty())
        });
        let text = match whole {
            Some(whole) if text.is_empty() => whole.to_string(),
            Some(_) | None => text.to_owned(),
        };
        if text.trim().is_empty() {
            self.waiting.insert(position, first);
        } else {
            self.ready(position, first, &text, signals);
        }
    }

    /// Ends the calls that wait to be distinguished: `stop` is why the model stops, `None` if another block comes.
    fn settle(&mut self, stop: Option<Stop>, signals: Signals<'_>) {
        let text = if stop == Some(Stop::Length) { "" } else { "{}" };
        for (position, first) in std::mem::take(&mut self.waiting) {
            self.ready(position, first, text, signals);
        }
    }

    fn ready(
        &mut self,
        position: u32,
        mut first: Map<String, Value>,
        text: &str,
        signals: Signals<'_>,
    ) {
        let (arguments, sent) = arguments(text);
        let said = |key: &str| first.get(key).and_then(Value::as_str).unwrap_or_default();
        let (id, name) = (said("id").to_owned(), said("name").to_owned());
        first.insert("input".to_owned(), sent);
        let call = Call {
            position,
            id,
            name,
            arguments,
            raw: Value::Object(first).to_string(),
        };
        let done = Done {
            block: Some(call.block()),
            raw: call.raw.clone(),
        };
        self.done.insert(position, done);
        signals.push(Signal::CallReady(call));
    }

    fn message_delta(&mut self, event: &Value, signals: Signals<'_>) -> Result<(), Fault> {
        self.count(&event["usage"], signals)?;
        let Some(word) = event["delta"]["stop_reason"].as_str() else {
            return Ok(());
        };
        if self.stop.is_some() {
            return Err(malformed("it stops twice"));
        }
        let stop = match word {
            "tool_use" => Stop::Calls,
            "max_tokens" => Stop::Length,
            "model_context_window_exceeded" => Stop::Window,
            "refusal" => Stop::Refusal,
            "pause_turn" => Stop::Pause,
            // `end_turn`, `stop_sequence`, and whatever else: calls decide what follows.
            _ => Stop::End,
        };
        self.settle(Some(stop), signals);
        self.stop = Some(stop);
        signals.push(Signal::Stopped(stop));
        Ok(())
    }

    /// Takes over what is reported; what an event does not name stays.
    fn count(&mut self, usage: &Value, signals: Signals<'_>) -> Result<(), Fault> {
        if !usage.is_object() {
            return Ok(());
        }
        let mut tokens = self.usage.unwrap_or_default();
        for (key, place) in [
            ("input_tokens", &mut tokens.input),
            ("cache_read_input_tokens", &mut tokens.cache_read),
            ("cache_creation_input_tokens", &mut tokens.cache_write),
            ("output_tokens", &mut tokens.output),
        ] {
            let reported = &usage[key];
            if !reported.is_null() {
                *place = tokens_of(reported, &mut self.negative_usage)?;
            }
        }
        self.usage = Some(tokens);
        signals.push(Signal::Usage(tokens));
        Ok(())
    }

    fn ended(&mut self) -> Result<Ended, Fault> {
        let stop = self
            .stop
            .ok_or_else(|| malformed("it ends without a reason"))?;
        if !self.open.is_empty() {
            return Err(malformed("it ends while a block continues"));
        }
        let done = std::mem::take(&mut self.done);
        let raw = assemble(done.values().map(|done| done.raw.as_str()));
        Ok(Ended {
            blocks: done.into_values().filter_map(|done| done.block).collect(),
            raw,
            stop,
            usage: self.usage,
            negative_usage: self.negative_usage,
        })
    }
}

/// The place of a block.
fn position_of(event: &Value) -> Result<u32, Fault> {
    let index = event["index"].as_u64();
    position(index.ok_or_else(|| malformed("a block has no index"))?)
}

fn position(index: u64) -> Result<u32, Fault> {
    let within = Some(index).filter(|index| *index <= MOST_POSITION);
    within
        .and_then(|index| u32::try_from(index).ok())
        .ok_or(Fault::Excess("the index of a block is too large"))
}

/// The message that parts make, as it is sent back.
pub(in crate::provider) fn assemble<'a>(parts: impl IntoIterator<Item = &'a str>) -> Option<Raw> {
    let parts: Vec<&str> = parts.into_iter().collect();
    (!parts.is_empty()).then(|| Raw(format!("[{}]", parts.join(","))))
}
