//! Constants at the top level of a JavaScript or TypeScript file: `export const VERSION = "1.0.0";`.
//!
//! **Owns** the search for these constants. It distinguishes strings, templates, comments, regular expressions and
//! brackets; text inside one of them is not a constant. The literal itself is JSON5, without its comments. **Never**
//! runs or transforms anything. Time is linear in the length of the text, and nesting is bounded, which bounds the
//! stack: the reader accepts any file, also an unsigned one.

use serde_json::Value;

use super::Error;
use super::keys::Fields;

/// Names and their fields, in Rye's spelling and in that of the original. A capitalised name counts only if it is
/// exported, because modules have constants of their own. The original's names count in both cases.
const NAMES: [(&str, &str); 38] = [
    ("VERSION", "version"),
    ("NAME", "name"),
    ("CATEGORY", "category"),
    ("TOOL_TYPE", "tool_type"),
    ("EXECUTOR_ID", "executor_id"),
    ("DESCRIPTION", "description"),
    ("CALLERS", "callers"),
    ("EFFECT", "effect"),
    ("OUTPUT", "output"),
    ("REPLAY", "replay"),
    ("ISOLATION", "isolation"),
    ("RESOURCES", "resources"),
    ("INPUTS", "inputs"),
    ("OUTPUTS", "outputs"),
    ("ENV_REQUIRES", "env_requires"),
    ("PERMISSIONS", "permissions"),
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
    ("__callers__", "callers"),
    ("__effect__", "effect"),
    ("__output__", "output"),
    ("__replay__", "replay"),
    ("__isolation__", "isolation"),
    ("__resources__", "resources"),
    ("__inputs__", "inputs"),
    ("__outputs__", "outputs"),
    ("__env_requires__", "env_requires"),
    ("__execution_owner__", "execution_owner"),
];

/// Capitalised names that also count unexported.
const OF_THE_ORIGINAL: [&str; 3] = ["CONFIG_SCHEMA", "ENV_CONFIG", "CONFIG"];

/// Maximum nesting of a literal, and of templates inside templates; deeper content is not parsed.
const DEEPEST: usize = 64;

/// Line terminators, which also end a comment.
const LINE_ENDS: [char; 4] = ['\n', '\r', '\u{2028}', '\u{2029}'];

/// Known constants by their YAML names.
pub(super) fn constants(text: &str) -> Result<Fields, Error> {
    let mut fields = Fields::new();
    let mut scanner = Scanner::new(text);
    let mut depth = 0_usize;
    let mut is_exported = false;
    // Line of the last constant, and the offset of its start.
    let (mut line, mut counted) = (1, 0);
    while let Some(token) = scanner.next() {
        let behind_export = std::mem::replace(&mut is_exported, token.text == "export");
        match token.kind {
            Kind::Open => depth += 1,
            Kind::Close => depth = depth.saturating_sub(1),
            Kind::Word if depth == 0 && is_declaration(token.text) => {
                let Some((name, field)) = declared(&mut scanner, behind_export) else {
                    continue;
                };
                line += text[counted..token.start].matches('\n').count();
                counted = token.start;
                let value = scanner.literal().ok_or_else(|| Error::NotLiteral {
                    line,
                    name: name.to_owned(),
                })?;
                fields.put(field, value, line);
            }
            Kind::Word | Kind::Text | Kind::Cut | Kind::Sign => {}
        }
    }
    Ok(fields)
}

fn is_declaration(word: &str) -> bool {
    matches!(word, "const" | "let" | "var")
}

/// Reads the next declared name and returns it with its field, if it is a known one. The scanner is then at its value.
fn declared<'t>(scanner: &mut Scanner<'t>, is_exported: bool) -> Option<(&'t str, &'static str)> {
    let before = scanner.clone();
    let name = scanner.next()?.text;
    let counts = is_exported || name.starts_with("__") || OF_THE_ORIGINAL.contains(&name);
    let found = NAMES.iter().find(|(known, _)| counts && *known == name);
    let Some((_, field)) = found else {
        *scanner = before;
        return None;
    };
    // A type annotation, with brackets of its own, may precede the value.
    let mut depth = 0_usize;
    loop {
        let token = scanner.next()?;
        match (token.kind, token.text) {
            (Kind::Open, _) => depth += 1,
            (Kind::Close, _) => depth = depth.checked_sub(1)?,
            (Kind::Sign, "=") if depth == 0 => return Some((name, field)),
            (Kind::Sign, ";") if depth == 0 => return None,
            (Kind::Word | Kind::Text | Kind::Cut | Kind::Sign, _) => {}
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A name, a keyword or a number.
    Word,
    /// A string, a template or a regular expression.
    Text,
    /// An unterminated string or template.
    Cut,
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
    /// True if a value may begin here, so that a slash begins a regular expression.
    expects_value: bool,
    /// Offset below which a slash begins no regular expression: an earlier slash found no end up to here.
    lone_until: usize,
    /// Number of enclosing templates.
    depth: usize,
}

impl<'t> Scanner<'t> {
    fn new(text: &'t str) -> Self {
        Self {
            text,
            at: 0,
            expects_value: true,
            lone_until: 0,
            depth: 0,
        }
    }

    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    /// Skips blanks and comments.
    fn skip_blank(&mut self) {
        loop {
            let rest = self.rest();
            let trimmed = rest.trim_start();
            self.at += rest.len() - trimmed.len();
            let length = if trimmed.starts_with("//") || (self.at == 0 && trimmed.starts_with("#!"))
            {
                trimmed.find(LINE_ENDS).unwrap_or(trimmed.len())
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
            '"' | '\'' | '`' => self.quoted(first),
            '/' if self.expects_value => self.expression(),
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
        self.expects_value = match kind {
            Kind::Open | Kind::Sign => true,
            Kind::Close => text == "}",
            Kind::Text | Kind::Cut => false,
            Kind::Word => matches!(text, "return" | "case" | "typeof" | "in" | "of" | "void"),
        };
        Some(Token { kind, text, start })
    }

    /// Parses the value that begins here. Returns `None` unless it is a literal directly followed by the end of the
    /// declaration. Only the tokens are given to the JSON5 parser, so its nesting equals the nesting counted here: both
    /// parsers cannot disagree about the end of a comment.
    fn literal(&mut self) -> Option<Value> {
        let mut tokens = String::new();
        let mut end = None;
        let mut depth = 0_usize;
        loop {
            let token = self.next()?;
            if end.is_some_and(|end| end < token.start) {
                tokens.push(' ');
            }
            tokens.push_str(token.text);
            end = Some(self.at);
            match token.kind {
                Kind::Open => depth += 1,
                Kind::Close => depth = depth.checked_sub(1)?,
                // Sign of a number.
                Kind::Sign if depth == 0 && matches!(token.text, "-" | "+") => continue,
                // Fraction of a number that begins with its point.
                Kind::Sign if depth == 0 && token.text == "." => continue,
                Kind::Text if token.text.starts_with(['`', '/']) => return None,
                Kind::Cut => return None,
                Kind::Word | Kind::Text | Kind::Sign => {}
            }
            if depth > DEEPEST {
                return None;
            }
            if depth == 0 && !self.rest().starts_with('.') {
                break;
            }
        }
        let value = json5::from_str(&tokens).ok()?;
        self.is_at_end().then_some(value)
    }

    /// True if the declaration ends here: at a type assertion, a semicolon or the end of the line.
    fn is_at_end(&self) -> bool {
        const ENDS: [&str; 5] = [";", "}", "//", "as ", "satisfies "];
        let is_blank = |c: char| c.is_whitespace() && !LINE_ENDS.contains(&c);
        let rest = self.rest().trim_start_matches(is_blank);
        rest.is_empty()
            || rest.starts_with(LINE_ENDS)
            || ENDS.iter().any(|end| rest.starts_with(end))
    }

    /// Length of the string or template that begins here; a string ends with its line. All searched characters are
    /// ASCII.
    fn quoted(&mut self, quote: char) -> (Kind, usize) {
        let is_template = quote == '`';
        let bytes = self.text.as_bytes();
        let mut at = self.at + 1;
        while let Some(&byte) = bytes.get(at) {
            match byte {
                b'\\' if bytes[at + 1..].starts_with(b"\r\n") => at += 3,
                b'\\' => at += 2,
                byte if char::from(byte) == quote => return (Kind::Text, at + 1 - self.at),
                b'\n' if !is_template => return (Kind::Cut, at - self.at),
                // A template's `${…}` is code, with strings of its own.
                b'$' if is_template && self.depth < DEEPEST && bytes.get(at + 1) == Some(&b'{') => {
                    at = self.block(at + 2);
                }
                _ => at += 1,
            }
        }
        (Kind::Cut, self.text.len() - self.at)
    }

    /// Offset after the bracket that closes the code beginning at `at` in a template.
    fn block(&mut self, at: usize) -> usize {
        let mut inner = Self {
            text: self.text,
            at,
            expects_value: true,
            lone_until: self.lone_until,
            depth: self.depth + 1,
        };
        let mut depth = 1_usize;
        while let Some(token) = inner.next() {
            match token.kind {
                Kind::Open => depth += 1,
                Kind::Close => depth -= 1,
                Kind::Word | Kind::Text | Kind::Cut | Kind::Sign => {}
            }
            if depth == 0 {
                break;
            }
        }
        self.lone_until = inner.lone_until;
        inner.at
    }

    /// Length of the regular expression that begins here; 1 for a lone slash, if the line ends first.
    fn expression(&mut self) -> (Kind, usize) {
        let lone = (Kind::Text, 1);
        if self.at < self.lone_until {
            return lone;
        }
        let rest = self.rest();
        let mut chars = rest.char_indices().skip(1);
        let mut in_class = false;
        while let Some((at, c)) = chars.next() {
            match c {
                '\\' => {
                    let _escaped = chars.next();
                }
                '[' => in_class = true,
                ']' => in_class = false,
                '/' if !in_class => return (Kind::Text, at + 1),
                '\n' => {
                    self.lone_until = self.at + at;
                    return lone;
                }
                _ => {}
            }
        }
        self.lone_until = self.text.len();
        lone
    }
}
