//! The reader of a YAML file: its values with their positions, and the findings about them.
//!
//! **Failure.** A value that cannot be read is a finding and `None`. The reading continues, so that all findings of a file are returned.

use std::time::Duration;

use serde_json::{Map, Value};

use super::finding::{Finding, errors};
use super::keys::{Keys, unknown_keys};
use crate::clock;
use crate::expr::{self, Severity, did_you_mean, kind_of, nearest};
use crate::yaml::{Document, Position, push_segment};

/// Most names of one file that are looked up among the known ones for a suggestion. Each look-up reads all of them,
/// so a file full of unknown names would take quadratic time.
const MAX_SUGGESTIONS: u32 = 32;
/// The longest time a file may ask for, in seconds: a year.
const MAX_SECONDS: f64 = 31_536_000.0;
/// The code of a file that takes more time or memory to read than it may.
pub(crate) const TOO_COMPLEX: &str = "too_complex";

/// A value of the document and the JSON pointer to it.
#[derive(Debug, Clone)]
pub(crate) struct At<'d> {
    pub(crate) value: &'d Value,
    pub(crate) pointer: String,
}

impl<'d> At<'d> {
    pub(crate) fn child(&self, key: &str) -> Option<Self> {
        let value = match self.value {
            Value::Object(map) => map.get(key)?,
            Value::Array(list) => list.get(key.parse::<usize>().ok()?)?,
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return None,
        };
        Some(self.below(key, value))
    }

    fn below(&self, key: &str, value: &'d Value) -> Self {
        let mut pointer = self.pointer.clone();
        push_segment(&mut pointer, key);
        Self { value, pointer }
    }

    /// Returns the value below `key`, unless it is absent or null.
    pub(crate) fn given(&self, key: &str) -> Option<Self> {
        self.child(key).filter(|child| !child.value.is_null())
    }

    /// Returns the position of the key of this value.
    pub(crate) fn named(&self) -> Spot {
        self.at("").named()
    }

    /// Returns the position of a value below this one; `below` is a JSON pointer.
    pub(crate) fn at(&self, below: &str) -> Spot {
        Spot::from(self).below(below)
    }

    /// Returns the last segment of the pointer, unescaped.
    pub(crate) fn key(&self) -> String {
        last_key(&self.pointer)
    }
}

/// Position of a finding: a value, or its key. A missing value has the position of the nearest one above it.
pub(crate) struct Spot {
    pointer: String,
    is_key: bool,
}

impl Spot {
    fn below(&self, below: &str) -> Self {
        Self {
            pointer: format!("{}{below}", self.pointer),
            is_key: false,
        }
    }

    pub(crate) fn named(self) -> Self {
        Self {
            is_key: true,
            ..self
        }
    }
}

impl From<&At<'_>> for Spot {
    fn from(at: &At<'_>) -> Self {
        Self {
            pointer: at.pointer.clone(),
            is_key: false,
        }
    }
}

fn last_key(pointer: &str) -> String {
    let last = pointer.rsplit('/').next().unwrap_or_default();
    last.replace("~1", "/").replace("~0", "~")
}

/// Rule for a time of zero seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Zero {
    Allowed,
    Refused,
}

/// A reader of one document. `C` is data of the caller for this kind of file.
pub(crate) struct Reader<'d, C = ()> {
    document: &'d Document,
    findings: Vec<Finding>,
    suggestions: u32,
    is_late: &'d dyn Fn() -> bool,
    gave_up: bool,
    /// The node being read.
    pub(crate) node: Option<String>,
    pub(crate) context: C,
}

impl<'d, C> Reader<'d, C> {
    pub(crate) fn new(document: &'d Document, context: C) -> Self {
        Self::until(document, context, &|| false)
    }

    /// A reader that gives up when `is_late` returns true.
    pub(crate) fn until(document: &'d Document, context: C, is_late: &'d dyn Fn() -> bool) -> Self {
        let warnings = document.warnings.iter().map(|fault| Finding {
            code: "yaml_1_1",
            severity: Severity::Warning,
            ..Finding::of_yaml(fault.clone())
        });
        Self {
            document,
            findings: warnings.collect(),
            suggestions: MAX_SUGGESTIONS,
            is_late,
            gave_up: false,
            node: None,
            context,
        }
    }

    /// Returns true while there is time left. The first call after it reports an error.
    pub(crate) fn has_time(&mut self) -> bool {
        if !self.gave_up && (self.is_late)() {
            self.gave_up = true;
            let root = self.root();
            let message =
                "the file takes too long to check: make it smaller, or cut it into several graphs";
            self.error(TOO_COMPLEX, &root, message);
        }
        !self.gave_up
    }

    pub(crate) fn root(&self) -> At<'d> {
        At {
            value: &self.document.value,
            pointer: String::new(),
        }
    }

    /// Returns the findings in the order of the text.
    pub(crate) fn finish(mut self) -> Vec<Finding> {
        self.findings.sort_by_key(|f| (f.line, f.column));
        self.findings
    }

    /// `value` with the warnings; all findings if it is `None` or an error is among them.
    pub(crate) fn end<T>(self, value: Option<T>) -> Result<(T, Vec<Finding>), Vec<Finding>> {
        let findings = self.finish();
        match value {
            Some(value) if errors(&findings).next().is_none() => Ok((value, findings)),
            Some(_) | None => Err(findings),
        }
    }

    fn add(&mut self, severity: Severity, code: &'static str, at: &Spot, message: String) {
        let Position { line, column } = if at.is_key {
            self.document.key_position(&at.pointer)
        } else {
            self.document.position(&at.pointer)
        };
        self.findings.push(Finding {
            code,
            message,
            node: self.node.clone(),
            line,
            column,
            severity,
        });
    }

    pub(crate) fn error(
        &mut self,
        code: &'static str,
        at: impl Into<Spot>,
        message: impl Into<String>,
    ) {
        self.add(Severity::Error, code, &at.into(), message.into());
    }

    pub(crate) fn warn(
        &mut self,
        code: &'static str,
        at: impl Into<Spot>,
        message: impl Into<String>,
    ) {
        self.add(Severity::Warning, code, &at.into(), message.into());
    }

    /// Adds the faults of an expression at `at`.
    pub(crate) fn adopt(
        &mut self,
        code: &'static str,
        at: impl Into<Spot>,
        faults: Vec<expr::TemplateFault>,
    ) {
        let at = at.into();
        for fault in faults {
            let below = at.below(&fault.at);
            self.add(fault.severity, code, &below, fault.message);
        }
    }

    pub(crate) fn wrong_type(&mut self, at: &At<'d>, wanted: &str) {
        let name = self.called(at);
        let message = format!("{name} must be {wanted}, not {}", kind_of(at.value));
        self.error("wrong_type", at, message);
    }

    /// Returns the name of the value at `at` for people: its key, or its index in a list.
    fn called(&self, at: &At<'d>) -> String {
        let (parent, _) = at.pointer.rsplit_once('/').unwrap_or_default();
        let is_item = |parent: &str| {
            let parent = self.document.value.pointer(parent);
            parent.is_some_and(Value::is_array)
        };
        let mut name = format!("`{}`", at.key());
        if let Ok(index) = at.key().parse::<usize>()
            && is_item(parent)
        {
            name = format!("item {} of `{}`", index + 1, last_key(parent));
        }
        name
    }

    pub(crate) fn not_supported(&mut self, at: &At<'d>, what: &str) {
        let message = format!("{what} is not supported by this release yet");
        self.error("not_supported", at.named(), message);
    }

    /// Returns the name that a misspelled `word` probably means. `None` after [`MAX_SUGGESTIONS`] calls.
    pub(crate) fn nearest<'c>(
        &mut self,
        word: &str,
        names: impl IntoIterator<Item = &'c str>,
    ) -> Option<&'c str> {
        self.suggestions = self.suggestions.checked_sub(1)?;
        nearest(word, names)
    }

    /// Reports unknown, misplaced and missing keys of a map.
    pub(crate) fn check_keys(&mut self, at: &At<'d>, map: &'d Map<String, Value>, keys: &Keys) {
        for key in unknown_keys(map, keys.known()) {
            let Some(child) = at.child(key) else { continue };
            let misplaced = keys.misplaced.iter().find(|(known, _)| *known == key);
            let hint = match misplaced {
                Some((_, instead)) => format!(": {instead}"),
                None => did_you_mean(self.nearest(key, keys.known())),
            };
            let known: Vec<&str> = keys.known().collect();
            self.error(
                "unknown_key",
                child.named(),
                format!(
                    "{} has no key `{key}`{hint}; its keys are {}, and x-…",
                    keys.what,
                    known.join(", ")
                ),
            );
        }
        for (key, fix) in keys.required {
            if !map.contains_key(*key) {
                self.error("missing_key", at, format!("`{key}` is missing: {fix}"));
            }
        }
    }

    /// Returns `at` as a map whose keys are checked.
    pub(crate) fn map(&mut self, at: &At<'d>, keys: &Keys) -> Option<&'d Map<String, Value>> {
        let Value::Object(map) = at.value else {
            self.wrong_type(at, "a map");
            return None;
        };
        self.check_keys(at, map, keys);
        Some(map)
    }

    pub(crate) fn entries(&mut self, at: &At<'d>, what: &str) -> Option<Vec<At<'d>>> {
        let Value::Array(list) = at.value else {
            self.wrong_type(at, what);
            return None;
        };
        let entries = list.iter().enumerate();
        let entries = entries.map(|(index, entry)| at.below(&index.to_string(), entry));
        Some(entries.collect())
    }

    pub(crate) fn members(&mut self, at: &At<'d>, what: &str) -> Option<Vec<(&'d str, At<'d>)>> {
        let Value::Object(map) = at.value else {
            self.wrong_type(at, what);
            return None;
        };
        let members = map.iter();
        let members = members.map(|(key, value)| (key.as_str(), at.below(key, value)));
        Some(members.collect())
    }

    pub(crate) fn text(&mut self, at: &At<'d>, key: &str) -> Option<&'d str> {
        let child = at.child(key)?;
        match child.value {
            Value::String(text) => Some(text),
            Value::Number(number) => {
                let name = self.called(&child);
                let message = format!("{name} must be a text: write \"{number}\", in quotes");
                self.error("wrong_type", &child, message);
                None
            }
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => {
                self.wrong_type(&child, "a text");
                None
            }
        }
    }

    /// Returns the text below `key`, and reports a missing one.
    pub(crate) fn required_text(&mut self, at: &At<'d>, key: &str, why: &str) -> Option<&'d str> {
        if at.child(key).is_none() {
            self.error("missing_key", at, format!("`{key}` is missing: {why}"));
        }
        self.text(at, key)
    }

    pub(crate) fn texts(&mut self, at: &At<'d>) -> Option<Vec<&'d str>> {
        let Value::Array(list) = at.value else {
            self.wrong_type(at, "a list of texts");
            return None;
        };
        let mut texts = Vec::with_capacity(list.len());
        for index in 0..list.len() {
            texts.push(self.text(at, &index.to_string()));
        }
        texts.into_iter().collect()
    }

    /// Returns the value whose word is below `key`; the first of `words` if there is none.
    pub(crate) fn word<T: Copy>(
        &mut self,
        at: &At<'d>,
        key: &str,
        words: &[(&str, T)],
    ) -> Option<T> {
        let (_, default) = *words.first()?;
        let Some(child) = at.given(key) else {
            return Some(default);
        };
        let found = child
            .value
            .as_str()
            .and_then(|text| words.iter().find(|(word, _)| *word == text));
        if found.is_none() {
            let all: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            let message = format!(
                "`{key}` must be one of {}, not `{}`",
                all.join(", "),
                brief(child.value)
            );
            self.error("unknown_value", &child, message);
        }
        found.map(|(_, value)| *value)
    }

    pub(crate) fn whole(&mut self, at: &At<'d>, key: &str, least: u32) -> Option<u32> {
        let child = at.given(key)?;
        let number = child
            .value
            .as_u64()
            .and_then(|number| u32::try_from(number).ok())
            .filter(|number| *number >= least);
        if number.is_none() {
            let text = if child.value.is_string() {
                "the text "
            } else {
                ""
            };
            let message = format!(
                "`{key}` must be a whole number from {least} to {}, not {text}`{}`",
                u32::MAX,
                brief(child.value)
            );
            self.error("wrong_type", &child, message);
        }
        number
    }

    /// Returns the time below `key`, in seconds: a number, or a text like `1h30m`.
    pub(crate) fn seconds(&mut self, at: &At<'d>, key: &str, zero: Zero) -> Option<Duration> {
        let child = at.given(key)?;
        let read = match child.value {
            Value::String(text) => clock::duration(text.trim()),
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::Array(_)
            | Value::Object(_) => child
                .value
                .as_f64()
                .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()),
        };
        let fits = |time: &Duration| {
            time.as_secs_f64() <= MAX_SECONDS && (zero == Zero::Allowed || !time.is_zero())
        };
        let time = read.filter(fits);
        if time.is_none() {
            let least = match zero {
                Zero::Allowed => "from 0",
                Zero::Refused => "above 0",
            };
            let message = format!(
                "`{key}` must be a number of seconds {least} to {MAX_SECONDS:.0}, or a text like 90s or 1h30m, not `{}`",
                brief(child.value)
            );
            self.error("wrong_type", &child, message);
        }
        time
    }

    pub(crate) fn switch(&mut self, at: &At<'d>, key: &str) -> Option<bool> {
        let child = at.given(key)?;
        if !child.value.is_boolean() {
            self.wrong_type(&child, "true or false");
        }
        child.value.as_bool()
    }
}

/// True for null, false and an empty list.
pub(crate) fn is_inert(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Array(list) => list.is_empty(),
        Value::Bool(true) | Value::Number(_) | Value::String(_) | Value::Object(_) => false,
    }
}

/// Returns the text of a value for a message, at most 200 characters.
pub(crate) fn brief(value: &Value) -> String {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            value.to_string()
        }
    };
    shorten(&text)
}

pub(crate) fn shorten(text: &str) -> String {
    match text.char_indices().nth(200) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
