//! Waiting for several runs. The runs notify the waiter when they settle; nothing is polled.
//!
//! **Order.** An id that names no run becomes an entry at once. Further entries follow as runs settle. The wait ends
//! when all have settled, when one has (`require_all: false`), when one has failed (`fail_fast`), or at the timeout.
//! Runs that have not settled by then are reported with their current status. The timeout counts from the first start
//! of the call: after a restart, a repeated call waits for the rest of it by the wall clock, and never longer than the
//! whole timeout. **Never** ends a run, unless `cancel_siblings_on_failure` is set.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use rye_core::ledger::Cost;
use rye_core::model::{Failure, Object, Run, Status, Waits};
use rye_core::money::Usd;
use serde::Deserialize;
use serde_json::{Value, json};

use super::processes::{CANCEL_WAIT, seconds};
use super::reach::{actionable, is_self_or_ancestor, visible};
use super::report;
use super::session::{Session, invalid};
use crate::port::Refusal;
use crate::stop::{CancelMode, SIBLING_FAILURE};
use rye_host::fail_point::{self, FailPlace};

/// Maximum number of runs per call.
const MOST_RUNS: usize = 1000;

/// Default timeout in seconds.
const USUAL_SECONDS: u32 = 600;

/// Parameters of a wait.
#[derive(Debug, Deserialize)]
pub(super) struct Params {
    thread_ids: Vec<Value>,
    #[serde(default)]
    timeout: Option<f64>,
    #[serde(default = "Params::require_all")]
    require_all: bool,
    #[serde(default)]
    fail_fast: bool,
    #[serde(default)]
    cancel_siblings_on_failure: bool,
}

impl Params {
    fn require_all() -> bool {
        true
    }
}

/// Requested runs in the order of the request, each with its entry once there is one.
struct Table {
    rows: Vec<Row>,
}

struct Row {
    label: String,
    run: Option<Arc<Run>>,
    /// Cost of the run, once there is an entry.
    cost: Cost,
    entry: Option<Value>,
}

pub(super) async fn wait(params: Params, session: &Session<'_>) -> Result<Value, Failure> {
    let taken = taken(session).await;
    let began = Instant::now();
    if params.cancel_siblings_on_failure && !params.fail_fast {
        return Err(invalid(
            "`cancel_siblings_on_failure` needs `fail_fast: true`: without it every run is waited for",
        ));
    }
    let limit = limit(params.timeout, session.spec.children.waits)?;
    let mut table = Table::of(&params.thread_ids, session).await?;
    table.refuse_own_ancestry(session).await?;
    let mut pending: FuturesUnordered<_> = table
        .open()
        .map(|(row, run)| async move { (row, session.runs.settled(run.id.clone()).await) })
        .collect();
    let mut failed = table.rows.iter().any(|row| row.entry.is_some());
    let mut deadline = std::pin::pin!(sleep(limit, taken));
    let mut timed_out = false;
    fail_point::reach(FailPlace::Waiting);
    while !(failed && params.fail_fast) {
        let (row, settled) = tokio::select! {
            biased;
            settled = pending.next() => match settled {
                Some(settled) => settled,
                None => break,
            },
            () = &mut deadline => { timed_out = true; break; }
        };
        match settled {
            Ok(run) => {
                failed |= is_failure(&run);
                table.report(row, run, session).await?;
            }
            Err(refusal) => {
                failed = true;
                table.fail(row, &refusal.of_run());
            }
        }
        if !params.require_all {
            break;
        }
    }
    drop(pending);
    if failed && params.cancel_siblings_on_failure {
        table.cancel_open(session).await?;
    } else {
        table.close(session, timed_out).await?;
    }
    let total = table.total(session).await?;
    Ok(table.answer(params.require_all, total, Some(taken + began.elapsed())))
}

/// Reports the current status of the runs without waiting.
pub(super) async fn aggregate(ids: &[Value], session: &Session<'_>) -> Result<Value, Failure> {
    let mut table = Table::of(ids, session).await?;
    table.close(session, false).await?;
    let total = table.total(session).await?;
    Ok(table.answer(true, total, None))
}

/// Timeout of a wait, 0 for none: `given`, else the default of the run's configuration, and at most its maximum.
fn limit(given: Option<f64>, waits: Waits) -> Result<Duration, Failure> {
    let usual = waits.usual.unwrap_or(USUAL_SECONDS);
    let limit = seconds("timeout", given.unwrap_or_else(|| usual.into()))?;
    let Some(most) = waits.most else {
        return Ok(limit);
    };
    let longest = Duration::from_secs(most.into());
    if limit > longest {
        return Err(invalid(format!(
            "`timeout` is at most {most} seconds (`wait_threads.max_timeout` of `config:agent/coordination`); 0 waits as long as that"
        )));
    }
    Ok(if limit.is_zero() { longest } else { limit })
}

/// Resolves when `limit` has passed since the call first began, `taken` ago; never if `limit` is 0.
async fn sleep(limit: Duration, taken: Duration) {
    if limit.is_zero() {
        std::future::pending::<()>().await;
    }
    tokio::time::sleep(limit.saturating_sub(taken)).await;
}

/// Time since the call first began; zero if the wall clock went back.
async fn taken(session: &Session<'_>) -> Duration {
    let record = session.runs.get(session.run.clone()).await;
    let mut attempts = record.iter().flat_map(|record| record.attempts());
    let own = attempts.find(|attempt| (attempt.id.step, attempt.id.slot) == session.attempt);
    let now = session.clock.now();
    Duration::from_millis(own.map_or(0, |own| now.ms_since(own.since)))
}

fn is_failure(run: &Run) -> bool {
    let status = run.status();
    status.is_terminal() && !status.is_success()
}

impl Table {
    /// Looks up all ids. The result of a nested or detached run stands for that run. Any other value without an id is
    /// the result of a failed start.
    async fn of(ids: &[Value], session: &Session<'_>) -> Result<Self, Failure> {
        if ids.len() > MOST_RUNS {
            return Err(invalid(format!(
                "`thread_ids` has {} entries; one call takes at most {MOST_RUNS}",
                ids.len()
            )));
        }
        let mut rows: Vec<Row> = Vec::new();
        for (place, id) in ids.iter().enumerate() {
            let Some(name) = named(id) else {
                let why = id.get("error").and_then(Value::as_str);
                let why = why.unwrap_or("this is no run id; its start must have failed");
                let failure = Failure::permanent("run_not_started", why);
                rows.push(Row::failed(format!("__failed_{place}"), &failure));
                continue;
            };
            if rows.iter().any(|row| row.label == name) {
                continue;
            }
            rows.push(match look_up(session, name).await {
                Ok(run) => Row {
                    label: name.to_owned(),
                    run: Some(run),
                    cost: Cost::default(),
                    entry: None,
                },
                Err(failure) => Row::failed(name.to_owned(), &failure),
            });
        }
        Ok(Self { rows })
    }

    /// A wait for the calling run itself would never end.
    async fn refuse_own_ancestry(&mut self, session: &Session<'_>) -> Result<(), Failure> {
        let open: Vec<_> = self.open().collect();
        for (place, run) in open {
            if is_self_or_ancestor(session, &run).await? {
                let text = format!("`{}` is the run that waits, or waits for it", run.id);
                self.fail(place, &Failure::permanent("waits_for_itself", text));
            }
        }
        Ok(())
    }

    fn open(&self) -> impl Iterator<Item = (usize, Arc<Run>)> {
        let rows = self.rows.iter().enumerate();
        rows.filter(|(_, row)| row.entry.is_none())
            .filter_map(|(place, row)| Some((place, Arc::clone(row.run.as_ref()?))))
    }

    /// Makes the entry of a run in its current state, and returns it.
    async fn report(
        &mut self,
        row: usize,
        run: Arc<Run>,
        session: &Session<'_>,
    ) -> Result<Option<&mut Value>, Failure> {
        let cost = report::cost(&run, session).await?;
        let Some(row) = self.rows.get_mut(row) else {
            return Ok(None);
        };
        let entry = report::result(&run, &cost);
        (row.run, row.cost) = (Some(run), cost);
        Ok(Some(row.entry.insert(entry)))
    }

    fn fail(&mut self, row: usize, failure: &Failure) {
        if let Some(row) = self.rows.get_mut(row) {
            row.entry = Some(report::failed(failure));
            row.run = None;
        }
    }

    /// Makes the entries of the runs that have not settled.
    async fn close(&mut self, session: &Session<'_>, timed_out: bool) -> Result<(), Failure> {
        let open: Vec<_> = self.open().collect();
        for (place, run) in open {
            let run = session.runs.get(run.id.clone()).await.unwrap_or(run);
            let is_open = !is_settled(&run);
            let entry = self.report(place, run, session).await?;
            if let Some(entry) = entry.filter(|_| is_open && timed_out) {
                entry["status"] = json!("timeout");
            }
        }
        Ok(())
    }

    /// Cancels the runs that have not settled, and makes their entries once they have ended. After [`CANCEL_WAIT`] seconds
    /// one that still works is reported as `cancelling`.
    async fn cancel_open(&mut self, session: &Session<'_>) -> Result<(), Failure> {
        let ends = self.open().map(|(place, run)| async move {
            let run = session.runs.get(run.id.clone()).await.unwrap_or(run);
            if is_settled(&run) {
                return (place, run, None);
            }
            let cancelled = cancel(session, &run).await;
            let patience = Duration::from_secs_f64(CANCEL_WAIT);
            if cancelled.is_ok() {
                let settled = session.runs.settled(run.id.clone());
                drop(tokio::time::timeout(patience, settled).await);
            }
            let run = session.runs.get(run.id.clone()).await.unwrap_or(run);
            (place, run, Some(cancelled))
        });
        for (place, run, cancelled) in join_all(ends.collect::<Vec<_>>()).await {
            let is_open = !is_settled(&run);
            let Some(entry) = self.report(place, run, session).await? else {
                continue;
            };
            match cancelled {
                Some(Ok(())) => {
                    entry["reason"] = json!(SIBLING_FAILURE);
                    if is_open {
                        entry["status"] = json!("cancelling");
                    }
                }
                Some(Err(failure)) => entry["error"] = json!(failure.message),
                None => {}
            }
        }
        Ok(())
    }

    /// Total cost of the runs. The cost of a run below another one of them is part of that one's cost.
    async fn total(&self, session: &Session<'_>) -> Result<Usd, Failure> {
        let paid = |row: &&Row| row.cost.usage.money > Usd::ZERO;
        let accounts: BTreeMap<_, _> = self
            .rows
            .iter()
            .filter(paid)
            .filter_map(|row| Some((&row.run.as_ref()?.spec.budget.account, row)))
            .collect();
        let mut total = Usd::ZERO;
        for row in accounts.values() {
            let Some(run) = &row.run else { continue };
            let path = session.runs.budget_path(Arc::clone(run)).await;
            let path = path.map_err(Refusal::of_run)?;
            if path
                .iter()
                .skip(1)
                .any(|above| accounts.contains_key(&above.id))
            {
                continue;
            }
            let sum = total.checked_add(row.cost.usage.money);
            total = sum.ok_or_else(|| {
                Failure::permanent(
                    "internal",
                    "what the runs have cost does not fit one amount",
                )
            })?;
        }
        Ok(total)
    }

    fn answer(self, require_all: bool, total: Usd, elapsed: Option<Duration>) -> Value {
        let well = |row: &Row| {
            row.run
                .as_deref()
                .is_some_and(|run| run.status().is_success())
        };
        let success = if require_all {
            self.rows.iter().all(well)
        } else {
            self.rows.is_empty() || self.rows.iter().any(well)
        };
        let unwell: Vec<_> = self
            .rows
            .iter()
            .filter(|row| !well(row))
            .map(Row::describe)
            .collect();
        let entries = self
            .rows
            .into_iter()
            .map(|row| (row.label, row.entry.unwrap_or_default()));
        let threads: Object = entries.collect();
        let mut answer = json!({
            "success": success,
            "threads": threads,
            "results": threads,
            "total_cost": total.to_number(),
        });
        if let Some(elapsed) = elapsed {
            answer["elapsed_seconds"] = json!(elapsed.as_secs_f64());
        }
        if !success {
            answer["error"] = json!(format!("not completed: {}", unwell.join(", ")));
        }
        answer
    }
}

impl Row {
    fn failed(label: String, failure: &Failure) -> Self {
        Self {
            label,
            run: None,
            cost: Cost::default(),
            entry: Some(report::failed(failure)),
        }
    }

    /// Id and status, for people.
    fn describe(&self) -> String {
        let entry = self.entry.as_ref();
        let word = |key| {
            entry
                .and_then(|entry| entry.get(key))
                .and_then(Value::as_str)
        };
        let status = word("status").unwrap_or("unknown");
        match word("error") {
            Some(error) => format!("{} ({status}: {error})", self.label),
            None => format!("{} ({status})", self.label),
        }
    }
}

/// Id of the run that `id` stands for.
pub(super) fn named(id: &Value) -> Option<&str> {
    let keys = ["run_id", "thread_id", "graph_run_id"];
    let inner = || keys.into_iter().find_map(|key| id.get(key)?.as_str());
    id.as_str().or_else(inner)
}

/// The run to wait for: the newest of its chain of continuations.
async fn look_up(session: &Session<'_>, id: &str) -> Result<Arc<Run>, Failure> {
    let run = visible(session, id).await?;
    session
        .runs
        .newest(run.id.clone())
        .await
        .map_err(Refusal::of_run)
}

fn is_settled(run: &Run) -> bool {
    run.status().is_terminal() || run.status() == Status::Suspended
}

async fn cancel(session: &Session<'_>, run: &Run) -> Result<(), Failure> {
    let run = actionable(session, run.id.as_str()).await?;
    let asked = session.runs.cancel(
        run.id.clone(),
        SIBLING_FAILURE.to_owned(),
        CancelMode::Useless,
    );
    asked.await.map(|_| ()).map_err(Refusal::of_run)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_timeout_comes_from_configuration() {
        let most = Some(60);
        // Value in the call, value in the configuration, and the resulting seconds; 0 is without end.
        let table = [
            (None, None, None, Some(600)),
            (None, Some(5), None, Some(5)),
            (None, Some(0), None, Some(0)),
            (Some(7.0), Some(5), None, Some(7)),
            (Some(0.0), Some(5), None, Some(0)),
            (Some(0.0), Some(5), most, Some(60)),
            (Some(60.0), Some(5), most, Some(60)),
            (Some(60.5), Some(5), most, None),
        ];
        for (given, usual, most, expected) in table {
            let limit = limit(given, Waits { usual, most });
            if let Some(seconds) = expected {
                assert_eq!(limit.unwrap().as_secs(), seconds, "{given:?}");
            } else {
                let failure = limit.unwrap_err();
                assert_eq!(failure.code, "invalid_params");
                assert!(failure.message.contains("`wait_threads.max_timeout`"));
            }
        }
    }

    #[test]
    fn run_id_is_read_from_text_or_result() {
        assert_eq!(named(&json!("a-1")), Some("a-1"));
        assert_eq!(named(&json!({"thread_id": "a-1"})), Some("a-1"));
        assert_eq!(
            named(&json!({"graph_run_id": "a-1", "success": false})),
            Some("a-1")
        );
        assert_eq!(named(&json!({"success": false, "error": "x"})), None);
        assert_eq!(named(&Value::Null), None);
        assert_eq!(named(&json!(7)), None);
    }
}
