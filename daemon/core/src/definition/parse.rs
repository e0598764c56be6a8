//! Reading of a file as a whole.

use super::graph::Graph;
use super::read::{Context, Reader};
use super::{flow, paths, state, uses};
use crate::declared::Finding;
use crate::id::ItemRef;
use crate::yaml;

/// Reads a graph file: the graph with its warnings, or all errors and warnings.
pub fn parse(text: &str) -> Result<(Graph, Vec<Finding>), Vec<Finding>> {
    parse_among(text, &|_| false)
}

/// Like [`parse`], with warnings of keys that have no effect on items that start a run (`is_run`). It is called only
/// for items for which that matters.
pub fn parse_among(
    text: &str,
    is_run: &dyn Fn(&ItemRef) -> bool,
) -> Result<(Graph, Vec<Finding>), Vec<Finding>> {
    let document = yaml::parse(text).map_err(|fault| vec![Finding::of_yaml(fault)])?;
    let mut reader = Reader::new(&document, Context::default());
    let graph = reader.graph();
    if let Some(graph) = &graph {
        surprises(&mut reader, graph, &paths::Reads::of(graph));
        uses::check_caching(&mut reader, graph, is_run);
    }
    reader.end(graph)
}

/// Checks all nodes together, for every reader of a graph.
pub(super) fn surprises(reader: &mut Reader<'_>, graph: &Graph, reads: &paths::Reads) {
    flow::check(reader, graph);
    state::check_reads(reader, graph, reads);
}
