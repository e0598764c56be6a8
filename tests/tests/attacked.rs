//! Tools or clients that take all resources they can get do not starve others.

use rye_proto::v1;
use rye_proto::v1::runs_client::RunsClient;
use rye_tests::command::program;
use rye_tests::until::PATIENCE;
use rye_tests::{Daemon, World, until};
use tokio::time::timeout;

use crate::memory::most_resident;
use crate::rpc::channel;

/// Opens connections to the daemon and replaces those that are closed, until the file `go` exists.
const FLOODS: &str = "\
import os, socket, time
held = []
while not os.path.exists(os.path.join(project_path, 'go')):
    here = socket.socket(socket.AF_UNIX)
    here.settimeout(5)
    try:
        here.connect(params['socket'])
        held.append(here)
    except OSError:
        pass
    if len(held) == 400:
        open(os.path.join(project_path, 'full-' + str(params['number'])), 'w').close()
    time.sleep(0.002 if len(held) < 400 else 0.1)
return {'held': len(held)}";

/// Limits `daemon` to `more` files beyond those that it has open.
fn limit_descriptors(daemon: &Daemon, more: usize) {
    let pid = daemon.pid().to_string();
    let open = std::fs::read_dir(format!("/proc/{pid}/fd"))
        .unwrap()
        .count();
    let limit = format!("--nofile={}:", open + more);
    let set = program("prlimit").args(["--pid", &pid, &limit]).status();
    assert!(set.is_ok_and(|status| status.success()), "prlimit");
}

#[test]
fn idle_connections_of_tool_leave_descriptors_for_other_runs() {
    let world = World::new();
    let daemon = world.start("");
    world.python("t/floods", FLOODS);
    let flood = format!(
        "start: a\nnodes:\n  a:\n    type: foreach\n    over: [0, 1, 2]\n    parallel: true\n    \
         action: {{item_id: t/floods, params: {{socket: \"{}\", number: \"${{item}}\"}}}}\n    \
         collect: held\n    next: b\n  b: {{type: return, output: \"${{state.held}}\"}}",
        world.socket().display()
    );
    world.graph("t/flood", &flood);
    world.graph(
        "t/innocent",
        "start: a\nnodes:\n  a:\n    type: foreach\n    over: [0, 1, 2, 3]\n    \
         action: {item_id: rye/bash, params: {command: \"echo done\"}}\n    next: b\n  b: {type: return}",
    );
    let attack = world.start_run("t/flood");
    limit_descriptors(&daemon, 150);
    until("all three to hold 400 connections", || {
        let full = |number| world.project().join(format!("full-{number}")).exists();
        (0..3).all(full).then_some(())
    });
    for _ in 0..3 {
        let record = world.settled(&world.start_run("t/innocent"));
        assert_eq!(record["status"], "completed", "{record}");
        let _answers = world.ryectl("ps --json --no-autostart").ok();
    }
    assert_eq!(world.info()["pid"], daemon.pid());
    world.write("go", "");
    let record = world.settled(&attack);
    assert_eq!(record["status"], "completed", "{record}");
    let held = record["output"].as_array().unwrap();
    assert!(held.iter().all(|tool| tool["held"].as_u64() >= Some(400)));
}

/// Steps that write some 30 MB of history and wait for the file `go` on the way. No event is long enough for a payload
/// outside of the log.
const BUSY: &str = "start: a\nmax_steps: 1000\nstate: {n: 0}\nnodes:\n  \
    a: {action: {item_id: rye/core/echo, params: {text: \"${inputs.text}\"}}, assign: {x: \"${result.text}\", n: \"${state.n | add(1)}\"}, \
    next: [{to: w, when: {path: state.n, op: eq, value: 500}}, {to: b, when: {path: state.n, op: gte, value: 600}}, {to: a}]}\n  \
    w: {action: {item_id: rye/bash, params: {command: \"touch most; until [ -e go ]; do sleep 0.02; done\"}}, next: a}\n  \
    b: {type: return}";

/// Starts a run of [`BUSY`].
fn busy(world: &World) -> String {
    world.graph("t/busy", BUSY);
    let text = "x".repeat(28 << 10);
    let _inputs = world.write("in.json", format!("{{\"text\": \"{text}\"}}"));
    let run = world.ryectl("run --detach t/busy --input @in.json");
    run.ok().line()
}

fn stream(run: &str, follow: bool) -> v1::StreamRequest {
    v1::StreamRequest {
        run_id: run.to_owned(),
        follow,
        ..v1::StreamRequest::default()
    }
}

#[tokio::test]
async fn unread_streams_take_bounded_memory_and_block_no_run() {
    const UNREAD: usize = 64;
    let world = World::new();
    let daemon = world.start("limits: {memory_mb: 128}\n");
    let run = busy(&world);
    until("most of the history", || {
        world.project().join("most").exists().then_some(())
    });
    let mut unread = Vec::new();
    for _ in 0..UNREAD {
        // Each stream has its own connection, so that none waits for another.
        let mut runs = RunsClient::new(channel(&world));
        unread.push(runs.stream(stream(&run, true)).await.unwrap());
    }
    world.write("go", "");
    let record = world.settled(&run);
    assert_eq!(record["status"], "completed", "{}", record["error"]);
    let _answers = world.ryectl("ps --json --no-autostart").ok();
    let most = most_resident(&daemon);
    println!("{UNREAD} unread streams: {most} MB at most");
    assert!(most < 600, "{most} MB");
    drop(unread);
    // A client that reads gets every event.
    let events = world.ryectl("events --json").arg(&run).ok().json_lines();
    let seqs = events.iter().map(|event| event["seq"].as_u64().unwrap());
    assert!(seqs.eq(1..=u64::try_from(events.len()).unwrap()));
}

#[tokio::test]
async fn a_stream_that_does_not_follow_a_busy_run_ends_and_misses_nothing() {
    let world = World::new();
    let _daemon = world.start("");
    world.graph("t/loop", LOOP);
    let run = world.start_run("t/loop");
    let mut runs = RunsClient::new(channel(&world));
    let mut last = 0;
    for _ in 0..10 {
        let known = last;
        let mut events = runs.stream(stream(&run, false)).await.unwrap().into_inner();
        let mut expected = 1;
        loop {
            let next = timeout(PATIENCE, events.message()).await;
            let next = next.expect("a stream that does not follow ends");
            let Some(told) = next.expect("it is not cut, however fast the run is") else {
                break;
            };
            last = told.event.unwrap().seq;
            assert_eq!(last, expected, "no event is missing");
            expected += 1;
        }
        assert!(last >= known, "what was there before is there again");
    }
    assert_eq!(world.record(&run)["status"], "running");
    let _killed = world.ryectl("kill --grace 0").arg(&run).ok();
}

/// Takes steps until it is stopped.
const LOOP: &str = "start: a\nmax_steps: 1000000\nnodes:\n  \
    a: {action: {item_id: rye/core/echo, params: {n: 1}}, next: b}\n  \
    b: {action: {item_id: rye/core/echo, params: {n: 2}}, next: a}";
