use super::words;

/// Length of the longest query in bytes.
const MOST_BYTES: usize = 4096;
/// Deepest nesting of parentheses and `NOT`.
const MOST_DEPTH: u32 = 32;

/// A parsed query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchQuery {
    pub(super) root: Node,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Node {
    All,
    Word(String),
    /// Documents with a word that has this prefix.
    Prefix(String),
    /// Documents with these words in sequence.
    Phrase(Vec<String>),
    And(Vec<Node>),
    Or(Vec<Node>),
    Not(Box<Node>),
}

/// Reason why a text is not a query.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the query {0}")]
pub struct BadQuery(String);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Open,
    Close,
    And,
    Or,
    Not,
    Leaf(Node),
}

impl SearchQuery {
    /// Parses a query; an empty one matches every document.
    pub fn parse(text: &str) -> Result<Self, BadQuery> {
        if text.len() > MOST_BYTES {
            return Err(BadQuery(format!("is longer than {MOST_BYTES} bytes")));
        }
        let tokens = tokens(text)?;
        if tokens.is_empty() {
            return Ok(Self { root: Node::All });
        }
        let mut parser = Parser {
            tokens: tokens.into_iter().peekable(),
            depth: 0,
        };
        let root = parser.any()?;
        match parser.tokens.next() {
            None => Ok(Self { root }),
            Some(_) => Err(BadQuery(
                "closes a parenthesis that was not opened".to_owned(),
            )),
        }
    }
}

struct Parser {
    tokens: std::iter::Peekable<std::vec::IntoIter<Token>>,
    depth: u32,
}

impl Parser {
    fn any(&mut self) -> Result<Node, BadQuery> {
        let mut parts = vec![self.all()?];
        while self.tokens.next_if_eq(&Token::Or).is_some() {
            parts.push(self.all()?);
        }
        Ok(one_or(parts, Node::Or))
    }

    fn all(&mut self) -> Result<Node, BadQuery> {
        let mut parts = vec![self.part()?];
        loop {
            if self.tokens.next_if_eq(&Token::And).is_none()
                && matches!(self.tokens.peek(), None | Some(Token::Or | Token::Close))
            {
                return Ok(one_or(parts, Node::And));
            }
            parts.push(self.part()?);
        }
    }

    fn part(&mut self) -> Result<Node, BadQuery> {
        self.depth += 1;
        if self.depth > MOST_DEPTH {
            return Err(BadQuery(format!("is nested more than {MOST_DEPTH} deep")));
        }
        let part = match self.tokens.next() {
            Some(Token::Leaf(leaf)) => Ok(leaf),
            Some(Token::Not) => Ok(Node::Not(Box::new(self.part()?))),
            Some(Token::Open) => {
                let inner = self.any()?;
                match self.tokens.next() {
                    Some(Token::Close) => Ok(inner),
                    _ => Err(BadQuery("does not close a parenthesis".to_owned())),
                }
            }
            Some(Token::And | Token::Or | Token::Close) | None => {
                let text = "has nothing to look for where it should: put the words AND, OR and NOT in quotes if they are looked for";
                Err(BadQuery(text.to_owned()))
            }
        };
        self.depth -= 1;
        part
    }
}

fn one_or(mut parts: Vec<Node>, many: impl FnOnce(Vec<Node>) -> Node) -> Node {
    match parts.pop() {
        Some(only) if parts.is_empty() => only,
        last => {
            parts.extend(last);
            many(parts)
        }
    }
}

fn tokens(text: &str) -> Result<Vec<Token>, BadQuery> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        match first {
            '(' | ')' => {
                tokens.push(if first == '(' {
                    Token::Open
                } else {
                    Token::Close
                });
                rest = &rest[1..];
            }
            '"' => {
                let Some((phrase, behind)) = rest[1..].split_once('"') else {
                    return Err(BadQuery("does not close a quotation mark".to_owned()));
                };
                tokens.extend(row(phrase).map(Token::Leaf));
                rest = behind;
            }
            _ => {
                let end = rest.find(|c: char| c.is_whitespace() || matches!(c, '(' | ')' | '"'));
                let (bare, behind) = rest.split_at(end.unwrap_or(rest.len()));
                match bare.to_ascii_uppercase().as_str() {
                    "AND" => tokens.push(Token::And),
                    "OR" => tokens.push(Token::Or),
                    "NOT" => tokens.push(Token::Not),
                    _ => tokens.extend(leaf(bare).map(Token::Leaf)),
                }
                rest = behind;
            }
        }
        rest = rest.trim_start();
    }
    Ok(tokens)
}

/// Parses a phrase; returns `None` if it has no words.
fn row(text: &str) -> Option<Node> {
    let mut found: Vec<String> = words(text).collect();
    match found.len() {
        0 => None,
        1 => found.pop().map(Node::Word),
        _ => Some(Node::Phrase(found)),
    }
}

/// Parses a text without blanks: a word, a prefix, or a phrase like `file-system`.
fn leaf(bare: &str) -> Option<Node> {
    let Some(start) = bare.strip_suffix('*') else {
        return row(bare);
    };
    let mut found: Vec<String> = words(start).collect();
    let last = found.pop()?;
    let prefix = Node::Prefix(last);
    if found.is_empty() {
        return Some(prefix);
    }
    let mut parts: Vec<Node> = found.into_iter().map(Node::Word).collect();
    parts.push(prefix);
    Some(Node::And(parts))
}
