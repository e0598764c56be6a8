//! Long JSON texts of answers: states and outputs that are written into a message while it is sent.
//!
//! A state takes up to 64 MiB. As a text, and once more as bytes of a message that the client has not read yet, an answer would take
//! twice that beside the record. So a handler leaves the fields of long texts empty, and attaches the values ([`Long`]); [`fill`], which all
//! answers pass, puts each text into its place as the connection takes it, **one value of a state at a time**. The client gets a
//! message like any other: the order of fields means nothing.
//!
//! **Order.** The length of a message is written before its content, so a text is measured by writing it to nowhere, away from the
//! runtime's workers. What is measured is what is sent: values are shared, and never change. **Failure.** Texts that are longer
//! together than [`MOST`] are refused before any is written.

use std::io::{self, Write};
use std::sync::Arc;

use bytes::{Buf as _, Bytes, BytesMut};
use futures_util::{Stream, StreamExt as _, TryStreamExt as _, stream};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use prost::encoding::{
    self, DecodeContext, WireType, decode_key, decode_varint, encode_key, encode_varint,
    encoded_len_varint, key_len,
};
use rye_core::bounds;
use rye_core::expr::Vars;
use rye_core::model::Run;
use rye_proto::v1;
use serde_json::Value;
use tonic::body::Body;
use tonic::codegen::http;
use tonic::{Response, Status};

use super::status::with_reason;
use rye_host::task;

#[cfg(test)]
mod tests;

/// Bytes that a value takes, up to which it is a text in the message: copies of it are no burden.
const SHORT: usize = 256 << 10;
/// Bytes of all texts of an answer. `ryectl` takes answers of 256 MiB.
const MOST: usize = 240 << 20;

/// The field of answers that holds a run, or several.
const RUN: u32 = 1;
/// The field of a run that holds its state.
const STATE_OF_RUN: u32 = 7;
/// The field of a run that holds its output.
const OUTPUT_OF_RUN: u32 = 8;
/// The field of an answer that is a state.
const STATE: u32 = 1;

/// What stands before a message: whether it is compressed, and its length.
const PREFIX: usize = 5;

/// The long texts of an answer, in the order of its runs.
#[derive(Debug, Clone, Default)]
pub(super) struct Long {
    /// Of each run.
    of_runs: Vec<Vec<Text>>,
    /// Of the answer itself.
    own: Option<Text>,
    /// How long all texts are together, short ones too.
    bytes: usize,
}

/// A long text.
#[derive(Debug, Clone)]
struct Text {
    /// The field that holds it.
    field: u32,
    json: Json,
    bytes: usize,
}

/// A value that is sent as JSON.
#[derive(Debug, Clone)]
enum Json {
    State(Vars),
    Value(Arc<Value>),
}

impl Long {
    /// `run` as the next one of the answer, with the state and the output of `record`.
    pub(super) async fn add(&mut self, run: v1::Run, record: &Run) -> Result<v1::Run, Status> {
        let state = record.vars().cloned().map(Json::State);
        let (state_json, state) = self.text(STATE_OF_RUN, state).await?;
        let output = output(record).cloned().map(Json::Value);
        let (output_json, output) = self.text(OUTPUT_OF_RUN, output).await?;
        self.of_runs.push(state.into_iter().chain(output).collect());
        Ok(v1::Run {
            state_json,
            output_json,
            ..run
        })
    }

    /// The answer of a state.
    pub(super) async fn state(
        vars: &Vars,
        seq: u64,
    ) -> Result<Response<v1::StateResponse>, Status> {
        let mut this = Self::default();
        let state = Json::State(vars.clone());
        let (state_json, long) = this.text(STATE, Some(state)).await?;
        this.own = long;
        Ok(this.answer(v1::StateResponse { state_json, seq }))
    }

    /// `answer`, which gets its long texts on its way.
    pub(super) fn answer<T>(self, answer: T) -> Response<T> {
        let mut response = Response::new(answer);
        if self.own.is_some() || self.of_runs.iter().any(|texts| !texts.is_empty()) {
            response.extensions_mut().insert(self);
        }
        response
    }

    /// What the message holds of `json` at first, and what it gets on its way: one of the two is nothing.
    async fn text(
        &mut self,
        field: u32,
        json: Option<Json>,
    ) -> Result<(String, Option<Text>), Status> {
        let Some(json) = json else {
            return Ok((String::new(), None));
        };
        if json.memory() <= SHORT {
            let text = json.text();
            self.count(text.len())?;
            return Ok((text, None));
        }
        let measured = json.clone();
        let bytes = task::blocking("measure a long text", move || measured.length()).await;
        self.count(bytes)?;
        Ok((String::new(), Some(Text { field, json, bytes })))
    }

    /// Takes so many bytes more.
    fn count(&mut self, bytes: usize) -> Result<(), Status> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes <= MOST {
            return Ok(());
        }
        let (are, most) = (self.bytes >> 20, MOST >> 20);
        let text = format!(
            "the states and outputs of this answer are longer than {most} MiB (at least {are}): ask for fewer runs at once"
        );
        Err(with_reason(Status::resource_exhausted(text), "exhausted"))
    }

    /// A message with its prefix, and all texts in their places.
    fn fill(self, mut message: Bytes) -> Result<Vec<Part>, Status> {
        let wrong = |_error| Status::internal("an answer of the daemon cannot be read by itself");
        if message.len() < PREFIX {
            return Err(Status::internal("an answer of the daemon has no length"));
        }
        message.advance(PREFIX);
        let mut filled = Filled::default();
        let mut of_runs = self.of_runs.into_iter();
        while message.has_remaining() {
            let before = message.clone();
            let (field, wire) = decode_key(&mut message).map_err(wrong)?;
            if field == RUN && wire == WireType::LengthDelimited && of_runs.len() > 0 {
                let length = decode_varint(&mut message).map_err(wrong)?;
                let length = usize::try_from(length).unwrap_or(usize::MAX);
                let run = message.split_to(length.min(message.len()));
                filled.nested(RUN, run, of_runs.next().unwrap_or_default());
            } else {
                let context = DecodeContext::default();
                encoding::skip_field(wire, field, &mut message, context).map_err(wrong)?;
                let read = before.len() - message.len();
                filled.bytes(before.slice(..read));
            }
        }
        if let Some(text) = self.own {
            filled.text(text);
        }
        filled.message()
    }
}

impl Json {
    /// What it takes in memory, roughly.
    fn memory(&self) -> usize {
        match self {
            Self::State(vars) => vars.bytes(),
            Self::Value(value) => bounds::size(value),
        }
    }

    fn text(&self) -> String {
        match self {
            Self::State(vars) => vars.to_json(),
            Self::Value(value) => value.to_string(),
        }
    }

    /// How long its text is.
    fn length(&self) -> usize {
        let mut counted = Counted(0);
        let written = match self {
            Self::State(vars) => serde_json::to_writer(&mut counted, vars),
            Self::Value(value) => serde_json::to_writer(&mut counted, value),
        };
        written.expect("values are plain data, and counting cannot fail");
        counted.0
    }

    /// Its text, in pieces that are made as they are asked for.
    fn pieces(self) -> Box<dyn Iterator<Item = Bytes> + Send> {
        match self {
            Self::Value(value) => {
                let text = std::iter::once_with(move || Bytes::from(value.to_string()));
                Box::new(text)
            }
            Self::State(vars) => {
                let values: Vec<_> = vars
                    .iter()
                    .map(|(name, value)| (Arc::clone(name), Arc::clone(value)))
                    .collect();
                let end: &[u8] = if values.is_empty() { b"{}" } else { b"}" };
                let values = values.into_iter().enumerate().map(|(at, (name, value))| {
                    let mark = if at == 0 { b'{' } else { b',' };
                    Bytes::from(entry(mark, &name, &value))
                });
                Box::new(values.chain(std::iter::once(Bytes::from_static(end))))
            }
        }
    }
}

/// A name and its value behind a mark, as JSON.
fn entry(mark: u8, name: &str, value: &Value) -> Vec<u8> {
    let mut text = vec![mark];
    let plain = "values are plain data";
    serde_json::to_writer(&mut text, name).expect(plain);
    text.push(b':');
    serde_json::to_writer(&mut text, value).expect(plain);
    text
}

/// What a run returned, or what a failed tool gave back all the same.
fn output(run: &Run) -> Option<&Arc<Value>> {
    run.output()
        .filter(|output| run.status().is_success() || !output.is_null())
}

/// Where a text is written to be measured.
struct Counted(usize);

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A part of a message.
enum Part {
    Bytes(Bytes),
    Text(Json),
}

impl Part {
    fn pieces(self) -> Box<dyn Iterator<Item = Bytes> + Send> {
        match self {
            Self::Bytes(bytes) => Box::new(std::iter::once(bytes)),
            Self::Text(json) => json.pieces(),
        }
    }
}

/// A message that gets its long texts.
#[derive(Default)]
struct Filled {
    parts: Vec<Part>,
    length: usize,
}

impl Filled {
    fn bytes(&mut self, bytes: Bytes) {
        self.length += bytes.len();
        self.parts.push(Part::Bytes(bytes));
    }

    /// What stands before the content of a field.
    fn opened(&mut self, field: u32, length: usize) {
        let mut open = BytesMut::new();
        encode_key(field, WireType::LengthDelimited, &mut open);
        encode_varint(wide(length), &mut open);
        self.bytes(open.freeze());
    }

    fn text(&mut self, text: Text) {
        self.opened(text.field, text.bytes);
        self.length += text.bytes;
        self.parts.push(Part::Text(text.json));
    }

    /// A message in the message, with long texts of its own.
    fn nested(&mut self, field: u32, message: Bytes, texts: Vec<Text>) {
        let of =
            |text: &Text| key_len(text.field) + encoded_len_varint(wide(text.bytes)) + text.bytes;
        let length = message.len() + texts.iter().map(of).sum::<usize>();
        self.opened(field, length);
        self.bytes(message);
        for text in texts {
            self.text(text);
        }
    }

    /// With its prefix.
    fn message(self) -> Result<Vec<Part>, Status> {
        let length = u32::try_from(self.length)
            .map_err(|_error| Status::internal("a message is longer than its length can say"))?;
        let mut prefix = BytesMut::with_capacity(PREFIX);
        prefix.extend_from_slice(&[0]);
        prefix.extend_from_slice(&length.to_be_bytes());
        let prefix = Part::Bytes(prefix.freeze());
        Ok(std::iter::once(prefix).chain(self.parts).collect())
    }
}

fn wide(length: usize) -> u64 {
    u64::try_from(length).expect("a length fits into 64 bits")
}

/// Puts the long texts of an answer into their places as it is sent.
pub(super) fn fill(mut response: http::Response<Body>) -> http::Response<Body> {
    match response.extensions_mut().remove::<Long>() {
        None => response,
        Some(long) => response.map(|body| Body::new(StreamBody::new(frames(body, long)))),
    }
}

fn frames(
    body: Body,
    long: Long,
) -> impl Stream<Item = Result<Frame<Bytes>, Status>> + Send + 'static {
    let filled = async move {
        let short = body.collect().await?;
        let trailers = short.trailers().cloned().map(Frame::trailers);
        let message = short.to_bytes();
        // An answer that failed has none.
        let parts = if message.is_empty() {
            Vec::new()
        } else {
            long.fill(message)?
        };
        let pieces = parts.into_iter().flat_map(Part::pieces).map(Frame::data);
        Ok::<_, Status>(stream::iter(pieces.chain(trailers)).map(Ok))
    };
    stream::once(filled).try_flatten()
}
