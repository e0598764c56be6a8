//! What the events of a stream mean.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};

use crate::conversation::{Block, Raw, Stop};
use crate::provider::failure::ApiError;
use crate::provider::stream::{
    Call, Ended, Fault, MOST_POSITION, Meter, Part, Signal, arguments, begun, malformed, parsed,
    shaped, tokens_of,
};
use crate::provider::{EndMark, IdRule, IndexRule, Quirks, Tokens};

/// What says that nothing more comes.
const DONE: &str = "[DONE]";
/// The places of a message's parts: thoughts, text, then the calls.
const THINKING: u32 = 0;
const TEXT: u32 = 1;
const FIRST_CALL: u32 = 2;

/// Reads the events of one answer.
#[derive(Debug)]
pub(in crate::provider) struct Decoder {
    quirks: Quirks,
    /// The turn, for ids that the provider does not give.
    turn: u32,
    begun: bool,
    /// The message as far as it is assembled, without its calls.
    message: Map<String, Value>,
    thinking: String,
    /// Whether the parts ahead of the calls were handed out.
    told: bool,
    calls: Vec<Made>,
    /// The call that is open: its index, if it has one, and its arguments so far.
    open: Option<Open>,
    meter: Meter,
    usage: Option<Tokens>,
    negative_usage: bool,
    stop: Option<Stop>,
}

/// A call that is open.
#[derive(Debug)]
struct Open {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: String,
}

/// A call that is complete.
#[derive(Debug)]
struct Made {
    block: Block,
    raw: Value,
}

/// More of the message, as nearly all chunks are. One that is shaped otherwise is read as JSON of any shape.
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
    tool_calls: Option<Vec<Piece>>,
}

/// More of a call.
#[derive(Deserialize)]
struct Piece {
    index: Option<u64>,
    id: Option<String>,
    #[serde(default)]
    function: Function,
}

#[derive(Default, Deserialize)]
struct Function {
    name: Option<String>,
    arguments: Option<String>,
}

impl Piece {
    /// The same, of JSON of any shape: what is no text counts as none.
    fn of(call: &Value) -> Self {
        let said = |value: &Value| value.as_str().map(ToOwned::to_owned);
        Self {
            index: call["index"].as_u64(),
            id: said(&call["id"]),
            function: Function {
                name: said(&call["function"]["name"]),
                arguments: said(&call["function"]["arguments"]),
            },
        }
    }
}

type Signals<'a> = &'a mut Vec<Signal>;

impl Decoder {
    pub(in crate::provider) fn new(quirks: Quirks, turn: u32) -> Self {
        Self {
            quirks,
            turn,
            begun: false,
            message: Map::from_iter([("role".to_owned(), json!("assistant"))]),
            thinking: String::new(),
            told: false,
            calls: Vec::new(),
            open: None,
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
        let chunk = parsed(data)?;
        if !chunk["error"].is_null() {
            return Err(Fault::Api(ApiError::read(None, data, secrets)));
        }
        self.chunk(chunk, signals)?;
        Ok(None)
    }

    /// The body ended: the message, if the model said why it stops.
    pub(in crate::provider) fn finish(&mut self, signals: Signals<'_>) -> Result<Ended, Fault> {
        let stop = self.stop.ok_or(Fault::Cut)?;
        Ok(self.ended(stop, signals))
    }

    fn chunk(&mut self, mut chunk: Value, signals: Signals<'_>) -> Result<(), Fault> {
        if !chunk.is_object() || (chunk["choices"].is_null() && chunk["usage"].is_null()) {
            return self.meter.skip();
        }
        if !std::mem::replace(&mut self.begun, true) {
            signals.push(begun(&chunk["model"]));
        }
        if let Some(Value::Object(delta)) = chunk.pointer_mut("/choices/0/delta").map(Value::take) {
            self.delta(delta, signals)?;
        }
        let word = chunk["choices"][0]["finish_reason"].as_str();
        if let Some(word) = word.filter(|word| !word.is_empty()) {
            self.finish_reason(word, signals)?;
        }
        self.count(&chunk["usage"], signals)
    }

    /// `[DONE]`: the end, if the model said why it stops, or the provider never does.
    fn done(&mut self, signals: Signals<'_>) -> Result<Ended, Fault> {
        let stop = match (self.stop, self.quirks.end) {
            (Some(stop), _) => stop,
            (None, EndMark::Lenient) => {
                self.close_call(Some(Stop::End), signals)?;
                Stop::End
            }
            (None, EndMark::Strict) => return Err(Fault::Cut),
        };
        Ok(self.ended(stop, signals))
    }

    /// Takes in what `delta` says, if that is one thing and the message has begun.
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
                Some(calls.try_for_each(|call| self.call(call, signals)))
            }
            (Some(_) | None, _, _) => None,
        }
    }

    fn text(&mut self, text: String, signals: Signals<'_>) -> Result<(), Fault> {
        self.meter.weigh(text.len())?;
        self.join("content", &text);
        let position = TEXT;
        signals.push(Signal::Text { position, text });
        Ok(())
    }

    fn thought(&mut self, key: &str, text: String, signals: Signals<'_>) -> Result<(), Fault> {
        self.field(key.to_owned(), Value::String(text.clone()))?;
        self.think(text, signals);
        Ok(())
    }

    fn think(&mut self, text: String, signals: Signals<'_>) {
        self.thinking.push_str(&text);
        let position = THINKING;
        signals.push(Signal::Thinking { position, text });
    }

    fn delta(&mut self, delta: Map<String, Value>, signals: Signals<'_>) -> Result<(), Fault> {
        let says = |value: &Value| match value {
            Value::Null => false,
            Value::String(text) => !text.is_empty(),
            Value::Array(list) => !list.is_empty(),
            Value::Bool(_) | Value::Number(_) | Value::Object(_) => true,
        };
        let thinking = ["reasoning_content", "reasoning"]
            .into_iter()
            .find_map(|key| delta.get(key)?.as_str().filter(|text| !text.is_empty()))
            .map(ToOwned::to_owned);
        for (key, value) in delta {
            if key == "role" || !says(&value) {
                continue;
            }
            if self.stop.is_some() {
                return Err(malformed("it continues after it stopped"));
            }
            match (key.as_str(), value) {
                ("tool_calls", Value::Array(calls)) => {
                    for call in &calls {
                        self.call(Piece::of(call), signals)?;
                    }
                }
                ("content", Value::String(text)) => self.text(text, signals)?,
                (_, value) => self.field(key, value)?,
            }
        }
        if let Some(thinking) = thinking {
            self.think(thinking, signals);
        }
        Ok(())
    }

    /// Takes over a field of the message that is neither content nor a call.
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

    /// Appends to a text of the message.
    fn join(&mut self, key: &str, text: &str) {
        match self.message.get_mut(key) {
            Some(Value::String(whole)) => whole.push_str(text),
            Some(_) | None => {
                self.message.insert(key.to_owned(), json!(text));
            }
        }
    }

    fn call(&mut self, call: Piece, signals: Signals<'_>) -> Result<(), Fault> {
        let Piece {
            index,
            id,
            function: Function { name, arguments },
        } = call;
        let (id, name) = (id.unwrap_or_default(), name.unwrap_or_default());
        let more = arguments.unwrap_or_default();
        self.meter.weigh(id.len() + name.len() + more.len())?;
        let continues = match &self.open {
            None => false,
            Some(open) => {
                let other_id = !id.is_empty() && id != open.id;
                match self.quirks.tool_index {
                    IndexRule::Index if index == open.index && other_id => {
                        return Err(malformed("two calls have one index"));
                    }
                    IndexRule::Index => index == open.index,
                    IndexRule::Id if index.is_none() => name.is_empty() && !other_id,
                    IndexRule::Id => index == open.index && !other_id,
                }
            }
        };
        if !continues {
            self.open_call(index, id, name, signals)?;
        }
        let position = self.position()?;
        let Some(open) = &mut self.open else {
            return Ok(());
        };
        if !more.is_empty() {
            open.arguments.push_str(&more);
            Meter::arguments(&open.arguments)?;
            signals.push(Signal::CallArgs {
                position,
                text: more,
            });
        }
        Ok(())
    }

    fn open_call(
        &mut self,
        index: Option<u64>,
        id: String,
        name: String,
        signals: Signals<'_>,
    ) -> Result<(), Fault> {
        if index.is_none() && self.quirks.tool_index == IndexRule::Index {
            return Err(malformed("a call has no index"));
        }
        if index.is_some_and(|index| index > MOST_POSITION) {
            return Err(Fault::Excess("the index of a call is too large"));
        }
        self.close_call(None, signals)?;
        self.tell(signals);
        let position = self.position()?;
        let id = match self.quirks.tool_ids {
            IdRule::Optional if id.is_empty() => format!("call_{}_{position}", self.turn),
            IdRule::Optional | IdRule::Required => id,
        };
        self.meter.call(&id, &name)?;
        signals.push(Signal::CallBegun {
            position,
            name: name.clone(),
        });
        self.open = Some(Open {
            index,
            id,
            name,
            arguments: String::new(),
        });
        Ok(())
    }

    /// The place of the call that continues, or of the next.
    fn position(&self) -> Result<u32, Fault> {
        let calls = u32::try_from(self.calls.len());
        calls
            .map(|calls| calls + FIRST_CALL)
            .map_err(|_error| Fault::Excess("too many calls"))
    }

    /// Ends the call that continues: `stop` is why the model stops, `None` if another call comes.
    fn close_call(&mut self, stop: Option<Stop>, signals: Signals<'_>) -> Result<(), Fault> {
        let position = self.position()?;
        let Some(open) = self.open.take() else {
            return Ok(());
        };
        let is_empty = open.arguments.trim().is_empty();
        let text = if is_empty && stop != Some(Stop::Length) {
            "{}"
        } else {
            &open.arguments
        };
        let (arguments, sent) = arguments(text);
        let raw = json!({
            "id": open.id,
            "type": "function",
            "function": {"name": open.name, "arguments": sent.to_string()},
        });
        let call = Call {
            position,
            id: open.id,
            name: open.name,
            arguments,
            raw: raw.to_string(),
        };
        let block = call.block();
        self.calls.push(Made { block, raw });
        signals.push(Signal::CallReady(call));
        Ok(())
    }

    /// The parts ahead of the calls, as far as they say something.
    fn parts(&self) -> Vec<Part> {
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
            .map(|(position, block)| Part {
                position,
                raw: json!(block).to_string(),
                block,
            })
            .collect()
    }

    fn tell(&mut self, signals: Signals<'_>) {
        if !std::mem::replace(&mut self.told, true) {
            signals.extend(self.parts().into_iter().map(Signal::Block));
        }
    }

    fn finish_reason(&mut self, word: &str, signals: Signals<'_>) -> Result<(), Fault> {
        let refused = self.message.contains_key("refusal");
        let stop = match word {
            _ if refused => Stop::Refusal,
            "tool_calls" | "function_call" => Stop::Calls,
            "length" => Stop::Length,
            "content_filter" => Stop::Refusal,
            // `stop`, and whatever else: calls decide what follows.
            _ => Stop::End,
        };
        match self.stop {
            // Some say it again beside what the call used.
            Some(known) if known == stop => return Ok(()),
            Some(_) => return Err(malformed("it stops twice")),
            None => {}
        }
        self.close_call(Some(stop), signals)?;
        self.tell(signals);
        self.stop = Some(stop);
        signals.push(Signal::Stopped(stop));
        Ok(())
    }

    fn count(&mut self, usage: &Value, signals: Signals<'_>) -> Result<(), Fault> {
        if !usage.is_object() {
            return Ok(());
        }
        let mut is_negative = false;
        let mut number = |value: &Value| match value {
            Value::Null => Ok(0),
            value @ (Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_)
            | Value::Object(_)) => tokens_of(value, &mut is_negative),
        };
        let prompt = number(&usage["prompt_tokens"])?;
        let cache_read = number(&usage["prompt_tokens_details"]["cached_tokens"])?;
        let cache_write = number(&usage["prompt_tokens_details"]["cache_write_tokens"])?;
        let output = number(&usage["completion_tokens"])?;
        let reasoning = number(&usage["completion_tokens_details"]["reasoning_tokens"])?;
        let cached = cache_read + cache_write;
        self.negative_usage |= is_negative || prompt < cached;
        let tokens = Tokens {
            input: prompt.saturating_sub(cached),
            cache_read,
            cache_write,
            output,
            reasoning,
        };
        self.usage = Some(tokens);
        signals.push(Signal::Usage(tokens));
        Ok(())
    }

    fn ended(&mut self, stop: Stop, signals: Signals<'_>) -> Ended {
        self.tell(signals);
        let mut blocks: Vec<Block> = self.parts().into_iter().map(|part| part.block).collect();
        let mut message = std::mem::take(&mut self.message);
        message.entry("content").or_insert(Value::Null);
        let calls = std::mem::take(&mut self.calls);
        if !calls.is_empty() {
            let raw = calls.iter().map(|call| call.raw.clone()).collect();
            message.insert("tool_calls".to_owned(), Value::Array(raw));
        }
        blocks.extend(calls.into_iter().map(|call| call.block));
        let says = !blocks.is_empty() || message.len() > 2;
        Ended {
            blocks,
            raw: says.then(|| Raw(Value::Object(message).to_string())),
            stop,
            usage: self.usage,
            negative_usage: self.negative_usage,
        }
    }
}
