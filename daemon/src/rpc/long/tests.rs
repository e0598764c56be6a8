//! Messages that get their long texts as they are sent.

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
    let limits = rye_pages::Table::read("docs/reference.md", "limits");
    let most = format!("{} MiB as JSON", MOST >> 20);
    limits.assert_cell("states and outputs of an answer", "is", most);

    let last = long.text(STATE, short.clone()).await;
    let (last, _) = last.expect("there is room");
    assert_eq!(last, "\"1234\"");
    let refused = long.text(STATE, short).await;
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
        own: Some(long(STATE, Json::State(Vars::default()))),
        ..Long::default()
    };
    let frames = filled(Body::new(StreamBody::new(frames)), long);
    assert_eq!(frames.len(), 1, "{frames:?}");
    let trailers = frames[0].trailers_ref().expect("trailers");
    assert_eq!(trailers["grpc-status"], "13");
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
