//! Content of a lock, and its comparison with a chain.

use rye_core::model::Object;
use serde_json::{Value, json};

use super::error::Error;
use super::lock::ToolLock;
use super::verified::Chain;

/// The compared members.
const PARTS: [&str; 4] = ["root", "resolved_chain", "config", "verified_deps"];
const FORM: &str = "lockfile_version";

/// Returns the content of a lock for `chain`.
pub(super) fn content(chain: &Chain) -> Object {
    let tool = chain.tool();
    let files = chain.anchored.as_ref().map(|anchored| {
        let files = anchored.tree.hashes();
        let files = files.map(|(path, hash)| (path.to_string_lossy().into_owned(), hash.into()));
        json!({"root": anchored.begins, "files": files.collect::<Object>()})
    });
    let config = chain.given.as_ref().map(|given| given.files.clone());
    let parts = [
        (FORM, json!(1)),
        (
            "root",
            json!({
                "tool_id": tool.id().as_str(),
                "version": tool.metadata.version,
                "integrity": tool.content_hash,
            }),
        ),
        ("resolved_chain", Value::Array(chain.links())),
        ("registry", Value::Null),
        ("config", Value::Array(config.unwrap_or_default())),
        ("verified_deps", files.unwrap_or_default()),
    ];
    parts
        .into_iter()
        .map(|(name, part)| (name.to_owned(), part))
        .collect()
}

impl ToolLock {
    /// Refuses a chain that differs from its lock. An unsigned lock refuses nothing.
    pub(super) fn check(&self, chain: &Chain) -> Result<(), Error> {
        if self.0.signer.is_none() {
            return Ok(());
        }
        let now = content(chain);
        let tool = chain.tool().id();
        let form = (self.0.content.get(FORM), now.get(FORM));
        let parts = PARTS
            .iter()
            .map(|part| (*part, (self.0.content.get(*part), now.get(*part))));
        for (part, (locked, found)) in [(FORM, form)].into_iter().chain(parts) {
            if let Some((part, locked, found)) = difference(part.to_owned(), locked, found) {
                return Err(self.mismatch(tool, part, locked, found));
            }
        }
        Ok(())
    }
}

/// Returns the path of the first difference within `part`, and both values in words.
fn difference(
    part: String,
    locked: Option<&Value>,
    found: Option<&Value>,
) -> Option<(String, String, String)> {
    if locked == found {
        return None;
    }
    match (locked, found) {
        (Some(Value::Object(locked)), Some(Value::Object(found))) => {
            let names = found.keys().chain(locked.keys());
            let mut each = names.map(|name| {
                difference(format!("{part}.{name}"), locked.get(name), found.get(name))
            });
            each.find_map(|different| different)
        }
        (Some(Value::Array(locked)), Some(Value::Array(found))) => {
            let mut each = (0..locked.len().max(found.len()))
                .map(|at| difference(format!("{part}.{at}"), locked.get(at), found.get(at)));
            each.find_map(|different| different)
        }
        _ => Some((part, describe(locked), describe(found))),
    }
}

fn describe(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => "nothing".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Object(_) | Value::Array(_)) => "there".to_owned(),
        Some(other) => other.to_string(),
    }
}
