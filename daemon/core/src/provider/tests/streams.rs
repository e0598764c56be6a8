//! Streams, as bytes on the wire.

use proptest::prelude::*;

use super::*;
use crate::conversation::{Block, Stop};
use crate::provider::api_error::ApiError;
use crate::provider::stream::{Arguments, Fault, StreamSignal};

/// A model whose messages end as `end` describes.
fn ends_like(end: EndMark) -> ResolvedModel {
    let mut model = model();
    model.quirks.end = end;
    model
}

fn body(events: &[Value]) -> String {
    let event = |event: &Value| {
        let name = event["type"].as_str().unwrap_or("message");
        format!("event: {name}\ndata: {event}\n\n")
    };
    events.iter().map(event).collect()
}

fn signals(events: &[Value]) -> Vec<StreamSignal> {
    decode([body(events).as_bytes()], &model())
}

fn start() -> Value {
    json!({"type": "message_start", "message": {"id": "msg", "model": "m-1", "usage":
        {"input_tokens": 10, "cache_read_input_tokens": 5, "cache_creation_input_tokens": 2, "output_tokens": 1}}})
}

fn block(index: u32, block: &Value) -> Value {
    json!({"type": "content_block_start", "index": index, "content_block": block})
}

fn delta(index: u32, delta: &Value) -> Value {
    json!({"type": "content_block_delta", "index": index, "delta": delta})
}

fn json_delta(index: u32, text: &str) -> Value {
    delta(
        index,
        &json!({"type": "input_json_delta", "partial_json": text}),
    )
}

fn stop(index: u32) -> Value {
    json!({"type": "content_block_stop", "index": index})
}

fn call(index: u32, id: &str) -> Value {
    block(
        index,
        &json!({"type": "tool_use", "id": id, "name": "echo", "input": {}}),
    )
}

fn reason(word: &str) -> Value {
    json!({"type": "message_delta", "delta": {"stop_reason": word}, "usage": {"output_tokens": 40}})
}

fn over() -> Value {
    json!({"type": "message_stop"})
}

/// A message with reasoning, text, two calls with interleaved arguments, and one call without arguments.
fn sample() -> Vec<Value> {
    vec![
        start(),
        json!({"type": "ping"}),
        block(
            0,
            &json!({"type": "thinking", "thinking": "", "signature": ""}),
        ),
        delta(0, &json!({"type": "thinking_delta", "thinking": "I se"})),
        delta(0, &json!({"type": "thinking_delta", "thinking": "e"})),
        delta(0, &json!({"type": "signature_delta", "signature": "c2ln"})),
        stop(0),
        block(1, &json!({"type": "redacted_thinking", "data": "xyz"})),
        stop(1),
        block(2, &json!({"type": "text", "text": ""})),
        delta(2, &json!({"type": "text_delta", "text": "Hé\u{1f600}"})),
        delta(2, &json!({"type": "from_tomorrow"})),
        stop(2),
        call(3, "a"),
        call(4, "b"),
        json_delta(3, "{\"x\": "),
        json_delta(4, "{\"y\":"),
        json_delta(4, "2}"),
        stop(4),
        json_delta(3, "1}"),
        stop(3),
        call(5, "c"),
        stop(5),
        json!({"type": "from_tomorrow", "data": [1]}),
        reason("tool_use"),
        over(),
    ]
}

#[test]
fn a_message_is_read_part_by_part() {
    let signals = signals(&sample());
    let shown: Vec<String> = signals
        .iter()
        .map(|signal| match signal {
            StreamSignal::Begun { model } => format!("begun {model}"),
            StreamSignal::Text { position, text } => format!("text {position} {text}"),
            StreamSignal::Thinking { position, text } => format!("thinking {position} {text}"),
            StreamSignal::Block(part) => format!("block {} {}", part.position, part.raw),
            StreamSignal::CallBegun { position, name } => format!("call {position} {name}"),
            StreamSignal::CallArgs { position, text } => format!("args {position} {text}"),
            StreamSignal::CallReady(call) => {
                format!("ready {} {} {}", call.position, call.id, call.raw)
            }
            StreamSignal::Usage(tokens) => format!("usage {} {}", tokens.prompt(), tokens.output),
            StreamSignal::Stopped(stop) => format!("stopped {stop:?}"),
            StreamSignal::Ended(ended) => format!("ended {}", ended.blocks.len()),
            StreamSignal::Broken(fault) => format!("broken {fault}"),
        })
        .collect();
    assert_eq!(
        shown,
        [
            "begun m-1",
            "usage 17 1",
            "thinking 0 I se",
            "thinking 0 e",
            r#"block 0 {"type":"thinking","thinking":"I see","signature":"c2ln"}"#,
            "text 2 Hé\u{1f600}",
            "block 2 {\"type\":\"text\",\"text\":\"Hé\u{1f600}\"}",
            "call 3 echo",
            "call 4 echo",
            "args 3 {\"x\": ",
            "args 4 {\"y\":",
            "args 4 2}",
            r#"ready 4 b {"type":"tool_use","id":"b","name":"echo","input":{"y":2}}"#,
            "args 3 1}",
            r#"ready 3 a {"type":"tool_use","id":"a","name":"echo","input":{"x":1}}"#,
            "call 5 echo",
            "usage 17 40",
            r#"ready 5 c {"type":"tool_use","id":"c","name":"echo","input":{}}"#,
            "stopped Calls",
            "ended 5",
        ]
    );
    let ended = ended(&signals);
    assert_eq!(ended.stop, Stop::Calls);
    let usage = Tokens {
        input: 10,
        cache_read: 5,
        cache_write: 2,
        output: 40,
        reasoning: 0,
    };
    assert_eq!(
        ended.usage,
        Some(usage),
        "what is told later takes the place of what was told"
    );
    assert_eq!(
        ended.raw.as_ref().unwrap().0,
        "[{\"type\":\"thinking\",\"thinking\":\"I see\",\"signature\":\"c2ln\"},\
         {\"type\":\"redacted_thinking\",\"data\":\"xyz\"},\
         {\"type\":\"text\",\"text\":\"Hé\u{1f600}\"},\
         {\"type\":\"tool_use\",\"id\":\"a\",\"name\":\"echo\",\"input\":{\"x\":1}},\
         {\"type\":\"tool_use\",\"id\":\"b\",\"name\":\"echo\",\"input\":{\"y\":2}},\
         {\"type\":\"tool_use\",\"id\":\"c\",\"name\":\"echo\",\"input\":{}}]"
    );
    assert!(
        matches!(&ended.blocks[2], Block::Call { id, .. } if id == "a"),
        "in the order of the message"
    );
}

proptest! {
    #[test]
    fn any_cut_of_the_bytes_gives_the_same_signals(
        mut cuts in prop::collection::vec(0_usize..3000, 0..40),
        crlf in any::<bool>(),
    ) {
        let text = body(&sample());
        let text = if crlf { text.replace('\n', "\r\n") } else { text };
        let bytes = text.as_bytes();
        cuts.retain(|cut| *cut <= bytes.len());
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let pieces = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]);
        prop_assert_eq!(decode(pieces, &model()), signals(&sample()));
    }

    #[test]
    fn events_in_any_order_never_panic_and_end_once(order in prop::collection::vec(0_usize..26, 0..60)) {
        let sample = sample();
        let events: Vec<Value> = order.iter().map(|at| sample[*at].clone()).collect();
        let signals = signals(&events);
        assert_ends_once(&signals);
    }
}

#[test]
fn delta_is_read_alike_in_any_event() {
    let odd: Vec<Value> = sample()
        .into_iter()
        .map(|mut event| {
            if event["type"] == "content_block_delta" {
                let unused = match event["delta"]["type"].as_str() {
                    Some("text_delta") => "thinking",
                    _ => "text",
                };
                event["delta"][unused] = json!(0);
            }
            event
        })
        .collect();
    assert_ne!(odd, sample());
    assert_eq!(signals(&odd), signals(&sample()));
}

#[test]
fn values_of_any_type_never_panic() {
    let model = model();
    for events in warped(&sample()) {
        assert_ends_once(&decode([body(&events).as_bytes()], &model));
    }
}

#[test]
fn cut_stream_is_no_end() {
    let whole = body(&sample());
    let end = whole.find("event: message_stop").unwrap();
    for length in 0..=end {
        if whole.is_char_boundary(length) {
            let signals = decode([&whole.as_bytes()[..length]], &model());
            let is_cut = matches!(fault(&signals), Fault::Cut | Fault::NoEndEvent(_));
            assert!(is_cut, "{length}");
        }
    }
    // A lenient provider may omit the end event, and nothing else.
    let cut = &whole.as_bytes()[..end];
    let text = fault(&decode([cut], &model())).to_string();
    assert!(
        text.contains("`message_stop`") && text.contains("`quirks: {end: lenient}`"),
        "{text}"
    );
    assert_eq!(
        ended(&decode([cut], &ends_like(EndMark::Lenient))).stop,
        Stop::Calls
    );
    let reason = whole.find("event: message_delta").unwrap();
    let cut = &whole.as_bytes()[..reason];
    assert_eq!(
        fault(&decode([cut], &ends_like(EndMark::Lenient))),
        &Fault::Cut
    );
}

#[test]
fn arguments_are_an_object_or_an_error() {
    let long = format!("{{\"a\":\"{}", "é".repeat(5000));
    let deep = format!("{{\"a\":{}1{}}}", "[".repeat(64), "]".repeat(64));
    for (text, word, problem) in [
        ("{\"a\":1}", "tool_use", None),
        ("", "tool_use", None),
        ("  ", "end_turn", None),
        ("", "max_tokens", Some("most tokens")),
        ("{\"a\":", "max_tokens", Some("most tokens")),
        ("{\"a\":", "tool_use", Some("not JSON")),
        ("[1]", "tool_use", Some("no JSON object")),
        ("{\"a\":1,\"a\":2}", "tool_use", Some("not JSON")),
        (
            "{\"a\":123456789012345678901}",
            "tool_use",
            Some("not JSON"),
        ),
        (&deep, "tool_use", Some("not JSON")),
        (&long, "tool_use", Some("not JSON")),
    ] {
        let signals = signals(&[
            start(),
            call(0, "a"),
            json_delta(0, text),
            stop(0),
            reason(word),
            over(),
        ]);
        let ready = ready(&signals).next().unwrap();
        let raw: Value = serde_json::from_str(&ready.raw).unwrap();
        match (&ready.arguments, problem) {
            (Arguments::Object(object), None) => {
                assert_eq!(raw["input"], Value::Object(object.clone()));
            }
            (Arguments::Refused(refused), Some(problem)) => {
                let told = &refused.problem;
                assert!(told.contains(problem), "{told}");
                assert_eq!(refused.code, "invalid_params");
                let sent = raw["input"]["_unparsed"].as_str().unwrap();
                assert!(text.starts_with(sent) && sent.len() <= 4096, "{text}");
            }
            (found, _) => panic!("{text} {word}: {found:?}"),
        }
        ended(&signals);
    }
    // An empty call is emitted as soon as another block begins.
    let early = signals(&[
        start(),
        call(0, "a"),
        stop(0),
        block(1, &json!({"type": "text", "text": "x"})),
    ]);
    assert!(
        early
            .iter()
            .any(|signal| matches!(signal, StreamSignal::CallReady(_)))
    );
    // Some providers send all arguments at once.
    let whole = block(
        0,
        &json!({"type": "tool_use", "id": "a", "name": "e", "input": {"k": 1}}),
    );
    let signals = signals(&[start(), whole, stop(0), reason("tool_use"), over()]);
    assert!(matches!(&ended(&signals).blocks[0], Block::Call { input, .. } if input["k"] == 1));
}

#[test]
fn empty_texts_are_dropped_and_empty_reasoning_is_kept() {
    let signals = signals(&[
        start(),
        block(
            0,
            &json!({"type": "thinking", "thinking": "", "signature": "s"}),
        ),
        stop(0),
        block(1, &json!({"type": "text", "text": ""})),
        stop(1),
        reason("end_turn"),
        over(),
    ]);
    let ended = ended(&signals);
    assert_eq!(
        ended.raw.as_ref().unwrap().0,
        r#"[{"type":"thinking","thinking":"","signature":"s"}]"#
    );
    assert_eq!(ended.blocks.len(), 1);
}

#[test]
fn stop_reasons_are_mapped() {
    for (word, expected) in [
        ("end_turn", Stop::End),
        ("stop_sequence", Stop::End),
        ("tool_use", Stop::Calls),
        ("max_tokens", Stop::Length),
        ("model_context_window_exceeded", Stop::Window),
        ("refusal", Stop::Refusal),
        ("pause_turn", Stop::Pause),
        ("from_tomorrow", Stop::End),
    ] {
        let signals = signals(&[start(), reason(word), over()]);
        let ended = ended(&signals);
        assert_eq!((ended.stop, &ended.raw), (expected, &None), "{word}");
        let warned = ended.warnings.iter().any(|text| text.contains(word));
        assert_eq!(warned, word == "from_tomorrow");
    }
    let signals = signals(&[start(), reason("error"), over()]);
    assert!(matches!(fault(&signals), Fault::Api(error) if error.kind == "error"));
}

#[test]
fn invalid_streams_are_broken() {
    let text = json!({"type": "text", "text": ""});
    for (events, told) in [
        (vec![json!({"type": "message_stop"})], "come first"),
        (vec![start(), start()], "come first"),
        (vec![start(), stop(0)], "not open ends"),
        (
            vec![
                start(),
                delta(0, &json!({"type": "text_delta", "text": "a"})),
            ],
            "not open continues",
        ),
        (
            vec![start(), block(0, &text), stop(0), stop(0)],
            "not open ends",
        ),
        (
            vec![start(), block(0, &text), json_delta(0, "{}")],
            "another one",
        ),
        (vec![start(), block(0, &json!({}))], "no type"),
        (vec![start(), block(0, &json!(7))], "no object"),
        (vec![start(), over()], "`quirks: {end: lenient}`"),
        (
            vec![start(), reason("end_turn"), reason("max_tokens")],
            "stops twice",
        ),
        (vec![start(), json!([])], "no object"),
        (vec![start(), json!({"index": 0})], "no type"),
    ] {
        let signals = signals(&events);
        let fault = fault(&signals);
        let hit = matches!(fault, Fault::Malformed(what) if what.contains(told));
        assert!(hit, "{events:?}: {fault:?}");
    }
    let broken = decode([b"data: {\"type\": \n\n".as_slice()], &model());
    assert!(matches!(fault(&broken), Fault::Malformed(what) if what.contains("not JSON")));
}

/// Returns the calls of an answer: their ids, with their arguments or the code of their refusal.
fn calls(events: Vec<Value>, word: &str) -> Vec<(String, String)> {
    let events = [vec![start()], events, vec![reason(word), over()]].concat();
    let signals = signals(&events);
    let calls = ended(&signals)
        .blocks
        .iter()
        .filter_map(|block| match block {
            Block::Call { id, .. } => Some(id.clone()),
            Block::Text { .. } | Block::Thinking { .. } | Block::Result { .. } => None,
        });
    let came = |id: String| {
        let call = ready(&signals).find(|call| call.id == id).unwrap();
        let came = match &call.arguments {
            Arguments::Object(object) => json!(object).to_string(),
            Arguments::Refused(refused) => refused.code.to_owned(),
        };
        (id, came)
    };
    calls.map(came).collect()
}

#[test]
fn malformed_calls_are_repaired_or_answered() {
    let (x, y) = ("{\"x\":1}", "{\"y\":2}");
    let whole = |index: u32, id: &str, text: &str| {
        vec![call(index, id), json_delta(index, text), stop(index)]
    };
    let unindexed = |mut events: Vec<Value>| {
        for event in &mut events {
            event.as_object_mut().unwrap().remove("index");
        }
        events
    };
    let named = |name: &str| {
        let begin = json!({"type": "tool_use", "id": "a", "name": name, "input": {}});
        vec![block(0, &begin), json_delta(0, x), stop(0)]
    };
    let large = format!("{{\"a\":\"{}\"}}", "x".repeat(3 << 19));
    let both = [("a", x), ("b", y)];
    let first_made = [("call_7_0", x), ("b", y)];
    let unusable = |code| [("a", code), ("b", y)];
    for (what, first, second, expected) in [
        ("one index", whole(0, "a", x), whole(0, "b", y), both),
        (
            "one id",
            whole(0, "a", x),
            whole(1, "a", y),
            [("a", x), ("call_7_1", y)],
        ),
        ("no id", whole(0, "", x), whole(1, "b", y), first_made),
        (
            "a long id",
            whole(0, &"i".repeat(257), x),
            whole(1, "b", y),
            first_made,
        ),
        ("a large index", whole(1025, "a", x), whole(1, "b", y), both),
        (
            "no index",
            unindexed(whole(0, "a", x)),
            unindexed(whole(1, "b", y)),
            both,
        ),
        (
            "no end",
            whole(0, "a", x)[..2].to_vec(),
            whole(1, "b", y),
            both,
        ),
        (
            "no end, one index",
            whole(0, "a", x)[..2].to_vec(),
            whole(0, "b", y),
            both,
        ),
        (
            "no name",
            named(""),
            whole(1, "b", y),
            unusable("unknown_tool"),
        ),
        (
            "a long name",
            named(&"n".repeat(129)),
            whole(1, "b", y),
            unusable("unknown_tool"),
        ),
        (
            "large arguments",
            whole(0, "a", &large),
            whole(1, "b", y),
            unusable("invalid_params"),
        ),
    ] {
        let found = calls([first, second].concat(), "tool_use");
        let expected = expected.map(|(id, came)| (id.to_owned(), came.to_owned()));
        assert_eq!(found, expected, "{what}");
    }
    // A call in which the output limit was reached is cut, even if its block never ends.
    let cut = whole(0, "a", "{\"x\":")[..2].to_vec();
    assert_eq!(
        calls(cut, "max_tokens"),
        [("a".to_owned(), "invalid_params".to_owned())]
    );
}

#[test]
fn calls_beyond_limit_are_answered() {
    let whole = |index: u32, id: &str, text: &str| {
        vec![call(index, id), json_delta(index, text), stop(index)]
    };
    let many = (0..500).flat_map(|at| whole(at, &format!("id-{at}"), "{}"));
    let found = calls(many.collect(), "tool_use");
    assert_eq!(found.len(), 500);
    for (at, (id, came)) in found.iter().enumerate() {
        let expected = if at < 128 { "{}" } else { "too_many_calls" };
        assert_eq!(
            (id.as_str(), came.as_str()),
            (format!("id-{at}").as_str(), expected)
        );
    }
}

#[test]
fn split_character_is_joined_across_events() {
    let delta = |index: u32, kind: &str, key: &str, text: &str| {
        format!(
            "data: {{\"type\":\"content_block_delta\",\"index\":{index},\"delta\":{{\"type\":\"{kind}\",\"{key}\":\"{text}\"}}}}\n\n"
        )
    };
    let open = [
        start(),
        block(0, &json!({"type": "text", "text": ""})),
        call(1, "a"),
    ];
    let close = [stop(0), stop(1), reason("tool_use"), over()];
    let stream = [
        body(&open),
        delta(0, "text_delta", "text", "a\\ud83d"),
        delta(
            1,
            "input_json_delta",
            "partial_json",
            "{\\\"x\\\":\\\"\\ud83d",
        ),
        delta(0, "text_delta", "text", "\\ude00b\\ud83d"),
        delta(
            1,
            "input_json_delta",
            "partial_json",
            "\\ude00\\\\udce9\\\"}",
        ),
        body(&close),
    ];
    let signals = decode([stream.concat().as_bytes()], &model());
    let blocks = json!(ended(&signals).blocks);
    assert_eq!(blocks[0]["text"], "a\u{1f600}b\u{fffd}");
    assert_eq!(blocks[1]["input"], json!({"x": "\u{1f600}\u{fffd}"}));
}

#[test]
fn usage_requires_complete_numbers() {
    let begin = |usage: &Value| json!({"type": "message_start", "message": {"usage": usage}});
    let end = |usage: &Value| json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage});
    let input = json!({"input_tokens": 10, "output_tokens": 1});
    for (first, last, output, warned) in [
        (&input, json!({"output_tokens": 40}), Some(40), ""),
        (&input, json!({"output_tokens": "40"}), Some(40), ""),
        (
            &json!(null),
            json!({"input_tokens": 10, "output_tokens": 40}),
            Some(40),
            "",
        ),
        (&input, json!({}), None, ""),
        (&input, json!(null), None, ""),
        (&input, json!({"output_tokens": null}), None, ""),
        (&json!({}), json!({"output_tokens": 40}), None, ""),
        (
            &input,
            json!({"output_tokens": "many"}),
            None,
            "cannot be read",
        ),
        (
            &input,
            json!({"output_tokens": 1_000_000_001}),
            None,
            "cannot be read",
        ),
        (
            &json!(7),
            json!({"output_tokens": 40}),
            None,
            "cannot be read",
        ),
        (
            &input,
            json!({"output_tokens": -5}),
            Some(0),
            "less than no tokens",
        ),
    ] {
        let signals = signals(&[begin(first), end(&last), over()]);
        let ended = ended(&signals);
        assert_eq!(
            ended.usage.map(|usage| usage.output),
            output,
            "{first} {last}"
        );
        let warnings = ended.warnings.join("; ");
        assert_eq!(warnings.is_empty(), warned.is_empty(), "{last}: {warnings}");
        assert!(warnings.contains(warned), "{last}: {warnings}");
    }
}

#[test]
fn every_part_is_bounded() {
    let mut crowd = vec![start()];
    crowd.extend((0..1026).map(|at| call(at, &format!("id-{at}"))));
    let mut unknown = vec![start()];
    unknown.extend(vec![json!({"type": "new"}); 10_001]);
    let mut arguments = vec![start(), call(0, "a")];
    arguments.extend(vec![json_delta(0, &"x".repeat(1 << 19)); 33]);
    let mut message = vec![start(), block(0, &json!({"type": "text", "text": ""}))];
    message.extend(vec![
        delta(
            0,
            &json!({"type": "text_delta", "text": "x".repeat(1 << 20)})
        );
        17
    ]);
    for (events, told) in [
        (crowd, "too many parts"),
        (unknown, "unknown events"),
        (arguments, "message is too large"),
        (message, "message is too large"),
    ] {
        let signals = signals(&events);
        let fault = fault(&signals);
        let hit = matches!(fault, Fault::Excess(what) if what.contains(told));
        assert!(hit, "{told}: {fault:?}");
    }
}

#[test]
fn provider_error_hides_secrets() {
    let error = json!({"type": "error", "error": {"type": "overloaded_error", "message": "s3cret is busy"}, "request_id": "r"});
    let signals = signals(&[start(), error, over()]);
    assert_eq!(
        fault(&signals),
        &Fault::Api(ApiError {
            kind: "overloaded_error".to_owned(),
            message: "… is busy".to_owned(),
            request_id: Some("r".to_owned()),
            ..ApiError::default()
        })
    );
    let ends = signals
        .iter()
        .filter(|signal| matches!(signal, StreamSignal::Broken(_) | StreamSignal::Ended(_)));
    assert_eq!(ends.count(), 1);
}
