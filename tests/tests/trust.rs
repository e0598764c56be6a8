//! What is not signed, not trusted or not in its place does not run.

use std::fs;

use rye_tests::World;
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
    let _refused = world.ryectl("execute tool t/value").run().code(4).tells(&[
        "t/value.py",
        "not signed",
        "ryectl sign",
    ]);
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
            .tells(&["t/value.py", "ryectl sign"]);
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
        .tells(&["t/value.py", "ryectl key trust"]);
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
fn a_key_that_a_project_brings_along_counts_for_nothing() {
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
            .tells(&[file, "move the file"]);
    }
}

#[test]
fn an_item_behind_a_symbolic_link_out_of_its_space_is_refused() {
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
        .tells(&["symbolic link"]);
}

#[test]
fn a_project_may_not_replace_what_a_shipped_runtime_rests_on() {
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
        .tells(&["function.yaml"]);
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
fn the_users_word_on_the_node_key_counts_over_restarts() {
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
    // What the daemon keeps for itself works all the same.
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
    // The same file laid into the trust folder by hand.
    let trusted = world.home().join(".ai/config/keys/trusted");
    fs::copy(&entry, trusted.join(entry.file_name().unwrap())).unwrap();
    assert_eq!(owner(), "unknown");
    world.python("t/mine", VALUE);
    let _mine = world.ryectl("verify tool:t/mine").ok().prints(&["by self"]);
}

#[test]
fn what_an_untrusted_key_signs_is_signed_with_a_warning() {
    let world = World::new();
    world.python("t/value", VALUE);
    let key = world.ryectl("key show --json").ok().json();
    let fingerprint = key["fingerprint"].as_str().unwrap();
    let _taken_out = world.ryectl("key untrust").arg(fingerprint).ok();
    let _signed = world.ryectl("sign tool:t/value").ok().tells(&[
        "warning:",
        "is not trusted",
        "ryectl key trust",
    ]);
}

#[test]
fn a_state_directory_or_a_key_of_somebody_else_is_refused() {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: only root can make a file somebody else's");
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
        let _refused = world.ryectl("daemon start").run().code(69).tells(&[
            "belongs to uid 54321",
            path.to_str().unwrap().trim_end_matches('/'),
        ]);
        nix::unistd::chown(&path, me, None).unwrap();
    }
    let _mine = world.ryectl("daemon start").ok();
}
