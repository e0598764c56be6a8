//! Names that templates and conditions can read.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::vars::Vars;

pub type Object = Map<String, Value>;

/// Value of a name.
#[derive(Debug, Clone, Copy)]
pub enum Bound<'a> {
    Value(&'a Value),
    /// A map of shared values; it is copied into one value only when the whole is read.
    Vars(&'a Vars),
}

impl<'a> From<&'a Value> for Bound<'a> {
    fn from(value: &'a Value) -> Self {
        Self::Value(value)
    }
}

impl<'a> From<&'a Vars> for Bound<'a> {
    fn from(vars: &'a Vars) -> Self {
        Self::Vars(vars)
    }
}

impl<'a> Bound<'a> {
    pub(super) fn get(self, key: &str) -> Option<&'a Value> {
        match self {
            Self::Value(value) => value.get(key),
            Self::Vars(vars) => vars.get(key),
        }
    }

    /// Returns the whole as one value.
    pub(super) fn whole(self) -> Cow<'a, Value> {
        match self {
            Self::Value(value) => Cow::Borrowed(value),
            Self::Vars(vars) => Cow::Owned(vars.to_value()),
        }
    }
}

/// Readable names of templates and conditions: `state`, `inputs`, `result`, `_now`, a loop variable.
pub trait Scope {
    fn get(&self, name: &str) -> Option<Bound<'_>>;
    /// Returns all names, for suggestions.
    fn names(&self) -> Vec<&str>;
}

/// A small scope over borrowed values; the first of two equal names wins.
#[derive(Debug, Clone, Default)]
pub struct Names<'a> {
    pub(super) entries: Vec<(&'a str, Bound<'a>)>,
}

impl<'a> Names<'a> {
    pub fn new<B: Into<Bound<'a>>>(entries: impl IntoIterator<Item = (&'a str, B)>) -> Self {
        let entries = entries.into_iter();
        Self {
            entries: entries.map(|(name, bound)| (name, bound.into())).collect(),
        }
    }

    /// Adds a name to the scope.
    #[must_use]
    pub fn with(mut self, name: &'a str, bound: impl Into<Bound<'a>>) -> Self {
        self.entries.push((name, bound.into()));
        self
    }
}

impl Scope for Names<'_> {
    fn get(&self, name: &str) -> Option<Bound<'_>> {
        self.entries
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, bound)| *bound)
    }

    fn names(&self) -> Vec<&str> {
        self.entries.iter().map(|(name, _)| *name).collect()
    }
}

/// Returns true for the names that an expression may begin with at its position.
pub type IsRoot<'a> = &'a dyn Fn(&str) -> bool;
