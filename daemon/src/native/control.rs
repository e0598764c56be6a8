//! `rye/agent/threads/internal/control`: returns the answer of a hook. It has no effect; the walker acts on it.

use rye_core::model::{Control, Failure, Object};
use serde_json::Value;

use super::session::invalid;

/// Validates the parameters as an answer of a hook, and returns them.
pub(super) fn answer(mut params: Object) -> Result<Value, Failure> {
    params.retain(|_, value| !value.is_null());
    let answer = Value::Object(params);
    match Control::parse(&answer) {
        Ok(Some(_)) => Ok(answer),
        Ok(None) => Err(invalid(
            "`action` says what is to happen, such as retry or fail",
        )),
        Err(problem) => Err(invalid(problem)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn answered(params: Value) -> Result<Value, String> {
        let Value::Object(params) = params else {
            panic!("parameters are an object")
        };
        answer(params).map_err(|failure| failure.message)
    }

    #[test]
    fn hooks_read_answer_unchanged() {
        for params in [
            json!({"action": "retry", "max_retries": 5}),
            json!({"action": "fail", "error": "no luck"}),
            json!({"action": "abort"}),
            json!({"action": "suspend", "suspend_reason": "approval"}),
            json!({"action": "escalate", "limit_type": "steps", "current_value": 7}),
            json!({"action": "continue", "additional_steps": 9}),
            json!({"action": "skip"}),
        ] {
            let given = answered(params.clone()).unwrap();
            assert_eq!(given, params);
            assert_eq!(Control::parse(&given), Control::parse(&params));
        }
        assert_eq!(
            answered(json!({"action": "abort", "error": null})).unwrap(),
            json!({"action": "abort"})
        );
    }

    #[test]
    fn invalid_answer_fails_with_fix() {
        assert!(answered(json!({})).unwrap_err().contains("`action`"));
        assert!(
            answered(json!({"action": "explode"}))
                .unwrap_err()
                .contains("retry, fail, abort")
        );
        assert!(
            answered(json!({"action": "retry", "max_retries": -1}))
                .unwrap_err()
                .contains("`max_retries`")
        );
        assert!(
            answered(json!({"action": "suspend", "suspend_reason": "boredom"}))
                .unwrap_err()
                .contains("approval")
        );
    }
}
