//! Deaths while history is written and the log is cut. Afterwards no event is lost and no finished step has run again.

use std::collections::HashMap;

use rye_tests::transcript::check;
use rye_tests::{World, until};

use super::{COUNT, Victims, count, die, executions, keys_on_record, transcript};

const SHORT: &str = r#"start: a
nodes:
  a: {action: {item_id: rye/core/echo, params: {n: 1}}, assign: {n: "${result}"}, next: b}
  b: {type: return, output: "${state.n}"}"#;

/// Fills the log quickly.
const FILL: &str = r"start: a
max_steps: 3000
nodes:
  a: {action: {item_id: rye/core/echo, params: {n: 1}}, next: b}
  b: {action: {item_id: rye/core/echo, params: {n: 2}}, next: a}";

/// Fail points that a run reaches when it fills the log. A number is the occurrence at which the daemon dies.
const DEATHS: [&str; 10] = [
    // Nothing of the section is in its file.
    "at:history_write",
    // A part of it is.
    "at:history_write:2",
    "at:history_write:4",
    "at:history_sync",
    "at:history_directory",
    "at:sealed",
    "at:indexed",
    "at:base_renamed",
    "at:segment_removed",
    "at:segment_removed:3",
];

/// Fail points of `rm --purge`. The directory of history is also synced at the start.
const DEATHS_OF_PURGE: [&str; 2] = ["at:history_replace", "at:history_directory:2"];

/// Returns all that users can read about an ended run.
fn read(world: &World, run: &str) -> [String; 4] {
    let printed = |verb: &str| world.ryectl(verb).arg(run).ok().stdout();
    let key = world.node_key();
    let transcript = until("the whole transcript", || {
        let text = transcript(world, run);
        let is_whole = text.contains("\"graph_completed\"") && text.ends_with('\n');
        (is_whole && check(text.trim_end(), run, &key).is_ok()).then_some(text)
    });
    let [events, record, steps] = ["events --json", "get --json", "steps --json"].map(printed);
    [events, record, steps, transcript]
}

fn short(world: &World) -> String {
    let run = world.start_run("t/short");
    assert_eq!(world.settled(&run)["status"], "completed");
    run
}

/// Makes a world with two ended runs, and returns them with what users read about them. The daemon was killed, mostly
/// before they were in history.
fn world() -> (World, [String; 2], [[String; 4]; 2]) {
    let world = World::new();
    world.graph("t/short", SHORT);
    world.graph("t/count", COUNT);
    world.graph("t/fill", FILL);
    let daemon = world.start("");
    let runs = [short(&world), short(&world)];
    let before = runs.each_ref().map(|run| read(&world, run));
    die(daemon, Victims::DaemonAndParent);
    (world, runs, before)
}

/// Ends the run `t/count`, and asserts that it has run each step once, but for the steps that `deaths` interrupted.
fn has_counted(world: &World, run: &str, finished: &HashMap<String, usize>, deaths: usize) {
    world.write("stop", "");
    let record = world.settled(run);
    assert_eq!(record["status"], "completed", "{record}");
    let executions = executions(world);
    let counts = count(&executions);
    assert_eq!(record["output"], counts.len(), "a step is lost");
    for (key, times) in finished {
        assert_eq!(counts[key], *times, "{key} ran again after it was finished");
    }
    assert!(executions.len() - counts.len() <= deaths);
    let [_, _, _, text] = read(world, run);
    check(text.trim_end(), run, &world.node_key()).unwrap();
}

/// Returns the number of executions of each step that the transcript reports as finished.
fn finished(world: &World, run: &str) -> HashMap<String, usize> {
    let counts = count(&executions(world));
    let keys = keys_on_record(world, run).into_iter();
    keys.map(|key| (key.clone(), counts[&key])).collect()
}

#[test]
fn nothing_is_lost_at_any_instant_at_which_history_is_written() {
    for death in DEATHS {
        let (world, ended, before) = world();
        let daemon = world.start_until(death, "");
        let run = world.start_run("t/count");
        // The daemon may die before it answers.
        let _filled = world.ryectl("run --detach --no-autostart t/fill").run();
        let _status = daemon.ended();
        let finished = finished(&world, &run);
        let daemon = world.start("");
        for (run, before) in ended.iter().zip(&before) {
            assert_eq!(read(&world, run), *before, "{death}");
        }
        // The rest of the interrupted write is replaced, cut or removed, and the next start reads the result.
        until("the run to continue", || {
            (executions(&world).len() > finished.len() + 50).then_some(())
        });
        die(daemon, Victims::DaemonAndParent);
        let _daemon = world.start("");
        has_counted(&world, &run, &finished, 2);
        for (run, before) in ended.iter().zip(&before) {
            assert_eq!(read(&world, run), *before, "{death}");
        }
    }
}

#[test]
fn purge_that_dies_loses_only_what_was_removed() {
    for death in DEATHS_OF_PURGE {
        let (world, [gone, kept], [_, before]) = world();
        let daemon = world.start("");
        let run = world.start_run("t/count");
        let _stopped = world.ryectl("daemon stop").ok();
        let _status = daemon.ended();
        let daemon = world.start_until(death, "");
        let _removed = world.ryectl("rm --purge --no-autostart").arg(&gone).run();
        let _status = daemon.ended();
        let finished = finished(&world, &run);
        let _daemon = world.start("");
        let _refused = world.ryectl("events").arg(&gone).run().code(3);
        assert_eq!(read(&world, &kept), before, "{death}");
        has_counted(&world, &run, &finished, 2);
    }
}
