//! Calls of other hosts: the attempts of one call, the redirects it follows, and what its answer comes to.
//!
//! **Never** goes to another origin than the one of the tool, and never sends an at-most-once request a second time once it may have
//! arrived. **Failure.** An answer that is no success is a failure with the answer as its data.

use std::time::Duration;

use bytes::Bytes;
use rye_core::machine::Certainty;
use rye_core::model::{Effect, Failure, Object};
use serde_json::{Value, json};

use super::{Unsuccessful, Work};
use crate::chain::{Backoff, RequestPlan};
use crate::http::{self, Answer, Client, Patience, Request, Url};
use crate::services::{AttemptCtx, timed_out};
use crate::task;

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(10);
/// Most bytes of a body.
const MOST_BODY: usize = 8 << 20;
/// Most redirects that are followed.
const MOST_REDIRECTS: usize = 5;
/// Longest wait before a further attempt, whatever the other side asks for.
const LONGEST_WAIT: Duration = Duration::from_mins(1);
/// Shortest secret that is looked for in an answer.
const SHORTEST_SECRET: usize = 6;

/// What came of one attempt.
struct Answered {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

/// Carries out `plan`, as often as it says.
pub(super) async fn call(
    plan: RequestPlan,
    cx: &AttemptCtx,
    work: &mut Work,
) -> Result<Value, Box<Unsuccessful>> {
    let client = cx.services.providers.client().await.map_err(|error| {
        Failure::permanent("executor_not_found", rye_core::error::with_sources(&error))
    })?;
    let at_most_once = plan.at_most_once || cx.effect == Effect::AtMostOnce;
    let mut attempt = 1;
    loop {
        let tried = tokio::select! {
            tried = tokio::time::timeout(plan.timeout, exchange(&plan, &client, work)) => tried,
            () = cx.stop.due() => return Err(stopped(work)),
        };
        let (ended, wait) = match tried {
            Ok(Ok(answered)) => {
                work.certainty = Certainty::Known;
                let wait = may_pass(answered.status)
                    .then(|| asked_wait(&answered))
                    .flatten();
                let again = may_pass(answered.status);
                (judge(&plan, &answered), again.then_some(wait))
            }
            Ok(Err(failure)) => {
                let again = is_transient(&failure);
                (Err(failed(&failure).into()), again.then_some(None))
            }
            Err(_elapsed) => (Err(timed_out(plan.timeout).into()), Some(None)),
        };
        let nothing_sent = work.certainty == Certainty::NeverStarted;
        let Some(asked) =
            wait.filter(|_| attempt < plan.attempts && (nothing_sent || !at_most_once))
        else {
            return ended;
        };
        let pause = asked
            .unwrap_or_else(|| pause(plan.backoff, attempt))
            .min(LONGEST_WAIT);
        tokio::select! {
            () = task::sleep(Some(pause)) => {}
            () = cx.stop.due() => return Err(stopped(work)),
        }
        attempt += 1;
    }
}

fn stopped(work: &mut Work) -> Box<Unsuccessful> {
    work.stopped = true;
    Failure::permanent("stopped", "stopped on request").into()
}

/// One request, with the redirects that stay at the origin of the tool.
async fn exchange(
    plan: &RequestPlan,
    client: &Client,
    work: &mut Work,
) -> Result<Answered, http::Failure> {
    let (mut method, mut url, mut body) = (plan.method, plan.url.clone(), plan.body.clone());
    for redirects in 0.. {
        let request = request(plan, method, &url, body.clone())?;
        // An earlier attempt may have arrived: then this one takes nothing back.
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
            followed(&answer, method, &url)
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
    Ok(request)
}

/// Where `answer` sends us, if that is at the same origin and means the same request; and whether its body goes along.
fn followed(answer: &Answer, method: &str, from: &Url) -> Option<(Url, bool)> {
    let keeps_body = match (answer.status(), method) {
        (307 | 308, _) | (301 | 302, "GET" | "HEAD") => true,
        (303, _) => method == "HEAD",
        _ => return None,
    };
    let to = from.join(answer.header("location")?).ok()?;
    let is_plain = to.username().is_empty() && to.password().is_none();
    (is_plain && to.origin() == from.origin()).then_some((to, keeps_body))
}

async fn whole(answer: Answer) -> Result<Answered, http::Failure> {
    let status = answer.status();
    let headers = answer.headers();
    let body = answer.whole(MOST_BODY).await?;
    Ok(Answered {
        status,
        headers,
        body,
    })
}

/// What the tool gets, and whether that is a success.
fn judge(plan: &RequestPlan, answered: &Answered) -> Result<Value, Box<Unsuccessful>> {
    let shown = |text: String| {
        let secrets = plan
            .secrets
            .iter()
            .filter(|secret| secret.len() >= SHORTEST_SECRET);
        secrets.fold(text, |text, secret| text.replace(secret, "[redacted]"))
    };
    let mut headers = Object::new();
    for (name, value) in &answered.headers {
        let value = shown(value.clone());
        match headers.get_mut(name) {
            Some(Value::String(before)) => *before = format!("{before}, {value}"),
            _ => {
                let _new = headers.insert(name.clone(), value.into());
            }
        }
    }
    let encoding = headers.get("content-encoding").and_then(Value::as_str);
    if let Some(encoding) = encoding.filter(|encoding| *encoding != "identity") {
        let message = format!("the answer is encoded as {encoding}, which was not asked for");
        return Err(Failure::permanent("http_failed", message).into());
    }
    let text = shown(String::from_utf8_lossy(&answered.body).into_owned());
    let body = rye_core::expr::parse_json(&text).unwrap_or(Value::String(text));
    let status = answered.status;
    let data = json!({"status_code": status, "headers": headers, "body": body});
    if plan.is_success(status) {
        return Ok(data);
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

fn failed(failure: &http::Failure) -> Failure {
    Failure {
        retryable: is_transient(failure),
        ..Failure::permanent("http_failed", failure.to_string())
    }
}

/// Whether nothing has left this host.
fn was_not_sent(failure: &http::Failure) -> bool {
    use http::Failure as F;
    matches!(
        failure,
        F::Unsendable(_) | F::Connect(_) | F::Certificate(_)
    )
}

/// Whether the same request may come through later.
fn is_transient(failure: &http::Failure) -> bool {
    use http::Failure as F;
    match failure {
        F::Connect(_) | F::Unanswered(_) | F::Silent(_) | F::Cut(_) => true,
        F::Unsendable(_) | F::Certificate(_) | F::Headers | F::TooLarge(_) | F::Unreadable(_) => {
            false
        }
    }
}

/// Whether the other side says that it may do better later.
fn may_pass(status: u16) -> bool {
    matches!(status, 429 | 502..=504)
}

/// How long the other side asks us to wait, in seconds.
fn asked_wait(answered: &Answered) -> Option<Duration> {
    let mut headers = answered.headers.iter();
    let (_, value) = headers.find(|(name, _)| name == "retry-after")?;
    value.trim().parse().ok().map(Duration::from_secs)
}

fn pause(backoff: Backoff, attempt: u32) -> Duration {
    let seconds = match backoff {
        Backoff::Fixed => 1,
        Backoff::Exponential => 1_u64 << (attempt - 1).min(6),
    };
    Duration::from_secs(seconds)
}
