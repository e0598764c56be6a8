use crate::id::ItemId;
use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;
use crate::money::Usd;

mod chat;
mod choices;
mod failures;
mod fields;
mod files;
mod streams;
mod usages;
mod wires;

fn id(name: &str) -> ItemId {
    ItemId::new(format!("agent/providers/{name}")).unwrap()
}

/// A provider file; `keys` replace or extend its own.
fn file(name: &str, keys: &str) -> String {
    let mut lines = vec![
        "version: \"1.0.0\"".to_owned(),
        "category: agent/providers".to_owned(),
        format!("name: {name}"),
        "api: anthropic".to_owned(),
        "base_url: https://api.example.com".to_owned(),
        "path: /v1/messages".to_owned(),
        "auth: [{header: x-api-key, secret: KEY}]".to_owned(),
        "models: [{id: m, aliases: [em], window: 200000, max_output: 64000, prices: free}]"
            .to_owned(),
    ];
    for given in keys.lines() {
        let key = given.split(':').next().unwrap();
        lines.retain(|line| line.split(':').next() != Some(key));
        lines.push(given.to_owned());
    }
    lines.join("\n")
}

fn provider(name: &str, keys: &str) -> Provider {
    let text = file(name, keys);
    let read = Provider::parse(&text, &id(name), Owner::User);
    read.unwrap_or_else(|findings| panic!("{findings:?}\n{text}"))
        .0
}

fn agent(value: &Value) -> Agent {
    Agent::from_config(value).unwrap().0
}

/// A resolved model that costs nothing.
fn model() -> ResolvedModel {
    let providers = BTreeMap::from([("p".to_owned(), provider("p", ""))]);
    let asked = ModelRequest {
        model: Some("m"),
        ..ModelRequest::default()
    };
    let agent = agent(&json!({}));
    resolve(&asked, &agent, &providers, &|_, _| true).unwrap().0
}

fn usd(text: &str) -> Usd {
    Usd::parse(text).unwrap()
}

/// Returns variants of `events`, each with one value replaced by another.
fn warped(events: &[Value]) -> Vec<Vec<Value>> {
    let others = [
        json!(null),
        json!(true),
        json!(-1),
        json!(1e300),
        json!(u64::MAX),
        json!(""),
        json!("x"),
        json!([]),
        json!({}),
        json!([[1]]),
    ];
    let mut all = Vec::new();
    for (at, event) in events.iter().enumerate() {
        let mut pointers = Vec::new();
        pointers_of(event, String::new(), &mut pointers);
        for pointer in &pointers {
            for other in &others {
                let mut events = events.to_vec();
                *events[at].pointer_mut(pointer).unwrap() = other.clone();
                all.push(events);
            }
        }
    }
    all
}

fn pointers_of(value: &Value, at: String, pointers: &mut Vec<String>) {
    for (key, below) in value.as_object().into_iter().flatten() {
        pointers_of(below, format!("{at}/{key}"), pointers);
    }
    for (index, below) in value.as_array().into_iter().flatten().enumerate() {
        pointers_of(below, format!("{at}/{index}"), pointers);
    }
    pointers.push(at);
}

/// Asserts that a stream ended once, and that each call was emitted at most once.
fn assert_ends_once(signals: &[stream::StreamSignal]) {
    use stream::StreamSignal;

    let is_end =
        |signal: &StreamSignal| matches!(signal, StreamSignal::Ended(_) | StreamSignal::Broken(_));
    let ends: Vec<usize> = (0..signals.len())
        .filter(|at| is_end(&signals[*at]))
        .collect();
    assert_eq!(ends, [signals.len() - 1], "{signals:?}");
    let mut ready: Vec<u32> = ready(signals).map(|call| call.position).collect();
    let count = ready.len();
    ready.sort_unstable();
    ready.dedup();
    assert_eq!(ready.len(), count, "{signals:?}");
}

/// Returns the emitted calls, in order.
fn ready(signals: &[stream::StreamSignal]) -> impl Iterator<Item = &stream::Call> {
    signals.iter().filter_map(|signal| {
        if let stream::StreamSignal::CallReady(call) = signal {
            Some(call)
        } else {
            None
        }
    })
}

fn ended(signals: &[stream::StreamSignal]) -> &stream::Ended {
    match signals.last() {
        Some(stream::StreamSignal::Ended(ended)) => ended,
        other => panic!("{other:?}"),
    }
}

fn fault(signals: &[stream::StreamSignal]) -> &stream::Fault {
    match signals.last() {
        Some(stream::StreamSignal::Broken(fault)) => fault,
        other => panic!("{other:?}"),
    }
}

/// Decodes all `pieces` of a body, up to its end.
fn decode<'p>(
    pieces: impl IntoIterator<Item = &'p [u8]>,
    model: &ResolvedModel,
) -> Vec<stream::StreamSignal> {
    let (mut splitter, mut decoder) = (sse::Splitter::default(), Decoder::new(model, 7));
    let mut signals = Vec::new();
    for piece in pieces {
        let taken = splitter.push(piece, |event| {
            decoder.event(&event.data, &["s3cret"], &mut signals);
        });
        taken.unwrap();
    }
    decoder.finish(&mut signals);
    signals
}
