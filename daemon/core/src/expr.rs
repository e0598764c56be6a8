//! Templates and conditions: how a graph reads values.
//!
//! **Owns** `${path}` interpolation, `{input:name}` references and the condition language of edges. Both read values
//! by [`Scope`] name and path; neither changes anything.
//! **Never** expands a value that was inserted, and never fails a condition: unlike types do not match and leave a
//! note.
//!
//! ```text
//! ${state.a}                  the value, with its type, if it is the whole text
//! n=${state.a}                mixed text: strings bare, anything else as JSON, null and missing as nothing
//! ${state.a || inputs.a}      the first that is not null; behind `||` a literal, too: 5 'x' true null [] {}
//! ${state.list.0.name}        also state.list[0].name; negative indices count from the end
//! $${f} $${f%.txt}            a literal `${f}`, `${f%.txt}`: what follows `$${` begins with no known name, as the variables of a shell;
//! $${state.a}                 on a known name a dollar and the value
//! ${state.a | json}           pipes: json from_json length keys upper lower trim lines first last sum unique, and with a path or a
//!                             literal split(s) join(s) add(n) append(v) default(v); null passes through all but `default`
//! {input:a} {input:a?} {input:a:else} {input:a|else}    always text
//! ```
//!
//! **Failure.** Whatever can be wrong about a template is found by [`check`] before a graph runs, except a pipe that
//! gets a value it cannot take, and a value beyond the [bounds]: those are an [`Error`] of the step. So is an expression that begins
//! with a name that its scope lacks; the reader of graphs looks at the same before a run. Things a person should
//! hear of but nobody has to act on (a path that leads nowhere below a known name) are pushed to `notes`.

mod condition;
mod expression;
mod path;
mod pipe;
mod template;
mod value;
mod vars;

use std::borrow::Cow;

use serde_json::{Map, Value};

use crate::bounds::{self, Excess, MOST_BYTES, MOST_DEPTH};
use crate::error::{ErrorKind, Kinded, excerpt};
use crate::yaml::push_segment;

pub use condition::Condition;
#[cfg(test)]
pub(crate) use condition::LEAF_KEYS;
pub(crate) use condition::{COMBINATORS, Known, OPS, Patterns};
pub use value::{BadJson, parse_json};
pub use vars::Vars;

pub(crate) use path::is_name;
pub use path::nearest;
pub(crate) use value::{Kind, kind_of, text_of};

use template::{Part, Template};

/// A JSON object.
pub type Object = Map<String, Value>;

/// Characters of a template that an error shows.
const SHOWN: usize = 100;

/// What a name stands for.
#[derive(Debug, Clone, Copy)]
pub enum Bound<'a> {
    /// One value.
    Value(&'a Value),
    /// A map of shared values; it becomes one value only where somebody asks for the whole.
    Vars(&'a Vars),
}

impl<'a> From<&'a Value> for Bound<'a> {
    fn from(value: &'a Value) -> Self {
        Self::Value(value)
    }
}

impl<'a> From<&'a Vars> for Bound<'a> {
    fn from(vars: &'a Vars) -> Self {
        Self::Vars(vars)
    }
}

impl<'a> Bound<'a> {
    /// The value of `key` in a map.
    fn get(self, key: &str) -> Option<&'a Value> {
        match self {
            Self::Value(value) => value.get(key),
            Self::Vars(vars) => vars.get(key),
        }
    }

    /// The whole as one value.
    fn whole(self) -> Cow<'a, Value> {
        match self {
            Self::Value(value) => Cow::Borrowed(value),
            Self::Vars(vars) => Cow::Owned(vars.to_value()),
        }
    }
}

/// What templates and conditions may read: `state`, `inputs`, `result`, `_now`, a loop variable.
pub trait Scope {
    /// What `name` stands for.
    fn get(&self, name: &str) -> Option<Bound<'_>>;
    /// All names, for suggestions.
    fn names(&self) -> Vec<&str>;
}

/// A small scope over borrowed values; the first of two equal names wins.
#[derive(Debug, Clone, Default)]
pub struct Names<'a> {
    entries: Vec<(&'a str, Bound<'a>)>,
}

impl<'a> Names<'a> {
    /// A scope of these names.
    pub fn new<B: Into<Bound<'a>>>(entries: impl IntoIterator<Item = (&'a str, B)>) -> Self {
        let entries = entries.into_iter();
        Self {
            entries: entries.map(|(name, bound)| (name, bound.into())).collect(),
        }
    }

    /// The same scope with one name more.
    #[must_use]
    pub fn with(mut self, name: &'a str, bound: impl Into<Bound<'a>>) -> Self {
        self.entries.push((name, bound.into()));
        self
    }
}

impl Scope for Names<'_> {
    fn get(&self, name: &str) -> Option<Bound<'_>> {
        self.entries
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, bound)| *bound)
    }

    fn names(&self) -> Vec<&str> {
        self.entries.iter().map(|(name, _)| *name).collect()
    }
}

/// How much a fault weighs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Severity {
    /// The graph does not run.
    Error,
    /// It runs; somebody should look.
    Warning,
}

/// What is wrong with a template or condition, and where inside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// JSON pointer below the value that was checked; empty for the value itself.
    pub at: String,
    /// What is wrong, for people.
    pub message: String,
    /// Whether the graph can run.
    pub severity: Severity,
}

/// Why a template has no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The text of a template does not follow the grammar.
    #[error("malformed template `{}`: {reason}", excerpt(template))]
    Malformed {
        /// The template.
        template: String,
        /// The rule it breaks.
        reason: String,
    },
    /// An expression begins with a name that is not there.
    #[error("`${{{}}}` reads `{name}`, {reason}", excerpt(expression))]
    UnknownName {
        /// The text between the braces.
        expression: String,
        /// The name.
        name: String,
        /// What is there instead, and how to write it for a shell.
        reason: String,
    },
    /// A pipe got a value it cannot take.
    #[error("pipe `{pipe}` in `${{{expression}}}` {reason}")]
    Pipe {
        /// The name of the pipe.
        pipe: &'static str,
        /// The text between the braces.
        expression: String,
        /// What it wants, and got.
        reason: String,
    },
    /// What a template makes goes beyond what a run may hold.
    #[error("what `{template}` makes is {excess}; keep large data in files and pass their paths")]
    Excess {
        /// The beginning of the template.
        template: String,
        /// How.
        excess: Excess,
    },
}

impl Kinded for Error {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Malformed { .. }
            | Self::UnknownName { .. }
            | Self::Pipe { .. }
            | Self::Excess { .. } => ErrorKind::Invalid,
        }
    }
}

/// The value of `template` in `scope`: every text in it interpolated, map keys left alone, all else kept.
pub fn interpolate(
    template: &Value,
    scope: &dyn Scope,
    notes: &mut Vec<String>,
) -> Result<Value, Error> {
    let mut filling = Filling {
        scope,
        notes,
        left: MOST_BYTES,
    };
    filling.value(template, MOST_DEPTH)
}

/// A template on its way to a value.
struct Filling<'a> {
    scope: &'a dyn Scope,
    notes: &'a mut Vec<String>,
    /// Bytes that the rest may take.
    left: usize,
}

impl Filling<'_> {
    fn value(&mut self, template: &Value, depth: usize) -> Result<Value, Error> {
        match template {
            Value::String(text) => self.text(text, depth),
            Value::Array(list) => list
                .iter()
                .map(|entry| self.value(entry, depth.saturating_sub(1)))
                .collect(),
            Value::Object(map) => map
                .iter()
                .map(|(key, entry)| Ok((key.clone(), self.value(entry, depth.saturating_sub(1))?)))
                .collect(),
            Value::Null | Value::Bool(_) | Value::Number(_) => Ok(template.clone()),
        }
    }

    fn text(&mut self, text: &str, depth: usize) -> Result<Value, Error> {
        let scope = self.scope;
        let template = Template::parse(text, &|name| scope.get(name).is_some());
        let template = template.map_err(|reason| Error::Malformed {
            template: text.to_owned(),
            reason,
        })?;
        let excess = |excess| Error::Excess {
            template: text.chars().take(SHOWN).collect(),
            excess,
        };
        let value = template
            .render(self.scope, self.notes, self.left)?
            .ok_or_else(|| excess(Excess::Bytes))?;
        self.left -= bounds::within(&value, depth, self.left).map_err(excess)?;
        Ok(value)
    }
}

/// Returns true for the names that an expression may begin with at some place.
pub type IsRoot<'a> = &'a dyn Fn(&str) -> bool;

/// What is wrong with `template`; empty if [`interpolate`] will find it well-formed where there are these names. Expressions on
/// other names are not reported: [`references`] names them.
pub fn check(template: &Value, is_root: IsRoot<'_>) -> Vec<Fault> {
    let mut faults = Vec::new();
    each_text(
        template,
        &mut String::new(),
        &mut |at, text| match Template::parse(text, is_root) {
            Ok(parsed) if parsed.unclosed => faults.push(Fault {
                at: at.to_owned(),
                message: "`${` without `}` stays text".to_owned(),
                severity: Severity::Warning,
            }),
            Ok(_) => {}
            Err(reason) => faults.push(Fault {
                at: at.to_owned(),
                message: format!("malformed template `{}`: {reason}", excerpt(text)),
                severity: Severity::Error,
            }),
        },
    );
    faults
}

/// The paths `template` reads where there are these names, as written, in order; an `{input:name}` counts as `inputs.name`.
/// Malformed texts read nothing.
pub fn references(template: &Value, is_root: IsRoot<'_>) -> Vec<String> {
    let mut paths = Vec::new();
    each_read(template, is_root, &mut |read| {
        paths.push(read.path.into_owned());
    });
    paths
}

/// A path that a template reads.
pub(crate) struct Read<'t> {
    /// JSON pointer to the text that reads it, from the template.
    pub(crate) at: &'t str,
    /// The path, as written.
    pub(crate) path: Cow<'t, str>,
    /// How to write the expression for a shell, if it may be meant for one.
    pub(crate) for_shell: Option<String>,
}

/// Visits what [`references`] returns, with the place of each.
pub(crate) fn each_read(template: &Value, is_root: IsRoot<'_>, visit: &mut dyn FnMut(Read<'_>)) {
    each_text(template, &mut String::new(), &mut |at, text| {
        let parts =
            Template::parse(text, is_root).map_or_else(|_| Vec::new(), |parsed| parsed.parts);
        for part in &parts {
            match part {
                Part::Text(_) => {}
                Part::Expression(expression) => {
                    for path in expression.paths() {
                        let path = Cow::Borrowed(path.text());
                        let for_shell = expression.for_shell();
                        visit(Read {
                            at,
                            path,
                            for_shell,
                        });
                    }
                }
                Part::Input(input) => visit(Read {
                    at,
                    path: format!("inputs.{}", input.name).into(),
                    for_shell: None,
                }),
            }
        }
    });
}

/// The type that every value of `template` has; `None` if it depends on what is read. A lone path that leads nowhere
/// is null all the same.
pub(crate) fn kind_of_template(template: &Value) -> Option<Kind> {
    match template {
        // The type is the same whatever names there are: what is written for a shell is a text in any case.
        Value::String(text) => Template::parse(text, &|_| true).ok()?.kind(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            Some(Kind::of(template))
        }
    }
}

/// `params` without the map keys that are null, at any depth; lists keep theirs.
#[must_use]
pub fn strip_nulls(params: Value) -> Value {
    match params {
        Value::Object(map) => map
            .into_iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(key, value)| (key, strip_nulls(value)))
            .collect(),
        Value::Array(list) => list.into_iter().map(strip_nulls).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => params,
    }
}

fn each_text(value: &Value, at: &mut String, visit: &mut dyn FnMut(&str, &str)) {
    let length = at.len();
    match value {
        Value::String(text) => visit(at, text),
        Value::Array(list) => {
            for (index, entry) in list.iter().enumerate() {
                push_segment(at, &index.to_string());
                each_text(entry, at, visit);
                at.truncate(length);
            }
        }
        Value::Object(map) => {
            for (key, entry) in map {
                push_segment(at, key);
                each_text(entry, at, visit);
                at.truncate(length);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests;
