//! Tests of the scripted model server: it follows the APIs of the vendors, plays its script, and detects requests that
//! break the rules.

mod breaches;
mod client;
mod faults;
mod scripts;

use rye_core::conversation::{Block, Stop};
use rye_core::provider::Tokens;
use rye_tests::ModelServer;

use client::{APIS, Client, TestConversation};

const TWO_TURNS: &str = r#"
- when: {directive: count, turn: 1}
  reply:
    thinking: Words… that is a call.
    text: I count the words.
    calls:
      - {name: count, input: {path: README.md, deep: {a: 1.5}}, id: first}
      - {name: count}
    usage: {input: 10, output: 7, cache_read: 5, cache_write: 2}
- when: {turn: 2, tool_result: "17"}
  reply: {text: 17 words.}
- when: {turn: 2, tool_result: none}
  reply: {text: No words.}
"#;

const PROMPT: &str = "<directive name=\"count\">\nCount.\n</directive>";

#[test]
fn a_conversation_goes_as_its_script_says() {
    for api in APIS {
        let server = ModelServer::start(TWO_TURNS);
        let client = &mut Client::new(&server);
        let mut talk = TestConversation::new(api, PROMPT);
        let first = talk.ask(client);
        assert_eq!(first.stop, Stop::Calls);
        let said: Vec<&str> = first
            .blocks
            .iter()
            .map(|block| match block {
                Block::Text { text } | Block::Thinking { text } => text,
                Block::Call { name, .. } => name,
                Block::Result { .. } => panic!("{block:?}"),
            })
            .map(String::as_str)
            .collect();
        assert_eq!(
            said,
            [
                "Words… that is a call.",
                "I count the words.",
                "count",
                "count"
            ]
        );
        let Some(Block::Call { id, input, .. }) = first.blocks.get(2) else {
            panic!("{first:?}");
        };
        assert_eq!(id, "first");
        assert_eq!(
            serde_json::to_string(input).unwrap(),
            r#"{"path":"README.md","deep":{"a":1.5}}"#
        );
        let tokens = Tokens {
            input: 10,
            output: 7,
            cache_read: 5,
            cache_write: 2,
            reasoning: 0,
        };
        assert_eq!(first.usage, Some(tokens));
        let Some(Block::Call { id, .. }) = first.blocks.get(3) else {
            panic!("{first:?}");
        };
        talk.answer(&[("first", "17"), (id, "0")]);
        let last = talk.ask(client);
        let text = "17 words.".to_owned();
        assert_eq!(last.blocks, [Block::Text { text }]);
        assert_eq!(last.stop, Stop::End);
        let requests = server.requests();
        let turns: Vec<usize> = requests.iter().map(|request| request.turn).collect();
        assert_eq!(turns, [1, 2]);
        assert_eq!(requests[1].directive.as_deref(), Some("count"));
        assert_eq!(requests[0].body["model"], "m");
        assert_eq!(server.abandoned(), 0);
    }
}

#[test]
fn a_request_that_is_repeated_gets_the_same_answer_to_the_byte() {
    for api in APIS {
        let server = ModelServer::start(TWO_TURNS);
        let talk = TestConversation::new(api, PROMPT);
        let first = Client::new(&server).ask(talk.path, &talk.body());
        let again = Client::new(&server).ask(talk.path, &talk.body());
        assert_eq!(first.body, again.body);
        let other = TestConversation::new(api, &format!("{PROMPT} Now."));
        let other = Client::new(&server).ask(talk.path, &other.body());
        assert_ne!(first.body, other.body, "another request has other ids");
    }
}

#[test]
fn the_stream_of_anthropic_is_as_the_vendor_sends_it() {
    let server = ModelServer::start(
        "- reply: {text: \"Hi, there you are\", calls: [{name: t, input: {a: 1}, id: toolu_1}], usage: {input: 3, output: 9}}",
    );
    let talk = TestConversation::new(APIS[0], "Go");
    let answer = Client::new(&server).ask(talk.path, &talk.body());
    assert!(
        answer
            .head
            .contains("content-type: text/event-stream; charset=utf-8\r\n"),
        "{}",
        answer.head
    );
    let id = answer
        .body
        .split('"')
        .find(|word| word.starts_with("msg_01"));
    let expected = [
        (
            "message_start",
            r#"{"type":"message_start","message":{"model":"m","id":"ID","type":"message","role":"assistant","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":3,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":1}}}"#,
        ),
        (
            "content_block_start",
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
        ),
        ("ping", r#"{"type":"ping"}"#),
        (
            "content_block_delta",
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hi, there yo"}}"#,
        ),
        (
            "content_block_delta",
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"u are"}}"#,
        ),
        (
            "content_block_stop",
            r#"{"type":"content_block_stop","index":0}"#,
        ),
        (
            "content_block_start",
            r#"{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"toolu_1","name":"t","input":{}}}"#,
        ),
        (
            "content_block_delta",
            r#"{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":""}}"#,
        ),
        (
            "content_block_delta",
            r#"{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"a\":1}"}}"#,
        ),
        (
            "content_block_stop",
            r#"{"type":"content_block_stop","index":1}"#,
        ),
        (
            "message_delta",
            r#"{"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"input_tokens":3,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":9}}"#,
        ),
        ("message_stop", r#"{"type":"message_stop"}"#),
    ];
    let expected: Vec<String> = expected
        .iter()
        .map(|(name, data)| format!("event: {name}\ndata: {data}\n\n"))
        .collect();
    assert_eq!(answer.body, expected.concat().replace("ID", id.unwrap()));
}

#[test]
fn the_stream_of_openai_is_as_the_vendor_sends_it() {
    let server = ModelServer::start(
        "- reply: {text: Hi, calls: [{name: t, input: {a: 1}, id: call_1}], usage: {input: 3, output: 9, cache_read: 1}}",
    );
    let talk = TestConversation::new(APIS[1], "Go");
    let answer = Client::new(&server).ask(talk.path, &talk.body());
    let id = answer
        .body
        .split('"')
        .find(|word| word.starts_with("chatcmpl-"));
    let delta = |delta: &str| {
        format!(
            r#"[{{"index":0,"delta":{delta},"logprobs":null,"finish_reason":null}}],"usage":null"#
        )
    };
    let usage = r#"[],"usage":{"prompt_tokens":4,"completion_tokens":9,"total_tokens":13,"prompt_tokens_details":{"cached_tokens":1,"cache_write_tokens":0},"completion_tokens_details":{"reasoning_tokens":0}}"#;
    let expected = [
        delta(r#"{"role":"assistant","content":"","refusal":null}"#),
        delta(r#"{"content":"Hi"}"#),
        delta(
            r#"{"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"t","arguments":""}}]}"#,
        ),
        delta(r#"{"tool_calls":[{"index":0,"function":{"arguments":"{\"a\":1}"}}]}"#),
        r#"[{"index":0,"delta":{},"logprobs":null,"finish_reason":"tool_calls"}],"usage":null"#
            .to_owned(),
        usage.to_owned(),
    ];
    let chunks: Vec<String> = expected
        .iter()
        .map(|choices| format!(
            "data: {{\"id\":\"{}\",\"object\":\"chat.completion.chunk\",\"created\":1800000000,\"model\":\"m\",\"choices\":{choices}}}\n\n",
            id.unwrap()
        ))
        .collect();
    assert_eq!(answer.body, chunks.concat() + "data: [DONE]\n\n");
    let unasked = talk
        .body()
        .replace(r#","stream_options":{"include_usage":true}"#, "");
    let answer = Client::new(&server).ask(talk.path, &unasked);
    assert!(!answer.body.contains("usage"), "{}", answer.body);
}

#[test]
fn the_first_rule_that_matches_the_request_answers() {
    const SCRIPT: &str = r"
- {when: {directive: other}, reply: {text: other}}
- {when: {contains: aloud}, reply: {text: aloud}}
- {when: {turn: 2, tool_result: seven}, reply: {text: result}}
- {when: {turn: 2}, reply: {text: second}}
- {when: {directive: count}, reply: {text: first, calls: [{name: count, id: c}]}}
";
    let server = ModelServer::start(SCRIPT);
    for api in APIS {
        let client = &mut Client::new(&server);
        let mut says = |talk: &mut TestConversation| match talk.ask(client).blocks.first() {
            Some(Block::Text { text }) => text.clone(),
            other => panic!("{other:?}"),
        };
        let other = &mut TestConversation::new(api, "<directive name=\"other\">");
        assert_eq!(says(other), "other");
        for (result, expected) in [("it is seven", "result"), ("it is six", "second")] {
            let talk = &mut TestConversation::new(api, PROMPT);
            assert_eq!(says(talk), "first");
            talk.answer(&[("c", result)]);
            assert_eq!(says(talk), expected);
        }
        let talk = &mut TestConversation::new(api, PROMPT);
        assert_eq!(says(talk), "first");
        talk.answer(&[("c", "seven")]);
        talk.add_user_text("say it aloud");
        assert_eq!(says(talk), "aloud");
    }
}

#[test]
fn rule_with_times_yields_to_next_rule() {
    let server = ModelServer::start(
        "- {when: {turn: 1}, times: 2, reply: {status: 529}}\n- {reply: {text: later}}",
    );
    let talk = TestConversation::new(APIS[0], PROMPT);
    let client = &mut Client::new(&server);
    let mut status = || client.ask(talk.path, &talk.body()).status;
    assert_eq!([status(), status(), status()], [529, 529, 200]);
}
