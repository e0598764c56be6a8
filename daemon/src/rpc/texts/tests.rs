use proptest::prelude::*;
use serde_json::json;

use super::*;

fn whole(json: Json) -> String {
    let pieces: Vec<Bytes> = json.pieces().collect();
    String::from_utf8(pieces.concat()).unwrap()
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
        prop_assert_eq!(whole(Json::State(vars.clone())), vars.to_json());
        prop_assert_eq!(whole(Json::Value(Arc::new(output.clone()))), output.to_string());
    }
}

#[test]
fn state_is_sent_in_pieces_of_at_most_one_value() {
    let long = json!("é".repeat(PIECE));
    let vars: Vars = ["a", "b", "c"]
        .into_iter()
        .map(|name| (Arc::from(name), Arc::new(long.clone())))
        .collect();
    let pieces: Vec<Bytes> = Json::State(vars.clone()).pieces().collect();
    assert!(pieces.iter().all(|piece| piece.len() <= PIECE));
    assert_eq!(String::from_utf8(pieces.concat()).unwrap(), vars.to_json());
}

#[tokio::test]
async fn texts_beyond_bound_are_omitted_and_later_fitting_ones_sent() {
    let mut texts = Texts {
        left: 10,
        ..Texts::default()
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
    let mut texts = Texts::default();
    assert_eq!(texts.text(json(long.clone())).await, Some(long.to_string()));
}

#[test]
fn reference_names_text_bound() {
    let limits = rye_pages::Table::read("docs/reference.md", "limits");
    let most = format!("{} MiB as JSON", MOST >> 20);
    limits.assert_cell("states and outputs of an answer", "is", most);
}

#[tokio::test]
async fn texts_of_large_values_wait_for_their_turn_and_others_do_not() {
    let json = |bytes| Some(Json::Value(Arc::new(Value::from("x".repeat(bytes)))));
    let mut made = Vec::new();
    for _ in 0..MOST_LARGE {
        let mut texts = Texts::default();
        // The turn of an answer is for all its texts.
        for _ in 0..2 {
            assert!(texts.text(json(SHORT + 1)).await.is_some());
        }
        made.push(texts);
    }
    let mut late = Texts::default();
    let mut text = std::pin::pin!(late.text(json(SHORT + 1)));
    assert!(futures_util::poll!(text.as_mut()).is_pending());
    assert!(Texts::default().text(json(9)).await.is_some());
    made.pop();
    assert!(text.await.is_some());
}
