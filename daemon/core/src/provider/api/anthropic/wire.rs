//! The body of a request.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::conversation::{Block, Message, Origin, Raw, Root};
use crate::provider::choice::{ResolvedModel, Thinking};
use crate::provider::quirks::CacheMarks;
use crate::seal::{canonical, canonical_object};

/// How far behind the newest marked block the other one stands: the vendor looks back twenty blocks for what it has cached.
const BETWEEN_MARKS: usize = 18;

/// What marks the end of a part that should be cached, as the last member of a block.
const MARK: &str = r#","cache_control":{"type":"ephemeral"}"#;

/// A conversation as it is sent. A message that was pushed keeps its bytes: each body begins with all of the one before, but for
/// the marks of the cache, which are no content.
#[derive(Debug, Clone)]
pub(crate) struct Wire {
    origin: Origin,
    system: Option<String>,
    /// A JSON list; `None` if there are no tools.
    tools: Option<String>,
    /// The messages as a JSON list, in one piece, because a body is made by copying them; the last message and the list are not closed.
    messages: String,
    /// Whose the last message is.
    last: Option<Side>,
    /// The blocks in `messages`.
    blocks: Vec<Placed>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    User,
    Assistant,
}

/// A block in the text of the messages.
#[derive(Debug, Clone, Copy)]
struct Placed {
    side: Side,
    /// Where the brace stands that closes it.
    end: usize,
    markable: bool,
}

/// One block of content, as JSON text.
#[derive(Debug)]
struct Part {
    /// An object with members.
    json: String,
    /// Whether a mark may stand in it.
    markable: bool,
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

    /// Adds a message. Messages of one side in a row are sent as one, so one that says nothing is left out.
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
            self.blocks.push(Placed {
                side,
                end: self.messages.len() - 1,
                markable: part.markable,
            });
        }
    }

    /// The body of a request for an answer of at most `max_output` tokens.
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
            let block = if is_marked { marked(&block) } else { block };
            member("system", &format!("[{block}]"));
        }
        let marks = if is_marked { self.marks() } else { [None; 2] };
        body.push_str(r#","messages":"#);
        body.reserve(self.messages.len() + 2 * MARK.len() + r"]}]}".len());
        let mut written = 0;
        for end in marks.into_iter().flatten() {
            body.push_str(&self.messages[written..end]);
            body.push_str(MARK);
            written = end;
        }
        body.push_str(&self.messages[written..]);
        body.push_str(if self.last.is_some() { "]}]}" } else { "]}" });
        body
    }

    /// Where marks stand: in the newest block of the user's side, and before that in an earlier one.
    fn marks(&self) -> [Option<usize>; 2] {
        let blocks = &self.blocks;
        let is_newest = |block: &Placed| block.side == Side::User && block.markable;
        let Some(newest) = blocks.iter().rposition(is_newest) else {
            return [None; 2];
        };
        let earlier = (newest + 1).saturating_sub(BETWEEN_MARKS);
        let earlier = blocks[..earlier].iter().rfind(|block| block.markable);
        [earlier.map(|block| block.end), Some(blocks[newest].end)]
    }
}

/// A plain text as JSON.
fn text(plain: &str) -> String {
    Value::from(plain).to_string()
}

fn block_of_text(plain: &str) -> String {
    format!(r#"{{"type":"text","text":{}}}"#, text(plain))
}

/// A block with a mark.
fn marked(json: &str) -> String {
    let open = json.strip_suffix('}').unwrap_or(json);
    format!("{open}{MARK}}}")
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
