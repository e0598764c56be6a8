//! The page `docs/script-a-model.md`, run in a shell as it is.

use rye_pages::Block;
use rye_tests::{World, binaries};

use crate::pages::example;

const PAGE: &str = "docs/script-a-model.md";

#[test]
fn documented_script_plays_model_of_directive() {
    let world = World::new();
    for (path, name) in [
        (".ai/directives/desk/sort.md", "desk/sort"),
        ("sort.model.yaml", "sort.model.yaml"),
    ] {
        world.write(path, example(PAGE, name));
    }
    let is_shell = |block: &Block| block.language == "sh";
    let blocks = rye_pages::blocks(PAGE).into_iter().filter(is_shell);
    let commands: String = blocks.map(|block| block.text).collect();
    let folder = binaries::model_server();
    let front = [folder.parent().unwrap()];
    let script = format!("set -e\n{commands}");
    let out = world.shell(&front, &script).output().unwrap();
    let (shown, told) = (
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr),
    );
    assert!(out.status.success(), "{shown}\n{told}");
    assert!(shown.contains("{\"team\":\"billing\"}"), "{shown}\n{told}");
    let runs = world.ryectl("ps --all --json").ok().json();
    assert_eq!(runs[0]["status"], "completed");
    let events = world.ryectl("events @last --json").ok();
    let retried = "turn_retry_scheduled";
    assert!(
        events.stdout().contains(retried),
        "the provider was busy at first"
    );
}
