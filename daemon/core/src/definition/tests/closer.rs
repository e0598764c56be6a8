//! Findings of the thorough check only.

use super::*;
use crate::id::ItemRef;
use crate::model::Object;

/// Asserts that the thorough check has exactly one finding of that code, at that line and column.
#[track_caller]
fn finds(text: &str, code: &str, place: (usize, usize), part: &str) {
    let seen = validate(text);
    assert_eq!(seen.errors, [], "{text}");
    let found: Vec<&Finding> = seen.warnings.iter().filter(|f| f.code == code).collect();
    assert_eq!(found.len(), 1, "{code} in\n{text}\n{:#?}", seen.warnings);
    assert_eq!(
        (found[0].line, found[0].column),
        place,
        "{}\n{text}",
        found[0]
    );
    assert!(found[0].message.contains(part), "{}", found[0]);
}

#[track_caller]
fn finds_nothing(text: &str) {
    let seen = validate(text);
    assert_eq!(
        (seen.errors, seen.warnings),
        (Vec::new(), Vec::new()),
        "{text}"
    );
}

const SCHEMA: &str = "config_schema: {type: object, properties: {flag: {type: boolean}, n: {type: integer}, \
                      s: {type: [string, 'null']}, mood: {enum: [calm, loud]}, list: {type: array}, \
                      o: {type: object, properties: {k: {type: string}}}}}\nconfig:\n";

/// Nodes after a schema of inputs; they begin on line 10.
fn with_inputs(nodes: &str) -> String {
    with_nodes(nodes).replacen("config:\n", SCHEMA, 1)
}

const DOUBTFUL: &[Row] = &[
    (
        "a: {assign: {x: 1}, next: b}\nb: {type: return}",
        "unread_state",
        (10, 18),
        "state.x, which nothing reads",
    ),
    (
        "a: {type: foreach, over: [], collect: out, action: {item_id: x}, next: b}\nb: {type: return}",
        "unread_state",
        (10, 34),
        "state.out",
    ),
    (
        "a: {type: foreach, over: [], action: {item_id: \"${state.item}\"}, assign: {item: 1}, next: b}\nb: {type: return}",
        "unread_state",
        (10, 79),
        "state.item",
    ),
    (
        "a: {type: foreach, over: \"${state.lsit || inputs.list}\", action: {item_id: x}, next: b}\nb: {type: return}",
        "unassigned_state",
        (10, 30),
        "state.lsit",
    ),
    (
        "a: {next: [{to: b, when: {not: {path: state.gone, value: 1}}}]}\nb: {type: return}",
        "unassigned_state",
        (10, 30),
        "state.gone",
    ),
    (
        "a: {next: a}\nb: {type: return}",
        "endless",
        (8, 10),
        "leads to an end",
    ),
    (
        "a: {type: return, output: \"${inputs.falg}\"}",
        "undeclared_input",
        (10, 31),
        "did you mean inputs.flag?",
    ),
    (
        "a: {type: return, output: \"${state.inputs.dir}\"}",
        "undeclared_input",
        (10, 31),
        "inputs.dir",
    ),
    (
        "a: {type: return, output: \"{input:dir}\"}",
        "undeclared_input",
        (10, 31),
        "inputs.dir",
    ),
    (
        "a: {next: [{to: b, when: {path: inputs.n, value: 1}}, {to: b, when: {value: 1, path: inputs.n}}]}\nb: {type: return}",
        "no_effect",
        (10, 59),
        "the same `when`",
    ),
    (
        "a: {next: [{to: b, when: {}}, {to: a}]}\nb: {type: return}",
        "no_effect",
        (10, 35),
        "holds always",
    ),
];

#[test]
fn validation_reports_surprises() {
    for (nodes, code, place, part) in DOUBTFUL {
        finds(&with_inputs(nodes), code, *place, part);
    }
    let short =
        with_inputs("a: {next: b}\nb: {next: c, on_error: d}\nc: {next: d}\nd: {type: return}")
            .replace("  start: a", "  start: a\n  max_steps: 2");
    finds(&short, "max_steps_too_small", (9, 14), "takes 3 steps");
    finds_nothing(&short.replace("max_steps: 2", "max_steps: 3"));
    let templated = with_inputs("a: {type: return, output: \"${state.x}\"}")
        .replace("  start: a", "  start: a\n  state: {x: \"${inputs.n}\"}");
    finds(&templated, "no_effect", (9, 3), "literal");
    let unread =
        with_inputs("a: {type: return}").replace("  start: a", "  start: a\n  state: {x: 1}");
    finds(&unread, "unread_state", (9, 11), "state.x");
}

#[test]
fn value_read_anywhere_counts_as_read() {
    for nodes in [
        "a: {assign: {x: 1}, next: b}\nb: {type: return, output: \"${state}\"}",
        "a: {assign: {x: 1}, next: b}\nb: {type: return, output: \"${inputs.n || state.x}\"}",
        "a: {assign: {x: 1}, next: b}\nb: {next: [{to: c, when: {any: [{path: \"state.x[0]\", op: exists}]}}]}\nc: {type: return}",
        "a: {assign: {x: [1]}, next: b}\nb: {type: foreach, over: \"${state.x}\", action: {item_id: \"${item}/${state.item}\"}, next: c}\nc: {type: return}",
        "a: {action: {item_id: x}, assign: {x: \"${result.n}\"}, next: [{to: b, when: {path: state.x, op: gt, value: 1}}]}\nb: {type: return}",
        "a: {type: return, output: [\"${state._last_error.node}\", \"${state._retries}\", \"${state.inputs.n}\", \"${_now}\"]}",
    ] {
        finds_nothing(&with_inputs(nodes));
    }
    let hooked = with_inputs("a: {assign: {x: 1, y: 2, z: \"${_now}\"}, next: b}\nb: {type: return}").replace(
        "  start: a",
        "  start: a\n  hooks:\n  - {event: error, condition: {path: state.x, value: 1}, action: {item_id: q, params: {y: \"${state.y}\"}}}\n\
         \x20 - {event: error, action: {item_id: rye/agent/threads/internal/control, params: {action: \"${state.z}\"}}}",
    );
    finds_nothing(&hooked);
    finds(
        &hooked.replace("path: state.x", "path: state.q"),
        "unassigned_state",
        (10, 31),
        "state.q",
    );
    let oops = hooked.replace("path: state.x, value: 1", "path: oops");
    expect(
        &oops,
        Severity::Error,
        "unknown_name",
        (10, 31),
        "no `oops`",
    );
}

#[test]
fn inputs_are_checked_only_against_a_schema_that_names_all() {
    let reads = with_nodes("a: {type: return, output: \"${inputs.dir}\"}");
    for schema in [
        "",
        "config_schema: {type: object}\n",
        "config_schema: {properties: {n: {}}, patternProperties: {d: {}}}\n",
    ] {
        finds_nothing(&reads.replacen("config:\n", &format!("{schema}config:\n"), 1));
    }
}

/// A condition and the finding about it; none if it can be true or false.
const CONDITIONS: &[(&str, Option<&str>)] = &[
    (
        "{path: inputs.flag, op: gt, value: 3}",
        Some("inputs.flag is a bool: the comparison never matches"),
    ),
    (
        "{path: inputs.flag, value: 1}",
        Some("inputs.flag is a bool: `eq` never matches"),
    ),
    ("{path: inputs.flag, value: true}", None),
    ("{path: inputs.flag, value: null}", None),
    (
        "{path: inputs.flag, op: ne, value: 1}",
        Some("`ne` always matches"),
    ),
    (
        "{path: state.inputs.n, op: lt, value: \"5\"}",
        Some("state.inputs.n is a number: the comparison"),
    ),
    ("{path: inputs.n, op: lt, value: 5.5}", None),
    (
        "{path: inputs.n, op: in, value: [a, b]}",
        Some("`in` never matches"),
    ),
    ("{path: inputs.n, op: in, value: [a, 1]}", None),
    (
        "{path: inputs.s, op: gt, value: 1}",
        Some("inputs.s is a text"),
    ),
    (
        "{path: inputs.s, op: contains, value: 1}",
        Some("`contains` never matches"),
    ),
    ("{path: inputs.s, op: contains, value: x}", None),
    ("{path: inputs.list, op: contains, value: 1}", None),
    ("{path: inputs.o, op: contains, value: k}", None),
    (
        "{path: inputs.n, op: contains, value: x}",
        Some("`contains` never matches"),
    ),
    (
        "{path: inputs.list, op: regex, value: x}",
        Some("`regex` never matches"),
    ),
    ("{path: inputs.n, op: regex, value: x}", None),
    ("{path: inputs.o.k, value: 5}", Some("inputs.o.k is a text")),
    (
        "{path: inputs.mood, value: sad}",
        Some("inputs.mood is one of \"calm\", \"loud\": `eq` never matches"),
    ),
    ("{path: inputs.mood, value: calm}", None),
    ("{path: inputs.list, op: exists}", None),
    ("{path: state.num, value: x}", Some("state.num is a number")),
    ("{path: state.num.deep, value: x}", None),
    (
        "{path: state.text, op: gt, value: 1}",
        Some("state.text is a text"),
    ),
    ("{path: state.free, op: gt, value: 1}", None),
    ("{path: state.two, value: x}", None),
    (
        "{path: state.two, value: []}",
        Some("state.two is a number or a text"),
    ),
    (
        "{path: state.size, value: x}",
        Some("state.size is a number"),
    ),
    (
        "{path: _timestamp, op: gt, value: \"2024\"}",
        Some("_timestamp is a number"),
    ),
    ("{path: _now, op: gt, value: 2024}", Some("_now is a text")),
    (
        "{all: [{path: inputs.n, value: 1}, {not: {path: inputs.n, value: x}}]}",
        Some("inputs.n is a number"),
    ),
];

#[test]
fn constant_conditions_are_reported() {
    for (condition, expected) in CONDITIONS {
        let text = with_inputs(&format!(
            "a: {{assign: {{num: 1, text: \"n=${{inputs.n}}\", free: \"${{inputs.n}}\", two: 1, size: \"${{inputs.list | length}}\"}}, next: b}}\n\
             b: {{assign: {{two: x}}, next: [{{to: c, when: {condition}}}]}}\nc: {{type: return, output: \"${{state}}\"}}"
        ));
        match expected {
            Some(part) => {
                let seen = validate(&text);
                let found: Vec<&Finding> = seen
                    .warnings
                    .iter()
                    .filter(|f| f.code == "impossible_condition")
                    .collect();
                assert_eq!(found.len(), 1, "{condition} {:#?}", seen.warnings);
                assert!(found[0].message.contains(part), "{}", found[0]);
                assert_eq!((found[0].line, found[0].node.as_deref()), (11, Some("b")));
            }
            None => finds_nothing(&text),
        }
    }
    let nested = with_inputs(
        "a: {next: [{to: b, when: {any: [{path: inputs.n, value: 1}, {not: {path: inputs.n, value: x}}]}}]}\nb: {type: return}",
    );
    finds(&nested, "impossible_condition", (10, 71), "a number");
    let hooked = with_inputs("a: {type: return}").replace(
        "  start: a",
        "  start: a\n  hooks: [{event: error, condition: {path: inputs.n, value: x}, action: {item_id: q}}]",
    );
    finds(&hooked, "impossible_condition", (9, 37), "a number");
}

#[test]
fn a_graph_without_permissions_is_an_error_for_its_author_only() {
    let text = with_nodes(
        "a: {action: {item_id: rye/bash}, next: b}\nb: {action: {item_id: \"x/${inputs.y}\"}, next: c}\nc: {type: return}",
    )
    .replace("permissions: [\"rye.execute.tool.*\"]\n", "");
    let seen = validate(&text);
    assert_eq!(seen.errors.len(), 1, "{:?}", seen.errors);
    assert_eq!(seen.errors[0].code, "missing_permissions");
    let proposal = "permissions: [rye.execute.tool.rye.bash, rye.execute.tool.*]";
    assert!(
        seen.errors[0].message.contains(proposal),
        "{}",
        seen.errors[0]
    );
    assert!(!seen.is_sound());
    assert_eq!(graph(&text).0.permissions, None);
    finds_nothing(&with_nodes("a: {type: return}").replace("\"rye.execute.tool.*\"", ""));
}

#[test]
fn actions_that_the_permissions_do_not_cover_are_named() {
    let with =
        |patterns: &str, nodes: &str| with_nodes(nodes).replace("\"rye.execute.tool.*\"", patterns);
    let bash = "a: {action: {item_id: rye/bash/bash}, next: b}\nb: {type: return}";
    finds_nothing(&with("rye.execute.tool.rye.bash", bash));
    let part = "do not cover `rye.execute.tool.rye.bash`";
    finds(
        &with("rye.execute.tool.rye.bash.bash", bash),
        "not_permitted",
        (9, 27),
        part,
    );
    finds(&with("", bash), "not_permitted", (9, 27), part);
    let each = "a: {type: foreach, over: [1], action: {item_id: x/y}, next: b}\nb: {type: return}";
    finds(
        &with("rye.execute.tool.x", each),
        "not_permitted",
        (9, 53),
        "rye.execute.tool.x.y",
    );
    finds_nothing(&with(
        "",
        "a: {action: {item_id: rye/agent/threads/internal/emitter}, next: b}\nb: {type: return}",
    ));
    let told_later = "a: {action: {item_id: \"${inputs.tool}\"}, next: b}\nb: {type: return}";
    finds_nothing(&with("rye.execute.tool.x", told_later));
    let hooks = "config:\n  hooks: [{id: h, event: after_step, action: {item_id: x/y}}]\n";
    let hooked = with("rye.execute.tool.x", "a: {type: return}").replacen("config:\n", hooks, 1);
    finds(&hooked, "not_permitted", (7, 56), "rye.execute.tool.x.y");
}

#[test]
fn validation_includes_parse_findings() {
    let texts = BROKEN_NODES
        .iter()
        .chain(DOUBTFUL_NODES)
        .map(|(nodes, ..)| *nodes);
    for text in texts
        .map(with_nodes)
        .chain(["a: [\n".to_owned(), "x".to_owned()])
    {
        let seen = validate(&text);
        let all: Vec<&Finding> = seen.errors.iter().chain(&seen.warnings).collect();
        for finding in findings(&text) {
            assert!(all.contains(&&finding), "{finding}\n{text}");
        }
        assert_eq!(
            seen.errors
                .iter()
                .filter(|f| f.severity == Severity::Warning)
                .count(),
            0
        );
        assert_eq!(
            seen.warnings
                .iter()
                .filter(|f| f.severity == Severity::Error)
                .count(),
            0
        );
    }
}

#[test]
fn broken_nodes_are_counted_too() {
    for (text, count) in [
        (with_nodes("a: {type: odd}\nb: {type: return}"), 2),
        (with_nodes("a: 5"), 1),
        (HEAD.to_owned(), 0),
        ("a: [".to_owned(), 0),
    ] {
        assert_eq!(validate(&text).node_count, count, "{text}");
    }
}

/// A graph of `count` nodes, each of which reads, assigns and branches.
fn chain(count: usize, target: &dyn Fn(usize) -> String) -> String {
    let node = |at| {
        format!(
            "n{at}: {{action: {{item_id: rye/bash, params: {{args: [\"${{inputs.n}}\"]}}}}, assign: {{k{at}: \"${{result}}\"}}, \
             next: [{{to: {}, when: {{path: state.k{at}, op: exists}}}}, {{to: end}}]}}\n",
            target(at)
        )
    };
    let nodes: String = (0..count).map(node).collect();
    with_inputs(&(nodes + "end: {type: return}")).replace("start: a", "start: n0")
}

#[test]
fn the_work_for_a_file_grows_with_its_length_only() {
    let sound = chain(1000, &|at| format!("n{}", (at + 1) % 1000));
    finds_nothing(&sound);
    // Without a bound, each of these names would be looked up among all others.
    let broken = validate(&chain(1000, &|at| format!("m{at}")));
    assert_eq!(broken.errors.len(), 1000);
    let hints = broken
        .errors
        .iter()
        .filter(|f| f.message.contains("did you mean"));
    assert!((1..=32).contains(&hints.count()));
}

/// A graph with one hook, on line 9, at `event`; it reads `name`.
fn hook_reading(event: &str, name: &str) -> String {
    with_nodes("a: {type: return}").replace(
        "  start: a",
        &format!("  start: a\n  hooks:\n  - {{event: {event}, action: {{item_id: q, params: {{v: \"${{{name}}}\"}}}}}}"),
    )
}

#[test]
fn hook_reads_names_of_its_event() {
    for event in HookEvent::ALL {
        for name in event.names() {
            finds_nothing(&hook_reading(event.as_str(), name));
        }
    }
    for (event, name) in [
        ("graph_completed", "output"),
        ("graph_completed", "graph_run_id"),
        ("graph_started", "result"),
        ("after_step", "error"),
        ("limit", "node"),
        ("error", "next_node"),
        ("error", "event"),
    ] {
        let told = format!("no `{name}` here at the event `{event}`");
        let column = 48 + event.len();
        let text = hook_reading(event, name);
        expect(&text, Severity::Error, "unknown_name", (9, column), &told);
    }
}

#[test]
fn two_reads_are_reported_with_positions() {
    let nodes = "a:\n  type: return\n  output:\n    - \"${inputs.one}\"\n    - \"${inputs.two}\"";
    let found = validate(&with_inputs(nodes)).warnings;
    let places: Vec<(usize, usize)> = found.iter().map(|f| (f.line, f.column)).collect();
    assert_eq!(places, [(13, 11), (14, 11)], "{found:#?}");
}

#[test]
fn required_inputs_are_declared() {
    let text = with_inputs("a: {type: return}");
    finds(
        &text.replace(
            "{type: object, properties: {flag",
            "{type: object, required: [flag, mod], properties: {flag",
        ),
        "undeclared_input",
        (6, 48),
        "`required` names `mod`, which is not among the `properties` (did you mean `mood`?)",
    );
    finds_nothing(&text.replace(
        "{type: object, properties: {flag",
        "{type: object, required: [flag], properties: {flag",
    ));
}

#[test]
fn useless_patterns_are_reported() {
    let permissions =
        |pattern: &str| with_nodes("a: {type: return}").replace("rye.execute.tool.*", pattern);
    for hopeless in [
        "foo",
        "",
        "rye",
        "rye.execute",
        "rye.execute.tool.",
        "rye.execute.bogus.x",
        "rye.exec.*",
        "rye.execute.tools.*",
        "rye.execute.tool.rye/bash",
        "Rye.*",
    ] {
        finds(
            &permissions(hopeless),
            "no_effect",
            (5, 15),
            "allows nothing",
        );
    }
    for pattern in [
        "*",
        "rye.*",
        "rye.ex*",
        "r?e.fetch.knowledge.a",
        "[r]ye.*",
        "rye.execute.tool*",
        "rye.execute.tool.rye.bash",
        "rye.sign.config.a.*",
    ] {
        finds_nothing(&permissions(pattern));
    }
}

#[test]
fn findings_of_items_are_reported_at_their_use() {
    let text = with_nodes(
        "a: {action: {item_id: \"tool:x/y\", params: {p: 1, q: \"${state}\"}}, next: b}\n\
         b: {type: foreach, over: [1], action: {item_id: \"${item}\"}, next: c}\nc: {type: return}",
    );
    let asked = std::cell::RefCell::new(Vec::new());
    let look_up = |item: &ItemRef, params: &Object| {
        asked.borrow_mut().push((item.to_string(), json!(params)));
        [
            About::Item,
            About::Params,
            About::Param("q".into()),
            About::Param("gone".into()),
        ]
        .map(|about| Remark {
            code: "told",
            message: "so".into(),
            about,
        })
        .into()
    };
    let found = validate_among(
        &text,
        &Around {
            look_up: &look_up,
            ..Around::default()
        },
    )
    .warnings;
    let places: Vec<(usize, Option<&str>)> = found
        .iter()
        .filter(|found| found.code == "told")
        .map(|found| (found.column, found.node.as_deref()))
        .collect();
    assert_eq!(places, [9, 27, 39, 54].map(|column| (column, Some("a"))));
    let expected = ("tool:x/y".to_owned(), json!({"p": 1, "q": "${state}"}));
    assert_eq!(*asked.borrow(), [expected]);
}

#[test]
fn strict_check_requires_default_edge() {
    let with_edges = |edges: &str| {
        with_nodes(&format!(
            "a: {{type: gate, next: {edges}}}\nb: {{type: return}}"
        ))
    };
    let found = |text: &str, is_strict: bool| -> Vec<(Option<String>, usize)> {
        let around = Around {
            is_strict,
            ..Around::default()
        };
        let warnings = validate_among(text, &around).warnings.into_iter();
        let defaults = warnings.filter(|found| found.code == "no_default_edge");
        defaults.map(|found| (found.node, found.column)).collect()
    };
    // A pair that covers every state is not recognised.
    let pair = with_edges(
        "[{to: b, when: {path: state.x, op: exists}}, {to: b, when: {not: {path: state.x, op: exists}}}]",
    );
    assert_eq!(found(&pair, true), [(Some("a".to_owned()), 27)]);
    assert_eq!(found(&pair, false), []);
    for fine in [
        "b",
        "[{to: b, when: {path: state.x, op: exists}}, {to: b}]",
        "[b]",
    ] {
        assert_eq!(found(&with_edges(fine), true), [], "{fine}");
    }
}

#[test]
fn graph_node_refuses_cache() {
    let text = with_nodes(
        "a: {action: {item_id: t/graph}, cache_result: true, next: b}\n\
         b: {action: {item_id: t/graph}, next: c}\n\
         c: {action: {item_id: t/tool}, cache_result: true, next: d}\n\
         d: {action: {item_id: \"${state.x}\"}, cache_result: true, next: e}\ne: {type: return}",
    );
    let is_graph = |item: &ItemRef| item.id.as_str() == "t/graph";
    let told = |found: &[Finding]| -> Vec<(Option<String>, usize)> {
        found
            .iter()
            .filter(|found| found.code == "no_effect")
            .map(|found| (found.node.clone(), found.column))
            .collect()
    };
    let found = validate_among(
        &text,
        &Around {
            is_run: &is_graph,
            ..Around::default()
        },
    )
    .warnings;
    assert_eq!(told(&found), [(Some("a".to_owned()), 37)], "{found:?}");
    let (_, found) = parse_among(&text, &is_graph).unwrap();
    assert_eq!(told(&found), [(Some("a".to_owned()), 37)]);
    assert_eq!(told(&parse(&text).unwrap().1), []);
}

#[test]
fn params_misfit_is_found_despite_templates() {
    let schema = json!({
        "type": "object", "required": ["command"], "additionalProperties": false,
        "properties": {"command": {"type": "string"}, "n": {"type": "integer"}, "env": {"type": "object"}},
    });
    let inputs = Inputs::new(&schema).unwrap();
    let told = |params: Value| inputs.misfits(params.as_object().unwrap());
    assert_eq!(
        told(json!({"command": "${state.x}", "n": "${inputs.n}", "env": {"a": "${state.y}"}})),
        []
    );
    assert_eq!(told(json!({"command": "ls", "n": null})), []);
    let missing = (About::Params, "`command` is missing".to_owned());
    assert_eq!(told(json!({})), std::slice::from_ref(&missing));
    let unknown = "there is no parameter `comand` (did you mean `command`?)".to_owned();
    let mut found = told(json!({"comand": "ls"}));
    found.sort_by_key(|(_, message)| message.clone());
    assert_eq!(found, [missing, (About::Param("comand".into()), unknown)]);
    let found = told(json!({"command": 7, "n": "${state.n}"}));
    assert!(
        matches!(found.as_slice(), [(About::Param(name), message)] if name == "command" && message.contains('7')),
        "{found:?}"
    );
}

#[test]
fn unbounded_patterns_and_times_are_refused_once() {
    let edges = |patterns: usize| {
        let edge = r"{to: end, when: {path: state.x, op: regex, value: '\w{8}-\w{8}'}}";
        with_nodes(&format!(
            "a: {{type: gate, next: [{}]}}\nend: {{type: return}}",
            vec![edge; patterns].join(", ")
        ))
    };
    let codes = |found: &Validation| -> Vec<&'static str> {
        found.errors.iter().map(|found| found.code).collect()
    };
    assert_eq!(codes(&validate(&edges(10))), [""; 0]);
    assert_eq!(codes(&validate(&edges(2000))), ["too_complex"]);
    assert_eq!(parse(&edges(2000)).unwrap_err().len(), 1);

    let looks = std::cell::Cell::new(0);
    let is_late = || {
        looks.set(looks.get() + 1);
        looks.get() > 5
    };
    let around = Around {
        is_late: &is_late,
        ..Around::default()
    };
    let found = validate_among(&edges(10), &around);
    assert_eq!(codes(&found), ["too_complex"]);
    assert!(looks.get() < 10, "{}", looks.get());
}
