//! Callers that an item accepts: its key `callers`. They are independent of permissions, which only narrow what a run
//! may do: here the author of an item states for whom it is meant.

use std::fmt;

use serde_json::{Value, json};
use strum::{EnumIter, EnumString, IntoEnumIterator as _, IntoStaticStr};

use crate::id::ItemRef;

/// Failure code of a call by a caller that the item excludes.
pub const CALLER_NOT_ALLOWED: &str = "caller_not_allowed";

/// Kind of a caller of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumIter, EnumString, IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Caller {
    /// The model of a thread.
    Model,
    /// A program that a tool started.
    Code,
    /// A node of a graph, an item or branch of it, or a hook.
    Graph,
    /// The command line, or another client.
    Person,
}

impl Caller {
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// A set of callers. The default has all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Callers(Vec<Caller>);

impl Default for Callers {
    fn default() -> Self {
        Self(Caller::iter().collect())
    }
}

/// The caller is excluded.
#[derive(Debug, thiserror::Error)]
#[error(
    "`{item}` does not accept calls by {by}: `callers` of {file} has {accepted}, not `{}`",
    caller.as_str()
)]
pub struct NotAllowed {
    item: ItemRef,
    file: String,
    caller: Caller,
    by: &'static str,
    accepted: Callers,
}

impl Callers {
    /// Value of the key, for errors.
    pub const EXPECTED: &'static str =
        "a list with at least one of the words `model`, `code`, `graph` and `person`";

    /// Reads a list of words. `None` if it is empty, or has another word.
    pub fn of_json(value: &Value) -> Option<Self> {
        Self::of_words(value.as_array()?.iter().map(Value::as_str))
    }

    /// Reads words separated by commas, as directives have them.
    pub fn of_text(text: &str) -> Option<Self> {
        Self::of_words(text.split(',').map(|word| Some(word.trim())))
    }

    fn of_words<'a>(words: impl Iterator<Item = Option<&'a str>>) -> Option<Self> {
        let callers: Option<Vec<Caller>> = words.map(|word| word?.parse().ok()).collect();
        callers.filter(|callers| !callers.is_empty()).map(Self)
    }

    /// JSON Schema of the key.
    pub fn schema() -> Value {
        let words: Vec<&str> = Caller::iter().map(Caller::as_str).collect();
        json!({"type": ["array", "null"], "minItems": 1, "items": {"enum": words}})
    }

    pub fn accept(&self, caller: Caller) -> bool {
        self.0.contains(&caller)
    }

    /// Returns an error that names `item`, its `file` and the key, if `caller` is excluded.
    pub fn check(
        &self,
        caller: Caller,
        item: &ItemRef,
        file: impl fmt::Display,
    ) -> Result<(), NotAllowed> {
        if self.accept(caller) {
            return Ok(());
        }
        Err(NotAllowed {
            item: item.clone(),
            file: file.to_string(),
            caller,
            by: match caller {
                Caller::Model => "models",
                Caller::Code => "programs",
                Caller::Graph => "graphs",
                Caller::Person => "people",
            },
            accepted: self.clone(),
        })
    }
}

impl fmt::Display for Callers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<String> = self
            .0
            .iter()
            .map(|caller| format!("`{}`", caller.as_str()))
            .collect();
        f.write_str(&words.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::ItemId;

    #[test]
    fn callers_are_a_list_of_known_words() {
        let accepted = |value| Callers::of_json(&value).map(|callers| callers.0);
        assert_eq!(
            accepted(json!(["graph", "person"])),
            Some(vec![Caller::Graph, Caller::Person])
        );
        for wrong in [json!([]), json!(["robot"]), json!("graph"), json!([1])] {
            assert_eq!(accepted(wrong.clone()), None, "{wrong}");
        }
        let text = Callers::of_text(" graph ,person").unwrap();
        assert_eq!(text.0, [Caller::Graph, Caller::Person]);
        assert_eq!(Callers::of_text(""), None);
        assert!(Caller::iter().all(|caller| Callers::default().accept(caller)));
    }

    #[test]
    fn excluded_caller_is_refused_with_file_and_key() {
        let callers = Callers::of_text("graph, person").unwrap();
        let item = ItemRef::tool(ItemId::new("t/x").unwrap());
        assert!(callers.check(Caller::Graph, &item, "x.yaml").is_ok());
        let refused = callers.check(Caller::Model, &item, "x.yaml").unwrap_err();
        assert_eq!(
            refused.to_string(),
            "`tool:t/x` does not accept calls by models: `callers` of x.yaml has `graph`, `person`, not `model`"
        );
    }
}
