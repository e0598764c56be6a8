//! Throughput of decoding provider streams.
//!
//! Run with `cargo bench -p rye-core --bench decode`. A stream is read in pieces of 16 KiB, as from a socket: its
//! events are split off, and each is decoded. Rows alternate, round by round. Each row prints the median, the slowest
//! and the fastest round, in MB/s.
//!
//! * `…, tokens`: a long answer, about four characters per event
//! * `…, calls`: calls with arguments of 2,000 characters, 40 characters per event
//! * `frames alone`: the events of the first stream are split off but not decoded
//! * `JSON alone`: their data is only parsed as JSON
#![expect(clippy::print_stdout, reason = "a benchmark prints its result")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::hint::black_box;
use std::time::Instant;

use rye_core::id::ItemId;
use rye_core::provider::sse::Splitter;
use rye_core::provider::stream::StreamSignal;
use rye_core::provider::{Agent, Decoder, ModelRequest, Owner, Provider, ResolvedModel, resolve};
use serde_json::{Value, json};

const ROUNDS: usize = 15;
const TOKENS: u32 = 20_000;
const CALLS: u32 = 100;
/// Number of bytes per read from a socket.
const PIECE: usize = 16 << 10;

/// Name of a measurement, its number of bytes, and its work.
type Row<'a> = (&'static str, usize, Box<dyn Fn() + 'a>);

fn model(api: &str) -> ResolvedModel {
    let text = format!(
        "version: \"1.0.0\"\ncategory: agent/providers\nname: p\napi: {api}\nbase_url: https://api.example.com\npath: /p\n\
         models: [{{id: m, window: 200000, max_output: 64000, prices: free}}]"
    );
    let id = ItemId::new("agent/providers/p").expect("a legal id");
    let (provider, _) = Provider::parse(&text, &id, Owner::User).expect("a provider file");
    let (agent, _) = Agent::from_config(&json!({})).expect("a configuration");
    let asked = ModelRequest {
        model: Some("m"),
        ..ModelRequest::default()
    };
    let providers = BTreeMap::from([("p".to_owned(), provider)]);
    let found = resolve(&asked, &agent, &providers, &|_, _| true);
    found.expect("the model is listed").0
}

fn sent(events: impl IntoIterator<Item = Value>) -> String {
    let mut stream = String::new();
    for event in events {
        let name = event["type"].as_str();
        let name = name.map(|name| format!("event: {name}\n"));
        write!(stream, "{}data: {event}\n\n", name.unwrap_or_default())
            .expect("a string takes all text");
    }
    stream
}

/// Returns the arguments of a call, in pieces.
fn pieces() -> Vec<String> {
    let arguments = json!({"item_id": "rye/bash", "parameters": {"command": "x".repeat(2000)}});
    let arguments: Vec<char> = arguments.to_string().chars().collect();
    arguments
        .chunks(40)
        .map(|piece| piece.iter().collect())
        .collect()
}

fn anthropic(blocks: impl IntoIterator<Item = (Value, Vec<Value>)>) -> String {
    let usage = json!({"input_tokens": 10, "output_tokens": 1});
    let mut events = vec![json!({"type": "message_start", "message": {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [], "usage": usage}})];
    for (index, (begin, deltas)) in blocks.into_iter().enumerate() {
        events.push(json!({"type": "content_block_start", "index": index, "content_block": begin}));
        let delta = |delta| json!({"type": "content_block_delta", "index": index, "delta": delta});
        events.extend(deltas.into_iter().map(delta));
        events.push(json!({"type": "content_block_stop", "index": index}));
    }
    events.push(json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 9}}));
    events.push(json!({"type": "message_stop"}));
    sent(events)
}

fn chat(deltas: impl IntoIterator<Item = Value>, stop: &str) -> String {
    let chunk = |delta: Value, finish: Value| {
        json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_780_000_000, "model": "m",
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
    };
    let events = deltas.into_iter().map(|delta| chunk(delta, Value::Null));
    let mut stream = sent(events.chain([chunk(json!({}), json!(stop))]));
    stream.push_str("data: [DONE]\n\n");
    stream
}

fn streams() -> [(&'static str, &'static str, String); 4] {
    let token = |number: u32| format!("tok{number} ");
    let call = |number: u32| format!("call_{number}");
    let text = (0..TOKENS).map(|n| json!({"type": "text_delta", "text": token(n)}));
    let calls = (0..CALLS).map(|n| {
        let begin = json!({"type": "tool_use", "id": call(n), "name": "rye_execute", "input": {}});
        let delta = |piece| json!({"type": "input_json_delta", "partial_json": piece});
        (begin, pieces().into_iter().map(delta).collect())
    });
    let chat_calls = (0..CALLS).flat_map(|n| {
        let begin = json!({"index": n, "id": call(n), "type": "function", "function": {"name": "rye_execute", "arguments": ""}});
        let delta = move |piece| json!({"index": n, "function": {"arguments": piece}});
        let parts = [begin].into_iter().chain(pieces().into_iter().map(delta));
        parts.map(|part| json!({"tool_calls": [part]}))
    });
    [
        (
            "anthropic, tokens",
            "anthropic",
            anthropic([(json!({"type": "text", "text": ""}), text.collect())]),
        ),
        ("anthropic, calls", "anthropic", anthropic(calls)),
        (
            "openai_chat, tokens",
            "openai_chat",
            chat((0..TOKENS).map(|n| json!({"content": token(n)})), "stop"),
        ),
        (
            "openai_chat, calls",
            "openai_chat",
            chat(chat_calls, "tool_calls"),
        ),
    ]
}

/// Passes the data of each event of `stream` to `sink`.
fn split(stream: &str, mut sink: impl FnMut(&str)) {
    let mut splitter = Splitter::default();
    for piece in stream.as_bytes().chunks(PIECE) {
        let taken = splitter.push(piece, |event| sink(&event.data));
        taken.expect("a stream of events");
    }
}

fn decode(model: &ResolvedModel, stream: &str) {
    let mut decoder = Decoder::new(model, 1);
    let mut signals = Vec::new();
    let mut last = None;
    split(stream, |data| {
        decoder.event(data, &[], &mut signals);
        last = signals.pop().or(last.take());
        signals.clear();
    });
    let mut rest = Vec::new();
    decoder.finish(&mut rest);
    let last = rest.pop().or(last);
    assert!(
        matches!(black_box(last), Some(StreamSignal::Ended(_))),
        "the stream is whole"
    );
}

fn main() {
    let streams = streams();
    let models = streams.each_ref().map(|(_, api, _)| model(api));
    let mut rows: Vec<Row<'_>> = Vec::new();
    for ((name, _, stream), model) in streams.iter().zip(&models) {
        rows.push((name, stream.len(), Box::new(|| decode(model, stream))));
    }
    let first = &streams[0].2;
    rows.push((
        "frames alone",
        first.len(),
        Box::new(|| split(first, |data| assert!(!black_box(data).is_empty()))),
    ));
    rows.push((
        "JSON alone",
        first.len(),
        Box::new(|| {
            split(first, |data| {
                drop(black_box(serde_json::from_str::<Value>(data)));
            });
        }),
    ));
    let mut speeds = vec![Vec::new(); rows.len()];
    for _ in 0..ROUNDS {
        for (speeds, (_, bytes, work)) in speeds.iter_mut().zip(&rows) {
            let begin = Instant::now();
            work();
            let bytes = u32::try_from(*bytes).expect("a stream is short");
            speeds.push(f64::from(bytes) / begin.elapsed().as_secs_f64() / 1e6);
        }
    }
    for (speeds, (name, _, _)) in speeds.iter_mut().zip(&rows) {
        speeds.sort_by(f64::total_cmp);
        let (median, slowest, fastest) = (speeds[ROUNDS / 2], speeds[0], speeds[ROUNDS - 1]);
        println!("{name:<24} {median:>8.0} MB/s   ({slowest:.0} … {fastest:.0})");
    }
}
