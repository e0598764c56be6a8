use serde_json::json;

use super::*;
use crate::id::{Epoch, ItemId, RunId};
use crate::model::{Budget, Event, Task};

const NOW: Timestamp = Timestamp::from_ms(1000);

/// A run with these rules, whose life has begun.
fn run(rules: &[(&str, Option<u64>, OnExpiry)]) -> Run {
    let id = RunId::new("r-1-a").unwrap();
    let item = ItemRef::tool(ItemId::new("t/x").unwrap());
    let budget = Budget::open(id.clone());
    let rules = rules
        .iter()
        .map(|(pattern, expires_ms, on_expiry)| ApprovalRule {
            pattern: (*pattern).to_owned(),
            expires_ms: *expires_ms,
            on_expiry: *on_expiry,
        });
    let spec = Spec {
        approvals: rules.collect(),
        ..Spec::new(Task::Tool, item, id.clone(), budget)
    };
    let mut run = Run::create(id, NOW, Arc::new(spec));
    run.apply(NOW, &RunEvent::started(Epoch(1)).into()).unwrap();
    run
}

fn call(item: &str, params: Value) -> Call {
    let Value::Object(params) = params else {
        panic!("{params} is no object");
    };
    Call::new(
        Slot::Main,
        ItemRef::tool(ItemId::new(item).unwrap()),
        params,
        NOW,
    )
}

fn hashes(chain: &str) -> InputHashes {
    InputHashes {
        call: Some("c".to_owned()),
        chain: Some(chain.to_owned()),
        node_input: None,
    }
}

/// Puts the question about `call`, and returns it.
fn asked(run: &mut Run, call: &Call, chain: &str) -> Approval {
    let Gate::Ask(events) = gate(run, call, None, &hashes(chain), NOW) else {
        panic!("{call:?} needs no answer");
    };
    let mut last = None;
    for event in events {
        if let RunEvent::ApprovalRequested(approval) = &event {
            last = Some(approval.clone());
        }
        run.apply(NOW, &Event::Run(event)).unwrap();
    }
    last.unwrap()
}

fn answer(run: &mut Run, approval: &Approval, approved: bool, answer: Value) {
    let answer = ApprovalAnswer {
        id: Arc::clone(&approval.id),
        approved,
        answer: Some(Arc::new(answer)),
        comment: Some("why".to_owned()),
        by: "uid:1000".to_owned(),
    };
    run.apply(NOW, &RunEvent::ApprovalAnswered(answer).into())
        .unwrap();
}

fn outcome(gate: Gate) -> CallOutcome {
    match gate {
        Gate::End(outcome) => *outcome,
        other @ (Gate::Start | Gate::Ask(_) | Gate::Wait) => panic!("{other:?} has no outcome"),
    }
}

#[test]
fn call_is_asked_about_if_a_rule_names_it() {
    let rules = [("rye.execute.tool.rye.bash", None, OnExpiry::Deny)];
    let mut calls = vec![
        (call("rye/bash", json!({})), true),
        (call("t/y", json!({})), false),
    ];
    let fetch = Call {
        primary: Primary::Fetch,
        ..call("rye/bash", json!({}))
    };
    let attached = Call {
        attached: Some(RunId::new("c-1-a").unwrap()),
        ..call("rye/bash", json!({}))
    };
    // An alias is the same item.
    calls.extend([
        (fetch, false),
        (attached, false),
        (call("rye/bash/bash", json!({})), true),
    ]);
    for (call, asks) in calls {
        let gate = gate(&run(&rules), &call, None, &hashes("1"), NOW);
        assert_eq!(matches!(gate, Gate::Ask(_)), asks, "{call:?}: {gate:?}");
        assert_eq!(gate == Gate::Start, !asks);
    }
    let hook = Call {
        slot: Slot::Hook(0),
        ..call("rye/bash", json!({}))
    };
    let refused = outcome(gate(&run(&rules), &hook, None, &hashes("1"), NOW));
    assert_eq!(&*refused.failure.unwrap().code, "approval_needed");
}

#[test]
fn call_of_a_tool_that_starts_a_named_item_is_asked_about() {
    let rules = [("rye.execute.directive.t.x", None, OnExpiry::Deny)];
    let call = call("rye/agent/threads/thread_directive", json!({}));
    for (id, asks) in [("t/x", true), ("t/y", false)] {
        let created = ItemRef {
            kind: ItemKind::Directive,
            id: ItemId::new(id).unwrap(),
        };
        let gate = gate(&run(&rules), &call, Some(&created), &hashes("1"), NOW);
        assert_eq!(matches!(gate, Gate::Ask(_)), asks, "{id}: {gate:?}");
    }
}

#[test]
fn call_starts_once_approved_and_fails_once_denied_or_too_late() {
    let rules = [("rye.execute.*", Some(5000), OnExpiry::Deny)];
    let call = call("t/y", json!({"a": "\u{1b}[31m"}));
    let mut run = run(&rules);
    let question = asked(&mut run, &call, "1");
    assert_eq!(question.kind, ApprovalKind::Call);
    assert!(
        question.message.contains("tool:t/y"),
        "{}",
        question.message
    );
    assert!(!question.message.contains('\u{1b}'), "{}", question.message);
    assert_eq!(question.expires_at, Some(NOW.plus(Duration::from_secs(5))));
    assert_eq!(gate(&run, &call, None, &hashes("1"), NOW), Gate::Wait);
    for (approved, code) in [(true, None), (false, Some("denied"))] {
        let mut run = run.clone();
        answer(&mut run, &question, approved, Value::Null);
        let gate = gate(&run, &call, None, &hashes("1"), NOW);
        match code {
            None => assert_eq!(gate, Gate::Start),
            Some(code) => {
                let failure = outcome(gate).failure.unwrap();
                assert_eq!(&*failure.code, code);
                assert_eq!(failure.message, "denied by uid:1000: why");
            }
        }
    }
    let expired = Requested {
        approval: question,
        epoch: Epoch(1),
        answer: None,
        expired: true,
    };
    let failure = outcome(after(&expired)).failure.unwrap();
    assert_eq!(&*failure.code, APPROVAL_EXPIRED);
}

#[test]
fn changed_call_is_asked_about_again() {
    let rules = [("rye.execute.*", None, OnExpiry::Deny)];
    let call = call("t/y", json!({}));
    let mut run = run(&rules);
    let first = asked(&mut run, &call, "1");
    answer(&mut run, &first, true, Value::Null);
    assert_eq!(gate(&run, &call, None, &hashes("1"), NOW), Gate::Start);
    let second = asked(&mut run, &call, "2");
    assert_ne!(first.id, second.id);
    assert_eq!(run.approvals.open().count(), 1);
    assert_eq!(gate(&run, &call, None, &hashes("2"), NOW), Gate::Wait);
}

#[test]
fn question_of_a_model_has_the_answer_as_its_result() {
    let mut run = run(&[]);
    let call = call(ASK, json!({"question": "Which?", "choices": ["a", "b"]}));
    let question = asked(&mut run, &call, "1");
    assert_eq!(question.kind, ApprovalKind::Question);
    assert!(question.check(Some(&json!("a"))).is_ok());
    assert!(question.check(Some(&json!("c"))).is_err());
    answer(&mut run, &question, true, json!("b"));
    let outcome = outcome(gate(&run, &call, None, &hashes("1"), NOW));
    assert_eq!(outcome.failure, None);
    assert_eq!(outcome.result["answer"], "b");
}

#[test]
fn wrong_question_of_a_model_is_refused_by_its_key() {
    let many: Vec<u32> = (0..21).collect();
    for (params, key) in [
        (json!({}), "`question`"),
        (json!({"question": " "}), "`question`"),
        (json!({"question": "x".repeat(4001)}), "`question`"),
        (json!({"question": "x", "choices": []}), "`choices`"),
        (json!({"question": "x", "choices": many}), "`choices`"),
        (json!({"question": "x", "expires": "soon"}), "`expires`"),
        (json!({"question": "x", "on_expiry": "ask"}), "`on_expiry`"),
    ] {
        let call = call(ASK, params.clone());
        let refused = outcome(gate(&run(&[]), &call, None, &hashes("1"), NOW));
        let failure = refused.failure.unwrap();
        assert_eq!(&*failure.code, "invalid_params", "{params}");
        assert!(
            failure.message.contains(key),
            "{params}: {}",
            failure.message
        );
    }
}
