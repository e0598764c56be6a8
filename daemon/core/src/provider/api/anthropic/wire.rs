//! The body of a request.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::conversation::{Block, Message, Origin, Raw, Root};
use crate::provider::CacheMarks;
use crate::provider::choice::{ResolvedModel, Thinking};
use crate::seal::{canonical, canonical_object};

/// How far behind the newest marked block the other one stands: the vendor looks back twenty blocks for what it has cached.
const BETWEEN_MARKS: usize = 18;

/// What marks the end of a part that should be cached.
const MARK: &str = r#","cache_control":{"type":"ephemeral"}}"#;

/// A conversation as it is sent. A message that was pushed keeps its bytes: each body begins with all of the one before, but for
/// the marks of the cache, which are no content.
#[derive(Debug, Clone)]
pub(in crate::provider) struct Wire {
    origin: Origin,
    system: Option<String>,
    /// A JSON list; `None` if there are no tools.
    tools: Option<String>,
    messages: Vec<Sent>,
}

#[derive(Debug, Clone)]
struct Sent {
    is_assistant: bool,
    parts: Vec<Part>,
}

impl Sent {
    /// At least as many bytes as it takes in a body, but for marks.
    fn len(&self) -> usize {
        const FRAME: usize = r#",{"role":"assistant","content":[]}"#.len();
        let parts = self.parts.iter().map(|part| part.json.len() + 1);
        FRAME + parts.sum::<usize>()
    }
}

/// One block of content, as JSON text.
#[derive(Debug, Clone)]
struct Part {
    json: String,
    /// Whether a mark may stand in it.
    markable: bool,
}

impl Wire {
    pub(in crate::provider) fn begin(root: &Root) -> Self {
        let tools = root.tools.iter().map(|tool| {
            format!(
                r#"{{"name":{},"description":{},"input_schema":{}}}"#,
                text(&tool.name),
                text(&tool.description),
                canonical(&tool.schema)
            )
        });
        let tools: Vec<String> = tools.collect();
        Self {
            origin: root.origin.clone(),
            system: root
                .system
                .clone()
                .filter(|system| !system.trim().is_empty()),
            tools: (!tools.is_empty()).then(|| format!("[{}]", tools.join(","))),
            messages: Vec::new(),
        }
    }

    /// Adds a message. Messages of one side in a row are sent as one, so one that says nothing is left out.
    pub(in crate::provider) fn push(&mut self, message: &Message) {
        let (is_assistant, mut parts) = match message {
            Message::User { blocks, .. } => (false, neutral(blocks)),
            Message::Assistant {
                origin,
                blocks,
                raw,
                ..
            } => {
                let own = raw.as_ref().filter(|_| *origin == self.origin);
                let own = own.and_then(received);
                (true, own.unwrap_or_else(|| neutral(blocks)))
            }
        };
        if parts.is_empty() {
            return;
        }
        match self.messages.last_mut() {
            Some(last) if last.is_assistant == is_assistant => last.parts.append(&mut parts),
            Some(_) | None => self.messages.push(Sent {
                is_assistant,
                parts,
            }),
        }
    }

    /// The body of a request for an answer of at most `max_output` tokens.
    pub(in crate::provider) fn body(&self, model: &ResolvedModel, max_output: u32) -> String {
        let is_marked = model.quirks.cache == CacheMarks::Marked;
        let mut body = format!(
            r#"{{"model":{},"max_tokens":{max_output},"stream":true"#,
            text(&model.id)
        );
        let mut member = |name: &str, value: &str| {
            body.push_str(",\"");
            body.push_str(name);
            body.push_str("\":");
            body.push_str(value);
        };
        match &model.thinking {
            Some(Thinking::Effort(effort)) => {
                member("thinking", r#"{"type":"adaptive","display":"summarized"}"#);
                if let Some(effort) = effort {
                    member("output_config", &json!({"effort": effort}).to_string());
                }
            }
            Some(Thinking::Budget(tokens)) => {
                let thinking = json!({"type": "enabled", "budget_tokens": tokens});
                member("thinking", &thinking.to_string());
            }
            None => {}
        }
        if let Some(temperature) = model.temperature {
            member("temperature", &json!(temperature).to_string());
        }
        if let Some(tools) = self.tools.as_ref().filter(|_| model.tools) {
            member("tools", tools);
            if model.one_call {
                let choice = r#"{"type":"auto","disable_parallel_tool_use":true}"#;
                member("tool_choice", choice);
            }
        }
        if let Some(system) = &self.system {
            let block = block_of_text(system);
            let block = if is_marked { marked(&block) } else { block };
            member("system", &format!("[{block}]"));
        }
        self.write_messages(&mut body, is_marked);
        body.push('}');
        body
    }

    /// Adds the list of messages to `body`: most of it, so it is copied once.
    fn write_messages(&self, body: &mut String, is_marked: bool) {
        let marks = if is_marked { self.marks() } else { [None; 2] };
        body.reserve(self.messages.iter().map(Sent::len).sum::<usize>() + 2 * MARK.len());
        body.push_str(r#","messages":["#);
        let mut at = 0;
        for (index, message) in self.messages.iter().enumerate() {
            let role = if message.is_assistant {
                "assistant"
            } else {
                "user"
            };
            if index > 0 {
                body.push(',');
            }
            body.push_str(r#"{"role":""#);
            body.push_str(role);
            body.push_str(r#"","content":["#);
            for (index, part) in message.parts.iter().enumerate() {
                if index > 0 {
                    body.push(',');
                }
                if marks.contains(&Some(at)) {
                    body.push_str(&marked(&part.json));
                } else {
                    body.push_str(&part.json);
                }
                at += 1;
            }
            body.push_str("]}");
        }
        body.push(']');
    }

    /// Which blocks are marked, counted over all messages: the newest of the user's side, and one before it.
    fn marks(&self) -> [Option<usize>; 2] {
        let count: usize = self.messages.iter().map(|sent| sent.parts.len()).sum();
        let backwards = self.messages.iter().rev().flat_map(|sent| {
            let parts = sent.parts.iter().rev();
            parts.map(|part| (sent.is_assistant, part))
        });
        let mut parts = (0..count).rev().zip(backwards);
        let newest = parts.find(|(_, (is_assistant, part))| !is_assistant && part.markable);
        let newest = newest.map(|(at, _)| at);
        let last = newest.and_then(|newest| newest.checked_sub(BETWEEN_MARKS));
        let before =
            last.and_then(|last| parts.find(|(at, (_, part))| *at <= last && part.markable));
        [newest, before.map(|(at, _)| at)]
    }
}

/// A plain text as JSON.
fn text(plain: &str) -> String {
    Value::from(plain).to_string()
}

fn block_of_text(plain: &str) -> String {
    format!(r#"{{"type":"text","text":{}}}"#, text(plain))
}

/// A block, which is a JSON object with members, with a mark.
fn marked(json: &str) -> String {
    let open = json.trim_end().strip_suffix('}').unwrap_or(json);
    format!("{open}{MARK}")
}

/// Blocks of nobody in particular. Thoughts are left out: none but their own model understands them. So are texts of nothing but
/// blanks, which the vendor refuses.
fn neutral(blocks: &[Block]) -> Vec<Part> {
    let json = blocks.iter().filter_map(|block| match block {
        Block::Text { text } if text.trim().is_empty() => None,
        Block::Text { text } => Some(block_of_text(text)),
        Block::Thinking { .. } => None,
        Block::Call { id, name, input } => Some(format!(
            r#"{{"type":"tool_use","id":{},"name":{},"input":{}}}"#,
            text(id),
            text(name),
            canonical_object(input)
        )),
        Block::Result {
            id,
            content,
            is_error,
        } => Some(format!(
            r#"{{"type":"tool_result","tool_use_id":{},"content":{},"is_error":{is_error}}}"#,
            text(id),
            text(content)
        )),
    });
    json.map(|json| Part {
        json,
        markable: true,
    })
    .collect()
}

/// The blocks of a message as they were received, but for those that the vendor sends and does not take back: texts of nothing but
/// blanks, and thoughts at the end, which lead to nothing. `None` if they are no list of objects.
fn received(raw: &Raw) -> Option<Vec<Part>> {
    #[derive(Deserialize)]
    struct Typed {
        r#type: String,
        #[serde(default)]
        text: Option<String>,
    }
    let blocks: Vec<&RawValue> = serde_json::from_str(&raw.0).ok()?;
    let mut parts = Vec::new();
    // How many of them are left when those at the end that are thoughts are gone.
    let mut whole = 0;
    for block in blocks {
        let typed: Typed = serde_json::from_str(block.get()).ok()?;
        let is_blank = typed.text.is_none_or(|text| text.trim().is_empty());
        if typed.r#type == "text" && is_blank {
            continue;
        }
        parts.push(Part {
            json: block.get().to_owned(),
            markable: matches!(typed.r#type.as_str(), "text" | "tool_use"),
        });
        if !matches!(typed.r#type.as_str(), "thinking" | "redacted_thinking") {
            whole = parts.len();
        }
    }
    parts.truncate(whole);
    Some(parts)
}
