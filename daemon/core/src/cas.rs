//! Objects by which a graph run can be retraced: what they hold, their one text, and the hash that names them.
//!
//! **Owns** the formats of the content-addressed objects of a project, all with `schema` and `kind`, and the key of the
//! node cache. An object is named by the SHA-256 of its canonical JSON ([`seal::canonical`](crate::seal::canonical)),
//! which is also, without a final LF, the content of its file.
//!
//! ```text
//! ref ──► execution_snapshot ─┬─ node_receipts ──► node_receipt ── node_result_hash ──► node_result
//!                             └─ state_hash ─────► state_snapshot
//! ```
//!
//! **Never** stores anything: everything here is a pure function.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::capability::Primary;
use crate::clock::Timestamp;
use crate::digest::{Encoded, Written};
use crate::expr::Vars;
use crate::id::{ItemRef, RunId};
use crate::model::Status;
use crate::seal::{canonical, canonical_object, sha256_hex, write_object, write_value};

/// The version of the formats in this module, but for [`InputScope`]'s.
const SCHEMA: u32 = 1;

fn object<const N: usize>(kind: &str, fields: [(&str, Value); N]) -> Map<String, Value> {
    let head = [("schema", json!(SCHEMA)), ("kind", json!(kind))];
    head.into_iter()
        .chain(fields)
        .map(|(key, value)| (key.to_owned(), value))
        .collect()
}

/// What a node or an item of it gave back, unwrapped.
pub fn node_result(result: Arc<Value>) -> Written {
    Written::new(move |out| {
        out.write_str(r#"{"kind":"node_result","result":"#)?;
        write_value(&result, out)?;
        write!(out, r#","schema":{SCHEMA}}}"#)
    })
}

/// That a node, or an item of it, was carried out.
#[derive(Debug, Clone, Copy)]
pub struct Receipt<'a> {
    /// The hash of everything its result depends on; empty for nodes that call nothing.
    pub node_input_hash: &'a str,
    /// The name of its result.
    pub node_result_hash: &'a str,
    /// Whether the result is one of an earlier run.
    pub cache_hit: bool,
    /// Wall time in milliseconds.
    pub elapsed_ms: u64,
    /// When it was done.
    pub at: Timestamp,
    /// Why it failed, if it did.
    pub error: Option<&'a str>,
}

/// The object of a receipt.
pub fn node_receipt(receipt: &Receipt<'_>) -> Encoded {
    let mut fields = object(
        "node_receipt",
        [
            ("node_input_hash", json!(receipt.node_input_hash)),
            ("node_result_hash", json!(receipt.node_result_hash)),
            ("cache_hit", json!(receipt.cache_hit)),
            ("elapsed_ms", json!(receipt.elapsed_ms)),
            ("timestamp", json!(receipt.at.to_seconds_string())),
        ],
    );
    if let Some(error) = receipt.error {
        fields.insert("error".to_owned(), json!(error));
    }
    Encoded::of(&Value::Object(fields))
}

/// The state of a graph.
pub fn state_snapshot(state: &Vars) -> Written {
    let state = state.clone();
    Written::new(move |out| {
        // No member comes after the state.
        write!(
            out,
            r#"{{"kind":"state_snapshot","schema":{SCHEMA},"state":"#
        )?;
        let members = state.iter().map(|(name, value)| (&**name, &**value));
        write_object(members, out)?;
        out.write_char('}')
    })
}

/// Where a run stands when it is suspended or ends.
#[derive(Debug, Clone, Copy)]
pub struct Execution<'a> {
    /// The run.
    pub run: &'a RunId,
    /// Its graph.
    pub graph: &'a str,
    /// The release that ran it.
    pub system_version: &'a str,
    /// Steps taken.
    pub step: u32,
    /// Where it stands.
    pub status: Status,
    /// The name of its state.
    pub state_hash: &'a str,
    /// The names of its receipts, in order.
    pub node_receipts: &'a [String],
    /// What went wrong: `{step, node, error}` each; left out if nothing did.
    pub errors: &'a [Value],
}

/// The object of a snapshot.
pub fn execution_snapshot(execution: &Execution<'_>) -> Encoded {
    let mut fields = object(
        "execution_snapshot",
        [
            ("graph_run_id", json!(execution.run)),
            ("graph_id", json!(execution.graph)),
            // Manifests of whole spaces are not kept; the receipts name what each node ran on.
            ("project_manifest_hash", json!("")),
            ("user_manifest_hash", json!("")),
            ("system_version", json!(execution.system_version)),
            ("step", json!(execution.step)),
            ("status", json!(execution.status)),
            ("state_hash", json!(execution.state_hash)),
            ("node_receipts", json!(execution.node_receipts)),
        ],
    );
    if !execution.errors.is_empty() {
        fields.insert("errors".to_owned(), json!(execution.errors));
    }
    Encoded::of(&Value::Object(fields))
}

/// The version of what a node's input is made of.
const INPUT_SCHEMA: u32 = 2;

/// What an attempt does and what it runs on, by hashes: two runs that differ tell by these in what.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InputHashes {
    /// What is done: primary, item and parameters, with everything put in.
    pub call: Option<String>,
    /// With what: the verified contents of everything that runs, in its order.
    pub chain: Option<String>,
    /// Both, with the graph, the node and the configuration: the key of the result.
    pub node_input: Option<String>,
}

impl InputHashes {
    /// Those of an action on `item`, after aliases are resolved, that runs on these contents; on none if it is not known on what.
    pub fn new<'a>(
        primary: Primary,
        item: &ItemRef,
        params: &Map<String, Value>,
        contents: impl Iterator<Item = &'a str>,
    ) -> Self {
        // Written out by hand, in the order of the canonical form: this is done at every step of every run.
        let call = sha256_hex(format!(
            r#"{{"item_id":{item},"item_type":{kind},"kind":"call","params":{params},"primary":{primary},"schema":{SCHEMA}}}"#,
            item = text(item.id.as_str()),
            kind = text(item.kind.as_str()),
            params = canonical_object(params),
            primary = text(primary.as_str()),
        ));
        let contents: Vec<String> = contents.map(text).collect();
        let chain = (!contents.is_empty()).then(|| {
            let contents = contents.join(",");
            sha256_hex(format!(
                r#"{{"contents":[{contents}],"kind":"chain","schema":{SCHEMA}}}"#
            ))
        });
        Self {
            call: Some(call),
            chain,
            node_input: None,
        }
    }
}

/// What the results of all nodes of a run depend on; made once for each run.
///
/// The key of a node is the hash of the object `{schema: 2, kind: "node_input", graph_hash, node_name, call_hash, chain_hash,
/// config_snapshot_hash}`. `chain_hash` takes the place of the original's `lockfile_hash`, which was always null: an edited tool is
/// another tool.
#[derive(Debug, Clone)]
pub struct InputScope {
    config: String,
    graph: String,
}

impl InputScope {
    /// The scope of runs of the graph with this digest under the configuration with this hash.
    pub fn new(graph_hash: &str, config_snapshot_hash: &str) -> Self {
        Self {
            config: text(config_snapshot_hash),
            graph: text(graph_hash),
        }
    }

    /// The key of what the node `node` does; items of a foreach node share its name. None as long as it is not known on what that runs.
    pub fn key(&self, node: &str, hashes: &InputHashes) -> Option<String> {
        let (call, chain) = (hashes.call.as_ref()?, hashes.chain.as_ref()?);
        let Self { config, graph } = self;
        let node = text(node);
        Some(sha256_hex(format!(
            r#"{{"call_hash":"{call}","chain_hash":"{chain}","config_snapshot_hash":{config},"graph_hash":{graph},"kind":"node_input","node_name":{node},"schema":{INPUT_SCHEMA}}}"#
        )))
    }
}

/// `plain` as canonical JSON.
fn text(plain: &str) -> String {
    canonical(&Value::String(plain.to_owned()))
}

#[cfg(test)]
mod tests;
