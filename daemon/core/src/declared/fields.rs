//! Readers of the values of one map.

use serde_json::{Map, Value};

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
