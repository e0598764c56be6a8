//! Minimal environment of a driver: a real journal, no dispatcher, no other runs.

use std::future::Future;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::BoxFuture;
use rye_core::cas::InputHashes;
use rye_core::clock::Clock;
use rye_core::id::{Epoch, ItemId, ItemRef, RunId};
use rye_core::ledger::{Caps, Cost, Denied};
use rye_core::machine::CallOutcome;
use rye_core::model::{
    Budget, Death, Failure, Kill, Killed, LogCursor, Resources, Run, RunEvent, Spec, Task,
    WatchRule,
};
use rye_core::money::Usd;
use rye_core::state::Change;
use rye_host::clock::HostClock;
use rye_host::crash_suspects::Suspects;
use rye_journal::testing::Key;
use rye_journal::{Filter, Journal, Options, Signer, Summary};
use ryed::async_log::Logs;
use ryed::callbacks::Callbacks;
use ryed::config::{Args, Environment, Networks, load};
use ryed::contracts::Contracts;
use ryed::drive::Job;
use ryed::graphs::Graphs;
use ryed::live_processes::LiveProcesses;
use ryed::port::{AccountView, Nest, Nested, ProcessStart, Refusal, Resume, Runs};
use ryed::ports::PortTable;
use ryed::process_log::ProcessLogs;
use ryed::projects::Projects;
use ryed::provider::Providers;
use ryed::services::{AttemptCtx, Dispatch, Ended, Order, Prepared, Services};
use ryed::stop::CancelMode;
use ryed::survivor::Survivors;
use serde_json::Value;

/// Time limit of a test on a busy machine.
const PATIENCE: Duration = Duration::from_mins(2);

/// No call of these tests has an effect of its own.
#[derive(Debug)]
struct Nothing;

impl Dispatch for Nothing {
    fn prepare(&self, _orders: Vec<Order>) -> BoxFuture<'_, Vec<Prepared>> {
        unreachable!("the kind of these tests looks nothing up")
    }

    fn carry_out<'a>(&'a self, _prepared: Prepared, _cx: &'a AttemptCtx) -> BoxFuture<'a, Ended> {
        unreachable!("the kind of these tests carries its calls out")
    }

    fn check_limits(&self, _requested: Resources) -> Result<(), String> {
        Ok(())
    }
}

/// The owner of other runs, which no call of these tests uses.
#[derive(Debug)]
struct NoOtherRuns;

type Answer<'a, T> = BoxFuture<'a, Result<T, Refusal>>;

const NOBODY: &str = "no call of these tests asks for other runs";

impl Runs for NoOtherRuns {
    fn nest<'a>(&'a self, _order: Nest<'a>) -> BoxFuture<'a, Result<Nested, Failure>> {
        unreachable!("{NOBODY}")
    }

    fn launch(&self, _run: RunId) -> BoxFuture<'_, ()> {
        unreachable!("{NOBODY}")
    }

    fn settled(&self, _run: RunId) -> Answer<'_, Arc<Run>> {
        unreachable!("{NOBODY}")
    }

    fn get(&self, _run: RunId) -> Answer<'_, Arc<Run>> {
        unreachable!("{NOBODY}")
    }

    fn list(&self, _filter: Filter) -> Answer<'_, Vec<Summary>> {
        unreachable!("{NOBODY}")
    }

    fn steps(&self, _run: RunId) -> Answer<'_, Vec<Value>> {
        unreachable!("{NOBODY}")
    }

    fn newest(&self, _run: RunId) -> Answer<'_, Arc<Run>> {
        unreachable!("{NOBODY}")
    }

    fn has_unknown(&self, _run: Arc<Run>) -> BoxFuture<'_, bool> {
        unreachable!("{NOBODY}")
    }

    fn cancel(&self, _run: RunId, _cause: String, _mode: CancelMode) -> Answer<'_, Arc<Run>> {
        unreachable!("{NOBODY}")
    }

    fn kill(&self, _run: RunId, _asked: Kill) -> Answer<'_, (Arc<Run>, Killed)> {
        unreachable!("{NOBODY}")
    }

    fn start_process(&self, _request: ProcessStart) -> Answer<'_, (Arc<Run>, bool)> {
        unreachable!("{NOBODY}")
    }

    fn restart_process(&self, _run: RunId, _by: String) -> Answer<'_, Arc<Run>> {
        unreachable!("{NOBODY}")
    }

    fn process_started(&self, _run: RunId) -> Answer<'_, Arc<Run>> {
        unreachable!("{NOBODY}")
    }

    fn process_ready(&self, _run: RunId, _most: Duration) -> Answer<'_, Arc<Run>> {
        unreachable!("{NOBODY}")
    }

    fn watch_process(
        &self,
        _run: RunId,
        _rules: Vec<WatchRule>,
        _from: LogCursor,
    ) -> Answer<'_, Arc<Run>> {
        unreachable!("{NOBODY}")
    }

    fn lines_queued(&self, _process: RunId) -> Answer<'_, ()> {
        unreachable!("{NOBODY}")
    }

    fn emit(&self, _run: RunId, _name: String, _content: Value) -> Answer<'_, ()> {
        unreachable!("{NOBODY}")
    }

    fn resume(&self, _run: RunId, _request: Resume) -> Answer<'_, Arc<Run>> {
        unreachable!("{NOBODY}")
    }

    fn cost(&self, _run: Arc<Run>) -> Answer<'_, Cost> {
        unreachable!("{NOBODY}")
    }

    fn budget_path(&self, _run: Arc<Run>) -> Answer<'_, Vec<AccountView>> {
        unreachable!("{NOBODY}")
    }

    fn budget_tree(&self, _run: Arc<Run>) -> Answer<'_, Vec<(u32, AccountView)>> {
        unreachable!("{NOBODY}")
    }

    fn affords(&self, _run: &Run, _share: Usd) -> Result<(), Denied> {
        unreachable!("{NOBODY}")
    }
}

/// A call that only the kind itself executes.
pub(crate) fn begin() -> Job<()> {
    Job::Begin {
        plan: (),
        child: None,
        creates: Vec::new(),
        hashes: InputHashes::default(),
    }
}

/// The successful end of a call.
pub(crate) fn done() -> Ended {
    Ended::Outcome(Box::new(CallOutcome::known(Value::Null)))
}

pub(crate) async fn services(directory: &Path) -> Arc<Services> {
    recovered(directory, 1 << 16).await.0
}

/// The same with a log of segments of this size, and with the runs that were live when the journal was last open.
pub(crate) async fn recovered(
    directory: &Path,
    segment_bytes: u64,
) -> (Arc<Services>, Vec<Arc<Run>>) {
    let home = ("HOME".into(), directory.as_os_str().to_owned());
    let state = ("RYE_STATE_DIR".into(), directory.join("state").into());
    let config = load(&Args::default(), &Environment::of([home, state])).unwrap();
    let config = Arc::new(config.config);
    std::fs::create_dir_all(&config.state_dir).unwrap();
    let clock: Arc<dyn Clock> = Arc::new(HostClock);
    let key: Arc<dyn Signer> = Arc::new(Key::new());
    let options = Options {
        segment_bytes,
        ..Options::new(config.state_dir.clone(), Arc::clone(&clock), key)
    };
    let (journal, recovered) = Journal::open(options).await.unwrap();
    let services = Services {
        callbacks: Callbacks::new("/nowhere".into(), None),
        journal: Arc::new(journal),
        dispatch: Arc::new(Nothing),
        process_logs: ProcessLogs::new(&config.state_dir, Arc::new(HostClock)),
        survivors: Survivors::new(&config.state_dir),
        live_processes: LiveProcesses::default(),
        ports: Arc::new(PortTable::new(config.port_range.clone())),
        projects: Arc::new(Projects::new(config, clock)),
        graphs: Graphs::default(),
        contracts: Contracts::default(),
        logs: Logs::default(),
        runs: Weak::<NoOtherRuns>::new(),
        providers: Providers::new(
            &Environment::default(),
            &[],
            Networks::default(),
            Arc::new(HostClock),
        ),
        clock: Arc::new(HostClock),
        caps: Caps::default(),
        suspects: Arc::new(Suspects::open(directory, [], Death::Unknown)),
        epoch: recovered.epoch,
    };
    (Arc::new(services), recovered.live)
}

pub(crate) fn spec(id: &RunId, directory: &Path) -> Spec {
    Spec {
        project: directory.display().to_string(),
        files: directory.join(".ai").display().to_string(),
        principal: "uid:0".into(),
        ..Spec::new(
            Task::Tool,
            ItemRef::tool(ItemId::new("t/scripted").unwrap()),
            id.clone(),
            Budget::open(id.clone()),
        )
    }
}

/// A durable run that `epoch` owns.
pub(crate) async fn run(services: &Services, directory: &Path, epoch: Epoch) -> Arc<Run> {
    let id = RunId::new("t-1-a").unwrap();
    let started = RunEvent::started(epoch);
    let changes = vec![
        Change::create(&id, Arc::new(spec(&id, directory))),
        Change::event(&id, started.into()),
    ];
    let committed = services.journal.commit(changes).await.unwrap();
    services.journal.durable(committed.ticket).await.unwrap();
    services.journal.run(&id).await.unwrap().unwrap()
}

pub(crate) async fn in_time<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work)
        .await
        .expect("nothing waits for what waits for it")
}
