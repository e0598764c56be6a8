//! Names of runs on the command line.
//!
//! A whole id means the same run everywhere. For a verb that acts on a run, other names mean only runs of this project.

use std::fmt;
use std::str::FromStr;

use rye_core::id::RunId;
use serde::Serialize;

/// Number of random characters at the end of a run id. A time in digits precedes them.
const RANDOM: usize = 10;

/// A run: its id, the beginning of its id, or its position counted from the newest run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(into = "String")]
pub(crate) struct RunName(Form);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Form {
    /// An id, or the beginning of one.
    Text(String),
    /// Position counted from the newest run, which is 0.
    Ago(usize),
}

impl RunName {
    /// Makes the name from an id that was looked up.
    pub(crate) fn of(id: String) -> Self {
        Self(Form::Text(id))
    }

    /// Returns the position counted from the newest run, or `None` for a name by id.
    pub(crate) const fn ago(&self) -> Option<usize> {
        match self.0 {
            Form::Ago(ago) => Some(ago),
            Form::Text(_) => None,
        }
    }

    /// True if it is a whole id, which needs no lookup.
    pub(crate) fn is_whole(&self) -> bool {
        let Form::Text(text) = &self.0 else {
            return false;
        };
        let text = text.strip_suffix("-step").unwrap_or(text);
        let mut parts = text.rsplitn(3, '-');
        let random = parts.next().is_some_and(|part| part.len() == RANDOM);
        let time = parts
            .next()
            .is_some_and(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()));
        random && time && parts.next().is_some()
    }

    /// Returns the id or its beginning; `@last` for each position.
    pub(crate) fn as_str(&self) -> &str {
        match &self.0 {
            Form::Text(text) => text,
            Form::Ago(_) => "@last",
        }
    }
}

impl FromStr for RunName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some(word) = text.strip_prefix('@') else {
            let id = RunId::new(text).map_err(|error| error.to_string())?;
            return Ok(Self(Form::Text(id.to_string())));
        };
        let ago = match word.strip_prefix("last") {
            Some("") => Some(0),
            Some(back) => back.strip_prefix('~').and_then(|back| back.parse().ok()),
            None => None,
        };
        let ago = ago.ok_or_else(|| {
            format!("`{text}` names no run; `@last` is the newest one, `@last~2` the third")
        })?;
        Ok(Self(Form::Ago(ago)))
    }
}

impl fmt::Display for RunName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Form::Text(text) => f.write_str(text),
            Form::Ago(0) => f.write_str("@last"),
            Form::Ago(ago) => write!(f, "@last~{ago}"),
        }
    }
}

impl From<RunName> for String {
    fn from(name: RunName) -> Self {
        name.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_named_by_its_id_its_beginning_or_its_age() {
        for (text, whole, ago) in [
            ("app-deploy-1767225600-abcdefghij", true, None),
            ("app-deploy-1767225600-abcdefghij-step", true, None),
            ("app-deploy-1767225600-abc", false, None),
            ("app-deploy", false, None),
            ("@last", false, Some(0)),
            ("@last~2", false, Some(2)),
        ] {
            let name: RunName = text.parse().unwrap();
            assert_eq!((name.is_whole(), name.ago()), (whole, ago), "{text}");
            assert_eq!(name.to_string(), text);
        }
        for text in [
            "@", "@first", "@last~", "@last~x", "@last2", "", "a/b", "@last~-1",
        ] {
            assert!(text.parse::<RunName>().is_err(), "{text}");
        }
    }
}
