//! Checks before anything runs, and the retained parts of a plan.

use std::path::Path;
use std::sync::Arc;

use rye_core::capability::Primary;
use rye_core::definition::Authority;
use rye_core::id::{ItemId, ItemKind, ItemRef, RunId};
use rye_core::model::{Budget, Object, Spec, Task};
use rye_process::{self as process, Spawner};
use serde_json::{Value, json};

use super::rig::{Daemon, Rig, request};
use crate::chain::{CallOrigin, Chain, Plan};
use crate::dispatch::Dispatcher;
use crate::services::{Dispatch as _, Order, TraceMode};
use crate::supervisor::{Error, Executed};

const GRAPH: &str = "config:\n  start: a\n  nodes:\n    a: {type: return}\n";

fn tool(id: &str) -> ItemRef {
    ItemRef::tool(ItemId::new(id).unwrap())
}

/// Signs a tool of `project`.
fn write(rig: &Rig, project: &Path, name: &str, text: &str) {
    let (category, file) = name.rsplit_once('/').unwrap();
    let (stem, extension) = file.rsplit_once('.').unwrap();
    let head = if extension == "py" {
        format!(
            "__version__ = \"1.0.0\"\n__category__ = \"{category}\"\n__tool_name__ = \"{stem}\"\n"
        )
    } else {
        format!("version: \"1.0.0\"\ncategory: {category}\nname: {stem}\n")
    };
    drop(rig.item(project, ItemKind::Tool, name, &format!("{head}{text}")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn preview_requires_execute_permission_for_graphs_and_tools() {
    let rig = Rig::new();
    let daemon = rig.start().await;
    let project = rig.project("p", &[("graph", GRAPH)]);
    write(
        &rig,
        &project,
        "t/tool.yaml",
        "executor_id: rye/core/runtimes/bash\nconfig: {script: cat}\n",
    );
    for id in ["t/graph", "t/tool"] {
        let mut asked = request(tool(id), &project);
        let allowed = daemon.supervisor.rehearse(asked.clone()).await;
        assert!(allowed.is_ok(), "{id}");
        asked.capabilities = Some(vec![format!("rye.fetch.tool.{id}")]);
        let denied = daemon.supervisor.rehearse(asked.clone()).await;
        assert!(matches!(denied, Err(Error::Denied { .. })), "{id}");
        asked.capabilities = None;
        asked.caller.patterns = vec!["rye.execute.tool.other.*".to_owned()];
        let denied = daemon.supervisor.rehearse(asked).await;
        assert!(matches!(denied, Err(Error::Denied { .. })), "{id}");
    }
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parameters_not_passed_by_runtime_are_refused() {
    let rig = Rig::new();
    let daemon = rig.start().await;
    let project = rig.project("p", &[]);
    let runtime = |name: &str, input: &str| {
        let config = format!("{{command: /bin/true, args: [\"{{tool_path}}\"]{input}}}");
        let text = format!("executor_id: rye/core/primitives/execute\nconfig: {config}\n");
        write(&rig, &project, &format!("t/{name}.yaml"), &text);
    };
    runtime("deaf", "");
    runtime("heeds", ", input_data: \"{params_json}\"");
    let config = project.join(".ai/config/t");
    std::fs::create_dir_all(&config).unwrap();
    let settings = "version: \"1.0.0\"\ncategory: t\nname: settings\nword: one\n";
    drop(rig.item(&project, ItemKind::Config, "t/settings.yaml", settings));
    for (key, text) in [
        ("config.fixed_params", "config: {fixed_params: {a: 1}}\n"),
        (
            "config_resolve",
            "config_resolve: {path: t/settings.yaml, mode: deep_merge}\n",
        ),
    ] {
        for (executor, is_heard) in [("heeds", true), ("deaf", false)] {
            let text = format!("executor_id: t/{executor}\n{text}");
            write(&rig, &project, "t/says.yaml", &text);
            let asked = request(tool("t/says"), &project);
            let (done, _) = daemon.supervisor.rehearse(asked).await.unwrap();
            let Executed::Rehearsed(envelope) = done else {
                panic!("{done:?}");
            };
            let told = envelope
                .failure
                .map(|failure| failure.message)
                .unwrap_or_default();
            assert_eq!(told.is_empty(), is_heard, "{key}: {told}");
            assert!(
                is_heard || (told.contains(key) && told.contains("input_data")),
                "{told}"
            );
        }
    }
    daemon.stop().await;
}

/// A dispatcher besides the daemon's; it starts nothing here.
fn dispatcher(rig: &Rig) -> Dispatcher {
    let spawner = Spawner::new(None, process::harden(), None, None);
    Dispatcher::new(Arc::clone(rig.config()), spawner)
}

/// Parameters of the shell.
fn command(rest: &Value) -> Object {
    let mut params = rest.as_object().cloned().unwrap_or_default();
    params.insert("command".to_owned(), json!("true"));
    params
}

/// A call of a tool by a run of its own in `project`.
async fn order(daemon: &Daemon, project: &Path, name: &str, params: Object) -> Order {
    let item = tool(name);
    let id = RunId::generate(&item.id, 1, 1);
    let spec = Spec {
        project: project.display().to_string(),
        files: project.display().to_string(),
        layers: vec![request(item.clone(), project).caller],
        ..Spec::new(
            Task::Tool,
            item.clone(),
            id.clone(),
            Budget::open(id.clone()),
        )
    };
    Order {
        params,
        origin: CallOrigin {
            run: id,
            spec: Arc::new(spec),
            attempt: 1,
            key: "a key".to_owned(),
        },
        project: daemon.projects.open(project).await.unwrap(),
        primary: Primary::Execute,
        item,
        trace: TraceMode::Off,
        authority: Authority::Run,
        timeout: None,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shell_plan_follows_the_files_of_the_project() {
    let rig = Rig::new();
    let daemon = rig.start().await;
    let dispatcher = dispatcher(&rig);
    // Written file, and the resulting plan: a variable, or a text of the refusal.
    let cases = [
        (".env", "WHO=me\n", Ok("me")),
        (".ai/tools/rye/bash.yaml", "config: {}\n", Err("not signed")),
        (
            ".ai/lockfiles/rye/bash@1.0.0.lock.json",
            "no lock",
            Err("lock.json"),
        ),
    ];
    for (number, (file, text, expected)) in cases.into_iter().enumerate() {
        let project = rig.project(&number.to_string(), &[]);
        let params = command(&Value::Null);
        let order = order(&daemon, &project, "rye/bash", params).await;
        let untouched = dispatcher.prepare(vec![order.clone()]).await;
        let untouched = untouched.first().unwrap();
        assert!(
            matches!(untouched.plan, Ok(Plan::Process(_))),
            "{untouched:?}"
        );
        let path = project.join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
        let prepared = dispatcher.prepare(vec![order]).await.pop().unwrap();
        match (prepared.plan, expected) {
            (Ok(Plan::Process(plan)), Ok(value)) => {
                let set = ("WHO".into(), value.into());
                assert!(plan.process.env.contains(&set), "{file}");
            }
            (Err(refused), Err(word)) => {
                assert!(refused.message.contains(word), "{file}: {refused:?}");
            }
            (plan, _) => panic!("{file}: {plan:?}"),
        }
    }
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shell_plan_uses_only_requested_directory() {
    let rig = Rig::new();
    let daemon = rig.start().await;
    let dispatcher = dispatcher(&rig);
    let project = rig.project("p", &[]);
    std::fs::create_dir(project.join("below")).unwrap();
    let cwd_of = async |rest: Value| {
        let params = command(&rest);
        let order = order(&daemon, &project, "rye/bash", params).await;
        let prepared = dispatcher.prepare(vec![order.clone(), order]).await;
        prepared.into_iter().map(|one| match one.plan {
            Ok(Plan::Process(plan)) => Ok(plan.process.cwd),
            other => Err(format!("{other:?}")),
        })
    };
    for (rest, expected) in [
        (Value::Null, project.clone()),
        (json!({"working_dir": "below"}), project.join("below")),
    ] {
        for cwd in cwd_of(rest).await {
            assert_eq!(cwd, Ok(expected.clone()));
        }
    }
    let params = command(&Value::Null);
    let order = order(&daemon, &project, "rye/bash", params).await;
    std::fs::rename(&project, project.with_extension("old")).unwrap();
    std::fs::create_dir_all(project.join(".ai")).unwrap();
    // The kernel caches the lookups in the new directory.
    for missing in [".env", ".ai/tools", ".ai/lockfiles"] {
        assert!(!project.join(missing).exists());
    }
    let prepared = dispatcher.prepare(vec![order]).await.pop().unwrap();
    let refused = format!("{:?}", prepared.plan);
    assert!(
        refused.contains("is not the one that the run began in"),
        "{refused}"
    );
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn planned_call_holds_no_tool_files_and_lists_them() {
    let rig = Rig::new();
    let daemon = rig.start().await;
    let project = rig.project("p", &[]);
    let executor = "__executor_id__ = \"rye/core/runtimes/python/function\"\n";
    write(&rig, &project, "t/multi/tool.py", executor);
    std::fs::write(project.join(".ai/tools/t/multi/__init__.py"), "").unwrap();
    // It is looked up, and not started.
    std::fs::create_dir_all(project.join(".venv/bin")).unwrap();
    std::fs::write(project.join(".venv/bin/python"), "").unwrap();
    let order = order(&daemon, &project, "t/multi/tool", Object::new()).await;
    let dispatcher = dispatcher(&rig);
    // The second call of a turn is planned from the data read for the first.
    let prepared = dispatcher.prepare(vec![order.clone(), order]).await;
    let mut named = Vec::new();
    for one in &prepared {
        let Ok(Plan::Process(plan)) = &one.plan else {
            panic!("{:?}", one.plan);
        };
        assert!(one.chain.as_ref().is_some_and(|chain| !chain.has_files()));
        assert!(
            plan.process.args.iter().any(|arg| {
                let path = Path::new(arg);
                path.ends_with("tool.py") && path.is_file()
            }),
            "{:?}",
            plan.process.args
        );
        let hashes = one.chain.iter().flat_map(Chain::content_hashes);
        named.push(hashes.map(str::to_owned).collect::<Vec<_>>());
    }
    assert_eq!(named[0], named[1]);
    let elements = prepared[0].chain.iter().flat_map(Chain::elements).count();
    assert_eq!(named[0].len(), elements + 1, "{named:?}");
    daemon.stop().await;
}
