//! Decoding of stream events.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::conversation::{Block, Raw, Stop};
use crate::model::Object;
use crate::provider::api_error::ApiError;
use crate::provider::field::{self, Report, has_content, parsed};
use crate::provider::half::{Halves, Piece};
use crate::provider::quirks::EndMark;
use crate::provider::stream::{
    BlockPart, Calls, Ended, Fault, MOST_POSITION, Meter, RawCall, StreamSignal, UNNAMED,
    add_arguments, arguments, malformed, reason, shaped,
};

/// Type of an event that continues a block.
const MORE: &str = "content_block_delta";

/// Type of the event that completes the message.
const DONE: &str = "message_stop";
/// Known stop reasons.
const REASONS: [(&str, Stop); 7] = [
    ("end_turn", Stop::End),
    ("stop_sequence", Stop::End),
    ("tool_use", Stop::Calls),
    ("max_tokens", Stop::Length),
    ("model_context_window_exceeded", Stop::Window),
    ("refusal", Stop::Refusal),
    ("pause_turn", Stop::Pause),
];

/// Decoder of one answer.
#[derive(Debug)]
pub(crate) struct Decoder {
    end: EndMark,
    begun: bool,
    /// Incomplete blocks by the provider's index.
    open: BTreeMap<u64, Open>,
    /// Complete blocks by their position.
    done: BTreeMap<u32, Done>,
    /// Complete calls with malformed arguments. The next event shows if the answer was cut off there.
    waiting: BTreeMap<u32, Open>,
    calls: Calls,
    halves: Halves,
    meter: Meter,
    report: Report,
    stop: Option<Stop>,
    warnings: Vec<String>,
}

/// An incomplete block.
#[derive(Debug)]
struct Open {
    position: u32,
    kind: Kind,
    /// Block as first received.
    first: Map<String, Value>,
    id: String,
    name: String,
    /// Content received so far.
    text: String,
    is_too_large: bool,
    signature: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Thinking,
    Call,
    /// An unknown kind; it goes back unchanged.
    Other,
}

#[derive(Debug)]
struct Done {
    block: Option<Block>,
    raw: String,
}

/// Event that continues a block, in the common shape. Events of other shapes are decoded from generic JSON.
#[derive(Deserialize)]
struct More<'a, T> {
    #[serde(rename = "type")]
    kind: &'a str,
    index: u64,
    #[serde(borrow)]
    delta: Delta<'a, T>,
}

/// Addition to a block: the text that its kind names.
#[derive(Deserialize)]
struct Delta<'a, T> {
    #[serde(rename = "type")]
    kind: &'a str,
    text: Option<T>,
    thinking: Option<T>,
    signature: Option<T>,
    partial_json: Option<T>,
}

impl<'a> Delta<'a, String> {
    /// Decodes the addition from generic JSON. Only the member that its kind names is read.
    fn of(delta: &'a Value) -> Result<Self, Fault> {
        let Some(map) = field::object(delta, "delta")? else {
            return Err(malformed("a block continues with nothing"));
        };
        let keys = [
            ("text", "text_delta"),
            ("thinking", "thinking_delta"),
            ("signature", "signature_delta"),
            ("partial_json", "input_json_delta"),
        ];
        let kind = match &delta["type"] {
            Value::String(kind) => kind.as_str(),
            Value::Null => {
                let mut there = keys.iter().filter(|(key, _)| map.contains_key(*key));
                match (there.next(), there.next()) {
                    (Some((_, kind)), None) => kind,
                    (_, _) => return Err(malformed("a `delta` has no type")),
                }
            }
            Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
                return Err(malformed("the type of a `delta` is no text"));
            }
        };
        let mut of = Self {
            kind,
            text: None,
            thinking: None,
            signature: None,
            partial_json: None,
        };
        match kind {
            "text_delta" => of.text = Some(field::model_text(&delta["text"], "text")?.text),
            "thinking_delta" => {
                let said = field::model_text(&delta["thinking"], "thinking")?;
                of.thinking = Some(said.text + &said.thinking);
            }
            "signature_delta" => {
                of.signature = Some(field::word(&delta["signature"], "signature")?);
            }
            "input_json_delta" => of.partial_json = Some(field::arguments(&delta["partial_json"])),
            _ => {}
        }
        Ok(of)
    }
}

type Signals<'a> = &'a mut Vec<StreamSignal>;

impl Decoder {
    /// Creates a decoder for the answer to the call of turn `turn`.
    pub(crate) fn new(end: EndMark, turn: u32) -> Self {
        Self {
            end,
            begun: false,
            open: BTreeMap::new(),
            done: BTreeMap::new(),
            waiting: BTreeMap::new(),
            calls: Calls::new(turn),
            halves: Halves::default(),
            meter: Meter::default(),
            report: Report::default(),
            stop: None,
            warnings: Vec::new(),
        }
    }

    /// Decodes the data of an event and appends the signals. Returns the message if the event completes it. Errors
    /// contain none of `secrets`.
    pub(crate) fn event(
        &mut self,
        data: &str,
        secrets: &[&str],
        signals: Signals<'_>,
    ) -> Result<Option<Ended>, Fault> {
        if let Some(more) = shaped::<More<'_, String>>(data)
            && (self.begun && more.kind == MORE)
        {
            return self.delta(more.index, more.delta, signals).map(|()| None);
        }
        let (event, has_halves) = parsed(data)?;
        if field::object(&event, "event")?.is_none() {
            return self.meter.skip().map(|()| None);
        }
        if event["type"].is_number() {
            return Err(malformed("the type of an event is no text"));
        }
        let kind = field::word(&event["type"], "type")?;
        if kind == "error" || (kind.is_empty() && has_content(&event["error"])) {
            return Err(Fault::Api(ApiError::read(None, data, secrets)));
        }
        let is_known = matches!(
            kind.as_str(),
            "message_start"
                | "content_block_start"
                | MORE
                | "content_block_stop"
                | "message_delta"
                | DONE
        );
        if is_known && self.begun == (kind == "message_start") {
            return Err(malformed("`message_start` does not come first, once"));
        }
        let said = match kind.as_str() {
            "" => Err(malformed("an event has no type")),
            DONE => return self.over(signals).map(Some),
            "message_start" => self.begin(&event["message"], signals),
            "content_block_start" => self.start(event, signals),
            MORE => {
                let exact = has_halves.then(|| shaped::<More<'_, Piece>>(data));
                if let Some(more) = exact.flatten() {
                    self.delta(more.index, more.delta, signals)
                } else {
                    let index = self.index_of(&event)?;
                    self.delta(index, Delta::of(&event["delta"])?, signals)
                }
            }
            "content_block_stop" => self
                .index_of(&event)
                .and_then(|index| self.close(index, signals)),
            "message_delta" => self.message_delta(&event, secrets, signals),
            "ping" => Ok(()),
            _ => self.meter.skip(),
        };
        said.map(|()| None)
    }

    /// Ends the answer after the body. Returns the message if the provider is lenient about its end.
    pub(crate) fn finish(&mut self, signals: Signals<'_>) -> Result<Ended, Fault> {
        match (self.stop, self.end) {
            (Some(_), EndMark::Lenient) => self.over(signals),
            (Some(_), EndMark::Strict) => Err(Fault::NoEndEvent(DONE)),
            (None, _) => Err(Fault::Cut),
        }
    }

    fn begin(&mut self, message: &Value, signals: Signals<'_>) -> Result<(), Fault> {
        self.begun = true;
        field::object(message, "message")?;
        if has_content(&message["content"]) {
            return Err(malformed(
                "`message_start` has a content, which comes in events of its own",
            ));
        }
        signals.push(field::begun(&message["model"]));
        self.count(&message["usage"], false, signals);
        Ok(())
    }

    /// Returns the index of the block that an event belongs to. An event without an index belongs to the newest block.
    fn index_of(&self, event: &Value) -> Result<u64, Fault> {
        let newest = || self.open.iter().max_by_key(|(_, open)| open.position);
        let index = field::index(&event["index"], "index")?;
        index
            .or_else(|| newest().map(|(index, _)| *index))
            .ok_or_else(|| malformed("a block that is not open continues or ends"))
    }

    /// Returns the position of a new block: its index, or the next free position if the index is taken.
    fn free_position(&self, index: Option<u64>) -> Result<u32, Fault> {
        let is_free = |place: &u32| {
            let of_open = self.open.values().map(|open| open.position);
            let mut taken = of_open.chain(self.done.keys().copied());
            u64::from(*place) <= MOST_POSITION && !taken.any(|taken| taken == *place)
        };
        let own = index.and_then(|index| u32::try_from(index).ok());
        let last = self.open.values().map(|open| open.position);
        let last = last.chain(self.done.keys().copied()).max();
        let next = last.map_or(0, |last| last.saturating_add(1));
        [own, Some(next)]
            .into_iter()
            .flatten()
            .find(is_free)
            .ok_or(Fault::Excess("the message has too many parts"))
    }

    fn start(&mut self, mut event: Value, signals: Signals<'_>) -> Result<(), Fault> {
        self.settle(None, signals);
        let index = field::index(&event["index"], "index")?;
        if let Some(index) = index.filter(|index| self.open.contains_key(index)) {
            // A block with the index of an open block ends that block.
            self.close(index, signals)?;
            self.settle(None, signals);
        }
        let position = self.free_position(index)?;
        let first = event.get_mut("content_block").map(Value::take);
        let Some(Value::Object(mut first)) = first else {
            return Err(malformed("a block is no object"));
        };
        self.meter
            .weigh(crate::seal::canonical_object(&first).len())?;
        let none = Value::Null;
        let of = |key: &str| first.get(key).unwrap_or(&none);
        let of_kind = field::word(of("type"), "type")?;
        let (mut id, mut name, mut signature) = Default::default();
        let (kind, text) = match of_kind.as_str() {
            "text" => (Kind::Text, field::model_text(of("text"), "text")?.text),
            "thinking" => {
                signature = field::word(of("signature"), "signature")?;
                let said = field::model_text(of("thinking"), "thinking")?;
                (Kind::Thinking, said.text + &said.thinking)
            }
            "tool_use" => {
                id = field::word(of("id"), "id")?;
                name = field::word(of("name"), "name")?;
                (Kind::Call, field::arguments(of("input")))
            }
            "" => return Err(malformed("a block has no type")),
            _ => (Kind::Other, String::new()),
        };
        match kind {
            Kind::Text if !text.is_empty() => signals.push(StreamSignal::Text {
                position,
                text: text.clone(),
            }),
            Kind::Thinking if !text.is_empty() => signals.push(StreamSignal::Thinking {
                position,
                text: text.clone(),
            }),
            Kind::Call => {
                let shown = Some(name.as_str()).filter(|name| !name.is_empty());
                let name = shown.unwrap_or(UNNAMED).to_owned();
                signals.push(StreamSignal::CallBegun { position, name });
            }
            Kind::Text | Kind::Thinking | Kind::Other => {}
        }
        first.insert("type".to_owned(), of_kind.into());
        let open = Open {
            position,
            kind,
            first,
            id,
            name,
            text,
            is_too_large: false,
            signature,
        };
        self.open
            .insert(index.unwrap_or_else(|| position.into()), open);
        Ok(())
    }

    fn delta<T: Into<Piece>>(
        &mut self,
        index: u64,
        delta: Delta<'_, T>,
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
        let open = self.open.get_mut(&index);
        let open = open.ok_or_else(|| malformed("a block that is not open continues"))?;
        if open.kind != of {
            return Err(malformed("a block continues as another one"));
        }
        let position = open.position;
        let piece = text.map(Into::into).unwrap_or_default();
        let text = self.halves.join(position, piece);
        self.meter.weigh(text.len())?;
        if kind == "signature_delta" {
            open.signature.push_str(&text);
            return Ok(());
        }
        if open.add(&text) && !text.is_empty() {
            signals.push(match of {
                Kind::Text => StreamSignal::Text { position, text },
                Kind::Thinking => StreamSignal::Thinking { position, text },
                Kind::Call | Kind::Other => StreamSignal::CallArgs { position, text },
            });
        }
        Ok(())
    }

    fn close(&mut self, index: u64, signals: Signals<'_>) -> Result<(), Fault> {
        let open = self.open.remove(&index);
        let mut open = open.ok_or_else(|| malformed("a block that is not open ends"))?;
        if let Some(half) = self.halves.end(open.position) {
            open.add(&half);
        }
        let Open {
            position,
            kind,
            mut first,
            text,
            signature,
            ..
        } = match open.kind {
            Kind::Call => {
                self.close_call(open, signals);
                return Ok(());
            }
            Kind::Text | Kind::Thinking | Kind::Other => open,
        };
        let block = match kind {
            Kind::Text => {
                first.insert("text".to_owned(), text.as_str().into());
                (!text.is_empty()).then_some(Block::Text { text })
            }
            Kind::Thinking => {
                first.insert("thinking".to_owned(), text.as_str().into());
                first.insert("signature".to_owned(), signature.into());
                Some(Block::Thinking { text })
            }
            Kind::Call | Kind::Other => None,
        };
        if kind == Kind::Text && block.is_none() {
            // The vendor does not accept empty texts in requests.
            return Ok(());
        }
        let raw = Value::Object(first).to_string();
        if let Some(block) = block.clone() {
            let raw = raw.clone();
            signals.push(StreamSignal::Block(BlockPart {
                position,
                block,
                raw,
            }));
        }
        self.done.insert(position, Done { block, raw });
        Ok(())
    }

    fn close_call(&mut self, open: Open, signals: Signals<'_>) {
        let object = arguments(&open.text).ok();
        if open.is_too_large || object.is_some() {
            self.ready(open, object, false, signals);
        } else {
            self.waiting.insert(open.position, open);
        }
    }

    /// Completes the calls with malformed arguments. `stop` is the stop reason, or `None` if another block follows.
    fn settle(&mut self, stop: Option<Stop>, signals: Signals<'_>) {
        let is_cut = stop == Some(Stop::Length);
        for (_, mut open) in std::mem::take(&mut self.waiting) {
            if open.text.trim().is_empty() && !is_cut {
                "{}".clone_into(&mut open.text);
            }
            self.ready(open, None, is_cut, signals);
        }
    }

    fn ready(&mut self, open: Open, object: Option<Object>, is_cut: bool, signals: Signals<'_>) {
        let came = RawCall {
            position: open.position,
            id: &open.id,
            name: &open.name,
            arguments: &open.text,
            object,
            is_too_large: open.is_too_large,
            is_cut,
        };
        let mut first = open.first;
        let (call, _) = self.calls.complete(came, |id, name, sent| {
            first.insert("id".to_owned(), id.into());
            first.insert("name".to_owned(), name.into());
            first.insert("input".to_owned(), Value::Object(sent.clone()));
            Value::Object(first)
        });
        let done = Done {
            block: Some(call.block()),
            raw: call.raw.clone(),
        };
        self.done.insert(call.position, done);
        signals.push(StreamSignal::CallReady(call));
    }

    fn message_delta(
        &mut self,
        event: &Value,
        secrets: &[&str],
        signals: Signals<'_>,
    ) -> Result<(), Fault> {
        self.count(&event["usage"], true, signals);
        field::object(&event["delta"], "delta")?;
        let word = field::word(&event["delta"]["stop_reason"], "stop_reason")?;
        if word.is_empty() {
            return Ok(());
        }
        let stop = reason(&word, &REASONS, secrets, &mut self.warnings)?;
        match self.stop {
            Some(known) if known == stop => return Ok(()),
            Some(_) => return Err(malformed("it stops twice")),
            None => {}
        }
        self.stop = Some(stop);
        self.settle(Some(stop), signals);
        signals.push(StreamSignal::Stopped(stop));
        Ok(())
    }

    /// Merges a usage report; members that an event lacks stay. The output is final only at the end of the message.
    fn count(&mut self, usage: &Value, is_end: bool, signals: Signals<'_>) {
        let report = &mut self.report;
        let Some(usage) = report.members(usage) else {
            return;
        };
        let input = report.number(usage.get("input_tokens"));
        let read = report.number(usage.get("cache_read_input_tokens"));
        let write = report.number(usage.get("cache_creation_input_tokens"));
        let output = report.number(usage.get("output_tokens"));
        report.has_input |= input.is_some();
        report.has_output |= is_end && output.is_some();
        let tokens = &mut report.tokens;
        let places = [
            (input, &mut tokens.input),
            (read, &mut tokens.cache_read),
            (write, &mut tokens.cache_write),
            (output, &mut tokens.output),
        ];
        let mut is_new = false;
        for (reported, place) in places {
            if let Some(reported) = reported {
                *place = reported;
                is_new = true;
            }
        }
        if is_new {
            signals.push(StreamSignal::Usage(*tokens));
        }
    }

    /// Completes the message and its open blocks.
    fn over(&mut self, signals: Signals<'_>) -> Result<Ended, Fault> {
        let stop = match (self.stop, self.end) {
            (Some(stop), _) => stop,
            (None, EndMark::Lenient) => Stop::End,
            (None, EndMark::Strict) => return Err(Fault::without_reason(DONE)),
        };
        let mut open: Vec<(u64, u32)> = Vec::new();
        open.extend(
            self.open
                .iter()
                .map(|(index, open)| (*index, open.position)),
        );
        open.sort_by_key(|(_, position)| *position);
        for (index, _) in open {
            self.settle(None, signals);
            self.close(index, signals)?;
        }
        self.settle(Some(stop), signals);
        let done = std::mem::take(&mut self.done);
        let raw = assemble(done.values().map(|done| done.raw.as_str()));
        let mut warnings = std::mem::take(&mut self.warnings);
        warnings.extend(self.report.warnings());
        Ok(Ended {
            blocks: done.into_values().filter_map(|done| done.block).collect(),
            raw,
            stop,
            usage: self.report.whole(),
            warnings,
        })
    }
}

impl Open {
    /// Appends to the content. Returns `false` if the arguments exceed their size limit.
    fn add(&mut self, more: &str) -> bool {
        if self.kind == Kind::Call {
            add_arguments(&mut self.text, &mut self.is_too_large, more);
        } else {
            self.text.push_str(more);
        }
        !self.is_too_large
    }
}

/// Joins the raw blocks of a message.
pub(crate) fn assemble<'a>(parts: impl IntoIterator<Item = &'a str>) -> Option<Raw> {
    let parts: Vec<&str> = parts.into_iter().collect();
    (!parts.is_empty()).then(|| Raw(format!("[{}]", parts.join(","))))
}
