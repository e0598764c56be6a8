//! Texts that contain expressions.

use serde_json::Value;

use super::expression::{self, Expression};
use super::fault::Error;
use super::scope::{IsRoot, Scope};
use super::value::{Kind, text_of};

/// A text, cut into literal and inserted parts.
#[derive(Debug)]
pub(super) struct Template<'t> {
    pub(super) parts: Vec<TemplatePart<'t>>,
    /// True if a `${` stays text because it is not closed.
    pub(super) unclosed: bool,
}

#[derive(Debug)]
pub(super) enum TemplatePart<'t> {
    Text(&'t str),
    Expression(Expression<'t>),
    Input(InputReference<'t>),
}

impl<'t> Template<'t> {
    /// Parses a text in time linear in its length. `is_root` decides whether `$${…}` is a dollar and a value, or a
    /// literal `${…}`.
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
                (open - 1, TemplatePart::Expression(expression), length)
            } else if let Some(input) = InputReference::parse(&inner[..first_close]) {
                (open, TemplatePart::Input(input), first_close)
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
            self.parts.push(TemplatePart::Text(text));
        }
    }

    /// Returns the expression if it is the whole text.
    fn lone(&self) -> Option<&Expression<'t>> {
        match self.parts.as_slice() {
            [TemplatePart::Expression(lone)]
            | [TemplatePart::Expression(lone), TemplatePart::Text("\n")] => Some(lone),
            _ => None,
        }
    }

    /// Returns the type of all values except null, or `None` if it depends on the input.
    pub(super) fn kind(&self) -> Option<Kind> {
        match self.lone() {
            Some(lone) => lone.kind(),
            None => Some(Kind::Text),
        }
    }

    /// Returns the value of the template: typed for a lone expression, text otherwise. One newline after a lone
    /// expression is dropped, because YAML block texts leave one. Returns `None` if the text would be longer than
    /// `most` bytes.
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
                TemplatePart::Text(literal) => text.push_str(literal),
                TemplatePart::Expression(expression) => {
                    text.push_str(&text_of(&expression.evaluate(scope, notes)?));
                }
                TemplatePart::Input(input) => text.push_str(&input.render(scope, notes)),
            }
        }
        Ok(Some(Value::String(text)))
    }
}

/// Iterator over the braces of a text, from left to right.
struct Braces<'t> {
    text: &'t str,
    /// Offset at which the search for an opening brace continues.
    from: usize,
    /// Offset of the last closing brace found, or the end of the text if none is left.
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

    /// Returns the position of the next opening brace.
    fn next_open(&mut self) -> Option<usize> {
        let open = self.text[self.from..].find('{')? + self.from;
        self.from = open + 1;
        Some(open)
    }

    /// Returns the number of bytes between the last opening brace found and the next closing one.
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

/// `{input:name}`, with the substitute for a missing input.
#[derive(Debug)]
pub(super) struct InputReference<'t> {
    pub(super) name: &'t str,
    otherwise: Otherwise<'t>,
}

#[derive(Debug)]
enum Otherwise<'t> {
    /// The reference stays in the text.
    Keep,
    Text(&'t str),
}

impl<'t> InputReference<'t> {
    /// Parses the text between the braces; returns `None` if it is no reference and so stays text.
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
