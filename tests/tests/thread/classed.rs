//! The configuration defines the classes of a provider's errors, but not their costs.

use rye_core::id::ItemKind;
use rye_tests::World;
use rye_tests::model_server::ModelServer;

use super::{BASH, account, payloads, start};

fn classes(world: &World, row: &str) {
    let text = format!(
        "version: \"1.0.0\"\ncategory: agent\nname: error_classification\nprovider_errors:\n  - {row}\n"
    );
    let path = world.write(".ai/config/agent/error_classification.yaml", text);
    world.sign_unchecked(ItemKind::Config, &path);
}

#[test]
fn error_class_of_project_makes_final_error_retryable() {
    let server = ModelServer::start(
        "
- when: {turn: 1}
  times: 1
  reply: {status: 400, error: {type: invalid_request_error, message: The cat sleeps.}}
- when: {turn: 1}
  reply: {text: Done., usage: {input: 100, output: 10}}
",
    );
    let world = World::with_models(&server);
    world.directive("t/work", BASH, "", "Work.");
    let row = |category: &str| {
        format!(
            "{{id: cat, category: {category}, match: {{path: error.message, op: regex, value: cat}}, \
             retry_policy: {{type: fixed, delay: 0.01}}}}"
        )
    };
    classes(&world, &row("transient"));
    let _daemon = world.start("");
    let run = start(&world, "t/work");
    let record = world.settled(&run);
    assert_eq!(record["status"], "completed", "{record}");
    let failed = payloads(&world, &run, "error_classified");
    assert_eq!(failed[0]["classification"], "transient", "{failed:?}");
    let settled = payloads(&world, &run, "budget_settled");
    assert_eq!(settled[0]["because"], "refused", "{settled:?}");
    assert_eq!(settled[0]["usage"].get("usd"), None, "{settled:?}");
    assert_eq!(account(&world, &run)["held"], "0.000000000");

    // An unreadable configuration is refused, with the file, the row and the key.
    classes(&world, &row("sometimes"));
    let _refused = world
        .ryectl("thread run t/work")
        .run()
        .code(2)
        .stderr_contains(&[
            "config:agent/error_classification",
            "`cat` of the project space",
            "`category` is one of transient",
        ]);
    assert_eq!(server.requests().len(), 2);
}

#[test]
fn unreadable_answer_is_not_retried() {
    let server = ModelServer::start("- reply: {text: A text of several pieces., malformed: 4}");
    let world = World::with_models(&server);
    world.directive("t/work", BASH, "", "Work.");
    let _daemon = world.start("");
    let run = start(&world, "t/work");
    let record = world.settled(&run);
    assert_eq!(record["error"]["code"], "unreadable_answer", "{record}");
    let text = record["error"]["message"].as_str().unwrap_or_default();
    assert!(
        text.contains("an event is not JSON") && text.contains("docs/providers.md"),
        "{text}"
    );
    assert_eq!(server.requests().len(), 1);
}
