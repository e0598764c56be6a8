//! Connections and their requests.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use hyper::http::request::Parts;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Response, StatusCode};
use hyper_util::rt::TokioIo;
use rye_core::provider::Api;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::history::Answer;
use super::play::{Body, Broken, Player, Step, plan};
use super::request::{ParsedRequest, Request};
use super::script::{ApiError, Kind, Message, Reply, Status, Wait};
use super::shared::{Shared, Watch};
use super::{SECRET, anthropic, openai_chat};

/// Longest body in bytes.
const MOST_BODY: usize = 64 << 20;

/// Serves until it is stopped, which closes all connections.
pub(super) async fn serve(
    listener: TcpListener,
    shared: Arc<Shared>,
    mut stop: oneshot::Receiver<()>,
) {
    let listener = tokio::net::TcpListener::from_std(listener);
    let listener = listener.expect("a runtime takes a listener that does not block");
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            _stopped = &mut stop => return,
            Some(ended) = connections.join_next() => ended.expect("a connection does not panic"),
            accepted = listener.accept() => {
                if let Ok((stream, _)) = accepted {
                    connections.spawn(connection(stream, Arc::clone(&shared)));
                }
            }
        }
    }
}

/// State of a connection that its answers share.
#[derive(Clone)]
struct Link {
    /// True while the connection is open.
    alive: Arc<AtomicBool>,
    /// True if the connection is to be reset when it ends.
    reset: Arc<AtomicBool>,
}

async fn connection(stream: TcpStream, shared: Arc<Shared>) {
    let wire = Link {
        alive: Arc::new(AtomicBool::new(true)),
        reset: Arc::default(),
    };
    // Events are small and must be sent without delay. A socket that refuses this only delays them.
    drop(stream.set_nodelay(true));
    let service = service_fn(|request: hyper::Request<Incoming>| {
        let (parts, body) = request.into_parts();
        answer(parts, body, Arc::clone(&shared), wire.clone())
    });
    let mut connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    // An error is a client that went away, or a fault of the script.
    drop((&mut connection).await);
    wire.alive.store(false, Ordering::Release);
    shared.ended();
    let stream = connection.into_parts().io.into_inner();
    if wire.reset.load(Ordering::Acquire) {
        stream
            .set_zero_linger()
            .expect("a connection can be told how to end");
    }
}

async fn answer(
    parts: Parts,
    body: Incoming,
    shared: Arc<Shared>,
    wire: Link,
) -> Result<Response<Body>, Broken> {
    let arrived = Instant::now();
    let watch = Watch::new(&shared);
    let Some(api) = api(&parts) else {
        let what = format!("{} {} is not served", parts.method, parts.uri.path());
        return Ok(breach(Api::Anthropic, 404, &what, watch));
    };
    let bytes = match Limited::new(body, MOST_BODY).collect().await {
        Ok(collected) => collected.to_bytes(),
        Err(error) if error.is::<LengthLimitError>() => {
            let what = format!("{api:?}: the body has more than {MOST_BODY} bytes");
            return Ok(breach(api, 413, &what, watch));
        }
        // The client went away.
        Err(_gone) => return Err(Broken),
    };
    let read = read(api, &parts.headers, &bytes).and_then(|(asked, body)| {
        let request = Request {
            api,
            directive: asked.directive.clone(),
            turn: asked.turn,
            body,
            arrived,
            sent: watch.sent(),
            ended: watch.ended(),
        };
        let place = describe(&asked);
        let taken = shared.take(&asked, request);
        let (reply, line) = taken.map_err(|what| format!("{place}: {what}"))?;
        Ok((asked, reply, line))
    });
    match read {
        Ok((asked, reply, line)) => reply_to(&asked, reply, line, watch, wire).await,
        Err(what) => Ok(breach(api, 400, &what, watch)),
    }
}

/// Sends the reply of the rule in `line`.
async fn reply_to(
    asked: &ParsedRequest,
    reply: Reply,
    line: usize,
    mut watch: Watch,
    wire: Link,
) -> Result<Response<Body>, Broken> {
    match reply.wait {
        Some(Wait::Time(time)) => tokio::time::sleep(time).await,
        Some(Wait::Release(name)) => watch.shared().released(&name).await,
        None => {}
    }
    match reply.kind {
        Kind::Reset => {
            watch.done();
            wire.reset.store(true, Ordering::Release);
            Err(Broken)
        }
        Kind::Status(status) => {
            watch.done();
            if matches!(status.code, 400 | 413) {
                watch.shared().record().history.refused(asked);
            }
            let Status {
                code,
                retry_after,
                error,
            } = status;
            Ok(refusal(asked.api, code, &error, retry_after))
        }
        Kind::Message(message) => Ok(match steps(&message.filled(asked), asked) {
            Ok(steps) => {
                let answer = Arc::new(Answer::new(message.stops(), &wire.alive));
                watch.shared().record().history.answer(asked, &answer);
                let player = Player {
                    steps: steps.into_iter(),
                    answer,
                    watch,
                    reset: wire.reset,
                };
                streamed(asked, player.body())
            }
            Err(what) => {
                let what = format!("the rule of line {line}: {what}");
                breach(asked.api, 400, &what, watch)
            }
        }),
    }
}

fn api(parts: &Parts) -> Option<Api> {
    match (parts.uri.path(), &parts.method) {
        ("/v1/messages", &Method::POST) => Some(Api::Anthropic),
        ("/v1/chat/completions", &Method::POST) => Some(Api::OpenaiChat),
        _ => None,
    }
}

fn read(api: Api, headers: &HeaderMap, bytes: &Bytes) -> Result<(ParsedRequest, Value), String> {
    check_headers(api, headers)?;
    let body: Value = serde_json::from_slice(bytes)
        .map_err(|error| format!("{api:?}: the body is not JSON: {error}"))?;
    let asked = match api {
        Api::Anthropic => anthropic::read(&body),
        Api::OpenaiChat => openai_chat::read(&body),
    };
    Ok((asked.map_err(|what| format!("{api:?}: {what}"))?, body))
}

/// Checks the headers. Errors do not contain their values, which may be secret.
fn check_headers(api: Api, headers: &HeaderMap) -> Result<(), String> {
    let is = |name: &str, wanted: &str| {
        let value = headers.get(name).and_then(|value| value.to_str().ok());
        value.is_some_and(|value| value == wanted)
    };
    let media = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    let is_json = media.is_some_and(|media| media.split(';').next() == Some("application/json"));
    let bearer = is("authorization", &format!("Bearer {SECRET}"));
    let rules = [
        (is_json, "`content-type` is not application/json"),
        (
            is("accept-encoding", "identity"),
            "`accept-encoding` is not identity",
        ),
        (
            bearer || (api == Api::Anthropic && is("x-api-key", SECRET)),
            "neither `authorization: Bearer` nor, at Anthropic, `x-api-key` has the key of this server",
        ),
        (
            api != Api::Anthropic || headers.contains_key("anthropic-version"),
            "there is no `anthropic-version`",
        ),
    ];
    let broken = rules.iter().find(|(holds, _)| !holds);
    broken.map_or(Ok(()), |(_, what)| Err(format!("{api:?}: {what}")))
}

/// Describes the request for people.
fn describe(asked: &ParsedRequest) -> String {
    let directive = asked.directive.as_deref().unwrap_or("-");
    format!(
        "{:?}, directive {directive}, turn {}",
        asked.api, asked.turn
    )
}

/// Records a breach and refuses the request.
fn breach(api: Api, code: u16, what: &str, mut watch: Watch) -> Response<Body> {
    watch.done();
    watch.shared().breach(what.to_owned());
    let error = ApiError {
        kind: None,
        message: Some(format!("the scripted model server: {what}")),
    };
    refusal(api, code, &error, None)
}

/// Plans the stream of a message. The error explains why that is impossible.
fn steps(message: &Message, asked: &ParsedRequest) -> Result<Vec<Step>, String> {
    let pieces = match asked.api {
        Api::Anthropic => anthropic::stream(message, asked),
        Api::OpenaiChat => openai_chat::stream(message, asked)?,
    };
    plan(&message.flow, pieces, |error| match asked.api {
        Api::Anthropic => {
            let data = anthropic::error(error, 529);
            format!("event: error\ndata: {data}\n\n")
        }
        Api::OpenaiChat => format!("data: {}\n\n", openai_chat::error(error, 500)),
    })
}

fn streamed(asked: &ParsedRequest, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    let mut set = |name: &'static str, value: &str| {
        let value = value.parse().expect("a header of printable characters");
        headers.insert(name, value);
    };
    set("content-type", "text/event-stream; charset=utf-8");
    set("cache-control", "no-cache");
    set(request_id(asked.api), &asked.made_id("req_01", 0));
    response
}

/// Returns the header with the id of a request.
fn request_id(api: Api) -> &'static str {
    match api {
        Api::Anthropic => "request-id",
        Api::OpenaiChat => "x-request-id",
    }
}

fn refusal(
    api: Api,
    code: u16,
    error: &ApiError,
    retry_after: Option<HeaderValue>,
) -> Response<Body> {
    let mut body = match api {
        Api::Anthropic => anthropic::error(error, code),
        Api::OpenaiChat => openai_chat::error(error, code),
    };
    if api == Api::Anthropic {
        body["request_id"] = json!("req_01refused");
    }
    let body = Full::from(body.to_string()).map_err(|never| match never {});
    let mut response = Response::new(body.boxed_unsync());
    *response.status_mut() = StatusCode::from_u16(code).expect("the script has checked it");
    let headers = response.headers_mut();
    let json = "application/json".parse();
    headers.insert(
        CONTENT_TYPE,
        json.expect("a header of printable characters"),
    );
    if let Some(after) = retry_after {
        headers.insert(RETRY_AFTER, after);
    }
    response
}
