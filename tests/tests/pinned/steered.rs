//! Runs that are stopped, suspended, resumed or continued, runs of tools, and single steps.

use super::scenario::{Scenario, play};

/// Waits for the file `go` in its first step.
const WAITS: &str = "start: a\nnodes:\n  a: {action: {item_id: rye/bash, params: {command: \": >in; until [ -e go ]; do sleep 0.01; done\"}}, assign: {a: 1}, next: b}\n  b: {type: return, output: \"${state.a}\"}";

/// Works like [`WAITS`], in one process at any time.
const WAITS_ALONE: &str = "start: a\nnodes:\n  a: {action: {item_id: rye/bash, params: {command: \"[ -e go ] || { mkfifo never; : >in; read x <never; }\"}}, assign: {a: 1}, next: b}\n  b: {type: return, output: \"${state.a}\"}";

const STEERED: &[Scenario] = &[
    Scenario {
        name: "cancel",
        graphs: &[("g", WAITS)],
        script: "start t/g\nuntil in\ndo cancel $1\nwrite go",
    },
    Scenario {
        name: "cancel_in_a_foreach",
        graphs: &[(
            "g",
            "start: a\nnodes:\n  a: {type: foreach, over: [1, 2, 3], as: n, action: {item_id: rye/bash, params: {command: \": >in; until [ -e go ]; do sleep 0.01; done\"}}, next: b}\n  b: {type: return}",
        )],
        script: "start t/g\nuntil in\ndo cancel $1\nwrite go",
    },
    Scenario {
        name: "kill_of_a_run",
        graphs: &[("g", WAITS_ALONE)],
        script: "start t/g\nuntil in\ndo kill $1 --grace 5",
    },
    Scenario {
        name: "suspend_of_a_suspended_run",
        graphs: &[(
            "g",
            "start: a\nhooks:\n  - {event: graph_started, action: {item_id: rye/agent/threads/internal/control, params: {action: suspend}}}\nnodes:\n  a: {type: return, output: 1}",
        )],
        script: "start t/g\nsettle\ndo suspend $1\ndo resume $1",
    },
    Scenario {
        name: "cancel_of_a_suspended_run",
        graphs: &[(
            "g",
            "start: a\nhooks:\n  - {event: graph_started, action: {item_id: rye/agent/threads/internal/control, params: {action: suspend}}}\nnodes:\n  a: {type: return, output: 1}",
        )],
        script: "start t/g\nsettle\ndo cancel $1\nsettle\ndo resume $1",
    },
    Scenario {
        name: "continuation_of_a_failed_run",
        graphs: &[(
            "g",
            "start: a\nnodes:\n  a: {assign: {a: 1}, next: b}\n  b: {action: {item_id: rye/bash, params: {command: \"[ -e ok ]\"}}, next: c}\n  c: {type: return, output: \"${state.a}\"}",
        )],
        script: "do run t/g\nwrite ok\ndo resume $1\ndo resume $1",
    },
    Scenario {
        name: "continuation_of_a_killed_run",
        graphs: &[("g", WAITS_ALONE)],
        script: "start t/g\nuntil in\ndo kill $1 --grace 5\nwrite go\ndo resume $1 --json",
    },
    Scenario {
        name: "single_step",
        graphs: &[(
            "g",
            "start: a\nstate: {n: 1}\nnodes:\n  a: {assign: {a: 1}, next: b}\n  b: {action: {item_id: rye/core/echo, params: {n: \"${state.n}\", who: \"${inputs.who}\"}}, assign: {got: \"${result}\"}, next: c}\n  c: {type: return}",
        )],
        script: "do graph step t/g --node b -i who=Ada\ndo graph step t/g --node b --state {\"n\":5} -i who=Ada\ndo graph step t/g --node none",
    },
    Scenario {
        name: "single_step_with_the_state_of_a_run",
        graphs: &[(
            "g",
            "start: a\nnodes:\n  a: {assign: {n: 4}, next: b}\n  b: {action: {item_id: rye/core/echo, params: {n: \"${state.n}\"}}, next: c}\n  c: {type: return}",
        )],
        script: "start t/g\nsettle\ndo graph step t/g --node b --resume-from $1",
    },
    Scenario {
        name: "tool_runs",
        graphs: &[("g", WAITS)],
        script: "start rye/bash -i command=echo%hi\nstart rye/bash -i command=exit%3\nstart rye/bash -i command=sleep%100 -i timeout:=0.2\nstart rye/core/echo -i n:=1",
    },
    Scenario {
        name: "tool_run_that_is_killed",
        graphs: &[("g", WAITS)],
        script: "start rye/bash -i command=mkfifo%never;touch%in;read%x%<never\nuntil in\ndo kill $1 --grace 5",
    },
    Scenario {
        name: "tool_run_that_is_cancelled",
        graphs: &[("g", WAITS)],
        script: "start rye/bash -i command=mkfifo%never;touch%in;read%x%<never\nuntil in\ndo cancel $1",
    },
];

#[test]
fn event_streams_of_steered_runs() {
    play(STEERED);
}
