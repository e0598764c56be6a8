//! The cost of runs is reported wherever runs are reported: in records, in lists, and to graphs that wait for them.

use std::fs;

use rye_core::id::{RunId, Seq};
use rye_core::ledger::{CallNo, Usage};
use rye_core::model::Event;
use rye_core::model::event::{BudgetHeld, BudgetSettled};
use rye_core::model::{Because, Status};
use rye_core::money::Usd;
use serde_json::{Value, json};

use super::rig::{Daemon, PATIENCE, Rig};
use crate::access::Access;
use rye_journal::{Change, Filter};

/// Calls `t/child`, and returns.
const PARENT: &str = "config:
  start: a
  nodes:
    a: {action: {item_id: t/child, params: {}}, next: b}
    b: {type: return}
";

/// Waits for the file `go`.
const CHILD: &str = "config:
  start: a
  nodes:
    a: {action: {item_id: rye/bash, params: {command: \"until [ -e go ]; do sleep 0.01; done\"}}, next: b}
    b: {type: return}
";

/// Queries both.
const ASKS: &str = "config:
  start: all
  nodes:
    all:
      action: {item_id: rye/agent/threads/orchestrator, params: {operation: aggregate_results, thread_ids: [PARENT, CHILD]}}
      assign: {all: \"${result}\"}
      next: one
    one:
      action: {item_id: rye/core/processes/status, params: {run_id: CHILD}}
      assign: {one: \"${result}\"}
      next: out
    out: {type: return, output: {all: \"${state.all}\", one: \"${state.one}\"}}
";

/// A paid call of `run` that cost `money`.
async fn pay(daemon: &Daemon, run: &RunId, call: u32, money: &str) {
    let amount = Usd::parse("0.25").unwrap();
    let held = BudgetHeld {
        call: CallNo(call),
        amount,
        model: "scripted".to_owned(),
        input: 10,
        max_output: 20,
        meters: Vec::new(),
    };
    let settled = BudgetSettled {
        call: CallNo(call),
        amount,
        usage: Usage {
            money: Usd::parse(money).unwrap(),
            calls: 1,
            turns: 1,
            input: 10,
            ..Usage::default()
        },
        estimated: true,
        because: Because::Cut,
    };
    for event in [Event::from(held), settled.into()] {
        let paid = vec![Change::event(run, event)];
        daemon.journal.commit(paid).await.unwrap();
    }
}

/// Payload of the first `step_started` of `run`.
async fn step_of(daemon: &Daemon, run: &RunId) -> Value {
    let mut feed = daemon.journal.subscribe(run, Seq(1)).await.unwrap();
    let started = async {
        loop {
            let line = feed.next().await.expect("the run goes on").unwrap();
            if line.event_type == "step_started" {
                return serde_json::from_str(&line.payload).unwrap();
            }
        }
    };
    let started = tokio::time::timeout(PATIENCE, started).await;
    started.expect("a step begins")
}

/// Cost of `run` that `access` reports, in its record and in the list.
async fn cost_views(access: &Access, daemon: &Daemon, run: &RunId) -> (String, u32) {
    let record = daemon.record(run).await;
    let caller = &record.spec.layers[0];
    let on_record = access.visible(caller, run).await.unwrap().extras().await;
    let cost = on_record.unwrap().cost;
    let (list, _) = access
        .list(caller, Filter::default(), None, 10)
        .await
        .unwrap();
    let listed = list.into_iter().find(|listed| listed.run.id == *run);
    assert_eq!(listed.unwrap().extras.cost, cost);
    (cost.usage.money.to_string(), cost.usage.turns)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_cost_is_in_record_lists_and_graphs() {
    let rig = Rig::new();
    let daemon = rig.start().await;
    let project = rig.project("p", &[("parent", PARENT), ("child", CHILD)]);
    let root = daemon.run(&project, "t/parent").await;
    let child = step_of(&daemon, &root).await["child"].clone();
    let child: RunId = serde_json::from_value(child).unwrap();
    step_of(&daemon, &child).await;
    pay(&daemon, &root, 1, "0.01").await;
    pay(&daemon, &child, 1, "0.02").await;
    let access = Access::new(daemon.supervisor.clone());
    let of = |money: &str, turns| (money.to_owned(), turns);
    assert_eq!(
        cost_views(&access, &daemon, &child).await,
        of("0.020000000", 1)
    );
    assert_eq!(
        cost_views(&access, &daemon, &root).await,
        of("0.030000000", 2)
    );
    fs::write(project.join("go"), "").unwrap();
    assert_eq!(daemon.settled(&root).await, Status::Completed);
    assert_eq!(
        cost_views(&access, &daemon, &child).await,
        of("0.020000000", 1)
    );
    assert_eq!(
        cost_views(&access, &daemon, &root).await,
        of("0.030000000", 2)
    );
    let asks = ASKS
        .replace("PARENT", root.as_str())
        .replace("CHILD", child.as_str());
    let project = rig.project("p", &[("asks", &asks)]);
    let asks = daemon.run(&project, "t/asks").await;
    assert_eq!(daemon.settled(&asks).await, Status::Completed);
    let output = daemon.record(&asks).await.output().cloned().unwrap();
    let cost = |turns: u32, steps: u32, spend: f64| {
        json!({
            "turns": turns, "input_tokens": 10 * turns, "output_tokens": 0, "cache_read_tokens": 0, "cache_write_tokens": 0,
            "reasoning_tokens": 0, "spend": spend, "estimated": true, "steps": steps,
        })
    };
    let threads: &Value = &output["all"]["threads"];
    assert_eq!(threads[root.as_str()]["cost"], cost(2, 2, 0.03));
    assert_eq!(threads[child.as_str()]["cost"], cost(1, 2, 0.02));
    assert_eq!(output["all"]["total_cost"], 0.03, "the child is part of it");
    assert_eq!(output["one"]["cost"], cost(1, 2, 0.02));
    daemon.stop().await;
}
