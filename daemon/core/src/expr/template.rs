//! Texts with expressions in them.

use serde_json::Value;

use super::expression::{self, Expression};
use super::fault::Error;
use super::scope::{IsRoot, Scope};
use super::value::{Kind, text_of};

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
    /// Cuts a text. `is_root` decides what `$${…}` means: a dollar and a value, or a literal `${…}`. Takes time that grows with
    /// the length of the text only.
    pub(super) fn parse(text: &'t str, is_root: IsRoot<'_>) -> Result<Self, String> {
        let mut template = Self {
            parts: Vec::new(),
            unclosed: false,
        };
        let mut literal = 0;
        let mut braces = Braces::new(text);
        while let Some(open) = braces.next_open() {
            let before = &text[literal..open];
            let inner = &text[open + 1..];
            if before.ends_with("$$") && !expression::begins(inner, is_root) {
                template.literal(&text[literal..open - 1]);
                literal = open;
                continue;
            }
            let Some(first_close) = braces.close() else {
                template.unclosed |= before.ends_with('$');
                continue;
            };
            let (start, part, length) = if before.ends_with('$') {
                let length = expression::end(inner).unwrap_or(first_close);
                let expression = Expression::parse(&inner[..length])?;
                (open - 1, Part::Expression(expression), length)
            } else if let Some(input) = InputReference::parse(&inner[..first_close]) {
                (open, Part::Input(input), first_close)
            } else {
                continue;
            };
            template.literal(&text[literal..start]);
            template.parts.push(part);
            literal = open + 1 + length + 1;
            braces.skip_to(literal);
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

/// The braces of a text, from left to right.
struct Braces<'t> {
    text: &'t str,
    /// Where the search for an opening brace continues.
    from: usize,
    /// The closing brace found last, or the end of the text once there is none.
    close: usize,
}

impl<'t> Braces<'t> {
    fn new(text: &'t str) -> Self {
        Self {
            text,
            from: 0,
            close: 0,
        }
    }

    /// The position of the next opening brace.
    fn next_open(&mut self) -> Option<usize> {
        let open = self.text[self.from..].find('{')? + self.from;
        self.from = open + 1;
        Some(open)
    }

    /// The bytes between the opening brace found last and the first closing one behind it.
    fn close(&mut self) -> Option<usize> {
        if self.close < self.from {
            let found = self.text[self.from..].find('}');
            self.close = found.map_or(self.text.len(), |found| self.from + found);
        }
        (self.close < self.text.len()).then(|| self.close - self.from)
    }

    fn skip_to(&mut self, from: usize) {
        self.from = from;
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
