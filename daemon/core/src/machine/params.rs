//! Parameters of a call that say how a run is to go, taken out of what else there is, one by one.

use serde_json::Value;

use crate::model::{Failure, Object};

/// Parameters of a call, as far as nobody has taken them. `null` means not given.
///
/// **Failure.** A value of the wrong type has the code `invalid_params`, and is named.
#[derive(Debug)]
pub struct Params {
    left: Object,
    of: &'static str,
}

impl Params {
    /// The parameters of an action on what `of` names: `a graph`.
    pub const fn new(left: Object, of: &'static str) -> Self {
        Self { left, of }
    }

    /// What nobody has taken.
    pub fn into_rest(self) -> Object {
        self.left
    }

    /// The names of what nobody has taken.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.left.keys().map(String::as_str)
    }

    /// A parameter of any type.
    pub fn take(&mut self, key: &str) -> Option<Value> {
        self.left.remove(key).filter(|given| !given.is_null())
    }

    /// A parameter as `read` reads it, which returns `None` for what is not `expected`.
    fn read<T>(
        &mut self,
        key: &str,
        expected: &str,
        read: impl FnOnce(Value) -> Option<T>,
    ) -> Result<Option<T>, Failure> {
        let Some(given) = self.take(key) else {
            return Ok(None);
        };
        let read = read(given);
        read.map(Some)
            .ok_or_else(|| wrong(format!("`{key}` of {} is {expected}", self.of)))
    }

    /// A parameter that is true or false; `None` if it is not given.
    pub fn switch(&mut self, key: &str) -> Result<Option<bool>, Failure> {
        self.read(key, "true or false", |given| given.as_bool())
    }

    /// The same, false if it is not given.
    pub fn flag(&mut self, key: &str) -> Result<bool, Failure> {
        Ok(self.switch(key)?.unwrap_or(false))
    }

    /// A text.
    pub fn text(&mut self, key: &str, expected: &str) -> Result<Option<String>, Failure> {
        self.read(key, expected, |given| serde_json::from_value(given).ok())
    }

    /// A whole number.
    pub fn whole(&mut self, key: &str) -> Result<Option<u64>, Failure> {
        self.read(key, "a whole number from 0", |given| given.as_u64())
    }

    /// A whole number that is not large.
    pub fn number(&mut self, key: &str) -> Result<Option<u32>, Failure> {
        self.read(key, "a whole number from 0 to 4294967295", |given| {
            u32::try_from(given.as_u64()?).ok()
        })
    }

    /// A map.
    pub fn map(&mut self, key: &str) -> Result<Option<Object>, Failure> {
        self.read(key, "a map", |given| serde_json::from_value(given).ok())
    }

    /// A list of patterns.
    pub fn patterns(&mut self, key: &str) -> Result<Option<Vec<String>>, Failure> {
        self.read(key, "a list of patterns", |given| {
            serde_json::from_value(given).ok()
        })
    }
}

/// Parameters that do not fit.
pub fn wrong(problem: impl Into<String>) -> Failure {
    Failure::permanent("invalid_params", problem)
}
