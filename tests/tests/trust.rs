//! Items that are unsigned, not trusted or in the wrong place do not run.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;

use rye_tests::{World, skipped};
use serde_json::Value;

const VALUE: &str = "return {'n': 1}";

fn verdict(world: &World, item: &str) -> Value {
    let out = world.ryectl("verify --json").arg(item).run();
    out.json()[0]["verdict"].clone()
}

#[test]
fn an_unsigned_tool_is_refused_by_name() {
    let world = World::new();
    world.python("t/value", VALUE);
    let text = world.read(".ai/tools/t/value.py");
    let unsigned: String = text
        .lines()
        .filter(|line| !line.contains("rye:signed:"))
        .fold(String::new(), |all, line| all + line + "\n");
    world.write(".ai/tools/t/value.py", unsigned);
    let _refused = world
        .ryectl("execute tool t/value")
        .run()
        .code(4)
        .stderr_contains(&["t/value.py", "not signed", "ryectl sign"]);
    assert_eq!(verdict(&world, "tool:t/value"), "unsigned");
}

#[test]
fn a_modified_tool_is_refused_whatever_byte_was_changed() {
    let world = World::new();
    world.python("t/value", VALUE);
    let signed = world.read(".ai/tools/t/value.py");
    for (from, to) in [
        ("'n': 1", "'n': 2"),
        ("A tool", "a tool"),
        ("\"1.0.0\"", "\"1.0.1\""),
    ] {
        world.write(".ai/tools/t/value.py", signed.replacen(from, to, 1));
        let _refused = world
            .ryectl("execute tool t/value")
            .run()
            .code(4)
            .stderr_contains(&["t/value.py", "ryectl sign"]);
        assert_eq!(verdict(&world, "tool:t/value"), "modified", "{from}");
    }
    world.write(".ai/tools/t/value.py", &signed);
    let _runs = world.ryectl("execute tool t/value").ok();
    assert_eq!(verdict(&world, "tool:t/value"), "full");
}

#[test]
fn a_tool_signed_by_a_stranger_is_refused_until_the_key_is_trusted() {
    let stranger = World::new();
    stranger.python("t/value", VALUE);
    let key = stranger.ryectl("key show").ok().stdout();
    let world = World::new();
    world.write(
        ".ai/tools/t/value.py",
        stranger.read(".ai/tools/t/value.py"),
    );
    let _refused = world
        .ryectl("execute tool t/value")
        .run()
        .code(4)
        .stderr_contains(&["t/value.py", "ryectl key trust"]);
    assert_eq!(verdict(&world, "tool:t/value"), "untrusted");

    let begin = key
        .find("-----BEGIN PUBLIC KEY")
        .expect("`key show` prints the public key as PEM");
    let pem = world.write("stranger.pem", &key[begin..]);
    let _trusted = world.ryectl("key trust").arg(pem).ok();
    let _runs = world.ryectl("execute tool t/value").ok();

    let fingerprint = stranger.ryectl("key show --json").ok().json()["fingerprint"]
        .as_str()
        .unwrap()
        .to_owned();
    let _forgotten = world.ryectl("key untrust").arg(fingerprint).ok();
    let _refused = world.ryectl("execute tool t/value").run().code(4);
}

#[test]
fn key_in_project_is_not_trusted() {
    let stranger = World::new();
    stranger.python("t/value", VALUE);
    let world = World::new();
    world.write(
        ".ai/tools/t/value.py",
        stranger.read(".ai/tools/t/value.py"),
    );
    let trusted = stranger.home().join(".ai/config/keys/trusted");
    for entry in fs::read_dir(trusted).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        world.write(
            &format!(".ai/config/keys/trusted/{name}"),
            fs::read(path).unwrap(),
        );
    }
    let _refused = world.ryectl("execute tool t/value").run().code(4);
}

#[test]
fn a_signed_file_copied_to_another_id_is_refused() {
    let world = World::new();
    world.python("t/value", VALUE);
    world.graph("t/graph", "start: done\nnodes:\n  done: {type: return}");
    let tool = world.read(".ai/tools/t/value.py");
    let graph = world.read(".ai/tools/t/graph.yaml");
    world.write(".ai/tools/other/value.py", tool);
    world.write(".ai/tools/other/graph.yaml", &graph);
    world.write(".ai/tools/t/renamed.yaml", &graph);
    for id in ["other/value", "other/graph", "t/renamed"] {
        let file = id.rsplit('/').next().unwrap();
        let _refused = world
            .ryectl("execute tool")
            .arg(id)
            .run()
            .code(4)
            .stderr_contains(&[file, "move the file"]);
    }
}

#[test]
fn link_within_space_cannot_rename_signed_item() {
    let world = World::new();
    let tools = world.project().join(".ai/tools");
    for (name, value) in [("production", "'real'"), ("dryrun", "'dry'")] {
        world.python(&format!("t/{name}"), &format!("return {{'did': {value}}}"));
    }
    let graph = |says: &str| format!("start: a\nnodes:\n  a: {{type: return, output: {says}}}");
    world.graph("t/real", &graph("real"));
    world.graph("t/dry", &graph("dry"));
    std::os::unix::fs::symlink("t", tools.join("u")).unwrap();
    for (link, from, to) in [
        ("symbolic", "production.py", "dryrun.py"),
        ("symbolic", "real.yaml", "dry.yaml"),
        ("hard", "production.py", "dryrun.py"),
        ("hard", "real.yaml", "dry.yaml"),
    ] {
        let (path, target) = (tools.join("t").join(to), tools.join("t").join(from));
        fs::remove_file(&path).unwrap();
        match link {
            "symbolic" => std::os::unix::fs::symlink(from, &path).unwrap(),
            _ => fs::hard_link(target, &path).unwrap(),
        }
        let (id, _) = to.split_once('.').unwrap();
        let refused = world.ryectl("execute tool").arg(format!("t/{id}")).run();
        let refused = refused.code(4).stderr_contains(&[id]).stderr_lacks("real'");
        assert_eq!(refused.stdout(), "", "{link} link to {from}");
    }
    // A folder under another name does not run either.
    for id in ["u/production", "u/real"] {
        let _refused = world.ryectl("execute tool").arg(id).run().code(4);
    }
    let _runs = world.ryectl("execute tool t/production").ok();
    let _runs = world.ryectl("execute tool t/real").ok();
}

#[test]
fn item_linked_out_of_its_space_is_refused() {
    let world = World::new();
    world.python("t/value", VALUE);
    let outside = world.write("elsewhere/value.py", world.read(".ai/tools/t/value.py"));
    let inside = world.project().join(".ai/tools/t/value.py");
    fs::remove_file(&inside).unwrap();
    std::os::unix::fs::symlink(outside, inside).unwrap();
    let _refused = world
        .ryectl("execute tool t/value")
        .run()
        .code(4)
        .stderr_contains(&["symbolic link"]);
}

#[test]
fn project_cannot_replace_parts_of_shipped_runtime() {
    let world = World::new();
    world.python("t/value", VALUE);
    let shipped = fs::read_to_string(
        rye_tests::binaries::clone_root().join(".ai/tools/rye/core/runtimes/python/function.yaml"),
    )
    .unwrap();
    let changed: String = shipped
        .lines()
        .filter(|line| !line.contains("rye:signed:"))
        .map(|line| {
            if line.contains("timeout: 300") {
                "  timeout: 299\n".to_owned()
            } else {
                format!("{line}\n")
            }
        })
        .collect();
    world.write(".ai/tools/rye/core/runtimes/python/function.yaml", changed);
    let _refused = world
        .ryectl("execute tool t/value")
        .run()
        .code(4)
        .stderr_contains(&["function.yaml"]);
}

#[test]
fn a_changed_file_is_noticed_by_the_running_daemon() {
    let world = World::new();
    world.python("t/value", VALUE);
    let out = world.ryectl("execute tool t/value --json").ok();
    assert_eq!(out.json()["data"]["n"], 1);
    world.python("t/value", "return {'n': 2}");
    let out = world.ryectl("execute tool t/value --json").ok();
    assert_eq!(out.json()["data"]["n"], 2);
}

#[test]
fn a_run_that_has_started_keeps_the_graph_it_started_with() {
    let world = World::new();
    let gate = "start: a\nnodes:\n  a:\n    action: {item_id: rye/bash, params: {command: \"touch in; until [ -e go ]; do sleep 0.01; done\"}}\n    next: done\n  done: {type: return, output: OUTPUT}";
    world.graph("t/gate", &gate.replace("OUTPUT", "first"));
    let run = world.start_run("t/gate");
    rye_tests::until("the first step to run", || {
        world.project().join("in").exists().then_some(())
    });
    world.graph("t/gate", &gate.replace("OUTPUT", "second"));
    world.write("go", "");
    assert_eq!(world.settled(&run)["output"], "first");
}

#[test]
fn removed_trust_of_node_key_survives_restarts() {
    let world = World::new();
    world.graph("t/graph", "start: done\nnodes:\n  done: {type: return}");
    let daemon = world.start("");
    let node = world.info()["node_fingerprint"]
        .as_str()
        .unwrap()
        .to_owned();
    let listed = || {
        let keys = world.ryectl("key list --json").ok().json();
        let keys = keys.as_array().unwrap().iter();
        keys.filter(|key| key["fingerprint"] == *node).count()
    };
    assert_eq!(listed(), 1);
    let _taken_out = world.ryectl("key untrust").arg(&node).ok();
    assert_eq!(listed(), 0);
    let _stopped = world.ryectl("daemon stop").ok();
    let _status = daemon.ended();
    let _daemon = world.start("");
    assert_eq!(listed(), 0, "the daemon asked for trust again");
    assert!(world.log().contains("ryectl key trust"), "{}", world.log());
    // Items that the daemon keeps for itself still work.
    let _ran = world.ryectl("run t/graph").ok();

    let public = world.state().join("keys/public_key.pem");
    let _trusted = world.ryectl("key trust").arg(public).ok();
    assert_eq!(listed(), 1);
}

#[test]
fn only_the_users_own_key_is_called_self() {
    let stranger = World::new();
    stranger.python("t/value", VALUE);
    let fingerprint = |world: &World| {
        let key = world.ryectl("key show --json").ok().json();
        key["fingerprint"].as_str().unwrap().to_owned()
    };
    let entry = format!("{}.toml", fingerprint(&stranger));
    let entry = stranger.home().join(".ai/config/keys/trusted").join(entry);
    let world = World::new();
    world.write(
        ".ai/tools/t/value.py",
        stranger.read(".ai/tools/t/value.py"),
    );
    let owner = || {
        let out = world.ryectl("verify --json tool:t/value").ok();
        out.json()[0]["owner"].clone()
    };
    let _trusted = world.ryectl("key trust").arg(&entry).ok();
    assert_eq!(owner(), "local");
    // The same file, copied to the trust folder by hand.
    let trusted = world.home().join(".ai/config/keys/trusted");
    fs::copy(&entry, trusted.join(entry.file_name().unwrap())).unwrap();
    assert_eq!(owner(), "unknown");
    world.python("t/mine", VALUE);
    let _mine = world.ryectl("verify tool:t/mine").ok().prints(&["by self"]);
}

#[test]
fn signing_with_untrusted_key_warns() {
    let world = World::new();
    world.python("t/value", VALUE);
    let key = world.ryectl("key show --json").ok().json();
    let fingerprint = key["fingerprint"].as_str().unwrap();
    let _taken_out = world.ryectl("key untrust").arg(fingerprint).ok();
    let _signed = world.ryectl("sign tool:t/value").ok().stderr_contains(&[
        "warning:",
        "is not trusted",
        "ryectl key trust",
    ]);
}

#[test]
fn a_state_directory_or_a_key_of_somebody_else_is_refused() {
    if !nix::unistd::geteuid().is_root() {
        skipped("only root can make a file somebody else's");
        return;
    }
    let stranger = Some(nix::unistd::Uid::from_raw(54_321));
    let me = Some(nix::unistd::geteuid());
    let world = World::new();
    let daemon = world.start("");
    let _stopped = world.ryectl("daemon stop").ok();
    let _status = daemon.ended();
    for path in ["", "keys", "keys/private_key.pem"] {
        let path = world.state().join(path);
        nix::unistd::chown(&path, stranger, None).unwrap();
        let _refused = world
            .ryectl("daemon start")
            .run()
            .code(69)
            .stderr_contains(&[
                "belongs to uid 54321",
                path.to_str().unwrap().trim_end_matches('/'),
            ]);
        nix::unistd::chown(&path, me, None).unwrap();
    }
    let _mine = world.ryectl("daemon start").ok();
}

/// Public key of the files below, which a program in the original's format signed.
const ORIGINAL_KEY: &str = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAebVWLo/mVPlAeLES6KmLp5AfhTrmlb7X4OORC60ElmQ=\n-----END PUBLIC KEY-----\n";
const ORIGINAL_FINGERPRINT: &str = "45c50cb5ae48c0f6";

/// Writes files with signatures of the original: knowledge, a Python tool with a shebang, a directive, and a tool in
/// TypeScript.
fn write_originals(world: &World) {
    let token = |hash: &str, signature: &str| {
        format!("rye:signed:2026-04-01T00:00:00Z:{hash}:{signature}:{ORIGINAL_FINGERPRINT}")
    };
    let signed = token(
        "3f9592d8939467e055ca2527835de0c17e13498231e07b37e783942d10b7c8f3",
        "JhZFKx-cJU8ZWBrAgWmdzUBz35noEP1bVQ0W8YOa0Ys6r6ZBP8EVhLVyXnAn2XzkRJ5BfgCTRRnXrTqEfuyYDw",
    );
    world.write(
        ".ai/knowledge/demo/hello.md",
        format!(
            "<!-- {signed} -->\n```yaml\nname: hello\ntitle: \"Hello\"\nversion: \"1.0.0\"\nentry_type: reference\ncategory: demo\n```\n\n# Hello\n\nCafé ☃\n"
        ),
    );
    let signed = token(
        "156b78cdab57f9efb2bcdeb58a0fe001fb45c310d3ee7ced2c708ba69eb95b1b",
        "z9_-iOrXHxEBgA6Vv8w1xPWrSaFw_dwA2G5ux5p8qLcz7tFuy7lttff89XGysXuNOf8vdwsJMNbzUHWFnW-7CA",
    );
    world.write(
        ".ai/tools/demo/tool.py",
        format!(
            "#!/usr/bin/env python3\n# {signed}\n__version__ = \"1.0.0\"\n__tool_type__ = \"python\"\n__executor_id__ = \"rye/core/runtimes/python/function\"\n__category__ = \"demo\"\n__tool_description__ = \"demo tool\"\n\n\ndef execute(params, project_path):\n    return {{\"success\": True}}\n"
        ),
    );
    let signed = token(
        "6442c6a0053a1fafab461a675ba109acdb72946d5aeea7689d1a4bee094a27f2",
        "Te74Yy8qwgdUxa7QG8OmYbli-T6VCTugRD5EqqWC5QEf0qsRuFlQJ8ELAPxCbNkx_C03yNGSvHU40J50YtuEBg",
    );
    world.write(
        ".ai/directives/demo/hi.md",
        format!(
            "<!-- {signed} -->\n# Hi\n\n```xml\n<directive name=\"hi\" version=\"1.0.0\">\n  <metadata>\n    <description>Say hi</description>\n    <category>demo</category>\n    <author>me</author>\n  </metadata>\n</directive>\n```\n\nSay hi.\n"
        ),
    );
    let signed = token(
        "31ab9b33008ef257fd5f4b8e521831fe72dc8a0f4363381f766d850579555281",
        "2TWrZa9M2Maab8o1uBOHQEymSBlYRXppdzPsiYWjtJFk5GIkrbcBiFTyYOjZj4Ox0NG8l9oTwRNUQOenvPGHBQ",
    );
    world.write(
        ".ai/tools/end.ts",
        format!(
            "// {signed}\nexport const __version__ = \"1.0.0\";\nexport const __executor_id__ = null;\n"
        ),
    );
}

#[test]
fn original_signatures_count_for_covered_parts() {
    const ITEMS: [&str; 4] = [
        "knowledge:demo/hello",
        "tool:demo/tool",
        "directive:demo/hi",
        "tool:end",
    ];
    let world = World::new();
    write_originals(&world);
    for item in ITEMS {
        assert_eq!(verdict(&world, item), "untrusted", "{item}");
    }
    let pem = world.write("original.pem", ORIGINAL_KEY);
    let _trusted = world.ryectl("key trust").arg(pem).ok();
    // The signature of the knowledge covers the whole text. The others leave out a name, a shebang or the text for the
    // model.
    assert_eq!(verdict(&world, ITEMS[0]), "full");
    let fetched = world.ryectl("fetch knowledge:demo/hello").ok().stdout();
    assert!(fetched.contains("Café ☃"), "{fetched}");
    for item in &ITEMS[1..] {
        assert_eq!(verdict(&world, item), "partial", "{item}");
    }
    let refused = world.ryectl("execute tool demo/tool").run();
    let refused = refused.code(4).stderr_contains(&["demo/tool.py"]).stderr();

    // A user who trusts the key that far runs the command in the refusal.
    let mut quoted = refused.split('`');
    let command = quoted
        .find(|part| part.starts_with("ryectl key trust") && part.contains("--accept-partial"));
    let command = command.unwrap_or_else(|| panic!("{refused} names no command"));
    let accepted = world.ryectl(command.trim_start_matches("ryectl "));
    let _accepted = accepted.ok();
    let entry = format!(".ai/config/keys/trusted/{ORIGINAL_FINGERPRINT}.toml");
    let entry = world.home().join(entry);
    let accepts = || {
        let keys = world.ryectl("key list --json").ok().json();
        let keys = keys.as_array().unwrap().iter();
        let mut theirs = keys.filter(|key| key["fingerprint"] == ORIGINAL_FINGERPRINT);
        theirs.next().map(|key| key["accept_partial"].clone())
    };
    assert_eq!(accepts(), Some(true.into()));
    // Trusting the key again keeps that, and so does signing its entry, which adds a name.
    let _again = world.ryectl("key trust original.pem").ok();
    assert_eq!(accepts(), Some(true.into()));
    let _signed = world.ryectl("sign").arg(&entry).ok();
    assert!(fs::read_to_string(&entry).unwrap().contains("name = "));
    assert_eq!(accepts(), Some(true.into()));
    // An edited entry does not count until the edit is accepted, and the refusal names the command.
    let text = fs::read_to_string(&entry).unwrap();
    fs::write(&entry, text.replace("attestation = \"\"\n", "")).unwrap();
    let edited = world.ryectl("execute tool demo/tool").run();
    let command = format!("ryectl key trust {}", entry.display());
    let _refused = edited.code(4).stderr_contains(&["changed after", &command]);
    let _accepted = world.ryectl("key trust").arg(&entry).ok();
    assert_eq!(accepts(), Some(true.into()));
    let out = world.ryectl("execute tool demo/tool --json").ok().json();
    assert_eq!(out["data"], serde_json::json!({"success": true}));
    let directive = world.ryectl("fetch directive:demo/hi").ok().stdout();
    assert!(directive.contains("Say hi."), "{directive}");
    // This tool ends its own chain: no executor carries it out.
    let _refused = world
        .ryectl("execute tool end")
        .run()
        .code(2)
        .stderr_contains(&["end.ts", "executor_id"]);
    // Knowledge is read, and never executed.
    let _refused = world
        .ryectl("execute knowledge demo/hello")
        .run()
        .code_among(&[2, 64]);
    // The signed parts are protected as before.
    let tool = world.read(".ai/tools/demo/tool.py");
    world.write(".ai/tools/demo/tool.py", tool.replace("True", "False"));
    assert_eq!(verdict(&world, ITEMS[1]), "modified");
}

#[test]
fn planted_project_files_affect_no_tool_or_daemon() {
    let world = World::new();
    let planted = "raise SystemExit('planted')\n";
    for place in [
        "json.py",
        "sitecustomize.py",
        "usercustomize.py",
        ".ai/tools/t/json.py",
        ".ai/tools/t/sitecustomize.py",
        ".ai/parsers/python.py",
        ".ai/parsers/yaml.py",
        ".ai/tools/rye/core/parsers/python.py",
        ".ai/tools/rye/core/extractors/tool_extractor.yaml",
        "json/__init__.py",
    ] {
        world.write(place, planted);
    }
    world.write("evil.pth", "import os; os.abort()\n");
    world.python("t/function", "import json\nreturn json.loads('[1]')");
    world.tool(
        "t/script.py",
        "__version__ = \"1.0.0\"\n__executor_id__ = \"python_runtime\"\n__category__ = \"t\"\n__tool_name__ = \"script\"\n\
         import json\nprint(json.dumps([1]))\n",
    );
    for tool in ["t/function", "t/script"] {
        let execute = world.ryectl("execute tool").arg(tool).arg("--json");
        assert_eq!(
            execute.ok().json()["data"],
            serde_json::json!([1]),
            "{tool}"
        );
        let rehearsed = world.ryectl("execute tool").arg(tool).arg("--dry-run");
        let _planned = rehearsed.ok();
    }
}

#[test]
fn a_project_that_everybody_may_write_is_refused_until_its_directory_is_trusted() {
    let world = World::new();
    world.python("t/value", VALUE);
    let _daemon = world.start("");
    let set_mode = |mode| fs::set_permissions(world.project(), Permissions::from_mode(mode));
    set_mode(0o777).unwrap();
    let project = world.project().display().to_string();
    for call in [
        "run t/value",
        "execute tool t/value",
        "test",
        "graph validate t/value",
    ] {
        let refused = world.ryectl(call).run().code(4);
        let _told = refused.stderr_contains(&[&project, "ryectl trust"]);
    }
    let trusted = world.ryectl("trust . --json").ok().json();
    assert_eq!(trusted["directory"], project.as_str());
    assert!(fs::exists(trusted["path"].as_str().unwrap()).unwrap());
    let _runs = world.ryectl("execute tool t/value").ok();
    let _trusted = world.ryectl("untrust").arg(&project).ok();
    let _refused = world.ryectl("execute tool t/value").run().code(4);
    let unknown = world.ryectl("untrust").arg(&project).run().code(3);
    let _told = unknown.stderr_contains(&["no trusted directory"]);
    let _missing = world.ryectl("trust no/such").run().code(2);
    set_mode(0o755).unwrap();
    let _runs = world.ryectl("execute tool t/value").ok();
}
