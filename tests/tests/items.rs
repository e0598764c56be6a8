//! Finding items: listed, shown, named in three ways, and suggested for a wrong name; by the command line and over
//! gRPC.

use rye_proto::v1;
use rye_proto::v1::items_client::ItemsClient;
use rye_proto::v1::node_client::NodeClient;
use rye_tests::World;
use serde_json::{Value, json};

use super::rpc::channel;

const GREET: &str = "start: done\nnodes:\n  done: {type: return, output: \"${inputs.who}\"}";

const TAKES: &str = r#"permissions: ["rye.execute.tool.t.*"]
config_schema:
  type: object
  required: [who]
  properties:
    who: {type: string, description: Whom to greet.}
    times: {type: integer, default: 3}"#;

/// Makes a project with a signed graph, and a tool that was changed after it was signed.
fn world() -> World {
    let world = World::new();
    world.graph_with("t/greet", TAKES, GREET);
    world.python("t/count", "return {'n': 1}");
    let text = world.read(".ai/tools/t/count.py");
    world.write(".ai/tools/t/count.py", text.replace("'n': 1", "'n': 2"));
    world
}

fn found<'l>(list: &'l Value, id: &str) -> &'l Value {
    let mut items = list.as_array().unwrap().iter();
    items
        .find(|item| item["id"] == id)
        .unwrap_or_else(|| panic!("no {id} in {list}"))
}

#[test]
fn items_are_listed_with_what_they_are_for_and_whether_they_may_be_used() {
    let world = world();
    let all = world.ryectl("ls --json").ok().json();
    assert_eq!(all[0]["space"], "project", "one's own come first");
    let greet = found(&all, "tool:t/greet");
    assert_eq!(
        (&greet["verdict"], &greet["problem"]),
        (&json!("full"), &Value::Null)
    );
    assert_eq!(greet["tool_type"], "graph");
    let count = found(&all, "tool:t/count");
    assert_eq!(count["verdict"], "modified");
    assert!(
        count["problem"]
            .as_str()
            .unwrap()
            .contains("ryectl sign tool:t/count")
    );
    let shipped = found(&all, "tool:rye/bash");
    assert_eq!(
        (&shipped["space"], &shipped["verdict"]),
        (&json!("system"), &json!("built_in"))
    );
    let own = world.ryectl("ls tool t/* --json").ok().json();
    assert_eq!(own.as_array().unwrap().len(), 2);
    let own = world.ryectl("ls tool:t/c* --json").ok().json();
    assert_eq!(own[0]["id"], "tool:t/count");
    let table = world.ryectl("ls t/*").ok();
    let _shown = table.prints(&["ITEM", "tool:t/greet", "project", "ok", "modified"]);
    let system = world.ryectl("ls tool --space system --json").ok().json();
    assert!(
        system
            .as_array()
            .unwrap()
            .iter()
            .all(|item| item["space"] == "system")
    );
}

#[test]
fn an_item_is_shown_with_inputs_permissions_and_what_it_shadows() {
    let world = world();
    let shown = world.ryectl("show t/greet --json").ok().json();
    assert_eq!(shown["permissions"], json!(["rye.execute.tool.t.*"]));
    assert_eq!(shown["inputs"]["properties"]["times"]["default"], 3);
    assert_eq!(shown["shadows"], json!([]));
    let text = world.ryectl("show t/greet").ok();
    let _shown = text.prints(&[
        "tool:t/greet",
        "rye.execute.tool.t.*",
        "who",
        "required",
        "Whom to greet.",
        "3",
    ]);
    let changed = world.ryectl("show tool:t/count").ok();
    let _shown = changed.prints(&["modified", "ryectl sign tool:t/count"]);
    world.python("rye/bash", "return {}");
    let shown = world.ryectl("show rye/bash --json").ok().json();
    assert_eq!(
        (&shown["space"], &shown["shadows"][0]["space"]),
        (&json!("project"), &json!("system"))
    );
}

#[test]
fn an_item_is_named_by_its_id_its_type_or_its_path_in_every_verb() {
    let world = World::new();
    world.graph_with("t/greet", TAKES, GREET);
    world.python("t/count", "return {'n': 1}");
    for name in [
        "t/greet",
        "tool:t/greet",
        ".ai/tools/t/greet.yaml",
        "./.ai/tools/t/greet.yaml",
    ] {
        for verb in [
            "run -i who=Ada",
            "graph validate",
            "graph show",
            "show",
            "fetch",
            "verify",
            "sign",
            "lock create",
        ] {
            let _done = world.ryectl(verb).arg(name).ok();
        }
        let _done = world
            .ryectl("graph step --node done -i who=Ada")
            .arg(name)
            .ok();
    }
    for name in ["t/count", ".ai/tools/t/count.py"] {
        let _done = world.ryectl("execute tool").arg(name).ok();
    }
    // A relative path from the tools folder, as a shell completes it.
    let folder = world.project().join(".ai/tools");
    let _done = world
        .ryectl("run t/greet.yaml -i who=Ada")
        .within(&folder)
        .ok();
    let _none = world
        .ryectl("run .ai/tools/t/none.yaml")
        .run()
        .code(3)
        .stderr_contains(&["no file"]);
    let wrong = world
        .ryectl("thread validate .ai/tools/t/greet.yaml")
        .run()
        .code(2);
    let _told = wrong.stderr_contains(&["only directives make threads"]);
    let other = World::new();
    other.graph("t/else", GREET);
    let path = other.project().join(".ai/tools/t/else.yaml");
    let foreign = world.ryectl("run").arg(path).run().code(2);
    let _told = foreign.stderr_contains(&["of the project", "--project"]);
}

#[test]
fn mistyped_item_suggests_nearest_item() {
    let world = World::new();
    world.graph_with("t/greet", TAKES, GREET);
    for (words, near) in [
        ("run t/great", "did you mean `t/greet`?"),
        ("run tt/greet", "did you mean `t/greet`?"),
        ("run greet", "did you mean `t/greet`?"),
        ("graph step t/great --node done", "did you mean `t/greet`?"),
        ("execute tool rye/bahs", "did you mean `rye/bash`?"),
        ("show t/great", "did you mean `tool:t/greet`?"),
        (
            "thread run rye/examples/summarise_file",
            "did you mean `rye/examples/summarize_file`?",
        ),
    ] {
        let _told = world.ryectl(words).run().code(3).stderr_contains(&[near]);
    }
    let ids = world.ryectl("ps --all --json").ok().json();
    assert_eq!(ids, json!([]));
}

#[tokio::test]
async fn another_client_can_list_describe_and_verify_items() {
    let world = world();
    let _daemon = world.start("");
    let project = world.project().display().to_string();
    let mut items = ItemsClient::new(channel(&world));
    let mut request = v1::ListItemsRequest {
        project: project.clone(),
        r#type: v1::ItemType::Tool.into(),
        page_size: 7,
        ..v1::ListItemsRequest::default()
    };
    let mut ids = Vec::new();
    loop {
        let page = items.list(request.clone()).await.unwrap().into_inner();
        assert!(page.items.len() <= 7);
        ids.extend(page.items.into_iter().map(|item| item.item.unwrap().id));
        if page.next_page_token.is_empty() {
            break;
        }
        request.page_token = page.next_page_token;
    }
    assert!(
        ids.is_sorted() && ids.iter().any(|id| id == "t/greet"),
        "{ids:?}"
    );
    let mut unique = ids.clone();
    unique.dedup();
    assert_eq!(unique, ids, "each on one page");
    let named = |id: &str| v1::ItemRef {
        id: id.to_owned(),
        ..v1::ItemRef::default()
    };
    let described = items
        .describe(v1::DescribeRequest {
            item: Some(named("t/greet")),
            project: project.clone(),
        })
        .await
        .unwrap()
        .into_inner();
    assert!(described.has_permissions && described.inputs_schema_json.contains("\"who\""));
    let verified = items
        .verify(v1::VerifyRequest {
            project: project.clone(),
            items: ["t/greet", "t/count", "rye/bash"].map(named).into(),
        })
        .await
        .unwrap()
        .into_inner();
    let verdicts: Vec<&str> = verified
        .items
        .iter()
        .map(|item| item.verdict.as_str())
        .collect();
    assert_eq!(verdicts, ["full", "modified", "built_in"]);
    let none = v1::VerifyRequest {
        project: project.clone(),
        items: Vec::new(),
    };
    let refused = items.verify(none).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::InvalidArgument);
    for (pattern, space) in [("[", ""), ("", "moon")] {
        let wrong = v1::ListItemsRequest {
            project: project.clone(),
            pattern: pattern.to_owned(),
            space: space.to_owned(),
            ..v1::ListItemsRequest::default()
        };
        let refused = items.list(wrong).await.unwrap_err();
        assert_eq!(
            refused.code(),
            tonic::Code::InvalidArgument,
            "{pattern}{space}"
        );
    }
}

#[tokio::test]
async fn another_client_can_list_keys() {
    let world = world();
    let _daemon = world.start("");
    let project = world.project().display().to_string();
    let mut node = NodeClient::new(channel(&world));
    let keys = node.keys(v1::KeysRequest { project }).await.unwrap();
    let keys = keys.into_inner().keys;
    assert_eq!(keys.iter().filter(|key| key.is_node).count(), 1);
    assert!(
        keys.iter()
            .all(|key| key.public_pem.contains("BEGIN PUBLIC KEY"))
    );
}

#[test]
fn validation_takes_patterns_of_items() {
    let world = World::new();
    world.graph("t/good", "start: z\nnodes:\n  z: {type: return}");
    world.graph("t/deep/bad", "start: z\nnodes:\n  z: {type: retrun}");
    world.tool("t/plain.yaml", "version: \"1.0.0\"\ntool_type: bash\nexecutor_id: rye/core/runtimes/bash\ncategory: t\nconfig: {script: 'true'}\n");
    world.directive("t/read", "", "", "Read it.");
    let out = world.ryectl("graph validate t/g*").run().code(0);
    let _told = out.stderr_contains(&["t/good.yaml: ok"]);
    let lines = world.ryectl("graph validate --json tool:t/*").run().code(1);
    let items: Vec<Value> = lines
        .json_lines()
        .iter()
        .map(|line| line["item"].clone())
        .collect();
    assert_eq!(items, ["tool:t/deep/bad", "tool:t/good"]);
    let out = world.ryectl("thread validate t/*").run().code(0);
    let _told = out.stderr_contains(&["t/read.md: ok"]);
    // Without items of one's own, those that come with the daemon.
    let _shipped = world.ryectl("graph validate rye/examples/*").ok();
    let out = world.ryectl("graph validate none/*").run().code(3);
    let _told = out.stderr_contains(&["no graph matches `none/*`"]);
    let out = world.ryectl("graph validate directive:t/*").run().code(2);
    let _told = out.stderr_contains(&["leave out `directive:`"]);
}
