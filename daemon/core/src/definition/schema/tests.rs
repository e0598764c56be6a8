use std::collections::BTreeSet;
use std::sync::LazyLock;

use rye_schema::Schema;

use super::super::keys;
use super::*;
use crate::expr::LEAF_KEYS;
use crate::yaml;

static SCHEMA: LazyLock<Schema> = LazyLock::new(|| Schema::new(&schema()).unwrap());

/// Asserts that a graph file that can be read is one by the schema, too.
#[track_caller]
pub(in crate::definition) fn assert_fits(text: &str) {
    let file = yaml::parse(text).unwrap().value;
    let problems = SCHEMA.problems(&file, 5).unwrap();
    assert!(problems.is_empty(), "{text}\n{problems:#?}");
}

fn told(keys: &Keys) -> BTreeSet<&str> {
    keys.iter().map(|(key, _)| *key).collect()
}

#[test]
fn the_schema_has_the_keys_of_the_parser_and_no_others() {
    for (schema, parser) in [
        (file_keys(), &keys::FILE),
        (config_keys(), &keys::CONFIG),
        (node_keys(), &keys::NODE),
        (edge_keys(), &keys::EDGE),
        (action_keys(), &keys::ACTION),
        (action_keys(), &keys::FOREACH_ACTION),
        (hook_keys(), &keys::HOOK),
        (hook_action_keys(), &keys::HOOK_ACTION),
        (retry_keys(), &keys::RETRY),
    ] {
        let known: BTreeSet<&str> = parser.known.iter().copied().collect();
        assert_eq!(told(&schema), known, "{}", parser.what);
    }
    let known: BTreeSet<&str> = LEAF_KEYS.into_iter().chain(COMBINATORS).collect();
    assert_eq!(told(&condition_keys()), known);
}

#[test]
fn what_is_no_graph_is_none_by_the_schema() {
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
