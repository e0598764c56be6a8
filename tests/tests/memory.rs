//! A run that would exhaust the memory fails by itself; the daemon and the other runs continue.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::thread;
use std::time::{Duration, Instant};

use rye_tests::measure::{Series, milliseconds};
use rye_tests::until::within;
use rye_tests::{Daemon, World, until};
use serde_json::{Value, json};

/// Doubles its state with each step. 46 MB of JSON would take 8 GB.
const DOUBLES: &str = "max_steps: 100\nstate: {s: [null, null]}\nstart: a\nnodes:\n  \
    a: {assign: {s: {a: \"${state.s}\", b: \"${state.s}\"}}, next: a}";
const WAITS: &str = "start: a\nnodes:\n  \
    a: {action: {item_id: rye/bash, params: {command: \"until [ -e go ]; do sleep 0.05; done\"}}, next: b}\n  \
    b: {type: return, output: {}}";
/// Holds four times its input, and waits.
const HOLDS: &str = "start: a\nnodes:\n  a: {assign: {x: \"${inputs.text}${inputs.text}${inputs.text}${inputs.text}\"}, next: b}\n  \
    b: {action: {item_id: rye/bash, params: {command: \"until [ -e go ]; do sleep 0.05; done\"}}, next: c}\n  \
    c: {type: return, output: {}}";
/// Accepts JSON without numbers, by a schema that refers to itself in four ways.
const TREE: &str = "permissions: []\nconfig_schema:\n  $defs:\n    tree:\n      anyOf:\n        \
    - {type: string}\n        - {type: array, items: {$ref: '#/$defs/tree'}}\n        \
    - {type: object, additionalProperties: {$ref: '#/$defs/tree'}}\n        \
    - {type: array, prefixItems: [{$ref: '#/$defs/tree'}]}\n  \
    type: object\n  properties: {tree: {$ref: '#/$defs/tree'}}";

/// Returns the largest resident memory of the daemon so far, in MiB.
pub(crate) fn most_resident(daemon: &Daemon) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.unwrap().trim().trim_end_matches(" kB");
    kilobytes.parse::<u64>().unwrap() >> 10
}

fn error_of(world: &World, run: &str) -> Value {
    let record = world.settled(run);
    assert_eq!(record["status"], "error", "{record}");
    record["error"].clone()
}

#[test]
fn a_state_that_is_small_as_json_and_large_in_memory_fails_its_node() {
    let world = World::new();
    let daemon = world.start("");
    world.graph("t/doubles", DOUBLES);
    world.graph("t/waits", WAITS);
    let beside = world.start_run("t/waits");
    for _ in 0..3 {
        let error = error_of(&world, &world.start_run("t/doubles"));
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("64 MiB in memory"), "{error}");
    }
    let most = most_resident(&daemon);
    assert!(most < 1000, "{most} MB");
    world.write("go", "");
    assert_eq!(world.settled(&beside)["status"], "completed");
}

#[test]
fn run_over_memory_limit_ends_and_smaller_continuation_completes() {
    let world = World::new();
    let _daemon = world.start("");
    let graph = |assigned: &str| {
        let text = format!(
            "state: {{x: 0123456789abcdef, n: 0}}\nstart: a\nnodes:\n  \
             a: {{assign: {{x: \"${{state.x}}${{state.x}}\", n: \"${{state.n | add(1)}}\"}}, next: [{{to: b, when: {{path: state.n, op: eq, value: 21}}}}, {{to: a}}]}}\n  \
             b: {{assign: {assigned}, next: c}}\n  c: {{type: return, output: \"${{state.y}}\"}}"
        );
        world.graph("t/large", &text);
    };
    graph("{y: \"${state.x}-\", z: \"${state.x}+\"}");
    let run = world.start_run("t/large");
    let error = error_of(&world, &run);
    assert_eq!(error["code"], "state_too_large", "{error}");
    graph("{y: less}");
    let record = world.ryectl("resume --json").arg(&run).ok().json();
    assert_eq!(record["output"], "less", "{record}");
}

#[test]
fn run_over_total_memory_fails_and_resumes_after_others_end() {
    let world = World::new();
    let _daemon = world.start("limits: {memory_mb: 64}");
    world.graph("t/holds", HOLDS);
    let start = |megabytes: usize| {
        let inputs = json!({"text": "x".repeat(megabytes << 20)}).to_string();
        let file = world.write("inputs.json", inputs);
        let command = world.ryectl("run --detach --json t/holds --input");
        command.arg(format!("@{}", file.display())).run()
    };
    let begun = |megabytes| {
        let out = start(megabytes).code(0).json();
        out["run_id"].as_str().unwrap().to_owned()
    };
    let first = begun(10);
    until("the first run holds 50 MB", || {
        (world.record(&first)["steps"] == 1).then_some(())
    });
    let second = begun(10);
    let error = error_of(&world, &second);
    assert_eq!(error["code"], "memory_exceeded", "{error}");
    let _refused = start(15).code(5).stderr_contains(&["limits.memory_mb"]);
    world.write("go", "");
    assert_eq!(world.settled(&first)["status"], "completed");
    let resumed = world.ryectl("resume --detach --json");
    let resumed = resumed.arg(&second).ok().json();
    let resumed = resumed["run_id"].as_str().unwrap().to_owned();
    let ended = world.settled(&resumed);
    assert_eq!(ended["status"], "completed", "{}", ended["error"]);
}

#[test]
fn follower_of_oversized_value_gets_limit_error_and_run_is_unaffected() {
    let world = World::new();
    let _daemon = world.start("limits: {memory_mb: 64}");
    let x = "${inputs.text}".repeat(26);
    world.graph(
        "t/holds",
        &HOLDS.replacen(
            "${inputs.text}${inputs.text}${inputs.text}${inputs.text}",
            &x,
            1,
        ),
    );
    let inputs = json!({"text": "x".repeat(1 << 20)}).to_string();
    let file = world.write("inputs.json", inputs);
    let run = world.ryectl("run t/holds --detach --input");
    let run = run.arg(format!("@{}", file.display())).ok().line();
    until("the run holds 27 MB", || {
        (world.record(&run)["steps"] == 1).then_some(())
    });
    let follows = world.ryectl("events --follow").arg(&run).run().code(5);
    let limit = [
        "27 MiB",
        "`limits.memory_mb`",
        "64 MiB",
        "the run is not affected",
    ];
    let _told = follows.stderr_contains(&limit);
    // `attach` cannot show events, and still waits for the end.
    let mut stays = world.ryectl("attach").arg(&run).spawn();
    let lines = BufReader::new(stays.stderr.take().unwrap()).lines();
    let mut lines = lines.map(Result::unwrap);
    let warning = lines.find(|line| line.contains("is not shown"));
    let warning = warning.unwrap();
    assert!(warning.contains("27 MiB"), "{warning}");
    world.write("go", "");
    assert!(stays.wait_with_output().unwrap().status.success());
    assert_eq!(world.settled(&run)["status"], "completed");
}

#[test]
fn inputs_that_do_not_fit_a_schema_that_refers_to_itself_are_refused_and_fill_no_memory() {
    let world = World::new();
    let daemon = world.start("");
    world.graph_with(
        "t/tree",
        TREE,
        "start: a\nnodes:\n  a: {type: return, output: {}}",
    );
    let nested = |levels: usize, inner: &str| {
        format!("tree:={}{inner}{}", "[".repeat(levels), "]".repeat(levels))
    };
    let _fits = world.ryectl("run t/tree -i").arg(nested(40, "\"x\"")).ok();
    for levels in [14, 20, 40] {
        let command = world.ryectl("run t/tree --json -i");
        let refused = command.arg(nested(levels, "1")).run().code(2);
        let error = refused.json()["error"].clone();
        let code = error["reason"].as_str().unwrap();
        assert!(
            ["input_validation_failed", "too_complex"].contains(&code),
            "{error}"
        );
    }
    let most = most_resident(&daemon);
    assert!(most < 400, "{most} MB");
}

/// Prints a value nested so deeply that every alternative of the schema fails at the bottom.
const PRINTS: &str = "import json\nwide = [[1, 'x'] * 3] * 3\nfor _ in range(LEVELS):\n    wide = [wide]\nprint(json.dumps(wide))";

#[test]
fn nested_tool_output_for_recursive_schema_stays_within_memory() {
    let world = World::new();
    let daemon = world.start("");
    world.graph_with(
        "t/tree",
        TREE,
        "start: a\nnodes:\n  a: {type: return, output: {}}",
    );
    world.graph("t/waits", WAITS);
    let beside = world.start_run("t/waits");
    for levels in ["14", "40"] {
        let _script = world.write("print.py", PRINTS.replace("LEVELS", levels));
        world.graph(
            "t/hands-on",
            "start: a\nnodes:\n  \
             a: {action: {item_id: rye/bash, params: {command: \"echo >>ran; python3 print.py\"}}, \
             assign: {tree: \"${result.stdout | from_json}\"}, next: b}\n  \
             b: {action: {item_id: t/tree, params: {tree: \"${state.tree}\"}}, next: c}\n  c: {type: return, output: {}}",
        );
        let error = error_of(&world, &world.start_run("t/hands-on"));
        let code = error["code"].as_str().unwrap();
        assert!(
            ["input_validation_failed", "too_complex"].contains(&code),
            "{error}"
        );
    }
    assert_eq!(world.read("ran").lines().count(), 2, "no tool runs again");
    let most = most_resident(&daemon);
    assert!(most < 400, "{most} MB");
    let _answers = world.ryectl("ps --json --no-autostart").ok();
    assert_eq!(world.info()["pid"], daemon.pid());
    world.write("go", "");
    assert_eq!(world.settled(&beside)["status"], "completed");
}

/// Number of concurrent items with much output, and memory limit in MB. `RYE_OUTPUT_WIDE` sets the number, with a limit
/// of 1,000 MB.
const WIDE: (u64, u64) = (20, 400);

#[test]
fn output_of_many_items_at_once_takes_no_more_memory_than_all_runs_may_and_others_complete_meanwhile()
 {
    let asked = std::env::var_os("RYE_OUTPUT_WIDE");
    let asked = asked.and_then(|wide| wide.to_str()?.parse().ok());
    let (wide, limit) = asked.map_or(WIDE, |wide| (wide, 1000));
    let world = World::new();
    let most = 64 << 20;
    let daemon = world.start(&format!(
        "limits: {{memory_mb: {limit}, output_bytes: {most}}}"
    ));
    let items: Vec<u64> = (0..wide).collect();
    // JSON takes six bytes for each NUL.
    let flood = "head -c 8000000 /dev/zero; head -c 8000000 /dev/zero >&2; sleep 1";
    world.graph(
        "t/floods",
        &format!(
            "start: a\nnodes:\n  \
             a: {{type: foreach, over: {items:?}, parallel: true, max_concurrency: {wide}, on_item_error: collect, \
             action: {{item_id: rye/bash, params: {{command: \"{flood}\"}}}}, next: b}}\n  b: {{type: return, output: {{}}}}"
        ),
    );
    world.graph(
        "t/small",
        "start: a\nnodes:\n  a: {action: {item_id: rye/bash, params: {command: \"echo hello\"}}, \
         assign: {x: \"${result.stdout}\"}, next: b}\n  b: {type: return, output: \"${state.x}\"}",
    );
    let floods = world.start_run("t/floods");
    let mut beside = 0;
    while world.record(&floods)["status"] == "running" {
        let record = world.settled(&world.start_run("t/small"));
        assert_eq!(record["status"], "completed", "{record}");
        beside += 1;
    }
    let error = error_of(&world, &floods);
    assert_eq!(error["code"], "results_too_large", "{error}");
    assert!(beside > 0, "other runs completed meanwhile");
    // The files of the project are written after the run.
    until("its page says how it ended", || {
        let pages = world.project().join(".ai/knowledge/graphs/t/floods");
        let page = fs::read_to_string(pages.join(format!("{floods}.md"))).ok()?;
        page.contains("results_too_large").then_some(())
    });
    let most = most_resident(&daemon);
    println!("{wide} items at once: {most} MB, and {beside} other runs");
    assert!(5 * most <= 6 * limit, "{most} MB");
    assert_eq!(world.info()["pid"], daemon.pid());
}

/// Returns the resident memory of the daemon in MiB.
fn resident(daemon: &Daemon) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.unwrap().trim().trim_end_matches(" kB");
    kilobytes.parse::<u64>().unwrap() >> 10
}

/// Writes an unsigned graph with thousands of patterns.
fn hostile(world: &World) {
    let edge = r"{to: end, when: {path: inputs.text, op: regex, value: '(\w{1,40}\s?){1,40}x'}}";
    let edges = vec![edge; 2_000].join(", ");
    let nodes =
        format!("start: a\nnodes:\n  a: {{type: gate, next: [{edges}]}}\n  end: {{type: return}}");
    let text = rye_tests::world::graph_text("t/hostile", "permissions: []", &nodes);
    world.write(".ai/tools/t/hostile.yaml", text);
}

/// Repeats `ps` until `attack` is over. Returns the time of the slowest answer, and prints the distribution.
fn slowest_answer(world: &World, attack: impl FnOnce() + Send) -> Duration {
    let mut answers = Series::new("`ps` under attack", "ms");
    let slowest = thread::scope(|scope| {
        let attacking = scope.spawn(attack);
        let mut slowest = Duration::ZERO;
        while !attacking.is_finished() {
            let asked = Instant::now();
            let _runs = world.ryectl("ps --json --no-autostart").ok();
            let took = asked.elapsed();
            answers.add(milliseconds(took));
            slowest = slowest.max(took);
        }
        attacking.join().unwrap();
        slowest
    });
    answers.print();
    println!("its 99th percentile: {:.1} ms", answers.p99());
    slowest
}

/// Most memory in MB that the daemon may keep after a peak.
const MOST_LEFT: u64 = 250;

/// Longest time of `ps` on a busy machine, including the start of the program.
const PATIENCE: Duration = Duration::from_secs(8);

#[test]
fn concurrent_hostile_files_do_not_block_calls() {
    let world = World::new();
    let daemon = world.start("");
    hostile(&world);
    let slowest = slowest_answer(&world, || {
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let told = world.ryectl("graph validate t/hostile --json").run();
                    let told = told.code_among(&[0, 1, 2]).stdout();
                    assert!(told.contains("too_complex"), "{told}");
                });
            }
        });
    });
    assert!(slowest < PATIENCE, "{slowest:?}");
    let most = most_resident(&daemon);
    assert!(most < 500, "{most} MB");
}

/// Each step only matches a pattern that exceeds its bound.
const MATCHES: &str = "max_steps: 400\nstate: {text: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa}\nstart: a\nnodes:\n  \
    a: {type: gate, next: [{to: end, when: {path: state.text, op: regex, value: '^(?=a)(a+a+)+$(?<=b)'}}, {to: a}]}\n  \
    end: {type: return}";

#[test]
fn long_pure_steps_do_not_block_calls() {
    let world = World::new();
    let _daemon = world.start("");
    world.graph("t/matches", MATCHES);
    let runs: Vec<_> = (0..3).map(|_| world.start_run("t/matches")).collect();
    let slowest = slowest_answer(&world, || {
        for run in &runs {
            let record = world.settled(run);
            assert_eq!(record["error"]["code"], "max_steps_exceeded", "{record}");
        }
    });
    assert!(slowest < PATIENCE, "{slowest:?}");
}

#[test]
fn low_memory_attacks_spare_other_run_and_memory_is_returned() {
    let world = World::with_address_limit(4 << 30);
    let daemon = world.start("");
    for (id, graph) in [("t/doubles", DOUBLES), ("t/waits", WAITS)] {
        world.graph(id, graph);
    }
    world.graph_with(
        "t/tree",
        TREE,
        "start: a\nnodes:\n  a: {type: return, output: {}}",
    );
    world.graph(
        "t/long",
        "start: a\nnodes:\n  a: {action: {item_id: rye/core/echo, params: {text: \"${inputs.text}\"}}, assign: {x: \"${result.text}\"}, next: b}\n  b: {type: return, output: {}}",
    );
    hostile(&world);
    let beside = world.start_run("t/waits");
    let text = json!({"text": "y".repeat(8 << 20)}).to_string();
    let _file = world.write("long.json", text);
    let long = world
        .ryectl("run t/long --detach --input @long.json")
        .ok()
        .line();
    let _ended = world.settled(&long);
    let slowest = slowest_answer(&world, || {
        for _ in 0..3 {
            let error = error_of(&world, &world.start_run("t/doubles"));
            assert!(
                error["message"].as_str().unwrap().contains("memory"),
                "{error}"
            );
        }
        let nested = format!("tree:={}1{}", "[".repeat(40), "]".repeat(40));
        let _refused = world
            .ryectl("run t/tree --json -i")
            .arg(nested)
            .run()
            .code(2);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| drop(world.ryectl("graph validate t/hostile --json").run()));
            }
        });
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| drop(world.ryectl("events --json").arg(&long).run()));
            }
        });
    });
    assert!(slowest < PATIENCE, "{slowest:?}");
    world.write("go", "");
    assert_eq!(world.settled(&beside)["status"], "completed");
    assert_eq!(world.info()["pid"], daemon.pid());
    let left = within(Duration::from_mins(1), || {
        (resident(&daemon) < MOST_LEFT).then_some(())
    });
    println!(
        "the slowest answer took {slowest:?}, {} MB are kept",
        resident(&daemon)
    );
    assert!(left.is_some(), "{} MB are kept", resident(&daemon));
}
