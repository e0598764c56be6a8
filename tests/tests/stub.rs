//! Python functions that call items: `ryectl stub python`.

use rye_tests::World;
use rye_tests::command::program;

/// Stands for the module that programs of tools use.
const CLIENT: &str = "def execute(item_id, /, **params):\n    return [item_id, params]\n";

/// Inputs whose names and values are hard to write in Python.
const SCHEMA: &str = r#"config_schema:
  type: object
  required: [path, class]
  properties:
    limit: {type: integer, default: 5, description: "At \"most\", C:\\dir."}
    path: {type: string, description: "A path."}
    class: {enum: [a, 'b"c']}
    dry-run: {type: boolean, default: false}
    tags: {type: array, items: {type: string}, default: [x]}
    item_id: {type: [string, "null"]}
"#;

const CALLS: &str = r#"
import inspect
import items

assert items.t_typed("p", "a") == ["t/typed", {"path": "p", "class": "a", "limit": 5, "dry-run": False}]
called = items.t_typed("p", class_="a", limit=1, dry_run=True, tags=[], item_id=None)
given = {"path": "p", "class": "a", "limit": 1, "dry-run": True, "tags": [], "item_id": None}
assert called == ["t/typed", given], called
kinds = [str(p.kind) for p in inspect.signature(items.t_typed).parameters.values()]
assert kinds == ["POSITIONAL_OR_KEYWORD"] * 2 + ["KEYWORD_ONLY"] * 4, kinds
assert 'At "most", C:\\dir.' in items.t_typed.__doc__, items.t_typed.__doc__
assert "Default: [\"x\"]" in items.t_typed.__doc__
assert items.t_open(a=1) == ["t/open", {"a": 1}]
assert items.t_asks(topic="x") == ["directive:t/asks", {"topic": "x"}]
"#;

/// Runs `script` with python3 in the project.
fn python(world: &World, script: &str) {
    let mut python = program("python3");
    let ran = python.args(["-c", script]).current_dir(world.project());
    let ran = ran.output().unwrap();
    let told = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{told}\n{}", world.read("items.py"));
}

#[test]
fn functions_check_names_and_pass_their_parameters() {
    let world = World::new();
    let head = "version: \"1.0.0\"\ntool_type: bash\nexecutor_id: rye/core/runtimes/bash\ncategory: t\ndescription: |\n  \
                Says \"\"\"hello\"\"\".\n\n  Twice.\nconfig: {script: \"true\"}\n";
    world.tool("t/typed.yaml", &format!("{head}name: typed\n{SCHEMA}"));
    world.tool("t/open.yaml", &format!("{head}name: open\n"));
    let inputs =
        "<inputs><input name=\"topic\" type=\"string\" required=\"true\">T</input></inputs>";
    world.directive("t/asks", "", inputs, "Say {input:topic}.");
    let _daemon = world.start("");
    let print = || {
        world
            .ryectl("stub python t/typed t/open directive:t/asks")
            .ok()
    };
    let module = print().stdout();
    assert_eq!(print().stdout(), module);
    let _written = world.write("items.py", &module);
    let _written = world.write("rye_client.py", CLIENT);
    python(&world, CALLS);
}

#[test]
fn functions_of_all_tools_of_the_system_compile() {
    let world = World::new();
    let _daemon = world.start("");
    let listed = world.ryectl("ls tool --space system --json").ok().json();
    let names = listed.as_array().unwrap().iter();
    let names = names.map(|item| item["id"].as_str().unwrap());
    let names: Vec<&str> = names.collect();
    assert!(names.len() > 20, "{names:?}");
    let mut print = world.ryectl("stub python");
    for name in &names {
        print = print.arg(name);
    }
    let module = print.ok().stdout();
    assert_eq!(module.matches("\ndef ").count(), names.len());
    let _written = world.write("items.py", &module);
    let _written = world.write("rye_client.py", CLIENT);
    python(&world, "import items");
}

#[test]
fn item_that_cannot_be_called_or_trusted_has_no_functions() {
    let world = World::new();
    let unsigned = "version: \"1.0.0\"\ntool_type: bash\nexecutor_id: rye/core/runtimes/bash\ncategory: t\nname: raw\n";
    world.write(".ai/tools/t/raw.yaml", unsigned);
    let _daemon = world.start("");
    for (item, code, told) in [
        ("t/raw", 4, "t/raw"),
        ("t/none", 3, "t/none"),
        ("config:agent/resilience", 2, "cannot be called"),
    ] {
        let refused = world.ryectl("stub python").arg(item).run().code(code);
        let _named = refused.stderr_contains(&[told]);
    }
}
