//! Nodes that wait, put questions or fail, the branches of parallel ones, and questions of hooks.

use super::*;
use crate::model::{ApprovalAnswer, ApprovalKind};

const GATE: &str = "
  start: ask
  nodes:
    ask: {type: approval, message: 'Ship ${inputs.version}?', schema: {type: object}, assign: {by: '${result.by}', n: '${result.answer.n}'}, on_error: no, next: yes}
    yes: {assign: {went: true}}
    no: {assign: {went: false, why: '${state._last_error.code}'}}
";

impl Stage {
    fn asked(&self) -> crate::model::Approval {
        let open = self.run().approvals.open().cloned();
        let open: Vec<_> = open.collect();
        assert_eq!(open.len(), 1, "{open:?}");
        open[0].clone()
    }

    pub(super) fn answer(&mut self, approved: bool, answer: Option<Value>) {
        let id = self.asked().id;
        self.observe(Event::Run(RunEvent::ApprovalAnswered(ApprovalAnswer {
            id,
            approved,
            answer: answer.map(Arc::new),
            comment: Some("because".into()),
            by: "ada".into(),
        })));
        self.resume(None);
    }
}

#[test]
fn reference_lists_question_size() {
    let limits = rye_pages::Table::read("docs/reference.md", "limits");
    let most = crate::model::Approval::MESSAGE_CHARS;
    limits.assert_cell("question of an approval", "is", most);
}

#[test]
fn approval_suspends_until_answer_becomes_result() {
    let mut stage = Stage::of(GATE, run(json!({"version": "1.2"}), None));
    assert_eq!(stage.play(), Rest::Suspended);
    let why = stage.why_suspended();
    assert_eq!(
        (why.reason, why.node.as_deref()),
        (SuspendReason::Approval, Some("ask"))
    );
    let asked = stage.asked();
    assert_eq!((asked.message.as_str(), asked.step), ("Ship 1.2?", Some(1)));
    // Resumed without an answer, after a restart or by a request, it does not repeat its question.
    stage.resume(None);
    assert_eq!(stage.play(), Rest::Suspended);
    assert_eq!(stage.asked().id, asked.id);
    stage.answer(true, Some(json!({"n": 3})));
    assert_eq!(stage.play(), Rest::Ended);
    assert_eq!(stage.path(), "ask:approval yes:gate");
    let kept = stage.state();
    assert_eq!((&kept["by"], &kept["n"]), (&json!("ada"), &json!(3)));
    assert!(stage.run().approvals.is_empty());
}

#[test]
fn long_question_is_cut() {
    let version = "é".repeat(5000);
    let mut stage = Stage::of(GATE, run(json!({"version": version}), None));
    assert_eq!(stage.play(), Rest::Suspended);
    assert_eq!(stage.asked().message.chars().count(), 4000);
}

#[test]
fn denied_or_late_approval_fails_node() {
    let mut stage = Stage::of(GATE, run(json!({"version": 1}), None));
    stage.play();
    stage.answer(false, None);
    assert_eq!(stage.play(), Rest::Ended);
    assert_eq!(stage.path(), "ask:error no:gate");
    assert_eq!(stage.state()["why"], "denied");
    assert!(stage.run().approvals.is_empty());

    let timed = GATE.replace("type: approval,", "type: approval, timeout: 60,");
    let mut stage = Stage::of(&timed, run(json!({"version": 1}), None));
    stage.play();
    assert_eq!(stage.asked().expires_at, Some(now(60_000)));
    stage.clock += 60_001;
    stage.resume(None);
    assert_eq!(
        stage.play(),
        Rest::Suspended,
        "nobody has said that it is late"
    );
    let id = Arc::clone(&stage.asked().id);
    stage.observe(Event::Run(RunEvent::ApprovalExpired(
        crate::model::Expired { id },
    )));
    stage.resume(None);
    assert_eq!(stage.play(), Rest::Ended);
    assert_eq!(stage.path(), "ask:error no:gate");
    assert_eq!(stage.state()["why"], "approval_timeout");
    assert!(stage.run().approvals.is_empty());
}

#[test]
fn hook_approval_creates_question() {
    let config = "
  start: a
  hooks:
    - event: after_step
      condition: {path: node, op: eq, value: a}
      action: {item_id: rye/agent/threads/internal/control, params: {action: suspend, suspend_reason: approval, message: 'Go on to ${next_node}?'}}
  nodes:
    a: {assign: {x: 1}, next: b}
    b: {assign: {y: 2}}
";
    for (approved, path, status) in [
        (true, "a:gate b:gate", Status::Completed),
        (false, "a:gate", Status::Error),
    ] {
        let mut stage = Stage::of(config, run(json!({}), None));
        assert_eq!(stage.play(), Rest::Suspended);
        assert_eq!(stage.asked().message, "Go on to b?");
        stage.answer(approved, None);
        assert_eq!(stage.play(), Rest::Ended);
        assert_eq!(
            (stage.path().as_str(), stage.run().status()),
            (path, status)
        );
        assert_eq!(stage.run().approvals.barrier().is_some(), !approved);
        assert_eq!(stage.run().open_approvals().count(), 0);
    }
}

/// A hook that puts a question about `event` if `condition` holds.
fn asking(event: &str, condition: &str) -> String {
    format!(
        "{{event: {event}, condition: {condition}, action: {{item_id: rye/agent/threads/internal/control, params: {{action: suspend, suspend_reason: approval, message: 'Go on?'}}}}}}"
    )
}

const ANY: &str = "{path: step_count, op: gte, value: 0}";

#[test]
fn run_ended_at_hook_question_cannot_continue() {
    let between = asking("after_step", "{path: node, op: eq, value: a}");
    let at_end = asking("graph_completed", ANY).replace("suspend,", "retry,");
    let behind = asking("error", ANY);
    let gates = "nodes: {a: {next: b}, b: {assign: {y: 2}}}";
    let fails = "nodes: {a: {action: {item_id: rye/core/echo, params: {fail: boom, n: '${state._retries.a}', below: 9}}}}";
    // With a hook of the end, the walk is over before the run is.
    for (hook, nodes, ends) in [
        (&between, gates, ""),
        (&between, gates, &*at_end),
        (&behind, fails, ""),
        (&behind, fails, &*at_end),
    ] {
        let hooks = if ends.is_empty() {
            hook.clone()
        } else {
            format!("{hook}, {ends}")
        };
        let config = format!("\n  start: a\n  hooks: [{hooks}]\n  {nodes}\n");
        let mut denied = Stage::of(&config, run(json!({}), None));
        denied.play();
        denied.answer(false, None);
        assert_eq!(denied.play(), Rest::Ended, "{config}");
        let barrier = denied.run().approvals.barrier().unwrap();
        assert!(barrier.contains("denied by ada: because"), "{barrier}");
        let mut cancelled = Stage::of(&config, run(json!({}), None));
        cancelled.play();
        cancelled.cancel();
        cancelled.resume(None);
        assert_eq!(cancelled.play(), Rest::Ended, "{config}");
        let barrier = cancelled.run().approvals.barrier().unwrap();
        assert!(barrier.contains("never answered"), "{barrier}");
        assert_eq!(cancelled.run().open_approvals().count(), 0);
    }
    // A node repeats its question by itself.
    let mut stage = Stage::of(GATE, run(json!({"version": 1}), None));
    stage.play();
    stage.cancel();
    stage.resume(None);
    assert_eq!(stage.play(), Rest::Ended);
    assert!(stage.run().approvals.is_empty());
}

#[test]
fn denial_after_last_node_ends_run() {
    let hook = asking("after_step", "{path: node, op: eq, value: a}");
    let config = format!("\n  start: a\n  hooks: [{hook}]\n  nodes: {{a: {{assign: {{x: 1}}}}}}\n");
    for (approved, status) in [(true, Status::Completed), (false, Status::Error)] {
        let mut stage = Stage::of(&config, run(json!({}), None));
        assert_eq!(stage.play(), Rest::Suspended);
        stage.answer(approved, None);
        assert_eq!(stage.play(), Rest::Ended);
        assert_eq!(stage.run().status(), status);
    }
}

#[test]
fn last_answer_to_hook_questions_counts() {
    // After the node a first hook puts a question; then the limit is reached, and another one does.
    let between = asking("after_step", "{path: node, op: eq, value: a}");
    let limit = asking("limit", ANY);
    let config = format!(
        "\n  start: a\n  max_steps: 1\n  hooks: [{between}, {limit}]\n  nodes: {{a: {{next: b}}, b: {{assign: {{y: 2}}}}}}\n"
    );
    for (approved, path) in [(true, "a:gate b:gate"), (false, "a:gate")] {
        let mut stage = Stage::of(&config, run(json!({}), None));
        assert_eq!(stage.play(), Rest::Suspended);
        stage.answer(true, None);
        assert_eq!(stage.play(), Rest::Suspended);
        assert_eq!(stage.asked().kind, ApprovalKind::Limit);
        stage.answer(approved, None);
        assert_eq!(stage.play(), Rest::Ended);
        assert_eq!(stage.path(), path);
    }
}

#[test]
fn denial_after_failure_keeps_failure() {
    let config = "
  start: a
  hooks: [{event: error, action: {item_id: rye/agent/threads/internal/control, params: {action: suspend, suspend_reason: approval}}}]
  nodes:
    a: {action: {item_id: rye/core/echo, params: {fail: boom, n: '${state._retries.a}', below: 1}}, on_error: b}
    b: {assign: {y: 2}}
";
    let mut stage = Stage::of(config, run(json!({}), None));
    assert_eq!(stage.play(), Rest::Suspended);
    stage.answer(false, None);
    assert_eq!(stage.play(), Rest::Ended);
    assert_eq!(stage.path(), "a:error b:gate");
    let mut stage = Stage::of(config, run(json!({}), None));
    stage.play();
    stage.answer(true, None);
    assert_eq!(stage.play(), Rest::Ended);
    assert_eq!(stage.path(), "a:ok", "an approval tries again");
}

#[test]
fn a_wait_holds_nothing_and_lasts_no_longer_over_a_restart() {
    let config = "
  start: rest
  nodes:
    rest: {type: wait, for: '${inputs.pause}', assign: {rested: true}, next: done}
    done: {type: return, output: '${state.rested}'}
";
    let mut stage = Stage::of(config, run(json!({"pause": "1m30s"}), None));
    assert_eq!(stage.settle(), Rest::Waits(Some(up(90_000))));
    assert_eq!(stage.run().status(), Status::Running);
    assert_eq!(stage.run().attempts().count(), 0);
    // After a restart at one minute half a minute is left, by the wall clock.
    stage.clock += 60_000;
    stage.crash();
    assert_eq!(stage.settle(), Rest::Waits(Some(up(90_000))));
    // A wall clock that was set back does not prolong the wait.
    stage.wall_is_ahead = -3_600_000;
    stage.crash();
    assert_eq!(stage.settle(), Rest::Waits(Some(up(60_000 + 90_000))));
    stage.wall_is_ahead = 0;
    assert_eq!(stage.play(), Rest::Ended);
    assert_eq!(stage.path(), "rest:wait done:return");
    // The wait does not take longer than its own time.
    let mut stage = Stage::of(config, run(json!({"pause": "soon"}), None));
    assert_eq!(stage.play(), Rest::Ended);
    assert_eq!(stage.run().failure().unwrap().code, "invalid_wait");
}

#[test]
fn a_wait_until_a_time_follows_the_wall_clock() {
    let until = now(300_000);
    let config = format!(
        "\n  start: rest\n  nodes:\n    rest: {{type: wait, until: '{until}', next: done}}\n    done: {{type: return}}\n"
    );
    let mut stage = Stage::of(&config, run(json!({}), None));
    assert_eq!(
        stage.settle(),
        Rest::Waits(Some(up(60_000))),
        "it looks every minute"
    );
    stage.clock += 60_000;
    stage.wall_is_ahead = 240_000;
    assert_eq!(stage.settle(), Rest::Ended);
    assert_eq!(stage.path(), "rest:wait done:return");
}

#[test]
fn waiting_run_stops_on_request_and_timeout() {
    let config = "
  start: rest
  timeout: 10
  nodes:
    rest: {type: wait, for: 60}
";
    let mut stage = Stage::of(config, run(json!({}), None));
    assert_eq!(stage.settle(), Rest::Waits(Some(up(10_000))));
    assert_eq!(stage.play(), Rest::Ended);
    assert_eq!(stage.run().failure().unwrap().code, "duration_exceeded");
    let mut stage = Stage::of(config, run(json!({}), None));
    stage.settle();
    stage.cancel();
    assert_eq!(stage.play(), Rest::Ended);
    assert_eq!(stage.run().status(), Status::Cancelled);
}

#[test]
fn fail_node_ends_run_with_its_message() {
    let config = "
  start: check
  on_error: continue
  nodes:
    check: {assign: {got: 91}, next: reject}
    reject: {type: fail, message: 'coverage ${state.got} is below 95', code: coverage_too_low, output: {coverage: '${state.got}'}}
";
    let mut stage = Stage::of(config, run(json!({}), None));
    assert_eq!(stage.play(), Rest::Ended);
    let failure = stage.run().failure().unwrap();
    assert_eq!(failure.message, "coverage 91 is below 95");
    assert_eq!(
        (
            failure.code.as_str(),
            failure.class.as_deref(),
            failure.node.as_deref()
        ),
        ("coverage_too_low", Some("graph_failed"), Some("reject"))
    );
    assert_eq!(stage.path(), "check:gate reject:error");
    assert_eq!(stage.run().result()["output"], json!({"coverage": 91}));
}

const BRANCHES: &str = "
  start: checks
  nodes:
    checks:
      type: parallel
      branches:
        lint: {item_id: rye/core/echo, params: {v: 1, s: '${state.base}'}}
        test: {item_id: rye/core/echo, params: {v: 2}}
        build: {item_id: rye/core/echo, params: {v: 3}}
      assign: {lint: '${result.lint.v}', build: '${result.build.v}'}
      next: done
    done: {type: return, output: {lint: '${state.lint}', build: '${state.build}'}}
";

#[test]
fn branches_run_concurrently_by_name() {
    let mut stage = Stage::of(BRANCHES, run(json!({}), None));
    stage.settle();
    assert_eq!(stage.most_at_once, 3);
    // A crash repeats the calls in flight, with the same keys, and none that had ended.
    stage.end_one(echo);
    let keys: BTreeSet<String> = stage.calls.iter().map(|call| call.key.clone()).collect();
    stage.crash();
    assert_eq!(stage.play(), Rest::Ended);
    assert_eq!(stage.calls.len(), 5);
    let again: BTreeSet<String> = stage.calls.iter().map(|call| call.key.clone()).collect();
    assert_eq!(again, keys);
    assert_eq!(stage.path(), "checks:parallel done:return");
    assert_eq!(
        stage.run().result()["output"],
        json!({"lint": 1, "build": 3})
    );
}

#[test]
fn branch_key_is_stable_when_others_are_inserted() {
    let keys = |config: &str| -> BTreeMap<i64, String> {
        let mut stage = Stage::of(config, run(json!({}), None));
        assert_eq!(stage.play(), Rest::Ended);
        let calls = stage.calls.iter();
        let calls = calls.map(|call| (call.params["v"].as_i64().unwrap(), call.key.clone()));
        calls.collect()
    };
    let (before, after) = (
        keys(BRANCHES),
        keys(&BRANCHES.replace(
            "        lint:",
            "        first: {item_id: rye/core/echo, params: {v: 0}}\n        lint:",
        )),
    );
    assert_eq!((before.len(), after.len()), (3, 4));
    assert!(before.iter().all(|(value, key)| after[value] == *key));
}

#[test]
fn a_branch_that_fails_fails_the_node_by_name_or_is_collected() {
    let failing = BRANCHES.replace("params: {v: 2}", "params: {v: 2, fail: boom}");
    let mut stage = Stage::of(&failing, run(json!({}), None));
    assert_eq!(stage.play(), Rest::Ended);
    let failure = stage.run().failure().unwrap();
    assert!(
        failure.message.starts_with("checks[test] failed: boom"),
        "{failure:?}"
    );
    let collecting = failing.replace("branches:", "on_item_error: collect\n      branches:");
    let mut stage = Stage::of(&collecting, run(json!({}), None));
    assert_eq!(stage.play(), Rest::Ended);
    assert_eq!(stage.run().status(), Status::CompletedWithErrors);
    assert_eq!(
        stage.run().suppressed().unwrap().get(0).unwrap().error,
        "checks[test]: boom"
    );
}

#[test]
fn an_at_most_once_branch_that_died_is_uncertain_under_its_name() {
    let once = BRANCHES.replace(
        "type: parallel",
        "type: parallel\n      effect: at_most_once",
    );
    let mut stage = Stage::of(&once, run(json!({}), None));
    stage.settle();
    stage.end_one(echo);
    stage.crash();
    assert_eq!(stage.play(), Rest::Suspended);
    assert_eq!(
        stage.why_suspended().uncertain,
        ["checks[test]", "checks[build]"]
    );
    let uncertain = stage.run().uncertain();
    let names: Vec<&str> = uncertain.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["checks[test]", "checks[build]"]);
}
