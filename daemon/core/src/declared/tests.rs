use serde_json::{Map, Value, json};

use super::*;

type Object = Map<String, Value>;

impl<'m> Fields<'m> for &'m Object {
    type Error = String;

    fn find(&self, key: &str) -> Option<&'m Value> {
        self.get(key)
    }

    fn misfit(&self, key: &str, expected: &str, given: &Value) -> String {
        format!("{key}: {expected}: {given}")
    }
}

#[test]
fn values_are_read_by_type_and_null_is_absent() {
    let map = json!({
        "text": "a", "texts": ["a", "b"], "switch": true, "whole": 300, "null": null, "mixed": ["a", 1], "word": "b",
    });
    let map = &map.as_object().unwrap();
    assert_eq!(map.text("text"), Ok(Some("a")));
    assert_eq!(map.text("null"), Ok(None));
    assert_eq!(map.text("absent"), Ok(None));
    assert_eq!(map.text("switch"), Err("switch: a text: true".to_owned()));
    assert_eq!(map.texts("texts"), Ok(vec!["a", "b"]));
    assert_eq!(map.texts("absent"), Ok(Vec::new()));
    assert!(map.texts("mixed").is_err());
    assert_eq!(map.switch("switch"), Ok(Some(true)));
    assert_eq!(map.whole::<u32>("whole"), Ok(Some(300)));
    assert_eq!(
        map.whole::<u8>("whole"),
        Err("whole: a whole number from 0: 300".to_owned())
    );
    let words = [("a", 1), ("b", 2)];
    assert_eq!(map.word("word", &words, "a or b"), Ok(Some(2)));
    assert_eq!(
        map.word("whole", &words, "a or b"),
        Err("whole: a or b: 300".to_owned())
    );
    assert!(map.map("text", "a map").is_err());
}

#[test]
fn unknown_key_is_found_with_suggestion() {
    let map = json!({"x-any": 1, "retry": 2, "limit": 3});
    let map = map.as_object().unwrap();
    assert_eq!(
        unknown_key(map, ["retry", "limits"]),
        Some(("limit", Some("limits")))
    );
    assert_eq!(unknown_key(map, ["retry"]), Some(("limit", None)));
    assert_eq!(unknown_key(map, ["retry", "limit"]), None);
}
