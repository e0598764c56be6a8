//! Each field of both APIs with a value of each type: it is accepted or refused, and never silently ignored.

use std::collections::BTreeSet;

use super::*;
use crate::provider::stream::{Arguments, Fault, StreamSignal};

/// Types of values. Each value contains a marker by which it is found again.
const KINDS: [&str; 6] = ["missing", "null", "number", "text", "list", "object"];
const MARK: &str = "4711";

/// Result for a field, by its event, its position, and the type of its value:
///
/// * `same`: the answer equals that with the usual value
/// * `nothing`: the field is ignored, and nothing else changes
/// * `taken`: the value is part of the answer
/// * `answered`: the call is answered to the model, and not executed
/// * `warned`: the thread gets a warning
/// * `estimated`: the usage of the call is estimated
/// * `error`: the provider reports an error
/// * `refused`: the answer is malformed
const CHAT: &str = "
0 /model                                              nothing   nothing   taken     taken    taken    taken
0 /error                                              same      same      error     error    error    error
0 /choices                                            nothing   nothing   refused   refused  taken    taken
0 /choices/0/index                                    same      same      same      same     refused  refused
0 /choices/0/error                                    same      same      error     error    error    error
0 /choices/0/delta                                    nothing   nothing   refused   refused  refused  taken
0 /choices/0/text                                     same      same      taken     taken    taken    taken
0 /choices/0/delta/content                            nothing   nothing   taken     taken    taken    taken
0 /choices/0/delta/reasoning_content                  nothing   nothing   taken     taken    taken    taken
0 /choices/0/delta/reasoning                          same      same      taken     taken    taken    taken
0 /choices/0/delta/refusal                            same      same      taken     taken    refused  refused
0 /choices/0/delta/of_the_vendor                      same      same      taken     taken    taken    taken
0 /choices/0/delta/function_call                      same      same      refused   refused  refused  answered
1 /error                                              same      same      error     error    error    error
1 /choices/0/error                                    same      same      error     error    error    error
1 /choices/0/delta                                    nothing   nothing   refused   refused  refused  taken
1 /choices/0/delta/content                            nothing   nothing   taken     taken    taken    taken
1 /choices/0/delta/reasoning                          same      same      taken     taken    taken    taken
2 /choices/0/delta/tool_calls                         nothing   nothing   refused   refused  answered answered
2 /choices/0/delta/tool_calls/0                       nothing   refused   refused   refused  refused  answered
2 /choices/0/delta/tool_calls/0/index                 same      same      same      same     refused  refused
2 /choices/0/delta/tool_calls/0/id                    nothing   nothing   taken     taken    refused  refused
2 /choices/0/delta/tool_calls/0/function              answered  answered  refused   refused  refused  answered
2 /choices/0/delta/tool_calls/0/function/name         answered  answered  taken     taken    refused  refused
2 /choices/0/delta/tool_calls/0/function/arguments    nothing   nothing   answered  answered answered taken
3 /choices/0/finish_reason                            refused   refused   warned    warned   refused  refused
4 /usage                                              estimated estimated warned    warned   warned   estimated
4 /usage/prompt_tokens                                estimated estimated taken     taken    warned   warned
4 /usage/completion_tokens                            estimated estimated taken     taken    warned   warned
4 /usage/prompt_tokens_details                        same      same      warned    warned   warned   same
4 /usage/prompt_tokens_details/cached_tokens          same      same      taken     taken    warned   warned
4 /usage/prompt_tokens_details/cache_write_tokens     same      same      taken     taken    warned   warned
4 /usage/completion_tokens_details                    same      same      warned    warned   warned   same
4 /usage/completion_tokens_details/reasoning_tokens   same      same      taken     taken    warned   warned
";

/// Events and blocks of an unknown type are ignored, as the vendor requires of clients.
const ANTHROPIC: &str = "
0  /type                                      refused   refused   refused   refused  refused  refused
0  /message                                   estimated estimated refused   refused  refused  estimated
0  /message/model                             nothing   nothing   taken     taken    taken    taken
0  /message/content                           same      same      refused   refused  refused  refused
0  /message/usage                             estimated estimated warned    warned   warned   estimated
0  /message/usage/input_tokens                estimated estimated taken     taken    warned   warned
0  /message/usage/cache_read_input_tokens     same      same      taken     taken    warned   warned
0  /message/usage/cache_creation_input_tokens same      same      taken     taken    warned   warned
1  /index                                     same      same      refused   refused  refused  refused
1  /content_block                             refused   refused   refused   refused  refused  refused
1  /content_block/type                        refused   refused   refused   refused  refused  refused
1  /content_block/text                        nothing   nothing   taken     taken    taken    taken
2  /type                                      refused   refused   refused   nothing  refused  refused
2  /index                                     same      same      refused   refused  refused  refused
2  /delta                                     refused   refused   refused   refused  refused  taken
2  /delta/type                                same      same      refused   nothing  refused  refused
2  /delta/text                                nothing   nothing   taken     taken    taken    taken
3  /index                                     same      same      refused   refused  refused  refused
4  /content_block/thinking                    nothing   same      taken     taken    taken    taken
4  /content_block/signature                   nothing   nothing   taken     taken    refused  refused
5  /delta/thinking                            nothing   nothing   taken     taken    taken    taken
6  /delta/signature                           nothing   nothing   taken     taken    refused  refused
8  /content_block/id                          nothing   nothing   taken     taken    refused  refused
8  /content_block/name                        answered  answered  taken     taken    refused  refused
8  /content_block/input                       same      same      answered  answered answered answered
9  /delta/partial_json                        nothing   nothing   answered  answered answered taken
11 /content_block/input                       nothing   nothing   answered  answered answered taken
13 /delta                                     refused   refused   refused   refused  refused  refused
13 /delta/stop_reason                         refused   refused   warned    warned   refused  refused
13 /usage                                     estimated estimated warned    warned   warned   estimated
13 /usage/output_tokens                       estimated estimated taken     taken    warned   warned
14 /type                                      refused   refused   refused   refused  refused  refused
";

fn chat() -> Vec<Value> {
    let chunk = |delta: Value, reason: Value| json!({"model": "m-1", "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]});
    let call = json!({"index": 0, "id": "a", "type": "function",
        "function": {"name": "echo", "arguments": "{\"x\":1}"}});
    vec![
        chunk(
            json!({"role": "assistant", "content": "T", "reasoning_content": "R"}),
            Value::Null,
        ),
        chunk(json!({"content": "U"}), Value::Null),
        chunk(json!({"tool_calls": [call]}), Value::Null),
        chunk(json!({}), json!("tool_calls")),
        json!({"choices": [], "usage": {
            "prompt_tokens": 9000, "prompt_tokens_details": {"cached_tokens": 0},
            "completion_tokens": 20, "completion_tokens_details": {"reasoning_tokens": 0}}}),
    ]
}

fn anthropic() -> Vec<Value> {
    let usage = json!({"input_tokens": 9000, "cache_read_input_tokens": 0,
        "cache_creation_input_tokens": 0, "output_tokens": 1});
    let start = |index: u32, block: Value| json!({"type": "content_block_start", "index": index, "content_block": block});
    let delta = |index: u32, delta: Value| json!({"type": "content_block_delta", "index": index, "delta": delta});
    let stop = |index: u32| json!({"type": "content_block_stop", "index": index});
    vec![
        json!({"type": "message_start", "message": {"model": "m-1", "usage": usage}}),
        start(0, json!({"type": "text", "text": "T"})),
        delta(0, json!({"type": "text_delta", "text": "U"})),
        stop(0),
        start(
            1,
            json!({"type": "thinking", "thinking": "", "signature": "s"}),
        ),
        delta(1, json!({"type": "thinking_delta", "thinking": "V"})),
        delta(1, json!({"type": "signature_delta", "signature": "W"})),
        stop(1),
        start(
            2,
            json!({"type": "tool_use", "id": "a", "name": "echo", "input": {}}),
        ),
        delta(
            2,
            json!({"type": "input_json_delta", "partial_json": "{\"x\":1}"}),
        ),
        stop(2),
        start(
            3,
            json!({"type": "tool_use", "id": "b", "name": "echo", "input": {"y": 2}}),
        ),
        stop(3),
        json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 40}}),
        json!({"type": "message_stop"}),
    ]
}

fn value(kind: &str) -> Option<Value> {
    match kind {
        "missing" => None,
        "null" => Some(Value::Null),
        "number" => Some(json!(4711)),
        "text" => Some(json!(MARK)),
        "list" => Some(json!([{"text": MARK}])),
        _ => Some(json!({"text": MARK})),
    }
}

/// Sets `value` at `pointer`, or removes the value there.
fn put(event: &mut Value, pointer: &str, value: Option<Value>) {
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    match (event.pointer_mut(parent).unwrap(), value) {
        (Value::Object(map), Some(value)) => drop(map.insert(key.to_owned(), value)),
        (Value::Object(map), None) => drop(map.remove(key)),
        (Value::Array(list), Some(value)) => list[0] = value,
        (Value::Array(list), None) => list.clear(),
        (other, _) => panic!("{pointer}: {other}"),
    }
}

fn read(events: &[Value], model: &ResolvedModel) -> Vec<StreamSignal> {
    let body = events.iter().map(|event| format!("data: {event}\n\n"));
    let done = match model.api {
        Api::Anthropic => "",
        Api::OpenaiChat => "data: [DONE]\n\n",
    };
    decode([(body.collect::<String>() + done).as_bytes()], model)
}

fn outcome(signals: &[StreamSignal], usual: &[StreamSignal]) -> &'static str {
    let last = signals.last().unwrap();
    if let StreamSignal::Broken(fault) = last {
        let is_told = matches!(fault, Fault::Api(_));
        return if is_told { "error" } else { "refused" };
    }
    let ended = ended(signals);
    let is_refused = |call: &stream::Call| matches!(call.arguments, Arguments::Refused(_));
    if ready(signals).any(is_refused) {
        "answered"
    } else if !ended.warnings.is_empty() {
        "warned"
    } else if format!("{signals:?}").contains(MARK) {
        "taken"
    } else if ended.usage.is_none() {
        "estimated"
    } else if signals == usual {
        "same"
    } else {
        "nothing"
    }
}

fn check(table: &str, events: &[Value], model: &ResolvedModel) {
    let usual = read(events, model);
    let mut wrong = Vec::new();
    let mut rows = BTreeSet::new();
    for row in table.lines().filter(|row| !row.is_empty()) {
        let cells: Vec<&str> = row.split_whitespace().collect();
        let [event, pointer, expected @ ..] = cells.as_slice() else {
            panic!("{row}");
        };
        assert!(
            rows.insert((*event, *pointer)) && expected.len() == KINDS.len(),
            "{row}"
        );
        let event: usize = event.parse().unwrap();
        for (kind, expected) in KINDS.iter().zip(expected) {
            let mut events = events.to_vec();
            put(&mut events[event], pointer, value(kind));
            let found = outcome(&read(&events, model), &usual);
            if found != *expected {
                wrong.push(format!("{event} {pointer} {kind}: {found}, not {expected}"));
            }
            let is_there = !matches!(*kind, "missing" | "null");
            let may_be_unknown = *kind == "text" && pointer.ends_with("/type");
            if is_there && found == "nothing" && !may_be_unknown {
                wrong.push(format!("{event} {pointer} {kind} is silently left out"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn field_of_other_type_is_accepted_or_refused() {
    let keys = "api: openai_chat\npath: /v1/chat/completions";
    let providers = BTreeMap::from([("p".to_owned(), provider("p", keys))]);
    let asked = ModelRequest {
        model: Some("m"),
        ..ModelRequest::default()
    };
    let chosen = resolve(&asked, &agent(&json!({})), &providers, &|_, _| true);
    check(CHAT, &chat(), &chosen.unwrap().0);
    check(ANTHROPIC, &anthropic(), &model());
}
