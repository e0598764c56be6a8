//! Runs of one graph without hooks.

use super::scenario::{Scenario, play};

const WALKS: &[Scenario] = &[
    Scenario {
        name: "linear",
        graphs: &[(
            "g",
            "start: a\nstate: {n: 0}\nnodes:\n  a: {action: {item_id: rye/core/echo, params: {n: 1}}, assign: {n: \"${result.n}\", m: \"${inputs.m || state.n}\"}, next: b}\n  b: {action: {item_id: rye/bash, params: {command: \"echo $N\", env: {N: \"${state.n}\"}}}, assign: {said: \"${result.stdout}\"}, next: done}\n  done: {type: return, output: {said: \"${state.said}\", m: \"${state.m}\"}}",
        )],
        script: "start t/g -i m=two",
    },
    Scenario {
        name: "branch",
        graphs: &[(
            "g",
            "start: a\nnodes:\n  a:\n    action: {item_id: rye/core/echo, params: {n: \"${inputs.n}\"}}\n    next:\n      - {to: big, when: {path: result.n, op: gt, value: 5}}\n      - {to: small}\n  big: {type: return, output: big}\n  small: {type: return, output: small}",
        )],
        script: "start t/g -i n:=7\nstart t/g -i n:=3",
    },
    Scenario {
        name: "gate_and_no_next",
        graphs: &[(
            "g",
            "start: a\nnodes:\n  a: {type: gate, assign: {a: 1}, next: [{to: b, when: {path: state.a, op: eq, value: 1}}]}\n  b: {assign: {b: 2}}",
        )],
        script: "start t/g",
    },
    Scenario {
        name: "no_edge_matches",
        graphs: &[(
            "g",
            "start: a\nnodes:\n  a: {assign: {a: 1}, next: [{to: b, when: {path: state.a, op: eq, value: 2}}]}\n  b: {type: return}",
        )],
        script: "start t/g",
    },
    Scenario {
        name: "foreach_one_by_one",
        graphs: &[(
            "g",
            "start: a\nnodes:\n  a: {type: foreach, over: [3, 5], as: n, action: {item_id: rye/core/echo, params: {n: \"${n}\"}}, collect: all, next: b}\n  b: {type: return, output: \"${state.all}\"}",
        )],
        script: "start t/g",
    },
    Scenario {
        name: "foreach_at_once",
        graphs: &[(
            "g",
            "start: a\nnodes:\n  a: {type: foreach, over: [1, 2, 3], as: n, parallel: true, action: {item_id: rye/core/echo, params: {n: \"${n}\"}}, collect: all, next: b}\n  b: {type: return, output: \"${state.all}\"}",
        )],
        script: "start t/g",
    },
    Scenario {
        name: "foreach_fails",
        graphs: &[(
            "g",
            "start: a\nnodes:\n  a: {type: foreach, over: [0, 1, 2], as: n, action: {item_id: rye/bash, params: {command: \"exit $N\", env: {N: \"${n}\"}}}, next: b}\n  b: {type: return}",
        )],
        script: "start t/g",
    },
    Scenario {
        name: "foreach_collects_failures",
        graphs: &[(
            "g",
            "start: a\nnodes:\n  a: {type: foreach, over: [0, 1], as: n, on_item_error: collect, collect: all, action: {item_id: rye/bash, params: {command: \"exit $N\", env: {N: \"${n}\"}}}, next: b}\n  b: {type: return, output: \"${state.all}\"}",
        )],
        script: "start t/g",
    },
    Scenario {
        name: "foreach_cached",
        graphs: &[(
            "g",
            "start: a\nnodes:\n  a: {type: foreach, over: [1, 1], as: n, cache_result: true, action: {item_id: rye/bash, params: {command: \"echo $N\", env: {N: \"${n}\"}}}, collect: all, next: b}\n  b: {type: return}",
        )],
        script: "start t/g\nsettle\nstart t/g",
    },
    Scenario {
        name: "foreach_of_nothing",
        graphs: &[(
            "g",
            "start: a\nnodes:\n  a: {type: foreach, over: \"${inputs.none}\", as: n, action: {item_id: rye/core/echo, params: {n: \"${n}\"}}, collect: all, next: b}\n  b: {type: return, output: \"${state.all}\"}",
        )],
        script: "start t/g\nstart t/g -i none=text",
    },
    Scenario {
        name: "retry",
        graphs: &[(
            "g",
            "start: a\nnodes:\n  a: {retry: {max: 2}, action: {item_id: rye/bash, params: {command: \"echo x >>ran; [ $(wc -l <ran) -ge 2 ]\"}}, next: b}\n  b: {type: return, output: \"${state._retries}\"}",
        )],
        script: "start t/g",
    },
    Scenario {
        name: "retries_run_out",
        graphs: &[(
            "g",
            "start: a\nnodes:\n  a: {retry: {max: 2, backoff: exponential, base: 0.02}, action: {item_id: rye/bash, params: {command: \"echo no >&2; exit 4\"}}, next: b}\n  b: {type: return}",
        )],
        script: "start t/g",
    },
    Scenario {
        name: "error_edge",
        graphs: &[(
            "g",
            "start: a\nnodes:\n  a: {action: {item_id: rye/bash, params: {command: \"exit 2\"}}, on_error: c, next: b}\n  b: {type: return}\n  c: {type: return, output: \"${state._last_error}\"}",
        )],
        script: "start t/g",
    },
    Scenario {
        name: "continue_mode",
        graphs: &[(
            "g",
            "start: a\non_error: continue\nnodes:\n  a: {action: {item_id: rye/bash, params: {command: \"exit 2\"}}, next: b}\n  b: {type: return, output: \"${state._last_error.node}\"}",
        )],
        script: "start t/g",
    },
    Scenario {
        name: "limit",
        graphs: &[(
            "g",
            "start: a\nmax_steps: 2\nnodes:\n  a: {assign: {a: 1}, next: a}",
        )],
        script: "start t/g\nsettle\ndo resume $1\ndo resume $1 --raise steps=3",
    },
    Scenario {
        name: "timeout_of_a_node",
        graphs: &[(
            "g",
            "start: a\nhooks: [{event: error, action: {item_id: rye/agent/threads/internal/control, params: {action: fail}}}]\nnodes:\n  a: {timeout: 0.2, action: {item_id: rye/bash, params: {command: \"sleep 100\"}}, next: b}\n  b: {type: return}",
        )],
        script: "start t/g",
    },
    Scenario {
        name: "timeout_of_a_graph",
        graphs: &[(
            "g",
            "start: a\ntimeout: 0.3\nnodes:\n  a: {action: {item_id: rye/bash, params: {command: \"sleep 100\"}}, next: b}\n  b: {type: return}",
        )],
        script: "start t/g",
    },
    Scenario {
        name: "effects",
        graphs: &[(
            "g",
            "start: a\nnodes:\n  a: {effect: pure, action: {item_id: rye/core/echo, params: {n: 1}}, next: b}\n  b: {effect: at_most_once, action: {item_id: rye/core/echo, params: {n: 2}}, next: c}\n  c: {effect: at_most_once, retry: {max: 2}, action: {item_id: rye/bash, params: {command: \"exit 1\"}}, next: d}\n  d: {type: return}",
        )],
        script: "start t/g",
    },
    Scenario {
        name: "warnings",
        graphs: &[(
            "g",
            "start: a\nnodes:\n  a: {assign: {a: \"${inputs.none}\", b: \"text ${inputs.none}\"}, next: [{to: b, when: {path: state.a, op: gt, value: 3}}, {to: b}]}\n  b: {type: return, output: \"${state.typo}\"}",
        )],
        script: "start t/g",
    },
    Scenario {
        name: "cache_hit",
        graphs: &[(
            "g",
            "start: a\nnodes:\n  a: {cache_result: true, action: {item_id: rye/bash, params: {command: \"echo x >>ran; wc -l <ran\"}}, assign: {n: \"${result.stdout}\"}, next: b}\n  b: {type: return, output: \"${state.n}\"}",
        )],
        script: "start t/g\nsettle\nstart t/g",
    },
    Scenario {
        name: "emitter",
        graphs: &[(
            "g",
            "start: a\nnodes:\n  a: {action: {item_id: rye/agent/threads/internal/emitter, params: {event: told, content: {n: 1}}}, next: b}\n  b: {type: return}",
        )],
        script: "start t/g",
    },
    Scenario {
        name: "a_run_that_cannot_begin",
        graphs: &[
            (
                "g",
                "start: a\nnodes:\n  a: {action: {item_id: t/broken}, next: b}\n  b: {type: return}",
            ),
            (
                "broken",
                "start: a\nnodes:\n  a: {type: brew, next: b}\n  b: {type: return}",
            ),
        ],
        script: "do run t/broken\ndo run t/g",
    },
    Scenario {
        name: "permission_denied",
        graphs: &[(
            "g",
            "start: a\nnodes:\n  a: {action: {item_id: rye/bash, params: {command: \"echo x >ran\"}}, next: b}\n  b: {type: return}",
        )],
        script: "start t/g --cap rye.execute.tool.rye.core.*",
    },
];

#[test]
fn event_streams_of_one_graph() {
    play(WALKS);
}
