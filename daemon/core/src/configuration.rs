//! The verdict on one file of the configuration, which is that of the runs that read it.
//!
//! **Owns** the choice of the reader by the id of the file. So a file is refused when it is signed or validated exactly
//! if runs would be refused because of it. **Never** merges files: the caller does.

use serde_json::{Map, Value};

use crate::declared::{Finding, errors};
use crate::id::ItemId;
use crate::policy::{self, CAPABILITY_RISK, Policy, Risks};
use crate::provider::{AGENT, Agent, Owner, PROVIDERS, Provider};

/// The folder of the configuration of runs.
const FOLDER: &str = "agent";

/// Checks the file `id` of this owner with this text. `merged` is its content, merged into the files of lower spaces.
/// Returns the notes about entries without effect, or the reason why runs are refused. A file that no run reads is
/// accepted.
pub fn check(
    id: &ItemId,
    owner: Owner,
    text: &str,
    merged: Map<String, Value>,
) -> Result<Vec<String>, String> {
    if id.category() == PROVIDERS {
        return report(id, Provider::parse(text, id, owner));
    }
    if id.as_str() == AGENT {
        return report(id, Agent::from_config(&Value::Object(merged)));
    }
    if id.category() != FOLDER {
        return Ok(Vec::new());
    }
    let name = id.name();
    let mut ignored = Vec::new();
    let merged = Value::Object(merged);
    if policy::FILES.contains(&name) {
        let config = Map::from_iter([(name.to_owned(), merged)]);
        let policy = Policy::from_config(&Value::Object(config))?;
        ignored.extend_from_slice(policy.ignored());
    } else if name == CAPABILITY_RISK {
        Risks::read(&merged, &mut ignored)?;
    }
    Ok(ignored)
}

/// Returns the warnings of a reader, or its errors.
fn report<T>(
    id: &ItemId,
    read: Result<(T, Vec<Finding>), Vec<Finding>>,
) -> Result<Vec<String>, String> {
    let line = |finding: &Finding| format!("`config:{id}`: {finding}");
    match read {
        Ok((_, warnings)) => Ok(warnings.iter().map(line).collect()),
        Err(findings) => {
            let told: Vec<String> = errors(&findings).map(line).collect();
            Err(told.join("; "))
        }
    }
}
