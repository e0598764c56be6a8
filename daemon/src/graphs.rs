//! Parsed graphs of runs.
//!
//! **Owns** the parsed graphs by the SHA-256 of their verified text, bounded by a few megabytes of text. Tasks that
//! admit, drive or draw a run share one graph. **Never** parses under a lock, nor on a worker of the runtime.
//! **Failure.** An invalid text is parsed again at each request.

use std::sync::Arc;

use rye_core::definition::{self, Finding, Graph};
use rye_core::model::{Failure, GraphSource};
use rye_core::seal::sha256_hex;

use rye_host::cache::{self, Cache, Weighter};
use rye_host::task;

/// Bytes of text whose graphs are kept: some hundred graphs of usual size, or any four of maximum item size.
const MOST_TEXT: u64 = 32 << 20;
/// Expected number of graphs in the cache.
const USUAL: usize = 256;
/// Texts up to this length, in bytes, are hashed faster than they can be moved to another thread.
const SHORT_TEXT: usize = 16 << 10;

/// A graph with its warnings.
#[derive(Debug)]
pub struct Parsed {
    pub graph: Arc<Graph>,
    pub findings: Vec<Finding>,
    /// Length of its text in bytes.
    bytes: usize,
}

#[derive(Debug, Clone)]
struct TextLength;

impl Weighter<String, Arc<Parsed>> for TextLength {
    fn weight(&self, _hash: &String, parsed: &Arc<Parsed>) -> u64 {
        u64::try_from(parsed.bytes).unwrap_or(u64::MAX)
    }
}

/// Cache of parsed graphs; clones share it.
#[derive(Debug, Clone)]
pub struct Graphs {
    parsed: Arc<Cache<String, Parsed, TextLength>>,
}

impl Default for Graphs {
    fn default() -> Self {
        Self {
            parsed: Arc::new(cache::of_weight(USUAL, MOST_TEXT, TextLength)),
        }
    }
}

impl Graphs {
    /// Returns the graph that `text` holds, or all of its findings. Blocks.
    pub fn read(&self, text: &str) -> Result<Arc<Parsed>, Vec<Finding>> {
        self.parsed.get_or_insert_with(&sha256_hex(text), || {
            let (graph, findings) = definition::parse(text)?;
            Ok(Arc::new(Parsed {
                graph: Arc::new(graph),
                findings,
                bytes: text.len(),
            }))
        })
    }

    /// Graph of a run, as verified when the run was admitted.
    pub async fn of_run(&self, source: &GraphSource) -> Result<Arc<Graph>, Failure> {
        if source.text.len() <= SHORT_TEXT
            && let Some(parsed) = self.parsed.get(&sha256_hex(&*source.text))
        {
            return Ok(Arc::clone(&parsed.graph));
        }
        let (this, text) = (self.clone(), Arc::clone(&source.text));
        let parsed = task::blocking("read a graph", move || this.read(&text));
        let parsed = parsed.await.map_err(|findings| {
            let first = definition::errors(&findings).next();
            let first = first.map(ToString::to_string);
            Failure::permanent("graph_validation_failed", first.unwrap_or_default())
        })?;
        Ok(Arc::clone(&parsed.graph))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn graph_text_is_parsed_once_and_invalid_text_always_fails() {
        let graphs = Graphs::default();
        let text = "version: \"1.0.0\"\ncategory: t\ntool_type: graph\nexecutor_id: rye/core/runtimes/state-graph/runtime\npermissions: []\nconfig:\n  start: a\n  nodes:\n    a: {type: return}\n";
        let first = graphs.read(text).unwrap();
        assert!(Arc::ptr_eq(&first, &graphs.read(text).unwrap()));
        let other = graphs.read(&format!("{text}# changed\n")).unwrap();
        assert!(!Arc::ptr_eq(&first, &other));
        for _ in 0..2 {
            assert!(graphs.read("nodes: [").is_err());
        }
    }
}
