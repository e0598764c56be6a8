//! A map of shared values: the state of a run.

use std::sync::Arc;

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Values by name, in the order in which they were set. A copy shares every value with its original.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Vars(Arc<IndexMap<Arc<str>, Arc<Value>>>);

impl Vars {
    /// The value of `name`.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name).map(|value| &**value)
    }

    /// The value of `name`, shared.
    pub fn share(&self, name: &str) -> Option<Arc<Value>> {
        self.0.get(name).map(Arc::clone)
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Names and values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<Value>)> {
        self.0.iter()
    }

    /// The names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(|name| &**name)
    }

    /// Sets one value.
    pub fn set(&mut self, name: &str, value: impl Into<Arc<Value>>) {
        let value = value.into();
        let vars = Arc::make_mut(&mut self.0);
        if let Some(place) = vars.get_mut(name) {
            *place = value;
        } else {
            vars.insert(name.into(), value);
        }
    }

    /// Sets every value of `other`.
    pub fn extend(&mut self, other: &Self) {
        if !other.is_empty() {
            let entries = other.iter();
            let entries = entries.map(|(name, value)| (Arc::clone(name), Arc::clone(value)));
            Arc::make_mut(&mut self.0).extend(entries);
        }
    }

    /// The whole as JSON text.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("values are plain data")
    }

    /// The whole as one JSON object.
    pub fn to_value(&self) -> Value {
        let entries = self.iter();
        Value::Object(
            entries
                .map(|(name, value)| (name.to_string(), Value::clone(value)))
                .collect(),
        )
    }
}

impl From<Map<String, Value>> for Vars {
    fn from(map: Map<String, Value>) -> Self {
        let entries = map.into_iter();
        Self(Arc::new(
            entries
                .map(|(name, value)| (name.into(), Arc::new(value)))
                .collect(),
        ))
    }
}

impl FromIterator<(Arc<str>, Arc<Value>)> for Vars {
    fn from_iter<I: IntoIterator<Item = (Arc<str>, Arc<Value>)>>(entries: I) -> Self {
        Self(Arc::new(entries.into_iter().collect()))
    }
}
