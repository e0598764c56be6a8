use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::bounds::MOST_BYTES;
use crate::error::{ErrorKind, Kinded as _};

fn render(template: &str, scope: &dyn Scope) -> Result<Value, Error> {
    interpolate(&json!(template), scope, &mut Vec::new())
}

/// Returns true for the names of [`with_scope`].
fn known(name: &str) -> bool {
    ["state", "inputs", "_now"].contains(&name)
}

/// Runs `test` with state, inputs and a clock.
fn with_scope<T>(test: impl FnOnce(&dyn Scope) -> T) -> T {
    let state = json!({
        "greeting": "hi", "n": 7, "list": ["a", {"b": 1}], "nil": null, "map": {"k": 1, "l": 2},
        "json": "{\"x\": [1, 2.5]}", "big": "[123456789012345678901234567890]", "ref": "${state.n} {input:dir}",
    });
    let inputs = json!({"dir": "src", "opt": null});
    test(
        &Names::new(vec![("state", &state), ("inputs", &inputs)])
            .with("_now", &json!("2026-01-01T00:00:00Z")),
    )
}

#[test]
fn nearest_finds_similar_name_or_unique_prefix() {
    let names = ["cache_result", "timeout", "type", "types", "min"];
    for (word, meant) in [
        ("tiemout", Some("timeout")),
        ("cache", Some("cache_result")),
        ("cache_r", Some("cache_result")),
        ("tim", None),
        ("time", Some("timeout")),
        ("mini", Some("min")),
        ("typ", Some("type")),
        ("timeout", None),
        ("cachette", None),
    ] {
        assert_eq!(nearest(word, names), meant, "{word}");
    }
    assert_eq!(nearest("begin", ["beginning_a", "beginning_b"]), None);
}

#[test]
fn a_null_is_noted_with_the_nearest_name() {
    with_scope(|scope| {
        for (template, note) in [
            (
                "${state.greting}",
                "interpolation resolved to null: state.greting (did you mean state.greeting?)",
            ),
            (
                "${state.map.x.y}",
                "interpolation resolved to null: state.map.x.y",
            ),
            ("${state.nil}", "interpolation resolved to null: state.nil"),
            (
                "x ${state.a || inputs.dri} y",
                "interpolation resolved to null: state.a || inputs.dri (did you mean inputs.dir?)",
            ),
        ] {
            let mut notes = Vec::new();
            interpolate(&json!(template), scope, &mut notes).unwrap();
            assert_eq!(notes, [note]);
        }
    });
}

#[test]
fn unknown_name_fails_with_suggestion() {
    with_scope(|scope| {
        for (template, message) in [
            (
                "rm -rf \"build/${f}\"",
                "`${f}` reads `f`, which is not there; there are state, inputs, _now; for the shell write `$${f}`",
            ),
            (
                "${stat.n}",
                "`${stat.n}` reads `stat`, which is not there (did you mean state.n?); there are state, inputs, _now",
            ),
            (
                "${state.n || f}",
                "`${state.n || f}` reads `f`, which is not there; there are state, inputs, _now",
            ),
            (
                "${state.nil | default(f.x)}",
                "`${state.nil | default(f.x)}` reads `f`, which is not there; there are state, inputs, _now",
            ),
            (
                "${1}",
                "`${1}` reads `1`, which is not there; there are state, inputs, _now; for the shell write `$${1}`",
            ),
        ] {
            let error = interpolate(&json!([template]), scope, &mut Vec::new()).unwrap_err();
            assert_eq!(error.to_string(), message);
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert_eq!(check(&json!(template), &known), [], "{template}");
        }
    });
}

#[test]
fn double_dollar_escapes_shell_text() {
    with_scope(|scope| {
        for (template, expected) in [
            ("$${f}", "${f}"),
            ("a $${f}.txt ${state.n} $${g}", "a ${f}.txt 7 ${g}"),
            (
                "$${f%.txt} $${a[@]} $${#x} $${!x} $${x##*/} $${x/a/b} $${x^^}",
                "${f%.txt} ${a[@]} ${#x} ${!x} ${x##*/} ${x/a/b} ${x^^}",
            ),
            ("$${x:-$${y}}", "${x:-${y}}"),
            ("$${x:-${state.n}}", "${x:-7}"),
            ("$${x:-{input:dir}}", "${x:-src}"),
            ("$$${f}", "$${f}"),
            ("$${f", "${f"),
            ("{ $${f", "{ ${f"),
            ("$${} $${ } $${1:-x} $${@}", "${} ${ } ${1:-x} ${@}"),
            ("awk '{print $${n}}'", "awk '{print ${n}}'"),
            ("$${f || '$${g}'}", "${f || '${g}'}"),
            ("$$ $5 $HOME", "$$ $5 $HOME"),
            // A known name is read, unless a shell form follows it.
            ("$${state.n}", "$7"),
            ("$$${state.n}", "$$7"),
            ("$${ inputs.dir | upper }", "$SRC"),
            ("$${state.list[0]}", "$a"),
            ("$${_now}", "$2026-01-01T00:00:00Z"),
            (
                "$${state%.txt} $${state[@]} $${#state} $${inputs:-x}",
                "${state%.txt} ${state[@]} ${#state} ${inputs:-x}",
            ),
            // Names other than the known ones.
            (
                "$${states} $${_now_} $${xstate.n}",
                "${states} ${_now_} ${xstate.n}",
            ),
        ] {
            assert_eq!(render(template, scope), Ok(json!(expected)), "{template}");
            assert_eq!(check(&json!(template), &known), [], "{template}");
        }
        for template in ["$${state.n | uper}", "$${state.a+1}", "$${state..n}"] {
            let error = render(template, scope).unwrap_err();
            assert!(matches!(error, Error::Malformed { .. }), "{template}");
        }
    });
    let variable = json!("v");
    let scope = Names::new([("f", &variable), ("my file", &variable)]);
    assert_eq!(
        render("$${f} $${my file} $${g}", &scope),
        Ok(json!("$v $v ${g}"))
    );
}

#[test]
fn shell_expansion_is_malformed_with_fix() {
    for text in [
        "f%.txt",
        "a[@]",
        "#x",
        "HOME:-/root",
        "PWD##*/",
        "x:?",
        "!x",
        "1:-x",
        "x^^",
        "x,,",
        "x+y",
        "*",
        "?",
    ] {
        let faults = check(&json!(format!("echo ${{{text}}}")), &known);
        let hint = format!("for the shell write `$${{{text}}}`");
        assert!(faults[0].message.ends_with(&hint), "{}", faults[0].message);
    }
    for text in ["state.a + 1", "'x'", "a == 1", "state.n | uper", ""] {
        let faults = check(&json!(format!("${{{text}}}")), &known);
        assert!(
            !faults[0].message.contains("shell write"),
            "{}",
            faults[0].message
        );
    }
}

#[test]
fn malformed_templates_are_found_before_they_run() {
    for (template, part) in [
        ("${state.ids + [x]}", "foreach node with `collect`"),
        ("${}", "names nothing"),
        ("${ }", "names nothing"),
        ("${state.a || }", "empty alternative"),
        ("${state..a}", "empty step"),
        ("${.state}", "empty step"),
        ("${state.list[x]}", "not an index"),
        ("${state.list[0}", "not an index"),
        ("${state.list[0]x}", "not an index"),
        ("${state.list[01]}", "not an index"),
        ("${state.n | hex}", "there is no pipe `hex`"),
        ("${state.n |}", "there is no pipe ``"),
        ("${HOME:-/root}", "not a shell expansion"),
        ("${state.a == 1}", "branch with `when`"),
        ("${'x'}", "begins with a path"),
        ("${state.a || 'x}", "is not closed"),
        ("${state.a || 'x'y}", "follows the text"),
        (r"${state.a || 'x\d'}", r"`\d`"),
        (
            "${state.a || 123456789012345678901}",
            "does not fit 64 bits",
        ),
        ("${state.a || {x}}", "do not nest"),
        ("${state.a | json || 1}", "come before the pipes"),
        ("${state.n | split}", "takes a text: write `split(…)`"),
        ("${state.n | trim(1)}", "takes no argument"),
        ("${state.n | add()}", "nothing in its brackets"),
        ("${state.n | add(1}", "not closed"),
        ("${state.n | add('1')}", "takes a number, not a text"),
        ("${state.n | split('')}", "empty text"),
        ("${state.n | trimm}", "did you mean `trim`?"),
        ("${state.${inputs.x}}", "do not nest"),
    ] {
        let faults = check(&json!({"deep": ["ok", template]}), &known);
        assert_eq!(faults.len(), 1, "{template}");
        assert_eq!(
            (faults[0].at.as_str(), faults[0].severity),
            ("/deep/1", Severity::Error)
        );
        assert!(
            faults[0].message.contains(part),
            "{template}: {}",
            faults[0].message
        );
        with_scope(|scope| {
            assert!(
                matches!(render(template, scope), Err(Error::Malformed { .. })),
                "{template}"
            );
        });
    }
    let unclosed = check(&json!("a ${state.name b"), &known);
    assert_eq!(unclosed[0].severity, Severity::Warning);
    assert!(check(&json!("{state.a} {input:} $ {x} }{"), &known).is_empty());
}

#[test]
fn expression_bounds_pipes_and_their_results() {
    let piped = |pipes: usize| json!(format!("${{state.x{}}}", " | trim".repeat(pipes)));
    assert!(check(&piped(32), &known).is_empty());
    let faults = check(&json!({"a": [piped(33)]}), &known);
    assert_eq!(faults[0].at, "/a/0");
    assert!(faults[0].message.contains("at most 32"), "{faults:?}");
    let (state, mut notes) = (
        json!({"list": [], "big": "x".repeat(MOST_BYTES / 5 * 2)}),
        Vec::new(),
    );
    let scope = Names::new([("state", &state)]);
    let appended = |times: usize| {
        let appends = " | append(state.big)".repeat(times);
        json!(format!("${{state.list{appends} | length}}"))
    };
    assert_eq!(interpolate(&appended(2), &scope, &mut notes), Ok(json!(2)));
    let error = interpolate(&appended(3), &scope, &mut notes).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("larger than 64 MiB"), "{text}");
}

#[test]
fn pipes_refuse_wrong_types() {
    with_scope(|scope| {
        for (template, expected) in [
            ("${state.json | from_json}", json!({"x": [1, 2.5]})),
            ("${state.map | keys}", json!(["k", "l"])),
            ("${state.map | json | length}", json!(13)),
            ("${state.missing | upper}", Value::Null),
            ("n=${state.list | length}", json!("n=2")),
        ] {
            assert_eq!(render(template, scope), Ok(expected), "{template}");
        }
        for (template, reason) in [
            (
                "${state.n | length}",
                "pipe `length` in `${state.n | length}` needs a text, a list or a map, not a number",
            ),
            (
                "${state.list | upper}",
                "pipe `upper` in `${state.list | upper}` needs a text, not a list",
            ),
            (
                "${state.list | keys}",
                "pipe `keys` in `${state.list | keys}` needs a map, not a list",
            ),
            (
                "${state.n | from_json}",
                "pipe `from_json` in `${state.n | from_json}` needs a text, not a number",
            ),
            (
                "${state.big | from_json}",
                "pipe `from_json` in `${state.big | from_json}` cannot read its text: the integer 123456789012345678901234567890 does not fit 64 bits; send it as text",
            ),
        ] {
            assert_eq!(render(template, scope).unwrap_err().to_string(), reason);
        }
    });
}

#[test]
fn null_alternative_may_be_a_literal() {
    with_scope(|scope| {
        for (template, expected) in [
            ("${state.nil || 5}", json!(5)),
            ("${state.nil || -0.5}", json!(-0.5)),
            (
                "${state.nil || 'a || b | c } {} \\'d\\''}",
                json!("a || b | c } {} 'd'"),
            ),
            (r#"${state.nil || "a\n"}"#, json!("a\n")),
            ("${state.nil || true}", json!(true)),
            ("${state.nil || null}", json!(null)),
            ("${state.nil || [] | append(state.n)}", json!([7])),
            ("${state.nil || {}}", json!({})),
            ("${state.n || 5}", json!(7)),
            ("${state.nil || inputs.dir || 'x'}", json!("src")),
            ("${state.nil | default(inputs.dir)}", json!("src")),
            ("${state.map.x | default('}')}!", json!("}!")),
            ("${state.n | default(1)}", json!(7)),
            ("${state.nil || [] | first | default(0)}", json!(0)),
        ] {
            let mut notes = Vec::new();
            let value = interpolate(&json!(template), scope, &mut notes);
            assert_eq!(value, Ok(expected), "{template}");
            assert_eq!(notes, Vec::<String>::new(), "{template}");
        }
        let mut notes = Vec::new();
        let value = interpolate(
            &json!("${state.x | default(inputs.opt)}"),
            scope,
            &mut notes,
        );
        assert_eq!((value, notes.len()), (Ok(Value::Null), 1));
    });
}

#[test]
fn pipes_cut_join_and_count() {
    let state = json!({
        "out": "a b\nc\r\n", "padded": " x\n", "csv": "a, b,c", "n": 3, "by": ", ", "list": [1, 2.5, 1.0, "1", "1"],
        "maps": [{"a": 1, "b": 2}, {"b": 2, "a": 1.0}, {"a": 2}], "big": [i64::MAX, 1], "huge": [u64::MAX, 1], "none": [],
    });
    let scope = Names::new([("state", &state)]);
    for (template, expected) in [
        ("${state.padded | trim}", json!("x")),
        ("${state.n | trim}", json!("3")),
        ("${state.out | lines}", json!(["a b", "c"])),
        ("${state.csv | split(', ')}", json!(["a", "b,c"])),
        ("${state.csv | split(state.by) | last}", json!("b,c")),
        ("${state.list | join('|')}", json!("1|2.5|1.0|1|1")),
        (
            "${state.csv | split(',') | join(\")(\")}",
            json!("a)( b)(c"),
        ),
        ("${state.list | first}", json!(1)),
        ("${state.none | last}", json!(null)),
        ("${state.list | unique}", json!([1, 2.5, "1"])),
        (
            "${state.maps | unique}",
            json!([{"a": 1, "b": 2}, {"a": 2}]),
        ),
        ("${state.none | sum}", json!(0)),
        ("${state.big | sum}", json!(9_223_372_036_854_775_808_u64)),
        ("${state.n | add(1)}", json!(4)),
        ("${state.n | add(-0.5) | add(state.n)}", json!(5.5)),
        (
            "${state.none | append(null) | append('x')}",
            json!([null, "x"]),
        ),
    ] {
        assert_eq!(render(template, &scope), Ok(expected), "{template}");
    }
    for (template, problem) in [
        (
            "${state.list | sum}",
            "needs a list of numbers; [3] is a text",
        ),
        ("${state.huge | sum}", "too large"),
        ("${state.csv | add(1)}", "needs a number, not a text"),
        ("${state.n | add(state.csv)}", "takes a number, not a text"),
        ("${state.csv | join(',')}", "needs a list, not a text"),
        ("${state.list | lines}", "needs a text, not a list"),
        (
            "${state.csv | split(state.nothing)}",
            "takes a text, not null",
        ),
    ] {
        let error = render(template, &scope).unwrap_err().to_string();
        assert!(error.contains(problem), "{template}: {error}");
    }
}

#[test]
fn split_bounds_number_of_pieces() {
    let text = Value::from("\n".repeat(2 << 20));
    let scope = Names::new([("t", &text)]);
    let error = render("${t | lines | length}", &scope).unwrap_err();
    assert!(error.to_string().contains("pieces"), "{error}");
}

#[test]
fn condition_compares_two_paths() {
    let state = json!({"a": 3, "b": 5, "list": [3], "text": "5", "nil": null});
    let scope = Names::new([("state", &state)]);
    for (path, op, other, expected, notes) in [
        ("state.a", "lt", "state.b", true, 0),
        ("state.a", "gte", "state.b", false, 0),
        ("state.a", "ne", "state.b", true, 0),
        ("state.a", "in", "state.list", true, 0),
        ("state.b", "in", "state.list", false, 0),
        ("state.b", "in", "state.a", false, 1),
        ("state.list", "contains", "state.a", true, 0),
        ("state.a", "lt", "state.text", false, 1),
        ("state.a", "lt", "state.nil", false, 0),
        ("state.nil", "eq", "state.nothing", true, 0),
    ] {
        let condition = json!({"path": path, "op": op, "value_path": other});
        let (parsed, warnings) = Condition::parse(&condition).unwrap();
        assert_eq!((warnings.len(), parsed.paths()), (0, vec![path, other]));
        let mut told = Vec::new();
        assert_eq!(parsed.holds(&scope, &mut told), expected, "{condition}");
        assert_eq!(told.len(), notes, "{condition}: {told:?}");
    }
    for (condition, at) in [
        (
            json!({"path": "a", "value": 1, "value_path": "b"}),
            "/value_path",
        ),
        (json!({"path": "a", "value_path": 5}), "/value_path"),
        (json!({"path": "a", "value_path": "b..c"}), "/value_path"),
        (
            json!({"path": "a", "op": "regex", "value_path": "b"}),
            "/value_path",
        ),
        (
            json!({"path": "a", "op": "exists", "value_path": "b"}),
            "/value_path",
        ),
    ] {
        let faults = Condition::parse(&condition).unwrap_err();
        assert_eq!(
            (faults.len(), faults[0].at.as_str()),
            (1, at),
            "{condition}"
        );
    }
}

#[test]
fn integers_survive_json_or_are_refused() {
    for good in [
        "18446744073709551615",
        "-9223372036854775808",
        "[1e30, 1.5]",
        "\"99999999999999999999\"",
        r#"{"a\"9":0}"#,
        r#"{"a": {"a": 1}, "b": [{"a": 1}, {"a": 1}]}"#,
    ] {
        assert!(parse_json(good).is_ok(), "{good}");
    }
    for bad in [
        "18446744073709551616",
        "[1, {\"a\": -9223372036854775809}]",
        "{\"\\\\\": 99999999999999999999}",
        r#"{"a": 1, "a": 2}"#,
        r#"[{"b": {"a": 1, "\u0061": 1}}]"#,
        "nope",
    ] {
        assert!(parse_json(bad).is_err(), "{bad}");
    }
}

#[test]
fn half_of_a_surrogate_pair_is_read_as_the_replacement_character() {
    let read = parse_json(r#"{"\udce9.txt": ["half \ud83d", "\ud83d\ude00", "\\ud83d"]}"#);
    let expected = json!({"\u{fffd}.txt": ["half \u{fffd}", "\u{1f600}", "\\ud83d"]});
    assert_eq!(read, Ok(expected));
    let message = parse_json(r#"["\ud83d", oops]"#).unwrap_err().to_string();
    assert!(message.contains("column 12"), "{message}");
}

#[test]
fn null_params_are_dropped_from_maps_only() {
    assert_eq!(
        strip_nulls(json!({"a": null, "b": {"c": null, "d": [null, {"e": null}]}})),
        json!({"b": {"d": [null, {}]}})
    );
}

#[test]
fn references_name_every_path() {
    let template = json!({"a": "${state.x || inputs.y[0] | json | split(state.by)}", "b": ["{input:z} ${_now}", 5, "${bad + x}"]});
    assert_eq!(
        references(&template, &known),
        ["state.x", "inputs.y[0]", "state.by", "inputs.z", "_now"]
    );
}

#[test]
fn condition_faults_have_positions() {
    let found = Condition::parse(&json!({"all": [
        {"path": "state.a", "op": "=="},
        {"not": {"path": "state. b"}},
        {"any": {}, "path": "x"},
        {"path": "state.c", "op": "regex", "value": "("},
        {"pth": "x"},
        7,
    ]}))
    .unwrap_err();
    let errors: Vec<&str> = found
        .iter()
        .filter(|fault| fault.severity == Severity::Error)
        .map(|fault| fault.at.as_str())
        .collect();
    assert_eq!(
        errors,
        [
            "/all/0/op",
            "/all/1/not/path",
            "/all/2/path",
            "/all/2/any",
            "/all/3/value",
            "/all/4/pth",
            "/all/4",
            "/all/5"
        ]
    );
}

#[test]
fn old_spellings_in_conditions_are_read_with_a_warning() {
    let (condition, warnings) =
        Condition::parse(&json!({"path": "state.n", "operator": "neq", "value": 1})).unwrap();
    assert_eq!(warnings.len(), 2);
    with_scope(|scope| assert!(condition.holds(scope, &mut Vec::new())));
    assert_eq!(condition.paths(), ["state.n"]);
}

#[test]
fn template_as_condition_value_is_literal_with_warning() {
    let (condition, warnings) =
        Condition::parse(&json!({"path": "state.ref", "value": "${state.n} {input:dir}"})).unwrap();
    assert_eq!((warnings.len(), warnings[0].at.as_str()), (1, "/value"));
    with_scope(|scope| assert!(condition.holds(scope, &mut Vec::new())));
}

#[test]
fn incomparable_condition_does_not_match_and_leaves_note() {
    with_scope(|scope| {
        for condition in [
            json!({"path": "state.greeting", "op": "gt", "value": 1}),
            json!({"path": "state.list", "op": "lt", "value": 1}),
            json!({"path": "state.n", "op": "contains", "value": "7"}),
            json!({"path": "state.map", "op": "regex", "value": "k"}),
        ] {
            let (parsed, _) = Condition::parse(&condition).unwrap();
            let mut notes = Vec::new();
            assert!(!parsed.holds(scope, &mut notes), "{condition}");
            assert_eq!(notes.len(), 1, "{condition}");
        }
    });
}

#[test]
fn runaway_pattern_stops() {
    let text = json!("a".repeat(60));
    let scope = Names::new(vec![("t", &text)]);
    let (condition, _) =
        Condition::parse(&json!({"path": "t", "op": "regex", "value": "^(a|a|aa)+(?=c)$"}))
            .unwrap();
    let mut notes = Vec::new();
    assert!(!condition.holds(&scope, &mut notes));
    assert!(notes[0].contains("gave up"), "{notes:?}");
}

#[test]
fn numbers_compare_exactly() {
    let tie = json!({"big": 9_007_199_254_740_993_i64});
    let scope = Names::new(vec![("s", &tie)]);
    for (op, value, expected) in [
        ("eq", json!(9_007_199_254_740_992.0), false),
        ("gt", json!(9_007_199_254_740_992.0), true),
        ("lt", json!(u64::MAX), true),
        ("lt", json!(1e300), true),
        ("gt", json!(-1e300), true),
    ] {
        let (condition, _) =
            Condition::parse(&json!({"path": "s.big", "op": op, "value": value})).unwrap();
        assert_eq!(
            condition.holds(&scope, &mut Vec::new()),
            expected,
            "{op} {value}"
        );
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,12}".prop_map(Value::from),
        "[${}|.a-c\\[\\]0: ]{0,16}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::vec(("[a-c]|path|op|value|all|any|not", inner), 0..4)
                .prop_map(|entries| Value::Object(entries.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn checked_template_is_never_malformed(template in any_json(), state in any_json()) {
        let scope = Names::new(vec![("a", &state), ("b", &template)]);
        let is_root = |name: &str| scope.get(name).is_some();
        let sound = check(&template, &is_root).iter().all(|fault| fault.severity == Severity::Warning);
        let is_known = |path: &str| {
            let root = path.split(['.', '[']).next().unwrap_or_default();
            is_root(root) || root.starts_with('i')
        };
        let all_known = references(&template, &is_root).iter().all(|path| is_known(path));
        match interpolate(&template, &scope, &mut Vec::new()) {
            Err(Error::Malformed { .. }) => prop_assert!(!sound),
            Err(Error::UnknownName { .. }) => prop_assert!(!all_known || !sound),
            Ok(_) | Err(_) => prop_assert!(sound),
        }
    }

    #[test]
    fn a_text_without_expressions_is_its_own_value(text in "(\\PC|\n){0,40}|[$ {}|.a-c:#'\"\\\\\n]{0,40}") {
        prop_assume!(!text.contains("${") && !text.contains("{input:"));
        let state = json!({"a": 1});
        let scope = Names::new(vec![("state", &state), ("a", &state)]);
        prop_assert_eq!(render(&text, &scope), Ok(json!(text)));
    }

    #[test]
    fn escaped_shell_text_is_its_own_value(text in "([$]?[$][{]|[$ {}|.a-c0:#%@/*!\\[\\]'\"\\\\\n-]){0,30}") {
        let state = json!({"a": 1});
        let scope = Names::new(vec![("state", &state), ("inputs", &state), ("_now", &state)]);
        let escaped = text.replace("${", "$${");
        prop_assert_eq!(render(&escaped, &scope), Ok(json!(text)));
        prop_assert_eq!(check(&json!(escaped), &known), vec![]);
        prop_assert_eq!(references(&json!(escaped), &known), Vec::<String>::new());
    }

    #[test]
    fn inserted_text_is_never_expanded(text in "\\PC{0,20}|[${}|.a-c: input]{0,20}") {
        let value = json!({"t": text});
        let scope = Names::new(vec![("state", &value), ("inputs", &value)]);
        prop_assert_eq!(render("<${state.t}|{input:t}>", &scope), Ok(json!(format!("<{text}|{text}>"))));
        prop_assert_eq!(render("${state.t}", &scope), Ok(json!(text)));
    }

    #[test]
    fn conditions_never_fail(condition in any_json(), op in "eq|ne|gt|gte|lt|lte|in|contains|regex|exists", state in any_json(), value in any_json()) {
        let scope = Names::new(vec![("a", &state)]);
        if let Ok((parsed, _)) = Condition::parse(&condition) {
            parsed.holds(&scope, &mut Vec::new());
        }
        if let Ok((parsed, _)) = Condition::parse(&json!({"path": "a", "op": op, "value": value})) {
            parsed.holds(&scope, &mut Vec::new());
        }
    }

    #[test]
    fn equality_is_reflexive_and_order_is_strict(a in any::<f64>(), b in any::<i64>()) {
        let (a, b) = (json!(a), json!(b));
        let scope = Names::new(vec![("a", &a)]);
        let holds = |op: &str, value: &Value| {
            Condition::parse(&json!({"path": "a", "op": op, "value": value})).unwrap().0.holds(&scope, &mut Vec::new())
        };
        prop_assert!(holds("eq", &a));
        if !a.is_null() {
            prop_assert_eq!(usize::from(holds("eq", &b)) + usize::from(holds("lt", &b)) + usize::from(holds("gt", &b)), 1);
            prop_assert_eq!(holds("lte", &b), !holds("gt", &b));
        }
    }
}

#[test]
fn conditions_read_as_one_line() {
    for (condition, line) in [
        (json!(null), "always"),
        (json!({}), "always"),
        (json!({"all": []}), "always"),
        (json!({"any": []}), "never"),
        (
            json!({"path": "state.n", "op": "gte", "value": 3}),
            "state.n >= 3",
        ),
        (json!({"path": "a", "op": "gt", "value": 1.5}), "a > 1.5"),
        (json!({"path": "a", "op": "lt", "value": "b"}), "a < \"b\""),
        (json!({"path": "a", "op": "lte", "value": 0}), "a <= 0"),
        (json!({"path": "a", "value": null}), "a == null"),
        (
            json!({"path": "a", "op": "neq", "value": true}),
            "a != true",
        ),
        (
            json!({"path": "a", "op": "in", "value": [1, "x"]}),
            "a in [1,\"x\"]",
        ),
        (
            json!({"path": "a", "op": "contains", "value": "x\ny"}),
            "a contains \"x\\ny\"",
        ),
        (
            json!({"path": "a", "op": "regex", "value": "^a\\d"}),
            "a matches \"^a\\\\d\"",
        ),
        (
            json!({"path": "a", "op": "gte", "value_path": "inputs.b"}),
            "a >= inputs.b",
        ),
        (json!({"path": "a[0].b", "op": "exists"}), "a[0].b exists"),
        (
            json!({"path": "a", "op": "exists", "value": false}),
            "a is missing",
        ),
        (
            json!({"not": {"path": "a", "op": "exists"}}),
            "not (a exists)",
        ),
        (
            json!({"all": [{"path": "a", "value": 1}, {"any": [{"path": "b", "value": 2}, {"path": "c", "value": 3}]}]}),
            "a == 1 and (b == 2 or c == 3)",
        ),
        (
            json!({"any": [{"all": [{"path": "a", "value": 1}]}, {"not": {"path": "b", "value": 2}}]}),
            "a == 1 or not (b == 2)",
        ),
        (
            json!({"path": "a", "value": "0123456789012345678901234567890123456789"}),
            "a == \"012345678901234567890123456789012345678…",
        ),
    ] {
        let (parsed, _) = Condition::parse(&condition).unwrap();
        assert_eq!(parsed.to_string(), line, "{condition}");
    }
}

#[test]
fn the_reference_lists_the_keys_of_conditions_and_all_pipes() {
    let table = |name| rye_pages::Table::read("docs/reference.md", name);
    let keys = LEAF_KEYS.into_iter().chain(COMBINATORS);
    table("condition keys").assert_lists(keys);
    table("condition ops").assert_lists(OPS);
    let pipes = table("pipes");
    pipes.assert_lists(pipe::Pipe::ALL.map(pipe::Pipe::name));
    for pipe in pipe::Pipe::ALL {
        let shown = pipes.cell(pipe.name(), "takes").contains('(');
        assert_eq!(shown, pipe.argument_kind().is_some(), "{}", pipe.name());
    }
    let most = expression::MOST_PIPES;
    table("limits").assert_cell("pipes of an expression", "is", most);
}
