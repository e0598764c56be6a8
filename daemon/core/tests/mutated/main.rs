//! Fuzz tests of all readers of foreign bytes: no input may cause a panic or take long. Inputs are random mutations of
//! valid ones.
//!
//! The seeds are in `data/corpus`, with a folder for each reader, and in the shipped project files. Each test run is
//! short. `RYE_FUZZ_SECONDS` sets the duration for each reader, and `RYE_FUZZ_SEED` another seed. A failure prints the
//! seed, the round and the input; add the input to the folder of its reader. `tests/fuzz` runs the same readers guided
//! by coverage.
#![expect(
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a test says what failed, and is told how long to look"
)]

#[expect(unreachable_pub, reason = "the targets in `tests/fuzz` have it, too")]
mod readers;

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Number of mutated inputs for each reader, by default.
const ROUNDS: u64 = 1_500;
/// Time limit for one input, even on a loaded machine. A schema may take about a second.
const MOST_TIME: Duration = Duration::from_secs(20);
/// Size limit of inputs in bytes.
const MOST_BYTES: usize = 64 << 10;

/// A pseudo-random generator that repeats its numbers for the same seed.
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

    /// Mutates `input`; parts of `other` may be inserted.
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

/// Collects the files below `folder`.
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

/// Returns the inputs of the reader `name`: its folder, and the shipped files with the extension in `more`.
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

/// Runs `read` on the unchanged inputs, and then on mutated ones.
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

#[test]
fn frames() {
    let payloads = corpus("frames", None);
    let mut corpus: Vec<_> = payloads
        .iter()
        .map(|payload| readers::frame(payload))
        .collect();
    corpus.push(corpus.concat());
    look("frames", &corpus, readers::frames);
}

#[test]
fn texts_of_yaml() {
    let corpus = corpus("yaml", Some((".ai", "yaml")));
    look("yaml", &corpus, readers::yaml);
}

#[test]
fn graphs() {
    let corpus = corpus("graphs", Some(("tests/data/golden/tools", "yaml")));
    look("graphs", &corpus, readers::graphs);
}

#[test]
fn directives() {
    let corpus = corpus("directives", Some((".ai", "md")));
    look("directives", &corpus, readers::directives);
}

#[test]
fn templates() {
    look("templates", &corpus("templates", None), readers::templates);
}

#[test]
fn conditions() {
    let corpus = corpus("conditions", None);
    look("conditions", &corpus, readers::conditions);
}

#[test]
fn schemas() {
    look("schemas", &corpus("schemas", None), readers::schemas);
}

#[test]
fn ids() {
    look("ids", &corpus("ids", None), readers::ids);
}

#[test]
fn envelopes() {
    look("envelopes", &corpus("envelopes", None), readers::envelopes);
}

#[test]
fn signature_lines() {
    let corpus = corpus("signatures", Some((".ai", "yaml")));
    look("signatures", &corpus, readers::signatures);
}
