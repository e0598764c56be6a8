//! Inputs and parameters of the command line.
//!
//! JSON is read as strictly as the daemon reads it. A value that would change on the way is refused before anything
//! starts.

use std::collections::HashMap;
use std::io::{self, Read as _};
use std::path::PathBuf;
use std::str::FromStr;

use rye_client::exit::Exit;
use rye_core::expr::parse_json;
use rye_core::model::Object;
use serde_json::Value;

use crate::local_error::LocalError;

/// One `-i` argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Input {
    /// `key=value`. The daemon converts the value to the type that the graph declares.
    Text { key: String, value: String },
    /// `key:=JSON`.
    Json {
        key: String,
        /// JSON text, unchecked.
        value: String,
    },
}

impl Input {
    fn key(&self) -> &str {
        match self {
            Self::Text { key, .. } | Self::Json { key, .. } => key,
        }
    }
}

impl FromStr for Input {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (key, value) = text
            .split_once('=')
            .ok_or("expected key=value or key:=JSON")?;
        let value = value.to_owned();
        let input = match key.strip_suffix(':') {
            Some(key) => Self::Json {
                key: key.to_owned(),
                value,
            },
            None => Self::Text {
                key: key.to_owned(),
                value,
            },
        };
        if input.key().is_empty() {
            return Err("the key before `=` is empty".to_owned());
        }
        Ok(input)
    }
}

/// Source of a JSON document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    /// The argument itself.
    Inline(String),
    /// `@FILE`.
    File(PathBuf),
    /// `-`.
    Stdin,
}

impl FromStr for Source {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match (text, text.strip_prefix('@')) {
            ("-", _) => Self::Stdin,
            (_, Some(file)) => Self::File(file.into()),
            (_, None) => Self::Inline(text.to_owned()),
        })
    }
}

impl Source {
    /// Reads the JSON value and names its source for messages. `flag` is the option that gave it.
    fn value(self, flag: &'static str) -> Result<(Value, String), LocalError> {
        let (place, text) = match self {
            Self::Inline(text) => (format!("the value of {flag}"), Ok(text)),
            Self::File(path) => (
                format!("`{}` ({flag})", path.display()),
                std::fs::read_to_string(&path),
            ),
            Self::Stdin => {
                let mut text = String::new();
                let read = io::stdin().lock().read_to_string(&mut text);
                (format!("stdin ({flag})"), read.map(|_bytes| text))
            }
        };
        let text = text.map_err(|error| LocalError::unreadable(&place, error))?;
        Ok((read(&text, flag, &place)?, place))
    }

    pub(crate) fn json(self, flag: &'static str) -> Result<Value, LocalError> {
        Ok(self.value(flag)?.0)
    }

    /// Reads a JSON object and refuses any other value.
    pub(crate) fn object(self, flag: &'static str) -> Result<Object, LocalError> {
        let (value, place) = self.value(flag)?;
        match value {
            Value::Object(object) => Ok(object),
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_) => Err(LocalError::usage(format!(
                "{place} must be a JSON object, such as {{\"key\": 1}}"
            ))),
        }
    }
}

/// Inputs of a run in the form of the contract.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Inputs {
    /// JSON object, or empty for none.
    pub(crate) json: String,
    /// Inputs given as `-i key=value`.
    pub(crate) text: HashMap<String, String>,
}

/// Combines `--input` and all `-i`. An `-i` overrides a key of `--input`; a key given twice with `-i` is refused.
pub(crate) fn inputs(document: Option<Source>, singles: Vec<Input>) -> Result<Inputs, LocalError> {
    let mut seen = std::collections::HashSet::new();
    if let Some(twice) = singles.iter().find(|input| !seen.insert(input.key())) {
        return Err(LocalError::usage(format!(
            "the input `{}` is given twice with -i",
            twice.key()
        )));
    }
    let document = document.map(|source| source.object("--input"));
    let mut object = document.transpose()?;
    let mut text = HashMap::new();
    for input in singles {
        match input {
            Input::Text { key, value } => {
                text.insert(key, value);
            }
            Input::Json { key, value } => {
                let value = read(&value, "-i", &format!("the value of -i {key}:="))?;
                object.get_or_insert_default().insert(key, value);
            }
        }
    }
    let json = object.map(|object| Value::Object(object).to_string());
    Ok(Inputs {
        json: json.unwrap_or_default(),
        text,
    })
}

fn read(text: &str, flag: &'static str, place: &str) -> Result<Value, LocalError> {
    parse_json(text).map_err(|error| {
        let message = format!("{place} is not JSON that can be used");
        LocalError::because(Exit::Usage, message, error).with_hint(if flag == "-i" {
            "text is given as `-i key=text`; JSON as `-i key:=JSON`".to_owned()
        } else {
            format!("give an object: {flag} '{{\"key\": \"text\"}}', {flag} @FILE, or {flag} - for stdin")
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(singles: &[&str]) -> Vec<Input> {
        singles.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn a_colon_before_the_first_equals_sign_means_json() {
        let text = |key: &str, value: &str| Input::Text {
            key: key.to_owned(),
            value: value.to_owned(),
        };
        let json = |key: &str, value: &str| Input::Json {
            key: key.to_owned(),
            value: value.to_owned(),
        };
        assert_eq!(
            parsed(&["a=b", "a=b:=c", "a=", "a:=1", "a:=\"x=y\""]),
            [
                text("a", "b"),
                text("a", "b:=c"),
                text("a", ""),
                json("a", "1"),
                json("a", "\"x=y\""),
            ]
        );
        for bad in ["", "a", "=b", ":=1"] {
            assert!(bad.parse::<Input>().is_err(), "{bad:?} was accepted");
        }
    }

    #[test]
    fn json_inputs_join_the_document_and_win_with_all_their_digits() {
        let document = Some(Source::Inline(
            r#" {"a": 1, "n": 18446744073709551615} "#.to_owned(),
        ));
        let inputs = inputs(document, parsed(&["a:= [2]", "t=x"])).unwrap();
        assert_eq!(inputs.json, r#"{"a":[2],"n":18446744073709551615}"#);
        assert_eq!(
            inputs.text,
            HashMap::from([("t".to_owned(), "x".to_owned())])
        );
    }

    #[test]
    fn lossy_json_input_is_refused() {
        let big = "99999999999999999999999";
        for (document, single) in [
            (r#"{"a": 1, "a": 2}"#, "b:=1"),
            (r#"{"a": {"b": 1, "b": 1}}"#, "b:=1"),
            (r#"{"a": 99999999999999999999999}"#, "b:=1"),
            ("{}", &format!("a:={big}")),
            ("{}", r#"a:={"b":1,"b":2}"#),
        ] {
            let document = Some(Source::Inline(document.to_owned()));
            let error = inputs(document, parsed(&[single])).unwrap_err();
            assert_eq!(error.exit, Exit::Usage, "{single}");
        }
    }

    #[test]
    fn the_fix_names_the_flag_that_was_given() {
        let hint = |flag: &'static str| {
            let malformed = Source::Inline("{".to_owned()).object(flag).unwrap_err();
            malformed.hint.unwrap()
        };
        assert!(
            hint("--params").contains("--params '{"),
            "{}",
            hint("--params")
        );
        assert!(!hint("--params").contains("-i"), "{}", hint("--params"));
        let single = inputs(None, parsed(&["n:=["])).unwrap_err();
        assert!(single.hint.unwrap().contains("-i key=text"));
    }

    #[test]
    fn without_a_document_json_inputs_make_one() {
        let only = inputs(None, parsed(&["a\"b:=1", "c:={}"])).unwrap();
        assert_eq!(only.json, r#"{"a\"b":1,"c":{}}"#);
        let empty = Some(Source::Inline("{ }".to_owned()));
        assert_eq!(inputs(empty, parsed(&["a:=1"])).unwrap().json, r#"{"a":1}"#);
        assert_eq!(inputs(None, vec![]).unwrap(), Inputs::default());
    }

    #[test]
    fn malformed_input_names_its_flag_and_position() {
        let error = inputs(None, parsed(&["n:=[1,"])).unwrap_err();
        let text = rye_core::error::with_sources(&error);
        assert_eq!(error.exit, Exit::Usage);
        assert_eq!(
            text,
            "the value of -i n:= is not JSON that can be used: EOF while parsing a value at line 1 column 3"
        );
        let error = inputs(Some(Source::Inline("[1]".to_owned())), vec![]).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("the value of --input must be a JSON object")
        );
    }

    #[test]
    fn an_input_given_twice_is_refused() {
        let error = inputs(None, parsed(&["a=1", "a:=2"])).unwrap_err();
        assert_eq!(error.to_string(), "the input `a` is given twice with -i");
    }

    #[test]
    fn input_document_is_read_from_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("in.json");
        std::fs::write(&file, "{\"a\":1}\n").unwrap();
        let source: Source = format!("@{}", file.display()).parse().unwrap();
        assert_eq!(
            Value::Object(source.object("--input").unwrap()),
            serde_json::json!({"a": 1})
        );
        let gone: Source = "@/no/such/file".parse().unwrap();
        let error = gone.object("--params").unwrap_err();
        assert_eq!(error.to_string(), "cannot read `/no/such/file` (--params)");
    }
}
