//! Replaces the parts of a text that differ between runs of the tests.
//!
//! Run ids and hashes are numbered in order of appearance, so that equal ones stay recognisable. Times, durations,
//! keys, signatures, processes and paths are replaced by names.

use std::sync::LazyLock;

use regex::{Captures, Regex};
use serde_json::{Value, json};

/// Fields whose value is only a time, a duration or an identity.
const FIELDS: [(&str, &str); 23] = [
    ("boot_id", "<boot>"),
    ("complete", "<of the host>"),
    ("containment", "<of the host>"),
    ("containment_missing", "<of the host>"),
    ("limits_enforced", "<of the host>"),
    ("limits_missing", "<of the host>"),
    ("cpu_ms", "<ms>"),
    ("created_at", "<time>"),
    ("cursor", "<cursor>"),
    ("due", "<time>"),
    ("elapsed_ms", "<ms>"),
    ("now", "<time>"),
    ("parent_pid", "<pid>"),
    ("pid", "<pid>"),
    ("pem", "<key>"),
    ("pgid", "<pid>"),
    ("policy", "<configuration>"),
    ("start_time", "<time>"),
    ("size", "<bytes>"),
    ("waited_ms", "<ms>"),
    ("wall_ms", "<ms>"),
    ("duration_ms", "<ms>"),
    ("uid", "<uid>"),
];

static RUN: LazyLock<Regex> =
    LazyLock::new(|| regex(r"\b[a-z0-9_]+(?:-[a-z0-9_]+)*-1[0-9]{9}-[a-z0-9]{10}(?:-step)?\b"));
static HASH: LazyLock<Regex> = LazyLock::new(|| regex(r"\b[0-9a-f]{64}\b"));

static OTHERS: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    [
        (
            r"rye:signed:[0-9TZ:.-]+:[0-9a-f]{64}:[A-Za-z0-9_=-]+:[0-9a-f]{16}",
            "<signature>",
        ),
        (r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z", "<time>"),
        (r"\ba[0-9a-f]{10}\b", "<question>"),
        (r"\b[0-9a-f]{16}\b", "<short hash>"),
        (r"\b\d+(?:\.\d+)?(?:ms|s)\b", "<duration>"),
        (r"timed out after [\d.]+ s", "timed out after <duration>"),
        (r"([✓✗⏹]) <duration>", "$1"),
        // The width of a column depends on durations.
        (r"<duration> {2,}", "<duration>  "),
        (
            r"^(?:\d+ )?(open files|processor seconds|bytes of a file|bytes of memory)(?: unlimited)?$",
            "<limit> $1",
        ),
        (
            r"^(?:\d+ (processes)|(processes) unlimited)$",
            "<limit> $1$2",
        ),
        (r"\bpid \d+", "pid <pid>"),
        (r"\buid:\d+", "uid:<uid>"),
        (r"\buid \d+", "uid <uid>"),
        (r"\bryed \d+\.\d+\.\d+", "ryed <version>"),
        (r"\bryectl \d+\.\d+\.\d+", "ryectl <version>"),
        (r"\b\d+\.[0-9a-f]{12}\.\d+\b", "<cursor>"),
    ]
    .map(|(pattern, name)| (regex(pattern), name))
    .into()
});

fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).unwrap()
}

/// Names given so far.
#[derive(Debug, Default)]
pub(crate) struct Normal {
    /// Paths and their names, longest first.
    paths: Vec<(String, &'static str)>,
    runs: Vec<String>,
    hashes: Vec<String>,
}

impl Normal {
    /// Replaces `path` by `name` from now on. Longer paths come first.
    pub(crate) fn call(mut self, path: &std::path::Path, name: &'static str) -> Self {
        self.paths.push((path.to_str().unwrap().to_owned(), name));
        self
    }

    /// Returns `text` without the differing parts.
    pub(crate) fn text(&mut self, text: &str) -> String {
        let mut text = text.to_owned();
        for (path, name) in &self.paths {
            text = text.replace(path.as_str(), name);
        }
        let signature = &OTHERS[0];
        text = signature.0.replace_all(&text, signature.1).into_owned();
        let runs = &mut self.runs;
        text = RUN
            .replace_all(&text, |found: &Captures<'_>| {
                format!("<run {}>", number(runs, &found[0]))
            })
            .into_owned();
        let hashes = &mut self.hashes;
        text = HASH
            .replace_all(&text, |found: &Captures<'_>| {
                format!("<hash {}>", number(hashes, &found[0]))
            })
            .into_owned();
        for (pattern, name) in OTHERS.iter().skip(1) {
            text = pattern.replace_all(&text, *name).into_owned();
        }
        text
    }

    /// Returns `value` without the differing parts.
    pub(crate) fn json(&mut self, value: &Value) -> Value {
        match value {
            Value::String(text) => json!(self.text(text)),
            Value::Array(items) => items.iter().map(|item| self.json(item)).collect(),
            Value::Object(fields) => {
                // The suspicion depends on the time of the daemon's death.
                // The directory of the project differs by machine.
                // The host knows the peak memory of a process only above that of the daemon.
                let lasting = fields.iter().filter(|(key, value)| {
                    let is_directory = *key == "directory" && value.is_object();
                    !is_directory && !["suspected", "max_rss_kib"].contains(&key.as_str())
                });
                let fields = lasting.map(|(key, value)| {
                    let known = FIELDS.iter().find(|(field, _)| field == key);
                    let value = match known {
                        Some((_, name)) if !value.is_null() => json!(name),
                        _ if key == "text" && value.to_string().contains("rye:signed:") => {
                            json!("<source>")
                        }
                        _ => self.json(value),
                    };
                    (self.text(key), value)
                });
                Value::Object(fields.collect())
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        }
    }
}

fn number(known: &mut Vec<String>, name: &str) -> usize {
    let at = known.iter().position(|known| known == name);
    at.unwrap_or_else(|| {
        known.push(name.to_owned());
        known.len() - 1
    }) + 1
}

/// Returns every run id in `text`, in order.
pub(crate) fn run_ids(text: &str) -> Vec<String> {
    let found = RUN.find_iter(text);
    found.map(|id| id.as_str().to_owned()).collect()
}

#[test]
fn equal_ids_and_hashes_keep_one_number_and_others_get_the_next() {
    let (first, second) = ("t-g-1795358651-rylzq75y2v", "t-g-1795358651-aylzq75y2v");
    let hash = "0".repeat(64);
    let told = Normal::default().text(&format!("{first} {second} {first} {hash} after 34ms"));
    assert_eq!(told, "<run 1> <run 2> <run 1> <hash 1> after <duration>");
}
