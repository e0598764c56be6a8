//! Parses a script. Each error names its line.

use std::time::Duration;

use hyper::header::HeaderValue;
use rye_core::yaml::{self, YamlFault};
use serde_json::Value;

use super::node::Node;
use super::{
    ApiError, Flow, Kind, Message, Part, Reply, Rule, Script, Status, Stop, StreamFault, Usage,
    Wait, When,
};

/// Longest text that a script generates, in bytes.
const MOST_HUGE: usize = 64 << 20;
/// Longest pause in milliseconds.
const MOST_PAUSE: u64 = 600_000;
/// Most tokens of one kind: far more than any model has, and few enough for sums without overflow.
const MOST_TOKENS: u64 = 1_000_000_000_000_000;
/// Largest position in a stream, in events.
const MOST_EVENTS: usize = 1_000_000;

/// Words of a script for the reasons to stop.
const STOPS: [(&str, Stop); 6] = [
    ("end", Stop::End),
    ("calls", Stop::Calls),
    ("length", Stop::Length),
    ("window", Stop::Window),
    ("refusal", Stop::Refusal),
    ("pause", Stop::Pause),
];

impl Script {
    pub(crate) fn parse(text: &str) -> Result<Self, YamlFault> {
        let document = yaml::parse(text)?;
        let entries = Node::root(&document).entries()?;
        let rules: Vec<Rule> = entries.iter().map(Rule::read).collect::<Result<_, _>>()?;
        let holds = rules.iter().flat_map(|rule| rule.reply.holds()).collect();
        Ok(Self { rules, holds })
    }
}

impl Rule {
    fn read(node: &Node<'_>) -> Result<Self, YamlFault> {
        node.keys(&["when", "reply", "times"])?;
        let reply = node.get("reply");
        let reply = reply.ok_or_else(|| node.wrong("the rule has no `reply`"))?;
        let times = node.read("times", |node| node.number(u32::MAX))?;
        if times == Some(0) {
            return Err(node.wrong("a rule with `times: 0` answers nothing: leave it out"));
        }
        Ok(Self {
            line: node.line(),
            when: node.read("when", When::read)?.unwrap_or_default(),
            times,
            reply: Reply::read(&reply)?,
        })
    }
}

impl When {
    fn read(node: &Node<'_>) -> Result<Self, YamlFault> {
        node.keys(&["directive", "turn", "tool_result", "contains"])?;
        let turn = node.read("turn", |node| node.number(usize::MAX))?;
        if turn == Some(0) {
            return Err(node.wrong("the first turn is 1"));
        }
        Ok(Self {
            directive: node.read("directive", Node::text)?,
            turn,
            tool_result: node.read("tool_result", Node::text)?,
            contains: node.read("contains", Node::text)?,
        })
    }
}

/// Keys of a refusal.
const OF_STATUS: [&str; 3] = ["status", "retry_after", "error"];
/// Faults of a stream. A reply has at most one.
const FAULTS: [&str; 5] = [
    "cut_after",
    "reset_after",
    "stall",
    "malformed",
    "error_event",
];
/// Other keys of a reply with a message.
const OF_MESSAGE: [&str; 12] = [
    "text",
    "thinking",
    "calls",
    "content",
    "huge",
    "usage",
    "stop",
    "pace_ms",
    "hold",
    "no_end",
    "no_usage",
    "duplicate_index",
];

impl Reply {
    fn read(node: &Node<'_>) -> Result<Self, YamlFault> {
        let every = ["slow_headers", "reset_before"];
        let known = [&every[..], &OF_STATUS, &FAULTS, &OF_MESSAGE].concat();
        node.keys(&known)?;
        let only = |keys: &[&str], of: &str| {
            let other = known
                .iter()
                .find(|key| !keys.contains(key) && node.get(key).is_some());
            other.map_or(Ok(()), |other| {
                Err(node.wrong(format!("a reply with `{of}` has no `{other}`")))
            })
        };
        let kind = if node.read("reset_before", Node::flag)? == Some(true) {
            only(&every, "reset_before")?;
            Kind::Reset
        } else if let Some(status) = node.get("status") {
            only(&[&OF_STATUS[..], &every].concat(), "status")?;
            Kind::Status(Status::read(node, &status)?)
        } else {
            let other = OF_STATUS.iter().find(|key| node.get(key).is_some());
            if let Some(other) = other {
                return Err(node.wrong(format!("`{other}` goes with a `status`")));
            }
            Kind::Message(Message::read(node)?)
        };
        Ok(Self {
            wait: node.read("slow_headers", Wait::read)?,
            kind,
        })
    }
}

impl Wait {
    fn read(node: &Node<'_>) -> Result<Self, YamlFault> {
        if node.value().is_string() {
            return Ok(Self::Release(node.text()?));
        }
        let pause = node.number(MOST_PAUSE).map_err(|_fault| {
            node.wrong(format!(
                "`slow_headers` is neither a number of milliseconds up to {MOST_PAUSE} nor a name to release"
            ))
        })?;
        Ok(Self::Time(Duration::from_millis(pause)))
    }
}

impl Status {
    fn read(node: &Node<'_>, status: &Node<'_>) -> Result<Self, YamlFault> {
        let code = status.number(599_u16)?;
        if code < 400 {
            return Err(status.wrong("`status` is from 400 to 599"));
        }
        Ok(Self {
            code,
            retry_after: node.read("retry_after", header)?,
            error: node
                .read("error", |node| ApiError::read(node, &[]))?
                .unwrap_or_default(),
        })
    }
}

/// Reads a number or a text that is valid in a header.
fn header(node: &Node<'_>) -> Result<HeaderValue, YamlFault> {
    if let Some(seconds) = node.value().as_u64() {
        return Ok(seconds.into());
    }
    let text = node.text()?;
    text.parse()
        .map_err(|_error| node.wrong("`retry_after` has characters that no header takes"))
}

impl ApiError {
    fn read(node: &Node<'_>, beside: &[&str]) -> Result<Self, YamlFault> {
        node.keys(&[&["type", "message"], beside].concat())?;
        Ok(Self {
            kind: node.read("type", Node::text)?,
            message: node.read("message", Node::text)?,
        })
    }
}

impl Message {
    fn read(node: &Node<'_>) -> Result<Self, YamlFault> {
        let content = content(node)?;
        let duplicate_index = node.read("duplicate_index", Node::flag)? == Some(true);
        let calls = content
            .iter()
            .filter(|part| matches!(part, Part::Call { .. }));
        if duplicate_index && calls.count() < 2 {
            return Err(node.wrong("`duplicate_index` needs two calls"));
        }
        Ok(Self {
            content,
            usage: node.read("usage", Usage::read)?.unwrap_or_else(Usage::some),
            stop: node.read("stop", Stop::read)?,
            flow: Flow::read(node)?,
            reports_usage: node.read("no_usage", Node::flag)? != Some(true),
            ends: node.read("no_end", Node::flag)? != Some(true),
            duplicate_index,
        })
    }
}

/// Reads the content of a message: `content` unchanged, or thoughts, then text, then calls.
fn content(node: &Node<'_>) -> Result<Vec<Part>, YamlFault> {
    if let Some(content) = node.get("content") {
        let short = ["text", "thinking", "calls", "huge"];
        if let Some(other) = short.iter().find(|key| node.get(key).is_some()) {
            return Err(node.wrong(format!("`{other}` belongs into `content`")));
        }
        return content.entries()?.iter().map(Part::read).collect();
    }
    let mut parts = Vec::new();
    parts.extend(node.read("thinking", Node::text)?.map(Part::Thinking));
    parts.extend(node.read("text", Node::text)?.map(Part::Text));
    parts.extend(node.read("huge", huge)?);
    if let Some(calls) = node.get("calls") {
        for call in calls.entries()? {
            parts.push(Part::call(&call)?);
        }
    }
    Ok(parts)
}

fn huge(node: &Node<'_>) -> Result<Part, YamlFault> {
    node.number(MOST_HUGE).map(Part::Huge)
}

impl Part {
    /// Reads an entry of `content`, which has one key.
    fn read(node: &Node<'_>) -> Result<Self, YamlFault> {
        node.keys(&["text", "thinking", "call", "hold", "huge"])?;
        let pair = node.pair();
        let (key, value) = pair.ok_or_else(|| node.wrong("an entry of `content` has one key"))?;
        match key {
            "text" => value.text().map(Self::Text),
            "thinking" => value.text().map(Self::Thinking),
            "hold" => value.text().map(Self::Hold),
            "huge" => huge(&value),
            _ => Self::call(&value),
        }
    }

    fn call(node: &Node<'_>) -> Result<Self, YamlFault> {
        node.keys(&["name", "input", "id"])?;
        let name = node.read("name", Node::text)?;
        let input = node.read("input", |node| match node.value() {
            input @ (Value::Object(_) | Value::String(_)) => Ok(input.clone()),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => {
                Err(node.wrong("`input` is a mapping, or text that is sent as it is"))
            }
        })?;
        Ok(Self::Call {
            name: name.ok_or_else(|| node.wrong("the call has no `name`"))?,
            input: input.unwrap_or_else(|| Value::Object(serde_json::Map::new())),
            id: node.read("id", Node::text)?,
        })
    }
}

impl Usage {
    /// Returns the usage of a message for which the script sets none.
    fn some() -> Self {
        Self {
            input: 100,
            output: 20,
            cache_read: 0,
            cache_write: 0,
        }
    }

    fn read(node: &Node<'_>) -> Result<Self, YamlFault> {
        node.keys(&["input", "output", "cache_read", "cache_write"])?;
        let tokens = |key| {
            let tokens = node.read(key, |node| node.number(MOST_TOKENS))?;
            Ok(tokens.unwrap_or_default())
        };
        Ok(Self {
            input: tokens("input")?,
            output: tokens("output")?,
            cache_read: tokens("cache_read")?,
            cache_write: tokens("cache_write")?,
        })
    }
}

impl Stop {
    fn read(node: &Node<'_>) -> Result<Self, YamlFault> {
        let word = node.text()?;
        let found = STOPS.iter().find(|(known, _)| *known == word);
        found.map(|(_, stop)| *stop).ok_or_else(|| {
            let words: Vec<&str> = STOPS.iter().map(|(word, _)| *word).collect();
            node.wrong(format!("`stop` is one of {}", words.join(", ")))
        })
    }
}

impl Flow {
    fn read(node: &Node<'_>) -> Result<Self, YamlFault> {
        let pace = node.read("pace_ms", |node| node.number(MOST_PAUSE))?;
        let given: Vec<&str> = FAULTS
            .into_iter()
            .filter(|key| node.get(key).is_some())
            .collect();
        if let [one, other, ..] = given[..] {
            return Err(node.wrong(format!("a stream has `{one}` or `{other}`, not both")));
        }
        let fault = match given.first() {
            Some(key) => node.read(key, |node| fault(key, node))?,
            None => None,
        };
        Ok(Self {
            pace: pace.map(Duration::from_millis),
            hold: node.read("hold", hold)?,
            fault,
        })
    }
}

/// Reads `NAME`, which waits before the first event, or `{name, before}`.
fn hold(node: &Node<'_>) -> Result<(usize, String), YamlFault> {
    if node.value().is_string() {
        return Ok((0, node.text()?));
    }
    node.keys(&["name", "before"])?;
    let name = node.read("name", Node::text)?;
    let before = node.read("before", |node| node.number(MOST_EVENTS))?;
    let name = name.ok_or_else(|| node.wrong("`hold` has no `name`"))?;
    Ok((before.unwrap_or_default(), name))
}

fn fault(key: &str, node: &Node<'_>) -> Result<(usize, StreamFault), YamlFault> {
    let fault = match key {
        "cut_after" => StreamFault::Cut,
        "reset_after" => StreamFault::Reset,
        "stall" => StreamFault::Stall,
        "malformed" => StreamFault::Malformed,
        _ => {
            let after = node.read("after", |node| node.number(MOST_EVENTS))?;
            let error = ApiError::read(node, &["after"])?;
            return Ok((after.unwrap_or_default(), StreamFault::Error(error)));
        }
    };
    Ok((node.number(MOST_EVENTS)?, fault))
}
