//! Classification of failed calls.

use crate::clock::Timestamp;
use crate::yaml;
use std::time::Duration;

use super::*;
use crate::provider::api_error::ApiError;
use crate::provider::failure::{Charge, Class, ErrorRow, ErrorRows, Failed, Verdict, classify};
use crate::provider::stream::Fault;

/// The shipped rows.
fn shipped() -> ErrorRows {
    let text = include_str!("../../../../../.ai/config/agent/error_classification.yaml");
    let file = yaml::parse(text).unwrap().value;
    ErrorRows::read(file["provider_errors"].as_array().unwrap()).unwrap()
}

fn error(status: u16, body: &str) -> Failed {
    Failed::Answered(ApiError::read(Some(status), body, &[]))
}

fn of_kind(status: u16, kind: &str) -> Failed {
    error(
        status,
        &json!({"error": {"type": kind, "message": "m"}}).to_string(),
    )
}

fn saying(status: u16, message: &str) -> Failed {
    error(
        status,
        &json!({"error": {"type": "invalid_request_error", "message": message}}).to_string(),
    )
}

fn judged(failed: &Failed, headers: &[(&'static str, &'static str)]) -> Verdict {
    let header = |name: &str| {
        let found = headers.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| *value)
    };
    classify(
        failed,
        &shipped(),
        header,
        Timestamp::from_ms(784_111_777_000),
    )
}

fn in_stream(kind: &str, begun: bool) -> Failed {
    let body = json!({"type": "error", "error": {"type": kind, "message": "m"}}).to_string();
    Failed::Stream {
        fault: Fault::Api(ApiError::read(None, &body, &[])),
        begun,
    }
}

/// A failed call, the headers of its answer, its class and its charge.
type Case = (Failed, Headers, Class, Charge);
type Headers = &'static [(&'static str, &'static str)];

/// Interrupted calls.
fn ours() -> Vec<Case> {
    use Charge::{Hold, Known, Nothing};
    use Class::{Permanent, RateLimited, Transient};
    let cut = |begun| Failed::Stream {
        fault: Fault::Cut,
        begun,
    };
    let broken = |fault| Failed::Stream { fault, begun: true };
    vec![
        (Failed::Connect, &[], Transient, Nothing),
        (Failed::Certificate, &[], Permanent, Nothing),
        (Failed::Unsendable, &[], Permanent, Nothing),
        (Failed::Unanswered, &[], Transient, Hold),
        (Failed::Headers, &[], Permanent, Hold),
        (Failed::Refused, &[], Permanent, Known),
        (cut(false), &[], Transient, Known),
        (cut(true), &[], Transient, Known),
        (
            broken(Fault::NoEndEvent("message_stop")),
            &[],
            Transient,
            Known,
        ),
        (
            broken(Fault::Malformed(String::new())),
            &[],
            Permanent,
            Known,
        ),
        (broken(Fault::Excess("")), &[], Permanent, Known),
        (
            in_stream("overloaded_error", false),
            &[],
            Transient,
            Nothing,
        ),
        (in_stream("overloaded_error", true), &[], Transient, Known),
        (in_stream("rate_limit_error", true), &[], RateLimited, Known),
        (in_stream("from_tomorrow", true), &[], Transient, Known),
        (
            in_stream("invalid_request_error", true),
            &[],
            Permanent,
            Known,
        ),
    ]
}

/// Answers after which the same call fails again.
fn spent() -> Vec<Case> {
    use Charge::Nothing;
    use Class::{Context, Permanent, Quota, Reasoning, Transient};

    vec![
        (of_kind(429, "insufficient_quota"), &[], Quota, Nothing),
        (of_kind(400, "billing_error"), &[], Quota, Nothing),
        (
            of_kind(429, "monthly_spend_limit_reached"),
            &[],
            Quota,
            Nothing,
        ),
        (of_kind(402, "x"), &[], Quota, Nothing),
        (
            of_kind(402, "x"),
            &[("retry-after", "1")],
            Transient,
            Nothing,
        ),
        (of_kind(413, "request_too_large"), &[], Context, Nothing),
        (
            saying(400, "Prompt is too long: 210000 tokens"),
            &[],
            Context,
            Nothing,
        ),
        (
            saying(
                400,
                "messages.1.content.0: Invalid `signature` in `thinking` block",
            ),
            &[],
            Reasoning,
            Nothing,
        ),
        (saying(403, "the signature"), &[], Permanent, Nothing),
    ]
}

/// Answers by status and code.
fn passing() -> Vec<Case> {
    use Charge::Nothing;
    use Class::{Permanent, RateLimited, Transient};

    vec![
        (
            of_kind(500, "api_error"),
            &[("x-should-retry", "false")],
            Permanent,
            Nothing,
        ),
        (
            of_kind(400, "x"),
            &[("x-should-retry", "true")],
            Transient,
            Nothing,
        ),
        (of_kind(429, "rate_limit_error"), &[], RateLimited, Nothing),
        (
            of_kind(400, "RESOURCE_EXHAUSTED"),
            &[],
            RateLimited,
            Nothing,
        ),
        (error(429, "<html>"), &[], RateLimited, Nothing),
        (of_kind(529, "overloaded_error"), &[], Transient, Nothing),
        (error(503, ""), &[], Transient, Nothing),
        (of_kind(500, "api_error"), &[], Transient, Nothing),
        (error(502, "<html>Bad Gateway"), &[], Transient, Nothing),
        (error(524, ""), &[], Transient, Nothing),
        (of_kind(408, "timeout_error"), &[], Transient, Nothing),
        (
            of_kind(401, "authentication_error"),
            &[],
            Permanent,
            Nothing,
        ),
        (of_kind(404, "not_found_error"), &[], Permanent, Nothing),
        (of_kind(422, "x"), &[], Permanent, Nothing),
    ]
}

fn cases() -> impl Iterator<Item = Case> {
    ours().into_iter().chain(spent()).chain(passing())
}

#[test]
fn each_failure_has_its_class_and_its_charge() {
    use Class::{RateLimited, Transient};

    for (failed, headers, class, charge) in cases() {
        let verdict = judged(&failed, headers);
        assert_eq!(
            (verdict.class, verdict.charge),
            (class, charge),
            "{failed:?}"
        );
        assert_eq!(
            verdict.is_retryable(),
            matches!(class, Transient | RateLimited)
        );
    }
}

#[test]
fn pause_is_requested_or_doubled() {
    for (headers, asked) in [
        (&[][..], None),
        (&[("retry-after", "7")], Some(7_000)),
        (&[("retry-after", "0.5")], Some(500)),
        (
            &[("retry-after", "7"), ("retry-after-ms", "250")],
            Some(250),
        ),
        (
            &[("retry-after", "Sun, 06 Nov 1994 08:49:47 GMT")],
            Some(10_000),
        ),
        // A past time and an invalid value request no pause.
        (&[("retry-after", "Sun, 06 Nov 1994 08:49:27 GMT")], None),
        (&[("retry-after", "-5")], None),
        (&[("retry-after", "soon")], None),
        (&[("retry-after", "NaN")], None),
        (&[("retry-after-ms", "1e300")], None),
        (
            &[("retry-after-ms", "-250"), ("retry-after", "7")],
            Some(7_000),
        ),
    ] {
        let verdict = judged(&of_kind(429, "rate_limit_error"), headers);
        assert_eq!(
            verdict.requested_pause,
            asked.map(Duration::from_millis),
            "{headers:?}"
        );
    }
    let body = json!([{"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "m",
        "details": [{"@type": "Help"}, {"retryDelay": "3.5s"}]}}]);
    let verdict = judged(&error(429, &body.to_string()), &[]);
    assert_eq!(verdict.requested_pause, Some(Duration::from_millis(3500)));

    let seconds = |verdict: &Verdict, before, jitter| verdict.pause(before, jitter).as_secs_f64();
    let plain = judged(&Failed::Connect, &[]);
    let near = |found: f64, wanted: f64| (found - wanted).abs() < 0.001;
    for (before, jitter, wanted) in [
        (0, 0, 1.0),
        (0, 1000, 1.5),
        (1, 0, 2.0),
        (3, 500, 10.0),
        (9, 0, 30.0),
        (400, 9000, 45.0),
    ] {
        assert!(
            near(seconds(&plain, before, jitter), wanted),
            "{before} {jitter}"
        );
    }
    let busy = judged(&of_kind(529, "overloaded_error"), &[("retry-after", "5")]);
    assert!(near(seconds(&busy, 0, 0), 5.0));
    assert!(near(seconds(&busy, 8, 0), 120.0));
}

#[test]
fn requested_pause_applies_to_all_calls() {
    for (failed, headers, seconds) in [
        (of_kind(429, "rate_limit_error"), &[][..], Some(2)),
        (of_kind(429, "x"), &[("retry-after", "7")], Some(7)),
        (of_kind(503, "x"), &[("retry-after", "7")], Some(7)),
        (of_kind(503, "x"), &[], None),
        // One exhausted quota does not exhaust the quotas of other calls.
        (
            of_kind(429, "insufficient_quota"),
            &[("retry-after", "7")],
            None,
        ),
        (Failed::Connect, &[], None),
    ] {
        let pause = judged(&failed, headers).pause_for_all();
        assert_eq!(pause, seconds.map(Duration::from_secs), "{failed:?}");
    }
}

#[test]
fn error_bodies_of_all_vendors_are_read() {
    for (body, kind, code, message) in [
        (
            r#"{"type":"error","error":{"type":"overloaded_error","message":"busy"},"request_id":"r1"}"#,
            "overloaded_error",
            "",
            "busy",
        ),
        (
            r#"{"error":{"message":"no","type":"invalid_request_error","param":null,"code":"context_length_exceeded"}}"#,
            "invalid_request_error",
            "context_length_exceeded",
            "no",
        ),
        (
            r#"[{"error":{"code":503,"message":"later","status":"UNAVAILABLE"}}]"#,
            "UNAVAILABLE",
            "503",
            "later",
        ),
        (r#"{"error":"model not found"}"#, "", "", "model not found"),
        (r#"{"message":"plain"}"#, "", "", "plain"),
        ("<html>oops</html>", "", "", "<html>oops</html>"),
        ("", "", "", ""),
    ] {
        let read = ApiError::read(Some(500), body, &[]);
        assert_eq!(
            (
                read.kind.as_str(),
                read.code.as_str(),
                read.message.as_str()
            ),
            (kind, code, message),
            "{body}"
        );
        assert_eq!(read.request_id.is_some(), body.contains("r1"));
    }
    let read = ApiError::read(Some(529), r#"{"error":{"type":"t","message":"m"}}"#, &[]);
    assert_eq!(read.to_string(), "HTTP 529, t: m");
}

#[test]
fn error_texts_are_short_and_without_secrets() {
    let body = json!({"error": {"type": "key-1234", "code": "key-1", "message": format!("key-1234 {}", "x".repeat(3000))}, "request_id": "key-1"});
    let read = ApiError::read(Some(401), &body.to_string(), &["key-1", "key-1234", ""]);
    let shown = format!("{read:?}");
    assert!(!shown.contains("key") && !shown.contains("234"), "{shown}");
    assert_eq!(read.message.chars().count(), 2001);
    let plain = ApiError::read(None, "not json: key-1234", &["key-1234"]);
    assert_eq!(plain.message, "not json: …");
}

#[test]
fn rows_set_class_and_never_charge() {
    let row = |category: &str| {
        json!({"id": "own", "category": category, "match": {"path": "error.message", "op": "regex", "value": "TRY AGAIN"},
               "retry_policy": {"type": "fixed", "delay": 5}})
    };
    let now = Timestamp::from_ms(0);
    for (status, body) in [
        (
            400,
            r#"{"error": {"type": "t", "message": "please try again"}}"#,
        ),
        (502, "<html>please try again"),
    ] {
        let failed = error(status, body);
        for (category, class) in [
            ("transient", Class::Transient),
            ("rate_limited", Class::RateLimited),
            ("quota", Class::Quota),
            ("context", Class::Context),
            ("reasoning", Class::Reasoning),
            ("permanent", Class::Permanent),
        ] {
            let rows = ErrorRows::read(&[row(category)]).unwrap();
            let verdict = classify(&failed, &rows, |_| None, now);
            assert_eq!(
                (verdict.class, verdict.charge),
                (class, Charge::Nothing),
                "{status} {category}"
            );
            assert_eq!(verdict.base, Duration::from_secs(5));
        }
    }
    // Rows do not apply to connection failures.
    let all = json!({"id": "all", "category": "permanent", "match": {"path": "status_code", "op": "exists", "value": false}});
    let rows = ErrorRows::read(&[all]).unwrap();
    assert_eq!(
        classify(&Failed::Connect, &rows, |_| None, now).class,
        Class::Transient
    );
}

#[test]
fn bad_row_names_its_key() {
    let good = json!({"path": "status_code", "op": "eq", "value": 1});
    for (row, told) in [
        (json!(3), "is a map"),
        (json!({"category": "quota", "match": good}), "no `id`"),
        (json!({"id": "p", "category": "quota"}), "no `match`"),
        (
            json!({"id": "p", "match": good}),
            "no `category`, which is one of transient, rate_limited",
        ),
        (
            json!({"id": "p", "category": "cancelled", "match": good}),
            "`category` is one of transient",
        ),
        (
            json!({"id": "p", "category": "quota", "match": good, "retryable": true}),
            "unknown key `retryable`",
        ),
        (
            json!({"id": "p", "category": "quota", "match": {"path": "cancelled", "op": "eq", "value": true}}),
            "should_retry",
        ),
        (
            json!({"id": "p", "category": "quota", "match": {"path": "status_code", "op": "regex", "value": "("}}),
            "`match",
        ),
        (
            json!({"id": "p", "category": "quota", "match": good, "retry_policy": {"type": "fixed", "delay": 0}}),
            "`delay`",
        ),
    ] {
        let error = ErrorRow::read(&row).unwrap_err();
        assert!(error.contains(told), "{row}: {error}");
    }
}
