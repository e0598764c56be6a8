//! Names that templates and conditions can read.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::vars::Vars;

/// A JSON object.
pub type Object = Map<String, Value>;

/// What a name stands for.
#[derive(Debug, Clone, Copy)]
pub enum Bound<'a> {
    /// One value.
    Value(&'a Value),
    /// A map of shared values; it becomes one value only where somebody asks for the whole.
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
    /// The value of `key` in a map.
    pub(super) fn get(self, key: &str) -> Option<&'a Value> {
        match self {
            Self::Value(value) => value.get(key),
            Self::Vars(vars) => vars.get(key),
        }
    }

    /// The whole as one value.
    pub(super) fn whole(self) -> Cow<'a, Value> {
        match self {
            Self::Value(value) => Cow::Borrowed(value),
            Self::Vars(vars) => Cow::Owned(vars.to_value()),
        }
    }
}

/// What templates and conditions may read: `state`, `inputs`, `result`, `_now`, a loop variable.
pub trait Scope {
    /// What `name` stands for.
    fn get(&self, name: &str) -> Option<Bound<'_>>;
    /// All names, for suggestions.
    fn names(&self) -> Vec<&str>;
}

/// A small scope over borrowed values; the first of two equal names wins.
#[derive(Debug, Clone, Default)]
pub struct Names<'a> {
    pub(super) entries: Vec<(&'a str, Bound<'a>)>,
}

impl<'a> Names<'a> {
    /// A scope of these names.
    pub fn new<B: Into<Bound<'a>>>(entries: impl IntoIterator<Item = (&'a str, B)>) -> Self {
        let entries = entries.into_iter();
        Self {
            entries: entries.map(|(name, bound)| (name, bound.into())).collect(),
        }
    }

    /// The same scope with one name more.
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

/// Returns true for the names that an expression may begin with at some place.
pub type IsRoot<'a> = &'a dyn Fn(&str) -> bool;
