//! Texts with expressions in them.

use serde_json::Value;

use super::expression::{self, Expression};
use super::value::{Kind, text_of};
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
            let close = if is_expression {
                expression::end(&text[open + 1..]).map(|at| open + 1 + at)
            } else {
                text[open..].find('}').map(|at| open + at)
            };
            let Some(close) = close else {
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
            Some(lone) => lone.kind(),
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
