//! The expression between the braces of `${…}`: `a || b || 'c' | pipe | pipe(argument)`.
//!
//! An expression begins with a path. After `||`, and between the brackets of a pipe, is a path or a literal: a number,
//! a text in quotes of either kind (with `\n \t \\ \' \"`), `true`, `false`, `null`, `[]` or `{}`.

use std::borrow::Cow;

use serde_json::{Value, json};

use super::fault::Error;
use super::path::{Path, is_index, is_word};
use super::pipe::Pipe;
use super::scope::{IsRoot, Scope};
use super::value::{Kind, parse_json};
use crate::bounds;
use crate::error::excerpt;

/// Largest number of pipes of one expression.
pub(super) const MOST_PIPES: usize = 32;

/// An expression: its value is the first alternative that is not null, passed through the pipes.
#[derive(Debug)]
pub(super) struct Expression<'t> {
    text: &'t str,
    alternatives: Vec<Operand>,
    pipes: Vec<(Pipe, Option<Operand>)>,
}

/// Operand of an alternative or of a pipe.
#[derive(Debug)]
enum Operand {
    Path(Path),
    Literal(Value),
}

impl Operand {
    fn parse(text: &str) -> Result<Self, String> {
        let literal = match text {
            "true" => json!(true),
            "false" => json!(false),
            "null" => Value::Null,
            "[]" => json!([]),
            "{}" => json!({}),
            _ if text.starts_with(['\'', '"']) => Value::String(unquoted(text)?),
            _ if is_number(text) => parse_json(text).map_err(|error| error.to_string())?,
            _ => return Path::parse(text).map(Self::Path),
        };
        Ok(Self::Literal(literal))
    }

    const fn path(&self) -> Option<&Path> {
        match self {
            Self::Path(path) => Some(path),
            Self::Literal(_) => None,
        }
    }

    fn resolve<'s>(&'s self, scope: &'s dyn Scope) -> Option<Cow<'s, Value>> {
        match self {
            Self::Path(path) => path.resolve(scope),
            Self::Literal(value) => Some(Cow::Borrowed(value)),
        }
    }
}

impl<'t> Expression<'t> {
    /// Parses the text between the braces. If the text may be meant for a shell, the error tells how to escape it.
    pub(super) fn parse(text: &'t str) -> Result<Self, String> {
        Self::read(text.trim()).map_err(|reason| match for_shell(text) {
            Some(escaped) => format!("{reason}; {escaped}"),
            None => reason,
        })
    }

    fn read(text: &'t str) -> Result<Self, String> {
        let (alternatives, pipes) = cut(text)?;
        if pipes.len() > MOST_PIPES {
            return Err(format!(
                "{} pipes; an expression has at most {MOST_PIPES}",
                pipes.len()
            ));
        }
        let mut parsed = Self {
            text,
            alternatives: Vec::with_capacity(alternatives.len()),
            pipes: Vec::with_capacity(pipes.len()),
        };
        for (index, alternative) in alternatives.into_iter().enumerate() {
            parsed.alternatives.push(match alternative.trim() {
                "" if text.is_empty() => return Err("`${}` names nothing".to_owned()),
                "" => return Err(format!("`{text}` has an empty alternative")),
                first if index == 0 => Operand::Path(Path::parse(first)?),
                other => Operand::parse(other)?,
            });
        }
        for pipe in pipes {
            parsed.pipes.push(piped(pipe.trim())?);
        }
        Ok(parsed)
    }

    /// Returns the paths that the expression reads, in order.
    pub(super) fn paths(&self) -> impl Iterator<Item = &Path> {
        let arguments = self
            .pipes
            .iter()
            .filter_map(|(_, operand)| operand.as_ref());
        let operands = self.alternatives.iter().chain(arguments);
        operands.filter_map(Operand::path)
    }

    /// Returns the escaped form for a shell, if a shell could expand the text.
    pub(super) fn for_shell(&self) -> Option<String> {
        for_shell(self.text)
    }

    /// Returns the type of all values except null, or `None` if it depends on the input.
    pub(super) fn kind(&self) -> Option<Kind> {
        self.pipes.last()?.0.kind()
    }

    pub(super) fn evaluate(
        &self,
        scope: &dyn Scope,
        notes: &mut Vec<String>,
    ) -> Result<Value, Error> {
        if let Some(path) = self.paths().find(|path| scope.get(path.root()).is_none()) {
            return Err(self.unknown_name(path, scope));
        }
        let mut found = self.alternatives.iter();
        let found = found.find_map(|one| one.resolve(scope).filter(|value| !value.is_null()));
        let is_missing = found.is_none();
        let mut value = found.unwrap_or(Cow::Owned(Value::Null));
        for (pipe, operand) in &self.pipes {
            if value.is_null() != pipe.replaces_null() {
                // Null passes through all pipes except `default`, which everything else passes through.
                continue;
            }
            let operand = operand.as_ref().map(|operand| {
                let argument = operand.resolve(scope);
                argument.unwrap_or(Cow::Owned(Value::Null))
            });
            // A pipe may make a large value from a small one. The next pipe receives at most what a run may hold.
            let piped = pipe.apply(&value, operand.as_deref()).and_then(|piped| {
                let within = bounds::check(&piped);
                within.map_err(|excess| {
                    format!(
                        "would make what is {excess}; keep large data in files and pass their paths"
                    )
                })?;
                Ok(piped)
            });
            let piped = piped.map_err(|reason| Error::Pipe {
                pipe: pipe.name(),
                expression: self.text.to_owned(),
                reason,
            })?;
            value = Cow::Owned(piped);
        }
        if is_missing && value.is_null() && !self.may_be_null() {
            notes.push(self.null_note(scope));
        }
        Ok(value.into_owned())
    }

    /// Returns true if the author names a substitute for null, even if that is null.
    fn may_be_null(&self) -> bool {
        let stands_in = self.pipes.iter().filter(|(pipe, _)| pipe.replaces_null());
        let arguments = stands_in.filter_map(|(_, operand)| operand.as_ref());
        let mut operands = self.alternatives.iter().chain(arguments);
        operands.any(|operand| operand.path().is_none())
    }

    fn unknown_name(&self, path: &Path, scope: &dyn Scope) -> Error {
        let hint = path
            .suggest(scope)
            .map_or_else(String::new, |near| format!(" (did you mean {near}?)"));
        let mut reason = format!(
            "which is not there{hint}; there are {}",
            scope.names().join(", ")
        );
        if let Some(escaped) = self.for_shell() {
            reason = format!("{reason}; {escaped}");
        }
        Error::UnknownName {
            expression: self.text.to_owned(),
            name: path.root().to_owned(),
            reason,
        }
    }

    fn null_note(&self, scope: &dyn Scope) -> String {
        let mut paths = self.alternatives.iter().filter_map(Operand::path);
        let hint = paths
            .find_map(|path| path.suggest(scope))
            .map_or_else(String::new, |path| format!(" (did you mean {path}?)"));
        format!("interpolation resolved to null: {}{hint}", self.text)
    }
}

/// Returns the position of the brace that closes the expression at the start of `text`.
pub(super) fn end(text: &str) -> Option<usize> {
    let mut scan = Scan::new(text);
    let closed = scan.find(|(_, part)| part.starts_with('}'));
    // An unclosed quote is reported when the expression is parsed.
    closed.map(|(at, _)| at).or_else(|| text.find('}'))
}

/// Returns true if the text after `$${` begins an expression on a name that `is_root` knows. The name must be followed
/// by the closing brace, a step, an index, an alternative or a pipe; a shell knows none of these forms.
pub(super) fn begins(inner: &str, is_root: IsRoot<'_>) -> bool {
    let end = inner.find(|c| !(is_word(c) || matches!(c, ' ' | '-' | '/' | '@')));
    let (name, rest) = inner.split_at(end.unwrap_or(inner.len()));
    let goes_on = match rest.chars().next() {
        Some('}' | '.' | '|') => true,
        Some('[') => {
            let behind = rest[1..].trim_start_matches(|c: char| c == '-' || c.is_ascii_digit());
            behind.starts_with(']') && is_index(&rest[1..rest.len() - behind.len()])
        }
        Some(_) | None => false,
    };
    goes_on && is_root(name.trim())
}

/// Returns the escaped form of `${text}` for a shell, if a shell could expand it.
fn for_shell(text: &str) -> Option<String> {
    let rest = text.strip_prefix(['#', '!']).unwrap_or(text);
    let named = rest.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '_');
    let behind = if named.len() < rest.len() {
        named
    } else {
        rest.strip_prefix(['@', '*', '#', '?', '-', '$', '!'])
            .or_else(|| (rest.len() < text.len()).then_some(rest))?
    };
    let expands = behind.is_empty()
        || behind.starts_with([
            ':', '-', '+', '=', '?', '%', '#', '/', '^', ',', '@', '*', '[',
        ]);
    expands.then(|| format!("for the shell write `$${{{}}}`", excerpt(text)))
}

/// Cuts `a || b | c | d` into its alternatives and its pipes.
fn cut(text: &str) -> Result<(Vec<&str>, Vec<&str>), String> {
    let (mut alternatives, mut pipes) = (Vec::new(), Vec::new());
    let mut from = 0;
    let mut depth = 0_usize;
    let mut in_pipes = false;
    for (at, part) in Scan::new(text) {
        match part {
            "(" => depth += 1,
            ")" => depth = depth.saturating_sub(1),
            "||" if depth == 0 && in_pipes => {
                return Err(format!(
                    "`||` after a pipe in `{text}`: alternatives come before the pipes; `default(…)` replaces a null"
                ));
            }
            "|" | "||" if depth == 0 => {
                let list = if in_pipes {
                    &mut pipes
                } else {
                    &mut alternatives
                };
                list.push(&text[from..at]);
                from = at + part.len();
                in_pipes = in_pipes || part == "|";
            }
            _ => {}
        }
    }
    let list = if in_pipes {
        &mut pipes
    } else {
        &mut alternatives
    };
    list.push(&text[from..]);
    Ok((alternatives, pipes))
}

/// Parses `name` or `name(argument)`.
fn piped(text: &str) -> Result<(Pipe, Option<Operand>), String> {
    let Some((name, rest)) = text.split_once('(') else {
        let pipe = Pipe::parse(text)?;
        return match pipe.argument_kind() {
            None => Ok((pipe, None)),
            Some(what) => Err(format!("pipe `{text}` takes {what}: write `{text}(…)`")),
        };
    };
    let pipe = Pipe::parse(name.trim())?;
    let name = pipe.name();
    if pipe.argument_kind().is_none() {
        return Err(format!("pipe `{name}` takes no argument"));
    }
    let argument = rest.strip_suffix(')').ok_or_else(|| {
        format!("the brackets of pipe `{name}` are not closed, or something follows them")
    })?;
    let argument = match argument.trim() {
        "" => return Err(format!("pipe `{name}` has nothing in its brackets")),
        argument => Operand::parse(argument)?,
    };
    if let Operand::Literal(value) = &argument {
        let check = pipe.check(value);
        check.map_err(|problem| format!("pipe `{name}` {problem}"))?;
    }
    Ok((pipe, Some(argument)))
}

/// Returns true if `text` is a number; a name that begins with digits is not.
fn is_number(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    digits.starts_with(|c: char| c.is_ascii_digit()) && text.parse::<f64>().is_ok()
}

/// Decodes a text in quotes.
fn unquoted(quoted: &str) -> Result<String, String> {
    let mut chars = quoted.chars();
    let quote = chars.next();
    let mut text = String::new();
    while let Some(c) = chars.next() {
        match c {
            '\\' => text.push(match chars.next() {
                Some('n') => '\n',
                Some('t') => '\t',
                Some(same @ ('\\' | '\'' | '"')) => same,
                other => {
                    let other = other.map(String::from).unwrap_or_default();
                    return Err(format!(
                        "`\\{other}` in {quoted}: there are \\n, \\t, \\\\, \\' and \\\""
                    ));
                }
            }),
            _ if Some(c) == quote => {
                return match chars.as_str() {
                    "" => Ok(text),
                    rest => Err(format!("`{rest}` follows the text of {quoted}")),
                };
            }
            _ => text.push(c),
        }
    }
    Err(format!("the quote of {quoted} is not closed"))
}

/// Iterator over the parts of an expression with their offsets: texts in quotes, `||`, `{}`, and single characters.
struct Scan<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Scan<'t> {
    const fn new(text: &'t str) -> Self {
        Self { text, at: 0 }
    }
}

impl<'t> Iterator for Scan<'t> {
    type Item = (usize, &'t str);

    fn next(&mut self) -> Option<Self::Item> {
        let (at, rest) = (self.at, &self.text[self.at..]);
        let first = rest.chars().next()?;
        let length = match first {
            '\'' | '"' => quoted(rest, first),
            '|' if rest.starts_with("||") => 2,
            '{' if rest.starts_with("{}") => 2,
            _ => first.len_utf8(),
        };
        self.at += length;
        Some((at, &rest[..length]))
    }
}

/// Returns the length of the text in quotes at the start of `text`, or the whole length if the quote is not closed.
fn quoted(text: &str, quote: char) -> usize {
    let mut chars = text.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => drop(chars.next()),
            _ if c == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}
