//! Reading the values of a script, each with its place in the text.

use rye_core::error::excerpt;
use rye_core::yaml::{Document, Fault, Position, push_segment};
use serde_json::Value;

/// A value of a script.
#[derive(Clone)]
pub(super) struct Node<'d> {
    document: &'d Document,
    /// Its JSON pointer.
    at: String,
    value: &'d Value,
}

impl<'d> Node<'d> {
    /// The whole document.
    pub(super) fn root(document: &'d Document) -> Self {
        Self {
            document,
            at: String::new(),
            value: &document.value,
        }
    }

    /// What it holds, whatever that is.
    pub(super) fn value(&self) -> &'d Value {
        self.value
    }

    /// Its line.
    pub(super) fn line(&self) -> usize {
        self.document.position(&self.at).line
    }

    /// An error at its place.
    pub(super) fn wrong(&self, message: impl Into<String>) -> Fault {
        fault(self.document.position(&self.at), message)
    }

    /// Its entries, if it is a list of at least one.
    pub(super) fn entries(&self) -> Result<Vec<Self>, Fault> {
        let entries = self.value.as_array().filter(|entries| !entries.is_empty());
        let entries = entries
            .ok_or_else(|| self.wrong(format!("{} is no list with entries", self.name())))?;
        let entries = entries.iter().enumerate();
        Ok(entries
            .map(|(index, value)| self.below(&index.to_string(), value))
            .collect())
    }

    /// Refuses it if it is no mapping, or has a key that is not among `known`.
    pub(super) fn keys(&self, known: &[&str]) -> Result<(), Fault> {
        let map = self.value.as_object();
        let map = map.ok_or_else(|| {
            self.wrong(format!(
                "{} is no mapping of {}",
                self.name(),
                known.join(", ")
            ))
        })?;
        match map.keys().find(|key| !known.contains(&key.as_str())) {
            None => Ok(()),
            Some(key) => {
                let mut at = self.at.clone();
                push_segment(&mut at, key);
                Err(fault(
                    self.document.key_position(&at),
                    format!(
                        "{} has no key `{}`: it has {}",
                        self.name(),
                        excerpt(key),
                        known.join(", ")
                    ),
                ))
            }
        }
    }

    /// The value of a key.
    pub(super) fn get(&self, key: &str) -> Option<Self> {
        self.value.get(key).map(|value| self.below(key, value))
    }

    /// The value of a key, read by `read`.
    pub(super) fn read<T>(
        &self,
        key: &str,
        read: impl FnOnce(&Self) -> Result<T, Fault>,
    ) -> Result<Option<T>, Fault> {
        self.get(key).map(|node| read(&node)).transpose()
    }

    /// Its key and the value of it, if it has just one.
    pub(super) fn pair(&self) -> Option<(&'d str, Self)> {
        let object = self.value.as_object().filter(|object| object.len() == 1)?;
        let (key, value) = object.iter().next()?;
        Some((key, self.below(key, value)))
    }

    /// Its text.
    pub(super) fn text(&self) -> Result<String, Fault> {
        let text = self.value.as_str().map(ToOwned::to_owned);
        text.ok_or_else(|| self.wrong(format!("{} is no text: put it in quotes", self.name())))
    }

    /// Its number, which is at most `most`.
    pub(super) fn number<N>(&self, most: N) -> Result<N, Fault>
    where
        N: TryFrom<u64> + Copy + PartialOrd + std::fmt::Display,
    {
        let number = self
            .value
            .as_u64()
            .and_then(|number| N::try_from(number).ok());
        let number = number.filter(|number| *number <= most);
        number.ok_or_else(|| self.wrong(format!("{} is no number from 0 to {most}", self.name())))
    }

    /// Whether it is true.
    pub(super) fn flag(&self) -> Result<bool, Fault> {
        let flag = self.value.as_bool();
        flag.ok_or_else(|| self.wrong(format!("{} is neither true nor false", self.name())))
    }

    fn below(&self, segment: &str, value: &'d Value) -> Self {
        let mut at = self.at.clone();
        push_segment(&mut at, segment);
        Self {
            document: self.document,
            at,
            value,
        }
    }

    fn name(&self) -> String {
        if self.at.is_empty() {
            "the script".to_owned()
        } else {
            format!("`{}`", self.at)
        }
    }
}

fn fault(at: Position, message: impl Into<String>) -> Fault {
    Fault {
        message: message.into(),
        line: at.line,
        column: at.column,
    }
}
