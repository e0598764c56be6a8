//! Secrets of providers: in no environment that the kernel shows, and masked in what tools print.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use rye_tests::{World, files_with};

const IN_ENVIRONMENT: &str = "sk-ant-0123456789-of-the-environment";
const IN_FILE: &str = "sk-file-abcdefghijklmnopqrstuvwxyz-ABCDEFGHIJKLMNOPQRSTUVWXYZ-0123456789";

/// Makes a world whose daemon knows one secret of its environment and one of a file.
fn world() -> World {
    let mut world = World::new();
    world.find_models_by(vec![("ANTHROPIC_API_KEY", IN_ENVIRONMENT.to_owned())]);
    let secrets = world.home().join(".config/rye/secrets");
    fs::create_dir_all(&secrets).unwrap();
    let file = secrets.join("OPENAI_API_KEY");
    fs::write(&file, format!("{IN_FILE}\n")).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    world
}

#[test]
fn environment_of_daemon_and_parent_shows_no_secret() {
    let world = world();
    let daemon = world.start("");
    for pid in [daemon.pid(), daemon.parent_pid()] {
        // The parent is closed to other processes of its user, but not to root.
        let shown = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let shown = String::from_utf8_lossy(&shown);
        assert!(!shown.contains("ANTHROPIC"), "pid {pid}: {shown}");
    }
    // A daemon that is restarted has the variables again.
    daemon.kill();
    let models = world.ryectl("models --json").ok().stdout();
    assert!(models.contains("anthropic"), "{models}");
}

#[test]
fn printed_secrets_reach_no_file_and_no_answer() {
    let world = world();
    world.graph_with(
        "leak/all",
        "permissions: [\"rye.execute.tool.*\"]\n",
        r#"start: a
nodes:
  a:
    action:
      item_id: rye/bash
      params:
        command: |
          key=$(cat "$HOME/.config/rye/secrets/OPENAI_API_KEY")
          echo "plain: $key"
          echo "$key" | base64
          printf 'slowly: ' >&2
          for ((i = 0; i < $${#key}; i++)); do printf '%s' "$${key:i:1}" >&2; done
          echo >&2
          echo "end $(printf '%s' "$key" | tail -c 4)"
    assign: {seen: "${result.stdout}", errors: "${result.stderr}"}
    next: done
  done: {type: return, output: "${state.seen}${state.errors}"}"#,
    );
    let run = world.ryectl("run leak/all --json").ok().json();
    let seen = run["output"].as_str().unwrap();
    for part in ["plain: [redacted]\n", "slowly: [redacted]\n", "end 6789"] {
        assert!(seen.contains(part), "{seen}");
    }
    assert_eq!(seen.matches("[redacted]").count(), 3, "{seen}");
    let id = run["run_id"].as_str().unwrap();
    for verb in ["logs", "events --json", "transcript", "get --json"] {
        let shown = world.ryectl(verb).arg(id).ok().stdout();
        assert!(!shown.contains(IN_FILE), "{verb}: {shown}");
    }
    let _stopped = world.ryectl("daemon stop").ok();
    for directory in [world.project().join(".ai"), world.state()] {
        let files = files_with(&directory, IN_FILE.as_bytes());
        assert!(files.is_empty(), "the secret is in {files:?}");
    }
}

#[test]
fn secret_in_result_of_native_tool_is_masked() {
    let world = world();
    world.write("notes.txt", format!("the key is {IN_FILE}\n"));
    let read = world
        .ryectl("execute tool rye/file-system/read --params")
        .arg("{\"path\": \"notes.txt\"}")
        .ok()
        .stdout();
    assert!(read.contains("the key is [redacted]"), "{read}");
}
