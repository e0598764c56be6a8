//! Secrets of providers, and the environment of processes.

use std::path::Path;

use rye_core::id::ItemKind;
use rye_core::model::Status;

use super::rig::{Daemon, Rig};

/// Name of a secret of a shipped provider.
const SHIPPED: &str = "ANTHROPIC_API_KEY";

/// A shell command that prints its whole environment.
const TELLS: &str = "config:
  start: tell
  nodes:
    tell: {action: {item_id: rye/bash, params: {command: export -p}}, assign: {told: \"${result.stdout}\"}, next: out}
    out: {type: return, output: \"${state.told}\"}
";

/// A provider file that uses the secret of that name.
fn provider(name: &str, secret: &str) -> String {
    format!(
        "version: \"1.0.0\"\ncategory: agent/providers\nname: {name}\napi: openai_chat\n\
         base_url: https://models.example\npath: /v1/chat/completions\n\
         auth: [{{header: authorization, secret: {secret}}}]\n\
         models: [{{id: one, window: 100000, max_output: 8000, prices: free}}]\n"
    )
}

fn place(rig: &Rig, space: &Path, name: &str, text: &str) {
    let file = format!("agent/providers/{name}.yaml");
    drop(rig.item(space, ItemKind::Config, &file, text));
}

/// Environment of a process in `project`.
async fn tool_output(daemon: &Daemon, project: &Path) -> String {
    let run = daemon.run(project, "t/tells").await;
    let run = daemon.ended(&run).await;
    let result = run.result();
    assert_eq!(run.status(), Status::Completed, "{result}");
    result["output"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn process_gets_project_variables_without_provider_secrets() {
    let pass = format!("PASSED,{SHIPPED},OF_THE_USER");
    let rig = Rig::with_variables(&[
        ("RYE_ENV_PASS", &pass),
        ("PASSED", "harmless"),
        (SHIPPED, "sk-shipped"),
        ("OF_THE_USER", "sk-user"),
    ]);
    place(
        &rig,
        rig.home(),
        "theirs",
        &provider("theirs", "OF_THE_USER"),
    );
    let daemon = rig.start().await;
    let [first, second] = ["first", "second"].map(|name| {
        let project = rig.project(name, &[("tells", TELLS)]);
        let lines = format!("COLOUR=blue\n{SHIPPED}=sk-file\nOWN_KEY=sk-own\n");
        std::fs::write(project.join(".env"), lines).unwrap();
        project
    });
    place(&rig, &first, "mine", &provider("mine", "OWN_KEY"));
    // Files of the same names use other secrets; those of the replaced files are withheld too.
    place(&rig, &first, "theirs", &provider("theirs", "OTHER"));
    place(&rig, &first, "anthropic", &provider("anthropic", "OTHER"));
    let of_first = tool_output(&daemon, &first).await;
    assert!(of_first.contains("COLOUR=\"blue"), "{of_first}");
    assert!(of_first.contains("PASSED=\"harmless"), "{of_first}");
    assert!(!of_first.contains("sk-"), "{of_first}");
    // A file of a project counts in that project.
    let of_second = tool_output(&daemon, &second).await;
    assert!(of_second.contains("OWN_KEY=\"sk-own"), "{of_second}");
    assert_eq!(of_second.matches("sk-").count(), 1, "{of_second}");
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn process_is_refused_while_secrets_are_unknown() {
    let rig = Rig::new();
    let daemon = rig.start().await;
    let project = rig.project("p", &[("tells", TELLS)]);
    place(&rig, &project, "mine", &provider("mine", "not a name"));
    let told_of_nothing = tool_output(&daemon, &project).await;
    assert!(told_of_nothing.contains("RYE_RUN_ID"), "{told_of_nothing}");
    std::fs::write(project.join(".env"), "COLOUR=blue\n").unwrap();
    let run = daemon.run(&project, "t/tells").await;
    let run = daemon.ended(&run).await;
    let told = run.result().to_string();
    assert_eq!(run.status(), Status::Error, "{told}");
    assert!(told.contains("mine.yaml"), "{told}");
    daemon.stop().await;
}
