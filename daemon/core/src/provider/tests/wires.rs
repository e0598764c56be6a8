//! Bodies of requests.

use super::*;
use crate::conversation::{
    Block, Conversation, Digest, Message, Origin, Raw, Root, Source, Stop, Tool, ToolMode,
};

fn origin() -> Origin {
    model().origin()
}

fn root() -> Root {
    Root {
        system: Some("Be \"brief\"".to_owned()),
        tools: vec![Tool {
            name: "echo".to_owned(),
            description: "Says é".to_owned(),
            schema: json!({"type": "object", "a": 1}),
        }],
        tool_mode: ToolMode::Native,
        origin: origin(),
    }
}

fn begun(root: Root, messages: Vec<Message>) -> Wire {
    Wire::new(
        &Conversation::begin(Digest::of("x"), root, messages).unwrap(),
        &model(),
    )
}

fn user(text: &str) -> Message {
    Message::text(Source::Directive, text)
}

fn call(id: &str) -> Block {
    Block::Call {
        id: id.to_owned(),
        name: "echo".to_owned(),
        input: json!({"b": 1, "a": 2}).as_object().cloned().unwrap(),
    }
}

fn result(id: &str) -> Message {
    Message::User {
        source: Source::Tools,
        blocks: vec![Block::Result {
            id: id.to_owned(),
            content: "done".to_owned(),
            is_error: false,
        }],
    }
}

fn said(raw: Option<&str>, blocks: Vec<Block>, origin: Origin) -> Message {
    Message::Assistant {
        origin,
        blocks,
        raw: raw.map(|raw| Raw(raw.to_owned())),
        stop: Some(Stop::Calls),
        partial: false,
    }
}

const RAW: &str = r#"[{"type":"thinking","thinking":"","signature":"s=="},{"type":"tool_use","id":"a","name":"echo","input":{"z":1e3,"a":"\u00e9"}}]"#;

#[test]
fn body_matches_api() {
    let mut wire = begun(root(), vec![user("Go")]);
    wire.push(&said(Some(RAW), vec![call("a")], origin()));
    wire.push(&result("a"));
    wire.push(&user("more"));
    let body = wire.body(&model(), 4096);
    assert!(body.contains(r#""system":[{"type":"text","text":"Be \"brief\"","cache_control":{"type":"ephemeral"}}]"#), "{body}");
    // The bytes are unchanged.
    assert!(body.contains(&format!(r#""content":{RAW}"#)), "{body}");
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        body,
        json!({
            "model": "m",
            "max_tokens": 4096,
            "stream": true,
            "tools": [{"name": "echo", "description": "Says é", "input_schema": {"a": 1, "type": "object"}}],
            "system": [{"type": "text", "text": "Be \"brief\"", "cache_control": {"type": "ephemeral"}}],
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "Go"}]},
                {"role": "assistant", "content": serde_json::from_str::<Value>(RAW).unwrap()},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "a", "content": "done", "is_error": false},
                    {"type": "text", "text": "more", "cache_control": {"type": "ephemeral"}},
                ]},
            ],
        })
    );
}

#[test]
fn body_sends_supported_thinking_and_temperature() {
    let wire = begun(
        Root {
            system: None,
            tools: Vec::new(),
            ..root()
        },
        vec![user("Go")],
    );
    let body = |change: &dyn Fn(&mut ResolvedModel)| -> Value {
        let mut model = model();
        change(&mut model);
        serde_json::from_str(&wire.body(&model, 10)).unwrap()
    };
    let plain = body(&|_| {});
    for absent in [
        "system",
        "tools",
        "tool_choice",
        "thinking",
        "output_config",
        "temperature",
    ] {
        assert!(plain.get(absent).is_none(), "{absent}");
    }
    let effort = body(&|model| model.thinking = Some(Thinking::Effort(Some("low".to_owned()))));
    assert_eq!(
        effort["thinking"],
        json!({"type": "adaptive", "display": "summarized"})
    );
    assert_eq!(effort["output_config"], json!({"effort": "low"}));
    let free = body(&|model| model.thinking = Some(Thinking::Effort(None)));
    assert_eq!(free["thinking"]["type"], "adaptive");
    assert!(free.get("output_config").is_none());
    let budget = body(&|model| model.thinking = Some(Thinking::Budget(2048)));
    assert_eq!(
        budget["thinking"],
        json!({"type": "enabled", "budget_tokens": 2048})
    );
    assert_eq!(
        body(&|model| model.temperature = Some(0.25))["temperature"],
        0.25
    );

    let wire = begun(root(), vec![user("Go")]);
    let mut model = model();
    model.one_call = true;
    model.quirks.cache = CacheMarks::None;
    let body = wire.body(&model, 10);
    assert!(!body.contains("cache_control"), "{body}");
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        body["tool_choice"],
        json!({"type": "auto", "disable_parallel_tool_use": true})
    );
    model.tools = false;
    let body: Value = serde_json::from_str(&wire.body(&model, 10)).unwrap();
    assert!(body.get("tools").is_none() && body.get("tool_choice").is_none());
}

#[test]
fn output_of_other_model_is_sent_as_plain_blocks() {
    let other = Origin {
        model: "other".to_owned(),
        ..origin()
    };
    let blocks = vec![
        Block::Thinking {
            text: "secret of its own".to_owned(),
        },
        Block::Text {
            text: String::new(),
        },
        Block::Text {
            text: "Hello".to_owned(),
        },
        call("a"),
    ];
    for (raw, origin) in [
        (Some(RAW), other),
        (None, origin()),
        (Some("not json"), origin()),
        (Some("[1]"), origin()),
    ] {
        let mut wire = begun(root(), vec![user("Go")]);
        wire.push(&said(raw, blocks.clone(), origin));
        wire.push(&result("a"));
        let body: Value = serde_json::from_str(&wire.body(&model(), 10)).unwrap();
        assert_eq!(
            body["messages"][1]["content"],
            json!([
                {"type": "text", "text": "Hello"},
                {"type": "tool_use", "id": "a", "name": "echo", "input": {"a": 2, "b": 1}},
            ]),
            "{raw:?}"
        );
    }
    // An empty message is not sent, and roles still alternate.
    let mut wire = begun(root(), vec![user("Go")]);
    wire.push(&said(
        None,
        vec![Block::Text {
            text: String::new(),
        }],
        origin(),
    ));
    wire.push(&user("Well?"));
    let body: Value = serde_json::from_str(&wire.body(&model(), 10)).unwrap();
    assert_eq!(body["messages"].as_array().unwrap().len(), 1);
    assert_eq!(body["messages"][0]["content"].as_array().unwrap().len(), 2);
}

/// Returns `body` without breakpoints and without its end: the prefix that the next body must have.
fn prefix(body: &str) -> String {
    let plain = body.replace(r#","cache_control":{"type":"ephemeral"}"#, "");
    plain.strip_suffix("]}]}").unwrap().to_owned()
}

#[test]
fn body_extends_previous_body() {
    let mut wire = begun(root(), vec![user("Go")]);
    let mut last = prefix(&wire.body(&model(), 500));
    for turn in 0..30 {
        // Turns alternate between one call and two, so that each kind of block occurs at a breakpoint.
        let ids: Vec<String> = (0..=turn % 2)
            .map(|at| format!("call-{turn}-{at}"))
            .collect();
        let use_of = |id: &String| {
            format!(r#"{{"type":"tool_use","id":"{id}","name":"echo","input":{{}}}}"#)
        };
        let uses: Vec<String> = ids.iter().map(use_of).collect();
        let raw = format!(
            r#"[{{"type":"thinking","thinking":"","signature":"s"}},{}]"#,
            uses.join(",")
        );
        let calls = ids.iter().map(|id| call(id)).collect();
        wire.push(&said(Some(&raw), calls, origin()));
        for id in &ids {
            wire.push(&result(id));
        }
        let body = wire.body(&model(), 500);
        assert!(prefix(&body).starts_with(&last), "turn {turn}");
        last = prefix(&body);

        let value: Value = serde_json::from_str(&body).unwrap();
        let roles = value["messages"].as_array().unwrap();
        let in_turn = roles
            .windows(2)
            .all(|pair| pair[0]["role"] != pair[1]["role"]);
        assert!(in_turn, "{roles:?}");
        check_marks(&value);
    }
}

/// Checks that there are at most four breakpoints, none on reasoning, the newest on the last block, and the other
/// within the vendor's reach.
fn check_marks(body: &Value) {
    let messages = body["messages"].as_array().unwrap();
    let blocks: Vec<&Value> = messages
        .iter()
        .flat_map(|message| message["content"].as_array().unwrap())
        .collect();
    let marked: Vec<usize> = (0..blocks.len())
        .filter(|at| blocks[*at].get("cache_control").is_some())
        .collect();
    assert_eq!(marked.last(), Some(&(blocks.len() - 1)));
    assert!(marked.iter().all(|at| blocks[*at]["type"] != "thinking"));
    if blocks.len() > 19 {
        assert_eq!(marked.len(), 2, "{}", blocks.len());
        assert!((18..=20).contains(&(marked[1] - marked[0])), "{marked:?}");
    } else {
        assert!(marked.len() <= 2);
    }
}

#[test]
fn the_same_conversation_gives_the_same_bytes() {
    let messages = vec![
        user("Go"),
        said(Some(RAW), vec![call("a")], origin()),
        result("a"),
        user("é\u{2028}\u{1f600}"),
    ];
    let mut grown = begun(root(), vec![messages[0].clone()]);
    for message in &messages[1..] {
        grown.push(message);
    }
    let whole = begun(root(), messages.clone());
    // Read back from the store, where keys are sorted.
    let entry = crate::conversation::Entry::root(root(), messages);
    let read = crate::conversation::Entry::decode(&entry.encode().text).unwrap();
    let read = begun(read.root.unwrap(), read.messages);
    let body = whole.body(&model(), 10);
    assert_eq!(grown.body(&model(), 10), body);
    assert_eq!(read.body(&model(), 10), body);
}

#[test]
fn blank_texts_and_trailing_reasoning_are_not_sent() {
    const THOUGHT: &str = r#"{"type":"thinking","thinking":"hm","signature":"s=="}"#;
    const HIDDEN: &str = r#"{"type":"redacted_thinking","data":"d"}"#;
    const BLANK: &str = r#"{"type":"text","text":"\n\n"}"#;
    const TEXT: &str = r#"{ "type":"text", "text":" a\u00e9 " }"#;
    for (received, kept) in [
        (vec![THOUGHT, BLANK, TEXT], vec![THOUGHT, TEXT]),
        (vec![THOUGHT, TEXT, THOUGHT, BLANK], vec![THOUGHT, TEXT]),
        (vec![BLANK, TEXT, HIDDEN], vec![TEXT]),
        (vec![THOUGHT, BLANK], vec![]),
        (vec![THOUGHT, HIDDEN], vec![]),
        (vec![BLANK], vec![]),
    ] {
        let raw = format!("[{}]", received.join(","));
        let mut wire = begun(root(), vec![user("Go")]);
        wire.push(&said(Some(&raw), Vec::new(), origin()));
        wire.push(&user("Well?"));
        let body = wire.body(&model(), 10);
        let sent: Value = serde_json::from_str(&body).unwrap();
        let messages = sent["messages"].as_array().unwrap();
        if kept.is_empty() {
            // Roles still alternate: the texts of the user form one message.
            assert_eq!(messages.len(), 1, "{raw}");
            assert_eq!(messages[0]["content"].as_array().unwrap().len(), 2);
        } else {
            let kept = format!(r#""role":"assistant","content":[{}]"#, kept.join(","));
            assert!(body.contains(&kept), "{raw}: {body}");
        }
    }
    let blank = Block::Text {
        text: " \n".to_owned(),
    };
    let mut wire = begun(root(), vec![user("Go"), user("\t")]);
    wire.push(&said(None, vec![blank, call("a")], origin()));
    wire.push(&result("a"));
    let sent: Value = serde_json::from_str(&wire.body(&model(), 10)).unwrap();
    assert_eq!(sent["messages"][0]["content"].as_array().unwrap().len(), 1);
    assert_eq!(sent["messages"][1]["content"].as_array().unwrap().len(), 1);
}
