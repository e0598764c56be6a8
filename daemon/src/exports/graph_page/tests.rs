use rye_core::id::{ItemId, ItemRef};
use rye_core::model::event::{GraphCancelled, GraphError, RunKilled, StepCompleted, StepStarted};
use rye_core::model::{Budget, Effect, Failure, GraphTask, Object, Task};

use super::*;

fn outline(names: &[&str]) -> Vec<Outline> {
    let outline = |name: &&str| Outline {
        name: (*name).to_owned(),
        action: "rye/core/echo".to_owned(),
    };
    names.iter().map(outline).collect()
}

fn spec() -> Spec {
    let (run, item) = (
        RunId::new("run-a").unwrap(),
        ItemId::new("demo/graph").unwrap(),
    );
    let budget = Budget::open(run.clone());
    Spec {
        content_hash: "00".into(),
        ..Spec::new(
            Task::Graph(GraphTask::default()),
            ItemRef::tool(item),
            run,
            budget,
        )
    }
}

fn page(names: &[&str]) -> Page {
    let run = RunId::new("run-a").unwrap();
    Page::new(&run, &spec(), &outline(names))
}

fn started(step: u32, node: &str) -> Event {
    Event::from(StepStarted {
        step,
        node: node.to_owned(),
        visit: 0,
        attempt: 1,
        action_id: "tool:rye/core/echo".into(),
        effect: Effect::Idempotent,
        key: String::new(),
        replays: false,
        now: Timestamp::default(),
        items: None,
        branches: Vec::new(),
        child: None,
        call: None,
        chain: None,
        node_input_hash: None,
    })
}

fn completed(step: u32, node: &str, error: Option<&str>) -> Event {
    Event::from(StepCompleted {
        step,
        node: node.to_owned(),
        status: if error.is_some() {
            StepStatus::Error
        } else {
            StepStatus::Ok
        },
        elapsed_ms: 1234,
        next_node: None,
        assigned: Object::new().into(),
        error: error.map(|text| Failure::permanent("node_error", text)),
        suppressed: false,
        output: None,
        action_id: None,
        result: None,
        cache_hit: false,
        node_input_hash: None,
    })
}

fn take(page: &mut Page, events: impl IntoIterator<Item = Event>) {
    let mut seq = page.seq;
    for event in events {
        seq = seq.next();
        let ms = i64::try_from(seq.0).unwrap() * 1000;
        page.take(seq, Timestamp::from_ms(ms), &event, None);
    }
}

fn rows(text: &str) -> Vec<&str> {
    let table = text.lines().filter(|line| line.starts_with("| "));
    table.skip(2).collect()
}

#[test]
fn page_has_status_row_per_node_in_file_order() {
    let mut page = page(&["done", "running", "pending", "failed"]);
    take(
        &mut page,
        [
            started(1, "failed"),
            completed(1, "failed", Some("no")),
            started(2, "done"),
            completed(2, "done", None),
            started(3, "done"),
            completed(3, "done", None),
            started(4, "running"),
        ],
    );
    let text = page.render(3);
    assert_eq!(
        rows(&text),
        [
            "| 1 | done | ✅ | 2 | 1.2s | rye/core/echo |  |",
            "| 2 | running | 🔄 | 0 |  | rye/core/echo |  |",
            "| 3 | pending | ⏳ | 0 |  | rye/core/echo |  |",
            "| 4 | failed | ❌ | 1 | 1.2s | rye/core/echo |  |",
        ]
    );
    for part in [
        "entry_type: \"graph_transcript\"",
        "category: \"agent/threads/demo/graph\"",
        "tags: [\"graph\",\"graph\"]",
        "**Step:** 4",
        "step_count: 3",
        "### Step 1 – failed → tool:rye/core/echo",
        "❌ error after 1.2s: no",
        "receipts: 3",
    ] {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
}

#[test]
fn step_at_end_of_run_is_interrupted_and_uncounted() {
    for end in [
        Event::from(RunKilled {
            cause: "uid:0".into(),
            receipt: rye_core::model::KillReceipt::default(),
        }),
        Event::from(GraphCancelled {
            cause: "uid:0".into(),
            steps: 1,
            elapsed_ms: 1,
        }),
    ] {
        let mut page = page(&["one", "two", "three"]);
        take(
            &mut page,
            [
                started(1, "one"),
                completed(1, "one", None),
                started(2, "two"),
                end,
            ],
        );
        let text = page.render(1);
        assert_eq!(
            rows(&text),
            [
                "| 1 | one | ✅ | 1 | 1.2s | rye/core/echo |  |",
                "| 2 | two | ⛔ | 1 |  | rye/core/echo |  |",
                "| 3 | three | ⏳ | 0 |  | rye/core/echo |  |",
            ]
        );
        for part in ["step_count: 1", "**Step:** 1", "Steps: 1"] {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
    }
}

#[test]
fn run_texts_are_escaped() {
    let mut page = page(&["a|b<script>"]);
    let evil =
        "x --> <img src=x onerror=alert(1)>\n\n# Heading\n| cell | `code` ![i](u) \\ [l](u) **b**";
    take(
        &mut page,
        [
            started(1, "a|b<script>"),
            completed(1, "a|b<script>", Some(evil)),
            Event::from(GraphError {
                error: Failure::permanent("node_error", evil),
                steps: 1,
                elapsed_ms: 1,
            }),
        ],
    );
    let text = page.render(0);
    let body = text.split("```\n\n").nth(1).unwrap();
    assert!(
        !body.contains("<img") && !body.contains("<script") && !body.contains("-->"),
        "{body}"
    );
    assert_eq!(
        body.lines().filter(|line| line.starts_with("# ")).count(),
        1,
        "{body}"
    );
    assert_eq!(rows(&text)[0].matches(" | ").count(), 6, "{body}");
    assert!(rows(&text)[0].contains(r"a\|b&lt;script&gt;"), "{body}");
    assert!(
        body.contains(r"\`code\` \!\[i\](u) \\ \[l\](u) \*\*b\*\*"),
        "{body}"
    );
}

#[test]
fn history_shows_last_part_with_count_of_earlier() {
    let mut page = page(&["n"]);
    let lengths: Vec<usize> = [1_000, 10_000]
        .into_iter()
        .map(|steps| {
            let events = (page.step + 1..=steps)
                .flat_map(|step| [started(step, "n"), completed(step, "n", None)]);
            take(&mut page, events.collect::<Vec<_>>());
            page.render(0).len()
        })
        .collect();
    let text = page.render(0);
    let entries = text
        .lines()
        .filter(|line| line.starts_with("### ") || line.starts_with("- "));
    assert_eq!(entries.count(), HISTORY);
    assert!(
        text.contains("19800 earlier entries are left out; all events are in `.ai/state/threads/run-a/transcript.jsonl`"),
        "{text}"
    );
    assert!(
        lengths[1] < lengths[0] + 1_000,
        "it does not grow: {lengths:?}"
    );
}

#[test]
fn long_text_is_cut() {
    assert_eq!(plain(&"x".repeat(TEXT)).chars().count(), TEXT);
    assert_eq!(
        plain(&"x".repeat(TEXT + 1)),
        format!("{}…", "x".repeat(TEXT))
    );
    assert_eq!(plain("store_results _x_"), r"store_results \_x\_");
    assert_eq!(duration(59_999), "59.9s");
    assert_eq!(duration(123_000), "2m 03s");
}
