//! Maps of the configuration, and the reporting of their faults.

use serde_json::Value;

use crate::declared::{Fields, ITEM, OF_THE_ORIGINAL};
use crate::model::Object;
use crate::pattern::unknown_key;

/// The key under which the merge of the configuration records the space of origin of a list entry.
pub const ORIGIN: &str = "_space";

/// Describes a fault in the file `section`, at an entry of that kind if there is one, for people.
pub(super) fn fault(section: &str, what: Option<(&str, &Value)>, problem: &str) -> String {
    let item = format!("config:agent/{section}");
    let place = what.map_or_else(String::new, |(kind, entry)| {
        let id = entry.get("id").and_then(Value::as_str).unwrap_or("?");
        let space = entry.get(ORIGIN).and_then(Value::as_str);
        let space = space.map_or_else(String::new, |space| format!(" of the {space} space"));
        format!(" {kind} `{id}`{space}:")
    });
    format!(
        "`{item}` (`.ai/config/agent/{section}.yaml`):{place} {problem}; fix the file and run `ryectl sign {item}`"
    )
}

/// A map of a configuration file.
#[derive(Debug, Clone)]
pub(super) struct ConfigSection<'c> {
    /// The name of the file.
    section: &'static str,
    /// Keys from the top, each with a dot after it.
    path: String,
    map: &'c Object,
}

impl<'c> ConfigSection<'c> {
    /// Opens the file `section`, with no other keys than those of every file, `known` and `inert`; `None` if it is
    /// absent. Keys without effect are added to `ignored`.
    pub(super) fn file(
        section: &'static str,
        value: &'c Value,
        known: &[&str],
        inert: &[&str],
        ignored: &mut Vec<String>,
    ) -> Result<Option<Self>, String> {
        let map = match value {
            Value::Null => return Ok(None),
            Value::Object(map) => map,
            Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                return Err(fault(section, None, "it holds no map"));
            }
        };
        let inert = inert.iter().chain(&OF_THE_ORIGINAL).copied();
        let known = known.iter().chain(ITEM.0).copied().chain(inert.clone());
        if let Some(problem) = unknown_key(map, known) {
            return Err(fault(section, None, &problem));
        }
        let file = Self {
            section,
            path: String::new(),
            map,
        };
        file.ignore(inert, ignored);
        Ok(Some(file))
    }

    /// Opens the map `key`, which may have these keys only.
    pub(super) fn part(&self, key: &str, known: &[&str]) -> Result<Option<Self>, String> {
        let expected = format!("a map with {}", known.join(", "));
        let Some(map) = self.map(key, &expected)? else {
            return Ok(None);
        };
        let path = format!("{}{key}", self.path);
        match unknown_key(map, known.iter().copied()) {
            Some(problem) => Err(self.fault(&format!("`{path}`: {problem}"))),
            None => Ok(Some(Self {
                section: self.section,
                path: format!("{path}."),
                map,
            })),
        }
    }

    /// Returns the entries of the list `key`; none if it is absent.
    pub(super) fn entries(&self, key: &str) -> Result<&'c [Value], String> {
        match self.given(key) {
            None => Ok(&[]),
            Some(Value::Array(list)) => Ok(list),
            Some(_) => Err(self.fault(&format!("`{key}` is not a list"))),
        }
    }

    /// Records which of `keys` are present without effect.
    pub(super) fn ignore<'k>(
        &self,
        keys: impl IntoIterator<Item = &'k str>,
        ignored: &mut Vec<String>,
    ) {
        let (section, path) = (self.section, &self.path);
        let there = keys.into_iter().filter(|key| self.map.contains_key(*key));
        ignored.extend(there.map(|key| {
            format!("`config:agent/{section}`: `{path}{key}` has no effect; nothing here reads it (no_effect)")
        }));
    }

    /// Describes a fault of the file.
    pub(super) fn fault(&self, problem: &str) -> String {
        fault(self.section, None, problem)
    }
}

impl<'c> Fields<'c> for ConfigSection<'c> {
    type Error = String;

    fn find(&self, key: &str) -> Option<&'c Value> {
        self.map.get(key)
    }

    fn misfit(&self, key: &str, expected: &str, given: &Value) -> String {
        self.fault(&format!("`{}{key}` is {expected}, not {given}", self.path))
    }
}
