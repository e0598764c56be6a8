//! Canonical JSON, and JSON objects that carry their own signature.

use std::fmt;

use serde_json::{Map, Value};

use super::{Error, SecretKey, Token, sha256_hex};
use crate::clock::Timestamp;

/// Member of a signed object that holds the token.
const MEMBER: &str = "_signature";

const TO_STRING: &str = "writing to a String cannot fail";

/// Signs all members of `object` except the signature, and stores the token in it.
pub fn sign_json(object: &mut Map<String, Value>, key: &SecretKey, at: Timestamp) {
    object.shift_remove(MEMBER);
    let token = Token::sign(hash_of(object), key, at);
    object.insert(MEMBER.to_owned(), Value::String(token.to_string()));
}

/// Reads the token of a signed object and checks its hash. It does not verify the signature.
pub fn verify_json(object: &Map<String, Value>) -> Result<Token, Error> {
    let token = object
        .get(MEMBER)
        .and_then(Value::as_str)
        .and_then(Token::parse)
        .ok_or(Error::Unsigned)?;
    if hash_of(object) == token.hash {
        Ok(token)
    } else {
        Err(Error::Modified {
            signer: token.signer,
        })
    }
}

fn hash_of(object: &Map<String, Value>) -> String {
    let members = members(object).filter(|(name, _)| *name != MEMBER);
    let mut text = String::new();
    write_object(members, &mut text).expect(TO_STRING);
    sha256_hex(text)
}

/// Returns the canonical form that is hashed: keys sorted, no spaces, ASCII only, floats as Python prints them.
pub fn canonical(value: &Value) -> String {
    let mut text = String::new();
    write_value(value, &mut text).expect(TO_STRING);
    text
}

/// Returns the canonical form of an object.
pub fn canonical_object(object: &Map<String, Value>) -> String {
    let mut text = String::new();
    write_object(members(object), &mut text).expect(TO_STRING);
    text
}

fn members(object: &Map<String, Value>) -> impl Iterator<Item = (&str, &Value)> {
    object.iter().map(|(name, value)| (name.as_str(), value))
}

/// Writes the canonical form of `value` to `out`.
pub(crate) fn write_value(value: &Value, out: &mut dyn fmt::Write) -> fmt::Result {
    match value {
        Value::Null => out.write_str("null"),
        Value::Bool(true) => out.write_str("true"),
        Value::Bool(false) => out.write_str("false"),
        Value::Number(number) => match number.as_f64() {
            Some(float) if number.is_f64() => write_float(float, out),
            _ => write!(out, "{number}"),
        },
        Value::String(text) => write_string(text, out),
        Value::Array(items) => {
            out.write_char('[')?;
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.write_char(',')?;
                }
                write_value(item, out)?;
            }
            out.write_char(']')
        }
        Value::Object(object) => write_object(members(object), out),
    }
}

/// Writes an object with these members to `out`, in canonical form.
pub(crate) fn write_object<'a>(
    members: impl Iterator<Item = (&'a str, &'a Value)>,
    out: &mut dyn fmt::Write,
) -> fmt::Result {
    let mut members: Vec<_> = members.collect();
    members.sort_unstable_by_key(|(name, _)| *name);
    out.write_char('{')?;
    for (index, (name, value)) in members.into_iter().enumerate() {
        if index > 0 {
            out.write_char(',')?;
        }
        write_string(name, out)?;
        out.write_char(':')?;
        write_value(value, out)?;
    }
    out.write_char('}')
}

fn write_string(text: &str, out: &mut dyn fmt::Write) -> fmt::Result {
    out.write_char('"')?;
    let mut rest = text;
    loop {
        let plain = rest.find(|unit| !matches!(unit, ' ' | '!' | '#'..='[' | ']'..='~'));
        let (before, from) = rest.split_at(plain.unwrap_or(rest.len()));
        out.write_str(before)?;
        let mut following = from.chars();
        let Some(special) = following.next() else {
            break;
        };
        write_escaped(special, out)?;
        rest = following.as_str();
    }
    out.write_char('"')
}

fn write_escaped(special: char, out: &mut dyn fmt::Write) -> fmt::Result {
    match special {
        '"' => out.write_str("\\\""),
        '\\' => out.write_str("\\\\"),
        '\n' => out.write_str("\\n"),
        '\r' => out.write_str("\\r"),
        '\t' => out.write_str("\\t"),
        '\u{8}' => out.write_str("\\b"),
        '\u{c}' => out.write_str("\\f"),
        other => {
            for unit in other.encode_utf16(&mut [0; 2]) {
                write!(out, "\\u{unit:04x}")?;
            }
            Ok(())
        }
    }
}

/// Writes the shortest digits that read back the same. It writes an exponent, with sign and two digits, below 1e-4 and
/// from 1e16 on.
fn write_float(float: f64, out: &mut dyn fmt::Write) -> fmt::Result {
    let scientific = format!("{float:e}");
    let (digits, exponent) = scientific
        .split_once('e')
        .expect("`{:e}` writes an exponent");
    let exponent: i32 = exponent
        .parse()
        .expect("the exponent of an f64 is a small integer");
    if (-4..16).contains(&exponent) {
        let plain = float.to_string();
        out.write_str(&plain)?;
        if plain.contains('.') {
            Ok(())
        } else {
            out.write_str(".0")
        }
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        write!(out, "{digits}e{sign}{:02}", exponent.abs())
    }
}
