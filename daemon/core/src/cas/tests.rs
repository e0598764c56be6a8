use super::*;
use crate::id::ItemId;

/// Objects recorded from the original.
const RECORDED: &str = include_str!("../../tests/data/cas_objects.json");

#[test]
fn recorded_objects_have_the_text_and_the_hash_of_the_original() {
    let recorded: Value = serde_json::from_str(RECORDED).unwrap();
    let cases = recorded["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 18);
    for case in cases {
        let ours = Encoded::of(&case["object"]);
        // The original had two canonical forms, which differ in two details. Ours is the form that its signatures used.
        let (text, hash) = if case["python_canonical_same"] == true {
            (&case["canonical"], &case["sha256"])
        } else {
            (&case["python_canonical"], &case["python_sha256"])
        };
        assert_eq!(
            (&json!(ours.text), &json!(ours.hash)),
            (text, hash),
            "{case}"
        );
    }
}

#[test]
fn snapshots_and_results_have_the_recorded_names() {
    let inputs = ("inputs".to_owned(), json!({}));
    let state = state_snapshot(&Vars::from(Map::from_iter([inputs])));
    assert_eq!(
        state.hash,
        "0cad3d7b1c5fbb11935ff6eb8d12269eb808eaf0faf5c45538ab1b3df842a5ca"
    );
    assert_eq!(
        state.to_string(),
        r#"{"kind":"state_snapshot","schema":1,"state":{"inputs":{}}}"#
    );
    let result = json!({
        "exit_code": 0, "output": "hello\n", "stderr": "", "stdout": "hello\n", "success": true, "truncated": false
    });
    assert_eq!(
        node_result(Arc::new(result)).hash,
        "107bb296ecfd482f414d57a4bcbcfddf509bb89b349f53f0c1a7454c38285490"
    );
}

#[test]
fn key_of_original_is_hash_of_node_input() {
    let object = json!({
        "schema": 1, "kind": "node_input", "graph_hash": "0".repeat(64), "node_name": "a",
        "interpolated_action": {
            "primary": "execute", "item_type": "tool", "item_id": "rye/bash", "params": {"command": "echo hello"}
        },
        "lockfile_hash": null, "config_snapshot_hash": "1".repeat(64)
    });
    assert_eq!(
        Encoded::of(&object).hash,
        "b804b2368621a05cf5d15f59b454833ce219456e427ee15858b8c710250d09a4"
    );
}

fn hashes(item: &str, params: &Value, chain: &[&str]) -> InputHashes {
    let item = ItemRef::tool(ItemId::new(item).unwrap());
    let params = params.as_object().unwrap();
    InputHashes::new(Primary::Execute, &item, params, chain.iter().copied())
}

fn key(
    graph: &str,
    config: &str,
    node: &str,
    item: &str,
    params: &Value,
    chain: &[&str],
) -> String {
    let hashes = hashes(item, params, chain);
    InputScope::new(graph, config).key(node, &hashes).unwrap()
}

#[test]
fn hashes_are_those_of_canonical_objects() {
    let params = json!({"z": [1.5, null], "a\"\u{1F980}": {"é": "\n"}});
    let call = Encoded::of(&json!({
        "schema": 1, "kind": "call", "primary": "execute", "item_type": "tool", "item_id": "rye/bash", "params": params
    }));
    let chain = Encoded::of(&json!({"schema": 1, "kind": "chain", "contents": ["aa", "bb"]}));
    let made = hashes("rye/bash", &params, &["aa", "bb"]);
    assert_eq!(made.call, Some(call.hash.clone()));
    assert_eq!(made.chain, Some(chain.hash.clone()));
    let object = json!({
        "schema": 2, "kind": "node_input", "graph_hash": "00ff", "node_name": "nöde \"1\"",
        "call_hash": call.hash, "chain_hash": chain.hash, "config_snapshot_hash": "11"
    });
    let scope = InputScope::new("00ff", "11");
    assert_eq!(
        scope.key("nöde \"1\"", &made),
        Some(Encoded::of(&object).hash)
    );
}

#[test]
fn key_requires_contents_of_chain() {
    let made = hashes("rye/bash", &json!({}), &[]);
    assert!(made.call.is_some());
    assert_eq!(made.chain, None);
    assert_eq!(InputScope::new("g", "c").key("n", &made), None);
}

#[test]
fn action_and_chain_have_separate_hashes() {
    let one = json!({"n": 1});
    let base = hashes("rye/bash", &one, &["aa", "bb"]);
    let other_params = hashes("rye/bash", &json!({"n": 2}), &["aa", "bb"]);
    let other_item = hashes("rye/core/echo", &one, &["aa", "bb"]);
    let other_chain = hashes("rye/bash", &one, &["aa", "cb"]);
    for other in [other_params, other_item] {
        assert_ne!(other.call, base.call);
        assert_eq!(other.chain, base.chain);
    }
    assert_eq!(other_chain.call, base.call);
    assert_ne!(other_chain.chain, base.chain);
}

#[test]
fn key_depends_on_graph_config_node_action_and_chain() {
    let one = json!({"n": 1});
    let keys = [
        key("g", "c", "n", "rye/bash", &one, &["aa", "bb"]),
        key("h", "c", "n", "rye/bash", &one, &["aa", "bb"]),
        key("g", "d", "n", "rye/bash", &one, &["aa", "bb"]),
        key("g", "c", "m", "rye/bash", &one, &["aa", "bb"]),
        key("g", "c", "n", "rye/core/echo", &one, &["aa", "bb"]),
        key("g", "c", "n", "rye/bash", &json!({"n": 1.0}), &["aa", "bb"]),
        key("g", "c", "n", "rye/bash", &one, &["ab", "bb"]),
        key("g", "c", "n", "rye/bash", &one, &["aa", "cb"]),
        key("g", "c", "n", "rye/bash", &one, &["aa"]),
    ];
    for (at, key) in keys.iter().enumerate() {
        assert!(!keys[..at].contains(key), "case {at}");
    }
    assert_eq!(keys[0], key("g", "c", "n", "rye/bash", &one, &["aa", "bb"]));
}

#[test]
fn optional_fields_are_omitted_if_empty() {
    let receipt = Receipt {
        node_input_hash: "",
        node_result_hash: "ab",
        cache_hit: false,
        elapsed_ms: 7,
        at: Timestamp::from_ms(1_771_840_801_234),
        error: None,
    };
    assert_eq!(
        node_receipt(&receipt).text,
        r#"{"cache_hit":false,"elapsed_ms":7,"kind":"node_receipt","node_input_hash":"","node_result_hash":"ab","schema":1,"timestamp":"2026-02-23T10:00:01Z"}"#
    );
    let failed = Receipt {
        error: Some("no"),
        ..receipt
    };
    assert!(node_receipt(&failed).text.contains(r#""error":"no""#));
    let run = RunId::new("g-1").unwrap();
    let execution = Execution {
        run: &run,
        graph: "g",
        system_version: "0.1.0",
        step: 2,
        status: Status::Completed,
        state_hash: "cd",
        node_receipts: &["ab".to_owned()],
        errors: &[],
    };
    assert_eq!(
        execution_snapshot(&execution).text,
        r#"{"graph_id":"g","graph_run_id":"g-1","kind":"execution_snapshot","node_receipts":["ab"],"project_manifest_hash":"","schema":1,"state_hash":"cd","status":"completed","step":2,"system_version":"0.1.0","user_manifest_hash":""}"#
    );
    let errors = [json!({"step": 1, "node": "n", "error": "no"})];
    let failed = Execution {
        errors: &errors,
        ..execution
    };
    assert!(execution_snapshot(&failed).text.contains(r#""errors":[{"#));
}

#[test]
fn result_written_in_pieces_matches_its_hash() {
    for text in ["", "\u{0}é\"", "plain"] {
        for times in [1, 10_000, 70_000] {
            let result = json!({"b": text.repeat(times), "a": [1.5, null, true, 7]});
            let object = json!({"kind": "node_result", "result": result, "schema": SCHEMA});
            let written = node_result(Arc::new(result));
            assert_eq!(written.to_string(), canonical(&object));
            assert_eq!(written.hash, sha256_hex(canonical(&object)));
        }
    }
}
