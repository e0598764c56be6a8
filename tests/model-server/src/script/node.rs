//! Reads the values of a script, each with its position in the text.

use rye_core::error::excerpt;
use rye_core::yaml::{Document, Position, YamlFault, push_segment};
use serde_json::Value;

#[derive(Clone)]
pub(super) struct Node<'d> {
    document: &'d Document,
    /// JSON pointer of the value.
    at: String,
    value: &'d Value,
}

impl<'d> Node<'d> {
    pub(super) fn root(document: &'d Document) -> Self {
        Self {
            document,
            at: String::new(),
            value: &document.value,
        }
    }

    pub(super) fn value(&self) -> &'d Value {
        self.value
    }

    pub(super) fn line(&self) -> usize {
        self.document.position(&self.at).line
    }

    /// Returns an error at the position of this value.
    pub(super) fn wrong(&self, message: impl Into<String>) -> YamlFault {
        fault(self.document.position(&self.at), message)
    }

    /// Returns the entries of a list with at least one.
    pub(super) fn entries(&self) -> Result<Vec<Self>, YamlFault> {
        let entries = self.value.as_array().filter(|entries| !entries.is_empty());
        let entries = entries
            .ok_or_else(|| self.wrong(format!("{} is no list with entries", self.name())))?;
        let entries = entries.iter().enumerate();
        Ok(entries
            .map(|(index, value)| self.below(&index.to_string(), value))
            .collect())
    }

    /// Refuses a value that is no mapping, or has a key that is not in `known`.
    pub(super) fn keys(&self, known: &[&str]) -> Result<(), YamlFault> {
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

    pub(super) fn get(&self, key: &str) -> Option<Self> {
        self.value.get(key).map(|value| self.below(key, value))
    }

    /// Returns the value of a key, parsed by `read`.
    pub(super) fn read<T>(
        &self,
        key: &str,
        read: impl FnOnce(&Self) -> Result<T, YamlFault>,
    ) -> Result<Option<T>, YamlFault> {
        self.get(key).map(|node| read(&node)).transpose()
    }

    /// Returns key and value of a mapping with exactly one key.
    pub(super) fn pair(&self) -> Option<(&'d str, Self)> {
        let object = self.value.as_object().filter(|object| object.len() == 1)?;
        let (key, value) = object.iter().next()?;
        Some((key, self.below(key, value)))
    }

    pub(super) fn text(&self) -> Result<String, YamlFault> {
        let text = self.value.as_str().map(ToOwned::to_owned);
        text.ok_or_else(|| self.wrong(format!("{} is no text: put it in quotes", self.name())))
    }

    /// Returns a number from 0 to `most`.
    pub(super) fn number<N>(&self, most: N) -> Result<N, YamlFault>
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

    pub(super) fn flag(&self) -> Result<bool, YamlFault> {
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

fn fault(at: Position, message: impl Into<String>) -> YamlFault {
    YamlFault {
        message: message.into(),
        line: at.line,
        column: at.column,
    }
}
