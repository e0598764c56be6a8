use futures_util::StreamExt as _;
use http_body_util::Full;
use proptest::prelude::*;
use serde_json::json;

use super::*;

fn pieces(json: Json) -> Vec<Bytes> {
    let pieces = json.pieces(Arc::default()).collect();
    tokio::runtime::Builder::new_multi_thread()
        .enable_time()
        .build()
        .unwrap()
        .block_on(pieces)
}

fn joined(json: Json) -> String {
    String::from_utf8(pieces(json).concat()).unwrap()
}

fn a_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        ".{0,200}".prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        Just(json!({"\u{0}": [null, true, "\"\\"]})),
    ]
}

proptest! {
    #[test]
    fn joined_pieces_equal_text(state in prop::collection::vec((".{0,4}", a_value()), 0..4), output in a_value()) {
        let vars: Vars = state
            .into_iter()
            .map(|(name, value)| (Arc::from(name), Arc::new(value)))
            .collect();
        prop_assert_eq!(joined(Json::State(vars.clone())), vars.to_json());
        prop_assert_eq!(joined(Json::Value(Arc::new(output.clone()))), output.to_string());
    }
}

#[test]
fn state_is_sent_in_pieces_of_at_most_one_value() {
    let long = json!("é".repeat(PIECE));
    let vars: Vars = ["a", "b", "c"]
        .into_iter()
        .map(|name| (Arc::from(name), Arc::new(long.clone())))
        .collect();
    let pieces = pieces(Json::State(vars.clone()));
    assert!(pieces.iter().all(|piece| piece.len() <= PIECE));
    assert_eq!(String::from_utf8(pieces.concat()).unwrap(), vars.to_json());
}

#[tokio::test]
async fn texts_beyond_bound_are_omitted_and_later_fitting_ones_sent() {
    let mut texts = Texts {
        left: 10,
        ..texts_of()
    };
    let json = |value| Some(Json::Value(Arc::new(value)));
    assert_eq!(texts.text(None).await.as_deref(), Some(""));
    assert_eq!(texts.text(json(json!("123456789"))).await, None);
    assert_eq!(
        texts.text(json(json!("1234"))).await.as_deref(),
        Some(r#""1234""#)
    );
    assert_eq!(texts.text(json(json!("123"))).await, None);
    assert_eq!(
        texts.text(json(json!("12"))).await.as_deref(),
        Some(r#""12""#)
    );
    let long = json!("x".repeat(2 * SHORT));
    assert_eq!(texts.text(json(long.clone())).await, None);
    let mut texts = texts_of();
    assert_eq!(texts.text(json(long.clone())).await, Some(long.to_string()));
}

#[test]
fn reference_names_text_bound() {
    let limits = rye_pages::Table::read("docs/reference.md", "limits");
    let most = format!("{} MiB as JSON", MOST >> 20);
    limits.assert_cell("states and outputs of an answer", "is", most);
}

fn texts_of() -> Texts {
    Texts::new(Arc::default())
}

#[tokio::test]
async fn answers_with_large_values_wait_for_their_turn_and_others_do_not() {
    let json = |bytes| Some(Json::Value(Arc::new(Value::from("x".repeat(bytes)))));
    let large = || json(SHORT + 1);
    let mut made = Vec::new();
    for _ in 0..MOST_LARGE {
        let mut texts = texts_of();
        // The turn of an answer is for all its texts.
        for _ in 0..2 {
            assert!(texts.text(large()).await.is_some());
        }
        made.push(texts);
    }
    let mut late = texts_of();
    let mut text = std::pin::pin!(late.text(large()));
    assert!(futures_util::poll!(text.as_mut()).is_pending());
    assert!(texts_of().text(json(9)).await.is_some());
    made.pop();
    assert!(text.await.is_some());
}

#[tokio::test(start_paused = true)]
async fn texts_of_large_values_take_memory_until_sent() {
    let value = json!({"stdout": "\0".repeat(SHORT)});
    let length = value.to_string().len();
    assert!(length > 6 * SHORT);
    let memory = Arc::new(Memory::new(2 * COPIES * length));
    let (text, first) = whole(&memory, value.clone()).await;
    assert_eq!(text, value.to_string());
    assert_eq!((text.capacity(), memory.taken()), (length, COPIES * length));
    let mut response = http::Response::new(Body::new(Full::new(Bytes::from(text))));
    response.extensions_mut().insert(Arc::new(first));
    let response = until_sent(response);
    let (_, second) = whole(&memory, value.clone()).await;
    assert_eq!(memory.taken(), memory.most());
    // The third has its turn and waits for memory.
    let mut third = std::pin::pin!(whole(&memory, value.clone()));
    let waited = timeout(PATIENCE / 2, third.as_mut()).await;
    assert!(waited.is_err(), "{waited:?}");
    drop(response);
    let (_, third) = third.await;
    assert!(third.0.is_some());
    // It does not wait for ever.
    let (text, without) = whole(&memory, value.clone()).await;
    assert_eq!((text.len(), without.0.is_none()), (length, true));
    drop((second, third));
    assert_eq!(memory.taken(), 0);

    let mut pieces = std::pin::pin!(Json::Value(Arc::new(value)).pieces(Arc::clone(&memory)));
    assert!(pieces.next().await.is_some());
    assert_eq!(memory.taken(), length);
    while pieces.next().await.is_some() {}
    assert_eq!(memory.taken(), 0);
}
