//! Whatever bytes come from outside, reading them neither panics nor takes long: sound inputs, changed at random.
//!
//! The inputs stand in `data/corpus`, a folder for each reader, and in what the project ships. A short look is part of every run of the
//! tests; `RYE_FUZZ_SECONDS` makes it so long for each reader, and `RYE_FUZZ_SEED` another one. A failure names the seed, the round and
//! the input, which then belongs into the folder of its reader.
#![expect(
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a test says what failed, and is told how long to look"
)]

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rye_core::definition;
use rye_core::directive;
use rye_core::expr::{self, Condition};
use rye_core::frame::{Frame, SegmentId};
use rye_core::id::{ItemId, ItemKind, ItemRef, Lsn, RunId};
use rye_core::model::Event;
use rye_core::seal::{self, Token};
use rye_core::yaml;
use rye_schema::Schema;
use serde_json::Value;

/// Changed inputs of each reader, unless more are asked for.
const ROUNDS: u64 = 1_500;
/// Nothing takes longer, however loaded the machine is: a schema may be checked for a second or so.
const MOST_TIME: Duration = Duration::from_secs(20);
/// Inputs do not grow beyond this.
const MOST_BYTES: usize = 64 << 10;

/// Numbers that look like chance and come again with the same seed.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        let limit = u64::try_from(limit.max(1)).unwrap_or(u64::MAX);
        usize::try_from(self.next() % limit).unwrap_or(0)
    }

    fn part(&mut self, bytes: &[u8]) -> std::ops::Range<usize> {
        let start = self.below(bytes.len() + 1);
        let length = self.below(64).min(bytes.len() - start);
        start..start + length
    }

    /// `input` with some changes; parts of `other` may come in.
    fn change(&mut self, input: &[u8], other: &[u8]) -> Vec<u8> {
        const WORDS: [&str; 20] = [
            "${",
            "}",
            "||",
            "|",
            "{input:",
            "\\",
            "'",
            "\"",
            "[",
            "{",
            "*",
            "&a",
            "<<: ",
            "!!",
            "\n",
            "- ",
            ": ",
            "\u{feff}",
            "\0",
            "9999999999999999999",
        ];
        let mut bytes = input.to_vec();
        for _ in 0..=self.below(6) {
            let part = self.part(&bytes);
            match self.below(7) {
                0 => drop(bytes.drain(part)),
                1 => {
                    let copy = bytes[part.clone()].to_vec();
                    bytes.splice(part.start..part.start, copy);
                }
                2 => {
                    let from = self.part(other);
                    bytes.splice(part, other[from].iter().copied());
                }
                3 => {
                    let word = WORDS[self.below(WORDS.len())];
                    bytes.splice(part.start..part.start, word.bytes());
                }
                4 => {
                    let word = WORDS[self.below(WORDS.len())].repeat(1 + self.below(200));
                    bytes.splice(part.start..part.start, word.bytes());
                }
                5 => bytes.truncate(part.start),
                _ => {
                    let bit = 1 << self.below(8);
                    if let Some(byte) = bytes.get_mut(part.start) {
                        *byte ^= bit;
                    }
                }
            }
        }
        bytes.truncate(MOST_BYTES);
        bytes
    }
}

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// The files below `folder`.
fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            files(&path, found);
        } else {
            found.push(path);
        }
    }
}

/// The inputs of the reader `name`: its folder, and what is shipped in `more`, by extension.
fn corpus(name: &str, more: Option<(&str, &str)>) -> Vec<Vec<u8>> {
    let home = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    files(&home.join("tests/data/corpus").join(name), &mut found);
    assert!(!found.is_empty(), "the corpus of {name} is empty");
    if let Some((folder, extension)) = more {
        let mut shipped = Vec::new();
        files(&home.join("../..").join(folder), &mut shipped);
        shipped.retain(|path| path.extension().is_some_and(|found| found == extension));
        found.extend(shipped);
    }
    found.sort();
    found
        .iter()
        .map(|path| fs::read(path).expect("the corpus can be read"))
        .collect()
}

/// Reads the inputs as they are, and then changed.
fn look(name: &str, corpus: &[Vec<u8>], read: impl Fn(&[u8])) {
    let seed = variable("RYE_FUZZ_SEED").unwrap_or(0x9e37_79b9_7f4a_7c15) | 1;
    let limit = variable("RYE_FUZZ_SECONDS").map(Duration::from_secs);
    let (mut chance, begun) = (Chance(seed), Instant::now());
    for (round, input) in (0_u64..).zip(corpus) {
        attempt(name, seed, round, input, &read);
    }
    for round in 0_u64.. {
        let is_over = match limit {
            Some(limit) => begun.elapsed() >= limit,
            None => round >= ROUNDS,
        };
        if is_over {
            return;
        }
        let input = &corpus[chance.below(corpus.len())];
        let other = &corpus[chance.below(corpus.len())];
        let changed = chance.change(input, other);
        attempt(name, seed, round, &changed, &read);
    }
}

fn attempt(name: &str, seed: u64, round: u64, input: &[u8], read: impl Fn(&[u8])) {
    let begun = Instant::now();
    let done = catch_unwind(AssertUnwindSafe(|| read(input)));
    let took = begun.elapsed();
    if done.is_err() || took > MOST_TIME {
        eprintln!(
            "{name}, seed {seed}, round {round}, {took:?}: {}",
            input.escape_ascii()
        );
    }
    assert!(done.is_ok(), "{name} panicked");
    assert!(took <= MOST_TIME, "{name} took {took:?}");
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn value(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap_or_else(|_| Value::String(text(bytes)))
}

#[test]
fn frames() {
    let whole = |segment, payload: &[u8]| {
        let mut bytes = Vec::new();
        let frame = Frame {
            segment: SegmentId(segment),
            lsn: Lsn(7),
            durable: Lsn(3),
            payload,
        };
        frame.encode(&mut bytes);
        bytes
    };
    let payloads = corpus("frames", None);
    let mut corpus: Vec<_> = payloads.iter().map(|payload| whole(1, payload)).collect();
    corpus.push(
        payloads
            .iter()
            .flat_map(|payload| whole(1, payload))
            .collect(),
    );
    look("frames", &corpus, |bytes| {
        let _length = Frame::payload_length(bytes);
        let first = Frame::decode(SegmentId(1), bytes);
        let found: Vec<_> = Frame::search(SegmentId(1), bytes).collect();
        assert_eq!(
            first.is_some(),
            found.first() == first.as_ref() && first.is_some()
        );
        for frame in found {
            let mut again = Vec::new();
            frame.encode(&mut again);
            assert!(bytes.windows(again.len()).any(|part| part == again));
        }
    });
}

#[test]
fn texts_of_yaml() {
    let corpus = corpus("yaml", Some((".ai", "yaml")));
    look("yaml", &corpus, |bytes| {
        let _document = yaml::parse(&text(bytes));
    });
}

#[test]
fn graphs() {
    let corpus = corpus("graphs", Some(("tests/data/golden/tools", "yaml")));
    look("graphs", &corpus, |bytes| {
        let text = text(bytes);
        let report = definition::validate(&text);
        if let Ok((graph, _)) = definition::parse(&text) {
            let _drawn = format!("{graph:?}");
        } else {
            assert!(!report.is_sound());
        }
    });
}

#[test]
fn directives() {
    let corpus = corpus("directives", Some((".ai", "md")));
    let id = ItemId::new("t/mutated").expect("it is one");
    look("directives", &corpus, |bytes| {
        let _read = directive::parse(&text(bytes), &id);
    });
}

#[test]
fn templates() {
    look("templates", &corpus("templates", None), |bytes| {
        let template = Value::String(text(bytes));
        let _faults = expr::check(&template);
        let _read = expr::references(&template);
    });
}

#[test]
fn conditions() {
    look("conditions", &corpus("conditions", None), |bytes| {
        if let Ok((condition, _)) = Condition::parse(&value(bytes)) {
            let _shown = (condition.to_string(), condition.paths().len());
        }
    });
}

#[test]
fn schemas() {
    let sample = serde_json::json!({"a": [1, "x", null], "b": {"c": true}});
    look("schemas", &corpus("schemas", None), |bytes| {
        if let Ok(schema) = Schema::new(&value(bytes)) {
            let _problems = schema.problems(&sample, 20);
        }
    });
}

#[test]
fn ids() {
    look("ids", &corpus("ids", None), |bytes| {
        let text = text(bytes);
        for kind in [ItemKind::Tool, ItemKind::Directive, ItemKind::Knowledge] {
            if let Ok(item) = ItemRef::parse(&text, kind) {
                let shown = item.to_string();
                let again = ItemRef::parse(&shown, kind).map(|item| item.to_string());
                assert_eq!(again.ok(), Some(shown));
            }
        }
        if let Ok(run) = RunId::new(text.clone()) {
            assert_eq!(run.as_str(), text);
        }
    });
}

#[test]
fn envelopes() {
    look("envelopes", &corpus("envelopes", None), |bytes| {
        let text = text(bytes);
        let _document = expr::parse_json(&text);
        for name in Event::names() {
            let _event = Event::read(name, &text);
        }
    });
}

#[test]
fn signature_lines() {
    look(
        "signatures",
        &corpus("signatures", Some((".ai", "yaml"))),
        |bytes| {
            let text = text(bytes);
            let normal = seal::normalise(&text);
            for extension in ["yaml", "py", "md", "sh", "js"] {
                let _claim = seal::inspect(ItemKind::Tool, extension, &normal);
                if let Ok(bare) = seal::strip(ItemKind::Tool, extension, &normal) {
                    assert!(bare.len() <= normal.len() + 1);
                }
            }
            for line in text.lines() {
                let _token = Token::parse(line);
            }
        },
    );
}
