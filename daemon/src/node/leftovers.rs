//! What an earlier daemon left: processes, shims, and copies of tool files.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use rye_core::clock::Timestamp;
use rye_core::id::RunId;
use rye_core::model::event::Warning;
use rye_core::model::{KillReceipt, Run};
use rye_host::task;
use rye_journal::{Change, Journal};
use rye_process::{self as process, Leftover};

use crate::survivor::Survivors;
use crate::{chain, trees};

/// Ends processes that an earlier daemon left outside of cgroups, and shims that no live run needs, and adds a warning to each run of which processes were
/// left in one.
pub(super) async fn clear_up(
    journal: &Journal,
    state: &Path,
    live: &[Arc<Run>],
    swept: &[(String, KillReceipt)],
) -> Result<(), rye_journal::Error> {
    let (kept, ended) = end_shims(journal, state, live).await;
    end_leftovers(live.iter().filter(|run| !kept.contains(&run.id)));
    let warnings: Vec<Change> = live
        .iter()
        .filter_map(|run| {
            let cgroups = run.attempts().map(|attempt| {
                process::cgroup_name(&chain::tag(&run.id, &attempt.key, attempt.id.number))
            });
            let cgroups: Vec<String> = cgroups.collect();
            let of_run = swept.iter().filter(|(name, _)| cgroups.contains(name));
            let of_shim = ended.iter().filter(|(of, _)| *of == run.id);
            let receipts = of_run.map(|(_, receipt)| receipt);
            let receipts: Vec<&KillReceipt> = receipts.chain(of_shim.map(|(_, end)| end)).collect();
            let message = left_over(&receipts)?;
            let node = run.current_node().map(ToOwned::to_owned);
            let warning = Warning { node, message };
            Some(Change::event(&run.id, warning.into()))
        })
        .collect();
    let ended = ended.iter().map(|(_, receipt)| receipt);
    for receipt in swept.iter().map(|(_, receipt)| receipt).chain(ended) {
        log_ended(receipt);
    }
    if !warnings.is_empty() {
        journal.commit(warnings).await?;
    }
    Ok(())
}

/// Ends the shims that no live run needs. Returns the runs whose shims are alive, and the receipts of the others.
async fn end_shims(
    journal: &Journal,
    state: &Path,
    live: &[Arc<Run>],
) -> (HashSet<RunId>, Vec<(RunId, KillReceipt)>) {
    let survives = |run: &&Arc<Run>| {
        let process = run.spec.process();
        process.is_some_and(|process| process.survive) && journal.fence(&run.id).is_none()
    };
    let needed: HashSet<RunId> = live
        .iter()
        .filter(survives)
        .map(|run| run.id.clone())
        .collect();
    let survivors = Survivors::new(state);
    let list = move || {
        let alive = survivors.alive();
        (survivors, alive)
    };
    let (survivors, alive) = task::blocking("look for shims", list).await;
    let (mut kept, mut ended) = (HashSet::new(), Vec::new());
    for run in alive {
        if needed.contains(&run) {
            kept.insert(run);
        } else {
            let receipt = survivors.end(&run).await;
            ended.push((run, receipt));
        }
    }
    (kept, ended)
}

/// Names the processes in `receipts`, which an earlier daemon left.
fn left_over(receipts: &[&KillReceipt]) -> Option<String> {
    let ended = receipts.iter().flat_map(|receipt| &receipt.processes);
    let ended: Vec<String> = ended
        .map(|ended| format!("{} ({})", ended.pid, ended.comm))
        .collect();
    let survivors = receipts.iter().flat_map(|receipt| &receipt.survivors);
    let survivors: Vec<String> = survivors.map(ToString::to_string).collect();
    let parts = [
        ("ended what an earlier daemon left", ended),
        ("these do not end", survivors),
    ];
    let parts: Vec<String> = parts
        .into_iter()
        .filter(|(_, processes)| !processes.is_empty())
        .map(|(what, processes)| format!("{what}: {}", processes.join(", ")))
        .collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// Removes unneeded copies of tool files.
pub(super) async fn sweep_copies(state: &Path, now: Timestamp) {
    let state = state.to_owned();
    let swept = task::blocking("sweep copies", move || trees::sweep(&state, now)).await;
    if let Err(error) = swept {
        tracing::warn!(%error, "old copies of the files of tools could not be taken away");
    }
}

fn end_leftovers<'r>(runs: impl Iterator<Item = &'r Arc<Run>>) {
    let calls: Vec<_> = runs
        .flat_map(|run| {
            run.attempts().map(|attempt| Leftover {
                leader: attempt.process.clone(),
                tag: chain::tag(&run.id, &attempt.key, attempt.id.number),
            })
        })
        .collect();
    log_ended(&process::end_leftovers(&calls));
}

fn log_ended(receipt: &KillReceipt) {
    for ended in &receipt.processes {
        tracing::warn!(pid = ended.pid, comm = %ended.comm, "ended a process that an earlier daemon had left");
    }
    for pid in &receipt.survivors {
        tracing::error!(
            pid,
            "a process that an earlier daemon had left does not end"
        );
    }
}
