//! The contract of event payloads (`proto/rye/v1/events.proto`) agrees with the code: field by field in the source, and
//! in every pinned event stream.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use regex::Regex;
use rye_tests::binaries::clone_root;
use serde_json::Value;

/// Types with other names in the contract than in the source.
const OTHER_NAMES: [(&str, &str); 5] = [
    ("Waits", "Waiting"),
    ("ToolCallStart", "Started"),
    ("MessagePart", "Part"),
    ("Reason", "Reseeding"),
    ("TaskFields", "Task"),
];
/// Events that have another name in a thread, which the table does not have.
const IN_THREADS: [&str; 2] = ["thread_suspended", "thread_resumed"];
/// The table of events, below the core.
const EVENTS: &str = "model/event.rs";

/// A field of the contract or the source.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Field {
    /// True if the field may be absent.
    optional: bool,
    /// True if the field may be null.
    nullable: bool,
    /// Type in the terms of the contract; empty for the source.
    holds: String,
}

/// Fields of an object by name. Embedded types, with names that begin with `...`, are among them.
type Fields = BTreeMap<String, Field>;

/// Documentation of an event or a type in the contract.
#[derive(Debug, Default)]
struct Entry {
    /// Type whose fields the event has.
    of: Option<String>,
    fields: Fields,
    /// Allowed words, for a type of words.
    words: BTreeSet<String>,
}

static HEAD: LazyLock<Regex> = LazyLock::new(|| regex(r"^(\w+)(?: = (\w+))?: \S"));
static WORDS: LazyLock<Regex> = LazyLock::new(|| regex(r"^(\w+) is one of ([a-z_, ]+): \S"));
static FIELD: LazyLock<Regex> =
    LazyLock::new(|| regex(r"^(\w+)(\?)?: ([A-Za-z]\w*(?: of \w+)?)( or null)?\. \S"));
static EMBEDDED: LazyLock<Regex> = LazyLock::new(|| regex(r"^(\.\.\.\w+): \S"));
static DECLARED: LazyLock<Regex> = LazyLock::new(|| regex(r"^(?:pub )?(enum|struct) (\w+) \{$"));
static MEMBER: LazyLock<Regex> = LazyLock::new(|| regex(r"^ *(?:pub )?(?:r#)?([a-z]\w*): (.+),$"));
static EVENT: LazyLock<Regex> = LazyLock::new(|| regex(r"^        ([A-Z]\w*)\((\S+)\) => "));
static VARIANT: LazyLock<Regex> = LazyLock::new(|| regex(r"^    ([A-Z]\w*)(.*)$"));
static RENAMED: LazyLock<Regex> = LazyLock::new(|| regex(r#"rename = "(\w+)""#));
static PINNED: LazyLock<Regex> = LazyLock::new(|| regex(r"(?m)^([a-z]+(?:_[a-z]+)+) (\{.*\})$"));

fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).unwrap()
}

/// Parses the contract, by event and type.
fn contract() -> BTreeMap<String, Entry> {
    let path = clone_root().join("proto/proto/rye/v1/events.proto");
    let text = fs::read_to_string(path).unwrap();
    let body = text.split_once("package rye.v1;").unwrap().1;
    let mut entries = BTreeMap::new();
    for block in body.split("\n\n").map(str::trim) {
        // Each description joined to one line.
        let mut told: Vec<String> = Vec::new();
        for line in block.lines() {
            let line = line.strip_prefix("//").unwrap_or(line);
            let indent = line.len() - line.trim_start().len();
            match told.last_mut() {
                Some(last) if indent > 3 => {
                    last.push(' ');
                    last.push_str(line.trim());
                }
                Some(_) | None => told.push(line.trim().to_owned()),
            }
        }
        let Some((head, fields)) = told.split_first() else {
            continue;
        };
        let (name, entry) = if let Some(words) = WORDS.captures(head) {
            let entry = Entry {
                words: words[2].split(", ").map(str::to_owned).collect(),
                ..Entry::default()
            };
            (words[1].to_owned(), entry)
        } else if let Some(found) = HEAD.captures(head) {
            let of = found.get(2).map(|of| of.as_str().to_owned());
            let fields = fields.iter().map(|line| documented(&found[1], line));
            let entry = Entry {
                of,
                fields: fields.collect(),
                ..Entry::default()
            };
            (found[1].to_owned(), entry)
        } else {
            // A heading.
            assert!(head.ends_with('.'), "`{head}` says nothing");
            continue;
        };
        assert!(
            entries.insert(name.clone(), entry).is_none(),
            "{name} is described twice"
        );
    }
    entries
}

/// Parses a field of `entry`.
fn documented(entry: &str, line: &str) -> (String, Field) {
    if let Some(embedded) = EMBEDDED.captures(line) {
        let field = Field {
            optional: false,
            nullable: false,
            holds: String::new(),
        };
        return (embedded[1].to_owned(), field);
    }
    let Some(field) = FIELD.captures(line) else {
        panic!("`{line}` of {entry} is not `field: type. Meaning`");
    };
    let parsed = Field {
        optional: field.get(2).is_some(),
        nullable: field.get(4).is_some(),
        holds: field[3].to_owned(),
    };
    (field[1].to_owned(), parsed)
}

/// A type of the source that is serialised as JSON.
#[derive(Debug)]
struct Declared {
    is_enum: bool,
    name: String,
    lines: Vec<String>,
}

/// Lists the types of the model that are serialised as JSON.
fn declared() -> Vec<Declared> {
    let mut files = Vec::new();
    sources(&clone_root().join("daemon/core/src"), &mut files);
    let mut declared = Vec::new();
    for file in files {
        let text = fs::read_to_string(file).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let Some(found) = DECLARED.captures(line) else {
                continue;
            };
            let before = lines[..at].iter().rev();
            let attributes = before.take_while(|line| !line.is_empty() && **line != "}");
            if !attributes
                .into_iter()
                .any(|line| line.contains("Serialize"))
            {
                continue;
            }
            let body = lines[at + 1..].iter().take_while(|line| **line != "}");
            declared.push(Declared {
                is_enum: &found[1] == "enum",
                name: found[2].to_owned(),
                lines: body.map(|line| (*line).to_owned()).collect(),
            });
        }
    }
    declared
}

fn sources(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// Parses the fields that `lines` of the source declare.
fn members(lines: &[String]) -> Fields {
    let mut fields = Fields::new();
    let mut attributes = String::new();
    for line in lines {
        let Some(member) = MEMBER.captures(line) else {
            let is_comment = line.trim_start().starts_with("//");
            attributes.push_str(if is_comment { "" } else { line });
            continue;
        };
        let held = &member[2];
        let optional = attributes.contains("skip_serializing_if");
        let name = if attributes.contains("flatten") {
            format!("...{}", bare(held))
        } else {
            let renamed = RENAMED.captures(&attributes);
            renamed.map_or_else(|| member[1].to_owned(), |name| name[1].to_owned())
        };
        let embedded = name.starts_with("...");
        let field = Field {
            optional,
            nullable: held.starts_with("Option<") && !optional && !embedded,
            holds: String::new(),
        };
        fields.insert(name, field);
        attributes.clear();
    }
    fields
}

/// Returns the name of a type in the contract, without its containers.
fn bare(held: &str) -> String {
    let name = held.trim_end_matches('>').rsplit('<').next().unwrap();
    let other = OTHER_NAMES.iter().find(|(source, _)| *source == name);
    other.map_or(name, |(_, contract)| contract).to_owned()
}

/// Returns each variant of an enum, with the rest of its line and the lines of its fields.
fn variants(declared: &Declared) -> Vec<(String, String, Vec<String>)> {
    let mut variants: Vec<(String, String, Vec<String>)> = Vec::new();
    for line in &declared.lines {
        if let Some(found) = VARIANT.captures(line) {
            variants.push((snake(&found[1]), found[2].trim().to_owned(), Vec::new()));
        } else if let Some((_, _, lines)) = variants.last_mut()
            && line.starts_with("        ")
        {
            lines.push(line.clone());
        }
    }
    variants
}

fn snake(name: &str) -> String {
    let mut snake = String::new();
    for character in name.chars() {
        if character.is_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.extend(character.to_lowercase());
    }
    snake
}

/// Returns `fields` without their types.
fn untyped(fields: &Fields) -> Fields {
    let untyped = fields.iter().map(|(name, field)| {
        let field = Field {
            holds: String::new(),
            ..field.clone()
        };
        (name.clone(), field)
    });
    untyped.collect()
}

#[test]
fn every_field_of_every_event_is_described_in_the_contract() {
    let contract = contract();
    let declared = declared();
    let mut known = BTreeSet::new();
    let table = fs::read_to_string(clone_root().join("daemon/core/src").join(EVENTS)).unwrap();
    for found in table.lines().filter_map(|line| EVENT.captures(line)) {
        let (name, payload) = (snake(&found[1]), bare(&found[2]));
        let Some(entry) = contract.get(&name) else {
            panic!("the event {name} is not described in events.proto");
        };
        if let Some(of) = &entry.of {
            assert_eq!(*of, payload, "{name}");
        } else {
            let mut structs = declared.iter().filter(|found| bare(&found.name) == payload);
            let found = structs.next();
            let found = found.unwrap_or_else(|| panic!("the source has no {payload}"));
            assert!(structs.next().is_none(), "{payload} is declared twice");
            assert_eq!(untyped(&entry.fields), members(&found.lines), "{name}");
        }
        known.insert(name);
    }
    known.extend(IN_THREADS.map(str::to_owned));
    assert!(known.len() > 50, "only {} events are found", known.len());
    let is_event = |name: &&String| name.starts_with(|first: char| first.is_lowercase());
    let described: BTreeSet<String> = contract.keys().filter(is_event).cloned().collect();
    assert_eq!(described, known, "described, and in the source");
}

#[test]
fn every_payload_type_matches_contract() {
    let contract = contract();
    let declared = declared();
    for (name, entry) in &contract {
        let held = entry.fields.values().map(|field| field.holds.as_str());
        let embedded = entry
            .fields
            .keys()
            .filter_map(|name| name.strip_prefix("..."));
        for held in held.chain(embedded).chain(entry.of.as_deref()) {
            let held = held.trim_start_matches("list of ");
            let is_type = held.starts_with(|first: char| first.is_uppercase());
            assert!(
                !is_type || contract.contains_key(held),
                "{held}, which {name} names, is not described"
            );
        }
        let of_name = declared.iter().filter(|found| bare(&found.name) == *name);
        let mut found = of_name.peekable();
        let is_event = name.starts_with(|first: char| first.is_lowercase());
        assert!(
            is_event || found.peek().is_some(),
            "the source has no {name}"
        );
        let (enums, structs): (Vec<_>, Vec<_>) = found.partition(|found| found.is_enum);
        let says_fields = !entry.fields.is_empty();
        let all: Vec<Fields> = structs.iter().map(|found| members(&found.lines)).collect();
        // Types of the same name are documented together.
        let together: Fields = all
            .iter()
            .flatten()
            .map(|(n, f)| (n.clone(), f.clone()))
            .collect();
        if says_fields && !is_event {
            assert_eq!(untyped(&entry.fields), together, "{name}");
        }
        if !entry.words.is_empty() {
            let there = enums.iter().any(|found| {
                let words = variants(found).into_iter().map(|(word, ..)| word);
                words.collect::<BTreeSet<_>>() == entry.words
            });
            assert!(there, "{name} is none of {:?} in the source", entry.words);
        }
    }
}

/// Returns the difference between `value` and the type `held` of the contract, if there is one.
fn wrong(contract: &BTreeMap<String, Entry>, held: &str, value: &Value) -> Option<String> {
    // Values that differ between runs are pinned by their names.
    let is_pinned = value.as_str().is_some_and(|text| text.starts_with('<'));
    let fits = match held {
        "text" | "run" | "hash" | "usd" => value.is_string(),
        "number" | "time" | "ms" => value.is_number() || is_pinned,
        "bool" => value.is_boolean() || is_pinned,
        "object" => value.is_object(),
        "any" => true,
        list if list.starts_with("list of ") => {
            let items = value.as_array()?;
            let of = list.trim_start_matches("list of ");
            return items.iter().find_map(|item| wrong(contract, of, item));
        }
        name => {
            let entry = &contract[name];
            if !entry.words.is_empty() {
                let is_word = |word| entry.words.contains(word);
                value.as_str().is_some_and(is_word)
            } else if entry.fields.is_empty() {
                true
            } else {
                return wrong_fields(contract, entry, value);
            }
        }
    };
    (!fits).then(|| format!("{value} is no {held}"))
}

/// Returns the difference between the fields of `value` and `entry`, if there is one.
fn wrong_fields(
    contract: &BTreeMap<String, Entry>,
    entry: &Entry,
    value: &Value,
) -> Option<String> {
    let Some(found) = value.as_object() else {
        return Some(format!("{value} is no object"));
    };
    let embedded = entry
        .fields
        .keys()
        .filter_map(|name| name.strip_prefix("..."));
    let embedded: Vec<&Entry> = embedded.map(|name| &contract[name]).collect();
    for (name, field) in &entry.fields {
        if !name.starts_with("...") && !field.optional && !found.contains_key(name) {
            return Some(format!("`{name}` is missing in {value}"));
        }
    }
    found.iter().find_map(|(name, value)| {
        let entries = std::iter::once(entry).chain(embedded.iter().copied());
        let Some(field) = entries.into_iter().find_map(|entry| entry.fields.get(name)) else {
            return Some(format!("`{name}` is not described"));
        };
        if field.nullable && value.is_null() {
            return None;
        }
        wrong(contract, &field.holds, value).map(|why| format!("{name}: {why}"))
    })
}

#[test]
fn every_pinned_event_matches_contract() {
    let contract = contract();
    let snapshots = clone_root().join("tests/tests/snapshots");
    let mut checked = BTreeSet::new();
    for file in fs::read_dir(snapshots).unwrap() {
        let path = file.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        for event in PINNED.captures_iter(&text) {
            let Ok(payload) = serde_json::from_str::<Value>(&event[2]) else {
                continue;
            };
            let Some(entry) = contract.get(&event[1]) else {
                continue;
            };
            let entry = entry.of.as_ref().map_or(entry, |of| &contract[of]);
            if let Some(why) = wrong_fields(&contract, entry, &payload) {
                panic!("{} in {}: {why}", &event[1], path.display());
            }
            checked.insert(event[1].to_owned());
        }
    }
    assert!(checked.len() > 25, "only {checked:?} are pinned");
}
