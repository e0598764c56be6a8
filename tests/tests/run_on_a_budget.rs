//! The page `docs/run-on-a-budget.md`, run in a shell as it is, and the hints of runs that lack money.

use rye_pages::Block;
use rye_tests::World;
use rye_tests::model_server::ModelServer;
use serde_json::json;

use crate::pages::example;

const PAGE: &str = "docs/run-on-a-budget.md";

/// The model of the page reads the file, and returns its summary.
const SUMMARIZES: &str = "
- when: {directive: summarize, turn: 1}
  reply:
    calls: [{name: rye_execute, input: {item_id: rye/file-system/read, parameters: {path: README.md}}}]
    usage: {input: 1000, output: 100}
- when: {directive: summarize, turn: 2, tool_result: Rye runs graphs}
  reply:
    calls: [{name: directive_return, input: {summary: It is about Rye.}}]
    usage: {input: 1000, output: 100}
";

fn world(server: &ModelServer) -> World {
    let world = World::with_models(server);
    for (path, name) in [
        (".ai/directives/team/summarize.md", "team/summarize"),
        (".ai/tools/team/digest.yaml", "team/digest"),
    ] {
        world.write(path, example(PAGE, name));
    }
    world.write("README.md", "Rye runs graphs.\n");
    world
}

/// Returns the commands of the page in their order, each with its exit code: zero, unless its comment has
/// `exit code N`.
fn commands() -> Vec<(String, i32)> {
    let code = |line: &str| {
        let told = line.split_once("# exit code ").map(|(_, told)| told);
        let digits = told.and_then(|told| told.split(|c: char| !c.is_ascii_digit()).next());
        digits.map_or(0, |digits| digits.parse().unwrap())
    };
    let is_shell = |block: &Block| block.language == "sh";
    let blocks = rye_pages::blocks(PAGE).into_iter().filter(is_shell);
    let lines = blocks.flat_map(|block| block.text.lines().map(str::to_owned).collect::<Vec<_>>());
    lines.map(|line| (line.clone(), code(&line))).collect()
}

#[test]
fn documented_budget_commands_work_as_shown() {
    let server = ModelServer::start(SUMMARIZES);
    let world = world(&server);
    let commands = commands();
    let suspends = commands.iter().filter(|(_, code)| *code == 75).count();
    assert!(commands.len() >= 12 && suspends == 2, "{commands:?}");
    let script: String = commands
        .iter()
        .flat_map(|(command, _)| [command, "\nprintf '\\036%d\\037' $?\n"])
        .collect();
    let out = world.shell(&[], &script).output().unwrap();
    let told = String::from_utf8_lossy(&out.stderr);
    let printed = String::from_utf8(out.stdout).unwrap();
    let mut ends = printed.split_terminator('\u{1f}');
    for (command, expected) in &commands {
        let end = ends.next();
        let end = end.unwrap_or_else(|| panic!("`{command}` was not done: {told}"));
        let (printed, code) = end.rsplit_once('\u{1e}').unwrap();
        assert_eq!(code, expected.to_string(), "`{command}`: {printed} {told}");
    }
    assert_eq!(
        server.requests().len(),
        6,
        "each of three threads called its model twice"
    );
}

/// Returns the commands of a hint, which are on lines of their own.
fn hinted(told: &str) -> Vec<String> {
    let lines = told.lines().filter_map(|line| line.strip_prefix("  "));
    let commands = lines.filter(|line| line.starts_with("ryectl "));
    commands.map(str::to_owned).collect()
}

/// Runs the command of a hint, with enough money where it needs some.
fn follow(world: &World, hint: &str) {
    let words = hint.strip_prefix("ryectl ").unwrap().replace("USD", "0.50");
    let _done = world.ryectl(&words).ok();
}

#[test]
fn budget_hint_of_parent_names_command_that_resumes_both() {
    let server = ModelServer::start(SUMMARIZES);
    let world = world(&server);
    let _signed = world
        .ryectl("sign directive:team/summarize tool:team/digest")
        .ok();
    let _daemon = world.start("");
    let run = world
        .ryectl("run --detach team/digest --limit spend=0.0001")
        .ok()
        .line();
    let record = world.settled(&run);
    let thread = record["suspend"]["child"].as_str().unwrap();
    let why = &world.record(thread)["suspend"];
    assert_eq!(
        (&why["reason"], &why["account"], &why["max"]),
        (&json!("budget"), &json!(run), &json!("0.000100000")),
        "{why}"
    );
    // Money for the thread is refused, and the message names the graph.
    let raise = world.ryectl("resume --raise spend=0.50").arg(thread);
    let _refused = raise
        .run()
        .code(5)
        .stderr_contains(&[&format!("ryectl budget raise {run} --spend USD")]);
    // The hint of the thread has two commands, that of the graph one.
    let told = world.ryectl("attach").arg(thread).run().code(75);
    let hints = hinted(&told.stderr());
    assert_eq!(hints[0], format!("ryectl budget raise {run} --spend USD"));
    assert_eq!(hints[1], format!("ryectl resume {thread}"));
    let told = world.ryectl("attach").arg(&run).run().code(75);
    let hints = hinted(&told.stderr());
    assert_eq!(hints[0], format!("ryectl resume {run} --raise spend=USD"));
    assert!(server.requests().is_empty());
    follow(&world, &hints[0]);
    for run in [run.as_str(), thread] {
        assert_eq!(world.settled(run)["status"], "completed", "{run}");
    }
    let shown = world.ryectl("budget show --json").arg(&run).ok().json();
    assert_eq!(shown["path"][0]["max"], "0.500000000");
}

#[test]
fn raise_of_exhausted_thread_resumes_its_graph() {
    let server = ModelServer::start(SUMMARIZES);
    let world = world(&server);
    let params = "params: {path: README.md}";
    let with_limit = "params: {path: README.md, limit_overrides: {spend: 0.0001}}";
    let bounded = example(PAGE, "team/digest").replace(params, with_limit);
    world.write(".ai/tools/team/digest.yaml", bounded);
    let _signed = world
        .ryectl("sign directive:team/summarize tool:team/digest")
        .ok();
    let _daemon = world.start("");
    let run = world.ryectl("run --detach team/digest").ok().line();
    let record = world.settled(&run);
    let thread = record["suspend"]["child"].as_str().unwrap().to_owned();
    let _refused = world
        .ryectl("resume --raise spend=0.50")
        .arg(&run)
        .run()
        .code(5)
        .stderr_contains(&[&format!("ryectl budget raise {thread} --spend USD")]);
    let told = world.ryectl("attach").arg(&run).run().code(75);
    let hints = hinted(&told.stderr());
    assert_eq!(
        hints[0],
        format!("ryectl resume {thread} --raise spend=USD")
    );
    follow(&world, &hints[0]);
    assert_eq!(world.settled(&run)["status"], "completed");
}
