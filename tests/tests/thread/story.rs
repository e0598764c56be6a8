//! A root directive whose children build an application in waves, the last one with a server that runs. The root pays
//! for everything.

use std::fmt::Write as _;

use rye_tests::World;
use rye_tests::model_server::ModelServer;
use serde_json::{Value, json};

use super::children::completed;
use super::{account, payloads, start};

/// Directives below the root: the reserved share, and the tokens of their last turn.
const WORKERS: [(&str, &str, [u32; 2]); 5] = [
    ("scaffold", "0.20", [15_000, 5_000]),
    ("db", "0.80", [25_000, 40_000]),
    ("api", "0.80", [60_000, 40_000]),
    ("ui", "0.80", [55_000, 50_000]),
    // After a turn of 15,000 and 10,000, in which it tests the server.
    ("integration", "0.80", [40_000, 10_000]),
];

/// Usage of each turn of the root: 0.017 US dollars.
const TURN: &str = "usage: {input: 500, output: 1600}";

/// A call of `thread_tool` that starts the directive `name`.
fn starts(name: &str) -> String {
    format!(
        "{{name: rye_execute, input: {{item_id: rye/agent/threads/thread_tool, parameters: \
         {{directive_name: t/{name}, directive_inputs: {{}}, execute_directive: true}}}}}}"
    )
}

fn bash(command: &str) -> String {
    format!(
        "{{name: rye_execute, input: {{item_id: rye/bash, parameters: {{command: '{command}'}}}}}}"
    )
}

/// A call of the tool of managed processes.
fn manages(parameters: &Value) -> String {
    let input =
        json!({"item_id": "rye/agent/threads/managed_subprocess", "parameters": parameters});
    format!("{{name: rye_execute, input: {input}}}")
}

/// The server of the application: it answers after a while, and writes its address to a file.
fn server() -> Value {
    let command = "sleep 0.2; echo http://127.0.0.1:$PORT_HTTP/index.html > url; exec python3 -u -m http.server $PORT_HTTP --bind 127.0.0.1";
    json!({
        "action": "start", "name": "dev", "command": command, "cwd": "task-manager", "ports": {"http": "auto"},
        "ready_pattern": "Serving HTTP on .* port \\d+",
    })
}

/// The command by which the last child tests the server.
const REQUEST: &str = "python3 -c \"import urllib.request as u; print(u.urlopen(open(\\\"task-manager/url\\\").read().strip()).read())\"";

fn script() -> String {
    let waits = "{name: rye_execute, input: {item_id: rye/agent/threads/wait_threads, parameters: {thread_ids: $threads, timeout: 0}}}";
    let scaffold = "{name: rye_execute, input: {item_type: directive, item_id: t/scaffold}}";
    let turns = [
        scaffold.to_owned(),
        format!("{}, {}", starts("db"), starts("api")),
        waits.to_owned(),
        starts("ui"),
        waits.to_owned(),
        manages(&server()),
        starts("integration"),
        waits.to_owned(),
        manages(&json!({"action": "stop", "handle_id": "$handle"})),
    ];
    let mut script = String::new();
    for (turn, calls) in (1..).zip(turns) {
        // After the first wave the test checks the money.
        let gate = if turn == 4 {
            "slow_headers: looked, "
        } else {
            ""
        };
        let _written = writeln!(
            script,
            "- when: {{directive: build, turn: {turn}}}\n  reply: {{{gate}calls: [{calls}], {TURN}}}"
        );
    }
    let _written = writeln!(
        script,
        "- when: {{directive: build, turn: 10, tool_result: stopped}}\n  reply: {{text: It is built., {TURN}}}"
    );
    for (name, _, [input, output]) in WORKERS {
        if name == "integration" {
            let _written = writeln!(
                script,
                "- when: {{directive: {name}, turn: 1}}\n  reply: {{calls: [{}], usage: {{input: 15000, output: 10000}}}}",
                bash(REQUEST)
            );
        }
        let gate = match name {
            "db" | "api" => format!("slow_headers: {name}, "),
            _ => String::new(),
        };
        let _written = writeln!(
            script,
            "- when: {{directive: {name}}}\n  reply: {{{gate}text: The {name} is done., usage: {{input: {input}, output: {output}}}}}"
        );
    }
    script
}

/// Converts an amount to nano-dollars.
fn nanos(amount: &Value) -> u64 {
    let text = amount.as_str().unwrap().replace('.', "");
    text.parse().unwrap()
}

#[test]
fn directive_waves_charge_everything_to_root() {
    let server = ModelServer::start(&script());
    let world = World::with_models(&server);
    world.write("task-manager/index.html", "<h1>Tasks</h1>");
    let permissions = "<limits turns=\"12\" spend=\"3.00\"/><permissions><execute><directive>t/*</directive>\
                       <tool>rye/agent/threads/*</tool><tool>rye/bash</tool></execute></permissions>";
    world.directive("t/build", permissions, "", "Build a task manager.");
    for (name, share, _) in WORKERS {
        let limits = format!(
            "<limits spend=\"{share}\"/><permissions><execute><tool>rye/bash</tool></execute></permissions>"
        );
        world.directive(&format!("t/{name}"), &limits, "", "Do your part.");
    }
    let _daemon = world.start("");
    let root = start(&world, "t/build");
    let asks = |requests: &[rye_tests::model_server::Request], name: &str| {
        let of = |request: &&rye_tests::model_server::Request| {
            request.directive.as_deref() == Some(name)
        };
        requests.iter().filter(of).count()
    };
    // Both plans of the first wave are active at the same time; the root waits for the longer one.
    server.wait_for(|requests| asks(requests, "db") == 1 && asks(requests, "api") == 1);
    server.wait_for(|requests| asks(requests, "build") == 3);
    let reserved = account(&world, &root);
    assert!(
        nanos(&reserved["remaining"]) <= 3_000_000_000 - 80_000_000 - 1_600_000_000,
        "{reserved}"
    );
    server.release("db");
    let tree = world.ryectl("tree --json").arg(&root).ok().json();
    let db = tree[0]["children"]
        .as_array()
        .unwrap()
        .iter()
        .find(|run| run["run_id"].as_str().unwrap().contains("db"));
    completed(&world, db.unwrap()["run_id"].as_str().unwrap());
    assert_eq!(
        asks(&server.requests(), "build"),
        3,
        "the other one is not done"
    );
    server.release("api");
    server.wait_for(|requests| asks(requests, "build") == 4);
    let left = account(&world, &root);
    assert_eq!(
        nanos(&left["remaining"]) + nanos(&left["held"]),
        1_899_000_000,
        "{left}"
    );
    server.release("looked");

    completed(&world, &root);
    let paid = account(&world, &root);
    assert_eq!(
        (&paid["actual"], &paid["held"]),
        (&json!("2.140000000"), &json!("0.000000000")),
        "{paid}"
    );
    let tree = world
        .ryectl("budget tree --json")
        .arg(&root)
        .ok()
        .json()
        .to_string();
    assert_eq!(
        tree.matches("\"state\":\"closed\"").count(),
        7,
        "nothing is reserved any more: {tree}"
    );
    assert_eq!(asks(&server.requests(), "build"), 10);
    let waits = payloads(&world, &root, "tool_call_result");
    let wave: Value = serde_json::from_str(waits[3]["output"].as_str().unwrap()).unwrap();
    assert_eq!(
        (&wave["success"], &wave["total_cost"]),
        (&json!(true), &json!(0.97)),
        "{wave}"
    );
    let started: Value = serde_json::from_str(waits[6]["output"].as_str().unwrap()).unwrap();
    assert_eq!(
        (&started["ready"], &started["name"]),
        (&json!(true), &json!("dev")),
        "{started}"
    );
    let handle = started["handle_id"].as_str().unwrap();
    let tree = world.ryectl("tree --json").arg(&root).ok().json();
    let children = tree[0]["children"].as_array().unwrap().iter();
    let mut ids = children.map(|run| run["run_id"].as_str().unwrap());
    let integration = ids.find(|id| id.contains("integration")).unwrap();
    let tested = payloads(&world, integration, "tool_call_result");
    assert!(
        tested[0].to_string().contains("<h1>Tasks</h1>"),
        "{tested:?}"
    );
    let dev = world.record(handle);
    assert_eq!(
        (&dev["status"], &dev["parent_id"]),
        (&json!("cancelled"), &json!(root)),
        "{dev}"
    );
    let stopped: Value = serde_json::from_str(waits[9]["output"].as_str().unwrap()).unwrap();
    assert_eq!(stopped["stopped"], true, "{stopped}");
    assert_eq!(world.record(&root)["spawn_count"], 6);
}
