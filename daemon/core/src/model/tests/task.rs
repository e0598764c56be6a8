//! The stored and shown form of a task.

use super::*;
use crate::model::graph::{GraphState, Items};

fn stored(task: Task) -> Value {
    let mut spec = Spec::clone(&spec(RunKind::Tool));
    spec.task = task;
    json!(spec)
}

fn read(stored: &Value) -> Result<Task, String> {
    let spec: Result<Spec, _> = serde_json::from_str(&stored.to_string());
    spec.map(|spec| spec.task)
        .map_err(|error| error.to_string())
}

/// A start at a node with unfinished items: they are stored by their number.
fn start_from() -> StartFrom {
    let mut items = Items::new(2);
    let id = AttemptId {
        step: 1,
        slot: Slot::Part(1),
        number: 1,
    };
    let attempt = Attempt::new(id, Effect::Pure, Timestamp::from_ms(5));
    Arc::make_mut(&mut items.running).insert(1, attempt);
    StartFrom {
        node: "n".into(),
        state: GraphState::default(),
        left: Some(UnfinishedWork {
            items: Some(items),
            ..UnfinishedWork::default()
        }),
        then: None,
        extent: Extent::Rest,
    }
}

#[test]
fn each_task_is_read_as_it_was_written_and_is_fields_of_its_spec() {
    let graph = |start_from| {
        Task::Graph(GraphTask {
            source: GraphSource {
                text: "start: a".into(),
                nodes: 1,
                ..GraphSource::default()
            },
            start_from,
        })
    };
    for (task, kind, fields) in [
        (graph(None), "graph", vec!["graph"]),
        (
            graph(Some(Arc::new(start_from()))),
            "graph",
            vec!["seed", "graph"],
        ),
        (Task::Unreadable, "graph", vec![]),
        (Task::of(RunKind::Thread), "thread", vec!["thread"]),
        (Task::Tool, "tool", vec![]),
        (Task::of(RunKind::Process), "process", vec!["process"]),
    ] {
        let stored = stored(task.clone());
        assert_eq!(stored["kind"], kind);
        assert_eq!(task.kind().as_str(), kind);
        let of_tasks = ["seed", "graph", "thread", "process"];
        let found = of_tasks.into_iter().filter(|name| !stored[name].is_null());
        assert_eq!(found.collect::<Vec<_>>(), fields);
        assert!(
            stored.get("graph").is_some(),
            "`graph` is there, if only as null"
        );
        assert_eq!(read(&stored).unwrap(), task);
    }
}

#[test]
fn task_refuses_fields_of_other_kinds() {
    let graph = json!(GraphSource::default());
    let thread = json!(ThreadSource::default());
    let seed = json!(start_from());
    let process = json!(ProcessSpec::default());
    for (kind, fields) in [
        ("graph", json!({"thread": thread})),
        ("graph", json!({"graph": graph, "thread": thread})),
        ("graph", json!({"seed": seed})),
        ("thread", json!({})),
        ("thread", json!({"thread": thread, "graph": graph})),
        ("thread", json!({"thread": thread, "seed": seed})),
        ("tool", json!({"graph": graph})),
        ("tool", json!({"thread": thread})),
        ("tool", json!({"seed": seed})),
        ("tool", json!({"process": process})),
        ("process", json!({})),
        ("process", json!({"process": process, "graph": graph})),
    ] {
        let mut stored = stored(Task::Tool);
        stored["kind"] = json!(kind);
        for (name, value) in fields.as_object().unwrap() {
            stored[name] = value.clone();
        }
        let refused = read(&stored).unwrap_err();
        assert!(
            refused.contains("with the kind"),
            "{kind} {fields}: {refused}"
        );
    }
}
