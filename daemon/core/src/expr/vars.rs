//! A map of shared values: the state of a run.

use std::sync::Arc;

use indexmap::IndexMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::bounds;

/// Values by name, in the order in which they were set. A clone shares every value with its original.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Vars(Arc<Held>);

#[derive(Debug, Clone, Default, PartialEq)]
struct Held {
    values: IndexMap<Arc<str>, Entry>,
    /// Sum of the sizes of all entries.
    bytes: usize,
}

/// A value and its size in memory, in bytes.
#[derive(Debug, Clone, PartialEq)]
struct Entry {
    value: Arc<Value>,
    bytes: usize,
}

impl Entry {
    fn new(name: &str, value: Arc<Value>) -> Self {
        let bytes = name.len() + bounds::size(&value);
        Self { value, bytes }
    }
}

impl Held {
    fn set(&mut self, name: Arc<str>, sized: Entry) {
        self.bytes += sized.bytes;
        if let Some(before) = self.values.insert(name, sized) {
            self.bytes -= before.bytes;
        }
    }
}

impl Vars {
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.values.get(name).map(|held| &*held.value)
    }

    pub fn share(&self, name: &str) -> Option<Arc<Value>> {
        self.0.values.get(name).map(|held| Arc::clone(&held.value))
    }

    pub fn is_empty(&self) -> bool {
        self.0.values.is_empty()
    }

    /// Returns the approximate size of all values in memory, in bytes.
    pub fn bytes(&self) -> usize {
        self.0.bytes
    }

    /// Returns names and values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<Value>)> {
        let entries = self.0.values.iter();
        entries.map(|(name, held)| (name, &held.value))
    }

    /// Returns the names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.values.keys().map(|name| &**name)
    }

    /// Sets one value and replaces an earlier one.
    pub fn set(&mut self, name: &str, value: impl Into<Arc<Value>>) {
        let sized = Entry::new(name, value.into());
        let held = Arc::make_mut(&mut self.0);
        let known = held.values.get_key_value(name);
        let name = known.map_or_else(|| name.into(), |(known, _)| Arc::clone(known));
        held.set(name, sized);
    }

    /// Sets every value of `other`.
    pub fn extend(&mut self, other: &Self) {
        if !other.is_empty() {
            let held = Arc::make_mut(&mut self.0);
            for (name, value) in &other.0.values {
                held.set(Arc::clone(name), value.clone());
            }
        }
    }

    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("values are plain data")
    }

    pub fn to_value(&self) -> Value {
        let entries = self.iter();
        Value::Object(
            entries
                .map(|(name, value)| (name.to_string(), Value::clone(value)))
                .collect(),
        )
    }
}

impl Serialize for Vars {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de> Deserialize<'de> for Vars {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Map::deserialize(deserializer).map(Self::from)
    }
}

impl From<Map<String, Value>> for Vars {
    fn from(map: Map<String, Value>) -> Self {
        let entries = map.into_iter();
        entries
            .map(|(name, value)| (name.into(), Arc::new(value)))
            .collect()
    }
}

impl FromIterator<(Arc<str>, Arc<Value>)> for Vars {
    fn from_iter<I: IntoIterator<Item = (Arc<str>, Arc<Value>)>>(entries: I) -> Self {
        let mut held = Held::default();
        for (name, value) in entries {
            let sized = Entry::new(&name, value);
            held.set(name, sized);
        }
        Self(Arc::new(held))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Counts the size of all values again.
    fn recount(vars: &Vars) -> usize {
        let sizes = vars
            .iter()
            .map(|(name, value)| name.len() + bounds::size(value));
        sizes.sum()
    }

    #[test]
    fn vars_track_size_of_values() {
        let mut vars = Vars::default();
        assert_eq!(vars.bytes(), 0);
        vars.set("a", json!({"k": [1, 2]}));
        vars.set("long", json!("x".repeat(500)));
        assert_eq!(vars.bytes(), recount(&vars));
        let other: Vars = serde_json::from_value(json!({"a": null, "b": [true]})).unwrap();
        assert_eq!(other.bytes(), recount(&other));
        let before = vars.clone();
        vars.extend(&other);
        assert_eq!(vars.bytes(), recount(&vars));
        assert_eq!(before.bytes(), recount(&before));
        assert!(vars.names().eq(["a", "long", "b"]));
    }
}
