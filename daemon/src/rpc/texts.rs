//! States and outputs of runs in answers, as JSON.
//!
//! A state takes up to 64 MiB, and clients of most languages refuse messages over 4 MiB. So all texts of one answer
//! have at most [`MOST`] bytes; an answer states which texts it omits. `Runs.State` sends any of them in pieces. There, each
//! value of a state is serialized when the client takes it, so the whole text is never in memory.

use std::io::{self, Write};
use std::sync::Arc;

use bytes::Bytes;
use rye_core::bounds;
use rye_core::expr::Vars;
use rye_core::model::Run;
use rye_host::task;
use rye_proto::v1;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::{Semaphore, SemaphorePermit};

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

/// Turns of answers with a text of a large value; others wait.
static LARGE: Semaphore = Semaphore::const_new(MOST_LARGE);

/// Bytes that an answer has left for texts.
#[derive(Debug)]
pub(super) struct Texts {
    left: usize,
    /// Turn of this answer, once it has a text of a large value.
    turn: Option<SemaphorePermit<'static>>,
}

impl Default for Texts {
    fn default() -> Self {
        Self {
            left: MOST,
            turn: None,
        }
    }
}

impl Texts {
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
            if self.turn.is_none() {
                self.turn = LARGE.acquire().await.ok();
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
    pub(super) fn pieces(self) -> Box<dyn Iterator<Item = Bytes> + Send> {
        let values: Box<dyn Iterator<Item = Bytes> + Send> = match self {
            Self::Value(value) => Box::new(std::iter::once_with(move || value.to_string().into())),
            Self::State(vars) => {
                let values: Vec<_> = vars
                    .iter()
                    .map(|(name, value)| (Arc::clone(name), Arc::clone(value)))
                    .collect();
                let end: &[u8] = if values.is_empty() { b"{}" } else { b"}" };
                let values = values.into_iter().enumerate().map(|(at, (name, value))| {
                    let separator = if at == 0 { '{' } else { ',' };
                    let name = Value::from(&*name);
                    Bytes::from(format!("{separator}{name}:{value}"))
                });
                Box::new(values.chain(std::iter::once(Bytes::from_static(end))))
            }
        };
        Box::new(values.flat_map(|mut text| {
            std::iter::from_fn(move || {
                let length = text.len().min(PIECE);
                (length > 0).then(|| text.split_to(length))
            })
        }))
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
