//! Four small projects in the style of users (`tests/projects`): checks of a change, a load of 300 files, a release with
//! an approval, and a pipeline of all three. Each is used through `ryectl` in terminals of 80 and 140 columns, and the screens are
//! pinned.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::sync::LazyLock;

use regex::Regex;
use rye_tests::command::program;
use rye_tests::terminal::Terminal;
use rye_tests::{World, binaries, skipped, until};
use serde_json::Value;

use crate::pinned::normal::Normal;
use crate::pinned::pin;

/// A small terminal and a large one.
const SMALL: (u16, u16) = (80, 24);
const LARGE: (u16, u16) = (140, 40);

/// Parts of a screen that differ between runs, in addition to those of other texts.
static CHANGING: LazyLock<[(Regex, &str); 2]> = LazyLock::new(|| {
    [
        // The clock of a step, which is shown after one second.
        (r" \.\.\. <duration>", " ..."),
        // Values that are padded to the width of a column.
        (r"<duration>  +", "<duration>  "),
    ]
    .map(|(pattern, name)| (Regex::new(pattern).unwrap(), name))
});

/// Copies the project `name` to `world` and signs it as its user.
fn unpack(world: &World, name: &str) {
    let from = binaries::clone_root().join("tests/projects").join(name);
    // A process of its own copies the files; otherwise children of other tests would inherit the scripts open for
    // writing.
    let mut copied = program("cp");
    let copied = copied
        .arg("-R")
        .arg(from.join("."))
        .arg(world.project())
        .status();
    assert!(copied.unwrap().success(), "{name} is not copied");
    let _signed = world.ryectl(&format!("sign tool:{name}/*")).ok();
}

/// The screens one after the other, with differing parts replaced by names.
struct Album {
    normal: Normal,
    text: String,
}

impl Album {
    fn new(world: &World) -> Self {
        let normal = Normal::default()
            .call(&world.project(), "<project>")
            .call(&world.home(), "<home>")
            .call(&world.state(), "<state>");
        Self {
            normal,
            text: String::new(),
        }
    }

    fn add(&mut self, terminal: &Terminal<'_>, command: &str, screen: &str) {
        let mut screen = self.normal.text(screen);
        for (pattern, name) in &*CHANGING {
            screen = pattern.replace_all(&screen, *name).into_owned();
        }
        let command = self.normal.text(command);
        let columns = terminal.columns();
        writeln!(self.text, "[{columns}] $ {command}\n{screen}\n").unwrap();
    }

    /// Runs `command` in `terminal`, and keeps its screen.
    fn run(&mut self, terminal: &Terminal<'_>, command: &str) -> String {
        let screen = terminal.run(command);
        self.add(terminal, command, &screen);
        screen
    }
}

/// Makes both terminals, or `None` on a machine without tmux.
fn terminals(world: &World) -> Option<(Terminal<'_>, Terminal<'_>)> {
    let small = world.terminal(SMALL.0, SMALL.1);
    let large = world.terminal(LARGE.0, LARGE.1);
    let both = small.zip(large);
    if both.is_none() {
        skipped("tmux is not there");
    }
    both
}

/// Returns the newest run of `item`.
fn newest(world: &World, item: &str) -> String {
    let listed = world.ryectl("ps --all --json --item").arg(item).ok().json();
    listed[0]["run_id"].as_str().unwrap().to_owned()
}

#[test]
fn checks_of_a_change_pass_or_show_what_failed() {
    let world = World::new();
    unpack(&world, "ci");
    let Some((small, large)) = terminals(&world) else {
        return;
    };
    let _daemon = world.start("");
    let mut album = Album::new(&world);
    let passed = album.run(&small, "ryectl run ci/check");
    // The database is down only the first time.
    assert_eq!(passed.matches("retry 1 in").count(), 1, "{passed}");
    assert!(passed.ends_with("ended with 0"), "{passed}");
    album.run(&large, "ryectl attach @last");
    // A change that breaks a test: the output of the test run is shown with the failed step.
    let source = world.read("src/prices.py");
    world.write(
        "src/prices.py",
        source.replace("sum(prices)", "max(prices, default=0)"),
    );
    let failed = album.run(&small, "ryectl run ci/check");
    for part in [
        "exit code 1",
        "test_prices_add_up: FAILED",
        "1 of 2 tests failed",
        "marked slow",
    ] {
        assert!(failed.contains(part), "`{part}` is missing in\n{failed}");
    }
    assert!(failed.ends_with("ended with 1"), "{failed}");
    let run = newest(&world, "ci/check");
    album.run(&large, "ryectl attach @last");
    album.run(&small, &format!("ryectl steps {run}"));
    album.run(&large, &format!("ryectl get {run}"));
    world.write("src/prices.py", source);
    // A rule of the graph itself.
    let low = album.run(&small, "ryectl run ci/check -i least_coverage=95");
    assert!(low.contains("coverage 91 is below 95"), "{low}");
    let long = format!("# {}\n", "x".repeat(90));
    world.write("src/long.py", long);
    let lint = album.run(&small, "ryectl run ci/check");
    assert!(lint.contains("long.py:1: 92 columns"), "{lint}");
    album.run(&small, "ryectl ps --all");
    album.run(&large, "ryectl ps --all");
    pin("project_ci", &album.text);
}

/// Writes 300 files. Two have other content, and one is a pipe with a slow sender.
fn files(world: &World) -> std::path::PathBuf {
    for number in 0..300 {
        let head = if [12, 34].contains(&number) {
            "id;sum"
        } else {
            "order,amount"
        };
        world.write(
            &format!("data/{number:03}.csv"),
            format!("{head}\n{number},1\n"),
        );
    }
    let slow = world.project().join("data/057.csv");
    fs::remove_file(&slow).unwrap();
    let made = program("mkfifo").arg(&slow).status().unwrap();
    assert!(made.success());
    slow
}

#[test]
fn load_shows_progress_and_resume_loads_only_failures() {
    let world = World::new();
    unpack(&world, "etl");
    let slow = files(&world);
    let Some((small, large)) = terminals(&world) else {
        return;
    };
    let _daemon = world.start("");
    let mut album = Album::new(&world);
    let load = "ryectl run etl/load";
    let running = small.start(load);
    let halfway = running.shows("57/300 · 2 failed");
    album.add(&small, &format!("{load}   # while it runs"), &halfway);
    assert_eq!(
        running
            .lines()
            .iter()
            .filter(|line| line.contains("/300"))
            .count(),
        1
    );
    let run = newest(&world, "etl/load");
    let watched = large.start("ryectl attach @last");
    let seen = watched.shows("57/300 · 2 failed");
    album.add(&large, "ryectl attach @last   # while it runs", &seen);
    let steps = album.run(&small, &format!("ryectl steps {run}"));
    assert!(steps.contains("57/300 · 2 failed"), "{steps}");
    let mut pipe = fs::OpenOptions::new().write(true).open(&slow).unwrap();
    pipe.write_all(b"order,amount\n57,1\n").unwrap();
    drop(pipe);
    let ended = running.ended();
    album.add(&small, load, &ended);
    assert!(ended.ends_with("ended with 1"), "{ended}");
    album.add(&large, "ryectl attach @last", &watched.ended());
    album.run(&small, "ryectl ps --all");
    let rows = || world.read("warehouse.csv").lines().count();
    assert_eq!(rows(), 298);
    // After the fix, a resume does not load the loaded files again.
    for number in [12, 34] {
        world.write(
            &format!("data/{number:03}.csv"),
            format!("order,amount\n{number},1\n"),
        );
    }
    let resumed = album.run(&small, &format!("ryectl resume {run}"));
    assert!(resumed.ends_with("ended with 0"), "{resumed}");
    assert_eq!(rows(), 300);
    album.run(&large, "ryectl attach @last");
    album.run(&large, "ryectl ps --all");
    pin("project_etl", &album.text);
}

fn suspended(world: &World, run: &str) -> Value {
    let record = world.settled(run);
    assert_eq!(record["suspend"]["reason"], "approval", "{record}");
    record
}

#[test]
fn release_waits_for_approval_and_publishes_once() {
    let world = World::new();
    unpack(&world, "release");
    let Some((small, large)) = terminals(&world) else {
        return;
    };
    let daemon = world.start("");
    let mut album = Album::new(&world);
    let asked = album.run(&small, "ryectl run release/ship -i version=2.0.0");
    assert!(asked.ends_with("ended with 75"), "{asked}");
    let run = newest(&world, "release/ship");
    suspended(&world, &run);
    for terminal in [&small, &large] {
        album.run(terminal, "ryectl ps");
        album.run(terminal, &format!("ryectl get {run}"));
        album.run(terminal, "ryectl approvals");
    }
    // The question survives the daemon, and the answer is given once.
    daemon.kill();
    let _status = daemon.ended();
    let _daemon = world.start("");
    assert_eq!(world.read("published"), "");
    album.run(
        &small,
        &format!("ryectl approve {run} --comment 'the notes are out'"),
    );
    let record = until("the release", || {
        let record = world.record(&run);
        (record["status"] == "completed").then_some(record)
    });
    assert_eq!(record["output"]["comment"], "the notes are out", "{record}");
    let again = album.run(&small, &format!("ryectl approve {run}"));
    assert!(again.ends_with("ended with 5"), "{again}");
    assert_eq!(world.read("published"), "2.0.0\n");
    for terminal in [&small, &large] {
        album.run(terminal, &format!("ryectl attach {run}"));
    }
    let _asked = world
        .ryectl("run release/ship -i version=2.1.0")
        .run()
        .code(75);
    let run = newest(&world, "release/ship");
    album.run(
        &large,
        &format!("ryectl deny {run} --comment 'not on a Friday'"),
    );
    until("the end of the run", || {
        (world.record(&run)["status"] == "error").then_some(())
    });
    for terminal in [&small, &large] {
        album.run(terminal, &format!("ryectl attach {run}"));
        album.run(terminal, "ryectl ps --all");
    }
    assert_eq!(world.read("published"), "2.0.0\n");
    pin("project_release", &album.text);
}

#[test]
fn pipeline_reruns_only_failed_checks_and_publishes_once() {
    let world = World::new();
    unpack(&world, "pipeline");
    let Some((small, large)) = terminals(&world) else {
        return;
    };
    let _daemon = world.start("");
    let mut album = Album::new(&world);
    let checks = || {
        let mut ran: Vec<String> = world.read("ran").lines().map(str::to_owned).collect();
        ran.sort();
        ran.join(" ")
    };
    // A check that fails is tried once more, and stops none of the others.
    let red = album.run(&small, "ryectl run pipeline/ship -i version=2.0.0");
    assert!(red.contains("1 of the checks failed"), "{red}");
    assert!(red.contains("repeats the failed item of `checks`"), "{red}");
    assert!(red.ends_with("ended with 1"), "{red}");
    assert_eq!(checks(), "lint tests tests types");
    let run = newest(&world, "pipeline/ship");
    album.run(&large, &format!("ryectl get {run}"));
    album.run(&large, &format!("ryectl steps {run}"));
    // Once that is fixed, only the tests run again; then the pipeline continues, up to the question.
    world.write("src/prices", "price() { echo $1; }\n");
    let green = album.run(&small, &format!("ryectl resume {run}"));
    assert!(green.ends_with("ended with 75"), "{green}");
    assert_eq!(checks(), "lint tests tests tests types");
    let run = newest(&world, "pipeline/ship");
    suspended(&world, &run);
    assert_eq!(world.read("published"), "");
    album.run(&large, &format!("ryectl approve {run}"));
    let record = until("the end of the run", || {
        let record = world.record(&run);
        (record["status"] == "completed").then_some(record)
    });
    assert_eq!(record["output"]["coverage"], 91, "{record}");
    assert_eq!(world.read("published"), "app-2.0.0.tar\n");
    album.run(&large, &format!("ryectl attach {run}"));
    album.run(&small, "ryectl ps --all");
    pin("project_pipeline", &album.text);
}
