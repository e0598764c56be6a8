//! Constants at the top level of a JavaScript or TypeScript file: `export const VERSION = "1.0.0";`.
//!
//! **Owns** the finding of these constants: strings, templates, comments, regular expressions and brackets are told apart, and what
//! stands inside one of them is no constant. The literal itself is JSON5, without its comments. **Never** runs or transforms anything, and
//! never takes more time than the length of the text asks for, or more stack than its bounds of nesting: any file may be read, also one that
//! nobody signed.

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

/// Deepest nesting of a literal, and of templates in what is put into templates; what is deeper is not looked into.
const DEEPEST: usize = 64;

/// What ends a line, and with it a comment.
const LINE_ENDS: [char; 4] = ['\n', '\r', '\u{2028}', '\u{2029}'];

/// The constants we read, under their YAML names.
pub(super) fn constants(text: &str) -> Result<Fields, Error> {
    let mut fields = Fields::new();
    let mut scanner = Scanner::new(text);
    let mut depth = 0_usize;
    let mut is_exported = false;
    // The line of the last constant, and where it begins.
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
    /// A string or a template that does not end.
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
    /// Whether a slash would begin a regular expression: a value may stand here.
    before_value: bool,
    /// Up to where a slash begins none: one before it did not, and looked so far for its end.
    lone_until: usize,
    /// Of how many templates this is the inside.
    depth: usize,
}

impl<'t> Scanner<'t> {
    fn new(text: &'t str) -> Self {
        Self {
            text,
            at: 0,
            before_value: true,
            lone_until: 0,
            depth: 0,
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
            '/' if self.before_value => self.expression(),
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
            Kind::Text | Kind::Cut => false,
            Kind::Word => matches!(text, "return" | "case" | "typeof" | "in" | "of" | "void"),
        };
        Some(Token { kind, text, start })
    }

    /// The value that begins here, if it is a literal and nothing but the end of the declaration follows it. What is parsed holds the tokens
    /// alone, so that it is nested as deep as was counted here: on the end of a comment there is nothing to disagree about.
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
                // The sign of a number.
                Kind::Sign if depth == 0 && matches!(token.text, "-" | "+") => continue,
                // The fraction of a number that begins with its point.
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

    /// Whether the declaration ends here: behind a word on its type, by a semicolon, or with its line.
    fn is_at_end(&self) -> bool {
        const ENDS: [&str; 5] = [";", "}", "//", "as ", "satisfies "];
        let is_blank = |c: char| c.is_whitespace() && !LINE_ENDS.contains(&c);
        let rest = self.rest().trim_start_matches(is_blank);
        rest.is_empty()
            || rest.starts_with(LINE_ENDS)
            || ENDS.iter().any(|end| rest.starts_with(end))
    }

    /// The length of the string or template that begins here; a string ends with its line. All that is looked for is ASCII.
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
                // What is put into a template is code, with strings of its own.
                b'$' if is_template && self.depth < DEEPEST && bytes.get(at + 1) == Some(&b'{') => {
                    at = self.block(at + 2);
                }
                _ => at += 1,
            }
        }
        (Kind::Cut, self.text.len() - self.at)
    }

    /// Where the code ends that begins at `at` in a template, behind the bracket which closes it.
    fn block(&mut self, at: usize) -> usize {
        let mut inner = Self {
            text: self.text,
            at,
            before_value: true,
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

    /// The length of the regular expression that begins here; of a lone slash if its line ends before it.
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
