use proptest::prelude::*;
use serde_json::json;

use super::tree::{MAX_DEPTH, MAX_NODES};
use super::*;

fn value(text: &str) -> Value {
    parse(text).unwrap().value
}

fn fault(text: &str) -> YamlFault {
    parse(text).expect_err(text)
}

#[test]
fn scalars_follow_the_core_schema() {
    let text = "{a: no, b: on, c: 0o17, d: 017, e: 1:30, f: '017', g: 0x1F, h: ~, i: TRUE, j: 1e3, \
                k: 18446744073709551615, l: -9223372036854775808, m: 1_000, n: -007, o: !!str 5, p: \"1\\n\"}";
    assert_eq!(
        value(text),
        json!({
            "a": "no", "b": "on", "c": 15, "d": 17, "e": "1:30", "f": "017", "g": 31, "h": null,
            "i": true, "j": 1000.0, "k": u64::MAX, "l": i64::MIN, "m": "1_000", "n": -7, "o": "5",
            "p": "1\n",
        })
    );
    for empty in ["", "# only a comment\n", "---\n", "\u{feff}"] {
        assert_eq!(value(empty), Value::Null, "{empty:?}");
    }
}

#[test]
fn final_block_keeps_its_line_breaks() {
    for (text, block) in [
        ("a: |\n  x", "x"),
        ("a: |\n  x\n", "x\n"),
        ("a: |\n  x\n\n  ", "x\n"),
        ("a: |-\n  x\n", "x"),
        ("a: |+\n  x\n\n", "x\n\n"),
        ("a: >\n  x\n  y", "x y"),
    ] {
        assert_eq!(value(text), json!({"a": block}), "{text:?}");
    }
}

#[test]
fn keys_that_look_like_long_or_zero_padded_numbers_are_text() {
    let text = "007: 1\n'1': 2\n2024-01-01: 3\nno: 4\n";
    let keys = json!({"007": 1, "1": 2, "2024-01-01": 3, "no": 4});
    assert_eq!(value(text), keys);
}

#[test]
fn words_that_yaml_1_1_reads_differently_are_named() {
    let warnings = parse(
        "a: no\nb: [on, 'off', 017]\nc: 1:30\nd: 1.5\ne: 2024-01-01\nf: [0o17, 1e3, 1.0e3]\n",
    )
    .unwrap()
    .warnings;
    let places: Vec<(usize, usize)> = warnings.iter().map(|w| (w.line, w.column)).collect();
    assert_eq!(
        places,
        [(1, 4), (2, 5), (2, 16), (3, 4), (5, 4), (6, 5), (6, 11)],
        "{warnings:?}"
    );
}

#[test]
fn merges_are_applied() {
    let text = "base: &base {x: 1, y: 2}\nmore: &more {<<: *base, z: 3}\n\
                all: {<<: [*more, {w: 0}], y: 9}\n";
    assert_eq!(value(text)["all"], json!({"y": 9, "x": 1, "z": 3, "w": 0}));
    assert_eq!(
        value("a: {<<: {<<: {x: 1}, y: 2}}"),
        json!({"a": {"y": 2, "x": 1}})
    );
    let fault = fault("a: 1\nb:\n  <<: 3\n");
    assert_eq!((fault.line, fault.column), (3, 7), "{fault}");
}

#[test]
fn values_without_json_form_are_refused_with_position() {
    for (text, line, column, part) in [
        ("a: 1\na: 2\n", 2, 1, "occurs twice; first in line 1"),
        ("a:\n  b: 1\n  'b': 2\n", 3, 3, "occurs twice"),
        ("1: x\n", 1, 4, "`1` is not text"),
        ("true: x\n", 1, 7, "`true` is not text"),
        ("a: .nan\n", 1, 4, "not a finite number"),
        ("a: [1, -.inf]\n", 1, 8, "not a finite number"),
        (
            "a: 1e400\n",
            1,
            4,
            "not a finite number; as a text, quote it",
        ),
        ("a: -1.5e+999\n", 1, 4, "not a finite number"),
        (
            "a: 123456789012345678901234567890\n",
            1,
            4,
            "does not fit 64 bits",
        ),
        ("a: -9223372036854775809\n", 1, 4, "does not fit 64 bits"),
        ("a: 0x1ffffffffffffffff\n", 1, 4, "does not fit 64 bits"),
        ("a: !secret x\n", 1, 4, "tag"),
        ("a: !!binary aGk=\n", 1, 4, "tag"),
        ("a: 1\n---\nb: 2\n", 2, 1, "second document"),
        ("? [a, b]\n: 1\n", 1, 3, "a key must be a text"),
        ("a: &x [*x]\n", 1, 8, "inside the value it names"),
        ("a: &x 017\nb: *x\n", 1, 4, "below an anchor"),
        ("a: [1, 2\nb: 3\n", 2, 2, ""),
        ("a: 0b2\nb: \u{7}\n", 2, 4, "control characters"),
        ("a: !!int x\n", 1, 4, "expected an integer"),
        ("~: x\n", 1, 4, "`null` is not text"),
    ] {
        let fault = fault(text);
        assert!(fault.message.contains(part), "{text:?}: {fault}");
        assert_eq!(
            (fault.line, fault.column),
            (line, column),
            "{text:?}: {fault}"
        );
    }
}

#[test]
fn values_and_keys_have_positions() {
    let document = parse(
        "# signed\nconfig:\n  nodes:\n    a/b:\n      next:\n      - to: x\n        when: {path: state.ü, op: eq}\n    empty:\n",
    )
    .unwrap();
    for (pointer, value, key) in [
        ("", (2, 1), (2, 1)),
        ("/config", (3, 3), (2, 1)),
        ("/config/nodes/a~1b/next/0/to", (6, 13), (6, 9)),
        ("/config/nodes/a~1b/next/0/when/op", (7, 35), (7, 31)),
        ("/config/nodes/empty", (8, 5), (8, 5)),
        ("/config/nodes/missing/x", (4, 5), (4, 5)),
    ] {
        let at = |position: Position| (position.line, position.column);
        assert_eq!(at(document.position(pointer)), value, "value of {pointer}");
        assert_eq!(at(document.key_position(pointer)), key, "key of {pointer}");
    }
}

#[test]
fn hostile_texts_end_in_an_error() {
    let brackets = "[".repeat(1_000_000);
    let maps = "{a: ".repeat(200_000);
    let blocks = (0..2_000).fold(String::new(), |text, depth| {
        text + &" ".repeat(depth) + "a:\n"
    });
    let dashes = "- ".repeat(100_000);
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..30 {
        let below = format!("*a{}, ", level - 1).repeat(10);
        let line = format!("a{level}: &a{level} [{below}]\n");
        bomb += &line;
    }
    let wide = format!(
        "a: &a {}\nb: [{}]\n",
        "x".repeat(1 << 20),
        "*a, ".repeat(1000)
    );
    let numbers = format!("[{}]", "1,".repeat(200_000));
    let deep = (1..=MAX_DEPTH).fold("a0: &a0 [x]\n".to_owned(), |text, level| {
        text + &format!("a{level}: &a{level} [*a{}]\n", level - 1)
    });
    // Each anchor keeps all that is below it.
    let kept = (0..50).fold(String::new(), |text, level| text + &format!("&k{level} ["))
        + &"x".repeat(1 << 20)
        + &"]".repeat(50);
    for text in [
        brackets, maps, blocks, dashes, bomb, wide, numbers, deep, kept,
    ] {
        assert!(parse(&text).is_err());
    }
}

#[test]
fn a_hundred_levels_are_read() {
    let text = "[".repeat(MAX_DEPTH) + &"]".repeat(MAX_DEPTH);
    assert!(parse(&text).is_ok());
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "\\PC*|[-a-c0-3:?&*!|>'\"%@`{}\\[\\],#<~ \n\t]{0,60}") {
        drop(parse(&text));
    }

    #[test]
    fn json_is_yaml(numbers in proptest::collection::vec(any::<i64>(), 0..8), text in "[ -~]{0,20}") {
        let written = json!({"n": numbers, "t": {"x": text, "y": [null, true, 0.5]}});
        prop_assert_eq!(value(&written.to_string()), written);
    }
}

#[test]
fn reference_lists_file_size_limit() {
    let limits = rye_pages::Table::read("docs/reference.md", "limits");
    let bytes = MAX_BYTES >> 20;
    let most = format!("{bytes} MiB, {MAX_NODES} values, {MAX_DEPTH} levels");
    limits.assert_cell("a graph file", "is", most);
}
