use super::*;

fn run() -> v1::Run {
    v1::Run {
        run_id: "g-1-a".to_owned(),
        item: Some(v1::ItemRef {
            r#type: v1::ItemType::Tool.into(),
            id: "x/g".to_owned(),
        }),
        kind: v1::RunKind::Graph.into(),
        status: v1::RunStatus::Completed.into(),
        project: "/p".to_owned(),
        state_json: r#"{"z":1,"a":18446744073709551615,"inputs":{}}"#.to_owned(),
        output_json: r#"{"n":1}"#.to_owned(),
        steps: 3,
        spawn_count: 4,
        started_at: Some(prost_types::Timestamp {
            seconds: 1_771_840_801,
            nanos: 234_000_000,
        }),
        ..v1::Run::default()
    }
}

#[test]
fn a_run_has_exactly_the_promised_fields_in_their_order() {
    assert_eq!(
        serde_json::to_string(&Run::new(&run()).unwrap()).unwrap(),
        concat!(
            r#"{"run_id":"g-1-a","item_id":"x/g","kind":"graph","status":"completed","parent_id":null,"#,
            r#""project":"/p","success":true,"state":{"z":1,"a":18446744073709551615,"inputs":{}},"#,
            r#""output":{"n":1},"steps":3,"outputs":null,"result":null,"error":null,"errors_suppressed":0,"#,
            r#""errors":[],"suspend":null,"cost":{"turns":0,"input_tokens":0,"output_tokens":0,"#,
            r#""cache_read_tokens":0,"cache_write_tokens":0,"reasoning_tokens":0,"spend":"0.000000000","#,
            r#""estimated":false},"spawn_count":4,"cancel":null,"started_at":"2026-02-23T10:00:01.234Z","ended_at":null,"#,
            r#""continuation_of":null,"continued_by":null,"model":null,"provider":null}"#
        )
    );
}

#[test]
fn errors_and_suspensions_name_every_field() {
    let record = Run::new(&v1::Run {
        status: v1::RunStatus::Suspended.into(),
        error: Some(v1::RunError {
            message: "no".to_owned(),
            code: "node_error".to_owned(),
            ..v1::RunError::default()
        }),
        errors: vec![v1::SuppressedError {
            step: 2,
            node: "n".to_owned(),
            error: "e".to_owned(),
        }],
        suspend: Some(v1::Suspension {
            reason: "restart".to_owned(),
            ..v1::Suspension::default()
        }),
        ..run()
    })
    .unwrap();
    let value = serde_json::to_value(&record).unwrap();
    assert_eq!(
        value["error"].to_string(),
        r#"{"message":"no","node":null,"code":"node_error","class":null,"retryable":false}"#
    );
    assert_eq!(
        value["suspend"].to_string(),
        r#"{"reason":"restart","code":null,"current":null,"max":null,"node":null,"child":null,"uncertain":[]}"#
    );
    assert_eq!(
        value["errors"].to_string(),
        r#"[{"step":2,"node":"n","error":"e"}]"#
    );
    assert_eq!(value["success"], Value::Null);
}

#[test]
fn values_that_a_limit_is_about_are_numbers_and_money_is_decimal_text() {
    let suspend = |current: &str, max: &str| {
        let suspend = v1::Suspension {
            current: current.to_owned(),
            max: max.to_owned(),
            ..v1::Suspension::default()
        };
        let value = serde_json::to_value(Suspension::new(&suspend).unwrap()).unwrap();
        (value["current"].clone(), value["max"].clone())
    };
    assert_eq!(suspend("8", "9"), (json!(8), json!(9)));
    assert_eq!(
        suspend("0.500000000", "1.000000000"),
        (json!("0.500000000"), json!("1.000000000"))
    );
    assert_eq!(suspend("", ""), (Value::Null, Value::Null));
}

fn shape(trees: &[Tree]) -> String {
    let one = |tree: &Tree| format!("{}({})", tree.run.run_id, shape(&tree.children));
    trees.iter().map(one).collect()
}

#[test]
fn runs_hang_below_their_parents_and_keep_their_order() {
    let one = |id: &str, parent: &str| {
        let run = v1::Run {
            run_id: id.to_owned(),
            parent_id: parent.to_owned(),
            ..run()
        };
        Run::new(&run).unwrap()
    };
    let runs = vec![
        one("d", "gone"),
        one("c", "b"),
        one("b", "a"),
        one("e", "a"),
        one("a", ""),
    ];
    assert_eq!(shape(&Tree::grow(runs)), "d()a(b(c())e())");
}

#[test]
fn malformed_json_of_the_daemon_is_named() {
    let broken = v1::Run {
        state_json: "{".to_owned(),
        ..run()
    };
    assert!(
        Run::new(&broken)
            .unwrap_err()
            .to_string()
            .contains("`state_json`")
    );
}

#[test]
fn a_kill_receipt_has_the_promised_fields() {
    let receipt = v1::KillReceipt {
        processes: vec![v1::EndedProcess {
            pid: 7,
            comm: "sleep".to_owned(),
            signal: Some(9),
            exit: None,
        }],
        survivors: vec![],
        run_id: "r".to_owned(),
        below: vec![v1::KillReceipt {
            run_id: "c".to_owned(),
            ..v1::KillReceipt::default()
        }],
    };
    assert_eq!(
        serde_json::to_string(&KillReceipt::from(receipt)).unwrap(),
        concat!(
            r#"{"run_id":"r","processes":[{"pid":7,"comm":"sleep","signal":9,"exit":null}],"survivors":[],"#,
            r#""below":[{"run_id":"c","processes":[],"survivors":[],"below":[]}]}"#
        )
    );
}
