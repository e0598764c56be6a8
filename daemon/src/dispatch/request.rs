//! HTTP calls of tools: attempts, redirects, and results.
//!
//! **Never** contacts another origin than that of the tool. **Never** sends an at-most-once request again once it may
//! have arrived, neither as another attempt nor for a redirect. **Never** returns a secret of the request that the
//! answer repeats. **Failure.** An answer without success is a failure with the answer as its data.

use std::borrow::Cow;
use std::io::Read as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use flate2::read::MultiGzDecoder;
use jiff::fmt::rfc2822::DateTimeParser;
use rye_core::clock::{Clock, Timestamp};
use rye_core::expr::parse_json;
use rye_core::json;
use rye_core::machine::Certainty;
use rye_core::model::{Effect, Failure, Object};
use rye_process::masking::Masker;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::outcome::unusable_json;
use super::{Unsuccessful, Work};
use crate::chain::{Backoff, RequestPlan};
use crate::http::{self, Client, HttpResponse, Patience, Request, Url};
use crate::services::{AttemptCtx, timed_out};
use rye_host::task;

/// Timeout of a connection attempt.
const CONNECT: Duration = Duration::from_secs(10);
/// Maximum size of a body in bytes, both compressed and decompressed.
const MOST_BODY: usize = 8 << 20;
/// Content encoding that requests accept.
const PACKED: &str = "gzip";
const MOST_REDIRECTS: usize = 5;
/// Maximum pause before another attempt, even if the server requests a longer one.
const LONGEST_WAIT: Duration = Duration::from_mins(1);
/// Minimum length in bytes of a secret that is redacted in answers.
const SHORTEST_SECRET: usize = 6;

/// Answer to one attempt.
struct Answered {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

/// Carries out `plan` with up to the number of attempts it sets.
pub(super) async fn call(
    plan: RequestPlan,
    cx: &AttemptCtx,
    work: &mut Work,
) -> Result<Value, Box<Unsuccessful>> {
    let client = cx.services.providers.client().await.map_err(|error| {
        Failure::permanent("executor_not_found", rye_core::error::with_sources(&error))
    })?;
    let plan = Arc::new(RequestPlan {
        at_most_once: plan.at_most_once || cx.effect == Effect::AtMostOnce,
        ..plan
    });
    let cut_off = tokio::select! {
        biased;
        called = attempts(&plan, &client, &*cx.services.clock, work) => return called,
        () = cx.stop.due() => CutOff::Stopped,
        () = task::sleep(plan.max_duration) => CutOff::Late,
    };
    let failure = match cut_off {
        CutOff::Stopped => {
            work.stopped = true;
            Failure::permanent("stopped", "stopped on request")
        }
        CutOff::Late => {
            let mut failure = timed_out(plan.max_duration.unwrap_or_default());
            failure
                .message
                .push_str(" (more with `timeout` of the node)");
            failure
        }
    };
    Err(failure.into())
}

enum CutOff {
    Stopped,
    Late,
}

async fn attempts(
    plan: &Arc<RequestPlan>,
    client: &Client,
    clock: &dyn Clock,
    work: &mut Work,
) -> Result<Value, Box<Unsuccessful>> {
    for attempt in 1.. {
        let tried = timeout(plan.timeout, exchange(plan, client, work)).await;
        let wait = match &tried {
            Ok(Ok(answered)) => {
                work.certainty = Certainty::Known;
                may_pass(answered.status).then(|| requested_pause(&answered.headers, clock.now()))
            }
            Ok(Err(failure)) => is_transient(failure).then_some(None),
            Err(_elapsed) => Some(None),
        };
        let nothing_sent = work.certainty == Certainty::NeverStarted;
        let is_repeated = attempt < plan.attempts && (nothing_sent || !plan.at_most_once);
        let Some(asked) = wait.filter(|_| is_repeated) else {
            return match tried {
                Ok(Ok(answered)) => {
                    let plan = Arc::clone(plan);
                    let read = move || judge(&plan, &answered);
                    task::blocking("read an answer", read).await
                }
                Ok(Err(failure)) => Err(failed(&failure).into()),
                Err(_elapsed) => Err(timed_out(plan.timeout).into()),
            };
        };
        let pause = asked.unwrap_or_else(|| pause(plan.backoff, attempt));
        task::sleep(Some(pause.min(LONGEST_WAIT))).await;
    }
    unreachable!("the number of attempts is bounded")
}

/// Sends one request and follows redirects within the origin of the tool.
async fn exchange(
    plan: &RequestPlan,
    client: &Client,
    work: &mut Work,
) -> Result<Answered, http::Failure> {
    let (mut method, mut url, mut body) = (plan.method, plan.url.clone(), plan.body.clone());
    for redirects in 0.. {
        let request = request(plan, method, &url, body.clone())?;
        // An earlier attempt may have arrived. A request that was not sent does not change that.
        let before = work.certainty;
        work.certainty = Certainty::Unknown;
        let answer = match client.send(request).await {
            Ok(answer) => answer,
            Err(failure) => {
                if was_not_sent(&failure) {
                    work.certainty = before;
                }
                return Err(failure);
            }
        };
        let next = if redirects < MOST_REDIRECTS {
            followed(plan, &answer, method, &url)
        } else {
            None
        };
        let Some((to, keeps_body)) = next else {
            return whole(answer).await;
        };
        url = to;
        if !keeps_body {
            (method, body) = ("GET", None);
        }
    }
    unreachable!("the number of redirects is bounded")
}

fn request(
    plan: &RequestPlan,
    method: &'static str,
    url: &Url,
    body: Option<Vec<u8>>,
) -> Result<Request, http::Failure> {
    let patience = Patience {
        connect: CONNECT,
        headers: plan.timeout,
    };
    let has_body = body.is_some();
    let body = Bytes::from(body.unwrap_or_default());
    let mut request = Request::new(method, url.clone(), body, patience)?;
    for header in &plan.headers {
        if header.name.eq_ignore_ascii_case("content-type") && !has_body {
            continue;
        }
        request = request.one_more(&header.name, &header.value, header.is_secret)?;
    }
    let is_named = |name: &str| {
        plan.headers
            .iter()
            .any(|header| header.name.eq_ignore_ascii_case(name))
    };
    if !is_named("accept-encoding") {
        request = request.header("accept-encoding", PACKED)?;
    }
    Ok(request)
}

/// Target of a redirect to the same origin, and true if the body is sent again. Returns `None` for other answers, and
/// for an at-most-once request that would be sent again.
fn followed(
    plan: &RequestPlan,
    answer: &HttpResponse,
    method: &str,
    from: &Url,
) -> Option<(Url, bool)> {
    let keeps_body = match (answer.status(), method) {
        (307 | 308, method) if plan.at_most_once && !matches!(method, "GET" | "HEAD") => {
            return None;
        }
        (307 | 308, _) | (301 | 302, "GET" | "HEAD") => true,
        (303, _) => method == "HEAD",
        _ => return None,
    };
    let to = from.join(answer.header("location")?).ok()?;
    let is_plain = to.username().is_empty() && to.password().is_none();
    (is_plain && to.origin() == from.origin()).then_some((to, keeps_body))
}

async fn whole(answer: HttpResponse) -> Result<Answered, http::Failure> {
    let status = answer.status();
    let headers = answer.headers();
    let body = answer.whole(MOST_BODY).await?;
    Ok(Answered {
        status,
        headers,
        body,
    })
}

/// Decompresses `body` according to `encoding`.
fn unpacked<'b>(body: &'b [u8], encoding: Option<&str>) -> Result<Cow<'b, [u8]>, Failure> {
    let failed = |message: String| Failure::permanent("http_failed", message);
    match encoding {
        None | Some("identity") => Ok(body.into()),
        // The answer to a HEAD request.
        Some(_) if body.is_empty() => Ok(body.into()),
        Some(encoding) if encoding.eq_ignore_ascii_case(PACKED) => {
            let most = u64::try_from(MOST_BODY).unwrap_or(u64::MAX);
            let mut unpacked = Vec::new();
            let read = MultiGzDecoder::new(body)
                .take(most + 1)
                .read_to_end(&mut unpacked);
            match read {
                Err(error) => Err(failed(format!(
                    "the answer says that it is packed with {PACKED}, and is not: {error}"
                ))),
                Ok(_) if unpacked.len() > MOST_BODY => Err(failed(format!(
                    "the answer has more than {} MiB, unpacked",
                    MOST_BODY >> 20
                ))),
                Ok(_) => Ok(unpacked.into()),
            }
        }
        Some(encoding) => Err(failed(format!(
            "the answer is packed with {encoding}, which was not requested"
        ))),
    }
}

/// Returns the result of the tool, or a failure with it if the status is no success.
fn judge(plan: &RequestPlan, answered: &Answered) -> Result<Value, Box<Unsuccessful>> {
    let masker = masker_of(&plan.secrets);
    let mut headers = Object::new();
    for (name, value) in &answered.headers {
        let value = masker.text(value).unwrap_or_else(|| value.clone());
        match headers.get_mut(name) {
            Some(Value::String(before)) => *before = format!("{before}, {value}"),
            _ => {
                let _new = headers.insert(name.clone(), value.into());
            }
        }
    }
    let encoding = headers.remove("content-encoding");
    let encoding = encoding.as_ref().and_then(Value::as_str);
    let body = unpacked(&answered.body, encoding)?;
    let (body, refused) = shown(&body, &masker);
    let status = answered.status;
    let data = json!({"status_code": status, "headers": headers, "body": body});
    if plan.is_success(status) {
        let Some(reason) = refused else {
            return Ok(data);
        };
        let failure = unusable_json("the body of the answer", &reason);
        return Err(Box::new(Unsuccessful { data, failure }));
    }
    let host = plan.url.host_str().unwrap_or_default();
    Err(Box::new(Unsuccessful {
        failure: Failure {
            retryable: may_pass(status),
            ..Failure::permanent(
                "http_status",
                format!("{host} answered with status {status}"),
            )
        },
        data,
    }))
}

/// Masker of the secrets of one call.
pub(super) fn masker_of(secrets: &[String]) -> Masker {
    let secrets = secrets.iter().map(String::as_str);
    Masker::new(secrets.filter(|secret| secret.len() >= SHORTEST_SECRET))
}

/// Returns `body` without the secrets of `masker`, and the reason why it is text although it is a JSON object or list.
/// Secrets are searched in the decoded JSON, because JSON has several spellings.
fn shown(body: &[u8], masker: &Masker) -> (Value, Option<String>) {
    let json = json::decoded(body);
    let reason = match parse_json(&json) {
        Ok(mut body) => {
            let _found = masker.value(&mut body);
            return (body, None);
        }
        Err(error) => error.to_string(),
    };
    let is_document = json.trim_start().starts_with(['{', '['])
        && serde_json::from_str::<IgnoredAny>(&json).is_ok();
    let refused = is_document.then_some(reason);
    // This is text here, but other readers may decode it as JSON and find a secret.
    if let Ok(mut body) = serde_json::from_str::<Value>(&json)
        && masker.value(&mut body)
    {
        return (body.to_string().into(), refused);
    }
    let text = String::from_utf8_lossy(body);
    let text = masker
        .text(&text)
        .map_or_else(|| text.into(), Value::String);
    (text, refused)
}

fn failed(failure: &http::Failure) -> Failure {
    Failure {
        retryable: is_transient(failure),
        ..Failure::permanent("http_failed", failure.to_string())
    }
}

/// True if the request was not sent.
fn was_not_sent(failure: &http::Failure) -> bool {
    use http::Failure as F;
    matches!(
        failure,
        F::Unsendable(_) | F::Network(_) | F::Connect(_) | F::Certificate(_)
    )
}

/// True if the same request may succeed later.
fn is_transient(failure: &http::Failure) -> bool {
    use http::Failure as F;
    match failure {
        F::Connect(_) | F::Unanswered(_) | F::Silent(_) | F::Cut(_) => true,
        F::Unsendable(_)
        | F::Network(_)
        | F::Certificate(_)
        | F::Headers
        | F::TooLarge(_)
        | F::Unreadable(_) => false,
    }
}

/// True if the status indicates a temporary problem.
fn may_pass(status: u16) -> bool {
    matches!(status, 429 | 502..=504)
}

/// Pause that the server requests by `retry-after`, in seconds or until a date.
fn requested_pause(headers: &[(String, String)], now: Timestamp) -> Option<Duration> {
    let (_, value) = headers.iter().find(|(name, _)| name == "retry-after")?;
    let value = value.trim();
    if let Ok(seconds) = value.parse() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let at = DateTimeParser::new().parse_timestamp(value).ok()?;
    let ms = at.as_millisecond().saturating_sub(now.ms()).max(0);
    u64::try_from(ms).ok().map(Duration::from_millis)
}

fn pause(backoff: Backoff, attempt: u32) -> Duration {
    let seconds = match backoff {
        Backoff::Fixed => 1,
        Backoff::Exponential => 1_u64 << (attempt - 1).min(6),
    };
    Duration::from_secs(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temporary_statuses_are_retried_with_backoff() {
        let passing: Vec<u16> = (100..600).filter(|status| may_pass(*status)).collect();
        assert_eq!(passing, [429, 502, 503, 504]);
        let pauses = |backoff| (1..10).map(move |attempt| pause(backoff, attempt).as_secs());
        assert_eq!(
            pauses(Backoff::Exponential).collect::<Vec<_>>(),
            [1, 2, 4, 8, 16, 32, 64, 64, 64]
        );
        assert!(pauses(Backoff::Fixed).all(|seconds| seconds == 1));
    }

    #[test]
    fn retry_after_accepts_seconds_or_date() {
        let now = Timestamp::parse("2026-01-01T00:00:00Z").unwrap();
        for (value, expected) in [
            ("3", Some(3.0)),
            (" 1.5 ", Some(1.5)),
            ("Thu, 01 Jan 2026 00:00:20 GMT", Some(20.0)),
            ("Wed, 31 Dec 2025 23:59:00 GMT", Some(0.0)),
            ("-1", None),
            ("soon", None),
        ] {
            let headers = [("retry-after".to_owned(), value.to_owned())];
            let asked = requested_pause(&headers, now).map(|pause| pause.as_secs_f64());
            assert_eq!(asked, expected, "{value}");
        }
    }

    #[test]
    fn lone_surrogates_and_invalid_utf8_are_replaced_in_body() {
        let name = json!({"name": "caf\u{fffd}"});
        for body in [
            br#"{"name": "caf\udce9"}"#.as_slice(),
            b"{\"name\": \"caf\xe9\"}",
            b"\xef\xbb\xbf{\"name\": \"caf\xe9\"}",
        ] {
            assert_eq!(shown(body, &Masker::default()), (name.clone(), None));
        }
        assert_eq!(
            shown(b"caf\xe9", &Masker::default()),
            ("caf\u{fffd}".into(), None)
        );
    }

    #[test]
    fn json_that_loses_a_part_is_text_with_a_reason() {
        for (body, part) in [
            (
                r#"{"id": 36893488147419103232}"#,
                Some("does not fit 64 bits"),
            ),
            (r#"[{"a": 1, "a": 2}]"#, Some("`a`")),
            (r#"{"a": 1e400}"#, Some("out of range")),
            ("36893488147419103232", None),
            ("{not JSON", None),
            ("plain", None),
        ] {
            let (text, reason) = shown(body.as_bytes(), &Masker::default());
            assert_eq!(text, body);
            assert_eq!(reason.is_some(), part.is_some(), "{body}");
            if let (Some(reason), Some(part)) = (reason, part) {
                assert!(reason.contains(part), "{body}: {reason}");
            }
        }
    }

    #[test]
    fn secrets_are_redacted_in_all_json_spellings() {
        let masker = Masker::new(["Bearer ab/cd-é1", "ab/cd-é1", "123456"]);
        for (body, expected) in [
            (
                r#"{"a": ["x ab\/cd-\u00e91"]}"#,
                json!({"a": ["x [redacted]"]}),
            ),
            (r#"{"\u0061b/cd-é1": 1}"#, json!({"[redacted]": 1})),
            (r#""Bearer \u0061b/cd-é1.""#, json!("[redacted].")),
            ("[123456, 12345]", json!(["[redacted]", 12345])),
            (
                "Bearer ab/cd-é1 or ab/cd-é1",
                json!("[redacted] or [redacted]"),
            ),
            (
                r#"{"a": 1, "a": "ab\/cd-é1"}"#,
                json!(r#"{"a":"[redacted]"}"#),
            ),
            (r#"{"a": 1, "a": "ab"}"#, json!(r#"{"a": 1, "a": "ab"}"#)),
            (r#"{"a": null, "b": 1.5}"#, json!({"a": null, "b": 1.5})),
            (
                r#"{"a": "\ud83d", "a": "\ud83d ab\/cd-é1"}"#,
                json!("{\"a\":\"\u{fffd} [redacted]\"}"),
            ),
        ] {
            assert_eq!(shown(body.as_bytes(), &masker).0, expected, "{body}");
        }
    }
}
