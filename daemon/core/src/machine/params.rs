//! Parameters of a call that starts a run, taken one by one.

use serde_json::Value;

use crate::model::{Failure, Object};

/// The remaining parameters of a call. `null` means not given.
///
/// **Failure.** A value of the wrong type has the code `invalid_params`, and is named.
#[derive(Debug)]
pub struct Params {
    left: Object,
    of: &'static str,
}

impl Params {
    /// Wraps the parameters of an action; `of` names its object for messages: `a graph`.
    pub const fn new(left: Object, of: &'static str) -> Self {
        Self { left, of }
    }

    /// Returns the parameters that were not taken.
    pub fn into_rest(self) -> Object {
        self.left
    }

    /// Returns the names of the parameters that were not taken.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.left.keys().map(String::as_str)
    }

    pub fn take(&mut self, key: &str) -> Option<Value> {
        self.left.remove(key).filter(|given| !given.is_null())
    }

    /// Takes a parameter by `read`, which returns `None` for a value that is not `expected`.
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

    /// Takes a boolean; `None` if it is not given.
    pub fn switch(&mut self, key: &str) -> Result<Option<bool>, Failure> {
        self.read(key, "true or false", |given| given.as_bool())
    }

    /// Takes a boolean; false if it is not given.
    pub fn flag(&mut self, key: &str) -> Result<bool, Failure> {
        Ok(self.switch(key)?.unwrap_or(false))
    }

    pub fn text(&mut self, key: &str, expected: &str) -> Result<Option<String>, Failure> {
        self.read(key, expected, |given| serde_json::from_value(given).ok())
    }

    /// Takes a whole number up to 64 bits.
    pub fn whole(&mut self, key: &str) -> Result<Option<u64>, Failure> {
        self.read(key, "a whole number from 0", |given| given.as_u64())
    }

    /// Takes a whole number up to 32 bits.
    pub fn number(&mut self, key: &str) -> Result<Option<u32>, Failure> {
        self.read(key, "a whole number from 0 to 4294967295", |given| {
            u32::try_from(given.as_u64()?).ok()
        })
    }

    pub fn map(&mut self, key: &str) -> Result<Option<Object>, Failure> {
        self.read(key, "a map", |given| serde_json::from_value(given).ok())
    }

    /// Takes a list of patterns.
    pub fn patterns(&mut self, key: &str) -> Result<Option<Vec<String>>, Failure> {
        self.read(key, "a list of patterns", |given| {
            serde_json::from_value(given).ok()
        })
    }
}

/// Makes the failure of wrong parameters.
pub fn wrong(problem: impl Into<String>) -> Failure {
    Failure::permanent("invalid_params", problem)
}
