//! The API `openai_chat`: streams and bodies.

use proptest::prelude::*;

use super::*;
use crate::conversation::{
    Block, Conversation, Digest, Message, Raw, Root, Source, Stop, Tool, ToolMode,
};
use crate::provider::stream::{Arguments, Fault, StreamSignal};

/// A model of this API with some quirks.
fn chat(quirks: &str) -> ResolvedModel {
    let keys = format!("api: openai_chat\npath: /v1/chat/completions\nquirks: {{{quirks}}}");
    let providers = BTreeMap::from([("p".to_owned(), provider("p", &keys))]);
    let asked = ModelRequest {
        model: Some("m"),
        ..ModelRequest::default()
    };
    resolve(&asked, &agent(&json!({})), &providers, &|_, _| true)
        .unwrap()
        .0
}

const DONE: &str = "data: [DONE]\n\n";

fn body(chunks: &[Value]) -> String {
    let events: Vec<String> = chunks
        .iter()
        .map(|chunk| format!("data: {chunk}\n\n"))
        .collect();
    events.concat()
}

/// Decodes chunks followed by `[DONE]`.
fn signals(chunks: &[Value], quirks: &str) -> Vec<StreamSignal> {
    decode([(body(chunks) + DONE).as_bytes()], &chat(quirks))
}

fn delta(delta: &Value) -> Value {
    json!({"model": "m-1", "choices": [{"index": 0, "delta": delta, "finish_reason": null}]})
}

fn call(index: &Value, id: &str, name: &str, arguments: &str) -> Value {
    delta(
        &json!({"tool_calls": [{"index": index, "id": id, "function": {"name": name, "arguments": arguments}}]}),
    )
}

fn reason(word: &str) -> Value {
    json!({"model": "m-1", "choices": [{"index": 0, "delta": {}, "finish_reason": word}]})
}

fn usage() -> Value {
    json!({"model": "m-1", "choices": [], "usage": {"prompt_tokens": 100, "completion_tokens": 20,
        "prompt_tokens_details": {"cached_tokens": 60}, "completion_tokens_details": {"reasoning_tokens": 5}}})
}

fn sample() -> Vec<Value> {
    vec![
        delta(&json!({"role": "assistant", "content": ""})),
        delta(&json!({"reasoning_content": "I s"})),
        delta(&json!({"reasoning_content": "ee", "reasoning_details": [{"a": 1}]})),
        delta(&json!({"reasoning_details": [{"b": 2}], "vendor": "x"})),
        delta(&json!({"content": "Hé"})),
        delta(&json!({"content": "\u{1f600}", "vendor": "y"})),
        call(&json!(0), "a", "echo", ""),
        call(&json!(0), "", "", "{\"x\":"),
        call(&json!(0), "", "", "1}"),
        call(&json!(1), "b", "list", ""),
        reason("tool_calls"),
        usage(),
    ]
}

#[test]
fn a_message_is_assembled() {
    let signals = signals(&sample(), "");
    let ended = ended(&signals);
    assert_eq!(ended.stop, Stop::Calls);
    let tokens = Tokens {
        input: 40,
        cache_read: 60,
        cache_write: 0,
        output: 20,
        reasoning: 5,
    };
    assert_eq!(ended.usage, Some(tokens));
    assert_eq!(ended.blocks.len(), 4);
    let raw: Value = serde_json::from_str(&ended.raw.as_ref().unwrap().0).unwrap();
    assert_eq!(
        raw,
        json!({
            "role": "assistant",
            "content": "Hé\u{1f600}",
            "reasoning_content": "I see",
            "reasoning_details": [{"a": 1}, {"b": 2}],
            "vendor": "y",
            "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "echo", "arguments": "{\"x\":1}"}},
                {"id": "b", "type": "function", "function": {"name": "list", "arguments": "{}"}},
            ],
        })
    );
    let at = |wanted: &dyn Fn(&StreamSignal) -> bool| signals.iter().position(wanted).unwrap();
    let told = at(
        &|signal| matches!(signal, StreamSignal::Block(part) if matches!(part.block, Block::Text { .. })),
    );
    let first = at(&|signal| matches!(signal, StreamSignal::CallReady(call) if call.id == "a"));
    let second =
        at(&|signal| matches!(signal, StreamSignal::CallBegun { name, .. } if name == "list"));
    assert!(
        told < first && first < second,
        "a call is ready as soon as the next begins"
    );
    let positions: Vec<u32> = ready(&signals).map(|call| call.position).collect();
    assert_eq!(positions, [2, 3]);
}

proptest! {
    #[test]
    fn any_cut_of_the_bytes_gives_the_same_signals(mut cuts in prop::collection::vec(0_usize..3000, 0..40)) {
        let text = body(&sample()) + DONE;
        let bytes = text.as_bytes();
        cuts.retain(|cut| *cut <= bytes.len());
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let pieces = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]);
        prop_assert_eq!(decode(pieces, &chat("")), signals(&sample(), ""));
    }

    #[test]
    fn chunks_in_any_order_never_panic_and_end_once(order in prop::collection::vec(0_usize..12, 0..40), quirk in 0_usize..4) {
        let quirks = ["", "end: lenient", "tool_index: id", "tool_ids: optional"][quirk];
        let sample = sample();
        let chunks: Vec<Value> = order.iter().map(|at| sample[*at].clone()).collect();
        let signals = signals(&chunks, quirks);
        assert_ends_once(&signals);
    }
}

#[test]
fn delta_is_read_alike_in_any_chunk() {
    let mut sample = sample();
    // Reasoning under its other name, several members at once, and an empty addition to a call.
    sample.insert(2, delta(&json!({"reasoning": "!", "content": null})));
    sample.insert(6, delta(&json!({"content": "x", "reasoning": "?"})));
    sample.insert(9, delta(&json!({"tool_calls": []})));
    let mut odd = sample.clone();
    for chunk in &mut odd {
        if let Some(delta) = chunk.pointer_mut("/choices/0/delta") {
            delta["vendors_own"] = Value::Null;
        }
    }
    assert_eq!(signals(&odd, ""), signals(&sample, ""));
}

#[test]
fn values_of_any_type_never_panic() {
    for quirks in ["", "end: lenient, tool_ids: optional, tool_index: id"] {
        let model = chat(quirks);
        for chunks in warped(&sample()) {
            assert_ends_once(&decode([(body(&chunks) + DONE).as_bytes()], &model));
        }
    }
}

#[test]
fn an_end_needs_a_reason_and_the_end_of_the_body() {
    let text = delta(&json!({"content": "x"}));
    let with = |chunks: &[Value], end: &str, quirks| {
        decode([(body(chunks) + end).as_bytes()], &chat(quirks))
    };
    let (whole, open) = ([text.clone(), reason("stop")], [text]);
    assert_eq!(ended(&with(&whole, DONE, "")).stop, Stop::End);
    assert_eq!(
        ended(&with(&whole, "", "")).stop,
        Stop::End,
        "a clean end of the body is an end"
    );
    let unmarked = |signals: &[StreamSignal]| {
        let fault = fault(signals);
        matches!(fault, Fault::Malformed(what) if what.contains("`quirks: {end: lenient}`"))
    };
    assert!(unmarked(&with(&open, DONE, "")));
    assert_eq!(fault(&with(&open, "", "")), &Fault::Cut);
    assert_eq!(ended(&with(&open, DONE, "end: lenient")).stop, Stop::End);
    assert_eq!(fault(&with(&open, "", "end: lenient")), &Fault::Cut);
    // An empty reason counts as absent.
    let empty = [open[0].clone(), reason("")];
    assert!(unmarked(&with(&empty, DONE, "")));
}

/// Returns the calls of an answer: their ids, with their arguments or the code of their refusal.
fn calls(chunks: &[Value], quirks: &str) -> Vec<(String, String)> {
    let mut chunks = chunks.to_vec();
    chunks.push(reason("tool_calls"));
    let signals = signals(&chunks, quirks);
    let blocks = &ended(&signals).blocks;
    let ids: Vec<&str> = ready(&signals).map(|call| call.id.as_str()).collect();
    let in_message = blocks.iter().filter_map(|block| match block {
        Block::Call { id, .. } => Some(id.as_str()),
        Block::Text { .. } | Block::Thinking { .. } | Block::Result { .. } => None,
    });
    assert_eq!(
        in_message.collect::<Vec<_>>(),
        ids,
        "none is lost, in their order"
    );
    let came = |call: &stream::Call| match &call.arguments {
        Arguments::Object(object) => json!(object).to_string(),
        Arguments::Refused(refused) => refused.code.to_owned(),
    };
    ready(&signals)
        .map(|call| (call.id.clone(), came(call)))
        .collect()
}

/// An answer, its quirks, and the ids and arguments of its two calls.
type Parts = (
    &'static str,
    Vec<Value>,
    &'static str,
    [(&'static str, &'static str); 2],
);

const X: &str = "{\"x\":1}";
const Y: &str = "{\"y\":2}";
const WHOLE: [(&str, &str); 2] = [("a", X), ("b", Y)];

/// Parts with an index or an id.
fn named_parts() -> Vec<Parts> {
    let (zero, one, null) = (json!(0), json!(1), Value::Null);
    vec![
        (
            "one after the other",
            vec![call(&zero, "a", "f", X), call(&one, "b", "g", Y)],
            "",
            WHOLE,
        ),
        (
            "interleaved",
            vec![
                call(&zero, "a", "f", "{\"x"),
                call(&one, "b", "g", "{\"y"),
                call(&zero, "", "", "\":1}"),
                call(&one, "", "", "\":2}"),
            ],
            "",
            WHOLE,
        ),
        (
            "both begin before either continues",
            vec![
                call(&zero, "a", "f", ""),
                call(&one, "b", "g", ""),
                call(&zero, "", "", X),
                call(&one, "", "", Y),
            ],
            "",
            WHOLE,
        ),
        (
            "interleaved by id",
            vec![
                call(&null, "a", "f", "{\"x"),
                call(&null, "b", "g", "{\"y"),
                call(&null, "a", "", "\":1}"),
                call(&null, "b", "", "\":2}"),
            ],
            "",
            WHOLE,
        ),
        (
            "one index for all",
            vec![
                call(&zero, "a", "f", "{\"x"),
                call(&zero, "", "", "\":1}"),
                call(&zero, "b", "f", "{\"y"),
                call(&zero, "", "", "\":2}"),
            ],
            "",
            WHOLE,
        ),
        (
            "one index for all, and the quirk that says so",
            vec![call(&zero, "a", "f", X), call(&zero, "b", "f", Y)],
            "tool_index: id",
            WHOLE,
        ),
        (
            "no index",
            vec![
                call(&null, "a", "f", "{\"x"),
                call(&null, "", "", "\":1}"),
                call(&null, "b", "f", Y),
            ],
            "",
            WHOLE,
        ),
        (
            "no index, and the quirk that says so",
            vec![
                call(&null, "a", "f", "{\"x"),
                call(&null, "", "", "\":1}"),
                call(&null, "b", "f", Y),
            ],
            "tool_index: id",
            WHOLE,
        ),
    ]
}

/// Parts without an index or an id, or with the same ones.
fn odd_parts() -> Vec<Parts> {
    let (zero, one, null) = (json!(0), json!(1), Value::Null);
    vec![
        (
            "neither index nor id",
            vec![call(&null, "", "f", X), call(&null, "", "f", Y)],
            "tool_ids: optional",
            [("call_7_2", X), ("call_7_3", Y)],
        ),
        (
            "no id",
            vec![call(&zero, "", "f", X), call(&one, "", "f", Y)],
            "",
            [("call_7_2", X), ("call_7_3", Y)],
        ),
        (
            "one id for both",
            vec![call(&zero, "a", "f", X), call(&one, "a", "f", Y)],
            "",
            [("a", X), ("call_7_3", Y)],
        ),
        (
            "one index and one id for both",
            vec![call(&zero, "a", "f", X), call(&zero, "a", "f", Y)],
            "",
            [("a", X), ("call_7_3", Y)],
        ),
        (
            "the same call twice is two calls",
            vec![call(&zero, "a", "f", X), call(&one, "b", "f", X)],
            "",
            [("a", X), ("b", X)],
        ),
        (
            "each part has another id",
            vec![
                call(&zero, "a", "f", "{\"x"),
                call(&zero, "z", "", "\":1}"),
                call(&one, "b", "g", Y),
            ],
            "",
            WHOLE,
        ),
        (
            "each part has the name",
            vec![
                call(&zero, "a", "f", "{\"x"),
                call(&zero, "a", "f", "\":1}"),
                call(&one, "b", "g", Y),
            ],
            "",
            WHOLE,
        ),
        (
            "id and name come later",
            vec![
                call(&zero, "", "", "{\"x"),
                call(&zero, "a", "f", "\":1}"),
                call(&one, "b", "g", Y),
            ],
            "",
            WHOLE,
        ),
        (
            "all is said once more at the end",
            vec![
                call(&zero, "a", "f", X),
                call(&one, "b", "g", Y),
                call(&zero, "a", "f", X),
                call(&one, "b", "g", Y),
            ],
            "",
            WHOLE,
        ),
    ]
}

#[test]
fn call_parts_are_joined_by_index_id_or_order() {
    for (what, chunks, quirks, expected) in named_parts().into_iter().chain(odd_parts()) {
        let expected = expected.map(|(id, text)| (id.to_owned(), text.to_owned()));
        assert_eq!(calls(&chunks, quirks), expected, "{what}");
    }
}

#[test]
fn malformed_calls_are_answered_and_kept() {
    let index = |at: usize| json!(at);
    let many: Vec<Value> = (0..500)
        .map(|at| call(&index(at), &format!("id-{at}"), "f", "{}"))
        .collect();
    let found = calls(&many, "");
    assert_eq!(found.len(), 500);
    for (at, (id, came)) in found.iter().enumerate() {
        let expected = if at < 128 { "{}" } else { "too_many_calls" };
        assert_eq!(
            (id.as_str(), came.as_str()),
            (format!("id-{at}").as_str(), expected)
        );
    }
    let large = format!("{{\"a\":\"{}\"}}", "x".repeat(3 << 19));
    for (chunk, id, came) in [
        (call(&json!(0), "a", "f", &large), "a", "invalid_params"),
        (
            call(&json!(0), "a", "f", "{\"x\": 1,}"),
            "a",
            "invalid_params",
        ),
        (call(&json!(0), "a", "f", "[1]"), "a", "invalid_params"),
        (call(&json!(0), "a", "", "{}"), "a", "unknown_tool"),
        (call(&json!(0), "a", " ", "{}"), "a", "unknown_tool"),
        (
            call(&json!(0), "a", &"n".repeat(129), "{}"),
            "a",
            "unknown_tool",
        ),
        (
            call(&json!(0), &"i".repeat(300), "f", "{}"),
            "call_7_2",
            "{}",
        ),
        (call(&json!(u64::MAX), "a", "f", "{}"), "a", "{}"),
    ] {
        let other = call(&json!(1), "b", "g", "{}");
        let found = calls(&[chunk, other], "");
        let expected = [(id, came), ("b", "{}")];
        let expected = expected.map(|(id, came)| (id.to_owned(), came.to_owned()));
        assert_eq!(found, expected);
    }
    let named = signals(&[call(&json!(0), "a", "", "{}"), reason("tool_calls")], "");
    let raw = &ended(&named).raw.as_ref().unwrap().0;
    assert!(
        raw.contains(r#""name":"unnamed""#),
        "an empty name is not taken back: {raw}"
    );
}

#[test]
fn call_is_emitted_early_only_if_complete() {
    let early = |chunks: &[Value]| -> Vec<String> {
        let signals = signals(chunks, "end: lenient");
        let end = signals
            .iter()
            .position(|signal| matches!(signal, StreamSignal::Text { .. }));
        ready(&signals[..end.unwrap()])
            .map(|call| call.id.clone())
            .collect()
    };
    let mark = delta(&json!({"content": "mark"}));
    let (zero, one, two) = (json!(0), json!(1), json!(2));
    let none: [&str; 0] = [];
    let open = call(&zero, "a", "f", "{\"x\":{}");
    let second = call(&one, "b", "g", "{\"y\":\"}\"}");
    let third = call(&two, "c", "g", "");
    assert_eq!(early(&[second.clone(), mark.clone()]), none);
    assert_eq!(early(&[second.clone(), third.clone(), mark.clone()]), ["b"]);
    assert_eq!(early(&[open.clone(), second.clone(), mark.clone()]), none);
    let behind = [open, second.clone(), third.clone(), mark.clone()];
    assert_eq!(early(&behind), none, "in their order only");
    assert_eq!(
        early(&[third, second.clone(), mark]),
        none,
        "without arguments so far"
    );
    // A late addition is a fault of the answer, because the call may be running.
    let late = [
        second,
        call(&two, "c", "g", "{}"),
        call(&one, "", "", "{}"),
        reason("stop"),
    ];
    let signals = signals(&late, "");
    assert!(matches!(fault(&signals), Fault::Malformed(what) if what.contains("whole")));
}

#[test]
fn function_call_is_read_as_call() {
    let part = |part: Value| delta(&json!({"function_call": part}));
    let chunks = [
        part(json!({"name": "f", "arguments": ""})),
        part(json!({"arguments": "{\"x\":"})),
        part(json!({"arguments": "1}"})),
    ];
    let expected = [("call_7_2".to_owned(), "{\"x\":1}".to_owned())];
    assert_eq!(calls(&chunks, ""), expected);
}

#[test]
fn split_character_is_joined_across_chunks() {
    let chunk = |delta: &str, more: &str| {
        format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{{{delta}}}{more}}}]}}\n\n")
    };
    let arguments = |text: &str| {
        format!(
            "\"tool_calls\":[{{\"index\":0,\"id\":\"a\",\"function\":{{\"name\":\"f\",\"arguments\":\"{text}\"}}}}]"
        )
    };
    let body = [
        chunk("\"role\":\"assistant\",\"content\":\"a\\ud83d\"", ""),
        chunk("\"reasoning\":\"r\\ud83d\"", ""),
        chunk("\"content\":\"\\ude00b\\ud83d\"", ""),
        chunk("\"content\":\"c\\udce9\\ud83d\"", ""),
        chunk("\"reasoning\":\"\\ude00\"", ""),
        chunk(&arguments("{\\\"x\\\":\\\"\\ud83d"), ""),
        chunk(&arguments("\\ude00\\\\ud83d\\\"}"), ""),
        chunk(
            "\"vendor\":\"v\\ud83d\"",
            ",\"finish_reason\":\"tool_calls\"",
        ),
        DONE.to_owned(),
    ];
    let signals = decode([body.concat().as_bytes()], &chat(""));
    let blocks = json!(ended(&signals).blocks);
    assert_eq!(blocks[0]["text"], "r\u{1f600}");
    assert_eq!(blocks[1]["text"], "a\u{1f600}b\u{fffd}c\u{fffd}\u{fffd}");
    assert_eq!(blocks[2]["input"], json!({"x": "\u{1f600}\u{fffd}"}));
    let raw = &ended(&signals).raw.as_ref().unwrap().0;
    assert!(raw.contains("v\u{fffd}"), "{raw}");
}

#[test]
fn arguments_are_an_object_or_an_error() {
    for (text, word, is_object) in [
        ("{\"a\":1}", "tool_calls", true),
        ("", "stop", true),
        ("", "length", false),
        ("{\"a\"", "length", false),
        ("[]", "tool_calls", false),
    ] {
        let signals = signals(&[call(&json!(0), "a", "f", text), reason(word)], "");
        let call = ready(&signals).next().unwrap();
        assert_eq!(
            matches!(call.arguments, Arguments::Object(_)),
            is_object,
            "{text} {word}"
        );
        let raw: Value = serde_json::from_str(&call.raw).unwrap();
        let told = match &call.arguments {
            Arguments::Object(_) => "",
            Arguments::Refused(refused) => refused.problem.as_str(),
        };
        assert_eq!(told.contains("most tokens"), word == "length", "{told}");
        let sent: Value =
            serde_json::from_str(raw["function"]["arguments"].as_str().unwrap()).unwrap();
        assert!(sent.is_object(), "what is sent back is always an object");
    }
}

#[test]
fn stop_reasons_are_mapped() {
    for (word, expected) in [
        ("stop", Stop::End),
        ("tool_calls", Stop::Calls),
        ("function_call", Stop::Calls),
        ("length", Stop::Length),
        ("content_filter", Stop::Refusal),
        ("from_tomorrow", Stop::End),
    ] {
        let signals = signals(&[reason(word), reason(word)], "");
        let warned = ended(&signals)
            .warnings
            .iter()
            .any(|text| text.contains(word));
        assert_eq!(warned, word == "from_tomorrow");
        assert_eq!(
            (ended(&signals).stop, &ended(&signals).raw),
            (expected, &None),
            "{word}"
        );
    }
    for word in ["error", "Server_Error", "network_error", "abort"] {
        let signals = signals(&[reason(word)], "");
        let is_told = matches!(fault(&signals), Fault::Api(error) if error.kind == word);
        assert!(is_told, "{signals:?}");
    }
    let refused = signals(
        &[
            delta(&json!({"refusal": "I will"})),
            delta(&json!({"refusal": " not"})),
            reason("stop"),
        ],
        "",
    );
    assert_eq!(ended(&refused).stop, Stop::Refusal);
    assert!(
        ended(&refused)
            .raw
            .as_ref()
            .unwrap()
            .0
            .contains("I will not")
    );
}

#[test]
fn invalid_streams_are_broken() {
    let text = delta(&json!({"content": "x"}));
    let crowd: Vec<Value> = (0..1024)
        .map(|at| call(&json!(at), &format!("id-{at}"), "f", ""))
        .collect();
    for (chunks, told) in [
        (vec![reason("stop"), text], "after it stopped"),
        (vec![reason("stop"), reason("length")], "stops twice"),
        (
            vec![json!({"error": {"type": "server_error", "message": "s3cret"}})],
            "server_error: …",
        ),
        (crowd, "too many calls"),
        (
            vec![
                json!({"choices": [{"index": 0, "delta": {"content": "a"}}, {"index": 1, "delta": {"content": "b"}}]}),
            ],
            "several answers",
        ),
        (
            vec![delta(&json!({"content": "x".repeat(1 << 20)})); 17],
            "too large",
        ),
        (
            vec![call(&json!(0), "a", "f", &"x".repeat(1 << 20)); 17],
            "too large",
        ),
        (
            vec![json!({"object": "from.tomorrow"}); 10_001],
            "unknown events",
        ),
    ] {
        let signals = signals(&chunks, "");
        let fault = fault(&signals);
        assert!(fault.to_string().contains(told), "{told}: {fault}");
    }
}

#[test]
fn usage_requires_complete_numbers() {
    let details = json!({"cached_tokens": 9});
    for (usage, input, warned) in [
        (
            json!({"prompt_tokens": 5, "completion_tokens": 1}),
            Some(5),
            "",
        ),
        (
            json!({"prompt_tokens": "5", "completion_tokens": 1.0}),
            Some(5),
            "",
        ),
        (
            json!({"prompt_tokens": 5, "completion_tokens": 1, "prompt_tokens_details": details}),
            Some(0),
            "less than no tokens",
        ),
        (
            json!({"prompt_tokens": 5, "completion_tokens": -1}),
            Some(5),
            "less than no tokens",
        ),
        (json!({"prompt_tokens": 5}), None, ""),
        (json!({"completion_tokens": 5}), None, ""),
        (json!({}), None, ""),
        (json!([5]), None, "cannot be read"),
        (
            json!({"prompt_tokens": 2_000_000_000, "completion_tokens": 1}),
            None,
            "cannot be read",
        ),
        (
            json!({"prompt_tokens": "many", "completion_tokens": 1}),
            None,
            "cannot be read",
        ),
        (
            json!({"prompt_tokens": 1.5, "completion_tokens": 1}),
            None,
            "cannot be read",
        ),
    ] {
        let chunk = json!({"choices": [], "usage": usage});
        let signals = signals(&[reason("stop"), chunk], "");
        let ended = ended(&signals);
        assert_eq!(ended.usage.map(|usage| usage.input), input, "{usage}");
        let warnings = ended.warnings.join("; ");
        assert_eq!(
            warnings.is_empty(),
            warned.is_empty(),
            "{usage}: {warnings}"
        );
        assert!(warnings.contains(warned), "{usage}: {warnings}");
    }
}

const RAW: &str = r#"{"role":"assistant","content":null,"reasoning_content":"rc","reasoning":"r","reasoning_details":[1],"vendor":1,"tool_calls":[{"id":"a","type":"function","function":{"name":"echo","arguments":"{\"b\": 1}"}}]}"#;

fn root(model: &ResolvedModel) -> Root {
    Root {
        system: Some("Be brief".to_owned()),
        tools: vec![Tool {
            name: "echo".to_owned(),
            description: "Again".to_owned(),
            schema: json!({"type": "object"}),
        }],
        tool_mode: ToolMode::Native,
        origin: model.origin(),
    }
}

fn messages(model: &ResolvedModel) -> Vec<Message> {
    vec![
        Message::text(Source::Directive, "Go"),
        Message::Assistant {
            origin: model.origin(),
            blocks: vec![Block::Call {
                id: "a".to_owned(),
                name: "echo".to_owned(),
                input: json!({"b": 1}).as_object().cloned().unwrap(),
            }],
            raw: Some(Raw(RAW.to_owned())),
            stop: Some(Stop::Calls),
            partial: false,
        },
        Message::User {
            source: Source::Tools,
            blocks: vec![
                Block::Result {
                    id: "a".to_owned(),
                    content: "done".to_owned(),
                    is_error: true,
                },
                Block::Text {
                    text: "more".to_owned(),
                },
            ],
        },
    ]
}

fn sent(model: &ResolvedModel, messages: Vec<Message>) -> String {
    let conversation = Conversation::begin(Digest::of("x"), root(model), messages).unwrap();
    Wire::new(&conversation, model).body(model, 99)
}

#[test]
fn body_matches_api() {
    let mut model = chat("");
    model.thinking = Some(Thinking::Effort(Some("low".to_owned())));
    model.temperature = Some(0.5);
    model.one_call = true;
    let body: Value = serde_json::from_str(&sent(&model, messages(&model))).unwrap();
    assert_eq!(
        body,
        json!({
            "model": "m",
            "max_completion_tokens": 99,
            "stream": true,
            "stream_options": {"include_usage": true},
            "reasoning_effort": "low",
            "temperature": 0.5,
            "tools": [{"type": "function", "function": {"name": "echo", "description": "Again", "parameters": {"type": "object"}}}],
            "parallel_tool_calls": false,
            "messages": [
                {"role": "system", "content": "Be brief"},
                {"role": "user", "content": "Go"},
                {"role": "assistant", "content": null, "vendor": 1, "tool_calls": [{"id": "a", "type": "function", "function": {"name": "echo", "arguments": "{\"b\": 1}"}}]},
                {"role": "tool", "tool_call_id": "a", "content": "done"},
                {"role": "user", "content": "more"},
            ],
        })
    );
}

#[test]
fn quirks_change_the_body() {
    let model = chat("system: developer, max_tokens_field: max_tokens, usage: unsupported");
    let body: Value = serde_json::from_str(&sent(&model, messages(&model))).unwrap();
    assert_eq!(body["messages"][0]["role"], "developer");
    assert_eq!(body["max_tokens"], 99);
    assert!(body.get("max_completion_tokens").is_none() && body.get("stream_options").is_none());
    for (replay, kept) in [
        ("none", vec![]),
        ("reasoning_content", vec!["reasoning_content"]),
        ("reasoning", vec!["reasoning"]),
        (
            "raw",
            vec!["reasoning_content", "reasoning", "reasoning_details"],
        ),
    ] {
        let model = chat(&format!("reasoning_replay: {replay}"));
        let text = sent(&model, messages(&model));
        if replay == "raw" {
            assert!(text.contains(RAW), "as it came, to the byte");
        }
        let body: Value = serde_json::from_str(&text).unwrap();
        let message = body["messages"][2].as_object().unwrap();
        let found: Vec<&str> = ["reasoning_content", "reasoning", "reasoning_details"]
            .into_iter()
            .filter(|key| message.contains_key(*key))
            .collect();
        assert_eq!(found, kept, "{replay}");
    }
}

#[test]
fn body_extends_previous_body() {
    let model = chat("");
    let all = messages(&model);
    let mut last = String::new();
    for length in 0..=all.len() {
        let body = sent(&model, all[..length].to_vec());
        let begin = body.strip_suffix("]}").unwrap().to_owned();
        assert!(begin.starts_with(&last));
        last = begin;
    }
    // Output of another model is sent as plain text, without its reasoning.
    let mut other = all;
    if let Message::Assistant { origin, blocks, .. } = &mut other[1] {
        "other".clone_into(&mut origin.model);
        blocks.insert(
            0,
            Block::Thinking {
                text: "hm".to_owned(),
            },
        );
    }
    let body: Value = serde_json::from_str(&sent(&model, other)).unwrap();
    assert_eq!(
        body["messages"][2],
        json!({"role": "assistant", "content": null, "tool_calls": [{"id": "a", "type": "function", "function": {"name": "echo", "arguments": "{\"b\":1}"}}]})
    );
}

#[test]
fn empty_answer_is_replaced() {
    let call = r#"[{"id":"a","type":"function","function":{"name":"echo","arguments":"{}"}}]"#;
    let text = |text: &str| Block::Text {
        text: text.to_owned(),
    };
    let none = json!({"role": "assistant", "content": "(no answer)"});
    let mut thought = none.clone();
    thought["reasoning_content"] = json!("hm");
    for (replay, raw, blocks, sent_back) in [
        // Reasoning only: it is sent back if the provider accepts it, but never alone.
        (
            "none",
            Some(r#"{"role":"assistant","reasoning_content":"hm","content":null}"#.to_owned()),
            vec![],
            none.clone(),
        ),
        (
            "reasoning_content",
            Some(r#"{"role":"assistant","reasoning_content":"hm","content":null}"#.to_owned()),
            vec![],
            thought.clone(),
        ),
        (
            "raw",
            Some(r#"{"role":"assistant","reasoning_content":"hm"}"#.to_owned()),
            vec![],
            thought,
        ),
        (
            "raw",
            Some(r#"{"role":"assistant","content":" \n"}"#.to_owned()),
            vec![],
            none.clone(),
        ),
        (
            "raw",
            Some(r#"{"role":"assistant","content":[],"tool_calls":[]}"#.to_owned()),
            vec![],
            json!({"role": "assistant", "content": "(no answer)", "tool_calls": []}),
        ),
        ("none", None, vec![], none.clone()),
        ("none", None, vec![text(""), text(" \t")], none),
        // A message with other content stays unchanged, except for blank text.
        (
            "raw",
            Some(format!(
                r#"{{"role":"assistant","content":"\n\n","tool_calls":{call}}}"#
            )),
            vec![],
            json!({"role": "assistant", "content": null, "tool_calls": serde_json::from_str::<Value>(call).unwrap()}),
        ),
        (
            "raw",
            Some(r#"{"role":"assistant","refusal":"no"}"#.to_owned()),
            vec![],
            json!({"role": "assistant", "refusal": "no", "content": null}),
        ),
    ] {
        let model = chat(&format!("reasoning_replay: {replay}"));
        let mut all = messages(&model);
        all.truncate(1);
        all.push(Message::Assistant {
            origin: model.origin(),
            blocks,
            raw: raw.clone().map(Raw),
            stop: Some(Stop::End),
            partial: false,
        });
        all.push(Message::text(Source::Nudge, "Well?"));
        let body: Value = serde_json::from_str(&sent(&model, all)).unwrap();
        assert_eq!(body["messages"][2], sent_back, "{replay} {raw:?}");
        assert_eq!(body["messages"][3]["role"], "user");
    }
}
