//! The examples of all pages: each is checked, and the quick ones are run as the page says.
//!
//! A block after `<!-- example: NAME -->` is a whole file: a graph, a tool or a directive by its id, any other file by
//! its name. A block after `<!-- nodes -->` has some nodes of a graph.

use std::collections::BTreeMap;
use std::path::Path;

use rye_core::definition;
use rye_core::directive;
use rye_core::id::ItemId;
use rye_pages::Block;
use rye_tests::World;
use rye_tests::command::in_clean_environment;
use serde_json::{Value, json};

/// The text around nodes of a page that makes them a graph.
const AROUND: &str = "version: \"1.0.0\"\ntool_type: graph\nexecutor_id: rye/core/runtimes/state-graph/runtime\ncategory: t\n\
                      permissions: [\"rye.*\"]\nconfig:\n  start: START\n  nodes:\n";

fn blocks() -> Vec<Block> {
    let pages = rye_pages::for_users();
    pages
        .iter()
        .flat_map(|page| rye_pages::blocks(page))
        .collect()
}

/// Returns the example `name` of `page`.
pub(crate) fn example(page: &str, name: &str) -> String {
    let mut blocks = rye_pages::blocks(page).into_iter();
    let found = blocks.find(|block| block.example() == Some(name));
    found
        .unwrap_or_else(|| panic!("{page} has no example {name}"))
        .text
}

fn is_graph(block: &Block) -> bool {
    block.language == "yaml" && block.text.contains("\ntool_type: graph\n")
}

/// Returns errors and warnings of a graph, one a line.
fn findings(text: &str) -> (String, String) {
    let found = match definition::parse(text) {
        Ok((_, warnings)) => warnings,
        Err(findings) => findings,
    };
    let errors: Vec<String> = definition::errors(&found)
        .map(ToString::to_string)
        .collect();
    let all: Vec<String> = found.iter().map(ToString::to_string).collect();
    (errors.join("\n"), all.join("\n"))
}

#[test]
fn every_graph_of_a_page_is_an_example_without_a_finding() {
    let mut graphs = 0;
    for block in blocks().into_iter().filter(is_graph) {
        let name = block.example().unwrap_or_else(|| {
            panic!("{}: mark the graph: <!-- example: ID -->", block.location())
        });
        let id = ItemId::new(name).unwrap();
        let category = format!("category: {}", id.category());
        let mut lines = block
            .text
            .lines()
            .map(|line| line.split(" #").next().unwrap());
        assert!(
            lines.any(|line| line.trim_end() == category),
            "{}: {category}",
            block.location()
        );
        let (_, found) = findings(&block.text);
        assert_eq!(found, "", "{}", block.location());
        graphs += 1;
    }
    assert!(graphs >= 7, "{graphs}");
}

#[test]
fn nodes_of_a_page_are_those_of_a_graph() {
    let mut checked = 0;
    for block in blocks().iter().filter(|block| block.mark == "nodes") {
        let first = block.text.trim_start().split(':').next().unwrap();
        let indent = block.text.len() - block.text.trim_start().len();
        let nodes = block
            .text
            .lines()
            .map(|line| line.get(indent..).unwrap_or(""));
        let mut nodes: Vec<String> = nodes.map(str::to_owned).collect();
        // Targets of the last nodes are not on the page.
        for end in ["done:", "decide:"] {
            if !nodes.iter().any(|line| line.starts_with(end)) {
                nodes.push(format!("{end} {{type: return}}"));
            }
        }
        let around = AROUND.replace("START", first);
        let text = format!("{around}    {}\n", nodes.join("\n    "));
        let (errors, _) = findings(&text);
        assert_eq!(errors, "", "{}\n{text}", block.location());
        checked += 1;
    }
    assert!(checked >= 3, "{checked}");
}

#[test]
fn directives_of_pages_have_no_finding() {
    let mut directives = 0;
    for block in blocks() {
        let Some(name) = block.example().filter(|_| block.language == "markdown") else {
            continue;
        };
        let (_, found) = directive::parse(&block.text, &ItemId::new(name).unwrap())
            .unwrap_or_else(|findings| panic!("{}: {findings:#?}", block.location()));
        assert_eq!(found, [], "{}", block.location());
        directives += 1;
    }
    assert!(directives >= 2, "{directives}");
}

/// Returns the path of an example: by its id below `.ai`, or by its name.
fn place(block: &Block, name: &str) -> String {
    let extension = match block.language.as_str() {
        _ if Path::new(name).extension().is_some() => return name.to_owned(),
        "yaml" if block.text.contains("\ncases:") => return format!(".ai/tools/{name}.test.yaml"),
        "markdown" => return format!(".ai/directives/{name}.md"),
        "python" => "py",
        "bash" | "sh" => "sh",
        "js" | "javascript" => "mjs",
        "ts" | "typescript" => "ts",
        other => other,
    };
    format!(".ai/tools/{name}.{extension}")
}

#[test]
fn every_example_that_is_an_item_can_be_signed_and_may_be_used() {
    let world = World::new();
    let mut places: BTreeMap<String, String> = BTreeMap::new();
    for block in blocks() {
        // Blocks with more than a name are files of whole projects, which have a test of their own.
        let is_item = |name: &&str| !name.contains(' ') && block.language != "console";
        let Some(name) = block.example().filter(is_item) else {
            continue;
        };
        let file = place(&block, name);
        let first = places.insert(file.clone(), block.location());
        assert_eq!(first, None, "{} is {file} too", block.location());
        let path = world.write(&file, &block.text);
        if file.starts_with(".ai/") && !file.ends_with(".test.yaml") {
            let _signed = world.ryectl("sign").arg(&path).ok();
            let _fine = world.ryectl("verify").arg(&path).ok();
        } else if block.language == "python" {
            let compile = "import sys; compile(open(sys.argv[1]).read(), sys.argv[1], 'exec')";
            let compiled = in_clean_environment("python3", &world.home(), &world.project())
                .args(["-c", compile])
                .arg(&path)
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&compiled.stderr);
            assert!(compiled.status.success(), "{}: {said}", block.location());
        }
    }
}

/// Makes a world with the example `id` of `page`, signed.
fn world_of(page: &str, id: &str) -> World {
    let world = World::new();
    world.tool(&format!("{id}.yaml"), &example(page, id));
    world
}

#[test]
fn the_smallest_graph_greets() {
    let world = world_of("docs/graphs.md", "team/hello");
    let _daemon = world.start("");
    let ran = world
        .ryectl("run team/hello -i name=Ada --quiet --json")
        .ok()
        .json();
    assert_eq!(ran["output"], json!({"greeting": "hello, Ada"}));
}

#[test]
fn the_graph_about_retries_tries_again_and_is_done() {
    let world = world_of("docs/retry-and-time-out.md", "team/fetch-page");
    let _daemon = world.start("");
    let ran = world
        .ryectl("run team/fetch-page --quiet --json")
        .ok()
        .json();
    assert_eq!(ran["output"], json!({"page": "a page"}));
    let events = world.ryectl("events @last").ok();
    assert!(
        events.stdout().contains("retry_scheduled"),
        "{}",
        events.stdout()
    );
}

#[test]
fn the_graph_about_approvals_waits_for_the_answer_and_fails_without_one() {
    let world = world_of("docs/ask-for-approval.md", "team/ship");
    let _daemon = world.start("");
    let _waits = world
        .ryectl("run team/ship -i version=1.2 --quiet")
        .run()
        .code(75);
    let asked = world.ryectl("approvals").ok();
    assert!(asked.stdout().contains("Ship 1.2?"), "{}", asked.stdout());
    let answer = world
        .ryectl("approve @last --answer")
        .arg(r#"{"replicas": 2}"#);
    let _answered = answer.words("--comment fine").ok();
    let shipped = world.ryectl("wait @last --json").ok().json();
    let shipped = shipped.get(0).unwrap_or(&shipped);
    assert_eq!(shipped["output"]["said"], "shipped to 2");
    let _waits = world.ryectl("run team/ship --quiet").run().code(75);
    let _denied = world.ryectl("deny @last").ok();
    let run = world.ryectl("get @last --json").ok().json();
    let ended = world.settled(run["run_id"].as_str().unwrap());
    assert_eq!(ended["error"]["code"], "not_shipped");
}

#[test]
fn the_graphs_about_fan_out_collect_what_failed_and_resume_only_that() {
    let world = world_of("docs/fan-out.md", "team/count-words");
    world.tool("team/check.yaml", &example("docs/fan-out.md", "team/check"));
    let _daemon = world.start("");
    world.write("README.md", "hello world\n");
    let ran = world
        .ryectl("run team/count-words --quiet --json -i")
        .arg(r#"files:=["README.md", "missing.md"]"#)
        .run()
        .code(1)
        .json();
    assert_eq!(ran["status"], "completed_with_errors");
    assert_eq!(ran["output"]["counts"][0], 2);
    assert_eq!(ran["output"]["failed"], 1);
    let shown = world.ryectl("get @last").ok();
    assert!(shown.stdout().contains("count[1]"), "{}", shown.stdout());
    world.write("missing.md", "now\n");
    let mended = world.ryectl("resume @last --json").ok().json();
    assert_eq!(mended["output"], json!({"counts": [2, 1], "failed": 0}));
    let checked = world.ryectl("run team/check --quiet --json").ok().json();
    assert_eq!(
        checked["output"],
        json!({"lint": "clean", "tests": "12 passed"})
    );
}

#[test]
fn the_graph_about_failures_fails_as_the_page_says_and_is_continued() {
    let world = world_of("docs/debug-a-run.md", "team/report");
    let _daemon = world.start("");
    let _failed = world.ryectl("run team/report --quiet").run().code(1);
    let run = world.ryectl("get @last --json").ok().json();
    assert_eq!(run["error"]["code"], "tool_failed");
    let run = run["run_id"].as_str().unwrap();
    for (verb, part) in [
        ("steps", "exit code 1"),
        ("get", "(node measure, tool_failed)"),
        ("logs --node measure", "report.txt"),
        ("state", "_last_error"),
        ("events", "step_failed"),
        ("graph show team/report --run", "measure  rye/bash  ✗"),
    ] {
        let shown = world.ryectl(verb).arg(run).ok();
        assert!(shown.stdout().contains(part), "{verb}: {}", shown.stdout());
    }
    let step = "graph step team/report --node measure --resume-from";
    let _fails_too = world.ryectl(step).arg(run).run().code(1);
    world.write("report.txt", "one line\n");
    let mended = world.ryectl("resume --json").arg(run).ok().json();
    assert_eq!(mended["output"]["lines"], "1");
    // One step of the first run, and two of the run that continues it: `collect` is not repeated.
    let events = world.ryectl("events @last --json").ok().json_lines();
    let begun = events
        .iter()
        .filter(|event| event["event_type"] == "step_started");
    let begun: Vec<&Value> = begun.map(|event| &event["payload"]["node"]).collect();
    assert_eq!(begun, ["measure"]);
}
