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

use serde_json::{Map, Value, json};

use crate::capability::Primary;
use crate::clock::Timestamp;
use crate::digest::Encoded;
use crate::id::{ItemRef, RunId};
use crate::model::Status;
use crate::seal::{canonical, canonical_object, sha256_hex};

/// The version of all formats in this module.
const SCHEMA: u32 = 1;

fn object<const N: usize>(kind: &str, fields: [(&str, Value); N]) -> Map<String, Value> {
    let head = [("schema", json!(SCHEMA)), ("kind", json!(kind))];
    head.into_iter()
        .chain(fields)
        .map(|(key, value)| (key.to_owned(), value))
        .collect()
}

/// What a node or an item of it gave back, unwrapped.
pub fn node_result(result: &Value) -> Encoded {
    let fields = [("result", result.clone())];
    Encoded::of(&Value::Object(object("node_result", fields)))
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
pub fn state_snapshot(state: &Value) -> Encoded {
    let fields = [("state", state.clone())];
    Encoded::of(&Value::Object(object("state_snapshot", fields)))
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

/// What the results of all nodes of a run depend on; made once for each run.
///
/// The key of a node is the hash of the object `{schema, kind: "node_input", graph_hash, node_name, interpolated_action,
/// chain_hashes, config_snapshot_hash}`. `chain_hashes` takes the place of the original's `lockfile_hash`, which was always
/// null: an edited tool is another tool.
#[derive(Debug, Clone)]
pub struct InputScope {
    /// The members that are the same for every node, as they stand in the text.
    constant: String,
}

/// What the result of one action depends on, beside its run.
#[derive(Debug, Clone, Copy)]
pub struct NodeInput<'a> {
    /// The node; items of a foreach node share its name.
    pub node: &'a str,
    /// What is done.
    pub primary: Primary,
    /// To what, after aliases are resolved.
    pub item: &'a ItemRef,
    /// With which parameters.
    pub params: &'a Map<String, Value>,
}

impl InputScope {
    /// The scope of runs of the graph with this digest under the configuration with this hash.
    pub fn new(graph_hash: &str, config_snapshot_hash: &str) -> Self {
        let config = text(config_snapshot_hash);
        let graph = text(graph_hash);
        Self {
            constant: format!(r#""config_snapshot_hash":{config},"graph_hash":{graph}"#),
        }
    }

    /// The key of an action whose chain has these content hashes, tool first.
    pub fn key<'h>(
        &self,
        input: &NodeInput<'_>,
        chain: impl IntoIterator<Item = &'h str>,
    ) -> String {
        let chain: Vec<String> = chain.into_iter().map(text).collect();
        let params = canonical_object(input.params);
        // Written out by hand, in the order of the canonical form: this is done at every step of every run.
        sha256_hex(format!(
            r#"{{"chain_hashes":[{chain}],{constant},"interpolated_action":{{"item_id":{item},"item_type":{kind},"params":{params},"primary":{primary}}},"kind":"node_input","node_name":{node},"schema":{SCHEMA}}}"#,
            chain = chain.join(","),
            constant = self.constant,
            item = text(input.item.id.as_str()),
            kind = text(input.item.kind.as_str()),
            primary = text(input.primary.as_str()),
            node = text(input.node),
        ))
    }
}

/// `plain` as canonical JSON.
fn text(plain: &str) -> String {
    canonical(&Value::String(plain.to_owned()))
}

#[cfg(test)]
mod tests;
