//! The latest texts and failures of a thread, for a reader of its failure.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::model::failure::Failure;

/// Limit of the characters of the text, and of a result or a failure.
const MOST_TEXT: usize = 500;
const MOST_RESULT: usize = 300;
/// Limit of the results, and of the failures.
const MOST: usize = 3;

/// The latest texts and failures. Its size is bounded, however long the thread lives.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recent {
    /// The beginning of the last text of the model.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    text: String,
    /// Results of its last calls of tools, the newest last.
    #[serde(default, skip_serializing_if = "VecDeque::is_empty")]
    results: VecDeque<ToolOutput>,
    /// Its last failed calls of the model, the newest last.
    #[serde(default, skip_serializing_if = "VecDeque::is_empty")]
    failures: VecDeque<Failed>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct ToolOutput {
    tool: String,
    output: String,
    is_error: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Failed {
    code: String,
    message: String,
}

impl Recent {
    /// True if it holds nothing.
    pub(crate) fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Records `text` of the model, unless it is empty.
    pub(crate) fn record_text(&mut self, text: &str) {
        if !text.trim().is_empty() {
            self.text = beginning(text, MOST_TEXT);
        }
    }

    /// Records the result of a call of `tool` that the model received.
    pub(crate) fn answer(&mut self, tool: &str, output: &str, is_error: bool) {
        let told = ToolOutput {
            tool: tool.to_owned(),
            output: beginning(output, MOST_RESULT),
            is_error,
        };
        push(&mut self.results, told);
    }

    pub(crate) fn fail(&mut self, failure: &Failure) {
        let failed = Failed {
            code: failure.code.clone(),
            message: beginning(&failure.message, MOST_RESULT),
        };
        push(&mut self.failures, failed);
    }

    /// Returns the last text of the model and its latest tool results.
    pub(crate) fn context(&self) -> Value {
        json!({"last_text": self.text, "recent_results": self.results})
    }

    /// Returns the failures of its calls of the model, if there are any.
    pub(crate) fn failures(&self) -> Option<Value> {
        (!self.failures.is_empty()).then(|| json!(self.failures))
    }
}

fn push<T>(list: &mut VecDeque<T>, newest: T) {
    if list.len() == MOST {
        list.pop_front();
    }
    list.push_back(newest);
}

fn beginning(text: &str, most: usize) -> String {
    text.chars().take(most).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_each_are_kept_and_their_beginnings() {
        let mut recent = Recent::default();
        assert!(recent.is_none());
        recent.record_text(&"é".repeat(501));
        recent.record_text("  ");
        for number in 0..5 {
            recent.answer("t", &format!("{number}{}", "x".repeat(400)), number == 4);
            recent.fail(&Failure::permanent(
                "c",
                format!("{number}{}", "x".repeat(400)),
            ));
        }
        let context = recent.context();
        assert_eq!(context["last_text"], "é".repeat(500));
        let results = context["recent_results"].as_array().unwrap();
        assert_eq!(results.len(), 3);
        assert_eq!(results[0]["output"], format!("2{}", "x".repeat(299)));
        assert_eq!(
            (&results[1]["is_error"], &results[2]["is_error"]),
            (&json!(false), &json!(true))
        );
        let failures = recent.failures().unwrap();
        assert_eq!(failures.as_array().unwrap().len(), 3);
        assert_eq!(failures[2]["message"].as_str().unwrap().len(), 300);
        let text = json!(recent).to_string();
        assert!(text.len() < 3500, "{}", text.len());
    }
}
