//! `POST /v1/chat/completions` of `OpenAI`.

use rye_core::provider::Api;
use serde_json::{Value, json};

use super::field::Field;
use super::play::Piece;
use super::request::{ParsedRequest, Turn, add_call, arguments, check_answers, pieces, unparsed};
use super::script::{ApiError, Message, Part, Stop, Usage};

/// Allowed keys of a body.
const KEYS: [&str; 19] = [
    "model",
    "messages",
    "max_tokens",
    "max_completion_tokens",
    "stream",
    "stream_options",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "reasoning_effort",
    "temperature",
    "top_p",
    "stop",
    "n",
    "user",
    "metadata",
    "seed",
    "store",
    "prompt_cache_key",
];

/// Parses the body of a request. The error names the rule of the API that it breaks.
pub(super) fn read(body: &Value) -> Result<ParsedRequest, String> {
    let root = Field::root(body);
    root.only(&KEYS)?;
    root.need("model")?.words()?;
    root.need("stream")?.is(true)?;
    match (root.get("max_tokens"), root.get("max_completion_tokens")) {
        (Some(most), None) | (None, Some(most)) => most.count()?,
        (Some(_), Some(_)) => {
            return Err(root.wrong("has `max_tokens` and `max_completion_tokens`"));
        }
        (None, None) => {
            return Err(root.wrong("has neither `max_tokens` nor `max_completion_tokens`"));
        }
    };
    if let Some(tools) = root.get("tools") {
        check_tools(&tools)?;
    }
    let mut wants_usage = false;
    if let Some(options) = root.get("stream_options") {
        options.only(&["include_usage", "include_obfuscation"])?;
        wants_usage = body["stream_options"]["include_usage"] == true;
    }
    let mut reading = Reading::default();
    for message in root.need("messages")?.list()? {
        reading.message(&message)?;
    }
    reading.settle()?;
    if reading.turns.is_empty() {
        return Err(root.need("messages")?.wrong("has no message of the user"));
    }
    let asked = ParsedRequest::new(Api::OpenaiChat, body, &reading.system, reading.turns);
    Ok(ParsedRequest {
        requests_usage: wants_usage,
        ..asked
    })
}

fn check_tools(tools: &Field<'_>) -> Result<(), String> {
    let mut names = Vec::new();
    for tool in tools.list()? {
        tool.only(&["type", "function"])?;
        tool.need("type")?.is("function")?;
        let function = tool.need("function")?;
        function.only(&["name", "description", "parameters", "strict"])?;
        let name = function.need("name")?.tool_name()?;
        if names.contains(&name) {
            return Err(function.wrong(&format!("is a second tool `{name}`")));
        }
        names.push(name);
        function.need("parameters")?.need("type")?.is("object")?;
    }
    Ok(())
}

/// Messages that are being read.
#[derive(Default)]
struct Reading<'v> {
    system: String,
    turns: Vec<Turn>,
    /// Calls of the model's newest message, and their answers.
    calls: Vec<String>,
    answers: Vec<(String, Field<'v>)>,
}

impl<'v> Reading<'v> {
    fn message(&mut self, message: &Field<'v>) -> Result<(), String> {
        match message.need("role")?.text()? {
            "tool" => return self.answer(message),
            "system" | "developer" if self.turns.is_empty() => {
                message.only(&["role", "content"])?;
                self.system.push_str(&content(message)?);
            }
            "user" => {
                self.settle()?;
                message.only(&["role", "content"])?;
                let text = content(message)?;
                self.turns.push(Turn {
                    json: json!({"user": text}).to_string(),
                    text,
                    ..Turn::default()
                });
            }
            "assistant" => {
                let follows = self.turns.last().is_some_and(|turn| turn.blocks.is_none());
                if !follows {
                    return Err(message.wrong(
                        "is not the user's: the user begins, and the assistant does not speak twice",
                    ));
                }
                self.settle()?;
                self.assistant_message(message)?;
            }
            "system" | "developer" => {
                return Err(message.wrong("is the system's: these stand first"));
            }
            _ => return Err(message.wrong("is nobody's: its `role` is not known")),
        }
        Ok(())
    }

    /// Checks the answers to the calls of the model's newest message; no more will follow.
    fn settle(&mut self) -> Result<(), String> {
        let calls = std::mem::take(&mut self.calls);
        check_answers(&calls, &std::mem::take(&mut self.answers))
    }

    fn answer(&mut self, message: &Field<'v>) -> Result<(), String> {
        message.only(&["role", "tool_call_id", "content"])?;
        let id = message.need("tool_call_id")?.words()?.to_owned();
        let result = message.need("content")?.text()?.to_owned();
        if self.calls.is_empty() {
            return Err(message.wrong(&format!(
                "answers `{id}`, and does not stand right behind the message that calls it"
            )));
        }
        self.answers.push((id.clone(), message.clone()));
        self.turns.push(Turn {
            json: json!({"tool": id, "result": result}).to_string(),
            results: vec![result],
            ..Turn::default()
        });
        Ok(())
    }

    /// Takes a message of the model. It may have unknown fields, because vendors add some.
    fn assistant_message(&mut self, message: &Field<'v>) -> Result<(), String> {
        let mut blocks = Vec::new();
        if let Some(content) = message.get("content").filter(|c| !c.value().is_null()) {
            blocks.push(json!({"text": content.words()?}).to_string());
        }
        if let Some(calls) = message.get("tool_calls") {
            for call in calls.list()? {
                call.only(&["id", "type", "function"])?;
                call.need("type")?.is("function")?;
                let function = call.need("function")?;
                let id = call.need("id")?;
                add_call(&mut self.calls, &id)?;
                let name = function.need("name")?.tool_name()?;
                let text = function.need("arguments")?;
                let input: Value = serde_json::from_str(text.text()?)
                    .map_err(|error| text.wrong(&format!("is not JSON: {error}")))?;
                blocks.push(called(id.text()?, name, &unparsed(input)));
            }
        }
        let says_other = || {
            let fields = message.value().as_object().into_iter().flatten();
            fields
                .filter(|(key, _)| !matches!(key.as_str(), "role" | "content" | "tool_calls"))
                .any(|(_, value)| !value.is_null())
        };
        if blocks.is_empty() && !says_other() {
            return Err(message.wrong("says nothing"));
        }
        self.turns.push(Turn {
            json: json!({"assistant": blocks}).to_string(),
            blocks: Some(blocks),
            ..Turn::default()
        });
        Ok(())
    }
}

fn called(id: &str, name: &str, input: &Value) -> String {
    json!({"id": id, "name": name, "input": input}).to_string()
}

/// Returns the content of a message, which is a text or a list of texts.
fn content(message: &Field<'_>) -> Result<String, String> {
    let content = message.need("content")?;
    if content.value().is_string() {
        return Ok(content.words()?.to_owned());
    }
    let mut texts = Vec::new();
    for part in content.list()? {
        part.only(&["type", "text"])?;
        part.need("type")?.is("text")?;
        texts.push(part.need("text")?.words()?);
    }
    Ok(texts.join("\n"))
}

/// Renders the stream of a message.
pub(super) fn stream(message: &Message, asked: &ParsedRequest) -> Result<Vec<Piece>, String> {
    let mut stream = Stream {
        parsed: asked,
        tells_usage: asked.requests_usage && message.reports_usage,
        duplicate_index: message.duplicate_index,
        pieces: Vec::new(),
        calls: 0,
        text: String::new(),
        open: None,
    };
    stream.delta(&json!({"role": "assistant", "content": "", "refusal": null}));
    for part in &message.content {
        stream.part(part)?;
    }
    if message.ends {
        stream.stopped(message.stops());
    }
    if stream.tells_usage {
        stream.usage(&message.usage);
    }
    if message.ends {
        stream
            .pieces
            .push(Piece::event("data: [DONE]\n\n".to_owned()));
    }
    Ok(stream.pieces)
}

/// A stream that is being written.
struct Stream<'a> {
    parsed: &'a ParsedRequest,
    tells_usage: bool,
    duplicate_index: bool,
    pieces: Vec<Piece>,
    calls: usize,
    /// Text so far.
    text: String,
    /// The open call in the form of later requests. The next call or the end completes it.
    open: Option<String>,
}

impl Stream<'_> {
    fn part(&mut self, part: &Part) -> Result<(), String> {
        match part {
            Part::Hold(name) => self.pieces.push(Piece::Hold(name.clone())),
            Part::Thinking(text) => {
                for piece in pieces(text) {
                    self.delta(&json!({"reasoning_content": piece}));
                }
            }
            Part::Text(_) | Part::Huge(_) if self.calls > 0 => {
                return Err("this api has no text behind a call".to_owned());
            }
            Part::Text(text) => {
                self.text.push_str(text);
                for piece in pieces(text) {
                    self.delta(&json!({"content": piece}));
                }
            }
            Part::Huge(bytes) => {
                let text = "x".repeat(*bytes);
                self.delta(&json!({"content": text}));
                self.text.push_str(&text);
            }
            Part::Call { name, input, id } => self.call(name, input, id.as_deref()),
        }
        Ok(())
    }

    fn call(&mut self, name: &str, input: &Value, id: Option<&str>) {
        let made = || self.parsed.made_id("call_", self.calls);
        let id = id.map_or_else(made, ToOwned::to_owned);
        let index = if self.duplicate_index { 0 } else { self.calls };
        let complete = self.complete();
        self.calls += 1;
        let text = input
            .as_str()
            .map_or_else(|| input.to_string(), ToOwned::to_owned);
        self.delta(&json!({"tool_calls": [{
            "index": index,
            "id": id,
            "type": "function",
            "function": {"name": name, "arguments": ""},
        }]}));
        self.completes(complete);
        for piece in pieces(&text) {
            let function = json!({"arguments": piece});
            self.delta(&json!({"tool_calls": [{"index": index, "function": function}]}));
        }
        self.open = Some(called(&id, name, &arguments(&text)));
    }

    /// Takes the part that the next call or the end completes.
    fn complete(&mut self) -> Option<String> {
        let text = (self.calls == 0 && !self.text.is_empty())
            .then(|| json!({"text": self.text}).to_string());
        self.open.take().or(text)
    }

    /// Marks the newest event as the end of a part.
    fn completes(&mut self, part: Option<String>) {
        if let Some(Piece::Event { completes, .. }) = self.pieces.last_mut() {
            *completes = part;
        }
    }

    fn stopped(&mut self, stop: Stop) {
        let word = match stop {
            Stop::End | Stop::Pause => "stop",
            Stop::Calls => "tool_calls",
            Stop::Length | Stop::Window => "length",
            Stop::Refusal => "content_filter",
        };
        let complete = self.complete();
        self.chunk(
            &json!([{"index": 0, "delta": {}, "logprobs": null, "finish_reason": word}]),
            &Value::Null,
        );
        self.completes(complete);
    }

    fn usage(&mut self, usage: &Usage) {
        let prompt = usage.input + usage.cache_read + usage.cache_write;
        let usage = json!({
            "prompt_tokens": prompt,
            "completion_tokens": usage.output,
            "total_tokens": prompt + usage.output,
            "prompt_tokens_details": {
                "cached_tokens": usage.cache_read,
                "cache_write_tokens": usage.cache_write,
            },
            "completion_tokens_details": {"reasoning_tokens": 0},
        });
        self.chunk(&json!([]), &usage);
    }

    fn delta(&mut self, delta: &Value) {
        let choice = json!({"index": 0, "delta": delta, "logprobs": null, "finish_reason": null});
        self.chunk(&json!([choice]), &Value::Null);
    }

    fn chunk(&mut self, choices: &Value, usage: &Value) {
        let mut chunk = json!({
            "id": self.parsed.made_id("chatcmpl-", 0),
            "object": "chat.completion.chunk",
            "created": 1_800_000_000,
            "model": self.parsed.model,
            "choices": choices,
        });
        // If the client requests usage, all chunks have the field. It is null in all but the last.
        if self.tells_usage {
            chunk["usage"] = usage.clone();
        }
        self.pieces.push(Piece::event(format!("data: {chunk}\n\n")));
    }
}

/// Renders an error. Its type follows from `status`, unless the script sets it.
pub(super) fn error(error: &ApiError, status: u16) -> Value {
    let kind = match status {
        401 => "authentication_error",
        403 => "permission_error",
        429 => "rate_limit_exceeded",
        500.. => "server_error",
        _ => "invalid_request_error",
    };
    let kind = error.kind.as_deref().unwrap_or(kind);
    let message = error.message.as_deref().unwrap_or("The script says so.");
    json!({"error": {"message": message, "type": kind, "param": null, "code": kind}})
}
