//! Names and keys of results that do not exist are errors at every place.

use super::*;

/// Nodes that read a name, the line and column and a part of the error.
const UNKNOWN_NAMES: &[(&str, (usize, usize), &str)] = &[
    (
        "a: {action: {item_id: rye/bash, params: {command: 'for f in one two; do rm -rf \"build/${f}\"; done'}}}",
        (9, 55),
        "no `f` here; there are state, inputs, services, _now, _timestamp; for the shell write `$${f}`",
    ),
    ("a: {action: {item_id: \"x/${f}\"}}", (9, 27), "no `f`"),
    (
        "a: {action: {item_id: x, params: {p: [1, {q: \"${f}\"}]}}}",
        (9, 50),
        "no `f`",
    ),
    (
        "a: {action: {item_id: x, params: {p: \"${result.x}\"}}, next: b}\nb: {type: return}",
        (9, 42),
        "only in `assign` and `next`",
    ),
    (
        "a: {assign: {x: \"${result}\"}, next: b}\nb: {type: return}",
        (9, 21),
        "only in `assign` and `next` of a node that uses an item",
    ),
    (
        "a: {next: [{to: b, when: {path: result.x, value: 1}}]}\nb: {type: return}",
        (9, 30),
        "only in `assign` and `next` of a node that uses an item",
    ),
    (
        "a: {next: [{to: b, when: {not: {any: [{path: inputs.x, op: eq, value_path: states.x}]}}}]}\nb: {type: return}",
        (9, 30),
        "no `states` here (did you mean `state`?)",
    ),
    (
        "a: {type: return, output: \"${input.n}\"}",
        (9, 31),
        "did you mean `inputs`?",
    ),
    (
        "a: {type: return, output: [{x: \"n ${inputs.y || n}\"}]}",
        (9, 36),
        "there are state, inputs",
    ),
    ("a: {type: fail, message: \"${f}\"}", (9, 30), "no `f`"),
    (
        "a: {type: fail, message: m, output: \"${f}\"}",
        (9, 41),
        "no `f`",
    ),
    ("a: {type: wait, for: \"${f}\"}", (9, 26), "no `f`"),
    ("a: {type: wait, until: \"${f}\"}", (9, 28), "no `f`"),
    ("a: {type: approval, message: \"${f}\"}", (9, 34), "no `f`"),
    (
        "a: {type: parallel, branches: {x: {item_id: x, params: {p: \"${x}\"}}}}",
        (9, 64),
        "no `x`",
    ),
    (
        "a: {type: foreach, over: \"${item}\", action: {item_id: x}}",
        (9, 30),
        "no `item` here",
    ),
    (
        "a: {type: foreach, over: [], as: f, action: {item_id: x, params: {p: \"${item} ${f}\"}}}",
        (9, 74),
        "no `item` here; there are state, inputs, services, _now, _timestamp, f",
    ),
    (
        "a: {type: foreach, over: [], action: {item_id: x}, assign: {y: \"${item}\"}}",
        (9, 68),
        "no `item` here",
    ),
    (
        "a: {type: foreach, over: [], action: {item_id: x}, collect: l, collect_value: \"${item} ${f}\"}",
        (9, 83),
        "no `f` here; there are state, inputs, services, _now, _timestamp, result, item",
    ),
];

#[test]
fn unknown_name_is_an_error_everywhere() {
    for (nodes, place, part) in UNKNOWN_NAMES {
        expect(
            &with_nodes(nodes),
            Severity::Error,
            "unknown_name",
            *place,
            part,
        );
    }
}

#[test]
fn one_name_is_reported_once_for_each_node() {
    let nodes = "a: {action: {item_id: x, params: {p: \"${f}\", q: \"${f} ${g}\"}}, next: b}\nb: {type: return, output: \"${f}\"}";
    let found = parse(&with_nodes(nodes)).unwrap_err();
    let places: Vec<(usize, usize)> = errors(&found).map(|f| (f.line, f.column)).collect();
    assert_eq!(places, [(9, 42), (9, 53), (10, 31)], "{found:#?}");
}

#[test]
fn shell_text_is_no_expression() {
    for nodes in [
        "a: {action: {item_id: rye/bash, params: {command: 'for f in a b; do echo \"$${f}\" $${f%.txt} $${#f} $${x:-$${y}}; done'}}, next: b}\nb: {type: return}",
        "a: {action: {item_id: rye/bash, params: {command: 'a=(1); echo $${a[@]}'}}, next: b}\nb: {type: return}",
        "a: {type: foreach, over: [1], as: f, action: {item_id: x, params: {p: \"$${f} $${g}\"}}, next: b}\nb: {type: return}",
        "a: {type: return, output: \"$${result} $${item} $${node}\"}",
    ] {
        let seen = validate(&with_nodes(nodes));
        assert_eq!((seen.errors, seen.warnings), (vec![], vec![]), "{nodes}");
    }
    // A pasted value after a dollar sign is reported like any other.
    let pasted =
        with_nodes("a: {action: {item_id: rye/bash, params: {command: \"echo $${inputs.x}\"}}}");
    expect(
        &pasted,
        Severity::Warning,
        "pasted_template",
        (9, 55),
        "by `env`",
    );
}

#[test]
fn configured_hook_with_unknown_name_is_refused() {
    for (condition, param) in [("nothing.x", "1"), ("error.code", "${result}")] {
        let hook = json!({"event": "error", "condition": {"path": condition, "value": 1}, "action": {"item_id": "x", "params": {"p": param}}});
        let wrong = Hook::from_value(&hook, "h").unwrap_err();
        assert!(wrong.contains("here at the event `error`"), "{wrong}");
    }
    let hook = json!({"event": "error", "condition": {"path": "classification.retryable", "value": true}, "action": {"item_id": "x", "params": {"p": "${state.x} ${node} $${f}"}}});
    Hook::from_value(&hook, "h").unwrap();
}

/// Nodes that read a key which their result never has, the line and column and a part of the error.
const UNKNOWN_RESULTS: &[(&str, (usize, usize), &str)] = &[
    (
        "a: {type: parallel, branches: {lint: {item_id: x}}, assign: {f: \"${result.lnt.stdout}\"}}",
        (9, 69),
        "reads result.lnt.stdout, but the result of this node never has `lnt` (did you mean result.lint?); it has lint, count, failed, succeeded",
    ),
    (
        "a: {type: parallel, branches: {lint: {item_id: x}}, next: [{to: a, when: {path: result.errors, op: gt, value: 0}}]}",
        (9, 78),
        "never has `errors`",
    ),
    (
        "a: {type: foreach, over: [], action: {item_id: x}, assign: {f: \"${state.y || result.faild}\"}}",
        (9, 68),
        "(did you mean result.failed?); it has results, count, failed, succeeded",
    ),
    (
        "a: {type: foreach, over: [], action: {item_id: x}, assign: {f: \"${result[0]}\"}}",
        (9, 68),
        "never has `0`",
    ),
    (
        "a: {type: approval, message: m, assign: {f: \"${result.approve}\"}}",
        (9, 49),
        "it has approved, answer, comment, by, at",
    ),
];

#[test]
fn unknown_result_key_is_an_error() {
    for (nodes, place, part) in UNKNOWN_RESULTS {
        expect(
            &with_nodes(nodes),
            Severity::Error,
            "unknown_result",
            *place,
            part,
        );
    }
    for nodes in [
        "a: {type: parallel, branches: {lint: {item_id: x}}, assign: {f: \"${result.failed}${result.lint.stdout}${result}\"}, next: [{to: b, when: {path: result.succeeded, op: lt, value_path: result.count}}]}\nb: {type: return, output: \"${state}\"}",
        "a: {type: foreach, over: [], action: {item_id: x}, collect: l, collect_value: \"${result.any}\", assign: {f: \"${result.results[0].any}${result.failed}\"}, next: b}\nb: {type: return, output: \"${state}\"}",
        "a: {type: approval, message: m, assign: {f: \"${result.answer.any}\"}, next: b}\nb: {type: return, output: \"${state}\"}",
        "a: {action: {item_id: x}, assign: {f: \"${result.any}\"}, next: b}\nb: {type: return, output: \"${state}\"}",
    ] {
        let seen = validate(&with_nodes(nodes));
        assert_eq!((seen.errors, seen.warnings), (vec![], vec![]), "{nodes}");
    }
}

#[test]
fn branch_named_like_an_index_is_warned() {
    let nodes = "a: {type: parallel, branches: {failed: {item_id: x}, lint: {item_id: x}}, assign: {f: \"${result.failed.stdout}\"}}";
    expect(
        &with_nodes(nodes),
        Severity::Warning,
        "shadowed_result",
        (9, 36),
        "`result.failed`, in place of the number",
    );
}
