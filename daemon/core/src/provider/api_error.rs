//! Errors of providers, in the same form for every API.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::beginning;

/// Largest number of characters in a text of an error.
const MOST_CHARS: usize = 2000;

/// Replacement of a secret.
const HIDDEN: &str = "…";

/// An error that a provider reports.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, thiserror::Error)]
#[serde(default)]
#[error("{}", self.text())]
pub struct ApiError {
    /// `overloaded_error`, `invalid_request_error` …
    #[serde(rename = "type", skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// Code of the provider, if it has one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub code: String,
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Id by which the provider can look the request up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// Requested pause in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_ms: Option<u64>,
}

impl ApiError {
    /// Reads the body of an error answer, or the data of an error event. The result contains none of `secrets`.
    pub fn read(status: Option<u16>, body: &str, secrets: &[&str]) -> Self {
        let whole: Value = serde_json::from_str(body).unwrap_or_default();
        // One vendor wraps its errors in a list.
        let whole = whole.get(0).unwrap_or(&whole);
        let error = whole.get("error").unwrap_or(whole);
        let clean = |text: &str| beginning(&without(text, secrets), MOST_CHARS).into_owned();
        let text = |value: &Value| match value {
            Value::String(text) => clean(text),
            Value::Number(number) => number.to_string(),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => String::new(),
        };
        let message = error.as_str().or_else(|| error["message"].as_str());
        let message = clean(message.unwrap_or(body.trim()));
        let kind = if error["type"].is_null() {
            text(&error["status"])
        } else {
            text(&error["type"])
        };
        let request_id = text(&whole["request_id"]);
        Self {
            kind,
            code: text(&error["code"]),
            message,
            status,
            request_id: Some(request_id).filter(|id| !id.is_empty()),
            retry_ms: retry_delay(error),
        }
    }

    fn text(&self) -> String {
        let status = self.status.map(|status| format!("HTTP {status}"));
        let kind = Some(self.kind.clone()).filter(|kind| !kind.is_empty());
        let head: Vec<String> = [status, kind].into_iter().flatten().collect();
        match head.as_slice() {
            [] => self.message.clone(),
            head => format!("{}: {}", head.join(", "), self.message),
        }
    }
}

/// Hides all `secrets` in `text`, the longest first.
pub(super) fn without(text: &str, secrets: &[&str]) -> String {
    let mut secrets: Vec<&str> = secrets.to_vec();
    secrets.retain(|secret| !secret.is_empty());
    secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    let hide = |text: String, secret: &&str| text.replace(secret, HIDDEN);
    secrets.iter().fold(text.to_owned(), hide)
}

/// Returns `retryDelay` of a `RetryInfo` among the details, such as `"3.5s"`, in milliseconds.
fn retry_delay(error: &Value) -> Option<u64> {
    let details = error["details"].as_array()?;
    let delay = details
        .iter()
        .find_map(|detail| detail["retryDelay"].as_str())?;
    milliseconds(delay.strip_suffix('s')?)
}

/// Converts a decimal number of seconds to milliseconds.
pub(super) fn milliseconds(seconds: &str) -> Option<u64> {
    let seconds: f64 = seconds.parse().ok()?;
    let duration = Duration::try_from_secs_f64(seconds).ok()?;
    u64::try_from(duration.as_millis()).ok()
}
