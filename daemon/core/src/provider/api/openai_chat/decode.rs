//! Decoding of stream events.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};

use super::calls::{CallDelta as CallPart, Calls};
use crate::conversation::{Block, Raw, Stop};
use crate::provider::api_error::ApiError;
use crate::provider::field::{self, Report, has_content, parsed};
use crate::provider::half::{Halves, Piece};
use crate::provider::quirks::{EndMark, Quirks};
use crate::provider::stream::{
    BlockPart, Ended, Fault, Meter, StreamSignal, malformed, reason, shaped,
};

/// Data of the event that ends the stream.
const DONE: &str = "[DONE]";
/// Positions of a message's parts: reasoning, text, then the calls.
const THINKING: u32 = 0;
const TEXT: u32 = 1;
/// Known stop reasons.
const REASONS: [(&str, Stop); 5] = [
    ("stop", Stop::End),
    ("tool_calls", Stop::Calls),
    ("function_call", Stop::Calls),
    ("length", Stop::Length),
    ("content_filter", Stop::Refusal),
];

/// Decoder of one answer.
#[derive(Debug)]
pub(crate) struct Decoder {
    end: EndMark,
    begun: bool,
    /// Message as assembled so far, without its calls.
    message: Map<String, Value>,
    thinking: String,
    /// True if the parts that precede the calls were emitted.
    parts_emitted: bool,
    calls: Calls,
    halves: Halves,
    meter: Meter,
    report: Report,
    stop: Option<Stop>,
    warnings: Vec<String>,
}

/// Chunk in the common shape. Chunks of other shapes are decoded from generic JSON.
#[derive(Deserialize)]
struct More {
    choices: [Choice; 1],
    #[serde(default, rename = "usage")]
    _no_usage: (),
    #[serde(default, rename = "error")]
    _no_error: (),
}

#[derive(Deserialize)]
struct Choice {
    delta: Delta,
    #[serde(default, rename = "finish_reason")]
    _no_reason: (),
    #[serde(default, rename = "error")]
    _no_error: (),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Delta {
    #[serde(default, rename = "role")]
    _role: IgnoredAny,
    #[serde(default, rename = "refusal")]
    _no_refusal: (),
    content: Option<String>,
    reasoning_content: Option<String>,
    reasoning: Option<String>,
    tool_calls: Option<Vec<CallPart>>,
}

/// Texts of a chunk with half surrogate pairs. If one of its members is not a text, the chunk does not match, and
/// halves are replaced.
#[derive(Deserialize)]
struct Exact {
    choices: [ExactChoice; 1],
}

#[derive(Deserialize)]
struct ExactChoice {
    delta: ExactDelta,
}

#[derive(Default, Deserialize)]
struct ExactDelta {
    content: Option<Piece>,
    reasoning_content: Option<Piece>,
    reasoning: Option<Piece>,
    #[serde(default)]
    tool_calls: Vec<ExactCall>,
}

#[derive(Deserialize)]
struct ExactCall {
    function: ExactFunction,
}

#[derive(Deserialize)]
struct ExactFunction {
    arguments: Option<Piece>,
}

type Signals<'a> = &'a mut Vec<StreamSignal>;

impl Decoder {
    pub(crate) fn new(quirks: Quirks, turn: u32) -> Self {
        Self {
            end: quirks.end,
            begun: false,
            message: Map::from_iter([("role".to_owned(), json!("assistant"))]),
            thinking: String::new(),
            parts_emitted: false,
            calls: Calls::new(quirks, turn),
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
        if data.trim() == DONE {
            return self.done(signals).map(Some);
        }
        if let Some(More {
            choices: [Choice { delta, .. }],
            ..
        }) = shaped(data)
            && let Some(said) = self.more(delta, signals)
        {
            return said.map(|()| None);
        }
        let (chunk, has_halves) = parsed(data)?;
        let exact = has_halves.then(|| shaped::<Exact>(data)).flatten();
        let exact = exact.map(|Exact { choices: [choice] }| choice.delta);
        let Some(chunk) = field::object(&chunk, "chunk")? else {
            return self.meter.skip().map(|()| None);
        };
        if has_content(field_of(chunk, "error")) {
            return Err(Fault::Api(ApiError::read(None, data, secrets)));
        }
        self.chunk(chunk, exact.unwrap_or_default(), secrets, signals)?;
        Ok(None)
    }

    /// Ends the answer after the body. Returns the message if a stop reason was received.
    pub(crate) fn finish(&mut self, signals: Signals<'_>) -> Result<Ended, Fault> {
        let stop = self.stop.ok_or(Fault::Cut)?;
        self.ended(stop, signals)
    }

    fn chunk(
        &mut self,
        chunk: &Map<String, Value>,
        mut exact: ExactDelta,
        secrets: &[&str],
        signals: Signals<'_>,
    ) -> Result<(), Fault> {
        let (choices, usage) = (field_of(chunk, "choices"), field_of(chunk, "usage"));
        if choices.is_null() && usage.is_null() {
            return self.meter.skip();
        }
        if !std::mem::replace(&mut self.begun, true) {
            signals.push(field::begun(field_of(chunk, "model")));
        }
        let mut first = None;
        for choice in field::entries(choices.clone()) {
            let Some(choice) = field::object(&choice, "choices")? else {
                continue;
            };
            let index = field::index(field_of(choice, "index"), "choices[].index")?;
            if *first.get_or_insert(index) != index {
                return Err(malformed("there are several answers in `choices`"));
            }
            self.choice(choice, std::mem::take(&mut exact), secrets, signals)?;
        }
        self.count(usage, signals);
        Ok(())
    }

    fn choice(
        &mut self,
        choice: &Map<String, Value>,
        exact: ExactDelta,
        secrets: &[&str],
        signals: Signals<'_>,
    ) -> Result<(), Fault> {
        let error = field_of(choice, "error");
        if has_content(error) {
            let error = json!({"error": error}).to_string();
            return Err(Fault::Api(ApiError::read(None, &error, secrets)));
        }
        // Some providers send the whole answer at once, under its name without streaming or in an older API.
        let mut delta = field_of(choice, "delta");
        if delta.is_null() {
            delta = field_of(choice, "message");
        }
        if let Some(delta) = field::object(delta, "delta")? {
            self.delta(delta.clone(), exact, signals)?;
        }
        self.content(field_of(choice, "text"), None, signals)?;
        let word = field::word(field_of(choice, "finish_reason"), "finish_reason")?;
        if word.is_empty() {
            return Ok(());
        }
        self.finish_reason(&word, secrets, signals)
    }

    /// Handles `[DONE]`: the end of the message, if a stop reason was received or the provider never sends one.
    fn done(&mut self, signals: Signals<'_>) -> Result<Ended, Fault> {
        let stop = match (self.stop, self.end) {
            (Some(stop), _) => stop,
            (None, EndMark::Lenient) => {
                self.emit_parts(signals)?;
                self.calls.end(Stop::End, signals)?;
                Stop::End
            }
            (None, EndMark::Strict) => return Err(Fault::without_reason(DONE)),
        };
        self.ended(stop, signals)
    }

    /// Applies `delta` if it adds to one part only and the message has begun. Returns `None` otherwise.
    fn more(&mut self, delta: Delta, signals: Signals<'_>) -> Option<Result<(), Fault>> {
        if !self.begun || self.stop.is_some() {
            return None;
        }
        let said = |text: Option<String>| text.filter(|text| !text.is_empty());
        let thoughts = [
            ("reasoning_content", said(delta.reasoning_content)),
            ("reasoning", said(delta.reasoning)),
        ];
        let calls = delta.tool_calls.unwrap_or_default();
        match (said(delta.content), thoughts, calls.is_empty()) {
            (Some(text), [(_, None), (_, None)], true) => Some(self.text(text, signals)),
            (None, [(key, Some(text)), (_, None)] | [(_, None), (key, Some(text))], true) => {
                Some(self.thought(key, text, signals))
            }
            (None, [(_, None), (_, None)], _) => {
                let mut calls = calls.into_iter();
                Some(calls.try_for_each(|call| self.call(call, None, signals)))
            }
            (Some(_) | None, _, _) => None,
        }
    }

    fn text(&mut self, text: impl Into<Piece>, signals: Signals<'_>) -> Result<(), Fault> {
        let position = TEXT;
        let text = self.halves.join(position, text.into());
        self.meter.weigh(text.len())?;
        if !text.is_empty() {
            self.join("content", &text);
            signals.push(StreamSignal::Text { position, text });
        }
        Ok(())
    }

    fn thought(
        &mut self,
        key: &str,
        text: impl Into<Piece>,
        signals: Signals<'_>,
    ) -> Result<(), Fault> {
        let text = self.halves.join(THINKING, text.into());
        self.field(key.to_owned(), Value::String(text.clone()))?;
        self.think(text, signals);
        Ok(())
    }

    fn think(&mut self, text: String, signals: Signals<'_>) {
        if !text.is_empty() {
            self.thinking.push_str(&text);
            let position = THINKING;
            signals.push(StreamSignal::Thinking { position, text });
        }
    }

    fn delta(
        &mut self,
        delta: Map<String, Value>,
        exact: ExactDelta,
        signals: Signals<'_>,
    ) -> Result<(), Fault> {
        let ExactDelta {
            mut content,
            mut reasoning_content,
            mut reasoning,
            tool_calls,
        } = exact;
        let mut arguments = tool_calls.into_iter().map(|call| call.function.arguments);
        // Some providers send the same reasoning under both names.
        let thinking = ["reasoning_content", "reasoning"]
            .into_iter()
            .find(|key| delta.get(*key).is_some_and(has_content));
        for (key, value) in delta {
            if key == "role" || !has_content(&value) {
                continue;
            }
            if self.stop.is_some() {
                return Err(malformed("it continues after it stopped"));
            }
            match key.as_str() {
                "content" => self.content(&value, content.take(), signals)?,
                "tool_calls" => {
                    for part in field::entries(value) {
                        let exact = arguments.next().flatten();
                        self.call(CallPart::of(&part)?, exact, signals)?;
                    }
                }
                "function_call" => {
                    let part = CallPart::of(&json!({"function": value}))?;
                    self.call(part, None, signals)?;
                }
                "refusal" => {
                    let text = field::word(&value, "refusal")?;
                    self.field(key, text.into())?;
                }
                "reasoning_content" if thinking == Some(key.as_str()) => {
                    self.reasoning(key, value, reasoning_content.take(), signals)?;
                }
                "reasoning" if thinking == Some(key.as_str()) => {
                    self.reasoning(key, value, reasoning.take(), signals)?;
                }
                _ => self.field(key, value)?,
            }
        }
        Ok(())
    }

    fn content(
        &mut self,
        value: &Value,
        exact: Option<Piece>,
        signals: Signals<'_>,
    ) -> Result<(), Fault> {
        if let Some(exact) = exact {
            return self.text(exact, signals);
        }
        let said = field::model_text(value, "content")?;
        self.meter.weigh(said.thinking.len())?;
        self.think(said.thinking, signals);
        self.text(said.text, signals)
    }

    /// Adds reasoning; a value that is not a text is also kept unchanged.
    fn reasoning(
        &mut self,
        key: String,
        value: Value,
        exact: Option<Piece>,
        signals: Signals<'_>,
    ) -> Result<(), Fault> {
        if let Some(exact) = exact {
            return self.thought(&key, exact, signals);
        }
        let said = field::model_text(&value, &key)?;
        if value.is_string() {
            return self.thought(&key, said.text, signals);
        }
        self.field(key, value)?;
        self.think(said.text + &said.thinking, signals);
        Ok(())
    }

    /// Adds a member of the message that is neither content nor a call.
    fn field(&mut self, key: String, value: Value) -> Result<(), Fault> {
        self.meter
            .weigh(key.len() + crate::seal::canonical(&value).len())?;
        let is_joined = key == "refusal" || key.starts_with("reasoning");
        match (value, self.message.get_mut(&key)) {
            (Value::String(text), _) if is_joined => self.join(&key, &text),
            (Value::Array(mut more), Some(Value::Array(list))) => list.append(&mut more),
            (value, _) => {
                self.message.insert(key, value);
            }
        }
        Ok(())
    }

    /// Appends to a text member of the message.
    fn join(&mut self, key: &str, text: &str) {
        match self.message.get_mut(key) {
            Some(Value::String(whole)) => whole.push_str(text),
            Some(_) | None => {
                self.message.insert(key.to_owned(), json!(text));
            }
        }
    }

    fn call(
        &mut self,
        part: CallPart,
        exact: Option<Piece>,
        signals: Signals<'_>,
    ) -> Result<(), Fault> {
        if !self.calls.has_begun() {
            self.emit_parts(signals)?;
        }
        self.calls.add(part, exact, &mut self.meter, signals)
    }

    /// Returns the non-empty parts that precede the calls.
    fn parts(&self) -> Vec<BlockPart> {
        let content = self.message.get("content").and_then(Value::as_str);
        let thinking = Block::Thinking {
            text: self.thinking.clone(),
        };
        let text = Block::Text {
            text: content.unwrap_or_default().to_owned(),
        };
        [(THINKING, thinking), (TEXT, text)]
            .into_iter()
            .filter(|(_, block)| match block {
                Block::Text { text } | Block::Thinking { text } => !text.is_empty(),
                Block::Call { .. } | Block::Result { .. } => false,
            })
            .map(|(position, block)| BlockPart {
                position,
                raw: json!(block).to_string(),
                block,
            })
            .collect()
    }

    fn emit_parts(&mut self, signals: Signals<'_>) -> Result<(), Fault> {
        if let Some(half) = self.halves.end(THINKING) {
            self.think(half, signals);
        }
        if let Some(half) = self.halves.end(TEXT) {
            self.text(half, signals)?;
        }
        if !std::mem::replace(&mut self.parts_emitted, true) {
            signals.extend(self.parts().into_iter().map(StreamSignal::Block));
        }
        Ok(())
    }

    fn finish_reason(
        &mut self,
        word: &str,
        secrets: &[&str],
        signals: Signals<'_>,
    ) -> Result<(), Fault> {
        let mut stop = reason(word, &REASONS, secrets, &mut self.warnings)?;
        if self.message.contains_key("refusal") {
            stop = Stop::Refusal;
        }
        match self.stop {
            // Some providers repeat the reason in the chunk with the usage.
            Some(known) if known == stop => return Ok(()),
            Some(_) => return Err(malformed("it stops twice")),
            None => {}
        }
        self.emit_parts(signals)?;
        self.calls.end(stop, signals)?;
        self.stop = Some(stop);
        signals.push(StreamSignal::Stopped(stop));
        Ok(())
    }

    /// Merges a usage report; members that a chunk lacks stay.
    fn count(&mut self, usage: &Value, signals: Signals<'_>) {
        let report = &mut self.report;
        let Some(usage) = report.members(usage) else {
            return;
        };
        let prompt_details = report.members(field_of(usage, "prompt_tokens_details"));
        let output_details = report.members(field_of(usage, "completion_tokens_details"));
        let mut detail = |details: Option<&Map<String, Value>>, key| {
            report.number(details.and_then(|details| details.get(key)))
        };
        let cache_read = detail(prompt_details, "cached_tokens");
        let cache_write = detail(prompt_details, "cache_write_tokens");
        let reasoning = detail(output_details, "reasoning_tokens");
        let prompt = report.number(usage.get("prompt_tokens"));
        let output = report.number(usage.get("completion_tokens"));
        if let Some(prompt) = prompt {
            report.has_input = true;
            let (read, write) = (cache_read.unwrap_or(0), cache_write.unwrap_or(0));
            if prompt < read + write {
                report.contradicts();
            }
            report.tokens.input = prompt.saturating_sub(read + write);
            (report.tokens.cache_read, report.tokens.cache_write) = (read, write);
        }
        if let Some(output) = output {
            report.has_output = true;
            report.tokens.output = output;
            report.tokens.reasoning = reasoning.unwrap_or(0);
        }
        if prompt.is_some() || output.is_some() {
            signals.push(StreamSignal::Usage(report.tokens));
        }
    }

    fn ended(&mut self, stop: Stop, signals: Signals<'_>) -> Result<Ended, Fault> {
        self.emit_parts(signals)?;
        let mut blocks: Vec<Block> = self.parts().into_iter().map(|part| part.block).collect();
        let mut message = std::mem::take(&mut self.message);
        message.entry("content").or_insert(Value::Null);
        let calls = self.calls.take_made();
        if !calls.is_empty() {
            let (made, raw) = calls.into_iter().map(|call| (call.block, call.raw)).unzip();
            let made: Vec<Block> = made;
            blocks.extend(made);
            message.insert("tool_calls".to_owned(), Value::Array(raw));
        }
        let says = !blocks.is_empty() || message.len() > 2;
        let mut warnings = std::mem::take(&mut self.warnings);
        warnings.extend(self.report.warnings());
        Ok(Ended {
            blocks,
            raw: says.then(|| Raw(Value::Object(message).to_string())),
            stop,
            usage: self.report.whole(),
            warnings,
        })
    }
}

/// Returns a member of an object, or null if it is missing.
fn field_of<'v>(object: &'v Map<String, Value>, key: &str) -> &'v Value {
    object.get(key).unwrap_or(&Value::Null)
}
