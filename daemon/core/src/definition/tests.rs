use crate::capability::Primary;
use crate::id::ItemKind;
use crate::id::ItemRef;
use crate::model::Durability;
use crate::model::Effect;
use crate::model::Object;
use crate::model::Recovery;
use crate::money::Usd;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

mod closer;
mod diagrams;
mod language;
mod reference;
mod scope;

const HEAD: &str = "version: \"1.0.0\"\ntool_type: graph\nexecutor_id: rye/core/runtimes/state-graph/runtime\n\
                    category: demo\npermissions: [\"rye.execute.tool.*\"]\n";

/// A graph with these nodes, starting at `a`; the nodes begin on line 9.
fn with_nodes(nodes: &str) -> String {
    let mut text = format!("{HEAD}config:\n  start: a\n  nodes:\n");
    for line in nodes.lines() {
        text = text + "    " + line + "\n";
    }
    text
}

fn graph(text: &str) -> (Graph, Vec<Finding>) {
    let read = parse(text).unwrap_or_else(|findings| panic!("{text}\n{findings:#?}"));
    keys::tests::assert_fits(text);
    read
}

fn findings(text: &str) -> Vec<Finding> {
    match parse(text) {
        Ok((_, warnings)) => {
            keys::tests::assert_fits(text);
            warnings
        }
        Err(findings) => findings,
    }
}

/// Asserts that `text` has exactly one finding of that code, at that line and column.
#[track_caller]
fn expect(text: &str, severity: Severity, code: &str, place: (usize, usize), part: &str) {
    let found: Vec<Finding> = findings(text)
        .into_iter()
        .filter(|f| f.code == code)
        .collect();
    assert_eq!(found.len(), 1, "{code} in\n{text}\n{:#?}", findings(text));
    assert_eq!(
        (found[0].line, found[0].column),
        place,
        "{}\n{text}",
        found[0]
    );
    assert!(found[0].message.contains(part), "{}", found[0]);
    assert_eq!(found[0].severity, severity, "{}", found[0]);
}

#[test]
fn a_whole_graph_is_read_into_types() {
    let (graph, warnings) = graph(
        "# rye:signed:x\nversion: \"1.2.0\"\ntool_type: graph\nname: stats\ncategory: demo/x\ndescription: counts\n\
         author: ann\ntags: [a]\nx-note: {any: thing}\npermissions: [rye.execute.tool.rye.bash, rye.load.knowledge.*]\n\
         config_schema:\n  type: object\n  properties:\n    directory: {type: string, default: .}\n\
         config:\n  start: count\n  max_steps: 7\n  on_error: continue\n  recovery: suspend\n  durability: relaxed\n\
         \x20 state: {n: 1}\n  hooks: []\n  nodes:\n\
         \x20   count:\n      comment: c\n      effect: pure\n      action:\n        item_id: tool:rye/bash\n\
         \x20       params: {command: ls, args: [\"${inputs.directory}\"]}\n      assign: {z: \"${result.stdout}\", a: 1}\n\
         \x20     on_error: done\n      next:\n      - {to: done, when: {path: state.n, op: gt, value: 0}}\n\
         \x20     - to: check\n\
         \x20   check: {assign: {m: 2}, next: done}\n    done: {type: return, output: {n: \"${state.z}\"}}\n",
    );
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert_eq!(warnings[0].code, "old_spelling");
    assert_eq!(
        (graph.version.as_str(), graph.category.as_str()),
        ("1.2.0", "demo/x")
    );
    assert_eq!(
        (graph.name.as_deref(), graph.description.as_str()),
        (Some("stats"), "counts")
    );
    assert_eq!(
        graph.permissions,
        Some(vec![
            "rye.execute.tool.rye.bash".to_owned(),
            "rye.fetch.knowledge.*".to_owned()
        ])
    );
    assert_eq!(
        (graph.start.as_str(), graph.max_steps, graph.on_error),
        ("count", Some(7), OnError::Continue)
    );
    assert_eq!(
        (graph.recovery, graph.durability),
        (Some(Recovery::Suspend), Some(Durability::Relaxed))
    );
    assert_eq!(Value::Object(graph.state.clone()), json!({"n": 1}));
    let names: Vec<&str> = graph.nodes.iter().map(|node| node.name.as_str()).collect();
    assert_eq!(names, ["count", "check", "done"]);
    let count = graph.nodes.get("count").unwrap();
    assert_eq!(
        count.work,
        Work::Action(Action {
            primary: Primary::Execute,
            kind: ItemKind::Tool,
            id: "rye/bash".to_owned(),
            params: json!({"command": "ls", "args": ["${inputs.directory}"]}),
        })
    );
    assert_eq!(
        count.assign,
        [
            ("z".to_owned(), json!("${result.stdout}")),
            ("a".to_owned(), json!(1))
        ]
    );
    assert_eq!(
        (count.on_error.as_deref(), count.effect),
        (Some("done"), Effect::Pure)
    );
    assert!(
        matches!(&count.next, Next::Edges(edges) if edges.len() == 2 && edges[0].when.is_some() && edges[1].when.is_none())
    );
    let check = graph.nodes.get("check").unwrap();
    assert!(check.work == Work::Gate && matches!(&check.next, Next::Always(to) if to == "done"));
    assert_eq!(
        graph.nodes.get("done").unwrap().work,
        Work::Return {
            output: Some(json!({"n": "${state.z}"}))
        }
    );
}

#[test]
fn defaults_are_those_of_the_language() {
    let text =
        with_nodes("a: {type: return}").replace("permissions: [\"rye.execute.tool.*\"]\n", "");
    let (graph, warnings) = graph(&text);
    assert!(warnings.is_empty(), "{warnings:?}");
    assert_eq!((graph.max_steps, graph.on_error), (None, OnError::Fail));
    assert_eq!((graph.recovery, graph.durability), (None, None));
    assert_eq!(graph.permissions, None);
}

/// Nodes, the code of their one error, its line and column, and a part of its text.
type Row = (&'static str, &'static str, (usize, usize), &'static str);

const BROKEN_NODES: &[Row] = &[
    (
        "a: {actoin: {item_id: x}, type: return}",
        "unknown_key",
        (9, 9),
        "did you mean `action`?",
    ),
    (
        "a: {next: [{to: b, if: 1}]}\nb: {type: return}",
        "unknown_key",
        (9, 24),
        "its keys are to, when",
    ),
    (
        "a: {action: {item_id: x, parms: {}}}",
        "unknown_key",
        (9, 30),
        "`params`",
    ),
    (
        "a: {action: {item_id: x, item_type: config}}",
        "unknown_value",
        (9, 41),
        "a config is not executed; `primary: fetch` reads it",
    ),
    (
        "a: {action: {item_id: \"knowledge:x\"}}",
        "unknown_value",
        (9, 27),
        "not executed",
    ),
    (
        "a: {action: {primary: fetch, item_id: x, params: {query: y}}}",
        "unknown_value",
        (9, 43),
        "do not go together",
    ),
    (
        "a: {action: {primary: fetch}}",
        "missing_key",
        (9, 17),
        "item_id",
    ),
    (
        "a: {action: {item_id: x}, remote: gpu}",
        "unknown_key",
        (9, 31),
        "no fleet yet",
    ),
    (
        "a: {next: stpe}\nstep: {type: return}",
        "unknown_node",
        (9, 15),
        "did you mean `step`?",
    ),
    (
        "a: {next: [{to: c}]}\nb: {type: return}",
        "unknown_node",
        (9, 21),
        "`c`",
    ),
    (
        "a: {action: {item_id: x}, on_error: fail}",
        "unknown_node",
        (9, 41),
        "`config.on_error`",
    ),
    (
        "a: {type: retrun}",
        "unknown_type",
        (9, 15),
        "did you mean `return`?",
    ),
    (
        "a: {comment: nothing}",
        "missing_action",
        (9, 5),
        "does nothing",
    ),
    (
        "a: {assign: {inputs: 1}}",
        "bad_assign",
        (9, 18),
        "never change",
    ),
    (
        "a: {next: [{when: {path: x}}]}",
        "missing_key",
        (9, 16),
        "`to` is missing",
    ),
    (
        "a: {next: [b]}\nb: {type: return}",
        "wrong_type",
        (9, 16),
        "write {to: b}",
    ),
    ("a: {next: 5}", "wrong_type", (9, 15), "list of edges"),
    (
        "a: {assign: {ids: \"${state.ids + [x]}\"}}",
        "bad_template",
        (9, 23),
        "foreach node with `collect`",
    ),
    (
        "a: {action: {item_id: x, params: {p: [\"${a |b}\"]}}}",
        "bad_template",
        (9, 43),
        "no pipe `b`",
    ),
    (
        "a: {action: {item_id: \"x/${}\"}}",
        "bad_template",
        (9, 27),
        "names nothing",
    ),
    (
        "a: {type: return, output: \"${}\"}",
        "bad_template",
        (9, 31),
        "names nothing",
    ),
    (
        "a: {next: [{to: a, when: {path: x, op: above, value: 1}}]}",
        "bad_condition",
        (9, 44),
        "unknown op `above`",
    ),
    (
        "a: {next: [{to: a, when: false}]}",
        "bad_condition",
        (9, 30),
        "a condition is a map",
    ),
    (
        "a: {action: {item_id: ../x}}",
        "bad_item_id",
        (9, 27),
        "cannot leave their space",
    ),
    (
        "a: {action: {item_id: \"tool:/x\"}}",
        "bad_item_id",
        (9, 27),
        "absolute",
    ),
    (
        "a: {action: {params: {}}}",
        "missing_key",
        (9, 17),
        "`item_id` is missing",
    ),
    (
        "a: {action: {item_id: x, item_type: gadget}}",
        "unknown_value",
        (9, 41),
        "gadget",
    ),
    (
        "a: {action: {item_id: x, primary: run}}",
        "unknown_value",
        (9, 39),
        "execute, fetch, sign",
    ),
    (
        "a: {action: {item_id: x, params: [1]}}",
        "wrong_type",
        (9, 38),
        "must be a map, not a list",
    ),
    (
        "a: {action: {item_id: x}, effect: once}",
        "unknown_value",
        (9, 39),
        "idempotent, pure",
    ),
];

#[test]
fn errors_of_nodes_name_place_and_fix() {
    for (nodes, code, place, part) in BROKEN_NODES {
        let text = with_nodes(nodes);
        expect(&text, Severity::Error, code, *place, part);
        assert!(parse(&text).is_err(), "{text}");
    }
}

/// A part of the sound graph, its replacement, and the resulting error.
const BROKEN_FILES: &[(&str, Row)] = &[
    (
        "config:\n",
        (
            "nodes: {}\nconfig:\n",
            "unknown_key",
            (6, 1),
            "belongs below `config`",
        ),
    ),
    (
        "  start: a",
        (
            "  start: a\n  max_step: 3",
            "unknown_key",
            (8, 3),
            "`max_steps`",
        ),
    ),
    (
        "start: a",
        ("start: z", "unknown_node", (7, 10), "`start` names no node"),
    ),
    (
        "  start: a",
        (
            "  start: a\n  state: {inputs: {}}",
            "bad_assign",
            (8, 11),
            "defaults in `config_schema`",
        ),
    ),
    (
        "category: demo\n",
        ("", "missing_key", (1, 1), "`category` is missing"),
    ),
    ("\"1.0.0\"", ("1.0", "wrong_type", (1, 10), "in quotes")),
    (
        "tool_type: graph",
        ("tool_type: python", "unknown_value", (2, 12), "`graph`"),
    ),
    (
        "[\"rye.execute.tool.*\"]",
        ("all", "wrong_type", (5, 14), "list of texts"),
    ),
    (
        "  start: a",
        (
            "  start: a\n  max_steps: -1",
            "wrong_type",
            (8, 14),
            "from 0 to",
        ),
    ),
    (
        "  start: a",
        (
            "  start: a\n  on_error: ignore",
            "unknown_value",
            (8, 13),
            "fail, continue",
        ),
    ),
    (
        "  start: a\n",
        ("", "missing_key", (7, 3), "`start` is missing"),
    ),
    (
        "    a: {type: return}",
        ("    {}", "missing_key", (9, 5), "at least one node"),
    ),
    (
        "config:\n",
        (
            "config_schema: {type: objekt}\nconfig:\n",
            "bad_schema",
            (6, 23),
            "not a JSON schema",
        ),
    ),
    (
        "config:\n",
        (
            "config_schema: {properties: {n: {type: integer, default: x}}}\nconfig:\n",
            "bad_schema",
            (6, 58),
            "breaks its own schema",
        ),
    ),
    (
        "config:\n",
        (
            "config_schema: {$ref: 'http://example.com/s.json'}\nconfig:\n",
            "bad_schema",
            (6, 16),
            "",
        ),
    ),
];

#[test]
fn errors_of_files_name_place_and_fix() {
    let sound = with_nodes("a: {type: return}");
    for (from, (to, code, place, part)) in BROKEN_FILES {
        let text = sound.replacen(from, to, 1);
        expect(&text, Severity::Error, code, *place, part);
        assert!(parse(&text).is_err(), "{text}");
    }
    expect("a: [\n", Severity::Error, "yaml", (2, 1), "");
    expect(
        "just text",
        Severity::Error,
        "wrong_type",
        (1, 1),
        "map of keys",
    );
    expect(
        HEAD,
        Severity::Error,
        "missing_key",
        (1, 1),
        "`config` is missing",
    );
}

const DOUBTFUL_NODES: &[Row] = &[
    (
        "a: {assign: {x: 1}}",
        "no_return_node",
        (8, 3),
        "no node has `type: return`",
    ),
    (
        "a: {type: return}\nb: {type: return}",
        "unreachable_node",
        (10, 5),
        "nothing leads",
    ),
    (
        "a: {type: gate, action: {item_id: x}, next: b}\nb: {type: return}",
        "no_effect",
        (9, 21),
        "a gate runs no",
    ),
    (
        "a: {type: return, assign: {x: 1}}",
        "no_effect",
        (9, 23),
        "on a return node",
    ),
    (
        "a: {output: 1, next: b}\nb: {type: return}",
        "no_effect",
        (9, 9),
        "on a return or fail node only",
    ),
    (
        "a: {next: [{to: b}, {to: a}]}\nb: {type: return}",
        "no_effect",
        (9, 25),
        "never taken",
    ),
    (
        "a: {assign: {a.b: 1}, next: b}\nb: {type: return}",
        "bad_assign",
        (9, 18),
        "no path can read it",
    ),
    (
        "a: {next: [{to: b, when: {path: inputs.x, operator: eq, value: 1}}]}\nb: {type: return}",
        "bad_condition",
        (9, 57),
        "read as `op`",
    ),
    (
        "a: {assign: {count: 1}, next: b}\nb: {type: return, output: \"${state.cuont}\"}",
        "unassigned_state",
        (10, 31),
        "did you mean state.count?",
    ),
    (
        "a: {action: {item_id: rye/bash, params: {command: \"ls ${inputs.d}\"}}, next: b}\nb: {type: return}",
        "pasted_template",
        (9, 55),
        "`env` or `args`",
    ),
    (
        "a: {assign: {x: no}, next: b}\nb: {type: return}",
        "yaml_1_1",
        (9, 21),
        "YAML 1.1 reads false",
    ),
    (
        "a: {type: return, output: \"${x\"}",
        "bad_template",
        (9, 31),
        "stays text",
    ),
];

#[test]
fn limits_of_a_graph_are_read_or_refused_by_name() {
    let limited = |limits: &str| {
        let text = with_nodes("a: {type: return}");
        text.replacen("config:\n", &format!("limits: {limits}\nconfig:\n"), 1)
    };
    let (read, warnings) = graph(&limited(
        "{spend: 0.5, spawns: 0, depth: 2, turns: 3, tokens: 900, duration: 1.5}",
    ));
    let expected = GraphLimits {
        spend: Usd::parse("0.5").ok(),
        spawns: Some(0),
        depth: Some(2),
        turns: Some(3),
        tokens: Some(900),
        duration_ms: Some(1500),
    };
    assert_eq!((read.limits, warnings.len()), (expected, 0));
    assert_eq!(
        graph(&limited("{spend: null}")).0.limits,
        GraphLimits::default()
    );
    for (limits, code, column, part) in [
        ("5", "wrong_type", 9, "a map such as"),
        ("{spawns: -1}", "wrong_type", 18, "`spawns`"),
        ("{depth: many}", "wrong_type", 17, "`depth`"),
        ("{spend: -1}", "bad_amount", 17, "`limits.spend`"),
        ("{turns: 1.5}", "wrong_type", 17, "`turns`"),
        ("{duration: long}", "wrong_type", 20, "`duration`"),
    ] {
        expect(&limited(limits), Severity::Error, code, (6, column), part);
    }
}

#[test]
fn action_on_directive_accepts_all_spellings() {
    for action in [
        "{item_id: t/d, item_type: directive, params: {dir: src}}",
        "{item_id: t/d, kind: directive}",
        "{item_id: \"directive:t/d\"}",
    ] {
        let (read, _) = graph(&with_nodes(&format!("a: {{action: {action}}}")));
        let actions: Vec<_> = read.actions().filter_map(Action::named).collect();
        let directive = ItemRef::parse("directive:t/d", ItemKind::Tool).unwrap();
        assert_eq!(actions, [directive], "{action}");
    }
}

#[test]
fn search_action_names_search_tool_or_nothing() {
    for action in [
        "{primary: fetch, params: {query: y}}",
        "{primary: fetch, item_id: rye/core/fetch, params: {query: y}}",
        "{primary: fetch, item_id: \"tool:rye/core/fetch\", params: {query: y}}",
    ] {
        let (read, _) = graph(&with_nodes(&format!("a: {{action: {action}}}")));
        let actions = read.actions();
        let actions: Vec<_> = actions
            .map(|action| (action.id.as_str(), action.is_of_many()))
            .collect();
        assert_eq!(actions, [("rye/core/fetch", true)], "{action}");
    }
}

#[test]
fn doubtful_graphs_run_with_a_warning() {
    for (nodes, code, place, part) in DOUBTFUL_NODES {
        let text = with_nodes(nodes);
        expect(&text, Severity::Warning, code, *place, part);
        graph(&text);
    }
    let sound = with_nodes("a: {type: return}");
    for (from, to, code, place, part) in [
        (
            "config:\n",
            "limits: {steps: 3, spend: 0.5}\nconfig:\n",
            "no_effect",
            (6, 10),
            "`spend`, `spawns` and `depth` bind a graph",
        ),
        (
            "rye.execute.tool.*",
            "rye.search.*",
            "old_spelling",
            (5, 15),
            "`rye.fetch.*`",
        ),
        (
            "rye.execute.tool.*",
            "execute",
            "no_effect",
            (5, 15),
            "allows nothing",
        ),
    ] {
        let text = sound.replacen(from, to, 1);
        expect(&text, Severity::Warning, code, place, part);
        graph(&text);
    }
}

#[test]
fn findings_are_sorted_by_position() {
    let found = findings(&with_nodes(
        "a: {next: x, colour: red}\nb: {type: odd}\nc: {}",
    ));
    let seen: Vec<(&str, Option<&str>)> =
        found.iter().map(|f| (f.code, f.node.as_deref())).collect();
    assert_eq!(
        seen,
        [
            ("unknown_node", Some("a")),
            ("unknown_key", Some("a")),
            ("unknown_type", Some("b")),
            ("missing_action", Some("c"))
        ]
    );
    assert_eq!(
        found[0].to_string(),
        "9:15: node `a`: `next` names no node: `x`"
    );
}

#[test]
fn an_item_may_be_named_in_every_form() {
    for action in [
        "{item_id: x/y}",
        "{item_id: \"tool:x/y\"}",
        "{kind: tool, item_id: x/y}",
        "{item_type: tool, kind: tool, item_id: \"tool:x/y\", primary: execute}",
    ] {
        let (graph, _) = graph(&with_nodes(&format!("a: {{action: {action}}}")));
        assert!(
            matches!(&graph.nodes.get("a").unwrap().work, Work::Action(action) if action.id == "x/y" && action.kind == ItemKind::Tool)
        );
    }
    let (graph, _) = graph(&with_nodes(
        "a: {action: {item_id: \"{input:t:x}/${state.y || inputs.z}\"}, assign: {y: 1}}",
    ));
    assert!(
        matches!(&graph.nodes.get("a").unwrap().work, Work::Action(action) if action.id.starts_with("{input:t:x}"))
    );
}

fn object(value: Value) -> Object {
    match value {
        Value::Object(map) => map,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            panic!("not a map")
        }
    }
}

fn greeter() -> Graph {
    let schema = "config_schema:\n  type: object\n  required: [who]\n  properties:\n    who: {type: string, pattern: '^[A-Z]'}\n\
                  \x20   n: {type: integer, default: 3}\n    mood: {enum: [calm, loud], default: calm}\n    free: {}\n";
    graph(&format!("{}{schema}", with_nodes("a: {type: return}"))).0
}

#[test]
fn inputs_apply_defaults_and_refuse_undeclared() {
    let (inputs, warnings) = greeter()
        .inputs(object(json!({"who": "Ann", "free": null})))
        .unwrap();
    assert_eq!(
        Value::Object(inputs),
        json!({"who": "Ann", "free": null, "n": 3, "mood": "calm"})
    );
    assert_eq!(warnings, [""; 0]);
    for (name, told) in [
        ("moood", "there is no input `moood` (did you mean `mood`?)"),
        (
            "extra",
            "there is no input `extra`; there are who, n, mood, free",
        ),
    ] {
        let given = object(json!({"who": "Ann", name: 1}));
        let failure = greeter().inputs(given).unwrap_err();
        let message = format!("input validation failed: {told}");
        assert_eq!(failure.message, message);
    }
    let taken = |schema: &str| {
        let text = format!(
            "{}config_schema: {schema}\n",
            with_nodes("a: {type: return}")
        );
        graph(&text).0.inputs(object(json!({"extra": 1})))
    };
    for open in [
        "{properties: {n: {}}, additionalProperties: true}",
        "{properties: {n: {}}, patternProperties: {'^e': {}}}",
        "{type: object}",
    ] {
        assert!(taken(open).is_ok(), "{open}");
    }
    let failure = taken("{properties: {n: {}}, additionalProperties: false}").unwrap_err();
    assert!(
        failure.message.contains("there is no input `extra`"),
        "{}",
        failure.message
    );
}

#[test]
fn inputs_that_break_the_schema_are_named_with_the_fix() {
    for (given, message) in [
        (
            json!({}),
            "missing required input `who` (string): give it with -i who=…, or in the parameters of a call",
        ),
        (
            json!({"who": null}),
            "input `who`: null is not of type \"string\"",
        ),
        (
            json!({"who": "Ann", "n": null}),
            "input `n`: null is not of type \"integer\" (leave it out to get the default)",
        ),
        (
            json!({"who": "Ann", "n": "x"}),
            "input `n`: \"x\" is not of type \"integer\"",
        ),
        (
            json!({"who": "ann"}),
            "input `who`: \"ann\" does not match \"^[A-Z]\"",
        ),
        (
            json!({"who": "Ann", "mood": "sad"}),
            "input `mood`: \"sad\" is not one of \"calm\" or \"loud\"",
        ),
    ] {
        let failure = greeter().inputs(object(given)).unwrap_err();
        assert_eq!(failure.code, "input_validation_failed");
        assert_eq!(
            failure.message,
            format!("input validation failed: {message}")
        );
    }
    let long = greeter()
        .inputs(object(json!({"who": "Ann", "n": "x".repeat(3_000_000)})))
        .unwrap_err();
    assert!(long.message.len() < 1000);
}

#[test]
fn command_line_inputs_take_the_declared_type() {
    let schema = json!({"properties": {
        "s": {"type": "string"}, "i": {"type": "integer"}, "f": {"type": "number"}, "b": {"type": "boolean"},
        "l": {"type": "array"}, "o": {"type": "object"}, "m": {"type": ["integer", "string"]}, "e": {"enum": [1, "two"]}, "any": {},
    }});
    for (key, text, expected) in [
        ("s", "5", json!("5")),
        ("i", "5", json!(5)),
        ("i", "5.5", json!("5.5")),
        (
            "i",
            "123456789012345678901234567890",
            json!("123456789012345678901234567890"),
        ),
        ("f", "1e3", json!(1000.0)),
        ("b", "true", json!(true)),
        ("b", "yes", json!("yes")),
        ("l", "[1, 2]", json!([1, 2])),
        ("l", "1,2", json!("1,2")),
        ("o", "{\"a\": 1}", json!({"a": 1})),
        ("m", "5", json!(5)),
        ("m", "x", json!("x")),
        ("e", "1", json!(1)),
        ("e", "two", json!("two")),
        ("any", "5", json!("5")),
        ("unknown", "5", json!("5")),
    ] {
        assert_eq!(coerce(Some(&schema), key, text), expected, "{key}={text}");
    }
    assert_eq!(coerce(None, "x", "1"), json!("1"));
}

/// A line of a node, sound or not.
fn any_node() -> impl Strategy<Value = String> {
    let target = "[a-d]";
    prop_oneof![
        Just("{type: return}".to_owned()),
        target.prop_map(|to| format!("{{next: {to}}}")),
        (target, target).prop_map(|(to, err)| format!("{{action: {{item_id: x}}, next: {to}, on_error: {err}}}")),
        (target, target, "eq|gt|odd").prop_map(|(a, b, op)| format!(
            "{{assign: {{x: \"${{state.x}}\"}}, next: [{{to: {a}, when: {{path: state.x, op: {op}, value: 1}}}}, {{to: {b}}}]}}"
        )),
        "\\PC{0,20}".prop_map(|text| format!("{{comment: {text}}}")),
    ]
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "\\PC*|[-a-c0-3:?&*!|>'\"{}\\[\\],#<$. \n]{0,80}") {
        prop_assert!(parse(&text).is_err());
        drop(parse(&with_nodes(&format!("a: {text}"))));
        drop(parse(&format!("{HEAD}config: {text}")));
    }

    #[test]
    fn targets_of_a_sound_graph_exist(nodes in proptest::collection::vec(any_node(), 1..5)) {
        let lines: Vec<String> = nodes.iter().zip('a'..).map(|(node, name)| format!("{name}: {node}")).collect();
        match parse(&with_nodes(&lines.join("\n"))) {
            Ok((graph, warnings)) => {
                prop_assert!(warnings.iter().all(|f| f.severity == Severity::Warning));
                prop_assert!(graph.nodes.get(&graph.start).is_some());
                prop_assert_eq!(graph.nodes.len(), nodes.len());
                for node in &graph.nodes {
                    let mut targets: Vec<&str> = node.on_error.as_deref().into_iter().collect();
                    match &node.next {
                        Next::End => {}
                        Next::Always(to) => targets.push(to),
                        Next::Edges(edges) => targets.extend(edges.iter().map(|edge| edge.to.as_str())),
                    }
                    for target in targets {
                        prop_assert!(graph.nodes.get(target).is_some(), "{}", target);
                    }
                }
            }
            Err(found) => prop_assert!(found.iter().any(|f| f.severity == Severity::Error)),
        }
    }
}

#[test]
fn empty_and_wrapped_conditions_are_reported() {
    for (list, told) in [
        ("any", "`any: []` never holds"),
        ("all", "`all: []` always holds"),
    ] {
        let text = with_nodes(&format!(
            "a: {{next: [{{to: b, when: {{{list}: []}}}}]}}\nb: {{type: return}}"
        ));
        let found = findings(&text);
        assert!(
            found
                .iter()
                .any(|f| f.code == "bad_condition" && f.message == told),
            "{found:#?}"
        );
    }
    let text = with_nodes(
        "a: {next: [{to: b, when: {path: \"${state.n}\", value: 1}}]}\nb: {type: return}",
    );
    let found = findings(&text);
    let told = "a path is without `${}`: write `state.n`";
    assert!(found.iter().any(|f| f.message == told), "{found:#?}");
}

#[test]
fn list_item_is_named_by_index() {
    let text = with_nodes("a: {type: return}").replace(
        "  start: a",
        "  start: a\n  hooks: [{event: limit, action: {item_id: x}}, 7]",
    );
    let found = findings(&text);
    assert!(
        found
            .iter()
            .any(|f| f.message == "item 2 of `hooks` must be a map, not a number"),
        "{found:#?}"
    );
    let text = with_nodes("a: {type: return}").replace("rye.execute.tool.*\"", "rye.*\", 6");
    let found = findings(&text);
    assert!(
        found.iter().any(|f| f
            .message
            .starts_with("item 2 of `permissions` must be a text")),
        "{found:#?}"
    );
}
