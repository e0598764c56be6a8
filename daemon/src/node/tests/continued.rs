//! The payer of a run that continues an ended one, by the state of its ancestors; and the accounts after a run that
//! breaks a rule.

use std::fs;
use std::path::{Path, PathBuf};

use rye_core::id::{RunId, Seq};
use rye_core::ledger::{AccountId, CallNo, Usage};
use rye_core::model::Event;
use rye_core::model::event::{BudgetHeld, BudgetSettled, StepCompleted};
use rye_core::model::{Because, Object, Status, StepStatus};
use rye_core::money::Usd;
use serde_json::Value;

use super::rig::{Daemon, PATIENCE, Rig};
use crate::port::Resume;
use rye_journal::{AccountRow, Change};

/// A graph of these nodes; the first is its start.
fn graph(limits: &str, nodes: &[&str]) -> String {
    let (start, _) = nodes[0].split_once(':').unwrap();
    let nodes = nodes.join("\n    ");
    format!(
        "limits: {{{limits}}}\nconfig:\n  start: {start}\n  nodes:\n    {nodes}\n    out: {{type: return}}\n"
    )
}

/// A node that waits for one file, and then fails unless there is another one.
fn shell(node: &str, go: &str, ok: &str, next: &str) -> String {
    let command = format!("until [ -e {go} ]; do sleep 0.01; done; [ -e {ok} ]");
    format!("{node}: {{action: {{item_id: rye/bash, params: {{command: \"{command}\"}}}}, {next}}}")
}

/// A node that calls a graph.
fn calls(node: &str, item: &str, next: &str) -> String {
    format!("{node}: {{action: {{item_id: {item}, params: {{}}}}, {next}}}")
}

fn put(project: &Path, name: &str) {
    fs::write(project.join(name), "").unwrap();
}

fn usd(text: &str) -> Usd {
    Usd::parse(text).unwrap()
}

/// The child run that `node` of `run` started.
async fn child(daemon: &Daemon, run: &RunId, node: &str) -> RunId {
    let mut feed = daemon.journal.subscribe(run, Seq(1)).await.unwrap();
    let started = async {
        loop {
            let line = feed.next().await.expect("the run goes on").unwrap();
            let told: Value = serde_json::from_str(&line.payload).unwrap();
            if line.event_type == "step_started" && told["node"] == node {
                return serde_json::from_value(told["child"].clone()).unwrap();
            }
        }
    };
    let child = tokio::time::timeout(PATIENCE, started).await;
    child.expect("the child run begins")
}

/// Events of a call of `run` that held 0.1 USD and cost `money`.
fn call(call: u32, money: &str) -> [Event; 2] {
    let (call, amount) = (CallNo(call), usd("0.1"));
    let held = BudgetHeld {
        call,
        amount,
        model: "scripted".to_owned(),
        input: 10,
        max_output: 20,
        meters: Vec::new(),
    };
    let settled = BudgetSettled {
        call,
        amount,
        usage: Usage {
            money: usd(money),
            calls: 1,
            ..Usage::default()
        },
        estimated: false,
        because: Because::Usage,
    };
    [held.into(), settled.into()]
}

async fn pay(daemon: &Daemon, run: &RunId, number: u32, money: &str) {
    let paid = call(number, money).map(|event| Change::event(run, event));
    daemon.journal.commit(paid.to_vec()).await.unwrap();
}

async fn row(daemon: &Daemon, account: &RunId) -> AccountRow {
    let row = daemon.journal.account(&AccountId(account.clone())).await;
    row.unwrap().expect("an account")
}

async fn resumed(daemon: &Daemon, run: &RunId) -> RunId {
    let request = Resume {
        by: "a test".to_owned(),
        ..Resume::default()
    };
    let next = daemon.supervisor.resume(run, request).await.unwrap();
    next.id.clone()
}

/// A project with `t/leaf`, which may spend 0.25 USD, `t/middle`, which calls it, and `t/top`, which calls that and
/// continues whatever its outcome.
fn family(rig: &Rig, middle: &[&str]) -> PathBuf {
    let leaf = graph(
        "spend: 0.25",
        &[&shell("a", "leaf-go", "leaf-ok", "next: out")],
    );
    let top = [
        &calls("a", "t/middle", "next: wait, on_error: wait"),
        &*shell("wait", "top-go", "top-go", "next: out"),
    ];
    let (middle, top) = (graph("", middle), graph("spend: 1", &top));
    rig.project("p", &[("leaf", &leaf), ("middle", &middle), ("top", &top)])
}

/// Starts `t/top`. Returns it, the run of `t/middle` and that of `t/leaf`.
async fn started(daemon: &Daemon, project: &Path) -> [RunId; 3] {
    let top = daemon.run(project, "t/top").await;
    let middle = child(daemon, &top, "a").await;
    let leaf = child(daemon, &middle, "a").await;
    [top, middle, leaf]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn continued_run_reopens_account_under_open_parent() {
    let rig = Rig::new();
    let daemon = rig.start().await;
    let wait = shell("wait", "middle-go", "middle-go", "next: out");
    let middle = [&calls("a", "t/leaf", "next: wait, on_error: wait"), &*wait];
    let project = family(&rig, &middle);
    let [top, middle, leaf] = started(&daemon, &project).await;
    pay(&daemon, &leaf, 1, "0.06").await;
    assert_eq!(row(&daemon, &top).await.account.used(), usd("0.25"));
    put(&project, "leaf-go");
    assert_eq!(daemon.ended(&leaf).await.status(), Status::Error);
    assert!(row(&daemon, &leaf).await.closed);
    assert_eq!(row(&daemon, &top).await.account.used(), usd("0.06"));

    fs::remove_file(project.join("leaf-go")).unwrap();
    let next = resumed(&daemon, &leaf).await;
    assert_ne!(next, leaf);
    let own = row(&daemon, &leaf).await;
    assert!(!own.closed, "the account of the chain is open again");
    assert_eq!(own.account.parent, Some(AccountId(middle.clone())));
    assert_eq!(own.account.remaining(), Some(usd("0.19")));
    let above = row(&daemon, &top).await.account;
    assert_eq!(above.used(), usd("0.25"), "its share is reserved again");
    // Its earlier spending is counted once, whatever it spends in addition.
    pay(&daemon, &next, 2, "0.04").await;
    put(&project, "leaf-ok");
    put(&project, "leaf-go");
    assert_eq!(daemon.ended(&next).await.status(), Status::Completed);
    put(&project, "middle-go");
    put(&project, "top-go");
    assert_eq!(daemon.settled(&top).await, Status::Completed);
    let total = row(&daemon, &top).await.account.total().unwrap();
    assert_eq!((total.money, total.calls), (usd("0.1"), 2));
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn continued_run_reopens_account_until_ended_parent_is_closed() {
    let rig = Rig::new();
    let daemon = rig.start().await;
    // A child run that it does not wait for keeps its account open beyond its end.
    let detached = "b: {action: {item_id: t/waits, params: {async: true}}, next: out}";
    let middle = [&calls("a", "t/leaf", "next: b, on_error: b"), detached];
    let project = family(&rig, &middle);
    let waits = graph("", &[&shell("a", "waits-go", "waits-go", "next: out")]);
    let _project = rig.project("p", &[("waits", &waits)]);
    let [top, middle, leaf] = started(&daemon, &project).await;
    pay(&daemon, &leaf, 1, "0.06").await;
    put(&project, "leaf-go");
    assert!(daemon.ended(&middle).await.status().is_terminal());
    let above = row(&daemon, &middle).await;
    assert_eq!((above.closed, above.account.ended), (false, true));

    put(&project, "leaf-ok");
    let next = resumed(&daemon, &leaf).await;
    assert_eq!(daemon.ended(&next).await.status(), Status::Completed);
    let own = row(&daemon, &leaf).await;
    assert_eq!(own.account.parent, Some(AccountId(middle.clone())));
    put(&project, "waits-go");
    put(&project, "top-go");
    assert_eq!(daemon.settled(&top).await, Status::Completed);
    let waits = child(&daemon, &middle, "b").await;
    assert_eq!(daemon.ended(&waits).await.status(), Status::Completed);
    let above = row(&daemon, &middle).await;
    assert!(above.closed, "the last one below it is over");
    assert_eq!(above.account.total().unwrap().money, usd("0.06"));
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn continued_run_gets_new_account_under_nearest_open_ancestor() {
    let rig = Rig::new();
    let daemon = rig.start().await;
    let project = family(&rig, &[&calls("a", "t/leaf", "next: out")]);
    let [top, middle, leaf] = started(&daemon, &project).await;
    pay(&daemon, &leaf, 1, "0.06").await;
    put(&project, "leaf-go");
    assert_eq!(daemon.ended(&middle).await.status(), Status::Error);
    let above = row(&daemon, &middle).await;
    assert!(above.closed);

    fs::remove_file(project.join("leaf-go")).unwrap();
    let next = resumed(&daemon, &leaf).await;
    let own = row(&daemon, &next).await.account;
    assert_eq!(own.parent, Some(AccountId(top.clone())));
    assert_eq!(own.limit, Some(usd("0.19")), "what was left of its limit");
    assert_eq!(
        row(&daemon, &middle).await,
        above,
        "what is closed stays so"
    );
    assert_eq!(row(&daemon, &top).await.account.used(), usd("0.25"));
    pay(&daemon, &next, 1, "0.04").await;
    put(&project, "leaf-ok");
    put(&project, "leaf-go");
    assert_eq!(daemon.ended(&next).await.status(), Status::Completed);
    put(&project, "top-go");
    assert_eq!(daemon.settled(&top).await, Status::Completed);
    let total = row(&daemon, &top).await.account.total().unwrap();
    assert_eq!((total.money, total.calls), (usd("0.1"), 2));
    daemon.stop().await;
}

/// A node that waits for a file, and assigns its content to `key`.
fn reads(node: &str, file: &str, key: &str, next: &str) -> String {
    let command = format!("until [ -e {file} ]; do sleep 0.01; done; cat {file}");
    format!(
        "{node}: {{action: {{item_id: rye/bash, params: {{command: \"{command}\"}}}}, assign: {{{key}: \"${{result.stdout}}\"}}, next: {next}}}"
    )
}

/// A node that resumes the run named by `key`.
fn resumes(node: &str, key: &str, more: &str, next: &str) -> String {
    format!(
        "{node}: {{action: {{item_id: rye/agent/threads/resume_thread, params: {{thread_id: \"${{state.{key}}}\"{more}}}}}, \
         assign: {{{node}: \"${{result.new_thread_id}}\"}}, {next}}}"
    )
}

/// Writes the id of `run` to a file that a node reads.
fn hand_over(project: &Path, file: &str, run: &RunId) {
    let kept = project.join("kept");
    fs::write(&kept, run.as_str()).unwrap();
    fs::rename(kept, project.join(file)).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_continued_by_run_is_charged_to_its_tree() {
    let rig = Rig::new();
    let daemon = rig.start().await;
    // A leaf without a limit of its own. The run above it fails until there is a file, and then has it continued.
    let leaf = graph("", &[&shell("a", "leaf-go", "leaf-ok", "next: out")]);
    let middle = [
        &calls("a", "t/leaf", "next: gate, on_error: gate"),
        &*shell("gate", "go", "middle-ok", "next: read"),
        &*reads("read", "who", "leaf", "resume"),
        &*resumes("resume", "leaf", "", "next: wait"),
        &*shell("wait", "middle-go", "middle-go", "next: out"),
    ];
    let top = graph("spend: 1", &[&calls("a", "t/middle", "next: out")]);
    let middle = graph("spend: 0.5", &middle);
    let project = rig.project("p", &[("leaf", &leaf), ("middle", &middle), ("top", &top)]);
    let [top, middle, leaf] = started(&daemon, &project).await;
    pay(&daemon, &leaf, 1, "0.06").await;
    put(&project, "leaf-go");
    put(&project, "go");
    assert_eq!(daemon.settled(&top).await, Status::Error);
    for run in [&top, &middle, &leaf] {
        assert!(row(&daemon, run).await.closed, "{run}");
    }
    // No ancestor is open any more: it is the root of a tree of its own, made by a person.
    put(&project, "middle-ok");
    let second = resumed(&daemon, &middle).await;
    let own = row(&daemon, &second).await.account;
    assert_eq!((&own.parent, own.limit), (&None, Some(usd("0.44"))));
    fs::remove_file(project.join("leaf-go")).unwrap();
    hand_over(&project, "who", &leaf);
    let next = async {
        loop {
            let newest = daemon.supervisor.newest(&leaf).await.unwrap();
            if newest.id != leaf {
                return newest.id.clone();
            }
            tokio::task::yield_now().await;
        }
    };
    let next = tokio::time::timeout(PATIENCE, next).await.unwrap();
    let account = row(&daemon, &next).await.account;
    assert_eq!(account.parent, Some(AccountId(second.clone())));
    pay(&daemon, &next, 1, "0.04").await;
    assert_eq!(row(&daemon, &second).await.account.used(), usd("0.04"));
    put(&project, "leaf-ok");
    put(&project, "leaf-go");
    put(&project, "middle-go");
    assert_eq!(daemon.settled(&second).await, Status::Completed);
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_raises_limits_of_descendants_only_and_from_its_own() {
    let rig = Rig::new();
    let daemon = rig.start().await;
    let leaf = graph(
        "spend: 0.25",
        &[&shell("a", "leaf-go", "leaf-ok", "next: out")],
    );
    let refused = |node: &str, key: &str, spend: &str, next: &str| {
        let more = format!(", action: bump_and_resume, new_limits: {{spend: {spend}}}");
        let edges = format!("next: wrong, on_error: {next}");
        resumes(node, key, &more, &edges)
    };
    let raise = ", action: bump_and_resume, new_limits: {spend: 0.40}";
    let middle = [
        &calls("a", "t/leaf", "next: root, on_error: root"),
        &*reads("root", "root", "root", "sibling"),
        &*reads("sibling", "sibling", "sibling", "leaf"),
        &*reads("leaf", "leaf", "leaf", "own"),
        &*reads("own", "own", "own", "raise_root"),
        &*refused("raise_root", "root", "9", "raise_own"),
        &*refused("raise_own", "own", "9", "raise_sibling"),
        &*refused("raise_sibling", "sibling", "9", "raise_too_much"),
        // It has 0.5 USD for itself and all its descendants.
        &*refused("raise_too_much", "leaf", "0.51", "raise"),
        &*resumes("raise", "leaf", raise, "next: out"),
        "wrong: {type: fail, message: wrong}",
    ];
    let sibling = graph("spend: 0.1", &["a: {type: wait, for: 3600, next: out}"]);
    let top = [
        "b: {action: {item_id: t/sibling, params: {async: true}}, next: a}",
        &*calls("a", "t/middle", "next: out"),
    ];
    let (middle, top) = (graph("spend: 0.5", &middle), graph("spend: 1", &top));
    let graphs = [
        ("leaf", &*leaf),
        ("middle", &middle),
        ("sibling", &sibling),
        ("top", &top),
    ];
    let project = rig.project("p", &graphs);
    let top = daemon.run(&project, "t/top").await;
    let sibling = child(&daemon, &top, "b").await;
    let middle = child(&daemon, &top, "a").await;
    let leaf = child(&daemon, &middle, "a").await;
    pay(&daemon, &leaf, 1, "0.06").await;
    put(&project, "leaf-go");
    assert_eq!(daemon.ended(&leaf).await.status(), Status::Error);
    let _suspended = daemon.supervisor.suspend(&sibling).await.unwrap();
    put(&project, "leaf-ok");
    for (file, run) in [
        ("root", &top),
        ("sibling", &sibling),
        ("leaf", &leaf),
        ("own", &middle),
    ] {
        hand_over(&project, file, run);
    }
    let ended = daemon.ended(&middle).await;
    let told = format!("{:?}", ended.failure());
    assert_eq!(ended.status(), Status::Completed, "{told}");
    let limit = async |run: &RunId| row(&daemon, run).await.account.limit;
    assert_eq!(limit(&top).await, Some(usd("1")));
    assert_eq!(limit(&middle).await, Some(usd("0.5")));
    assert_eq!(limit(&sibling).await, Some(usd("0.1")));
    assert_eq!(limit(&leaf).await, Some(usd("0.4")), "the fifth one");
    assert_eq!(daemon.record(&sibling).await.status(), Status::Suspended);
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forbidden_change_ends_run_as_bug_and_keeps_account() {
    let rig = Rig::new();
    let daemon = rig.start().await;
    let root = graph("spend: 1", &[&shell("a", "go", "go", "next: out")]);
    let project = rig.project("p", &[("root", &root)]);
    let run = daemon.run(&project, "t/root").await;
    let mut feed = daemon.journal.subscribe(&run, Seq(1)).await.unwrap();
    while feed.next().await.expect("it goes on").unwrap().event_type != "step_started" {}
    pay(&daemon, &run, 1, "0.06").await;
    let before = row(&daemon, &run).await;
    let [held, settled] = call(1, "0.06");
    for wrong in [settled, held] {
        let refused = vec![Change::event(&run, wrong)];
        assert!(daemon.journal.commit(refused).await.is_err());
        assert_eq!(row(&daemon, &run).await, before);
    }
    // Another source ends the step and leaves a call open, so that every later event of its driver breaks the rules.
    let ended = StepCompleted {
        step: 1,
        node: "a".into(),
        status: StepStatus::Ok,
        elapsed_ms: 1,
        next_node: Some("out".into()),
        assigned: Object::new().into(),
        error: None,
        suppressed: false,
        output: None,
        action_id: None,
        result: None,
        cache_hit: false,
        node_input_hash: None,
    };
    let [held, _] = call(2, "0.01");
    let both = [held, ended.into()].map(|event| Change::event(&run, event));
    daemon.journal.commit(both.to_vec()).await.unwrap();
    put(&project, "go");
    let record = daemon.ended(&run).await;
    let failure = record.failure().expect("it failed");
    assert_eq!(record.status(), Status::Error);
    assert!(
        ["internal", "panicked"].contains(&&*failure.code),
        "{failure:?}"
    );
    let own = row(&daemon, &run).await;
    assert!(own.closed);
    // The open call is settled at the held amount, in the commit of the end; nothing else has changed.
    let total = own.account.total().unwrap();
    assert_eq!((total.money, total.calls), (usd("0.16"), 2));
    assert_eq!(
        (own.account.estimated, own.account.limit),
        (usd("0.1"), Some(usd("1")))
    );
    daemon.stop().await;
}
