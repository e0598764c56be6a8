//! Body of a request.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::conversation::{Block, Message, Origin, Raw, Root};
use crate::provider::choice::{ResolvedModel, Thinking};
use crate::provider::quirks::CacheMarks;
use crate::seal::{canonical, canonical_object};

/// Number of blocks between the two breakpoints in messages. The vendor looks back 20 blocks for a cached prefix.
const BREAKPOINT_DISTANCE: usize = 18;

/// Cache breakpoint, as the last member of a block.
const CACHE_CONTROL: &str = r#","cache_control":{"type":"ephemeral"}"#;

/// A conversation in the form of this API. Bytes of a pushed message never change: each body begins with the whole
/// previous one, except for cache breakpoints, which are not content.
#[derive(Debug, Clone)]
pub(crate) struct Wire {
    origin: Origin,
    system: Option<String>,
    /// JSON list; `None` if there are no tools.
    tools: Option<String>,
    /// Messages as one JSON text, because each body copies it. The last message and the list are not closed.
    messages: String,
    /// Role of the last message.
    last: Option<Side>,
    /// Positions of the blocks in `messages`.
    blocks: Vec<BlockPosition>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    User,
    Assistant,
}

/// Position of a block in the text of the messages.
#[derive(Debug, Clone, Copy)]
struct BlockPosition {
    side: Side,
    /// Offset of the block's closing brace.
    end: usize,
    allows_breakpoint: bool,
}

/// One block of content, as JSON text.
#[derive(Debug)]
struct ContentBlock {
    /// A JSON object with at least one member.
    json: String,
    /// True if the block may carry a cache breakpoint.
    allows_breakpoint: bool,
}

impl Wire {
    pub(crate) fn begin(root: &Root) -> Self {
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
            messages: "[".to_owned(),
            last: None,
            blocks: Vec::new(),
        }
    }

    /// Adds a message. Adjacent messages of one role are sent as one, so a message without content is omitted.
    pub(crate) fn push(&mut self, message: &Message) {
        let (side, parts) = match message {
            Message::User { blocks, .. } => (Side::User, neutral(blocks)),
            Message::Assistant {
                origin,
                blocks,
                raw,
                ..
            } => {
                let own = raw.as_ref().filter(|_| *origin == self.origin);
                let own = own.and_then(received);
                (Side::Assistant, own.unwrap_or_else(|| neutral(blocks)))
            }
        };
        for part in &parts {
            self.messages.push_str(match (self.last, side) {
                (Some(last), _) if last == side => ",",
                (None, Side::User) => r#"{"role":"user","content":["#,
                (None, Side::Assistant) => r#"{"role":"assistant","content":["#,
                (Some(_), Side::User) => r#"]},{"role":"user","content":["#,
                (Some(_), Side::Assistant) => r#"]},{"role":"assistant","content":["#,
            });
            self.last = Some(side);
            self.messages.push_str(&part.json);
            self.blocks.push(BlockPosition {
                side,
                end: self.messages.len() - 1,
                allows_breakpoint: part.allows_breakpoint,
            });
        }
    }

    /// Returns the body of a request for an answer of at most `max_output` tokens.
    pub(crate) fn body(&self, model: &ResolvedModel, max_output: u32) -> String {
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
            let block = if is_marked {
                with_breakpoint(&block)
            } else {
                block
            };
            member("system", &format!("[{block}]"));
        }
        let marks = if is_marked {
            self.breakpoints()
        } else {
            [None; 2]
        };
        body.push_str(r#","messages":"#);
        body.reserve(self.messages.len() + 2 * CACHE_CONTROL.len() + r"]}]}".len());
        let mut written = 0;
        for end in marks.into_iter().flatten() {
            body.push_str(&self.messages[written..end]);
            body.push_str(CACHE_CONTROL);
            written = end;
        }
        body.push_str(&self.messages[written..]);
        body.push_str(if self.last.is_some() { "]}]}" } else { "]}" });
        body
    }

    /// Returns the offsets of the breakpoints: in an earlier block, and in the newest block of the user's role.
    fn breakpoints(&self) -> [Option<usize>; 2] {
        let blocks = &self.blocks;
        let is_newest = |block: &BlockPosition| block.side == Side::User && block.allows_breakpoint;
        let Some(newest) = blocks.iter().rposition(is_newest) else {
            return [None; 2];
        };
        let earlier = (newest + 1).saturating_sub(BREAKPOINT_DISTANCE);
        let earlier = blocks[..earlier]
            .iter()
            .rfind(|block| block.allows_breakpoint);
        [earlier.map(|block| block.end), Some(blocks[newest].end)]
    }
}

/// Encodes a text as JSON.
fn text(plain: &str) -> String {
    Value::from(plain).to_string()
}

fn block_of_text(plain: &str) -> String {
    format!(r#"{{"type":"text","text":{}}}"#, text(plain))
}

/// Adds a cache breakpoint to a block.
fn with_breakpoint(json: &str) -> String {
    let open = json.strip_suffix('}').unwrap_or(json);
    format!("{open}{CACHE_CONTROL}}}")
}

/// Encodes blocks of another model. Reasoning is omitted, because only its own model accepts it. Blank texts are
/// omitted too, because the vendor refuses them.
fn neutral(blocks: &[Block]) -> Vec<ContentBlock> {
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
    json.map(|json| ContentBlock {
        json,
        allows_breakpoint: true,
    })
    .collect()
}

/// Returns the blocks of a received message, without the blocks that the vendor sends but does not accept: blank texts,
/// and reasoning at the end. Returns `None` if the text is not a list of objects.
fn received(raw: &Raw) -> Option<Vec<ContentBlock>> {
    #[derive(Deserialize)]
    struct Typed {
        r#type: String,
        #[serde(default)]
        text: Option<String>,
    }
    let blocks: Vec<&RawValue> = serde_json::from_str(&raw.0).ok()?;
    let mut parts = Vec::new();
    // Number of blocks without the reasoning at the end.
    let mut whole = 0;
    for block in blocks {
        let typed: Typed = serde_json::from_str(block.get()).ok()?;
        let is_blank = typed.text.is_none_or(|text| text.trim().is_empty());
        if typed.r#type == "text" && is_blank {
            continue;
        }
        parts.push(ContentBlock {
            json: block.get().to_owned(),
            allows_breakpoint: matches!(typed.r#type.as_str(), "text" | "tool_use"),
        });
        if !matches!(typed.r#type.as_str(), "thinking" | "redacted_thinking") {
            whole = parts.len();
        }
    }
    parts.truncate(whole);
    Some(parts)
}
