//! Checks the body of a request, value by value. An error names the value.

use serde_json::Value;

/// A value of a body.
#[derive(Clone)]
pub(super) struct Field<'v> {
    /// Path of the value in the notation of programs.
    at: String,
    value: &'v Value,
}

impl<'v> Field<'v> {
    pub(super) fn root(body: &'v Value) -> Self {
        Self {
            at: String::new(),
            value: body,
        }
    }

    pub(super) fn value(&self) -> &'v Value {
        self.value
    }

    /// Returns an error about this value.
    pub(super) fn wrong(&self, what: &str) -> String {
        let at = if self.at.is_empty() {
            "the body"
        } else {
            &self.at
        };
        format!("`{at}` {what}")
    }

    pub(super) fn get(&self, key: &str) -> Option<Self> {
        let dot = if self.at.is_empty() { "" } else { "." };
        self.value.get(key).map(|value| Self {
            at: format!("{}{dot}{key}", self.at),
            value,
        })
    }

    /// Returns the value of a required key.
    pub(super) fn need(&self, key: &str) -> Result<Self, String> {
        self.get(key)
            .ok_or_else(|| self.wrong(&format!("has no `{key}`")))
    }

    /// Refuses a value that is no object or has other keys.
    pub(super) fn only(&self, keys: &[&str]) -> Result<(), String> {
        let object = self.value.as_object();
        let object = object.ok_or_else(|| self.wrong("is no object"))?;
        let other = object.keys().find(|key| !keys.contains(&key.as_str()));
        other.map_or(Ok(()), |other| {
            Err(self.wrong(&format!("has a key `{other}` that the api does not know")))
        })
    }

    pub(super) fn text(&self) -> Result<&'v str, String> {
        self.value.as_str().ok_or_else(|| self.wrong("is no text"))
    }

    /// Returns a text that is not empty.
    pub(super) fn words(&self) -> Result<&'v str, String> {
        let text = self.text()?;
        Some(text)
            .filter(|text| !text.is_empty())
            .ok_or_else(|| self.wrong("is empty"))
    }

    /// Returns the name of a tool in the form that the APIs allow.
    pub(super) fn tool_name(&self) -> Result<&'v str, String> {
        let name = self.words()?;
        let is_good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        Some(name)
            .filter(|name| name.len() <= 64 && name.chars().all(is_good))
            .ok_or_else(|| self.wrong("is no name of a tool: 1 to 64 of A-Z a-z 0-9 _ -"))
    }

    pub(super) fn list(&self) -> Result<Vec<Self>, String> {
        let entries = self.value.as_array();
        let entries = entries.ok_or_else(|| self.wrong("is no list"))?;
        let entry = |(index, value)| Self {
            at: format!("{}[{index}]", self.at),
            value,
        };
        Ok(entries.iter().enumerate().map(entry).collect())
    }

    /// Refuses any other value.
    pub(super) fn is(&self, wanted: impl Into<Value>) -> Result<(), String> {
        let wanted = wanted.into();
        if *self.value == wanted {
            return Ok(());
        }
        Err(self.wrong(&format!("is not {wanted}")))
    }

    /// Returns a number above 0.
    pub(super) fn count(&self) -> Result<u64, String> {
        let number = self.value.as_u64().filter(|number| *number > 0);
        number.ok_or_else(|| self.wrong("is no number above 0"))
    }
}
