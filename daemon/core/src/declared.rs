//! Maps of declared files: closed lists of keys, and the types of values.
//!
//! **Owns** the check of keys with its suggestions, and the reading of one value by its key. A reader implements [`Fields`] for its maps and says in
//! its own form where a fault is. **Never** knows a file or a place.
//! **Failure.** The first fault ends the reading. A null counts as absent.

use serde_json::{Map, Value};

use crate::expr::nearest;

type Object = Map<String, Value>;

/// Readers of the values of one map.
pub trait Fields<'m> {
    /// The form of a fault.
    type Error;

    /// The value of `key`, null included.
    fn find(&self, key: &str) -> Option<&'m Value>;

    /// The fault that `given`, the value of `key`, is not `expected`, such as `a text`.
    fn misfit(&self, key: &str, expected: &str, given: &Value) -> Self::Error;

    /// The value of `key`, unless it is absent or null.
    fn given(&self, key: &str) -> Option<&'m Value> {
        self.find(key).filter(|value| !value.is_null())
    }

    /// The value of `key` as `read` reads it; `read` returns `None` for what is not `expected`.
    fn read<T>(
        &self,
        key: &str,
        expected: &str,
        read: impl FnOnce(&'m Value) -> Option<T>,
    ) -> Result<Option<T>, Self::Error> {
        let Some(value) = self.given(key) else {
            return Ok(None);
        };
        let read = read(value);
        read.map(Some)
            .ok_or_else(|| self.misfit(key, expected, value))
    }

    /// A text.
    fn text(&self, key: &str) -> Result<Option<&'m str>, Self::Error> {
        self.read(key, "a text", Value::as_str)
    }

    /// A list of texts; an absent one is empty.
    fn texts(&self, key: &str) -> Result<Vec<&'m str>, Self::Error> {
        let texts = self.read(key, "a list of texts", |value| {
            value.as_array()?.iter().map(Value::as_str).collect()
        })?;
        Ok(texts.unwrap_or_default())
    }

    /// True or false.
    fn switch(&self, key: &str) -> Result<Option<bool>, Self::Error> {
        self.read(key, "true or false", Value::as_bool)
    }

    /// A whole number that `N` holds.
    fn whole<N: TryFrom<u64>>(&self, key: &str) -> Result<Option<N>, Self::Error> {
        self.read(key, "a whole number from 0", |value| {
            N::try_from(value.as_u64()?).ok()
        })
    }

    /// The value that the word under `key` names; the error lists `expected`.
    fn word<T: Copy>(
        &self,
        key: &str,
        words: &[(&str, T)],
        expected: &str,
    ) -> Result<Option<T>, Self::Error> {
        self.read(key, expected, |value| {
            let found = words.iter().find(|(word, _)| value == word);
            found.map(|(_, value)| *value)
        })
    }

    /// A map.
    fn map(&self, key: &str, expected: &str) -> Result<Option<&'m Object>, Self::Error> {
        self.read(key, expected, Value::as_object)
    }
}

/// The first key of `map` that is neither `known` nor free (`x-…`), and the known one that it is near to.
pub fn unknown_key<'m, 'k>(
    map: &'m Object,
    known: impl IntoIterator<Item = &'k str, IntoIter: Clone>,
) -> Option<(&'m str, Option<&'k str>)> {
    let known = known.into_iter();
    let is_known = |key: &str| is_free(key) || known.clone().any(|known| known == key);
    let key = map.keys().find(|key| !is_known(key))?;
    Some((key, nearest(key, known)))
}

/// True for a key that every map may have and nothing reads.
pub fn is_free(key: &str) -> bool {
    key.starts_with("x-")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
    fn the_first_key_that_is_not_known_is_found_with_what_it_is_near_to() {
        let map = json!({"x-any": 1, "retry": 2, "limit": 3});
        let map = map.as_object().unwrap();
        assert_eq!(
            unknown_key(map, ["retry", "limits"]),
            Some(("limit", Some("limits")))
        );
        assert_eq!(unknown_key(map, ["retry"]), Some(("limit", None)));
        assert_eq!(unknown_key(map, ["retry", "limit"]), None);
    }
}
