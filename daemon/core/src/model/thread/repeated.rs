//! Counts the equal calls that a model makes in a row.

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::conversation::Digest;
use crate::digest::Encoded;
use crate::expr::Object;

/// The last call that the model made, and how often it made it in a row.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repeated {
    /// Hash of its tool and its arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    call: Option<Digest>,
    times: u32,
}

impl Repeated {
    /// True before the first call.
    pub const fn is_none(&self) -> bool {
        self.times == 0
    }

    /// Counts a call of the tool `name` with `input`, and returns how often it was made in a row.
    pub fn count(&mut self, name: &str, input: &Object) -> u32 {
        let call = Digest::of(&Encoded::of(&json!([name, input])).text);
        if self.call.as_ref() == Some(&call) {
            self.times = self.times.saturating_add(1);
        } else {
            *self = Self {
                call: Some(call),
                times: 1,
            };
        }
        self.times
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_the_same_in_a_row_is_counted() {
        let input =
            |value| Object::from_iter([("a".to_owned(), json!(1)), ("n".to_owned(), value)]);
        let turned = Object::from_iter([("n".to_owned(), json!(1)), ("a".to_owned(), json!(1))]);
        let mut repeated = Repeated::default();
        assert!(repeated.is_none());
        let table = [
            ("x", input(json!(1)), 1),
            ("x", input(json!(1)), 2),
            ("x", turned, 3),
            ("x", input(json!(2)), 1),
            ("y", input(json!(2)), 1),
            ("x", input(json!(2)), 1),
        ];
        for (name, input, times) in table {
            assert_eq!(repeated.count(name, &input), times, "{name} {input:?}");
        }
        assert!(!repeated.is_none());
    }
}
