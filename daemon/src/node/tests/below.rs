//! Limits that a run passes to its descendants: one level less, and no more child runs than it may start itself.

use rye_core::model::Status;

use super::rig::Rig;
use rye_journal::Filter;

/// A graph with these limits that calls `item`, once by each of the nodes `first` and `second`.
fn calls(limits: &str, item: &str) -> String {
    format!(
        "limits: {limits}\nconfig:\n  start: first\n  nodes:\n    first: {{action: {{item_id: {item}}}, next: second}}\n    \
         second: {{action: {{item_id: {item}}}, next: out}}\n    out: {{type: return}}\n"
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child_run_depth_limit_ignores_its_own_file() {
    let rig = Rig::new();
    let daemon = rig.start().await;
    let leaf = calls("{}", "rye/core/echo");
    // Limits of the top and of the graph that it calls, those in force for the child run, and the code of its failure,
    // if it fails.
    let table = [
        ("{}", "{}", None, None, None),
        ("{depth: 2, spawns: 4}", "{}", Some(1), Some(4), None),
        (
            "{depth: 2, spawns: 4}",
            "{depth: 9, spawns: 9}",
            Some(1),
            Some(4),
            None,
        ),
        (
            "{depth: 9, spawns: 9}",
            "{depth: 1, spawns: 2}",
            Some(1),
            Some(2),
            None,
        ),
        (
            "{depth: 1}",
            "{depth: 9}",
            Some(0),
            None,
            Some("depth_exceeded"),
        ),
        ("{}", "{spawns: 1}", None, Some(1), Some("spawns_exceeded")),
    ];
    for (number, (top, middle, depth, spawns, fails)) in table.into_iter().enumerate() {
        let names = ["top", "middle", "leaf"].map(|name| format!("{name}{number}"));
        let item = |name: &String| format!("t/{name}");
        let (top, middle) = (
            calls(top, &item(&names[1])),
            calls(middle, &item(&names[2])),
        );
        let files = [
            (&*names[0], &*top),
            (&*names[1], &*middle),
            (&*names[2], &*leaf),
        ];
        let project = rig.project("p", &files);
        let run = daemon.run(&project, &item(&names[0])).await;
        let run = daemon.ended(&run).await;
        let children = Filter {
            parent: Some(run.id.clone()),
            ..Filter::default()
        };
        let children = daemon.journal.list_all(&children, 10).await.unwrap();
        let child = daemon.record(&children[0].id).await;
        assert_eq!(child.below.spawns, spawns, "{number}");
        let levels = child.below.levels();
        match depth {
            Some(depth) => assert_eq!(levels, depth, "{number}"),
            None => assert_eq!(levels + 1, run.below.levels(), "{number}"),
        }
        let code = child.failure().map(|failure| failure.code);
        assert_eq!(code.as_deref(), fails, "{number}");
        let status = if fails.is_some() {
            Status::Error
        } else {
            Status::Completed
        };
        assert_eq!(run.status(), status, "{number}");
    }
    daemon.stop().await;
}
