//! Position of the token in a text file, and the text that it covers.

use std::borrow::Cow;

use super::{Error, SecretKey, Token, sha256_hex};
use crate::clock::Timestamp;
use crate::id::ItemKind;

/// Part of a text that its signature covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coverage {
    /// The whole text except the signature line itself.
    Full,
    /// Only the part that the original system hashes: no shebang, no `---` metadata, no prose of a directive.
    Partial,
}

/// A token whose hash fits its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seal {
    /// The token; its signature is not verified yet.
    pub token: Token,
    pub coverage: Coverage,
}

/// Comment syntax around a token.
#[derive(Debug, Clone, Copy)]
struct Comment {
    open: &'static str,
    close: &'static str,
    position: SignaturePosition,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SignaturePosition {
    FirstLine,
    AfterShebang,
}

const HTML: Comment = Comment {
    open: "<!-- ",
    close: " -->",
    position: SignaturePosition::FirstLine,
};
const HASH: Comment = Comment {
    open: "# ",
    close: "",
    position: SignaturePosition::AfterShebang,
};
const SLASHES: Comment = Comment {
    open: "// ",
    close: "",
    position: SignaturePosition::FirstLine,
};

impl Comment {
    fn of(kind: ItemKind, extension: &str) -> Result<Self, Error> {
        match (kind, extension) {
            (ItemKind::Directive | ItemKind::Tool, "md")
            | (ItemKind::Knowledge, "md" | "yaml" | "yml") => Ok(HTML),
            (ItemKind::Tool, "py" | "yaml" | "yml" | "json" | "sh" | "toml") => Ok(HASH),
            (ItemKind::Tool, "js" | "ts" | "mjs" | "cjs") => Ok(SLASHES),
            (ItemKind::Config, "yaml" | "yml" | "toml") => Ok(Self {
                position: SignaturePosition::FirstLine,
                ..HASH
            }),
            (ItemKind::Tool | ItemKind::Directive | ItemKind::Knowledge | ItemKind::Config, _) => {
                Err(Error::Unsupported {
                    kind,
                    extension: extension.to_owned(),
                })
            }
        }
    }

    /// Splits off the shebang line, which stays above the signature.
    fn split_shebang(self, text: &str) -> (&str, &str) {
        match text.find('\n') {
            Some(end)
                if self.position == SignaturePosition::AfterShebang && text.starts_with("#!/") =>
            {
                text.split_at(end + 1)
            }
            _ => ("", text),
        }
    }

    /// Returns true if `line` is a signature, including the forms of older versions.
    fn is_signature(self, line: &str) -> bool {
        line.strip_prefix(self.open).is_some_and(|rest| {
            ["rye:", "kiwi-mcp:"]
                .iter()
                .filter_map(|vendor| rest.strip_prefix(vendor))
                .any(|rest| rest.starts_with("signed:") || rest.starts_with("validated:"))
                && rest.ends_with(self.close.trim_start())
        })
    }
}

/// Converts every line end (`\r\n`, `\r`) to `\n`.
pub fn normalise(text: &str) -> Cow<'_, str> {
    if text.contains('\r') {
        Cow::Owned(text.replace("\r\n", "\n").replace('\r', "\n"))
    } else {
        Cow::Borrowed(text)
    }
}

/// Reads the token of `text` and checks its hash: over the whole text first, then over the original's part of it.
pub fn inspect(kind: ItemKind, extension: &str, text: &str) -> Result<Seal, Error> {
    let comment = Comment::of(kind, extension)?;
    let text = normalise(text);
    let (shebang, rest) = comment.split_shebang(&text);
    let (line, body) = rest.split_once('\n').ok_or(Error::Unsigned)?;
    let claim = line.strip_prefix(comment.open).ok_or(Error::Unsigned)?;
    if let Some(token) = claim.strip_suffix(comment.close).and_then(Token::parse)
        && sha256_hex(joined(shebang, body).as_bytes()) == token.hash
    {
        return Ok(Seal {
            token,
            coverage: Coverage::Full,
        });
    }
    // The original accepts any text after a token if its comment has no closing mark.
    let token = match Token::parse_start(claim) {
        Some((token, rest)) if rest.contains(comment.close) => token,
        Some(_) | None => return Err(Error::Unsigned),
    };
    if partial(kind, body).is_some_and(|part| sha256_hex(part) == token.hash) {
        Ok(Seal {
            token,
            coverage: Coverage::Partial,
        })
    } else {
        Err(Error::Modified {
            signer: token.signer,
        })
    }
}

/// Returns the token in `text`, even if its hash does not fit the text any more.
pub fn claim(kind: ItemKind, extension: &str, text: &str) -> Option<Token> {
    let comment = Comment::of(kind, extension).ok()?;
    let text = normalise(text);
    let (_, rest) = comment.split_shebang(&text);
    let (line, _) = rest.split_once('\n')?;
    Token::parse(
        line.strip_prefix(comment.open)?
            .strip_suffix(comment.close)?,
    )
}

/// Signs the whole of `text` and returns it with its signature line, which replaces earlier ones.
///
/// The result keeps the line ends of `text`, which the signature does not cover, and has no byte order mark. Line ends
/// that are a lone `\r` become `\n`.
pub fn sign_text(
    kind: ItemKind,
    extension: &str,
    text: &str,
    key: &SecretKey,
    at: Timestamp,
) -> Result<String, Error> {
    let comment = Comment::of(kind, extension)?;
    let text = kept(text.trim_start_matches('\u{feff}'));
    let (shebang, body) = unsigned(comment, &text);
    let covered = joined(shebang, body);
    let token = Token::sign(sha256_hex(normalise(&covered).as_bytes()), key, at);
    let first = text.split_inclusive('\n').next();
    let end = match first {
        Some(line) if line.ends_with("\r\n") => "\r\n",
        Some(_) | None => "\n",
    };
    Ok(format!(
        "{shebang}{}{token}{}{end}{body}",
        comment.open, comment.close
    ))
}

/// Returns the signature line of `text`, which has neither a signature nor a shebang.
pub fn signature_line(
    kind: ItemKind,
    extension: &str,
    text: &str,
    key: &SecretKey,
    at: Timestamp,
) -> Result<String, Error> {
    let comment = Comment::of(kind, extension)?;
    let token = Token::sign(sha256_hex(normalise(text).as_bytes()), key, at);
    Ok(format!("{}{token}{}\n", comment.open, comment.close))
}

/// Returns `text` with its line ends unchanged; if it has a lone `\r`, it is normalised.
fn kept(text: &str) -> Cow<'_, str> {
    let ends = text.matches("\r\n").count();
    if text.matches('\r').count() == ends {
        Cow::Borrowed(text)
    } else {
        normalise(text)
    }
}

/// Removes the signature line of `text`, if it has one, and normalises line ends.
pub fn strip(kind: ItemKind, extension: &str, text: &str) -> Result<String, Error> {
    let comment = Comment::of(kind, extension)?;
    let text = normalise(text);
    let (shebang, body) = unsigned(comment, &text);
    Ok(joined(shebang, body).into_owned())
}

/// Returns the shebang and the text after all signature lines at the top.
fn unsigned(comment: Comment, text: &str) -> (&str, &str) {
    let (shebang, mut body) = comment.split_shebang(text);
    while let Some((line, rest)) = body.split_once('\n')
        && comment.is_signature(line.trim_end_matches('\r'))
    {
        body = rest;
    }
    (shebang, body)
}

fn joined<'a>(shebang: &'a str, body: &'a str) -> Cow<'a, str> {
    if shebang.is_empty() {
        Cow::Borrowed(body)
    } else {
        Cow::Owned(format!("{shebang}{body}"))
    }
}

/// Returns the part of `body`, the text below the signature line, that the original system hashes.
fn partial(kind: ItemKind, body: &str) -> Option<&str> {
    match kind {
        ItemKind::Tool | ItemKind::Config => Some(body),
        ItemKind::Knowledge => match body.strip_prefix("---") {
            Some(rest) => rest.split_once("---").map(|(_, text)| text.trim()),
            None => Some(body),
        },
        ItemKind::Directive => {
            const CLOSE: &str = "</directive>";
            let start = body.match_indices("<directive").find_map(|(at, tag)| {
                let next = body[at + tag.len()..].chars().next()?;
                (next == '>' || next.is_whitespace()).then_some(at)
            })?;
            let end = body.rfind(CLOSE)? + CLOSE.len();
            body.get(start..end).map(str::trim)
        }
    }
}
