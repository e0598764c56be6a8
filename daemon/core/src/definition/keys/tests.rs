use std::collections::BTreeSet;
use std::sync::LazyLock;

use rye_schema::Schema;

use super::*;
use crate::expr::LEAF_KEYS;
use crate::yaml;

static SCHEMA: LazyLock<Schema> = LazyLock::new(|| Schema::new(&schema()).unwrap());

/// Asserts that a graph file that can be read is valid by the schema, too.
#[track_caller]
pub(in crate::definition) fn assert_fits(text: &str) {
    let file = yaml::parse(text).unwrap().value;
    let problems = SCHEMA.problems(&file, 5).unwrap();
    assert!(problems.is_empty(), "{text}\n{problems:#?}");
}

#[test]
fn the_schema_of_a_condition_has_the_keys_of_its_parser() {
    let known: BTreeSet<&str> = LEAF_KEYS.into_iter().chain(COMBINATORS).collect();
    assert_eq!(CONDITION.known().collect::<BTreeSet<_>>(), known);
}

#[test]
fn a_hook_without_an_event_is_shown_all_of_them() {
    let events = HookEvent::ALL.map(HookEvent::as_str).join(", ");
    let (_, fix) = HOOK.required[0];
    assert_eq!(fix, format!("it is one of {events}"));
}

#[test]
fn schema_refuses_invalid_graphs() {
    let file = |config: &str| {
        let text = format!("version: \"1.0.0\"\ntool_type: graph\ncategory: t\nconfig: {config}\n");
        yaml::parse(&text).unwrap().value
    };
    let fits = |config: &str| SCHEMA.problems(&file(config), 1).unwrap().is_empty();
    assert!(fits("{start: a, nodes: {a: {type: return}}}"));
    for config in [
        "{start: a}",
        "{start: a, nodes: {}}",
        "{start: a, nodes: {a: {type: retrun}}}",
        "{start: a, nodes: {a: {action: {item: rye/bash}}}}",
        "{start: a, nodes: {a: {next: [{too: b}]}}}",
        "{start: a, nodes: {a: {next: [{to: b, when: {path: a, op: gth, value: 1}}]}}}",
        "{start: a, nodes: {a: {retry: {maximum: 1}}}}",
        "{start: a, nodes: {a: {retry: -1}}}",
        "{start: a, nodes: {a: {}}, hooks: [{event: never, action: {retry: true}}]}",
    ] {
        assert!(!fits(config), "{config}");
    }
}
