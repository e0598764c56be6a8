//! Content-addressed objects by which a graph run can be retraced: their fields, canonical text and hash.
//!
//! **Owns** the formats of the content-addressed objects of a project, all with `schema` and `kind`, and the key of the
//! node cache. The name of an object is the SHA-256 of its canonical JSON
//! ([`seal::canonical`](crate::seal::canonical)). The file of the object holds the same text, without a final LF.
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

/// Version of the formats in this module, except that of [`InputScope`].
const SCHEMA: u32 = 1;

fn object<const N: usize>(kind: &str, fields: [(&str, Value); N]) -> Map<String, Value> {
    let head = [("schema", json!(SCHEMA)), ("kind", json!(kind))];
    head.into_iter()
        .chain(fields)
        .map(|(key, value)| (key.to_owned(), value))
        .collect()
}

/// Object of the unwrapped result of a node or of one of its items.
pub fn node_result(result: Arc<Value>) -> Written {
    Written::new(move |out| {
        out.write_str(r#"{"kind":"node_result","result":"#)?;
        write_value(&result, out)?;
        write!(out, r#","schema":{SCHEMA}}}"#)
    })
}

/// Record that a node, or an item of it, was carried out.
#[derive(Debug, Clone, Copy)]
pub struct Receipt<'a> {
    /// Hash of all inputs of the result; empty for nodes that call nothing.
    pub node_input_hash: &'a str,
    pub node_result_hash: &'a str,
    /// True if the result comes from an earlier run.
    pub cache_hit: bool,
    /// Wall time in milliseconds.
    pub elapsed_ms: u64,
    /// Time of completion.
    pub at: Timestamp,
    pub error: Option<&'a str>,
}

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

pub fn state_snapshot(state: &Vars) -> Written {
    let state = state.clone();
    Written::new(move |out| {
        // In canonical order, `state` is the last member.
        write!(
            out,
            r#"{{"kind":"state_snapshot","schema":{SCHEMA},"state":"#
        )?;
        let members = state.iter().map(|(name, value)| (&**name, &**value));
        write_object(members, out)?;
        out.write_char('}')
    })
}

/// Position of a run when it is suspended or ends.
#[derive(Debug, Clone, Copy)]
pub struct Execution<'a> {
    pub run: &'a RunId,
    pub graph: &'a str,
    /// Release that ran the graph.
    pub system_version: &'a str,
    /// Number of steps taken.
    pub step: u32,
    pub status: Status,
    pub state_hash: &'a str,
    /// Hashes of the receipts, in order.
    pub node_receipts: &'a [String],
    /// Errors as `{step, node, error}`; the object omits an empty list.
    pub errors: &'a [Value],
}

pub fn execution_snapshot(execution: &Execution<'_>) -> Encoded {
    let mut fields = object(
        "execution_snapshot",
        [
            ("graph_run_id", json!(execution.run)),
            ("graph_id", json!(execution.graph)),
            // Manifests of whole spaces are not kept. The receipts name the contents that each node ran on.
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

/// Version of the input of a node's cache key.
const INPUT_SCHEMA: u32 = 2;

/// Hashes of an attempt's action and of the contents it runs on. They show in which part two runs differ.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InputHashes {
    /// Hash of primary, item and resolved parameters.
    pub call: Option<String>,
    /// Hash of the verified contents of everything that runs, in order.
    pub chain: Option<String>,
    /// Key of the result: the hash of both, with graph, node and configuration.
    pub node_input: Option<String>,
}

impl InputHashes {
    /// Returns the hashes of an action on `item`, whose aliases are resolved, that runs on `contents`. Without
    /// contents, `chain` is `None`: the contents are not known yet.
    pub fn new<'a>(
        primary: Primary,
        item: &ItemRef,
        params: &Map<String, Value>,
        contents: impl Iterator<Item = &'a str>,
    ) -> Self {
        // The canonical form is written by hand in its order, because this runs at every step of every run.
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

/// Inputs that the results of all nodes of a run share; made once for each run.
///
/// The key of a node is the hash of the object `{schema: 2, kind: "node_input", graph_hash, node_name, call_hash,
/// chain_hash, config_snapshot_hash}`. `chain_hash` replaces the original's `lockfile_hash`, which was always null: an
/// edited tool is another tool.
#[derive(Debug, Clone)]
pub struct InputScope {
    config: String,
    graph: String,
}

impl InputScope {
    /// Creates the scope of runs of the graph with this digest under the configuration with this hash.
    pub fn new(graph_hash: &str, config_snapshot_hash: &str) -> Self {
        Self {
            config: text(config_snapshot_hash),
            graph: text(graph_hash),
        }
    }

    /// Returns the key of the action of node `node`, or `None` if `hashes` lacks a part. Items of a foreach node share
    /// its name.
    pub fn key(&self, node: &str, hashes: &InputHashes) -> Option<String> {
        let (call, chain) = (hashes.call.as_ref()?, hashes.chain.as_ref()?);
        let Self { config, graph } = self;
        let node = text(node);
        Some(sha256_hex(format!(
            r#"{{"call_hash":"{call}","chain_hash":"{chain}","config_snapshot_hash":{config},"graph_hash":{graph},"kind":"node_input","node_name":{node},"schema":{INPUT_SCHEMA}}}"#
        )))
    }
}

/// Returns `plain` as canonical JSON.
fn text(plain: &str) -> String {
    canonical(&Value::String(plain.to_owned()))
}

#[cfg(test)]
mod tests;
