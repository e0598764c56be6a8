use proptest::prelude::*;
use serde_json::json;

use super::*;

fn object(value: &Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap()
}

/// Merges `upper`, of the project, into `base`, of the system, and removes the origins.
fn laid_over(base: &Value, upper: &Value) -> Result<Value, Error> {
    let mut merged = add_origin(object(base), Space::System)?;
    merge(&mut merged, add_origin(object(upper), Space::Project)?)?;
    Ok(plain(Value::Object(merged)))
}

fn plain(value: Value) -> Value {
    match value {
        Value::Object(map) => map
            .into_iter()
            .filter(|(key, _)| key != ORIGIN)
            .map(|(key, value)| (key, plain(value)))
            .collect(),
        Value::Array(list) => list.into_iter().map(plain).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value,
    }
}

#[test]
fn files_merge_by_rules() {
    for (rule, base, upper, merged) in [
        (
            "maps merge key by key, at any depth",
            json!({"a": {"b": {"c": 1, "d": 2}}, "e": 3}),
            json!({"a": {"b": {"d": 4, "f": 5}}}),
            json!({"a": {"b": {"c": 1, "d": 4, "f": 5}}, "e": 3}),
        ),
        (
            "values are replaced, of whatever type",
            json!({"a": 1, "b": "x", "c": {"d": 1}, "e": 1}),
            json!({"a": 2, "b": null, "c": 7, "e": {"f": 1}}),
            json!({"a": 2, "b": null, "c": 7, "e": {"f": 1}}),
        ),
        (
            "a list without ids is replaced",
            json!({"a": [1, 2, 3], "b": [{"x": 1}]}),
            json!({"a": [4], "b": []}),
            json!({"a": [4], "b": []}),
        ),
        (
            "an entry replaces the one of its id whole, in its place; others come last",
            json!({"a": [{"id": "x", "k": 1, "l": 2}, {"id": "y", "k": 1}]}),
            json!({"a": [{"id": "z", "k": 3}, {"id": "x", "k": 2}]}),
            json!({"a": [{"id": "x", "k": 2}, {"id": "y", "k": 1}, {"id": "z", "k": 3}]}),
        ),
        (
            "an empty list adds nothing to a list with ids",
            json!({"a": [{"id": "x"}]}),
            json!({"a": []}),
            json!({"a": [{"id": "x"}]}),
        ),
        (
            "null takes a list with ids away",
            json!({"a": [{"id": "x"}]}),
            json!({"a": null}),
            json!({"a": null}),
        ),
        (
            "the first entry below decides: without an id there the list is replaced",
            json!({"a": [{"k": 1}, {"id": "x"}]}),
            json!({"a": [{"id": "x", "k": 2}]}),
            json!({"a": [{"id": "x", "k": 2}]}),
        ),
        (
            "`extends` is passed over",
            json!({"a": 1, "b": {"c": 1}}),
            json!({"extends": "other", "b": {"extends": "other", "c": 2}}),
            json!({"a": 1, "b": {"c": 2}}),
        ),
    ] {
        assert_eq!(laid_over(&base, &upper).unwrap(), merged, "{rule}");
    }
}

#[test]
fn entries_record_their_space() {
    let mut merged = add_origin(
        object(
            &json!({"a": [{"id": "x"}, {"id": "y"}], "b": {"c": [{"id": "z"}]}, "n": [{"k": 1}, 2]}),
        ),
        Space::System,
    )
    .unwrap();
    let user = add_origin(
        object(&json!({"a": [{"id": "y"}], "d": [{"id": "v"}]})),
        Space::User,
    );
    merge(&mut merged, user.unwrap()).unwrap();
    // The project's entry counts as the project's, though it equals the system's.
    let project = add_origin(object(&json!({"a": [{"id": "x"}]})), Space::Project);
    merge(&mut merged, project.unwrap()).unwrap();
    assert_eq!(
        Value::Object(merged),
        json!({
            "a": [{"id": "x", "_space": "project"}, {"id": "y", "_space": "user"}],
            "b": {"c": [{"id": "z", "_space": "system"}]},
            "n": [{"k": 1}, 2],
            "d": [{"id": "v", "_space": "user"}],
        })
    );
}

#[test]
fn file_cannot_claim_origin() {
    for (file, at) in [
        (json!({"_space": "system"}), ""),
        (json!({"a": {"_space": "system"}}), "/a"),
        (json!({"a": [{"id": "x", "_space": "system"}]}), "/a/0"),
        (json!({"a": [[{"_space": 1}]]}), "/a/0/0"),
    ] {
        let error = add_origin(object(&file), Space::Project).unwrap_err();
        assert_eq!(error, Error::Reserved { at: at.to_owned() });
    }
}

#[test]
fn list_ids_are_unique() {
    let twice = json!({"a": [{"id": "x"}, {"id": "y"}, {"id": "x"}]});
    let error = add_origin(object(&twice), Space::User).unwrap_err();
    let (at, id) = ("/a/2".to_owned(), "\"x\"".to_owned());
    assert_eq!(error, Error::SameId { at, id });
}

#[test]
fn entry_without_id_is_refused_in_list_with_ids() {
    let base = json!({"p": {"a": [{"id": "x"}]}});
    let error = laid_over(&base, &json!({"p": {"a": [{"id": "x"}, {"k": 1}]}})).unwrap_err();
    assert_eq!(
        error,
        Error::NoId {
            at: "/p/a/1".to_owned()
        }
    );
}

/// Typical files: maps, values, and lists whose entries have ids (under names of their own) or have none.
fn files() -> impl Strategy<Value = Map<String, Value>> {
    let scalar = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (0..9).prop_map(Value::from),
        prop::collection::vec(0..9, 0..4).prop_map(Value::from),
    ];
    let list = prop::collection::btree_map("[a-c]", 0..3, 0..4).prop_map(|entries| {
        let entry = |(id, k)| json!({"id": id, "k": k});
        Value::Array(entries.into_iter().map(entry).collect())
    });
    let map = move |value: BoxedStrategy<Value>| {
        let field = prop_oneof![("[a-d]", value), ("[st]", list.clone())];
        prop::collection::vec(field, 0..5).prop_map(|fields| fields.into_iter().collect())
    };
    let nested = map.clone();
    let value = scalar.prop_recursive(3, 16, 4, move |inner| {
        nested(inner.boxed()).prop_map(Value::Object)
    });
    map(value.boxed())
}

fn over(base: &Map<String, Value>, upper: &Map<String, Value>) -> Map<String, Value> {
    let mut merged = base.clone();
    merge(&mut merged, upper.clone()).unwrap();
    merged
}

proptest! {
    #[test]
    fn empty_file_is_merge_identity(file in files()) {
        let file = add_origin(file, Space::User).unwrap();
        prop_assert_eq!(&over(&file, &Map::new()), &file);
        prop_assert_eq!(&over(&Map::new(), &file), &file);
    }

    #[test]
    fn merge_is_idempotent(base in files(), upper in files()) {
        let base = add_origin(base, Space::System).unwrap();
        let upper = add_origin(upper, Space::Project).unwrap();
        let once = over(&base, &upper);
        prop_assert_eq!(&over(&once, &upper), &once);
    }

    #[test]
    fn merge_keeps_unnamed_keys(base in files(), upper in files()) {
        let base = add_origin(base, Space::System).unwrap();
        let merged = over(&base, &add_origin(upper.clone(), Space::Project).unwrap());
        for (key, value) in &base {
            if !upper.contains_key(key) {
                prop_assert_eq!(merged.get(key), Some(value));
            }
        }
    }
}
