//! Graphs whose behaviour was recorded from the original, run by Rye.
//!
//! `data/golden/graphs.json` has the recorded behaviour. `data/golden/rulings.json` has the intended differences and
//! their reasons. `LATER` names the cases of missing features. Every recorded case is in exactly one of the three, and
//! `data/golden/README.md` lists which.
//!
//! The tests compare the outcome of a call and its trace: dispatches, answers of hooks, progress lines, logs (`trace`).
//!
//! A call with control parameters (`resume`, `node`, `validate` …) uses `ryectl execute`, as an action would. Any other
//! call uses `ryectl run`.

mod case;
mod recorded;
mod table;
mod trace;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use rye_tests::{World, binaries};
use serde_json::Value;

use case::{Case, copy, signed_project};
use recorded::expected;

/// Cases of later releases.
const LATER: &[(&str, &str)] = &[
    (
        "thread_child",
        "LLM threads: what a thread learns of its parent",
    ),
    (
        "continuation",
        "LLM threads: rows of a registry of threads, made by hand; chains of graph runs are followed in a test of their own",
    ),
];

/// Number of cases that run at the same time.
const WALKERS: usize = 3;

fn data(name: &str) -> PathBuf {
    binaries::data().join("golden").join(name)
}

fn read(name: &str) -> Value {
    serde_json::from_str(&fs::read_to_string(data(name)).unwrap()).unwrap()
}

fn later(case: &str) -> bool {
    LATER.iter().any(|(id, _)| case == *id)
}

fn disagreements(
    world: &World,
    signed: &Path,
    recorded: &Value,
    ruling: Option<&Value>,
) -> Vec<String> {
    let id = recorded["id"].as_str().unwrap();
    let mut case = Case {
        world,
        project: world.home().join("cases").join(id),
        graph: recorded["graph"].as_str().unwrap(),
        runs: Vec::new(),
    };
    copy(signed, &case.project.join(".ai"));
    let mut wrong = Vec::new();
    let runs = recorded["runs"].as_array().unwrap();
    for (number, run) in (1..).zip(runs) {
        let observed = case.call(run);
        // The ruling on a case with several calls names the call.
        let ruling = match ruling.and_then(|ruling| ruling.get("runs")) {
            Some(each) => each.get(number.to_string()),
            None => ruling.filter(|_| number == runs.len()),
        };
        let mut facts = expected(case.graph, run, ruling);
        if !observed.contains_key("progress") {
            // Only `ryectl run` prints progress lines.
            facts.remove("progress");
        }
        for (key, value) in facts {
            let ours = observed.get(key).unwrap_or(&Value::Null);
            if *ours != value {
                wrong.push(format!("{id} {number}: {key}: expected {value}"));
                wrong.push(format!("{id} {number}: {key}: observed {ours}"));
            }
        }
        if let (Some(refused), false) = (
            observed.get("refused"),
            ruling.is_some_and(|ruling| ruling["instead"].get("refused").is_some()),
        ) {
            wrong.push(format!("{id} {number}: refused: {refused}"));
        }
    }
    wrong
}

#[test]
fn recorded_graphs_match_record_or_ruling() {
    let world = signed_project();
    let _daemon = world.start("env:\n  pass: [GOLDEN_LEAK]\n");
    let signed = world.project().join(".ai");

    let cases = read("graphs.json");
    let rulings = read("rulings.json");
    let cases = cases.as_array().unwrap();
    let now: Vec<&Value> = cases
        .iter()
        .filter(|case| !later(case["id"].as_str().unwrap()))
        .collect();
    assert_eq!(now.len() + LATER.len(), cases.len());
    let next = AtomicUsize::new(0);
    let wrong: Vec<String> = thread::scope(|scope| {
        let walkers: Vec<_> = (0..WALKERS)
            .map(|_| {
                scope.spawn(|| {
                    let mut wrong = Vec::new();
                    while let Some(case) = now.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let ruling = rulings.get(case["id"].as_str().unwrap());
                        wrong.extend(disagreements(&world, &signed, case, ruling));
                    }
                    wrong
                })
            })
            .collect();
        walkers
            .into_iter()
            .flat_map(|walker| walker.join().unwrap())
            .collect()
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_node_whose_work_was_continued_takes_the_result_of_the_last_run() {
    let world = signed_project();
    let _daemon = world.start("");
    let failed = world
        .ryectl("run --json --quiet golden/resumable -i who=Ann")
        .run();
    let failed = failed.code(1).json();
    let last = world
        .ryectl("resume --json --quiet")
        .arg(failed["run_id"].as_str().unwrap())
        .ok()
        .json();
    assert_ne!(last["run_id"], failed["run_id"]);
    world.write("continued", failed["run_id"].as_str().unwrap());

    let run = world
        .ryectl("run --json --quiet golden/continuation")
        .ok()
        .json();
    let taken = &run["state"]["r"];
    assert_eq!(taken["thread_id"], last["run_id"]);
    assert_eq!(taken["status"], "completed");
    assert_eq!(taken["output"], last["output"]);
    assert_eq!(
        run["output"]["note"],
        Value::Null,
        "the first result is gone"
    );
}

/// Returns the rulings by case, without those of all cases.
fn rulings_of_cases(rulings: &Value) -> impl Iterator<Item = (&String, &Value)> {
    let rulings = rulings.as_object().unwrap();
    rulings.iter().filter(|(id, _)| *id != "everywhere")
}

#[test]
fn every_translation_gives_its_reason() {
    let rulings = read("rulings.json");
    let reasons = rulings["everywhere"].as_object().unwrap();
    assert!(reasons.keys().eq(trace::RULES), "{:?}", reasons.keys());
    for (rule, because) in reasons {
        assert!(
            because.as_str().unwrap().len() > 10,
            "{rule} gives no reason"
        );
    }
}

#[test]
fn every_ruling_has_run_case_and_reason() {
    let cases = read("graphs.json");
    let rulings = read("rulings.json");
    let known = |id: &str| {
        let cases = cases.as_array().unwrap();
        cases.iter().any(|case| case["id"] == id)
    };
    for (id, ruling) in rulings_of_cases(&rulings) {
        assert!(known(id), "{id} is not recorded");
        assert!(!later(id), "{id} is ruled on and left for later");
        assert!(
            ruling["because"]
                .as_str()
                .is_some_and(|because| because.len() > 10),
            "{id} gives no reason"
        );
    }
    for (id, _) in LATER {
        assert!(known(id), "{id} names no case");
    }
}
