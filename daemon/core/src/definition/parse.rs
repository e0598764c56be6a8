//! Reading of a file as a whole.

use super::finding::Finding;
use super::graph::Graph;
use super::{flow, paths, read, state, uses};
use crate::expr::Severity;
use crate::id::ItemRef;
use crate::yaml;

/// Reads a graph file: the graph with its warnings, or all errors and warnings.
pub fn parse(text: &str) -> Result<(Graph, Vec<Finding>), Vec<Finding>> {
    parse_among(text, &|_| false)
}

/// As [`parse`], among other items: warns too of what has no effect on those that start a run, as `is_run` says. It is
/// asked only of items where it matters.
pub fn parse_among(
    text: &str,
    is_run: &dyn Fn(&ItemRef) -> bool,
) -> Result<(Graph, Vec<Finding>), Vec<Finding>> {
    let document = yaml::parse(text).map_err(|fault| vec![Finding::of_yaml(fault)])?;
    let mut reader = read::Reader::new(&document);
    let graph = reader.graph();
    if let Some(graph) = &graph {
        surprises(&mut reader, graph, &paths::Reads::of(graph));
        uses::check_caching(&mut reader, graph, is_run);
    }
    let findings = reader.finish();
    match graph {
        Some(graph) if findings.iter().all(|f| f.severity == Severity::Warning) => {
            Ok((graph, findings))
        }
        Some(_) | None => Err(findings),
    }
}

/// What a look at all nodes together tells every reader of a graph.
pub(super) fn surprises(reader: &mut read::Reader<'_>, graph: &Graph, reads: &paths::Reads) {
    flow::check(reader, graph);
    state::check_reads(reader, graph, reads);
}
