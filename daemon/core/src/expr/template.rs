//! Texts with expressions in them.

use serde_json::Value;

use super::path::Path;
use super::value::{Kind, kind_of, parse_json, text_of};
use super::{Error, Scope};

/// A text, cut into what is literal and what is inserted.
#[derive(Debug)]
pub(super) struct Template<'t> {
    pub(super) parts: Vec<Part<'t>>,
    /// Whether a `${` stays text because nothing closes it.
    pub(super) unclosed: bool,
}

#[derive(Debug)]
pub(super) enum Part<'t> {
    Text(&'t str),
    Expression(Expression<'t>),
    Input(InputReference<'t>),
}

impl<'t> Template<'t> {
    pub(super) fn parse(text: &'t str) -> Result<Self, String> {
        let mut template = Self {
            parts: Vec::new(),
            unclosed: false,
        };
        let mut literal = 0;
        let mut from = 0;
        while let Some(open) = text[from..].find('{').map(|at| from + at) {
            let is_expression = text[literal..open].ends_with('$');
            let Some(close) = text[open..].find('}').map(|at| open + at) else {
                template.unclosed = is_expression || text[open..].contains("${");
                break;
            };
            let inner = &text[open + 1..close];
            let found = if is_expression {
                Some(Part::Expression(Expression::parse(inner)?))
            } else {
                InputReference::parse(inner).map(Part::Input)
            };
            from = open + 1;
            if let Some(part) = found {
                let start = open - usize::from(is_expression);
                template.literal(&text[literal..start]);
                template.parts.push(part);
                from = close + 1;
                literal = from;
            }
        }
        template.literal(&text[literal..]);
        Ok(template)
    }

    fn literal(&mut self, text: &'t str) {
        if !text.is_empty() {
            self.parts.push(Part::Text(text));
        }
    }

    /// The expression that is all there is.
    fn lone(&self) -> Option<&Expression<'t>> {
        match self.parts.as_slice() {
            [Part::Expression(lone)] | [Part::Expression(lone), Part::Text("\n")] => Some(lone),
            _ => None,
        }
    }

    /// The type of all its values but null; `None` if it depends.
    pub(super) fn kind(&self) -> Option<Kind> {
        match self.lone() {
            Some(lone) => lone.pipes.last()?.kind(),
            None => Some(Kind::Text),
        }
    }

    /// The value of the whole: typed for a lone expression (one newline after it is dropped, as YAML block texts
    /// leave one), text otherwise. `None` if the text would be longer than `most` bytes.
    pub(super) fn render(
        &self,
        scope: &dyn Scope,
        notes: &mut Vec<String>,
        most: usize,
    ) -> Result<Option<Value>, Error> {
        if let Some(lone) = self.lone() {
            return lone.evaluate(scope, notes).map(Some);
        }
        let mut text = String::new();
        for part in &self.parts {
            if text.len() > most {
                return Ok(None);
            }
            match part {
                Part::Text(literal) => text.push_str(literal),
                Part::Expression(expression) => {
                    text.push_str(&text_of(&expression.evaluate(scope, notes)?));
                }
                Part::Input(input) => text.push_str(&input.render(scope, notes)),
            }
        }
        Ok(Some(Value::String(text)))
    }
}

/// `a || b | pipe`: the first path that is not null, through the pipes.
#[derive(Debug)]
pub(super) struct Expression<'t> {
    text: &'t str,
    alternatives: Vec<Path>,
    pipes: Vec<Pipe>,
}

impl<'t> Expression<'t> {
    fn parse(text: &'t str) -> Result<Self, String> {
        let text = text.trim();
        let (chain, pipes) = split_pipes(text);
        let alternatives = chain
            .split("||")
            .map(|path| match path.trim() {
                "" if text.is_empty() => Err("`${}` names nothing".to_owned()),
                "" => Err(format!("`{text}` has an empty alternative")),
                path => Path::parse(path),
            })
            .collect::<Result<_, _>>()?;
        let pipes = pipes
            .map(|pipes| {
                pipes
                    .split('|')
                    .map(|name| Pipe::parse(name.trim()))
                    .collect()
            })
            .transpose()?
            .unwrap_or_default();
        Ok(Self {
            text,
            alternatives,
            pipes,
        })
    }

    pub(super) fn paths(&self) -> impl Iterator<Item = &str> {
        self.alternatives.iter().map(Path::text)
    }

    fn evaluate(&self, scope: &dyn Scope, notes: &mut Vec<String>) -> Result<Value, Error> {
        let found = self
            .alternatives
            .iter()
            .filter_map(|path| path.resolve(scope))
            .find(|value| !value.is_null());
        let Some(found) = found else {
            notes.push(self.null_note(scope));
            return Ok(Value::Null);
        };
        let Some((first, rest)) = self.pipes.split_first() else {
            return Ok(found.into_owned());
        };
        let fail = |pipe: Pipe, reason| Error::Pipe {
            pipe: pipe.name(),
            expression: self.text.to_owned(),
            reason,
        };
        rest.iter().try_fold(
            first.apply(&found).map_err(|reason| fail(*first, reason))?,
            |value, pipe| {
                if value.is_null() {
                    return Ok(value);
                }
                pipe.apply(&value).map_err(|reason| fail(*pipe, reason))
            },
        )
    }

    fn null_note(&self, scope: &dyn Scope) -> String {
        let hint = self
            .alternatives
            .iter()
            .find_map(|path| path.suggest(scope))
            .map_or_else(String::new, |path| format!(" (did you mean {path}?)"));
        format!("interpolation resolved to null: {}{hint}", self.text)
    }
}

/// Cuts `a || b | c | d` at its first single bar.
fn split_pipes(text: &str) -> (&str, Option<&str>) {
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at] == b'|' {
            if bytes.get(at + 1) != Some(&b'|') {
                return (&text[..at], Some(&text[at + 1..]));
            }
            at += 1;
        }
        at += 1;
    }
    (text, None)
}

/// What can be done to a value on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pipe {
    Json,
    FromJson,
    Length,
    Keys,
    Upper,
    Lower,
}

impl Pipe {
    const ALL: [Self; 6] = [
        Self::Json,
        Self::FromJson,
        Self::Length,
        Self::Keys,
        Self::Upper,
        Self::Lower,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::FromJson => "from_json",
            Self::Length => "length",
            Self::Keys => "keys",
            Self::Upper => "upper",
            Self::Lower => "lower",
        }
    }

    fn parse(name: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|pipe| pipe.name() == name)
            .ok_or_else(|| {
                format!(
                    "there is no pipe `{name}`; there are {}",
                    Self::ALL.map(Self::name).join(", ")
                )
            })
    }

    /// The type of what comes out; `None` if it depends.
    const fn kind(self) -> Option<Kind> {
        match self {
            Self::Json | Self::Upper | Self::Lower => Some(Kind::Text),
            Self::Length => Some(Kind::Number),
            Self::Keys => Some(Kind::List),
            Self::FromJson => None,
        }
    }

    /// The value behind the pipe; the error completes "pipe `x` …".
    fn apply(self, value: &Value) -> Result<Value, String> {
        let wants = |what: &str| Err(format!("wants {what}, not {}", kind_of(value)));
        match (self, value) {
            (Self::Json, _) => Ok(Value::String(value.to_string())),
            (Self::FromJson, Value::String(text)) => {
                parse_json(text).map_err(|error| format!("cannot read its text: {error}"))
            }
            (Self::FromJson, _)
            | (Self::Upper | Self::Lower, Value::Array(_) | Value::Object(_)) => wants("a text"),
            (Self::Length, Value::String(text)) => Ok(text.chars().count().into()),
            (Self::Length, Value::Array(list)) => Ok(list.len().into()),
            (Self::Length, Value::Object(map)) => Ok(map.len().into()),
            (Self::Length, _) => wants("a text, a list or a map"),
            (Self::Keys, Value::Object(map)) => Ok(map.keys().cloned().collect()),
            (Self::Keys, _) => wants("a map"),
            (Self::Upper, _) => Ok(text_of(value).to_uppercase().into()),
            (Self::Lower, _) => Ok(text_of(value).to_lowercase().into()),
        }
    }
}

/// `{input:name}`, with what stands in for a missing one.
#[derive(Debug)]
pub(super) struct InputReference<'t> {
    pub(super) name: &'t str,
    otherwise: Otherwise<'t>,
}

#[derive(Debug)]
enum Otherwise<'t> {
    /// The reference stays as it is.
    Keep,
    /// This text.
    Text(&'t str),
}

impl<'t> InputReference<'t> {
    /// Reads what stands between the braces; `None` if it is no reference, and so stays text.
    fn parse(inner: &'t str) -> Option<Self> {
        let inner = inner.strip_prefix("input:")?;
        let end = inner
            .find(|c: char| !c.is_alphanumeric() && c != '_')
            .unwrap_or(inner.len());
        let (name, modifier) = inner.split_at(end);
        let otherwise = match modifier {
            "" => Otherwise::Keep,
            "?" => Otherwise::Text(""),
            _ => Otherwise::Text(modifier.strip_prefix([':', '|'])?),
        };
        (!name.is_empty()).then_some(Self { name, otherwise })
    }

    fn render(&self, scope: &dyn Scope, notes: &mut Vec<String>) -> String {
        let given = scope.get("inputs").and_then(|inputs| inputs.get(self.name));
        match (given, &self.otherwise) {
            (Some(Value::Null), Otherwise::Keep) => String::new(),
            (Some(Value::Null) | None, Otherwise::Text(text)) => (*text).to_owned(),
            (None, Otherwise::Keep) => {
                notes.push(format!(
                    "input `{}` is not given: `{{input:{}}}` stays text",
                    self.name, self.name
                ));
                format!("{{input:{}}}", self.name)
            }
            (Some(value), _) => text_of(value),
        }
    }
}
