//! States, outputs and results of runs in answers, as JSON.
//!
//! A state takes up to 64 MiB, and clients of most languages refuse messages over 4 MiB. So all texts of one answer
//! have at most [`MOST`] bytes; an answer states which texts it omits. `Runs.State` sends any of them in pieces. There, each
//! value of a state is serialized when the client takes it, so the whole text is never in memory.
//!
//! **Bounds.** The text of a large value takes memory of answers until it is sent, six bytes for a NUL, and a longer one
//! takes all of it. It waits for that memory, but not for ever: a client that reads nothing must not hide runs from
//! others.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, stream};
use http_body_util::BodyExt as _;
use rye_core::bounds;
use rye_core::expr::Vars;
use rye_core::memory::{Charge, Memory};
use rye_core::model::Run;
use rye_host::task;
use rye_proto::v1;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;
use tonic::Response;
use tonic::body::Body;
use tonic::codegen::http;

#[cfg(test)]
mod tests;

/// Most bytes in memory of a value that is serialized on the async worker; larger ones go to a blocking thread.
const SHORT: usize = 256 << 10;
/// Most bytes of all texts of an answer, which keeps it below 4 MiB.
pub(super) const MOST: usize = 3 << 20;
/// Most bytes of a piece of a text.
const PIECE: usize = 1 << 20;

/// Maximum number of answers with a text of a large value that are made at the same time.
const MOST_LARGE: usize = 8;
/// Copies of a text in memory: the text, and the encoded message.
const COPIES: usize = 2;
/// Maximum time for which a text waits for memory.
const PATIENCE: Duration = Duration::from_secs(2);
/// Time between two attempts to take memory, which many places free.
const PAUSE: Duration = Duration::from_millis(20);

/// Turns of answers with a text of a large value; others wait.
static LARGE: Semaphore = Semaphore::const_new(MOST_LARGE);

/// Memory of the texts of an answer, to be held until it is sent. It takes none if there was none to be had in time.
#[derive(Debug, Default)]
pub(super) struct Reserved(Option<Charge>);

impl Reserved {
    /// Waits for `bytes` of `memory`, or for all of it.
    async fn take(memory: &Arc<Memory>, bytes: usize) -> Self {
        let bytes = bytes.min(memory.most());
        let taken = async {
            loop {
                if let Some(charge) = memory.take(bytes) {
                    return charge;
                }
                task::sleep(Some(PAUSE)).await;
            }
        };
        Self(timeout(PATIENCE, taken).await.ok())
    }

    /// Returns the response with `message`, which holds this memory until it is sent ([`until_sent`]).
    pub(super) fn held_by<T>(self, message: T) -> Response<T> {
        let mut response = Response::new(message);
        if self.0.is_some() {
            response.extensions_mut().insert(Arc::new(self));
        }
        response
    }
}

/// Lets the body of `response` hold the memory of its message.
pub(super) fn until_sent(mut response: http::Response<Body>) -> http::Response<Body> {
    let Some(reserved) = response.extensions_mut().remove::<Arc<Reserved>>() else {
        return response;
    };
    response.map(|body| {
        Body::new(body.map_frame(move |frame| {
            let _held = &reserved;
            frame
        }))
    })
}

/// Returns the text of `value`, of any length, and its memory.
pub(super) async fn whole(memory: &Arc<Memory>, value: Value) -> (String, Reserved) {
    if bounds::size(&value) <= SHORT {
        return (value.to_string(), Reserved::default());
    }
    // Fails only when the daemon ends.
    let _turn = LARGE.acquire().await.ok();
    let value = Arc::new(value);
    let counted = Arc::clone(&value);
    let length = task::blocking("measure a text", move || length(&counted)).await;
    let reserved = Reserved::take(memory, COPIES * length).await;
    let write = move || exactly(&*value, length);
    (task::blocking("write a text", write).await, reserved)
}

/// Bytes that an answer has left for texts.
#[derive(Debug)]
pub(super) struct Texts {
    left: usize,
    /// Memory of all answers.
    memory: Arc<Memory>,
    /// Turn of this answer and its memory, once it has a text of a large value.
    turn: Option<(SemaphorePermit<'static>, Reserved)>,
}

impl Texts {
    pub(super) const fn new(memory: Arc<Memory>) -> Self {
        Self {
            left: MOST,
            memory,
            turn: None,
        }
    }

    /// Returns the memory of the texts.
    pub(super) fn reserved(self) -> Reserved {
        self.turn
            .map_or_else(Reserved::default, |(_, reserved)| reserved)
    }

    /// Adds the state and the output of `record` to `run` if they fit.
    pub(super) async fn add(&mut self, run: v1::Run, record: &Run) -> v1::Run {
        let output = self.text(Json::output(record)).await;
        let state = self.text(Json::state(record)).await;
        v1::Run {
            state_omitted: state.is_none(),
            state_json: state.unwrap_or_default(),
            output_omitted: output.is_none(),
            output_json: output.unwrap_or_default(),
            ..run
        }
    }

    /// Returns the text of `json`, empty for no value, or `None` if it does not fit. A large value waits for its turn.
    async fn text(&mut self, json: Option<Json>) -> Option<String> {
        let Some(json) = json else {
            return Some(String::new());
        };
        let left = self.left;
        let text = if json.memory() <= SHORT {
            json.text(left)
        } else {
            if self.turn.is_none()
                && let Ok(turn) = LARGE.acquire().await
            {
                // The buffer of a text doubles as it grows.
                self.turn = Some((turn, Reserved::take(&self.memory, COPIES * MOST).await));
            }
            task::blocking("write the text of a value", move || json.text(left)).await
        };
        self.left -= text.as_ref().map_or(0, String::len);
        text
    }
}

#[derive(Debug, Clone)]
pub(super) enum Json {
    State(Vars),
    Value(Arc<Value>),
}

impl Json {
    /// Returns `None` if `run` is not a graph run.
    pub(super) fn state(run: &Run) -> Option<Self> {
        run.vars().cloned().map(Self::State)
    }

    /// Returns the result of a run, including one that a failed tool returned.
    pub(super) fn output(run: &Run) -> Option<Self> {
        let output = run.output();
        let output = output.filter(|output| run.status().is_success() || !output.is_null());
        output.cloned().map(Self::Value)
    }

    /// Approximate bytes in memory.
    fn memory(&self) -> usize {
        match self {
            Self::State(vars) => vars.bytes(),
            Self::Value(value) => bounds::size(value),
        }
    }

    /// Returns `None` if the text is longer than `most` bytes.
    fn text(&self, most: usize) -> Option<String> {
        match self {
            Self::State(vars) => text(vars, most),
            Self::Value(value) => text(value, most),
        }
    }

    /// Yields the text in pieces of at most [`PIECE`] bytes, each made on demand. A piece may end within a character.
    pub(super) fn pieces(self, memory: Arc<Memory>) -> impl Stream<Item = Bytes> + Send {
        let parts: Vec<Part> = match self {
            Self::Value(value) => vec![Part::of(String::new(), value)],
            Self::State(vars) => {
                let values = vars.iter().enumerate().map(|(at, (name, value))| {
                    let separator = if at == 0 { '{' } else { ',' };
                    let name = Value::from(&**name);
                    Part::of(format!("{separator}{name}:"), Arc::clone(value))
                });
                let mut parts: Vec<Part> = values.collect();
                parts.push(Part {
                    before: if parts.is_empty() { "{}" } else { "}" }.to_owned(),
                    value: None,
                });
                parts
            }
        };
        let begun = (parts.into_iter(), Bytes::new(), Reserved::default());
        stream::unfold(begun, move |(mut parts, mut text, mut reserved)| {
            let memory = Arc::clone(&memory);
            async move {
                while text.is_empty() {
                    // The previous text is sent.
                    drop(reserved);
                    (text, reserved) = parts.next()?.text(&memory).await;
                }
                let piece = text.split_to(text.len().min(PIECE));
                Some((piece, (parts, text, reserved)))
            }
        })
    }
}

/// A value of a state with the text before it.
struct Part {
    before: String,
    value: Option<Arc<Value>>,
}

impl Part {
    const fn of(before: String, value: Arc<Value>) -> Self {
        Self {
            before,
            value: Some(value),
        }
    }

    async fn text(self, memory: &Arc<Memory>) -> (Bytes, Reserved) {
        let Self { mut before, value } = self;
        let Some(value) = value else {
            return (before.into(), Reserved::default());
        };
        let is_large = bounds::size(&value) > SHORT;
        let counted = Arc::clone(&value);
        let length = if is_large {
            task::blocking("measure a text", move || length(&counted)).await
        } else {
            length(&value)
        };
        let reserved = if is_large {
            Reserved::take(memory, length).await
        } else {
            Reserved::default()
        };
        let write = move || {
            before.reserve_exact(length);
            let mut text = before.into_bytes();
            write_all(&mut text, &*value);
            Bytes::from(text)
        };
        let text = if is_large {
            task::blocking("write a text", write).await
        } else {
            write()
        };
        (text, reserved)
    }
}

/// Length of the text of `value` in bytes.
fn length(value: &impl Serialize) -> usize {
    let mut length = Length(0);
    write_all(&mut length, value);
    length.0
}

/// The text of `value`, which has `length` bytes.
fn exactly(value: &impl Serialize, length: usize) -> String {
    let mut text = Vec::with_capacity(length);
    write_all(&mut text, value);
    String::from_utf8(text).expect("JSON is UTF-8")
}

fn write_all(out: &mut impl Write, value: &impl Serialize) {
    serde_json::to_writer(out, value).expect("values are plain data, and the writer cannot fail");
}

/// A writer that only counts.
struct Length(usize);

impl Write for Length {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn text(value: &impl Serialize, most: usize) -> Option<String> {
    let mut written = Limited {
        bytes: Vec::new(),
        most,
    };
    serde_json::to_writer(&mut written, value).ok()?;
    Some(String::from_utf8(written.bytes).expect("JSON is UTF-8"))
}

/// A writer that fails beyond `most` bytes.
struct Limited {
    bytes: Vec<u8>,
    most: usize,
}

impl Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > self.most {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
