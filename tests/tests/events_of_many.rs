//! Events of several runs: of a tree, of a project, and of all runs; from a cursor on without gap or duplicate.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::process::Child;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use rye_tests::until::PATIENCE;
use rye_tests::{Ryectl, World, until};
use serde_json::Value;

/// A run that starts two more, and waits for the file `go` between them.
const OUTER: &str = r#"start: first
nodes:
  first: {action: {item_id: t/inner}, next: hold}
  hold:
    action: {item_id: rye/bash, params: {command: "touch in; until [ -e go ]; do sleep 0.01; done"}}
    next: second
  second: {action: {item_id: t/inner}, next: done}
  done: {type: return}"#;
const INNER: &str =
    "start: a\nnodes:\n  a: {action: {item_id: rye/core/echo}, next: done}\n  done: {type: return}";

fn world() -> World {
    let world = World::new();
    world.graph("t/inner", INNER);
    world.graph("t/outer", OUTER);
    world
}

/// Returns the positions of the events of each run, in the order of the stream.
fn positions(events: &[Value]) -> BTreeMap<String, Vec<u64>> {
    let mut positions: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for event in events {
        let run = event["run_id"].as_str().unwrap().to_owned();
        let seq = event["seq"].as_u64().unwrap();
        positions.entry(run).or_default().push(seq);
    }
    positions
}

/// Returns the runs of `events`, and asserts that each is complete.
fn whole(events: &[Value]) -> Vec<String> {
    let told = positions(events);
    for (run, seqs) in &told {
        assert!(
            seqs.iter().copied().eq((1..).take(seqs.len())),
            "{run}: {seqs:?}"
        );
    }
    told.into_keys().collect()
}

#[test]
fn a_tree_is_followed_with_its_past_until_all_of_it_has_ended() {
    let world = world();
    let _daemon = world.start("");
    let run = world.start_run("t/outer");
    let _other = world.ryectl("run t/inner").ok();
    until("the second step", || {
        world.project().join("in").exists().then_some(())
    });
    let follower = world.ryectl("events --tree --follow --json").arg(&run);
    let mut follower = follower.spawn();
    let mut lines = BufReader::new(follower.stdout.take().unwrap()).lines();
    let mut told: Vec<Value> = Vec::new();
    // New events follow the past ones.
    let next = |told: &mut Vec<Value>, lines: &mut dyn Iterator<Item = std::io::Result<String>>| {
        let line = lines.next()?.unwrap();
        told.push(serde_json::from_str(&line).unwrap());
        Some(())
    };
    next(&mut told, &mut lines).unwrap();
    world.write("go", "");
    while next(&mut told, &mut lines).is_some() {}
    assert!(follower.wait().unwrap().success());
    let runs = whole(&told);
    assert_eq!(runs.len(), 3, "{runs:?}");
    assert!(runs.contains(&run), "{runs:?}");
    let ends = told
        .iter()
        .filter(|event| event["event_type"] == "graph_completed");
    assert_eq!(ends.count(), 3);
    // The stream of past events has the same events. A line for people begins with the run.
    let past = world
        .ryectl("events --tree --json")
        .arg(&run)
        .ok()
        .json_lines();
    assert_eq!(positions(&past), positions(&told));
    let shown = world.ryectl("events --tree").arg(&run).ok().stdout();
    let first = shown.lines().next().unwrap();
    assert!(first.starts_with(&format!("{run}    1  ")), "{first}");
    // From the cursor of a live event, the same events follow.
    let live = told.iter().position(|event| event["cursor"] != "").unwrap();
    let rest = world.ryectl("events --tree --json --from");
    let rest = rest.arg(told[live]["cursor"].as_str().unwrap()).arg(&run);
    assert_eq!(rest.ok().json_lines(), told[live + 1..]);
}

/// A `ryectl` that follows, and the events that it prints.
struct Follower {
    child: Child,
    events: Receiver<Value>,
}

impl Follower {
    #[expect(
        clippy::disallowed_methods,
        reason = "the tests have no runtime, and it ends with what it reads"
    )]
    fn new(command: Ryectl) -> Self {
        let mut child = command.spawn();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (sender, events) = channel();
        let _ends_by_itself = thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let event = serde_json::from_str(&line).unwrap();
                if sender.send(event).is_err() {
                    return;
                }
            }
        });
        Self { child, events }
    }

    /// Returns the events that it prints until the run `last` has ended.
    fn until_end_of(&self, last: &str) -> Vec<Value> {
        let mut told = Vec::new();
        loop {
            let event = self.events.recv_timeout(PATIENCE).unwrap();
            let is_end = event["run_id"] == last && event["event_type"] == "graph_completed";
            told.push(event);
            if is_end {
                return told;
            }
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[test]
fn all_runs_and_those_of_a_project_are_followed_and_a_cursor_continues() {
    // The log must not advance to another segment meanwhile.
    let world = World::measured();
    world.graph("t/inner", INNER);
    let daemon = world.start("");
    let elsewhere = world.root().join("elsewhere");
    std::fs::create_dir_all(elsewhere.join(".ai")).unwrap();
    let here = world.project().display().to_string();
    let all = Follower::new(world.ryectl("events --all --follow --json"));
    let own = format!("events --all --project {here} --follow --json");
    let own = Follower::new(world.ryectl(&own));
    // A follower is connected once it prints an event.
    let (mut told, mut own_told) = (Vec::new(), Vec::new());
    until("both followers", || {
        let _run = world.ryectl("run rye/core/echo").within(&elsewhere).ok();
        let _run = world.ryectl("run t/inner").ok();
        told.extend(all.events.try_iter());
        own_told.extend(own.events.try_iter());
        (!told.is_empty() && !own_told.is_empty()).then_some(())
    });
    let last = world.start_run("t/inner");
    told.extend(all.until_end_of(&last));
    own_told.extend(own.until_end_of(&last));
    let is_own = |event: &Value| {
        let run = event["run_id"].as_str().unwrap();
        run.starts_with("t-inner-")
    };
    assert!(!told.iter().all(is_own), "{told:?}");
    assert!(own_told.iter().all(is_own), "{own_told:?}");
    let cursor = |event: &Value| event["cursor"].as_str().unwrap().to_owned();
    let from = |cursor: &str| world.ryectl("events --all --json --from").arg(cursor);
    let (first, end) = (cursor(&told[0]), cursor(told.last().unwrap()));
    assert_eq!(from(&first).ok().json_lines(), told[1..]);
    // A crash of the daemon keeps the cursors valid.
    daemon.kill();
    let _status = daemon.ended();
    let _daemon = world.start("");
    assert_eq!(from(&first).ok().json_lines(), told[1..]);
    assert_eq!(from(&end).ok().json_lines(), [Value::Null; 0]);
    let _forged = from("forged").run().code(2).stderr_contains(&["cursor"]);
    let _idle = world.ryectl("events --all").run().code(2);
    let _both = world.ryectl("events --all").arg(&last).run().code(2);
}
