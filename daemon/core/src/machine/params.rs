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

    /// A parameter that is true or false; `None` if it is not given.
    pub fn switch(&mut self, key: &str) -> Result<Option<bool>, Failure> {
        match self.take(key) {
            None => Ok(None),
            Some(Value::Bool(given)) => Ok(Some(given)),
            Some(_) => Err(self.not(key, "true or false")),
        }
    }

    /// The same, false if it is not given.
    pub fn flag(&mut self, key: &str) -> Result<bool, Failure> {
        Ok(self.switch(key)?.unwrap_or(false))
    }

    /// A text.
    pub fn text(&mut self, key: &str, wanted: &str) -> Result<Option<String>, Failure> {
        match self.take(key) {
            None => Ok(None),
            Some(Value::String(given)) => Ok(Some(given)),
            Some(_) => Err(self.not(key, wanted)),
        }
    }

    /// A whole number.
    pub fn whole(&mut self, key: &str) -> Result<Option<u64>, Failure> {
        let Some(given) = self.take(key) else {
            return Ok(None);
        };
        let number = given.as_u64();
        number
            .map(Some)
            .ok_or_else(|| self.not(key, "a whole number from 0"))
    }

    /// A whole number that is not large.
    pub fn number(&mut self, key: &str) -> Result<Option<u32>, Failure> {
        let number = self.whole(key)?.map(u32::try_from).transpose();
        number.map_err(|_large| self.not(key, "a whole number from 0 to 4294967295"))
    }

    /// A map.
    pub fn map(&mut self, key: &str) -> Result<Option<Object>, Failure> {
        match self.take(key) {
            None => Ok(None),
            Some(Value::Object(map)) => Ok(Some(map)),
            Some(_) => Err(self.not(key, "a map")),
        }
    }

    /// A list of patterns.
    pub fn patterns(&mut self, key: &str) -> Result<Option<Vec<String>>, Failure> {
        let list = self.take(key).map(serde_json::from_value);
        list.transpose()
            .map_err(|_misfit| self.not(key, "a list of patterns"))
    }

    fn not(&self, key: &str, wanted: &str) -> Failure {
        wrong(format!("`{key}` of {} is {wanted}", self.of))
    }
}

/// Parameters that do not fit.
pub fn wrong(problem: impl Into<String>) -> Failure {
    Failure::permanent("invalid_params", problem)
}
