//! Foreach, retries, hooks and limits.

use crate::model::Effect;
use crate::yaml;
use std::num::NonZeroU32;
use std::time::Duration;

use super::*;
use crate::definition::backoff::{Backoff, Retry};
use crate::definition::hook::{Authority, Hook, HookAction, HookEvent};

const REST: &str = "next: b}\nb: {type: return}";

/// The node `a` with these keys.
fn node(keys: &str) -> Node {
    let (graph, warnings) = graph(&with_nodes(&format!("a: {{{keys}, {REST}")));
    assert!(warnings.is_empty(), "{warnings:?}");
    graph.nodes.get("a").unwrap().clone()
}

fn foreach(keys: &str) -> Foreach {
    let Work::Foreach(foreach) =
        node(&format!("type: foreach, action: {{item_id: x}}, {keys}")).work
    else {
        panic!("not a foreach")
    };
    foreach
}

fn hooks(list: &str) -> String {
    with_nodes("a: {type: return}").replace("  start: a", &format!("  start: a\n  hooks: [{list}]"))
}

fn some(number: u32) -> Option<NonZeroU32> {
    NonZeroU32::new(number)
}

#[test]
fn a_foreach_is_read_with_its_defaults() {
    let plain = foreach("over: \"${inputs.list}\"");
    assert_eq!(plain.over, json!("${inputs.list}"));
    assert_eq!(
        (
            plain.variable.as_str(),
            plain.collect,
            plain.order,
            plain.on_item_error
        ),
        ("item", None, ItemOrder::Sequential, OnItemError::Fail)
    );
    let full = foreach(
        "over: [1, 2], as: row, collect: out, parallel: true, max_concurrency: 3, on_item_error: collect",
    );
    assert_eq!(full.over, json!([1, 2]));
    assert_eq!(
        (
            full.variable.as_str(),
            full.collect.as_deref(),
            full.order,
            full.on_item_error
        ),
        (
            "row",
            Some("out"),
            ItemOrder::Parallel { at_once: some(3) },
            OnItemError::Collect
        )
    );
    assert_eq!(
        foreach("over: '[1]', parallel: false").order,
        ItemOrder::Sequential
    );
    let unbounded = foreach("over: [], parallel: true").order;
    assert_eq!(unbounded, ItemOrder::Parallel { at_once: None });
}

#[test]
fn a_foreach_assigns_and_fails_like_any_node() {
    let both = node(
        "type: foreach, over: [1], action: {item_id: x}, assign: {n: 1}, on_error: b, retry: 2, effect: pure",
    );
    assert_eq!(both.assign.len(), 1);
    assert_eq!(
        (both.on_error.as_deref(), both.effect),
        (Some("b"), Effect::Pure)
    );
    assert_eq!(both.retry.map(|retry| retry.max), Some(2));
}

#[test]
fn a_retry_is_a_number_or_a_map() {
    let seconds = Duration::from_secs_f64;
    for (text, max, backoff) in [
        ("2", 2, Backoff::None),
        ("0", 0, Backoff::None),
        ("{}", 3, Backoff::None),
        ("{max: 5}", 5, Backoff::None),
        ("{max_retries: 4, backoff: none}", 4, Backoff::None),
        ("{backoff: fixed}", 3, Backoff::Fixed(seconds(1.0))),
        ("{delay: 0.25}", 3, Backoff::Fixed(seconds(0.25))),
        (
            "{backoff: exponential}",
            3,
            Backoff::Exponential {
                base: 1.0,
                max: seconds(60.0),
            },
        ),
        (
            "{base: 0.5, max_delay: 8}",
            3,
            Backoff::Exponential {
                base: 0.5,
                max: seconds(8.0),
            },
        ),
    ] {
        let retry = node(&format!("action: {{item_id: x}}, retry: {text}")).retry;
        assert_eq!(retry, Some(Retry { max, backoff }), "{text}");
    }
    assert_eq!(node("action: {item_id: x}, retry: null").retry, None);
}

#[test]
fn pauses_double_up_to_the_longest_and_jitter_halves_at_most() {
    let exponential = Backoff::Exponential {
        base: 0.5,
        max: Duration::from_secs(30),
    };
    for (attempt, jitter, seconds) in [
        (0, 0.0, 0.5),
        (1, 0.0, 1.0),
        (3, 0.0, 4.0),
        (3, 1.0, 2.0),
        (3, 0.5, 3.0),
        (6, 0.0, 30.0),
        (u32::MAX, 0.0, 30.0),
        (u32::MAX, 1.0, 15.0),
        (0, 7.0, 0.25),
        (0, -7.0, 0.5),
    ] {
        assert_eq!(
            exponential.delay(attempt, jitter),
            Duration::from_secs_f64(seconds),
            "{attempt} {jitter}"
        );
    }
    assert_eq!(Backoff::None.delay(9, 0.5), Duration::ZERO);
    let fixed = Backoff::Fixed(Duration::from_secs(2));
    assert_eq!(fixed.delay(9, 0.5), Duration::from_secs(2));
}

#[test]
fn the_treatment_of_an_action_is_read() {
    let read = node(
        "action: {item_id: x}, timeout: 1.5, cache_result: true, env_requires: [API_URL, _b2], effect: pure",
    );
    assert_eq!(read.timeout, Some(Duration::from_millis(1500)));
    assert_eq!((read.caching, read.effect), (Caching::On, Effect::Pure));
    assert_eq!(read.env_requires, ["API_URL", "_b2"]);
    let once = node(
        "action: {item_id: x}, effect: at_most_once, env_requires: TOKEN, cache_result: false",
    );
    assert_eq!(
        (once.caching, once.effect),
        (Caching::Off, Effect::AtMostOnce)
    );
    assert_eq!(once.env_requires, ["TOKEN"]);
    assert_eq!(once.timeout, None);
}

#[test]
fn limits_and_requirements_of_the_graph_are_read() {
    let text = with_nodes("a: {type: return}").replace(
        "config:\n",
        "env_requires: HOST\nconfig:\n  timeout: 600\n  max_concurrency: 4\n",
    );
    let (graph, _) = graph(&text);
    assert_eq!(graph.env_requires, ["HOST"]);
    assert_eq!(graph.timeout, Some(Duration::from_mins(10)));
    assert_eq!(graph.max_concurrency, some(4));
}

#[test]
fn digest_depends_on_config_values_not_spelling() {
    let digest = |text: &str| graph(text).0.digest;
    let one = digest(&with_nodes("a: {type: return, output: {x: 1, y: 2}}"));
    assert_eq!(one.len(), 64);
    let other_layout = with_nodes("a:\n  output: {y: 2, x: 1}  # swapped\n  type: return");
    assert_eq!(one, digest(&other_layout));
    assert_eq!(
        one,
        digest(&other_layout.replace("category: demo", "category: other"))
    );
    assert_ne!(
        one,
        digest(&with_nodes("a: {type: return, output: {x: 1, y: 3}}"))
    );
}

#[test]
fn hooks_of_a_graph_are_its_own() {
    let (graph, warnings) = graph(&hooks(
        "{id: first, event: after_step, condition: {path: step_count, op: gte, value: 5}, description: d, \
         action: {item_id: \"tool:rye/bash\", params: {command: \"true\"}}}, \
         {event: error, layer: 1, action: {retry: true, max_retries: 3}}",
    ));
    assert!(warnings.is_empty(), "{warnings:?}");
    let [call, retry] = graph.hooks.as_slice() else {
        panic!("two hooks")
    };
    assert_eq!(
        (call.id.as_str(), call.event),
        ("first", HookEvent::AfterStep)
    );
    assert_eq!((call.layer, call.authority), (1, Authority::Run));
    assert_eq!(
        call.condition.as_ref().unwrap().to_string(),
        "step_count >= 5"
    );
    assert_eq!(call.action.call().unwrap().id, "rye/bash");
    assert_eq!(
        (retry.id.as_str(), retry.event),
        ("hook-2", HookEvent::Error)
    );
    assert!(retry.condition.is_none());
    let items: Vec<&str> = graph.actions().map(|action| action.id.as_str()).collect();
    assert_eq!(items, ["rye/bash"]);
}

#[test]
fn both_spellings_of_a_control_answer_are_one() {
    for (action, answer) in [
        (
            "{retry: true, max_retries: 3}",
            json!({"action": "retry", "max_retries": 3}),
        ),
        ("{retry: true}", json!({"action": "retry"})),
        (
            "{primary: execute, item_id: rye/agent/threads/internal/control, params: {action: retry, max_retries: 3}}",
            json!({"action": "retry", "max_retries": 3}),
        ),
        (
            "{item_id: \"tool:rye/agent/threads/internal/control\", params: {action: abort}}",
            json!({"action": "abort"}),
        ),
        (
            "{item_id: rye/agent/threads/internal/control, params: {action: \"${state.answer || inputs.x}\"}}",
            json!({"action": "${state.answer || inputs.x}"}),
        ),
    ] {
        let value: Value = yaml::parse(&format!("{{event: error, action: {action}}}"))
            .unwrap()
            .value;
        let hook =
            Hook::from_value(&value, "h").unwrap_or_else(|wrong| panic!("{action}: {wrong}"));
        assert_eq!(hook.action, HookAction::Control(answer), "{action}");
        assert!(parse(&hooks(&format!("{{event: error, action: {action}}}"))).is_ok());
    }
}

#[test]
fn hooks_of_policies_have_the_authority_of_their_layer() {
    for (layer, expected) in [
        (json!({}), (1, Authority::Run)),
        (json!({"layer": 2}), (2, Authority::Node)),
        (json!({"layer": 3}), (3, Authority::Node)),
    ] {
        let mut value = json!({"event": "limit", "action": {"item_id": "x"}});
        value.as_object_mut().unwrap().extend(object(layer));
        let hook = Hook::from_value(&value, "builtin-1").unwrap();
        assert_eq!((hook.layer, hook.authority), expected);
        assert_eq!(hook.id, "builtin-1");
    }
    let broken = json!({"event": "eror", "action": {"item_id": "../x"}, "when": 1, "layer": 4});
    let wrong = Hook::from_value(&broken, "h").unwrap_err();
    for part in [
        "did you mean `error`",
        "leave their space",
        "calls it `condition`",
        "`layer` is 1",
    ] {
        assert!(wrong.contains(part), "{part} in {wrong}");
    }
    assert!(Hook::from_value(&json!("retry"), "h").is_err());
}

#[test]
fn hook_condition_reads_step_count_below_state() {
    let text = hooks(
        "{event: after_step, condition: {any: [{path: state.step_count, operator: gte, value: 5}, \
         {not: {path: state.step_count, value: state.step_count}}]}, action: {item_id: x}}",
    );
    expect(
        &text,
        Severity::Warning,
        "old_spelling",
        (8, 42),
        "read as `step_count`",
    );
    let (graph, _) = graph(&text);
    assert_eq!(
        graph.hooks[0].condition.as_ref().unwrap().to_string(),
        "step_count >= 5 or not (step_count == \"state.step_count\")"
    );
}

const BROKEN: &[Row] = &[
    (
        "a: {type: foreach, action: {item_id: x}}",
        "missing_key",
        (9, 5),
        "no `over`",
    ),
    (
        "a: {type: foreach, over: null, action: {item_id: x}}",
        "missing_key",
        (9, 5),
        "no `over`",
    ),
    (
        "a: {type: foreach, over: []}",
        "missing_action",
        (9, 5),
        "what is done with each item",
    ),
    (
        "a: {over: [], action: {item_id: x}}",
        "missing_key",
        (9, 9),
        "`type: foreach`",
    ),
    (
        "a: {type: foreach, over: 5, action: {item_id: x}}",
        "wrong_type",
        (9, 30),
        "lead to one",
    ),
    (
        "a: {type: foreach, over: {}, action: {item_id: x}}",
        "wrong_type",
        (9, 30),
        "lead to one",
    ),
    (
        "a: {type: foreach, over: files, action: {item_id: x}}",
        "wrong_type",
        (9, 30),
        "not `files`",
    ),
    (
        "a: {type: foreach, over: '{}', action: {item_id: x}}",
        "wrong_type",
        (9, 30),
        "not `{}`",
    ),
    (
        "a: {type: foreach, over: \"${state.a + [1]}\", action: {item_id: x}}",
        "bad_template",
        (9, 30),
        "`collect`",
    ),
    (
        "a: {type: foreach, over: [], as: state, action: {item_id: x}}",
        "bad_name",
        (9, 38),
        "taken",
    ),
    (
        "a: {type: foreach, over: [], as: inputs, action: {item_id: x}}",
        "bad_name",
        (9, 38),
        "taken",
    ),
    (
        "a: {type: foreach, over: [], as: result, action: {item_id: x}}",
        "bad_name",
        (9, 38),
        "taken",
    ),
    (
        "a: {type: foreach, over: [], as: _now, action: {item_id: x}}",
        "bad_name",
        (9, 38),
        "taken",
    ),
    (
        "a: {type: foreach, over: [], as: _timestamp, action: {item_id: x}}",
        "bad_name",
        (9, 38),
        "taken",
    ),
    (
        "a: {type: foreach, over: [], as: a.b, action: {item_id: x}}",
        "bad_name",
        (9, 38),
        "no path",
    ),
    (
        "a: {type: foreach, over: [], as: '', action: {item_id: x}}",
        "bad_name",
        (9, 34),
        "no path",
    ),
    (
        "a: {type: foreach, over: [], as: 5, action: {item_id: x}}",
        "wrong_type",
        (9, 38),
        "in quotes",
    ),
    (
        "a: {type: foreach, over: [], collect: inputs, action: {item_id: x}}",
        "bad_assign",
        (9, 34),
        "never change",
    ),
    (
        "a: {type: foreach, over: [], collect: [x], action: {item_id: x}}",
        "wrong_type",
        (9, 43),
        "a text",
    ),
    (
        "a: {type: foreach, over: [], parallel: yes, action: {item_id: x}}",
        "wrong_type",
        (9, 44),
        "true or false",
    ),
    (
        "a: {type: foreach, over: [], parallel: true, max_concurrency: 0, action: {item_id: x}}",
        "wrong_type",
        (9, 67),
        "from 1",
    ),
    (
        "a: {type: foreach, over: [], on_item_error: skip, action: {item_id: x}}",
        "unknown_value",
        (9, 49),
        "fail, collect",
    ),
    (
        "a: {type: foreach, over: [], action: {item_id: x, async: true}}",
        "unknown_key",
        (9, 55),
        "`parallel: true`",
    ),
    (
        "a: {type: foreach, over: [], action: {item_id: x, async_exec: true}}",
        "unknown_key",
        (9, 55),
        "`parallel: true`",
    ),
    (
        "a: {type: foreach, over: [], action: {item_id: x, params: {async: true}}}",
        "async_item",
        (9, 64),
        "`parallel: true`",
    ),
    (
        "a: {type: foreach, over: [], action: {item_id: x, params: {async_exec: \"${inputs.a}\"}}}",
        "async_item",
        (9, 64),
        "`parallel: true`",
    ),
    (
        "a: {type: foreach, over: [], action: {item_id: x, kind: knowledge}}",
        "unknown_value",
        (9, 61),
        "knowledge",
    ),
    (
        "a: {action: {item_id: x, async: true}}",
        "unknown_key",
        (9, 30),
        "ends when its action ends",
    ),
    (
        "a: {action: {item_id: x}, retry: -1}",
        "wrong_type",
        (9, 38),
        "not `-1`",
    ),
    (
        "a: {action: {item_id: x}, retry: true}",
        "wrong_type",
        (9, 38),
        "whole number",
    ),
    (
        "a: {action: {item_id: x}, retry: {max: 1, max_retries: 2}}",
        "conflict",
        (9, 47),
        "keep one",
    ),
    (
        "a: {action: {item_id: x}, retry: {times: 1}}",
        "unknown_key",
        (9, 39),
        "max_retries",
    ),
    (
        "a: {action: {item_id: x}, retry: {backoff: linear}}",
        "unknown_value",
        (9, 48),
        "exponential",
    ),
    (
        "a: {action: {item_id: x}, retry: {delay: -1}}",
        "wrong_type",
        (9, 46),
        "from 0",
    ),
    (
        "a: {action: {item_id: x}, retry: {base: 0}}",
        "wrong_type",
        (9, 45),
        "above 0",
    ),
    (
        "a: {action: {item_id: x, retry: 1}}",
        "unknown_key",
        (9, 30),
        "belongs to the node",
    ),
    (
        "a: {action: {item_id: x}, timeout: 0}",
        "wrong_type",
        (9, 40),
        "above 0",
    ),
    (
        "a: {action: {item_id: x}, timeout: 5 sec}",
        "wrong_type",
        (9, 40),
        "number of seconds",
    ),
    (
        "a: {action: {item_id: x}, timeout: 1e12}",
        "wrong_type",
        (9, 40),
        "31536000",
    ),
    (
        "a: {action: {item_id: x}, cache_result: 1}",
        "wrong_type",
        (9, 45),
        "true or false",
    ),
    (
        "a: {action: {item_id: x}, cache_result: true, effect: at_most_once}",
        "conflict",
        (9, 31),
        "leave out an effect",
    ),
    (
        "a: {action: {item_id: x}, env_requires: [A-B]}",
        "bad_name",
        (9, 46),
        "environment variable",
    ),
    (
        "a: {action: {item_id: x}, env_requires: 1A}",
        "bad_name",
        (9, 45),
        "environment variable",
    ),
    (
        "a: {action: {item_id: x}, env_requires: ''}",
        "bad_name",
        (9, 31),
        "environment variable",
    ),
    (
        "a: {action: {item_id: x}, env_requires: [1]}",
        "wrong_type",
        (9, 46),
        "environment variable",
    ),
    (
        "a: {action: {item_id: x}, env_requires: {A: 1}}",
        "wrong_type",
        (9, 45),
        "a list of them",
    ),
];

#[test]
fn misuse_of_loops_and_treatments_names_place_and_fix() {
    for (nodes, code, place, part) in BROKEN {
        let text = with_nodes(nodes);
        expect(&text, Severity::Error, code, *place, part);
        assert!(parse(&text).is_err(), "{text}");
    }
}

#[test]
fn callers_of_a_graph_are_known_words() {
    let nodes = "a: {action: {item_id: x}}";
    let with = |callers: &str| {
        let text = with_nodes(nodes);
        text.replacen("config:", &format!("callers: {callers}\nconfig:"), 1)
    };
    assert!(parse(&with("[graph, person]")).is_ok());
    for callers in ["[robot]", "[]", "graph"] {
        let findings = parse(&with(callers)).unwrap_err();
        let told = findings.iter().any(|finding| {
            finding.code == "unknown_value" && finding.message.contains("`callers` must be")
        });
        assert!(told, "{callers}: {findings:?}");
    }
}

const BROKEN_HOOKS: &[Row] = &[
    ("5", "wrong_type", (8, 11), "a map"),
    (
        "{action: {retry: true}}",
        "missing_key",
        (8, 11),
        "graph_started, after_step, error, limit, graph_completed",
    ),
    (
        "{event: erorr, action: {retry: true}}",
        "unknown_value",
        (8, 19),
        "did you mean `error`?",
    ),
    (
        "{event: error}",
        "missing_key",
        (8, 11),
        "`action` is missing",
    ),
    (
        "{event: error, when: {}, action: {retry: true}}",
        "unknown_key",
        (8, 26),
        "`condition`",
    ),
    (
        "{event: error, action: {retry: true}, layer: 2}",
        "unknown_value",
        (8, 56),
        "leave `layer` out",
    ),
    (
        "{event: error, action: {retry: true}, layer: 9}",
        "unknown_value",
        (8, 56),
        "infrastructure",
    ),
    (
        "{event: error, action: {retry: true}, id: ''}",
        "bad_name",
        (8, 49),
        "empty",
    ),
    (
        "{id: a, event: error, action: {retry: true}}, {id: a, event: limit, action: {item_id: x}}",
        "duplicate_id",
        (8, 57),
        "of hook 1",
    ),
    (
        "{id: hook-2, event: error, action: {retry: true}}, {event: limit, action: {item_id: x}}",
        "duplicate_id",
        (8, 62),
        "`hook-2`",
    ),
    (
        "{event: error, action: {retry: true}, condition: {path: x, op: above}}",
        "bad_condition",
        (8, 74),
        "unknown op",
    ),
    (
        "{event: error, action: {item_id: ../x}}",
        "bad_item_id",
        (8, 44),
        "leave their space",
    ),
    (
        "{event: error, action: {item_id: x, params: {a: \"${}\"}}}",
        "bad_template",
        (8, 59),
        "names nothing",
    ),
    (
        "{event: error, action: {item_id: x, kind: knowledge}}",
        "unknown_value",
        (8, 53),
        "knowledge",
    ),
    (
        "{event: error, action: {retry: false}}",
        "bad_control",
        (8, 34),
        "`retry: true`",
    ),
    (
        "{event: error, action: {max_retries: 2}}",
        "bad_control",
        (8, 34),
        "`retry: true`",
    ),
    (
        "{event: error, action: {retry: true, item_id: x}}",
        "conflict",
        (8, 48),
        "beside `retry`",
    ),
    (
        "{event: error, action: {retry: true, max_retries: many}}",
        "wrong_type",
        (8, 61),
        "whole number",
    ),
    (
        "{event: error, action: {action: abort, item_id: rye/agent/threads/internal/control}}",
        "unknown_key",
        (8, 35),
        "below `params`",
    ),
    (
        "{event: error, action: {item_id: rye/agent/threads/internal/control, params: {action: explode}}}",
        "bad_control",
        (8, 88),
        "no control action",
    ),
    (
        "{event: error, action: {item_id: rye/agent/threads/internal/control, params: {max_retries: 1}}}",
        "bad_control",
        (8, 88),
        "needs `action`",
    ),
];

#[test]
fn misuse_of_hooks_names_place_and_fix() {
    for (list, code, place, part) in BROKEN_HOOKS {
        let text = hooks(list);
        expect(&text, Severity::Error, code, *place, part);
        assert!(parse(&text).is_err(), "{text}");
    }
    let no_list = hooks("").replace("hooks: []", "hooks: {event: error}");
    expect(
        &no_list,
        Severity::Error,
        "wrong_type",
        (8, 10),
        "a list of hooks",
    );
    let (graph, _) = graph(&hooks("").replace("hooks: []", "hooks: null"));
    assert!(graph.hooks.is_empty());
}

#[test]
fn unread_keys_are_reported() {
    for (keys, key, part) in [
        ("type: gate, effect: pure", 21, "on a gate"),
        ("type: gate, retry: 2", 21, "on a gate"),
        ("type: gate, timeout: 2", 21, "on a gate"),
        ("type: gate, cache_result: true", 21, "on a gate"),
        ("type: gate, parallel: true", 21, "on a gate"),
        (
            "action: {item_id: x}, parallel: true",
            31,
            "on a node with an action",
        ),
        (
            "action: {item_id: x}, collect: y",
            31,
            "on a node with an action",
        ),
        (
            "type: foreach, over: [], action: {item_id: x}, output: 1",
            56,
            "on a return or fail node only",
        ),
        (
            "type: foreach, over: [], action: {item_id: x}, max_concurrency: 2",
            56,
            "`parallel: true`",
        ),
    ] {
        let text = with_nodes(&format!("a: {{{keys}, {REST}"));
        expect(&text, Severity::Warning, "no_effect", (9, key), part);
    }
    let gate = with_nodes(&format!("a: {{type: gate, env_requires: [A], {REST}"));
    let (graph, _) = graph(&gate);
    assert_eq!(graph.nodes.get("a").unwrap().env_requires, ["A"]);
    for key in ["effect: pure", "retry: 2", "timeout: 2", "over: [1]"] {
        let text = with_nodes(&format!("a: {{type: return, {key}}}"));
        expect(
            &text,
            Severity::Warning,
            "no_effect",
            (9, 23),
            "on a return node",
        );
    }
    for (retry, column) in [
        ("{backoff: fixed, base: 2}", 55),
        ("{backoff: exponential, delay: 2}", 61),
        ("{backoff: none, delay: 2}", 54),
    ] {
        let text = with_nodes(&format!(
            "a: {{action: {{item_id: x}}, retry: {retry}, {REST}"
        ));
        expect(
            &text,
            Severity::Warning,
            "no_effect",
            (9, column),
            "has no effect",
        );
    }
    let text = with_nodes(&format!(
        "a: {{type: gate, retry: null, env_requires: [], cache_result: false, {REST}"
    ));
    assert_eq!(findings(&text), []);
}

#[test]
fn muted_keys_are_reported() {
    for (keys, column, part) in [
        (
            "type: foreach, over: [], action: {item_id: x}, on_item_error: collect, on_error: b",
            80,
            "no failed item leads to `on_error`",
        ),
        (
            "action: {item_id: x}, effect: at_most_once, retry: 2",
            53,
            "provably never began",
        ),
    ] {
        let text = with_nodes(&format!("a: {{{keys}, next: b}}\nb: {{type: return}}"));
        expect(&text, Severity::Warning, "no_effect", (9, column), part);
    }
}

#[test]
fn hook_answer_to_wrong_event_is_reported() {
    for (hook, place) in [
        ("{event: after_step, action: {retry: true}}", (8, 39)),
        (
            "{event: limit, action: {item_id: rye/agent/threads/internal/control, params: {action: skip}}}",
            (8, 34),
        ),
    ] {
        expect(
            &hooks(hook),
            Severity::Warning,
            "no_effect",
            place,
            "answers the event `error`",
        );
    }
    for (event, answer, why) in [
        (
            "graph_completed",
            "action: fail",
            "stops a run that has not ended",
        ),
        (
            "graph_completed",
            "action: abort",
            "stops a run that has not ended",
        ),
        (
            "graph_completed",
            "action: suspend",
            "stops a run that has not ended",
        ),
        (
            "graph_completed",
            "action: escalate",
            "stops a run that has not ended",
        ),
        ("graph_completed", "action: continue", "`error` and `limit`"),
        ("graph_started", "action: continue", "`error` and `limit`"),
        ("after_step", "action: continue", "`error` and `limit`"),
    ] {
        let hook = format!(
            "{{event: {event}, action: {{item_id: rye/agent/threads/internal/control, params: {{{answer}}}}}}}"
        );
        let column = 29 + event.len();
        expect(
            &hooks(&hook),
            Severity::Warning,
            "no_effect",
            (8, column),
            why,
        );
    }
    let pasted = hooks(
        "{event: error, action: {item_id: rye/bash, params: {command: \"echo ${error.error}\"}}}",
    );
    expect(
        &pasted,
        Severity::Warning,
        "pasted_template",
        (8, 72),
        "`env` or `args`",
    );
}
