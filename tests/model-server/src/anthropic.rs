//! `POST /v1/messages` of Anthropic.

use rye_core::provider::Api;
use rye_core::seal::sha256_hex;
use serde_json::{Value, json};

use super::field::Field;
use super::play::Piece;
use super::request::{ParsedRequest, Turn, add_call, arguments, check_answers, pieces, unparsed};
use super::script::{ApiError, Message, Part, Stop, Usage};

/// Most cache breakpoints in one body.
const MOST_MARKS: usize = 4;
/// Smallest budget of thinking tokens.
const FEWEST_THINKING: u64 = 1024;

/// Allowed keys of a body.
const KEYS: [&str; 15] = [
    "model",
    "messages",
    "max_tokens",
    "system",
    "stream",
    "tools",
    "tool_choice",
    "thinking",
    "output_config",
    "temperature",
    "top_p",
    "top_k",
    "metadata",
    "stop_sequences",
    "service_tier",
];

/// Parses the body of a request. The error names the rule of the API that it breaks.
pub(super) fn read(body: &Value) -> Result<ParsedRequest, String> {
    let root = Field::root(body);
    root.only(&KEYS)?;
    root.need("model")?.words()?;
    root.need("stream")?.is(true)?;
    let most = root.need("max_tokens")?.count()?;
    if let Some(thinking) = root.get("thinking") {
        check_thinking(&thinking, most)?;
    }
    if let Some(tools) = root.get("tools") {
        check_tools(&tools)?;
    }
    if marks(body) > MOST_MARKS {
        return Err(format!(
            "more than {MOST_MARKS} blocks have `cache_control`"
        ));
    }
    let system = match root.get("system") {
        None => String::new(),
        Some(system) => system_prompt(&system)?,
    };
    let messages = messages(&root.need("messages")?)?;
    Ok(ParsedRequest::new(Api::Anthropic, body, &system, messages))
}

fn check_thinking(thinking: &Field<'_>, most: u64) -> Result<(), String> {
    thinking.only(&["type", "budget_tokens", "display"])?;
    match thinking.need("type")?.text()? {
        "adaptive" | "disabled" => Ok(()),
        "enabled" => {
            let budget = thinking.need("budget_tokens")?;
            let fits = (FEWEST_THINKING..most).contains(&budget.count()?);
            fits.then_some(()).ok_or_else(|| {
                budget.wrong(&format!(
                    "is not from {FEWEST_THINKING} to below `max_tokens`"
                ))
            })
        }
        _ => Err(thinking.wrong("is neither adaptive, enabled nor disabled")),
    }
}

fn check_tools(tools: &Field<'_>) -> Result<(), String> {
    let mut names = Vec::new();
    for tool in tools.list()? {
        tool.only(&["name", "description", "input_schema", "cache_control"])?;
        let name = tool.need("name")?.tool_name()?;
        if names.contains(&name) {
            return Err(tool.wrong(&format!("is a second tool `{name}`")));
        }
        names.push(name);
        if let Some(description) = tool.get("description") {
            description.text()?;
        }
        tool.need("input_schema")?.need("type")?.is("object")?;
    }
    Ok(())
}

/// Counts the cache breakpoints.
fn marks(value: &Value) -> usize {
    match value {
        Value::Object(object) => {
            let below: usize = object.values().map(marks).sum();
            below + usize::from(object.contains_key("cache_control"))
        }
        Value::Array(list) => list.iter().map(marks).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

fn system_prompt(system: &Field<'_>) -> Result<String, String> {
    if system.value().is_string() {
        return Ok(system.text()?.to_owned());
    }
    let mut texts = Vec::new();
    for block in system.list()? {
        block.only(&["type", "text", "cache_control"])?;
        block.need("type")?.is("text")?;
        texts.push(block.need("text")?.words()?);
    }
    Ok(texts.join("\n"))
}

fn messages(list: &Field<'_>) -> Result<Vec<Turn>, String> {
    let mut turns = Vec::new();
    let mut open: Vec<String> = Vec::new();
    for message in list.list()? {
        message.only(&["role", "content"])?;
        let is_model = match message.need("role")?.text()? {
            "user" => false,
            "assistant" => true,
            _ => return Err(message.wrong("is neither the user's nor the assistant's")),
        };
        let wanted = turns
            .last()
            .is_some_and(|turn: &Turn| turn.blocks.is_none());
        if is_model != wanted {
            let role = if wanted { "assistant" } else { "user" };
            return Err(message.wrong(&format!(
                "is not the {role}'s: the user begins, and roles alternate"
            )));
        }
        let content = message.need("content")?;
        let mut read = Read::default();
        if content.value().is_string() {
            read.text(&content)?;
        } else {
            for block in content.list()? {
                read.block(&block, is_model)?;
            }
        }
        if read.blocks.is_empty() {
            return Err(content.wrong("is empty"));
        }
        check_answers(&open, &read.answers)?;
        open = read.calls;
        turns.push(Turn {
            json: format!("{is_model}{}", read.blocks.join(",")),
            blocks: is_model.then_some(read.blocks),
            text: read.texts.join("\n"),
            results: read.results,
        });
    }
    if turns.is_empty() {
        return Err(list.wrong("is empty"));
    }
    check_answers(&open, &[])?;
    Ok(turns)
}

/// Blocks of a message.
#[derive(Default)]
struct Read<'v> {
    blocks: Vec<String>,
    texts: Vec<&'v str>,
    calls: Vec<String>,
    answers: Vec<(String, Field<'v>)>,
    results: Vec<String>,
}

impl<'v> Read<'v> {
    fn block(&mut self, block: &Field<'v>, is_model: bool) -> Result<(), String> {
        let kind = block.need("type")?.text()?;
        match (kind, is_model) {
            ("text", _) => {
                block.only(&["type", "text", "cache_control"])?;
                let text = block.need("text")?;
                let words = text.words()?;
                if words.trim().is_empty() {
                    return Err(text.wrong("is nothing but blanks, which the vendor refuses"));
                }
                if !is_model {
                    self.texts.push(words);
                }
            }
            ("thinking", true) => {
                block.only(&["type", "thinking", "signature"])?;
                block.need("thinking")?.text()?;
                block.need("signature")?.words()?;
            }
            ("tool_use", true) => {
                block.only(&["type", "id", "name", "input", "cache_control"])?;
                add_call(&mut self.calls, &block.need("id")?)?;
                block.need("name")?.tool_name()?;
                let input = block.need("input")?;
                if !input.value().is_object() {
                    return Err(input.wrong("is no object"));
                }
            }
            ("tool_result", false) => self.answer(block)?,
            _ => return Err(block.wrong(&format!("is a `{kind}`, which may not stand here"))),
        }
        self.blocks.push(unmarked(block.value()));
        Ok(())
    }

    fn answer(&mut self, block: &Field<'v>) -> Result<(), String> {
        block.only(&[
            "type",
            "tool_use_id",
            "content",
            "is_error",
            "cache_control",
        ])?;
        if !self.texts.is_empty() {
            return Err(block.wrong("stands behind a text: results come first"));
        }
        if let Some(is_error) = block.get("is_error")
            && !is_error.value().is_boolean()
        {
            return Err(is_error.wrong("is neither true nor false"));
        }
        let id = block.need("tool_use_id")?.words()?.to_owned();
        let content = match block.get("content") {
            None => String::new(),
            Some(content) if content.value().is_string() => content.text()?.to_owned(),
            Some(content) => system_prompt(&content)?,
        };
        self.answers.push((id, block.clone()));
        self.results.push(content);
        Ok(())
    }

    /// Takes content that is a plain text.
    fn text(&mut self, content: &Field<'v>) -> Result<(), String> {
        let text = content.words()?;
        self.texts.push(text);
        self.blocks
            .push(json!({"type": "text", "text": text}).to_string());
        Ok(())
    }
}

/// Renders a block without its cache breakpoint.
fn unmarked(block: &Value) -> String {
    let mut block = block.clone();
    if let Some(block) = block.as_object_mut() {
        block.shift_remove("cache_control");
        if let Some(input) = block.get_mut("input") {
            *input = unparsed(input.take());
        }
    }
    block.to_string()
}

/// Renders the stream of a message.
pub(super) fn stream(message: &Message, asked: &ParsedRequest) -> Vec<Piece> {
    let mut stream = Stream {
        pieces: vec![begin(message, asked)],
        index: 0,
        has_ping: false,
    };
    let mut first_call = None;
    for part in &message.content {
        if let Part::Call { .. } = part {
            let first = *first_call.get_or_insert(stream.index);
            if message.duplicate_index {
                stream.index = first;
            }
        }
        stream.part(part, asked);
    }
    stream.ping();
    stream.pieces.push(stopped(message));
    if message.ends {
        stream.send(&json!({"type": "message_stop"}));
    }
    stream.pieces
}

fn begin(message: &Message, asked: &ParsedRequest) -> Piece {
    let mut start = json!({
        "model": asked.model,
        "id": asked.made_id("msg_01", 0),
        "type": "message",
        "role": "assistant",
        "content": [],
        "stop_reason": null,
        "stop_sequence": null,
    });
    if message.reports_usage {
        start["usage"] = usage(&message.usage, message.usage.output.min(1));
    }
    event(&json!({"type": "message_start", "message": start}))
}

fn stopped(message: &Message) -> Piece {
    let word = match message.stops() {
        Stop::End => "end_turn",
        Stop::Calls => "tool_use",
        Stop::Length => "max_tokens",
        Stop::Window => "model_context_window_exceeded",
        Stop::Refusal => "refusal",
        Stop::Pause => "pause_turn",
    };
    let mut stop = json!({
        "type": "message_delta",
        "delta": {"stop_reason": word, "stop_sequence": null},
    });
    if message.reports_usage {
        stop["usage"] = usage(&message.usage, message.usage.output);
    }
    event(&stop)
}

fn usage(usage: &Usage, output: u64) -> Value {
    json!({
        "input_tokens": usage.input,
        "cache_creation_input_tokens": usage.cache_write,
        "cache_read_input_tokens": usage.cache_read,
        "output_tokens": output,
    })
}

/// Renders an error. Its type follows from `status`, unless the script sets it.
pub(super) fn error(error: &ApiError, status: u16) -> Value {
    let kind = match status {
        401 => "authentication_error",
        402 => "billing_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        504 => "timeout_error",
        529 => "overloaded_error",
        500.. => "api_error",
        _ => "invalid_request_error",
    };
    let kind = error.kind.as_deref().unwrap_or(kind);
    let message = error.message.as_deref().unwrap_or("The script says so.");
    json!({"type": "error", "error": {"type": kind, "message": message}})
}

/// Renders an event. Its name is the type of its data.
fn event(data: &Value) -> Piece {
    let name = data["type"].as_str().unwrap_or_default();
    Piece::event(format!("event: {name}\ndata: {data}\n\n"))
}

/// A stream that is being written.
struct Stream {
    pieces: Vec<Piece>,
    /// Index of the next block.
    index: usize,
    has_ping: bool,
}

impl Stream {
    fn part(&mut self, part: &Part, asked: &ParsedRequest) {
        match part {
            Part::Hold(name) => self.pieces.push(Piece::Hold(name.clone())),
            Part::Text(text) => {
                let deltas = pieces(text).map(text_delta).collect();
                self.block(&json!({"type": "text", "text": ""}), deltas);
                if !text.is_empty() {
                    self.complete(&json!({"type": "text", "text": text}));
                }
            }
            Part::Huge(bytes) => {
                let text = "x".repeat(*bytes);
                let start = json!({"type": "text", "text": ""});
                self.block(&start, vec![text_delta(&text)]);
                self.complete(&json!({"type": "text", "text": text}));
            }
            Part::Thinking(text) => {
                let signature = sha256_hex(text);
                let mut deltas: Vec<Value> = pieces(text)
                    .map(|piece| json!({"type": "thinking_delta", "thinking": piece}))
                    .collect();
                deltas.push(json!({"type": "signature_delta", "signature": signature}));
                let start = json!({"type": "thinking", "thinking": "", "signature": ""});
                self.block(&start, deltas);
                self.complete(
                    &json!({"type": "thinking", "thinking": text, "signature": signature}),
                );
            }
            Part::Call { name, input, id } => {
                let made = || asked.made_id("toolu_01", self.pieces.len());
                let id = id.clone().unwrap_or_else(made);
                let text = input
                    .as_str()
                    .map_or_else(|| input.to_string(), ToOwned::to_owned);
                let deltas = std::iter::once("")
                    .chain(pieces(&text))
                    .map(|piece| json!({"type": "input_json_delta", "partial_json": piece}));
                let start = json!({"type": "tool_use", "id": id, "name": name, "input": {}});
                self.block(&start, deltas.collect());
                let mut whole = start;
                whole["input"] = arguments(&text);
                self.complete(&whole);
            }
        }
    }

    fn block(&mut self, start: &Value, deltas: Vec<Value>) {
        let index = self.index;
        self.index += 1;
        self.send(&json!({"type": "content_block_start", "index": index, "content_block": start}));
        self.ping();
        for delta in deltas {
            self.send(&json!({"type": "content_block_delta", "index": index, "delta": delta}));
        }
        self.send(&json!({"type": "content_block_stop", "index": index}));
    }

    /// Marks the newest event as the end of a block, which requests will repeat in this form.
    fn complete(&mut self, block: &Value) {
        if let Some(Piece::Event { completes, .. }) = self.pieces.last_mut() {
            *completes = Some(block.to_string());
        }
    }

    /// Sends the only ping of the vendor, after the first event of another type.
    fn ping(&mut self) {
        if !std::mem::replace(&mut self.has_ping, true) {
            self.send(&json!({"type": "ping"}));
        }
    }

    fn send(&mut self, data: &Value) {
        self.pieces.push(event(data));
    }
}

fn text_delta(text: &str) -> Value {
    json!({"type": "text_delta", "text": text})
}
