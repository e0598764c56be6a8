//! Counts the equal calls that a model makes in a row.
//!
//! Equal calls of one message count once. A call that brings another result than the one before it, such as the status
//! of something in progress, begins the count anew.

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::conversation::Digest;
use crate::digest::Encoded;
use crate::expr::Object;

/// The last call that the model made, and in how many messages in a row it made it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repeated {
    /// Hash of its tool and its arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    call: Option<Digest>,
    /// Hash of its last result without an error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    result: Option<Digest>,
    times: u32,
}

/// Counts the calls of one message, in their order.
#[derive(Debug, Clone)]
pub struct MessageCount {
    repeated: Repeated,
    /// True if the last call was counted in this message.
    is_counted: bool,
}

impl Repeated {
    /// True before the first call.
    pub const fn is_none(&self) -> bool {
        self.times == 0
    }

    /// Begins to count the calls of another message.
    pub fn message(&self) -> MessageCount {
        MessageCount {
            repeated: self.clone(),
            is_counted: false,
        }
    }
}

impl MessageCount {
    /// Counts a call of the tool `name` with `input`, and returns in how many messages in a row it was made.
    pub fn count(&mut self, name: &str, input: &Object) -> u32 {
        let call = Digest::of(&Encoded::of(&json!([name, input])).text);
        let repeated = &mut self.repeated;
        if repeated.call != Some(call) {
            *repeated = Repeated {
                call: Some(call),
                ..Repeated::default()
            };
            self.is_counted = false;
        }
        if !self.is_counted {
            repeated.times = repeated.times.saturating_add(1);
            self.is_counted = true;
        }
        repeated.times
    }

    /// Adds the result of the call that was counted last.
    pub fn add_result(&mut self, text: &str) {
        let repeated = &mut self.repeated;
        let result = Some(Digest::of(text));
        if repeated.result.is_some() && repeated.result != result {
            repeated.times = 1;
        }
        repeated.result = result;
    }

    /// Returns the count after the message.
    pub fn end(self) -> Repeated {
        self.repeated
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(value: serde_json::Value) -> Object {
        Object::from_iter([("a".to_owned(), json!(1)), ("n".to_owned(), value)])
    }

    #[test]
    fn only_what_is_the_same_in_a_row_is_counted() {
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
            let mut message = repeated.message();
            assert_eq!(message.count(name, &input), times, "{name} {input:?}");
            repeated = message.end();
        }
        assert!(!repeated.is_none());
    }

    #[test]
    fn equal_calls_of_one_message_count_once() {
        let mut repeated = Repeated::default();
        let (same, other) = (input(json!(1)), input(json!(2)));
        for times in 1..=3 {
            let mut message = repeated.message();
            for _ in 0..13 {
                assert_eq!(message.count("x", &same), times);
            }
            repeated = message.end();
        }
        let mut message = repeated.message();
        assert_eq!(message.count("x", &other), 1);
        assert_eq!(message.count("x", &same), 1);
    }

    #[test]
    fn another_result_begins_the_count_anew() {
        let mut repeated = Repeated::default();
        let results = ["10 %", "20 %", "20 %", "20 %", "30 %", "30 %"];
        for (result, times) in results.into_iter().zip([1, 1, 2, 3, 1, 2]) {
            let mut message = repeated.message();
            message.count("x", &input(json!(1)));
            message.add_result(result);
            repeated = message.end();
            assert_eq!(repeated.times, times, "{result}");
        }
        // An error adds no result.
        let mut message = repeated.message();
        assert_eq!(message.count("x", &input(json!(1))), 3);
    }
}
