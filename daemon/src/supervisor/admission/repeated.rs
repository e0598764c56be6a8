//! Steps that take over a run: its at-most-once actions are repeated only with the consent of the caller.
//!
//! The step belongs to the chain of that run, like a continuation. Its attempts have the keys of that chain.

use rye_core::definition::{Action, Graph};
use rye_core::id::ItemRef;
use rye_core::model::{Effect, Run, Verdict};
use rye_core::printable::shell_word;
use rye_item::Library;

use super::{Error, StartAt};
use crate::chain;

/// Refuses a step that would repeat an at-most-once action of the run it takes over, unless the caller permits it.
pub(super) fn refuse(graph: &Graph, library: &Library, start_at: &StartAt) -> Result<(), Error> {
    let StartAt::Node {
        node,
        from: Some(run),
        verdicts,
        ..
    } = start_at
    else {
        return Ok(());
    };
    let unfit = |problem: String| Error::Unfit {
        run: run.id.clone(),
        problem,
    };
    let is_repeated = has_begun(run, node) && is_at_most_once(graph, library, node);
    for (name, verdict) in verdicts {
        if !is_repeated || (name != "*" && name != node) {
            return Err(unfit(format!("`{name}` is not uncertain")));
        }
        if *verdict != Verdict::Retry {
            let text = format!("a step can only do `{name}` again; if that is wrong, leave it");
            return Err(unfit(text));
        }
    }
    if is_repeated && verdicts.is_empty() {
        return Err(unfit(format!(
            "`{node}`: at most once, and has executed or may have; if it may execute again, say so: --uncertain {}",
            shell_word(&format!("{node}=retry"))
        )));
    }
    Ok(())
}

/// True if `run` has completed `node`, or an at-most-once attempt of it may have executed.
fn has_begun(run: &Run, node: &str) -> bool {
    let visits = run.graph().and_then(|state| state.visits.get(node));
    let stands = [run.current_node(), run.resumption_node()].contains(&Some(node));
    let is_unknown = || run.unknown().iter().any(|unknown| unknown.once);
    visits.is_some_and(|visits| *visits > 0) || (stands && is_unknown())
}

/// True if `node`, or a tool that it names, is declared at most once.
fn is_at_most_once(graph: &Graph, library: &Library, node: &str) -> bool {
    let Some(node) = graph.nodes.get(node) else {
        return false;
    };
    let mut items = node.work.actions().filter_map(Action::named);
    let says = |item: &ItemRef| {
        let chain = chain::resolve(library, item, None);
        chain.is_ok_and(|chain| chain.effect() == Some(Effect::AtMostOnce))
    };
    node.effect == Effect::AtMostOnce || items.any(|item| says(&item))
}
