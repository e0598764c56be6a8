//! Spending of runs: accounts, shares of child runs, refusals that name the account and the missing amount, and
//! recovery after crashes.

use rye_tests::{World, until};
use serde_json::Value;

/// A parent that calls the graph `t/child` once for each of two shares, in parallel.
const TWO: &str = "start: each\nnodes:\n  each:\n    type: foreach\n    over: [one, two]\n    parallel: true\n    \
    on_item_error: collect\n    action: {item_id: t/child, params: {name: \"${item}\"}}\n    collect: got\n    next: out\n  \
    out: {type: return, output: \"${state.got}\"}";

/// Waits for the file `go`.
const WAITS: &str = "start: work\nnodes:\n  work:\n    action:\n      item_id: rye/bash\n      params:\n        \
    command: \"until [ -e go ]; do sleep 0.01; done\"\n    next: out\n  out: {type: return, output: done}";

/// Permissions of both graphs, and the reservation of a child.
fn head(spend: Option<&str>) -> String {
    let limits = spend.map_or_else(String::new, |spend| format!("\nlimits: {{spend: {spend}}}"));
    format!("permissions: [\"rye.execute.tool.*\"]{limits}")
}

/// Makes a world with `t/parent`, and with `t/child`, which reserves `spend` and waits.
fn world(spend: Option<&str>) -> World {
    let world = World::new();
    world.graph_with("t/child", &head(spend), WAITS);
    world.graph_with("t/parent", &head(None), TWO);
    world
}

fn tree(world: &World, run: &str) -> Value {
    world.ryectl("budget tree --json").arg(run).ok().json()
}

fn show(world: &World, run: &str) -> Value {
    world.ryectl("budget show --json").arg(run).ok().json()
}

/// Returns the account tree of `run` once it has `below` open child accounts.
fn with_open(world: &World, run: &str, below: usize) -> Value {
    until("the accounts of the children", || {
        let tree = tree(world, run);
        let children = tree["children"].as_array().unwrap();
        let open = children.iter().filter(|child| child["state"] == "open");
        (open.count() == below).then_some(tree)
    })
}

fn start(world: &World, limit: &str) -> String {
    let out = world
        .ryectl("run t/parent --detach --limit")
        .arg(format!("spend={limit}"))
        .ok();
    out.line()
}

#[test]
fn child_runs_reserve_their_share_and_give_it_back() {
    let world = world(Some("0.40"));
    let _daemon = world.start("");
    let run = start(&world, "1.00");
    let open = with_open(&world, &run, 2);
    assert_eq!(open["max"], "1.000000000");
    assert_eq!(open["remaining"], "0.200000000");
    assert_eq!(open["actual"], "0.000000000");
    for child in open["children"].as_array().unwrap() {
        assert_eq!(child["reserved"], "0.400000000");
        let path = show(&world, child["run_id"].as_str().unwrap());
        assert_eq!(path["path"][1]["run_id"], run.as_str());
    }
    world.write("go", "");
    let record = world.settled(&run);
    assert_eq!(record["status"], "completed", "{record}");
    let closed = tree(&world, &run);
    assert_eq!(
        (&closed["state"], &closed["remaining"]),
        (&"closed".into(), &"1.000000000".into())
    );
    let told = world.ryectl("budget show").arg(&run).ok();
    assert!(told.stdout().contains(&run), "{}", told.stdout());
}

#[test]
fn oversized_share_is_refused_by_name_and_others_continue() {
    let world = world(Some("0.60"));
    let _daemon = world.start("");
    let run = start(&world, "1.00");
    with_open(&world, &run, 1);
    world.write("go", "");
    let record = world.settled(&run);
    assert_eq!(record["status"], "completed_with_errors", "{record}");
    let errors = record["errors"].to_string();
    assert!(
        errors.contains(&run) && errors.contains("1.000000000") && errors.contains("0.600000000"),
        "{errors}"
    );
}

#[test]
fn reserved_shares_survive_crash() {
    let world = world(Some("0.40"));
    let daemon = world.start("");
    let run = start(&world, "1.00");
    let before = with_open(&world, &run, 2);
    daemon.kill_both();
    let _status = daemon.ended();
    let _daemon = world.start("");
    let after = with_open(&world, &run, 2);
    assert_eq!(before, after);
    world.write("go", "");
    assert_eq!(world.settled(&run)["status"], "completed");
}

#[test]
fn a_limit_is_raised_with_room_above_or_through_to_the_root() {
    let world = world(Some("0.40"));
    let _daemon = world.start("");
    let run = start(&world, "1.00");
    let open = with_open(&world, &run, 2);
    let child = open["children"][0]["run_id"].as_str().unwrap().to_owned();
    let raise = |run: &str, more: &str| {
        let raise = world.ryectl("budget raise --json").arg(run);
        raise.words(more).run()
    };
    let raised = raise(&child, "--spend 0.60").code(0).json();
    assert_eq!(raised[0]["max"], "0.600000000");
    let refused = |run: &str, more: &str, why: &str| {
        let _told = raise(run, more).code(5).stderr_contains(&[why]);
    };
    refused(&child, "--spend 0.70", &run);
    refused(&child, "--spend 0.50", "not above");
    let raised = raise(&child, "--spend 0.90 --through").code(0).json();
    let told = |place: usize| {
        (
            raised[place]["run_id"].as_str(),
            raised[place]["max"].as_str(),
        )
    };
    assert_eq!(told(0), (Some(run.as_str()), Some("1.300000000")));
    assert_eq!(told(1), (Some(child.as_str()), Some("0.900000000")));
    world.write("go", "");
    world.settled(&run);
    refused(&run, "--spend 9", &run);
}

#[test]
fn a_run_that_is_continued_keeps_its_account() {
    let world = World::new();
    world.graph_with("t/fails", &head(Some("0.75")), "start: a\nnodes:\n  a:\n    action: {item_id: rye/bash, params: {command: \"[ -e go ]\"}}\n    next: out\n  out: {type: return, output: 7}");
    let _daemon = world.start("");
    let failed = world.start_run("t/fails");
    assert_eq!(world.settled(&failed)["status"], "error");
    assert_eq!(show(&world, &failed)["path"][0]["state"], "closed");
    world.write("go", "");
    let out = world
        .ryectl("resume --json --raise spend=0.80")
        .arg(&failed)
        .ok();
    let record = out.json();
    assert_eq!(record["status"], "completed", "{record}");
    let next = record["run_id"].as_str().unwrap();
    assert_ne!(next, failed);
    let path = show(&world, next);
    assert_eq!(path["path"][0]["account"], failed.as_str());
    assert_eq!(path["path"][0]["max"], "0.800000000");
}

/// Starts `child`, which waits for the file `go`, and fails unless the file `ok` exists.
fn detaching(child: &str) -> String {
    format!(
        "start: below\nnodes:\n  below:\n    action: {{item_id: {child}, params: {{async: true}}}}\n    next: check\n  \
         check:\n    action: {{item_id: rye/bash, params: {{command: \"[ -e ok ]\"}}}}\n    next: out\n  out: {{type: return}}"
    )
}

#[test]
fn continued_run_adopts_account_of_live_child() {
    let world = world(Some("0.40"));
    world.graph_with("t/detaching", &head(None), &detaching("t/child"));
    let _daemon = world.start("");
    let failed = world.start_run("t/detaching");
    assert_eq!(world.settled(&failed)["status"], "error");
    assert_eq!(show(&world, &failed)["path"][0]["state"], "ended");
    let resume = |more: &str| world.ryectl("resume --json").arg(&failed).words(more).run();
    let _refused = resume("--raise spend=2")
        .code(5)
        .stderr_contains(&["runs below it are not over"]);
    world.write("ok", "");
    let record = resume("").code(0).json();
    let next = record["run_id"].as_str().unwrap();
    let path = show(&world, next);
    assert_eq!(path["path"][0]["account"], failed.as_str());
    assert_eq!(path["path"][0]["remaining"], "0.600000000", "{path}");
    world.write("go", "");
    until("the account to be closed", || {
        let path = show(&world, next);
        (path["path"][0]["state"] == "closed").then_some(())
    });
}

#[test]
fn a_child_run_that_is_continued_after_its_parent_has_an_account_of_its_own() {
    let world = World::new();
    let fails = "start: a\nnodes:\n  a:\n    action: {item_id: rye/bash, params: {command: \"[ -e go ]\"}}\n    next: out\n  \
                 out: {type: return, output: 7}";
    let calls = "start: a\nnodes:\n  a: {action: {item_id: t/fails, params: {}}, next: out}\n  out: {type: return}";
    world.graph_with("t/fails", &head(Some("0.25")), fails);
    world.graph_with("t/calls", &head(None), calls);
    let _daemon = world.start("");
    let parent = world.start_run("t/calls");
    assert_eq!(world.settled(&parent)["status"], "error");
    let tree = tree(&world, &parent);
    let child = tree["children"][0]["run_id"].as_str().unwrap();
    world.write("go", "");
    let record = world.ryectl("resume --json").arg(child).ok().json();
    let next = record["run_id"].as_str().unwrap();
    let path = show(&world, next);
    assert_eq!(path["path"].as_array().unwrap().len(), 1, "{path}");
    assert_eq!(path["path"][0]["account"], next);
    assert_eq!(path["path"][0]["max"], "0.250000000");
}

#[test]
fn invalid_amounts_are_refused_before_start() {
    let world = World::new();
    world.graph("t/plain", "start: a\nnodes:\n  a: {type: return}");
    let _daemon = world.start("");
    for amount in ["-1", "NaN", "1e30", "0.0000000001", "a lot", ""] {
        let out = world
            .ryectl("run t/plain --limit")
            .arg(format!("spend={amount}"))
            .run();
        let _refused = out.code(2).prints_nothing();
    }
    world.graph_with(
        "t/odd",
        &head(Some("-0.5")),
        "start: a\nnodes:\n  a: {type: return}",
    );
    let out = world.ryectl("graph validate t/odd").run().code(1);
    assert!(out.stdout().contains("limits.spend"), "{}", out.stdout());
    // Neither the request nor the graph sets a limit, so the shipped default applies.
    let run = world.start_run("t/plain");
    world.settled(&run);
    assert_eq!(show(&world, &run)["path"][0]["max"], "1.000000000");
    // A tool may start paid work, so it has that limit as well.
    let _ran = world.ryectl("execute tool rye/core/echo").ok();
    let runs = world.ryectl("ps --all --json").ok().json();
    let tool = runs[0]["run_id"].as_str().unwrap();
    assert_eq!(show(&world, tool)["path"][0]["max"], "1.000000000");
}

#[test]
fn daily_budget_of_node_is_shown() {
    let world = world(None);
    world.write("go", "");
    let _daemon = world.start("budget: {day: 2.50, month: none}\n");
    let run = start(&world, "1.00");
    world.settled(&run);
    let shown = show(&world, &run);
    let [meter] = shown["meters"].as_array().unwrap().as_slice() else {
        panic!("one meter is in force: {shown}")
    };
    let id = meter["id"].as_str().unwrap();
    assert!(id.starts_with("day/20"), "{id}");
    assert_eq!(
        (&meter["max"], &meter["spent"], &meter["held"]),
        (
            &"2.500000000".into(),
            &"0.000000000".into(),
            &"0.000000000".into()
        )
    );
    let told = world.ryectl("budget show").arg(&run).ok();
    assert!(told.stdout().contains(id), "{}", told.stdout());
}

const LEDGER: &str = "rye/agent/threads/budget_ledger";

/// Starts `t/child`, which reserves its share and waits, and queries the ledger about both. The answer to each node is
/// stored under its name.
fn asking() -> String {
    let ask = |node: &str, params: &str, next: &str| {
        format!(
            "\n  {node}:\n    action: {{item_id: {LEDGER}, params: {params}}}\n    assign: {{{node}: \"${{result}}\"}}\n    \
             next: {next}"
        )
    };
    [
        "start: below\nnodes:\n  below:\n    action: {item_id: t/child, params: {async: true}}\n    \
         assign: {child: \"${result.graph_run_id}\"}\n    next: fits"
            .to_owned(),
        ask("fits", "{operation: can_spawn, amount: 0.60}", "lacks"),
        ask("lacks", "{operation: can_spawn, amount: \"0.70\"}", "left"),
        ask("left", "{operation: check_remaining}", "tree"),
        ask("tree", "{operation: get_tree_spend}", "share"),
        ask(
            "share",
            "{operation: get_status, thread_id: \"${state.child}\"}",
            "out",
        ),
        "\n  out: {type: return}".to_owned(),
    ]
    .concat()
}

#[test]
fn graph_queries_ledger_for_itself_and_child_runs() {
    let world = world(Some("0.40"));
    world.graph_with("t/asks", &head(None), &asking());
    let _daemon = world.start("");
    let out = world.ryectl("run t/asks --detach --limit spend=1.00").ok();
    let run = out.line();
    let record = world.settled(&run);
    assert_eq!(record["status"], "completed", "{record}");
    let state = &world.record(&run)["state"];
    let (fits, lacks) = (&state["fits"], &state["lacks"]);
    assert_eq!(fits["affordable"], true, "{state}");
    assert_eq!(
        (&fits["requested"], &fits["lacking"]),
        (&"0.600000000".into(), &Value::Null)
    );
    assert_eq!(lacks["affordable"], false, "{state}");
    assert_eq!(lacks["lacking"]["account"], run.as_str());
    assert_eq!(lacks["lacking"]["missing"], "0.100000000");
    let why = lacks["reason"].as_str().unwrap();
    assert!(why.contains(&run) && why.contains("0.700000000"), "{why}");
    let left = &state["left"];
    assert_eq!(left["thread_id"], run.as_str());
    // A query reserves nothing.
    assert_eq!(left["remaining"], "0.600000000", "{state}");
    assert_eq!(left["limited_by"], run.as_str());
    let tree = &state["tree"];
    assert_eq!(tree["total_reserved"], "0.400000000", "{state}");
    assert_eq!(tree["total_actual"], "0.000000000");
    assert_eq!(
        (&tree["thread_count"], &tree["active_count"]),
        (&2.into(), &2.into())
    );
    let share = &state["share"];
    assert_eq!(share["account"], state["child"], "{state}");
    assert_eq!(
        (&share["state"], &share["parent"]),
        (&"open".into(), &run.as_str().into())
    );
    assert_eq!(share["reserved"], "0.400000000");
    // The run has ended, and its child run has not.
    let asked = |params: &str| {
        let params = params.replace("RUN", &run);
        world
            .ryectl("execute tool --json --params -")
            .arg(LEDGER)
            .stdin(params)
    };
    let over = asked(r#"{"operation": "can_spawn", "thread_id": "RUN", "amount": 0}"#);
    let over = over.ok().json();
    assert_eq!(over["data"]["affordable"], false, "{over}");
    let refused = |params: &str, why: &str| {
        let _told = asked(params).run().code(1).stderr_contains(&[why]);
    };
    refused(r#"{"operation": "spend_it"}"#, "there is no `operation`");
    refused(r#"{"operation": "release"}"#, "only tells");
    refused(r#"{"operation": "can_spawn"}"#, "`amount`");
    refused(
        r#"{"operation": "get_status", "thread_id": "t-gone-1"}"#,
        "there is no run",
    );
    let elsewhere = world.home().join("other");
    std::fs::create_dir_all(elsewhere.join(".ai")).unwrap();
    let unseen = asked(r#"{"operation": "get_status", "thread_id": "RUN"}"#);
    let _told = unseen
        .within(&elsewhere)
        .run()
        .code(1)
        .stderr_contains(&["there is no run"]);
    world.write("go", "");
    world.settled(state["child"].as_str().unwrap());
}
