//! Graphs within graphs.

use super::scenario::{Scenario, play};

/// Calls `t/below` and returns its output.
const CALLS: &str = "start: call\nnodes:\n  call: {action: {item_id: t/below, params: {n: 3}}, assign: {got: \"${result.output}\"}, next: out}\n  out: {type: return, output: \"${state.got}\"}";
/// Waits for the file `go`.
const WAITS: &str = "start: a\nnodes:\n  a: {action: {item_id: rye/bash, params: {command: \": >in; until [ -e go ]; do sleep 0.01; done\"}}, next: b}\n  b: {type: return, output: \"${inputs.n}\"}";

/// Works like [`WAITS`], forever, and in one process.
const WAITS_ALONE: &str = "start: a\nnodes:\n  a: {action: {item_id: rye/bash, params: {command: \"mkfifo never; : >in; read x <never\"}}, next: b}\n  b: {type: return}";

const NESTED: &[Scenario] = &[
    Scenario {
        name: "nested",
        graphs: &[
            ("top", CALLS),
            (
                "below",
                "start: a\nnodes:\n  a: {assign: {a: \"${inputs.n}\"}, next: b}\n  b: {type: return, output: \"${state.a}\"}",
            ),
        ],
        script: "start t/top",
    },
    Scenario {
        name: "nested_fails",
        graphs: &[
            ("top", CALLS),
            (
                "below",
                "start: a\nnodes:\n  a: {action: {item_id: rye/bash, params: {command: \"[ -e ok ]\"}}, next: b}\n  b: {type: return}",
            ),
        ],
        script: "start t/top\nsettle\nwrite ok\ndo resume $1",
    },
    Scenario {
        name: "nested_suspended",
        graphs: &[
            ("top", CALLS),
            (
                "below",
                "start: a\nmax_steps: 1\nhooks:\n  - {event: limit, action: {item_id: rye/agent/threads/internal/control, params: {action: escalate}}}\nnodes:\n  a: {assign: {a: 1}, next: b}\n  b: {type: return, output: 7}",
            ),
        ],
        script: "start t/top\nsettle\ndo resume $1 --raise steps=9",
    },
    Scenario {
        name: "nested_cancelled",
        graphs: &[("top", CALLS), ("below", WAITS)],
        script: "start t/top\nuntil in\ndo cancel $1\nwrite go",
    },
    Scenario {
        name: "nested_killed",
        graphs: &[("top", CALLS), ("below", WAITS_ALONE)],
        script: "start t/top\nuntil in\ndo kill $1 --grace 5\nwithout cancel_requested",
    },
    Scenario {
        name: "nested_without_waiting",
        graphs: &[
            (
                "top",
                "start: call\nnodes:\n  call: {action: {item_id: t/below, params: {n: 3, async: true}}, assign: {got: \"${result}\"}, next: out}\n  out: {type: return, output: \"${state.got}\"}",
            ),
            ("below", WAITS),
        ],
        script: "start t/top\nuntil in\nwrite go",
    },
    Scenario {
        name: "nested_in_a_foreach",
        graphs: &[
            (
                "top",
                "start: a\nnodes:\n  a: {type: foreach, over: [1, 2], as: n, action: {item_id: t/below, params: {n: \"${n}\"}}, collect: all, next: out}\n  out: {type: return, output: \"${state.all | length}\"}",
            ),
            (
                "below",
                "start: a\nnodes:\n  a: {type: return, output: \"${inputs.n}\"}",
            ),
        ],
        script: "start t/top",
    },
];

#[test]
fn event_streams_of_graphs_within_graphs() {
    play(NESTED);
}
