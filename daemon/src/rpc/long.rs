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
use crate::task;

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
    own: Vec<Text>,
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
        let mut long = Vec::new();
        let state = record.vars().cloned().map(Json::State);
        let state_json = self.text(STATE_OF_RUN, state, &mut long).await?;
        let output = output(record).cloned().map(Json::Value);
        let output_json = self.text(OUTPUT_OF_RUN, output, &mut long).await?;
        self.of_runs.push(long);
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
        let mut own = Vec::new();
        let state = Json::State(vars.clone());
        let state_json = this.text(STATE, Some(state), &mut own).await?;
        this.own = own;
        Ok(this.answer(v1::StateResponse { state_json, seq }))
    }

    /// `answer`, which gets its long texts on its way.
    pub(super) fn answer<T>(self, answer: T) -> Response<T> {
        let mut response = Response::new(answer);
        let is_long = |texts: &Vec<Text>| !texts.is_empty();
        if is_long(&self.own) || self.of_runs.iter().any(is_long) {
            response.extensions_mut().insert(self);
        }
        response
    }

    /// The text of `json`; if it is long, it is left to `long`, and this is empty.
    async fn text(
        &mut self,
        field: u32,
        json: Option<Json>,
        long: &mut Vec<Text>,
    ) -> Result<String, Status> {
        let Some(json) = json else {
            return Ok(String::new());
        };
        if json.memory() <= SHORT {
            let text = json.text();
            self.count(text.len())?;
            return Ok(text);
        }
        let measured = json.clone();
        let bytes = task::blocking("measure a long text", move || measured.length()).await;
        self.count(bytes)?;
        long.push(Text { field, json, bytes });
        Ok(String::new())
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
        for text in self.own {
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

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use proptest::prelude::*;
    use prost::Message;
    use prost_types::FileDescriptorSet;
    use serde_json::json;
    use tonic::Code;

    use super::*;

    /// `message` as tonic sends it, with trailers behind it.
    fn sent(message: &impl Message) -> Body {
        let message = message.encode_to_vec();
        let length = u32::try_from(message.len()).expect("a short message");
        let prefixed = [&[0][..], &length.to_be_bytes(), &message].concat();
        let trailers = http::HeaderMap::from_iter([(
            http::HeaderName::from_static("grpc-status"),
            http::HeaderValue::from_static("0"),
        )]);
        let frames = [
            Frame::data(Bytes::from(prefixed)),
            Frame::trailers(trailers),
        ];
        Body::new(StreamBody::new(stream::iter(frames.map(Ok::<_, Status>))))
    }

    /// What a client gets of `body`, a frame at a time.
    fn taken(body: Body) -> Vec<Frame<Bytes>> {
        let frames = http_body_util::BodyStream::new(body).try_collect::<Vec<_>>();
        let frames = frames.now_or_never().expect("nothing is waited for");
        frames.expect("the answer can be sent")
    }

    /// The message of `frames`, which end with the trailers.
    fn read<M: Message + Default>(mut frames: Vec<Frame<Bytes>>) -> M {
        let trailers = frames.pop().and_then(|last| last.into_trailers().ok());
        assert_eq!(trailers.expect("trailers")["grpc-status"], "0");
        let data = frames
            .into_iter()
            .map(|frame| frame.into_data().expect("data before the trailers"));
        let bytes = data.collect::<Vec<_>>().concat();
        let (prefix, message) = bytes.split_at(PREFIX);
        let length = u32::try_from(message.len()).expect("a short message");
        assert_eq!(prefix, [&[0][..], &length.to_be_bytes()].concat());
        M::decode(message).expect("a message")
    }

    fn filled(body: Body, long: Long) -> Vec<Frame<Bytes>> {
        let mut response = http::Response::new(body);
        response.extensions_mut().insert(long);
        taken(fill(response).into_body())
    }

    fn long(field: u32, json: Json) -> Text {
        let bytes = json.length();
        Text { field, json, bytes }
    }

    /// A run of an answer: what is in the message, and what is put into it.
    fn a_run() -> impl Strategy<Value = (v1::Run, Option<Json>, Option<Json>)> {
        let values = prop_oneof![
            ".{0,200}".prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            Just(json!({"\u{0}": [null, true, "\"\\"]})),
        ];
        let state = prop::collection::vec((".{0,4}", values.clone()), 0..4);
        let state = state.prop_map(|entries| {
            let entries = entries.into_iter();
            let entries = entries.map(|(name, value)| (Arc::from(name), Arc::new(value)));
            Json::State(entries.collect())
        });
        let output = values.prop_map(|value| Json::Value(Arc::new(value)));
        (
            "[a-z]{0,300}",
            any::<u64>(),
            prop::option::of(state),
            prop::option::of(output),
        )
            .prop_map(|(run_id, seq, state, output)| {
                let run = v1::Run {
                    run_id,
                    seq,
                    ..v1::Run::default()
                };
                (run, state, output)
            })
    }

    proptest! {
        #[test]
        fn an_answer_with_texts_put_into_it_is_the_one_that_held_them(
            runs in prop::collection::vec(a_run(), 0..5),
            timed_out in any::<bool>(),
        ) {
            let mut long_ones = Long::default();
            let (mut whole, mut brief) = (Vec::new(), Vec::new());
            for (run, state, output) in runs {
                let text = |json: &Option<Json>| json.as_ref().map(Json::text).unwrap_or_default();
                whole.push(v1::Run {
                    state_json: text(&state),
                    output_json: text(&output),
                    ..run.clone()
                });
                brief.push(run);
                let state = state.map(|json| long(STATE_OF_RUN, json));
                let output = output.map(|json| long(OUTPUT_OF_RUN, json));
                long_ones.of_runs.push(state.into_iter().chain(output).collect());
            }
            let brief = v1::WaitResponse { runs: brief, timed_out };
            let read: v1::WaitResponse = read(filled(sent(&brief), long_ones));
            prop_assert_eq!(read, v1::WaitResponse { runs: whole, timed_out });
        }
    }

    #[tokio::test]
    async fn a_state_is_sent_a_value_at_a_time() {
        let value = "x".repeat(SHORT);
        let vars: Vars = (0..40)
            .map(|at| (Arc::from(format!("v{at}")), Arc::new(json!(value))))
            .collect();
        let answer = Long::state(&vars, 9).await.expect("a short answer");
        let (_, brief, extensions) = answer.into_parts();
        assert!(brief.state_json.is_empty());
        let long = extensions.get::<Long>().expect("a long text");
        let frames = filled(sent(&brief), long.clone());
        let longest = frames
            .iter()
            .filter_map(Frame::data_ref)
            .map(Bytes::len)
            .max();
        assert!(longest < Some(SHORT + 100), "{longest:?}");
        let read: v1::StateResponse = read(frames);
        assert_eq!((read.state_json, read.seq), (vars.to_json(), 9));
    }

    #[tokio::test]
    async fn texts_that_are_too_long_together_are_refused() {
        let short = Some(Json::Value(Arc::new(json!("1234"))));
        let mut long = Long {
            bytes: MOST - 6,
            ..Long::default()
        };
        let mut none = Vec::new();
        let limits = rye_pages::Table::read("docs/reference.md", "limits");
        let most = format!("{} MiB as JSON", MOST >> 20);
        limits.assert_cell("states and outputs of an answer", "is", most);

        let last = long.text(STATE, short.clone(), &mut none).await;
        assert_eq!(last.expect("there is room"), "\"1234\"");
        let refused = long.text(STATE, short, &mut none).await;
        let refused = refused.expect_err("there is no room");
        let reason = refused.metadata().get("rye-reason");
        let reason = reason.and_then(|reason| reason.to_str().ok());
        assert_eq!(
            (refused.code(), reason),
            (Code::ResourceExhausted, Some("exhausted"))
        );
    }

    #[test]
    fn an_answer_that_failed_keeps_its_trailers_and_gets_nothing() {
        let trailers = http::HeaderMap::from_iter([(
            http::HeaderName::from_static("grpc-status"),
            http::HeaderValue::from_static("13"),
        )]);
        let frames = stream::iter([Ok::<_, Status>(Frame::trailers(trailers))]);
        let long = Long {
            own: vec![long(STATE, Json::State(Vars::default()))],
            ..Long::default()
        };
        let frames = filled(Body::new(StreamBody::new(frames)), long);
        let [only] = &frames[..] else {
            panic!("{frames:?}")
        };
        assert_eq!(only.trailers_ref().expect("trailers")["grpc-status"], "13");
    }

    #[test]
    fn the_fields_are_those_of_the_contract() {
        let files = FileDescriptorSet::decode(rye_proto::FILE_DESCRIPTOR_SET).expect("descriptors");
        let messages: Vec<_> = files
            .file
            .iter()
            .flat_map(|file| &file.message_type)
            .collect();
        let number = |message: &str, field: &str| {
            let message = messages.iter().find(|one| one.name() == message);
            let mut fields = message.expect("a message").field.iter();
            let field = fields.find(|one| one.name() == field).expect("a field");
            u32::try_from(field.number()).expect("a number")
        };
        assert_eq!(number("Run", "state_json"), STATE_OF_RUN);
        assert_eq!(number("Run", "output_json"), OUTPUT_OF_RUN);
        assert_eq!(number("StateResponse", "state_json"), STATE);
        for message in &messages {
            let runs = message
                .field
                .iter()
                .filter(|field| field.type_name() == ".rye.v1.Run");
            for field in runs {
                let name = (message.name(), field.name());
                assert_eq!(u32::try_from(field.number()), Ok(RUN), "{name:?}");
            }
        }
    }
}
