//! Graphs as diagrams.

use std::collections::BTreeMap;

use super::*;
use crate::definition::show::{Format, NodeState, NodeStatus, render};
use crate::id::ItemId;

const NODES: &str = "a: {action: {item_id: rye/bash}, on_error: d, next: [{to: b, when: {path: state.n, op: gte, value: 3}}, {to: c}]}\n\
                     b: {type: foreach, over: \"${state.files}\", as: file, action: {item_id: x/y}, assign: {n: 1}, next: c}\n\
                     c: {next: [{to: d, when: {path: inputs.s, value: 'x\"y'}}]}\n\
                     d: {type: return}";

fn sample() -> Graph {
    let text = with_nodes(NODES).replace(
        "  start: a",
        "  start: a\n  state: {files: []}\n  hooks: [{event: error, condition: {path: step_count, op: lt, value: 9}, action: {retry: true, max_retries: 2}}, {event: limit, action: {item_id: x/log}}]",
    );
    graph(&text).0
}

fn id() -> ItemId {
    ItemId::new("demo/sample").unwrap()
}

fn state(status: NodeStatus, visits: u32, elapsed_ms: u64) -> NodeState {
    NodeState {
        status,
        visits,
        elapsed_ms,
        failed: 0,
    }
}

fn overlay() -> BTreeMap<String, NodeState> {
    BTreeMap::from([
        ("a".to_owned(), state(NodeStatus::Ok, 2, 1_240)),
        ("b".to_owned(), state(NodeStatus::Running, 1, 0)),
        ("c".to_owned(), state(NodeStatus::Pending, 0, 20)),
        ("gone".to_owned(), state(NodeStatus::Error, 1, 0)),
    ])
}

#[test]
fn text_lists_nodes_with_their_edges() {
    assert_eq!(
        render(&sample(), &id(), Format::Text, &overlay()),
        "demo/sample 1.0.0  4 nodes\n\
         \n\
         ▶ a  rye/bash  ✓ 1.2s ×2\n\
         \x20   → b  [state.n >= 3]\n\
         \x20   → c  [default]\n\
         \x20   ⇢ d  [on error]\n\
         \n\
         \x20 b  for each file in ${state.files}: x/y  …\n\
         \x20   → c\n\
         \n\
         \x20 c  gate  ·\n\
         \x20   → d  [inputs.s == \"x\\\"y\"]\n\
         \x20   → end  [default]\n\
         \n\
         \x20 d  return\n\
         \n\
         hooks\n\
         \x20 error  retry, at most 2 times if step_count < 9\n\
         \x20 limit  x/log\n"
    );
}

#[test]
fn mermaid_has_shapes_labels_and_classes() {
    assert_eq!(
        render(&sample(), &id(), Format::Mermaid, &overlay()),
        "flowchart TD\n\
         \x20 begin((\" \"))\n\
         \x20 n0[\"a<br/>rye/bash<br/>✓ 1.2s ×2\"]\n\
         \x20 n1{{\"b<br/>for each file in #36;#123;state.files#125;: x/y<br/>…\"}}\n\
         \x20 n2{\"c<br/>·\"}\n\
         \x20 n3([\"d\"])\n\
         \x20 finish(((\" \")))\n\
         \x20 begin --> n0\n\
         \x20 n0 -->|\"state.n #62;= 3\"| n1\n\
         \x20 n0 -->|\"default\"| n2\n\
         \x20 n0 -.->|\"on error\"| n3\n\
         \x20 n1 --> n2\n\
         \x20 n2 -->|\"inputs.s == #34;x#92;#34;y#34;\"| n3\n\
         \x20 n2 -->|\"default\"| finish\n\
         \x20 classDef status_ok fill:#d7f5dd,stroke:#2da44e,color:#1f2328\n\
         \x20 class n0 status_ok\n\
         \x20 classDef status_running fill:#fff3c4,stroke:#bf8700,color:#1f2328\n\
         \x20 class n1 status_running\n\
         \x20 classDef status_pending fill:#f3f4f6,stroke:#8c959f,color:#1f2328\n\
         \x20 class n2 status_pending\n"
    );
}

#[test]
fn dot_has_shapes_labels_and_colours() {
    assert_eq!(
        render(&sample(), &id(), Format::Dot, &overlay()),
        "digraph {\n\
         \x20 label=\"demo/sample 1.0.0\";\n\
         \x20 node [fontname=\"sans-serif\", style=filled, fillcolor=\"white\"];\n\
         \x20 edge [fontname=\"sans-serif\"];\n\
         \x20 begin [shape=circle, label=\"\", width=0.2, fillcolor=\"black\"];\n\
         \x20 n0 [label=\"a\\nrye/bash\\n✓ 1.2s ×2\", shape=box, class=\"ok\", fillcolor=\"#d7f5dd\", color=\"#2da44e\"];\n\
         \x20 n1 [label=\"b\\nfor each file in ${state.files}: x/y\\n…\", shape=hexagon, class=\"running\", fillcolor=\"#fff3c4\", color=\"#bf8700\"];\n\
         \x20 n2 [label=\"c\\n·\", shape=diamond, class=\"pending\", fillcolor=\"#f3f4f6\", color=\"#8c959f\"];\n\
         \x20 n3 [label=\"d\", shape=box, style=\"rounded,filled\"];\n\
         \x20 finish [shape=doublecircle, label=\"\", width=0.2];\n\
         \x20 begin -> n0;\n\
         \x20 n0 -> n1 [label=\"state.n >= 3\"];\n\
         \x20 n0 -> n2 [label=\"default\"];\n\
         \x20 n0 -> n3 [label=\"on error\", style=dashed];\n\
         \x20 n1 -> n2 [label=\"\"];\n\
         \x20 n2 -> n3 [label=\"inputs.s == \\\"x\\\\\\\"y\\\"\"];\n\
         \x20 n2 -> finish [label=\"default\"];\n\
         }\n"
    );
}

#[test]
fn diagram_labels_wait_approval_branch_and_fail_nodes() {
    let nodes = "a: {type: parallel, branches: {lint: {item_id: rye/bash}, test: {item_id: x/t}}, on_error: e, next: b}\n\
                 b: {type: wait, for: 90s, next: c}\n\
                 c: {type: wait, until: \"${inputs.at}\", next: d}\n\
                 d: {type: approval, message: \"Ship ${inputs.v}?\", on_error: e}\n\
                 e: {type: fail, message: no luck}";
    let (graph, _) = graph(&with_nodes(nodes));
    let partly_failed = NodeState {
        failed: 1,
        ..state(NodeStatus::Parallel, 1, 1_240)
    };
    let overlay = BTreeMap::from([
        ("a".to_owned(), partly_failed),
        ("d".to_owned(), state(NodeStatus::Running, 1, 0)),
    ]);
    assert_eq!(
        render(&graph, &id(), Format::Text, &overlay),
        "demo/sample 1.0.0  5 nodes\n\
         \n\
         ▶ a  parallel lint: rye/bash, test: x/t  ! 1.2s (1 failed)\n\
         \x20   → b\n\
         \x20   ⇢ e  [on error]\n\
         \n\
         \x20 b  wait for 90s\n\
         \x20   → c\n\
         \n\
         \x20 c  wait until ${inputs.at}\n\
         \x20   → d\n\
         \n\
         \x20 d  approval: Ship ${inputs.v}?  …\n\
         \x20   → end\n\
         \x20   ⇢ e  [on error]\n\
         \n\
         \x20 e  fail: no luck\n"
    );
    for (format, lines) in [
        (
            Format::Mermaid,
            [
                "  n0{{\"a<br/>parallel lint: rye/bash, test: x/t<br/>! 1.2s (1 failed)\"}}\n",
                "  n1([\"b<br/>wait for 90s\"])\n",
                "  n3[/\"d<br/>approval: Ship #36;#123;inputs.v#125;#63;<br/>…\"/]\n",
                "  n4([\"e<br/>fail: no luck\"])\n",
                "  n3 --> finish\n",
            ],
        ),
        (
            Format::Dot,
            [
                "  n0 [label=\"a\\nparallel lint: rye/bash, test: x/t\\n! 1.2s (1 failed)\", shape=hexagon",
                "  n1 [label=\"b\\nwait for 90s\", shape=box, style=\"rounded,filled\"",
                "  n3 [label=\"d\\napproval: Ship ${inputs.v}?\\n…\", shape=parallelogram",
                "  n4 [label=\"e\\nfail: no luck\", shape=box, style=\"rounded,filled\"",
                "  n3 -> finish",
            ],
        ),
    ] {
        let drawn = render(&graph, &id(), format, &overlay);
        for line in lines {
            assert!(drawn.contains(line), "no {line:?} in {drawn}");
        }
        assert!(!drawn.contains("n4 -"), "{drawn}");
    }
}

#[test]
fn diagram_of_return_nodes_has_no_other_end() {
    let (graph, _) = graph(&with_nodes("a: {next: b}\nb: {type: return}"));
    for (format, end) in [
        (Format::Mermaid, "finish"),
        (Format::Dot, "finish"),
        (Format::Text, "end"),
    ] {
        let drawn = render(&graph, &id(), format, &BTreeMap::new());
        assert!(!drawn.contains(end), "{drawn}");
        assert!(!drawn.contains("class"), "{drawn}");
    }
}

#[test]
fn names_cannot_break_out_of_a_diagram() {
    let name = "x\"] --> `y` %%<b>\\N{{&amp;;\u{202e}#|end";
    let (graph, _) = graph(&with_nodes(&format!(
        "a: {{next: {0}}}\n{0}: {{type: return}}",
        json!(name)
    )));
    let draw = |format| render(&graph, &id(), format, &BTreeMap::new());
    let mermaid = draw(Format::Mermaid);
    let line = mermaid
        .lines()
        .find(|line| line.starts_with("  n1"))
        .unwrap();
    assert_eq!(
        line,
        "  n1([\"x#34;#93; --#62; #96;y#96; #37;#37;#60;b#62;#92;N#123;#123;#38;amp#59;#59;\u{fffd}#35;#124;end\"])"
    );
    let dot = draw(Format::Dot);
    let line = dot.lines().find(|line| line.starts_with("  n1")).unwrap();
    assert!(
        line.starts_with("  n1 [label=\"x\\\"] --> `y` %%<b>\\\\N{{&amp;amp;;\u{fffd}#|end\", "),
        "{line}"
    );
    assert!(draw(Format::Text).contains("x\"] --> `y` %%<b>\\N{{&amp;;\u{fffd}#|end  return"));
}

#[test]
fn statuses_have_words() {
    for status in <NodeStatus as strum::VariantArray>::VARIANTS
        .iter()
        .copied()
    {
        assert_eq!(NodeStatus::parse(status.as_str()), Some(status));
        assert!(!status.icon().is_empty());
    }
    assert_eq!(NodeStatus::parse("done"), None);
}

proptest! {
    #[test]
    fn diagram_keeps_name_in_one_label(name in "\\PC{1,20}") {
        let text = with_nodes(&format!("a: {{next: {0}}}\n{0}: {{type: return}}", json!(name)));
        prop_assume!(parse(&text).is_ok());
        let (graph, _) = graph(&text);
        let mermaid = render(&graph, &id(), Format::Mermaid, &BTreeMap::new());
        prop_assert_eq!(mermaid.lines().count(), 6);
        let label = mermaid.lines().nth(3).unwrap().strip_prefix("  n1([\"").unwrap().strip_suffix("\"])").unwrap();
        prop_assert!(!label.contains(['"', '<', '`', '%', '\\', '&', '|']));
        let dot = render(&graph, &id(), Format::Dot, &BTreeMap::new());
        prop_assert_eq!(dot.lines().count(), 10);
    }
}
