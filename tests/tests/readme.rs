//! Runs the commands of the README and of the pages in `docs` as they are shown.

use rye_pages::Block;
use rye_tests::{World, until};
use serde_json::json;

use crate::pages::example;

#[test]
fn the_graph_of_the_documents_is_sound_and_runs() {
    let id = "shop/settle";
    let text = example("docs/graphs.md", id);
    let world = World::new();
    world.write(&format!(".ai/tools/{id}.yaml"), text);
    let _signed = world.ryectl(&format!("sign tool:{id}")).ok();
    let report = world
        .ryectl(&format!("graph validate {id} --json"))
        .ok()
        .json();
    assert_eq!(report["errors"], json!([]));
    assert_eq!(report["warnings"], json!([]));
    let ran = world
        .ryectl(&format!("run {id} --quiet --json -i orders:=[1,2]"))
        .ok()
        .json();
    assert_eq!(
        ran["output"],
        json!({"summary": "2 orders\n", "receipt": "charged\n"})
    );
    let step = world
        .ryectl(&format!("graph step {id} --node charge --json --state"))
        .arg(r#"{"summary": "2 orders"}"#)
        .ok()
        .json();
    assert_eq!(
        (&step["success"], &step["next_node"]),
        (&json!(true), &json!("done"))
    );
    for format in ["mermaid", "dot", "text"] {
        let shown = world.ryectl(&format!("graph show {id} --format {format}"));
        assert!(shown.ok().stdout().contains("give_up"), "{format}");
    }
}

#[test]
fn the_graph_of_the_readme_asks_a_person_and_charges_once() {
    let id = "sample/pay";
    let world = World::new();
    world.write(&format!(".ai/tools/{id}.yaml"), example("README.md", id));
    let _signed = world.ryectl(&format!("sign tool:{id}")).ok();
    let report = world
        .ryectl(&format!("graph validate {id} --json"))
        .ok()
        .json();
    assert_eq!(report["errors"], json!([]));
    assert_eq!(report["warnings"], json!([]));
    let _asked = world
        .ryectl(&format!("run {id}"))
        .run()
        .code(75)
        .stderr_contains(&["it asks: Charge the card?", "ryectl approve sample-pay-"]);
    let _approved = world.ryectl("approve @last").ok();
    let _sleeps = until("the charge to begin", || {
        let mut processes = world.processes().into_iter();
        processes.find(|process| process.name == "sleep")
    });
    let _killed = world.ryectl("kill @last").ok();
    let _refused = world
        .ryectl("resume @last")
        .run()
        .code(5)
        .stderr_contains(&["charge"]);
    let resumed = world.ryectl("resume @last --uncertain charge=retry").ok();
    assert_eq!(resumed.json(), json!({"receipt": "charged\n"}));
}

#[test]
fn the_server_of_the_documents_is_imported_and_called() {
    let page = "docs/tools.md";
    let world = World::new();
    world.write("notes_server.py", example(page, "notes_server.py"));
    let server = "mcp/servers/notes";
    world.write(&format!(".ai/tools/{server}.yaml"), example(page, server));
    let _signed = world.ryectl(&format!("sign tool:{server}")).ok();
    let _imported = world.ryectl(&format!("mcp import {server} --yes")).ok();
    let called = world.ryectl("execute tool mcp/notes/shout --params {\"text\":\"hi\"}");
    let expected = json!({
        "success": true,
        "tool": "shout",
        "content": [{"type": "text", "text": "HI"}],
        "isError": false,
    });
    assert_eq!(called.ok().json(), expected);
}

#[test]
fn the_tests_of_the_page_about_tests_pass() {
    let world = World::new();
    let _daemon = world.start("");
    let page = "docs/test-tools.md";
    let blocks = rye_pages::blocks(page);
    let named = |id: &str, part: &str| {
        let found = |block: &&Block| block.example() == Some(id) && block.text.contains(part);
        blocks.iter().find(found).unwrap().text.clone()
    };
    let id = "shop/price";
    world.tool("shop/price.yaml", &named(id, "nodes:"));
    world.tool("shop/rate.yaml", &named("shop/rate", "script:"));
    let file = format!(".ai/tools/{id}.test.yaml");
    world.write(&file, named(id, "cases:"));
    let _out = world.ryectl("test").arg(id).ok().prints(&["2 passed"]);
}
