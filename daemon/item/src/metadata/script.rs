//! Constants at the top level of a JavaScript or TypeScript file: `export const VERSION = "1.0.0";`.
//!
//! **Owns** the finding of these constants: strings, templates, comments, regular expressions and brackets are told apart, and what
//! stands inside one of them is no constant. The literal itself is JSON5. **Never** runs or transforms anything.

use serde_json::Value;

use super::Error;
use super::keys::Fields;

/// Names and the fields they are, in our spelling and in that of the original. A capital name counts if it is exported, for modules
/// have constants of their own; those of the original count either way.
const NAMES: [(&str, &str); 27] = [
    ("VERSION", "version"),
    ("NAME", "name"),
    ("CATEGORY", "category"),
    ("TOOL_TYPE", "tool_type"),
    ("EXECUTOR_ID", "executor_id"),
    ("DESCRIPTION", "description"),
    ("EFFECT", "effect"),
    ("INPUTS", "inputs"),
    ("OUTPUTS", "outputs"),
    ("ENV_REQUIRES", "env_requires"),
    ("CONFIG_SCHEMA", "config_schema"),
    ("ENV_CONFIG", "env_config"),
    ("CONFIG", "config"),
    ("CONFIG_RESOLVE", "config_resolve"),
    ("CHILD_CONSTRAINTS", "child_constraints"),
    ("__version__", "version"),
    ("__name__", "name"),
    ("__tool_name__", "name"),
    ("__category__", "category"),
    ("__tool_type__", "tool_type"),
    ("__executor_id__", "executor_id"),
    ("__tool_description__", "description"),
    ("__effect__", "effect"),
    ("__inputs__", "inputs"),
    ("__outputs__", "outputs"),
    ("__env_requires__", "env_requires"),
    ("__execution_owner__", "execution_owner"),
];

/// Capital names that count unexported as well.
const OF_THE_ORIGINAL: [&str; 3] = ["CONFIG_SCHEMA", "ENV_CONFIG", "CONFIG"];

/// Deepest nesting of a literal.
const DEEPEST: usize = 64;

/// The constants we read, under their YAML names.
pub(super) fn constants(text: &str) -> Result<Fields, Error> {
    let mut fields = Fields::new();
    let mut scanner = Scanner::new(text);
    let mut depth = 0_usize;
    let mut is_exported = false;
    while let Some(token) = scanner.next() {
        let behind_export = std::mem::replace(&mut is_exported, token.text == "export");
        match token.kind {
            Kind::Open => depth += 1,
            Kind::Close => depth = depth.saturating_sub(1),
            Kind::Word if depth == 0 && is_declaration(token.text) => {
                let Some((name, field)) = declared(&mut scanner, behind_export) else {
                    continue;
                };
                let line = text[..token.start].matches('\n').count() + 1;
                let value = scanner.literal().ok_or_else(|| Error::NotLiteral {
                    line,
                    name: name.to_owned(),
                })?;
                fields.put(field, value, line);
            }
            Kind::Word | Kind::Text | Kind::Sign => {}
        }
    }
    Ok(fields)
}

fn is_declaration(word: &str) -> bool {
    matches!(word, "const" | "let" | "var")
}

/// The name that is declared next and the field it is, if it is one of ours; what follows is its value.
fn declared<'t>(scanner: &mut Scanner<'t>, is_exported: bool) -> Option<(&'t str, &'static str)> {
    let before = scanner.clone();
    let name = scanner.next()?.text;
    let counts = is_exported || name.starts_with("__") || OF_THE_ORIGINAL.contains(&name);
    let found = NAMES.iter().find(|(known, _)| counts && *known == name);
    let Some((_, field)) = found else {
        *scanner = before;
        return None;
    };
    // A type may stand before the value, with brackets of its own.
    let mut depth = 0_usize;
    loop {
        let token = scanner.next()?;
        match (token.kind, token.text) {
            (Kind::Open, _) => depth += 1,
            (Kind::Close, _) => depth = depth.checked_sub(1)?,
            (Kind::Sign, "=") if depth == 0 => return Some((name, field)),
            (Kind::Sign, ";") if depth == 0 => return None,
            (Kind::Word | Kind::Text | Kind::Sign, _) => {}
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A name, a keyword or a number.
    Word,
    /// A string, a template or a regular expression.
    Text,
    Open,
    Close,
    /// One character of anything else.
    Sign,
}

#[derive(Debug, Clone, Copy)]
struct Token<'t> {
    kind: Kind,
    text: &'t str,
    start: usize,
}

#[derive(Debug, Clone)]
struct Scanner<'t> {
    text: &'t str,
    at: usize,
    /// Whether a slash would begin a regular expression: a value may stand here.
    before_value: bool,
}

impl<'t> Scanner<'t> {
    fn new(text: &'t str) -> Self {
        Self {
            text,
            at: 0,
            before_value: true,
        }
    }

    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    /// Passes over blanks and comments.
    fn skip_blank(&mut self) {
        loop {
            let rest = self.rest();
            let trimmed = rest.trim_start();
            self.at += rest.len() - trimmed.len();
            let length = if trimmed.starts_with("//") || (self.at == 0 && trimmed.starts_with("#!"))
            {
                trimmed.find('\n').unwrap_or(trimmed.len())
            } else if let Some(comment) = trimmed.strip_prefix("/*") {
                comment.find("*/").map_or(trimmed.len(), |end| end + 4)
            } else {
                return;
            };
            self.at += length;
        }
    }

    fn next(&mut self) -> Option<Token<'t>> {
        self.skip_blank();
        let (start, rest) = (self.at, self.rest());
        let first = rest.chars().next()?;
        let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == '$';
        let (kind, length) = match first {
            '"' | '\'' | '`' => (Kind::Text, quoted(rest, first)),
            '/' if self.before_value => (Kind::Text, expression(rest)),
            '(' | '[' | '{' => (Kind::Open, 1),
            ')' | ']' | '}' => (Kind::Close, 1),
            c if is_word(c) => {
                let end = rest.find(|c: char| !is_word(c));
                (Kind::Word, end.unwrap_or(rest.len()))
            }
            c => (Kind::Sign, c.len_utf8()),
        };
        self.at += length;
        let text = &rest[..length];
        self.before_value = match kind {
            Kind::Open | Kind::Sign => true,
            Kind::Close => text == "}",
            Kind::Text => false,
            Kind::Word => matches!(text, "return" | "case" | "typeof" | "in" | "of" | "void"),
        };
        Some(Token { kind, text, start })
    }

    /// The value that begins here, if it is a literal and nothing but the end of the declaration follows it.
    fn literal(&mut self) -> Option<Value> {
        self.skip_blank();
        let start = self.at;
        let mut depth = 0_usize;
        loop {
            let token = self.next()?;
            match token.kind {
                Kind::Open => depth += 1,
                Kind::Close => depth = depth.checked_sub(1)?,
                // The sign of a number.
                Kind::Sign if depth == 0 && matches!(token.text, "-" | "+") => continue,
                // The fraction of a number that begins with its point.
                Kind::Sign if depth == 0 && token.text == "." => continue,
                Kind::Word | Kind::Text | Kind::Sign => {}
            }
            if depth > DEEPEST {
                return None;
            }
            if depth == 0 && !self.rest().starts_with('.') {
                break;
            }
        }
        let value = json5::from_str(&self.text[start..self.at]).ok()?;
        self.is_at_end().then_some(value)
    }

    /// Whether the declaration ends here: behind a word on its type, by a semicolon, or with its line.
    fn is_at_end(&mut self) -> bool {
        let line = self.rest().split('\n').next().unwrap_or_default().trim();
        let line = match line.strip_prefix("as ").or(line.strip_prefix("satisfies ")) {
            Some(of_type) => of_type.trim_start_matches(|c: char| c != ';'),
            None => line,
        };
        line.is_empty() || line.starts_with([';', '}']) || line.starts_with("//")
    }
}

/// The length of the string or template that begins `text`; a string ends with its line.
fn quoted(text: &str, quote: char) -> usize {
    let mut chars = text.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => {
                let _escaped = chars.next();
            }
            c if c == quote => return at + 1,
            '\n' if quote != '`' => return at,
            // What is put into a template is code, with strings of its own.
            '$' if quote == '`' && text[at + 1..].starts_with('{') => {
                let end = at + 2 + block(&text[at + 2..]);
                while chars.clone().next().is_some_and(|(next, _)| next < end) {
                    let _inner = chars.next();
                }
            }
            _ => {}
        }
    }
    text.len()
}

/// The length of the code that ends with the bracket which closes it.
fn block(text: &str) -> usize {
    let mut scanner = Scanner::new(text);
    let mut depth = 1_usize;
    while let Some(token) = scanner.next() {
        match token.kind {
            Kind::Open => depth += 1,
            Kind::Close => depth -= 1,
            Kind::Word | Kind::Text | Kind::Sign => {}
        }
        if depth == 0 {
            break;
        }
    }
    scanner.at
}

/// The length of the regular expression that begins `text`; of a lone slash if its line ends before it.
fn expression(text: &str) -> usize {
    let mut chars = text.char_indices().skip(1);
    let mut in_class = false;
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => {
                let _escaped = chars.next();
            }
            '[' => in_class = true,
            ']' => in_class = false,
            '/' if !in_class => return at + 1,
            '\n' => return 1,
            _ => {}
        }
    }
    1
}
