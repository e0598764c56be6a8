//! Values of scalars by the core schema of YAML 1.2, and the different values of YAML 1.1.

use serde_json::{Number, Value};

/// A plain scalar without a tag.
pub(super) enum Plain {
    /// Every version of YAML reads the same value.
    Clear(Value),
    /// Text here; holds the kind that YAML 1.1 reads.
    Text(&'static str),
    /// A number here, text in YAML 1.1: `0o17`, `1e3`.
    Number(Value),
    /// A decimal integer here, octal in YAML 1.1.
    LeadingZeros(i64),
    /// An integer beyond 64 bits.
    TooLarge,
    /// `.nan` or `.inf`, which JSON does not have.
    NotFinite,
}

impl Plain {
    pub(super) fn of(text: &str) -> Self {
        match text {
            "yes" | "Yes" | "YES" | "on" | "On" | "ON" => return Self::Text("true"),
            "no" | "No" | "NO" | "off" | "Off" | "OFF" => return Self::Text("false"),
            _ if text.is_empty() || is_null(text) => return Self::Clear(Value::Null),
            _ => {}
        }
        let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
        if has_leading_zeros(text) {
            return text.parse().map_or(Self::TooLarge, Self::LeadingZeros);
        }
        if let Some(bool) = bool_of(text) {
            return Self::Clear(Value::Bool(bool));
        }
        match integer(text) {
            Some(Ok(number)) if unsigned.starts_with("0o") => return Self::Number(number),
            Some(Ok(number)) => return Self::Clear(number),
            Some(Err(TooLarge)) => return Self::TooLarge,
            None => {}
        }
        match float(text) {
            Some(Ok(number)) if is_without_point(unsigned) => Self::Number(number),
            Some(Ok(number)) => Self::Clear(number),
            Some(Err(NotFinite)) => Self::NotFinite,
            None => Self::text(text, unsigned),
        }
    }

    fn text(text: &str, unsigned: &str) -> Self {
        if is_date(text) {
            Self::Text("a date")
        } else if unsigned.contains(':') && unsigned.split(':').all(is_digits) {
            Self::Text("a number to the base 60")
        } else if unsigned.contains('_') && is_digits(&unsigned.replace('_', "")) {
            Self::Text("a number")
        } else if is_without_point(unsigned) {
            Self::Number(Value::String(text.to_owned()))
        } else {
            Self::Clear(Value::String(text.to_owned()))
        }
    }
}

/// Describes a plain scalar without a tag as a key, unless it is text.
pub(super) fn unfit_key(text: &str) -> Option<String> {
    if text.is_empty() || is_null(text) {
        return Some("null".to_owned());
    }
    let value = match (bool_of(text), integer(text)) {
        (Some(bool), _) => Ok(Value::Bool(bool)),
        (None, Some(integer)) => integer.map_err(|TooLarge| ()),
        (None, None) if has_leading_zeros(text) => return None,
        (None, None) => float(text)?.map_err(|NotFinite| ()),
    };
    Some(value.map_or_else(|()| text.to_owned(), |value| value.to_string()))
}

/// Reads a scalar with a tag of the core schema; the error describes the value that the tag requires.
pub(super) fn tagged(tag: &str, text: &str) -> Result<Value, &'static str> {
    match tag {
        "bool" => bool_of(text).map(Value::Bool).ok_or("a boolean"),
        "int" => integer(text).and_then(Result::ok).ok_or("an integer"),
        "float" => float(text).and_then(Result::ok).ok_or("a float"),
        "null" if is_null(text) => Ok(Value::Null),
        "null" => Err("null"),
        _ => Ok(Value::String(text.to_owned())),
    }
}

struct TooLarge;
struct NotFinite;

fn is_null(text: &str) -> bool {
    matches!(text, "null" | "Null" | "NULL" | "~")
}

fn bool_of(text: &str) -> Option<bool> {
    match text {
        "true" | "True" | "TRUE" => Some(true),
        "false" | "False" | "FALSE" => Some(false),
        _ => None,
    }
}

/// Reads decimals without leading zeros, and digits after `0x`, `0o` or `0b`.
fn integer(text: &str) -> Option<Result<Value, TooLarge>> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let prefixed = [("0x", 16), ("0o", 8), ("0b", 2)]
        .into_iter()
        .find_map(|(prefix, radix)| Some((unsigned.strip_prefix(prefix)?, radix)));
    let (digits, radix) = prefixed.unwrap_or((unsigned, 10));
    if digits.is_empty() || has_leading_zeros(text) || !digits.chars().all(|c| c.is_digit(radix)) {
        return None;
    }
    let sign = if text.starts_with('-') { "-" } else { "" };
    let number = i64::from_str_radix(&format!("{sign}{digits}"), radix)
        .map(Number::from)
        .or_else(|_beyond| match sign {
            "-" => Err(TooLarge),
            _ => u64::from_str_radix(digits, radix)
                .map(Number::from)
                .map_err(|_beyond| TooLarge),
        });
    Some(number.map(Value::Number))
}

fn float(text: &str) -> Option<Result<Value, NotFinite>> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if matches!(unsigned, ".inf" | ".Inf" | ".INF") || matches!(text, ".nan" | ".NaN" | ".NAN") {
        return Some(Err(NotFinite));
    }
    let unpositive = text.strip_prefix('+').unwrap_or(text);
    if unpositive.len() < text.len() && unpositive.starts_with(['+', '-']) {
        return None;
    }
    let number: f64 = unpositive.parse().ok()?;
    // Words like `infinity` are text; a number that is too large is not.
    let has_digits = unpositive.bytes().any(|byte| byte.is_ascii_digit());
    match Number::from_f64(number) {
        Some(number) => Some(Ok(Value::Number(number))),
        None => has_digits.then_some(Err(NotFinite)),
    }
}

fn has_leading_zeros(text: &str) -> bool {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    digits.len() > 1 && digits.starts_with('0') && is_digits(digits)
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// True for digits and an exponent without a point between them, which is no number in YAML 1.1.
fn is_without_point(unsigned: &str) -> bool {
    unsigned
        .split_once(['e', 'E'])
        .is_some_and(|(digits, exponent)| {
            is_digits(digits) && is_digits(exponent.strip_prefix(['+', '-']).unwrap_or(exponent))
        })
}

/// True for `2026-01-31`, alone or before a time.
fn is_date(text: &str) -> bool {
    let date = text.split(['T', 't', ' ']).next().unwrap_or_default();
    let parts: Vec<&str> = date.split('-').collect();
    let digits = |part: &str, most| {
        (1..=most).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit())
    };
    matches!(parts.as_slice(), [year, month, day]
        if year.len() == 4 && digits(year, 4) && digits(month, 2) && digits(day, 2))
}
