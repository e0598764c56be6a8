//! The graphs of runs, each read once.
//!
//! **Owns** the parsed graphs by the SHA-256 of their verified text, as many as a few megabytes of text make. A task that admits
//! a run, drives it or draws it shares one. **Never** parses under a lock, nor on a worker of the runtime. **Failure.** A text that is
//! no graph is read again at each request.

use std::sync::Arc;

use rye_core::definition::{self, Finding, Graph};
use rye_core::model::{Failure, GraphSource};
use rye_core::seal::sha256_hex;

use crate::memo::Memo;
use rye_host::task;

/// Bytes of text whose graphs are kept: some hundred graphs of ordinary size, and any four that are as long as an item may be.
const MOST_TEXT: usize = 32 << 20;
/// A text of this length is hashed in less time than handing it to another thread takes.
const SHORT_TEXT: usize = 16 << 10;

/// A graph, and what its author should know.
#[derive(Debug)]
pub struct Parsed {
    /// The graph.
    pub graph: Arc<Graph>,
    /// Warnings.
    pub findings: Vec<Finding>,
}

/// The graphs in use; clones share them.
#[derive(Debug, Clone)]
pub struct Graphs {
    parsed: Arc<Memo<Parsed>>,
}

impl Default for Graphs {
    fn default() -> Self {
        Self {
            parsed: Arc::new(Memo::new(MOST_TEXT)),
        }
    }
}

impl Graphs {
    /// The graph that `text` holds, or all that is wrong with it. For work that may block.
    pub fn read(&self, text: &str) -> Result<Arc<Parsed>, Vec<Finding>> {
        self.parsed.get_or_make(&sha256_hex(text), text.len(), || {
            let (graph, findings) = definition::parse(text)?;
            Ok(Parsed {
                graph: Arc::new(graph),
                findings,
            })
        })
    }

    /// The graph of a run, as it was verified when the run was accepted.
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
    fn one_text_is_parsed_once_and_a_broken_one_is_refused_each_time() {
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
