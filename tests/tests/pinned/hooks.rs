//! Hooks: each event with each answer that counts there.

use super::scenario::{Scenario, play};

const HOOKS: &[Scenario] = &[
    Scenario {
        name: "hooks_of_every_event",
        graphs: &[(
            "g",
            "start: a\nhooks:\n  - {id: one, event: graph_started, action: {item_id: rye/core/echo, params: {at: \"${graph_id}\"}}}\n  - {id: two, event: after_step, action: {item_id: rye/core/echo, params: {at: \"${node}\"}}}\n  - {id: three, event: graph_completed, action: {item_id: rye/core/echo, params: {at: \"${status}\"}}}\nnodes:\n  a: {assign: {a: 1}, next: b}\n  b: {type: return}",
        )],
        script: "start t/g",
    },
    Scenario {
        name: "a_hook_that_fails",
        graphs: &[(
            "g",
            "start: a\nhooks:\n  - {id: one, event: after_step, action: {item_id: rye/bash, params: {command: \"exit 3\"}}}\nnodes:\n  a: {type: return, output: 1}",
        )],
        script: "start t/g",
    },
    Scenario {
        name: "hook_answers_retry",
        graphs: &[(
            "g",
            "start: a\nhooks:\n  - {event: error, action: {retry: true, max_retries: 2}}\nnodes:\n  a: {action: {item_id: rye/bash, params: {command: \"exit 3\"}}, next: b}\n  b: {type: return}",
        )],
        script: "start t/g",
    },
    Scenario {
        name: "hook_answers_retry_by_a_call",
        graphs: &[(
            "g",
            "start: a\nhooks:\n  - {event: error, action: {item_id: rye/agent/threads/internal/control, params: {action: retry, max_retries: 1}}}\nnodes:\n  a: {action: {item_id: rye/bash, params: {command: \"exit 3\"}}, next: b}\n  b: {type: return}",
        )],
        script: "start t/g",
    },
    Scenario {
        name: "hook_answers_fail",
        graphs: &[(
            "g",
            "start: a\nhooks:\n  - {event: error, action: {item_id: rye/agent/threads/internal/control, params: {action: fail, error: because}}}\nnodes:\n  a: {action: {item_id: rye/bash, params: {command: \"exit 3\"}}, on_error: b, next: b}\n  b: {type: return}",
        )],
        script: "start t/g",
    },
    Scenario {
        name: "hook_answers_abort",
        graphs: &[(
            "g",
            "start: a\nhooks:\n  - {event: after_step, action: {item_id: rye/agent/threads/internal/control, params: {action: abort}}}\nnodes:\n  a: {assign: {a: 1}, next: b}\n  b: {type: return}",
        )],
        script: "start t/g",
    },
    Scenario {
        name: "hook_answers_suspend",
        graphs: &[(
            "g",
            "start: a\nhooks:\n  - {event: after_step, condition: {path: node, op: eq, value: a}, action: {item_id: rye/agent/threads/internal/control, params: {action: suspend, suspend_reason: approval}}}\nnodes:\n  a: {assign: {a: 1}, next: b}\n  b: {type: return, output: \"${state.a}\"}",
        )],
        script: "start t/g\nsettle\ndo approve $1\nsettle",
    },
    Scenario {
        name: "hook_answers_suspend_behind_a_failure",
        graphs: &[(
            "g",
            "start: a\nhooks:\n  - {event: error, action: {item_id: rye/agent/threads/internal/control, params: {action: suspend}}}\nnodes:\n  a: {action: {item_id: rye/bash, params: {command: \"[ -e ok ]\"}}, next: b}\n  b: {type: return}",
        )],
        script: "start t/g\nsettle\nwrite ok\ndo resume $1",
    },
    Scenario {
        name: "hook_answers_escalate",
        graphs: &[(
            "g",
            "start: a\nmax_steps: 1\nhooks:\n  - {event: limit, action: {item_id: rye/agent/threads/internal/control, params: {action: escalate}}}\nnodes:\n  a: {assign: {a: 1}, next: b}\n  b: {type: return, output: 7}",
        )],
        script: "start t/g\nsettle\ndo resume $1\ndo resume $1 --raise steps=5",
    },
    Scenario {
        name: "hook_answers_continue_at_the_limit",
        graphs: &[(
            "g",
            "start: a\nmax_steps: 1\nhooks:\n  - {id: more, event: limit, action: {item_id: rye/agent/threads/internal/control, params: {action: continue, additional_steps: 2}}}\nnodes:\n  a: {assign: {a: 1}, next: b}\n  b: {type: return, output: 7}",
        )],
        script: "start t/g",
    },
    Scenario {
        name: "hook_answers_continue_past_a_failure",
        graphs: &[(
            "g",
            "start: a\nhooks:\n  - {event: error, action: {item_id: rye/agent/threads/internal/control, params: {action: continue}}}\nnodes:\n  a: {action: {item_id: rye/bash, params: {command: \"exit 3\"}}, next: b}\n  b: {type: return, output: 7}",
        )],
        script: "start t/g",
    },
    Scenario {
        name: "hook_answers_skip",
        graphs: &[(
            "g",
            "start: a\nhooks:\n  - {event: error, action: {item_id: rye/agent/threads/internal/control, params: {action: skip}}}\nnodes:\n  a: {action: {item_id: rye/bash, params: {command: \"exit 3\"}}, next: b}\n  b: {type: return, output: 7}",
        )],
        script: "start t/g",
    },
    Scenario {
        name: "hook_answers_nonsense",
        graphs: &[(
            "g",
            "start: a\nhooks:\n  - {event: after_step, action: {item_id: rye/core/echo, params: {action: dance}}}\nnodes:\n  a: {type: return, output: 7}",
        )],
        script: "start t/g",
    },
];

#[test]
fn event_streams_with_hooks() {
    play(HOOKS);
}
