//! What the README and the pages in `docs` show, done as it stands there.

use rye_tests::World;
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
fn the_graph_of_the_readme_is_sound() {
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
