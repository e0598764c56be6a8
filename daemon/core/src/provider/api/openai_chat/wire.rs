//! Body of a request.

use serde_json::{Map, Value, json};

use crate::conversation::{Block, Message, Origin, Raw, Root};
use crate::provider::choice::{ResolvedModel, Thinking};
use crate::provider::quirks::{MaxTokensField, Quirks, ReasoningReplay, SystemRole, UsageReport};
use crate::seal::{canonical, canonical_object};

/// Members of a message that hold reasoning.
const REASONING: [&str; 3] = ["reasoning_content", "reasoning", "reasoning_details"];
/// Members of a message that are content of their own.
const CONTENT_KEYS: [&str; 4] = ["tool_calls", "function_call", "refusal", "audio"];
/// Substitute for an empty answer. Providers refuse an empty message. Without it, two messages of the user would be
/// adjacent, which the templates of many models refuse as well.
const EMPTY_ANSWER: &str = "(no answer)";

/// A conversation in the form of this API. Bytes of a pushed message never change: each body begins with the whole
/// previous one.
#[derive(Debug, Clone)]
pub(crate) struct Wire {
    origin: Origin,
    replay: ReasoningReplay,
    /// JSON list; `None` if there are no tools.
    tools: Option<String>,
    /// Messages as one unclosed JSON list, because each body copies it.
    messages: String,
}

impl Wire {
    pub(crate) fn begin(root: &Root, quirks: Quirks) -> Self {
        let tools = root.tools.iter().map(|tool| {
            format!(
                r#"{{"type":"function","function":{{"name":{},"description":{},"parameters":{}}}}}"#,
                text(&tool.name),
                text(&tool.description),
                canonical(&tool.schema)
            )
        });
        let tools: Vec<String> = tools.collect();
        let role = match quirks.system {
            SystemRole::System => "system",
            SystemRole::Developer => "developer",
        };
        let mut wire = Self {
            origin: root.origin.clone(),
            replay: quirks.reasoning_replay,
            tools: (!tools.is_empty()).then(|| format!("[{}]", tools.join(","))),
            messages: "[".to_owned(),
        };
        let system = root.system.as_ref().filter(|system| !system.is_empty());
        if let Some(system) = system {
            wire.add(&text_message(role, system));
        }
        wire
    }

    /// Appends a message, which is a JSON object.
    fn add(&mut self, message: &str) {
        if self.messages.len() > "[".len() {
            self.messages.push(',');
        }
        self.messages.push_str(message);
    }

    pub(crate) fn push(&mut self, message: &Message) {
        match message {
            Message::User { blocks, .. } => {
                for message in blocks.iter().filter_map(user_message) {
                    self.add(&message);
                }
            }
            Message::Assistant {
                origin,
                blocks,
                raw,
                ..
            } => {
                let own = raw.as_ref().filter(|_| *origin == self.origin);
                let own = own.and_then(|raw| received(raw, self.replay));
                self.add(&own.unwrap_or_else(|| neutral(blocks)));
            }
        }
    }

    /// Returns the body of a request for an answer of at most `max_output` tokens.
    pub(crate) fn body(&self, model: &ResolvedModel, max_output: u32) -> String {
        let most = match model.quirks.max_tokens_field {
            MaxTokensField::MaxCompletionTokens => "max_completion_tokens",
            MaxTokensField::MaxTokens => "max_tokens",
        };
        let mut body = format!(
            r#"{{"model":{},"{most}":{max_output},"stream":true"#,
            text(&model.id)
        );
        if model.quirks.usage == UsageReport::Requested {
            body.push_str(r#","stream_options":{"include_usage":true}"#);
        }
        if let Some(Thinking::Effort(Some(effort))) = &model.thinking {
            body.push_str(r#","reasoning_effort":"#);
            body.push_str(&text(effort));
        }
        if let Some(temperature) = model.temperature {
            body.push_str(r#","temperature":"#);
            body.push_str(&json!(temperature).to_string());
        }
        if let Some(tools) = self.tools.as_ref().filter(|_| model.tools) {
            body.push_str(r#","tools":"#);
            body.push_str(tools);
            if model.one_call {
                body.push_str(r#","parallel_tool_calls":false"#);
            }
        }
        body.push_str(r#","messages":"#);
        body.reserve(self.messages.len() + "]}".len());
        body.push_str(&self.messages);
        body.push_str("]}");
        body
    }
}

/// Encodes a text as JSON.
fn text(plain: &str) -> String {
    Value::from(plain).to_string()
}

fn text_message(role: &str, content: &str) -> String {
    format!(r#"{{"role":"{role}","content":{}}}"#, text(content))
}

/// Encodes a block of the user's side as a message of its own.
fn user_message(block: &Block) -> Option<String> {
    match block {
        Block::Text { text } if text.is_empty() => None,
        Block::Text { text } => Some(text_message("user", text)),
        // The API has no member for a failed call; the text reports the failure.
        Block::Result { id, content, .. } => Some(format!(
            r#"{{"role":"tool","tool_call_id":{},"content":{}}}"#,
            text(id),
            text(content)
        )),
        Block::Thinking { .. } | Block::Call { .. } => None,
    }
}

/// Encodes blocks of another model as a message.
fn neutral(blocks: &[Block]) -> String {
    let mut content = String::new();
    let mut calls = Vec::new();
    for block in blocks {
        match block {
            Block::Text { text } => content.push_str(text),
            Block::Call { id, name, input } => calls.push(json!({
                "id": id,
                "type": "function",
                "function": {"name": name, "arguments": canonical_object(input)},
            })),
            Block::Thinking { .. } | Block::Result { .. } => {}
        }
    }
    let mut message = Map::new();
    message.insert("role".to_owned(), json!("assistant"));
    message.insert("content".to_owned(), json!(content));
    if !calls.is_empty() {
        message.insert("tool_calls".to_owned(), Value::Array(calls));
    }
    fix_empty_content(&mut message);
    Value::Object(message).to_string()
}

/// Returns a received message with the reasoning that the provider accepts, or `None` if the text is not a message.
fn received(raw: &Raw, replay: ReasoningReplay) -> Option<String> {
    let mut message: Map<String, Value> = serde_json::from_str(&raw.0).ok()?;
    let kept: &[&str] = match replay {
        ReasoningReplay::Raw => &REASONING,
        ReasoningReplay::None => &[],
        ReasoningReplay::ReasoningContent => &REASONING[..1],
        ReasoningReplay::Reasoning => &REASONING[1..2],
    };
    let received = message.len();
    message.retain(|key, _| kept.contains(&key.as_str()) || !REASONING.contains(&key.as_str()));
    let is_mended = fix_empty_content(&mut message);
    if message.len() == received && !is_mended {
        return Some(raw.0.clone());
    }
    Some(Value::Object(message).to_string())
}

/// Replaces empty content by an accepted value. Returns `false` if the content is not empty.
fn fix_empty_content(message: &mut Map<String, Value>) -> bool {
    let says = |value: &Value| match value {
        Value::Null => false,
        Value::String(text) => !text.trim().is_empty(),
        Value::Array(list) => !list.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::Object(_) => true,
    };
    let content = message.get("content");
    if content.is_some_and(says) {
        return false;
    }
    let is_said = CONTENT_KEYS
        .iter()
        .any(|key| message.get(*key).is_some_and(says));
    if is_said && content.is_some_and(Value::is_null) {
        return false;
    }
    let content = if is_said {
        Value::Null
    } else {
        json!(EMPTY_ANSWER)
    };
    message.insert("content".to_owned(), content);
    true
}
