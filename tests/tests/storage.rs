//! The state directory survives faults of disks.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use rye_tests::{Daemon, World, until};
use serde_json::{Value, json};

const GRAPH: &str = "start: a\nnodes:\n  a: {action: {item_id: rye/core/echo, params: {n: \"${inputs.n}\"}}, assign: {n: \"${result.n}\"}, next: b}\n  b: {action: {item_id: rye/core/echo, params: {n: 2}}, next: done}\n  done: {type: return, output: \"${state.n}\"}";

/// Makes a world with some ended runs. Returns it with all answers about them.
fn with_history() -> (World, Value) {
    let world = World::new();
    world.graph("t/echo", GRAPH);
    for n in 0..8 {
        let _ran = world
            .ryectl("run t/echo --quiet -i")
            .arg(format!("n:={n}"))
            .ok();
    }
    let history = history(&world);
    assert_eq!(history.as_array().map(Vec::len), Some(8));
    (world, history)
}

/// Returns every record, with its state and its events.
fn history(world: &World) -> Value {
    let listed = world.ryectl("ps --all --json").ok().json();
    let runs = listed.as_array().unwrap().iter().map(|run| {
        let id = run["run_id"].as_str().unwrap();
        let events = world.ryectl("events --json").arg(id).ok().json_lines();
        let facts = events.into_iter().map(|mut event| {
            // The cursor of an event is opaque and may change with a restart of the daemon.
            event.as_object_mut().unwrap().remove("cursor");
            event
        });
        serde_json::json!({"run": world.record(id), "events": facts.collect::<Vec<_>>()})
    });
    Value::Array(runs.collect())
}

fn segments(world: &World) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(world.state().join("log"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "seg"))
        .collect();
    found.sort();
    found
}

fn kill(daemon: Daemon) {
    daemon.kill_both();
    let _status = daemon.ended();
}

#[test]
fn a_removed_index_is_rebuilt_and_nothing_is_lost() {
    let (world, before) = with_history();
    let _stopped = world.ryectl("daemon stop").ok();
    fs::remove_dir_all(world.state().join("index")).unwrap();
    assert_eq!(history(&world), before);
}

#[test]
fn an_emptied_index_is_rebuilt_and_nothing_is_lost() {
    let (world, before) = with_history();
    let _stopped = world.ryectl("daemon stop").ok();
    let index = world.state().join("index");
    fs::remove_dir_all(&index).unwrap();
    fs::create_dir(&index).unwrap();
    assert_eq!(history(&world), before);
}

#[test]
fn a_damaged_index_is_set_aside_and_rebuilt() {
    let (world, before) = with_history();
    for damage in [Damage::Zeroed, Damage::Cut, Damage::Noise] {
        let _stopped = world.ryectl("daemon stop").ok();
        damage.inflict(&world.state().join("index/db"));
        assert_eq!(history(&world), before, "{damage:?}");
    }
}

#[test]
fn stale_index_catches_up_with_log() {
    let (world, _) = with_history();
    let _stopped = world.ryectl("daemon stop").ok();
    let index = world.state().join("index");
    let old = world.root().join("old-index");
    fs::create_dir(&old).unwrap();
    copy(&index, &old);
    let _ran = world.ryectl("run t/echo -i n:=100").ok();
    let before = history(&world);
    let _stopped = world.ryectl("daemon stop").ok();
    fs::remove_dir_all(&index).unwrap();
    fs::rename(&old, &index).unwrap();
    assert_eq!(history(&world), before);
}

#[test]
fn acknowledged_results_survive_kill_9() {
    let world = World::new();
    world.graph("t/echo", GRAPH);
    let mut before = Value::Null;
    for n in 0..4 {
        let daemon = world.start("");
        if n > 0 {
            assert_eq!(history(&world), before, "life {n}");
        }
        let _ran = world
            .ryectl("run t/echo --quiet -i")
            .arg(format!("n:={n}"))
            .ok();
        before = history(&world);
        kill(daemon);
    }
    assert_eq!(history(&world), before);
}

#[test]
fn a_torn_tail_of_the_log_is_cut_and_the_daemon_continues() {
    let (world, before) = with_history();
    let _stopped = world.ryectl("daemon stop").ok();
    let last = used(&world).pop().unwrap();
    let bytes = fs::read(&last).unwrap();
    let end = end_of_frames(&bytes);
    // Half a frame, as after a power failure: its beginning is there, its end is not.
    let file = File::options().write(true).open(&last).unwrap();
    file.write_all_at(&bytes[..20], u64::try_from(end).unwrap())
        .unwrap();
    assert_eq!(history(&world), before);
}

#[test]
fn flipped_bit_in_older_frame_stops_start_and_changes_nothing() {
    let (world, before) = with_history();
    let _stopped = world.ryectl("daemon stop").ok();
    let segment = used(&world).remove(0);
    let healthy = fs::read(&segment).unwrap();
    let at = end_of_frames(&healthy) / 3;
    let mut damaged = healthy.clone();
    damaged[at] ^= 1;
    fs::write(&segment, &damaged).unwrap();
    let files = listing(&world);

    let mut child = Daemon::spawn(&world, "");
    let status = until("ryed to end", || child.try_wait().unwrap());
    assert_eq!(status.code(), Some(70));
    let log = world.log();
    assert!(
        log.contains(segment.to_str().unwrap()) && log.contains("damaged at byte"),
        "{log}"
    );
    assert_eq!(fs::read(&segment).unwrap(), damaged);
    assert_eq!(listing(&world), files);
    let _told = world
        .ryectl("ps")
        .run()
        .code(69)
        .stderr_contains(&["damaged at byte"]);

    fs::write(&segment, &healthy[..healthy.len() / 2]).unwrap();
    let _told = world
        .ryectl("ps")
        .run()
        .code(69)
        .stderr_contains(&[segment.to_str().unwrap(), "was cut short"]);

    fs::write(&segment, &healthy).unwrap();
    assert_eq!(history(&world), before);
}

/// Returns the end of the frames of a segment. Zeros follow, up to the marker at the end of every segment.
fn end_of_frames(segment: &[u8]) -> usize {
    let frames = segment.strip_suffix(b"rye log segment\n").unwrap();
    frames.iter().rposition(|byte| *byte != 0).unwrap() + 1
}

#[test]
fn segment_length_follows_setting() {
    let (world, _) = with_history();
    let _stopped = world.ryectl("daemon stop").ok();
    let mark = u64::try_from(b"rye log segment\n".len()).unwrap();
    for segment in segments(&world) {
        assert_eq!(fs::metadata(&segment).unwrap().len(), (256 << 10) + mark);
    }
}

/// Returns the segments with frames, oldest first.
fn used(world: &World) -> Vec<PathBuf> {
    let mut used = segments(world);
    used.retain(|path| {
        fs::read(path)
            .unwrap()
            .iter()
            .take(64)
            .any(|byte| *byte != 0)
    });
    used
}

/// Returns names and lengths of the authoritative files.
fn listing(world: &World) -> Vec<(PathBuf, u64)> {
    let mut found = Vec::new();
    for directory in ["log", "archive", "base"] {
        let Ok(entries) = fs::read_dir(world.state().join(directory)) else {
            continue;
        };
        for entry in entries {
            let entry = entry.unwrap();
            found.push((entry.path(), entry.metadata().unwrap().len()));
        }
    }
    found.sort();
    found
}

#[derive(Debug, Clone, Copy)]
enum Damage {
    Zeroed,
    Cut,
    Noise,
}

impl Damage {
    fn inflict(self, path: &std::path::Path) {
        let mut bytes = fs::read(path).unwrap();
        let middle = bytes.len() / 2;
        match self {
            Self::Zeroed => bytes.fill(0),
            Self::Cut => bytes.truncate(middle),
            Self::Noise => {
                for (at, byte) in bytes.iter_mut().enumerate().step_by(97) {
                    *byte ^= u8::try_from(at % 251).unwrap();
                }
            }
        }
        fs::write(path, bytes).unwrap();
    }
}

fn copy(from: &std::path::Path, to: &std::path::Path) {
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            fs::create_dir_all(&target).unwrap();
            copy(&path, &target);
        } else {
            fs::copy(&path, &target).unwrap();
        }
    }
}

#[test]
fn a_daemon_without_work_writes_nothing() {
    let (world, _) = with_history();
    let modified = || -> Vec<_> {
        segments(&world)
            .iter()
            .map(|path| {
                (
                    path.clone(),
                    fs::metadata(path).unwrap().modified().unwrap(),
                )
            })
            .collect()
    };
    // Wait first until the writes after the last answer have finished.
    let mut before = modified();
    until("the log to come to rest", || {
        let now = modified();
        let rests = now == before;
        before = now;
        rests.then_some(())
    });
    for _ in 0..5 {
        let _looked = world.ryectl("ps --all").ok();
    }
    assert_eq!(modified(), before);
}

/// A command with output that is too long for the log. It appends a line to `ran` each time.
const LONG: &str = r"echo once >>ran; head -c 200000 /dev/zero | tr '\0' x";

/// Makes a world whose state directory cannot store objects until the returned file is removed.
fn without_objects() -> (World, PathBuf) {
    let world = World::new();
    let node =
        json!({"action": {"item_id": "rye/bash", "params": {"command": LONG}}, "next": "done"});
    world.graph(
        "t/long",
        &format!("start: a\nnodes:\n  a: {node}\n  done: {{type: return, output: well}}"),
    );
    fs::create_dir_all(world.state()).unwrap();
    let in_the_way = world.state().join("objects");
    fs::write(&in_the_way, "").unwrap();
    (world, in_the_way)
}

/// Asserts that a run is suspended after ENOSPC.
fn suspended(world: &World, run: &str) {
    let record = world.settled(run);
    assert_eq!(record["status"], "suspended", "{record}");
    assert_eq!(record["suspend"]["reason"], "storage", "{record}");
}

#[test]
fn a_result_that_cannot_be_kept_suspends_its_run_and_its_effect_is_not_repeated() {
    let (world, in_the_way) = without_objects();
    let _daemon = world.start("");
    let run = world.start_run("t/long");
    suspended(&world, &run);
    fs::remove_file(in_the_way).unwrap();
    let ended = until("the run to resume by itself", || {
        let now = world.record(&run);
        (now["status"] != "suspended" && now["status"] != "running").then_some(now)
    });
    assert_eq!(ended["status"], "completed", "{ended}");
    assert_eq!(ended["output"], "well", "{ended}");
    assert_eq!(world.read("ran"), "once\n");
}

#[test]
fn a_run_that_finds_no_space_can_be_cancelled_and_killed() {
    let (world, _in_the_way) = without_objects();
    let _daemon = world.start("");
    for (verb, word) in [("cancel", "cancelled"), ("kill", "killed")] {
        let run = world.start_run("t/long");
        suspended(&world, &run);
        let _asked = world.ryectl(verb).arg(&run).ok();
        assert_eq!(world.settled(&run)["status"], word);
    }
    assert_eq!(world.info()["live_runs"], 0);
}

#[test]
fn a_run_that_found_no_space_is_recovered_by_the_next_daemon() {
    let (world, in_the_way) = without_objects();
    let daemon = world.start("");
    let run = world.start_run("t/long");
    suspended(&world, &run);
    daemon.kill_both();
    let _status = daemon.ended();
    let _next = world.start("");
    // The result of the call was lost with the daemon. The call is made once more, and waits for space again.
    until("the step to be repeated", || {
        (world.read("ran") == "once\nonce\n").then_some(())
    });
    fs::remove_file(in_the_way).unwrap();
    let ended = until("the run to resume by itself", || {
        let now = world.record(&run);
        (now["status"] != "suspended" && now["status"] != "running").then_some(now)
    });
    assert_eq!(ended["status"], "completed", "{ended}");
    assert_eq!(world.read("ran"), "once\nonce\n");
}

#[test]
fn a_tool_whose_result_cannot_be_kept_is_suspended_and_answers_when_there_is_space() {
    let (world, in_the_way) = without_objects();
    let _daemon = world.start("");
    let params = json!({"command": LONG});
    let caller = std::thread::scope(|scope| {
        let asked = scope.spawn(|| {
            world
                .ryectl("execute tool rye/bash --json --params -")
                .stdin(params.to_string())
                .ok()
        });
        until("the run to be suspended", || {
            let runs = world.ryectl("ps --json").ok().json();
            (runs[0]["status"] == "suspended").then_some(())
        });
        fs::remove_file(in_the_way).unwrap();
        asked.join().unwrap()
    });
    let answer = caller.json();
    assert_eq!(
        answer["data"]["stdout"].as_str().map(str::len),
        Some(200_000)
    );
    assert_eq!(world.read("ran"), "once\n");
}
