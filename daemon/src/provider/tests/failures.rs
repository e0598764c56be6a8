//! Failed calls.

use rye_core::provider::{Received, Tokens};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;

use super::*;
use crate::http::peer::{STREAM, chunk, saying, server};

/// An answer with this status, these header lines, and this body.
fn answer(status: &str, lines: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\n{lines}Content-Length: {length}\r\n\r\n{body}")
}

fn error(kind: &str) -> String {
    json!({"type": "error", "error": {"type": kind, "message": "m"}}).to_string()
}

/// Failure of a call with this answer, and the part of the answer that arrived.
async fn failing(answer: String) -> (Failure, Received) {
    let (address, _tasks) = saying(answer).await;
    let (_clock, providers) = providers();
    let mut call = call(&providers, &model(address)).await;
    let failure = failure(&mut call).await;
    (failure, call.received())
}

fn verdict_of(failure: &Failure) -> (Class, Charge, bool) {
    let Failure { verdict, begun, .. } = failure;
    (verdict.class, verdict.charge, *begun)
}

#[tokio::test]
async fn error_response_has_not_begun() {
    for (status, lines, body, class, charge, told) in [
        (
            "401 Unauthorized",
            "",
            error("authentication_error"),
            Class::Permanent,
            Charge::Nothing,
            "HTTP 401, authentication_error: m",
        ),
        (
            "529 Overloaded",
            "",
            error("overloaded_error"),
            Class::Transient,
            Charge::Nothing,
            "HTTP 529, overloaded_error: m",
        ),
        (
            "500 Internal Server Error",
            "X-Should-Retry: false\r\n",
            error("api_error"),
            Class::Permanent,
            Charge::Nothing,
            "HTTP 500, api_error: m",
        ),
        (
            "502 Bad Gateway",
            "",
            "<html>".to_owned(),
            Class::Transient,
            Charge::Nothing,
            "HTTP 502: <html>",
        ),
        (
            "307 Temporary Redirect",
            "Location: http://127.0.0.1:1/\r\n",
            String::new(),
            Class::Permanent,
            Charge::Nothing,
            "HTTP 307: ",
        ),
    ] {
        let (failure, received) = failing(answer(status, lines, &body)).await;
        assert_eq!(received, Received::default(), "{status}");
        assert_eq!(verdict_of(&failure), (class, charge, false), "{status}");
        assert_eq!(failure.trouble.to_string(), told);
        assert!(
            matches!(failure.trouble, Trouble::Reported(_)),
            "{failure:?}"
        );
    }
}

/// Usage that the first event of the tests reports, and `unreported` bytes after it.
fn begun(unreported: usize) -> Received {
    Received {
        is_answered: true,
        reported: Some(Tokens {
            input: 10,
            output: 1,
            ..Tokens::default()
        }),
        unreported,
        has_stopped: false,
    }
}

/// An answer of which only the head arrived.
const EMPTY: Received = Received {
    is_answered: true,
    reported: None,
    unreported: 0,
    has_stopped: false,
};

#[tokio::test]
async fn broken_stream_reports_progress() {
    let begin = events(&[start()]);
    let text = events(&hello()[..3]);
    let reported = events(&hello()[..5]);
    let overloaded = format!("event: error\ndata: {}\n\n", error("overloaded_error"));
    let final_report = Received {
        reported: Some(Tokens {
            input: 10,
            output: 7,
            ..Tokens::default()
        }),
        has_stopped: true,
        ..EMPTY
    };
    let (known, last) = (Charge::Known, "0\r\n\r\n");
    for (body, end, charge, received, told) in [
        (begin.clone(), "", known, begun(0), "the answer was cut"),
        (
            begin.clone(),
            last,
            known,
            begun(0),
            "the answer was cut off",
        ),
        (text.clone(), "", known, begun(5), "the answer was cut"),
        (reported, "", known, final_report, "the answer was cut"),
        (String::new(), last, known, EMPTY, "the answer was cut off"),
        (
            "<html>Sign in</html>".to_owned(),
            last,
            known,
            EMPTY,
            "the answer was cut off",
        ),
        (
            overloaded.clone(),
            last,
            Charge::Nothing,
            EMPTY,
            "overloaded_error: m",
        ),
        (
            format!("{text}{overloaded}"),
            last,
            known,
            begun(5),
            "overloaded_error: m",
        ),
    ] {
        let body = if body.is_empty() {
            String::new()
        } else {
            chunk(&body)
        };
        let (failure, arrived) = failing(format!("{STREAM}{body}{end}")).await;
        let expected = (Class::Transient, charge, received.reported.is_some());
        assert_eq!(verdict_of(&failure), expected, "{body}");
        assert_eq!(arrived, received, "{body}");
        let text = failure.trouble.to_string();
        assert!(text.contains(told), "{text}");
    }
}

#[tokio::test]
async fn unreadable_event_fails_once_and_names_providers_page() {
    let body = format!("{}data: {{\n\n", events(&[start()]));
    let (failure, arrived) = failing(format!("{STREAM}{}0\r\n\r\n", chunk(&body))).await;
    assert_eq!(
        verdict_of(&failure),
        (Class::Permanent, Charge::Known, true)
    );
    assert_eq!(arrived, begun(0));
    let text = failure.trouble.to_string();
    assert!(text.contains("docs/providers.md"), "{text}");
}

#[tokio::test]
async fn body_that_is_not_utf8_is_malformed() {
    let (address, _tasks) = server(|mut peer, _| async move {
        let head = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\ndata: \xff\n\n";
        peer.write_all(head).await.unwrap();
    })
    .await;
    let (_clock, providers) = providers();
    let failure = failure(&mut call(&providers, &model(address)).await).await;
    assert_eq!(
        verdict_of(&failure),
        (Class::Permanent, Charge::Known, false)
    );
    let text = failure.trouble.to_string();
    assert!(text.starts_with("a line is not UTF-8; "), "{text}");
}

#[tokio::test]
async fn connection_failures_are_distinguished() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let nobody = listener.local_addr().unwrap();
    drop(listener);
    let (_clock, providers) = providers();
    let refused = failure(&mut call(&providers, &model(nobody)).await).await;
    let expected = (Class::Transient, Charge::Nothing, false);
    assert_eq!(verdict_of(&refused), expected, "{refused:?}");

    let (unanswered, received) = failing(String::new()).await;
    assert_eq!(received, Received::default());
    let expected = (Class::Transient, Charge::Hold, false);
    assert_eq!(verdict_of(&unanswered), expected, "{unanswered:?}");

    let long = format!("A: {}\r\n", "x".repeat(65 << 10));
    let (headers, _) = failing(answer("200 OK", &long, "")).await;
    let expected = (Class::Permanent, Charge::Hold, false);
    assert_eq!(verdict_of(&headers), expected, "{headers:?}");
}

#[tokio::test]
async fn unsendable_request_is_not_retried() {
    let (_clock, providers) = providers_with(&[("KEY", "k3y"), ("ORG", "o\nrg")]);
    let keys = "base_url: http://127.0.0.1:1\nheaders: {x-org: {env: ORG}}";
    let failure = failure(&mut call(&providers, &model_of(Owner::User, keys)).await).await;
    let expected = (Class::Permanent, Charge::Nothing, false);
    assert_eq!(verdict_of(&failure), expected);
    let text = failure.trouble.to_string();
    assert!(text.contains("x-org") && !text.contains("rg\n"), "{text}");
}

#[tokio::test]
async fn echoed_secret_is_hidden() {
    let body = json!({"error": {"type": "k3y", "message": "no such key: k3y of 0rg"}}).to_string();
    let in_stream = format!(
        "data: {}\n\n",
        json!({"type": "error", "error": {"message": "k3y 0rg"}})
    );
    for answer in [
        answer("401 No", "Request-Id: r-k3y\r\n", &body),
        answer("401 No", "X-Request-Id: 0rg\r\n", "k3y, 0rg, not JSON"),
        answer("200 OK", "Request-Id: k3y\r\n", &in_stream),
    ] {
        let (address, mut tasks) = saying(answer).await;
        let (_clock, providers) = providers_with(&[("KEY", "k3y"), ("ORG", "0rg")]);
        let keys = format!("base_url: http://{address}\nheaders: {{x-org: {{env: ORG}}}}");
        let mut call = call(&providers, &model_of(Owner::User, &keys)).await;
        let failure = failure(&mut call).await;
        let shown = format!("{failure:?} {} {call:?} {providers:?}", failure.trouble);
        assert!(!shown.contains("k3y") && !shown.contains("0rg"), "{shown}");
        assert!(shown.contains('…'), "{shown}");
        let request = tasks.next().await.unwrap();
        assert!(request.contains("k3y") && request.contains("0rg"));
    }
}

#[tokio::test]
async fn endless_error_body_is_cut() {
    let body = format!("no {}", "x".repeat(1 << 20));
    let (failure, _) = failing(answer("400 Bad Request", "", &body)).await;
    let text = failure.trouble.to_string();
    assert!(text.starts_with("HTTP 400: no xx"), "{text}");
    assert!(text.len() < 3000);
}

#[tokio::test]
async fn request_id_comes_from_header_or_body() {
    let named = json!({"error": {"message": "m"}, "request_id": "of-body"}).to_string();
    let long = format!("request-id: {}\r\n", "x".repeat(300));
    for (lines, id) in [
        ("", "of-body"),
        ("x-request-id: of-head\r\n", "of-head"),
        (long.as_str(), "of-body"),
    ] {
        let (failure, _) = failing(answer("400 Bad Request", lines, &named)).await;
        assert_eq!(failure.request_id.as_deref(), Some(id));
    }
}

#[tokio::test]
async fn requested_pause_applies_to_all_calls() {
    let busy = answer(
        "429 Too Many Requests",
        "Retry-After: 7\r\n",
        &error("rate_limit_error"),
    );
    let (address, _tasks) = saying(busy).await;
    let (clock, providers) = providers();
    let model = model(address);
    let failure = failure(&mut call(&providers, &model).await).await;
    assert_eq!(failure.verdict.class, Class::RateLimited);
    assert_eq!(
        failure.verdict.requested_pause,
        Some(Duration::from_secs(7))
    );
    let project = ProjectEnv::default();
    let mut waits = Box::pin(enter(&providers, &model, &project));
    while clock.sleepers() == 0 {
        assert!(waits.as_mut().now_or_never().is_none());
        tokio::task::yield_now().await;
    }
    clock.advance(Duration::from_secs(7));
    assert!(waits.as_mut().now_or_never().is_none(), "not all at once");
    clock.advance(Duration::from_secs(4));
    assert!(waits.await.is_ok());
}
