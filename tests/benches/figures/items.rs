//! Graphs that the figures run.

use std::fmt::Write as _;

use rye_tests::World;

/// Number of nodes of `bench/large`.
const NODES: u32 = 1000;

/// A node whose retry is due in an hour.
const WAITS: &str = "start: try\nnodes:\n  try:\n    retry: {max: 100, backoff: fixed, delay: 3600}\n    \
    action: {item_id: rye/core/echo, params: {success: false, error: \"not yet\"}}\n    next: done\n  \
    done: {type: return, output: {}}";

/// A `foreach` node over the input `items`.
const WIDE: &str = "start: each\nnodes:\n  each:\n    type: foreach\n    over: \"${inputs.items}\"\n    parallel: true\n    \
    action: {item_id: rye/core/echo, params: {n: \"${item}\"}}\n    collect: out\n    next: done\n  \
    done: {type: return, output: {}}";

/// Doubles its state with each step, until the state exceeds its limit.
const DOUBLES: &str = "max_steps: 100\nstate: {s: [null, null]}\nstart: a\nnodes:\n  \
    a: {assign: {s: {a: \"${state.s}\", b: \"${state.s}\"}}, next: a}";

/// Each step matches a pattern that backtracks up to its bound.
const MATCHES: &str = "max_steps: 400\nstate: {text: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa}\nstart: a\nnodes:\n  \
    a: {type: gate, next: [{to: end, when: {path: state.text, op: regex, value: '^(?=a)(a+a+)+$(?<=b)'}}, {to: a}]}\n  \
    end: {type: return}";

/// Prints 256 MiB in lines of 80 bytes.
const FLOOD: &str = "start: flood\nnodes:\n  flood:\n    \
    action: {item_id: rye/bash, params: {command: \"yes 0123456789012345678901234567890123456789012345678901234567890123456789012345678 | head -c 268435456\"}}\n    \
    next: done\n  done: {type: return, output: {}}";

/// A graph with one native step.
const SHORT: &str = "start: a\nnodes:\n  \
    a: {action: {item_id: rye/core/echo, params: {n: 1}}, next: done}\n  done: {type: return, output: {}}";

/// Writes and signs all graphs.
pub(crate) fn write(world: &World) {
    let native = endless("item_id: rye/core/echo, params: {n: 1}");
    let bash = endless("item_id: rye/bash, params: {command: \"true\"}");
    let prints = endless("item_id: rye/bash, params: {command: \"echo printed\"}");
    let large = large();
    for (id, config) in [
        ("bench/echo", native.as_str()),
        ("bench/bash", &bash),
        ("bench/prints", &prints),
        ("bench/short", SHORT),
        ("bench/waits", WAITS),
        ("bench/wide", WIDE),
        ("bench/large", &large),
        ("bench/doubles", DOUBLES),
        ("bench/matches", MATCHES),
        ("bench/flood", FLOOD),
    ] {
        world.graph(id, config);
    }
}

/// Two nodes that call each other until the step limit ends the run.
fn endless(item: &str) -> String {
    format!(
        "start: a\nmax_steps: 1000000\nnodes:\n  a: {{action: {{{item}}}, assign: {{n: \"${{result}}\"}}, next: b}}\n  b: {{action: {{{item}}}, next: a}}"
    )
}

/// A chain of nodes.
fn large() -> String {
    let mut config = format!("start: n0\nmax_steps: {}\nnodes:\n", NODES * 2);
    for node in 0..NODES - 1 {
        let next = node + 1;
        writeln!(
            config,
            "  n{node}: {{action: {{item_id: rye/core/echo, params: {{n: {node}}}}}, assign: {{n: \"${{result.n}}\"}}, next: n{next}}}"
        )
        .expect("a string takes all text");
    }
    write!(config, "  n{}: {{type: return}}", NODES - 1).expect("a string takes all text");
    config
}
