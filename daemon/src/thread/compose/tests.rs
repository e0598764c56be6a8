use std::path::PathBuf;

use rye_core::directive::{self, Lineage};
use rye_core::id::{ItemId, ItemKind};
use rye_core::model::{Budget, Task, ThreadSource};
use serde_json::json;

use super::*;
use crate::node::tests::rig::{Daemon, Rig};

/// Name of a secret of a shipped provider.
const SECRET: &str = "ANTHROPIC_API_KEY";

struct World {
    rig: Rig,
    daemon: Daemon,
    project: PathBuf,
}

impl World {
    async fn new() -> Self {
        let rig = Rig::new();
        let daemon = rig.start().await;
        let project = rig.project("p", &[]);
        Self {
            rig,
            daemon,
            project,
        }
    }

    fn knowledge(&self, name: &str, says: &str) -> PathBuf {
        let text = format!("```yaml\nversion: \"1.0.0\"\ncategory: t\nname: {name}\n```\n{says}\n");
        let file = format!("t/{name}.md");
        self.rig
            .item(&self.project, ItemKind::Knowledge, &file, &text)
    }

    /// Prompt of a directive with this context and body.
    async fn prompt(&self, context: &str, body: &str) -> Result<Prompt, Failure> {
        let item = ItemRef {
            kind: ItemKind::Directive,
            id: ItemId::new("t/d").unwrap(),
        };
        let text = format!(
            "```xml\n<directive name=\"d\" version=\"1.0.0\"><metadata><description>d</description>\
             <author>me</author><category>t</category><context>{context}</context></metadata></directive>\n```\n{body}\n"
        );
        let (directive, _) = directive::parse(&text, &item.id).unwrap();
        let lineage = Lineage::new(item.clone(), Space::Project, directive).unwrap();
        let directive = lineage.effective();
        let run = rye_core::id::RunId::new("t-d-1767225600-abcdefghij").unwrap();
        let spec = Spec {
            project: self.project.display().to_string(),
            inputs: serde_json::from_value(json!({"path": "a.txt"})).unwrap(),
            ..Spec::new(
                Task::Thread(ThreadSource::default()),
                item,
                run.clone(),
                Budget::open(run),
            )
        };
        let projects = Arc::clone(&self.daemon.projects);
        let project = projects.open(&self.project).await.unwrap();
        let work = move |library: &Library| prompt(library, &directive, &spec, projects.config());
        project.visit("compose a prompt", work).await.unwrap()
    }
}

#[tokio::test]
async fn prompt_places_knowledge_and_omits_metadata() {
    let world = World::new().await;
    for name in ["who", "rules", "last", "out"] {
        world.knowledge(name, &format!("What {name} says of {{input:path}}."));
    }
    let context = "<system>t/who</system><system>t/out</system><before>t/rules</before><after>t/last</after>\
                   <suppress>t/out</suppress>";
    let prompt = world.prompt(context, "Count {input:path}.").await.unwrap();
    // Only the directive itself has placeholders.
    assert_eq!(prompt.system.unwrap(), "What who says of {input:path}.");
    let message = prompt.message;
    assert!(
        message.starts_with("What rules says of {input:path}.\n\n<directive"),
        "{message}"
    );
    assert!(
        message.ends_with("</directive>\n\nWhat last says of {input:path}."),
        "{message}"
    );
    assert!(message.contains("Count a.txt."), "{message}");
    assert_eq!(prompt.warnings, Vec::<String>::new());
}

#[tokio::test]
async fn modified_knowledge_ends_thread_and_missing_is_omitted() {
    let world = World::new().await;
    let path = world.knowledge("rules", "Be brief.");
    let context = "<before>t/rules</before>";
    let signed = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, signed.replace("brief", "evil")).unwrap();
    let failure = world.prompt(context, "Go.").await.unwrap_err();
    assert_eq!(failure.code, "integrity_failed");
    assert!(
        failure.message.contains("knowledge:t/rules"),
        "{}",
        failure.message
    );
    std::fs::remove_file(&path).unwrap();
    let prompt = world.prompt(context, "Go.").await.unwrap();
    assert!(prompt.message.starts_with("<directive"));
    assert!(
        prompt.warnings[0].contains("knowledge:t/rules"),
        "{:?}",
        prompt.warnings
    );
}

#[tokio::test]
async fn prompt_variables_exclude_provider_secrets() {
    let world = World::new().await;
    let lines = format!("COLOUR=blue\n{SECRET}=sk-very-secret\nOWN_KEY=sk-own\n");
    std::fs::write(world.project.join(".env"), lines).unwrap();
    let body = format!("{{env:COLOUR}} {{env:{SECRET}}} {{env:{SECRET}:none}} {{env:OWN_KEY}}");
    let prompt = world.prompt("", &body).await.unwrap();
    let shown = format!("blue {{env:{SECRET}}} none sk-own");
    assert!(prompt.message.contains(&shown), "{}", prompt.message);
    // A variable is withheld as soon as any provider file uses it for a secret.
    let provider = "version: \"1.0.0\"\ncategory: agent/providers\nname: mine\napi: openai_chat\n\
                    base_url: https://models.example\npath: /v1/chat/completions\n\
                    auth: [{header: authorization, secret: OWN_KEY}]\n\
                    models: [{id: one, window: 100000, max_output: 8000, prices: free}]\n";
    let file = "agent/providers/mine.yaml";
    world
        .rig
        .item(&world.project, ItemKind::Config, file, provider);
    let prompt = world.prompt("", &body).await.unwrap();
    assert!(!prompt.message.contains("sk-"), "{}", prompt.message);
    assert!(prompt.message.contains("blue"));
}
