//! Recovery after a daemon was killed.
//!
//! `process_started` is written without waiting for it, so its presence after a kill is a race.

use super::scenario::{Scenario, play};

/// The first step waits for `go` and is at-most-once.
const CHARGES: &str = "start: charge\nnodes:\n  charge: {effect: at_most_once, action: {item_id: rye/bash, params: {command: \"touch in; until [ -e go ]; do sleep 0.01; done; echo charged\"}}, assign: {said: \"${result.stdout}\"}, next: done}\n  done: {type: return, output: \"${state.said}\"}";

const CRASHES: &[Scenario] = &[
    Scenario {
        name: "uncertain_done",
        graphs: &[("g", CHARGES)],
        script: "start t/g\nuntil in\nkill\nwithout process_started\nboot\nsettle\ndo resume $1\ndo resume $1 --uncertain charge=done",
    },
    Scenario {
        name: "uncertain_retry",
        graphs: &[("g", CHARGES)],
        script: "start t/g\nuntil in\nkill\nwithout process_started\nwrite go\nboot\nsettle\ndo resume $1 --uncertain charge=retry",
    },
    Scenario {
        name: "uncertain_fail",
        graphs: &[("g", CHARGES)],
        script: "start t/g\nuntil in\nkill\nwithout process_started\nboot\nsettle\ndo resume $1 --uncertain charge=fail",
    },
    Scenario {
        name: "recovery_of_a_step",
        graphs: &[(
            "g",
            "start: a\nnodes:\n  a: {assign: {a: 1}, next: b}\n  b: {action: {item_id: rye/bash, params: {command: \"touch in; until [ -e go ]; do sleep 0.01; done; echo $RYE_IDEMPOTENCY_KEY\"}}, assign: {key: \"${result.stdout}\"}, next: c}\n  c: {type: return, output: \"${state.key}\"}",
        )],
        script: "start t/g\nuntil in\nkill\nwithout process_started\nwrite go\nboot",
    },
    Scenario {
        name: "recovery_of_a_nested_run",
        graphs: &[
            (
                "top",
                "start: call\nnodes:\n  call: {action: {item_id: t/below}, assign: {got: \"${result.output}\"}, next: out}\n  out: {type: return, output: \"${state.got}\"}",
            ),
            (
                "below",
                "start: a\nnodes:\n  a: {action: {item_id: rye/bash, params: {command: \"touch in; until [ -e go ]; do sleep 0.01; done\"}}, next: b}\n  b: {type: return, output: 7}",
            ),
        ],
        script: "start t/top\nuntil in\nkill\nwithout process_started\nwrite go\nboot",
    },
    Scenario {
        name: "recovery_of_a_tool_run",
        graphs: &[("g", CHARGES)],
        script: "start rye/bash -i command=mkfifo%never;touch%in;read%x%<never\nuntil in\nkill\nwithout process_started\nboot",
    },
];

#[test]
fn event_streams_over_a_crash() {
    play(CRASHES);
}
