//! At-most-once attempts that may have executed.

use super::*;
use crate::model::event::{StepCompleted, UncertainAnswered};

const ONE: &str = "
  start: a
  nodes:
    a: {action: {item_id: rye/core/echo, params: {x: 1}}, effect: at_most_once, assign: {x: '${result.x}'}, retry: 3, next: b}
    b: {assign: {k: 1}}
";

const EACH: &str = "
  start: each
  nodes:
    each:
      type: foreach
      over: [0, 1, 2]
      parallel: true
      max_concurrency: 2
      effect: at_most_once
      action: {item_id: rye/core/echo, params: {it: '${item}'}}
      collect: all
";

fn unknown(call: &Call) -> CallOutcome {
    CallOutcome {
        failure: Some(Failure::permanent("call_timed_out", "no answer")),
        certainty: Certainty::Unknown,
        ..answered(json!(call.params))
    }
}

impl Stage {
    fn say(&mut self, slot: Slot, verdict: Verdict) {
        self.say_with(slot, verdict, None);
    }

    /// Declares the attempts in flight as not executed, so that they are repeated.
    fn repeat_all(&mut self) {
        let slots: Vec<_> = self.run().attempts().map(|one| one.id.slot).collect();
        for slot in slots {
            self.say(slot, Verdict::Retry);
        }
        self.resume(None);
    }

    fn say_with(&mut self, slot: Slot, verdict: Verdict, result: Option<Value>) {
        self.observe(Event::from(UncertainAnswered {
            step: 1,
            slot,
            verdict,
            result: result.map(Arc::new),
            by: "ada".into(),
        }));
    }
}

#[test]
fn unknown_attempt_suspends_run() {
    let mut crashed = Stage::of(ONE, run(json!({}), None));
    crashed.call();
    crashed.crash();
    let mut timed_out = Stage::of(ONE, run(json!({}), None));
    timed_out.call();
    timed_out.end_one(unknown);
    for mut stage in [crashed, timed_out] {
        assert_eq!(stage.settle(), Rest::Suspended);
        let why = stage.why_suspended();
        assert_eq!(why.reason, SuspendReason::Uncertain);
        assert_eq!(
            (&why.uncertain[..], why.node.as_deref()),
            (&["a".to_owned()][..], Some("a"))
        );
        stage.check_record();
    }
}

#[test]
fn a_verdict_settles_an_action() {
    for (verdict, path, calls) in [
        (Verdict::Retry, "a:ok b:gate", 2),
        (Verdict::Done, "a:declared b:gate", 1),
        (Verdict::Fail, "a:error", 1),
    ] {
        let mut stage = Stage::of(ONE, run(json!({}), None));
        stage.call();
        stage.crash();
        stage.settle();
        stage.say(Slot::Main, verdict);
        stage.resume(None);
        assert_eq!(stage.play(), Rest::Ended);
        assert_eq!(
            (stage.path().as_str(), stage.calls.len()),
            (path, calls),
            "{verdict:?}"
        );
        let keys: BTreeSet<_> = stage.calls.iter().map(|call| &call.key).collect();
        assert_eq!(keys.len(), 1);
        if verdict == Verdict::Fail {
            assert_eq!(stage.failure().code, "uncertain_failed");
        }
    }
}

/// Milliseconds that the step of `node` took.
fn elapsed(stage: &Stage, node: &str) -> u64 {
    let took = stage.log.iter().find_map(|(_, event)| {
        let Event::Graph(GraphEvent::StepCompleted(StepCompleted {
            node: done,
            elapsed_ms,
            ..
        })) = event
        else {
            return None;
        };
        (done == node).then_some(*elapsed_ms)
    });
    took.expect("the step is done")
}

#[test]
fn suspended_time_does_not_count_for_step() {
    const HOUR: i64 = 3_600_000;
    for config in [ONE, EACH] {
        let mut stage = Stage::of(config, run(json!({}), None));
        stage.call();
        stage.clock += HOUR;
        stage.crash();
        let node = stage.run().current_node().unwrap().to_owned();
        for _ in 0..3 {
            assert_eq!(stage.settle(), Rest::Suspended);
            let step = stage.run().graph().unwrap().at.step().unwrap().clone();
            let shown = step.elapsed_ms(stage.now());
            stage.clock += HOUR;
            assert_eq!(step.elapsed_ms(stage.now()), shown, "it stands still");
            stage.repeat_all();
            stage.call();
            stage.crash();
        }
        assert_eq!(stage.settle(), Rest::Suspended);
        stage.repeat_all();
        assert_eq!(stage.play(), Rest::Ended);
        let took = elapsed(&stage, &node);
        let hour = u64::try_from(HOUR).unwrap();
        assert!((hour..hour + 1000).contains(&took), "{took}");
    }
}

#[test]
fn items_are_settled_one_by_one_and_the_others_are_not_repeated() {
    let mut stage = Stage::of(EACH, run(json!({}), None));
    stage.settle();
    stage.end_one(unknown);
    stage.settle();
    assert_eq!(
        stage.items(),
        [0, 1],
        "an item nobody knows about keeps its place"
    );
    stage.end_one(echo);
    stage.settle();
    stage.end_one(unknown);
    assert_eq!(stage.settle(), Rest::Suspended);
    assert_eq!(stage.why_suspended().uncertain, ["each[0]", "each[2]"]);
    stage.say(Slot::Part(0), Verdict::Done);
    stage.say(Slot::Part(2), Verdict::Retry);
    stage.resume(None);
    assert_eq!(stage.play(), Rest::Ended);
    assert_eq!(stage.items(), [0, 1, 2, 2]);
    assert_eq!(stage.calls[3].attempt, 2);
    assert_eq!(stage.state()["all"], json!([null, {"it": 1}, {"it": 2}]));
}

#[test]
fn sequential_items_wait_for_unknown_one() {
    let config = EACH.replace("      parallel: true\n      max_concurrency: 2\n", "");
    let mut stage = Stage::of(&config, run(json!({}), None));
    stage.call();
    stage.end_one(unknown);
    assert_eq!(stage.settle(), Rest::Suspended);
    assert_eq!(stage.items(), [0]);
}

#[test]
fn failed_item_does_not_hide_unknown_one() {
    let mut stage = Stage::of(EACH, run(json!({}), None));
    stage.settle();
    stage.end_one(|call| CallOutcome {
        failure: Some(Failure::permanent("tool_failed", "no")),
        ..echo(call)
    });
    stage.end_one(unknown);
    assert_eq!(stage.settle(), Rest::Suspended);
    assert_eq!(stage.why_suspended().uncertain, ["each[1]"]);
    stage.say(Slot::Part(1), Verdict::Fail);
    stage.resume(None);
    assert_eq!(stage.play(), Rest::Ended);
    let message = &stage.failure().message;
    assert!(message.starts_with("each[0] failed: no (tool_failed); each[1] failed: "));
}

#[test]
fn verdict_done_uses_given_result() {
    let mut stage = Stage::of(ONE, run(json!({}), None));
    stage.call();
    stage.crash();
    assert_eq!(stage.settle(), Rest::Suspended);
    let told = in_doubt(Some(&stage.graph), stage.run());
    assert_eq!(told.len(), 1);
    assert_eq!(
        (told[0].name.as_str(), told[0].since.is_some()),
        ("a", true)
    );
    let (item, _) = told[0].call.as_ref().unwrap();
    assert_eq!(item.to_string(), "tool:rye/core/echo");
    stage.say_with(Slot::Main, Verdict::Done, Some(json!({"x": 7})));
    stage.resume(None);
    assert_eq!(stage.play(), Rest::Ended);
    assert_eq!((&stage.state()["x"], stage.calls.len()), (&json!(7), 1));
}

#[test]
fn unknown_attempts_are_all_named_and_some_described() {
    let each = EACH.replace("it: '${item}'", "it: '${item}', much: '${inputs.much}'");
    let much = "x".repeat(600_000);
    let mut stage = Stage::of(&each, run(json!({"much": much}), None));
    stage.settle();
    stage.crash();
    assert_eq!(stage.settle(), Rest::Suspended);
    let told = in_doubt(Some(&stage.graph), stage.run());
    let told: Vec<_> = told
        .iter()
        .map(|one| (one.name.as_str(), one.call.is_some()))
        .collect();
    assert_eq!(told, [("each[0]", true), ("each[1]", false)]);
}

#[test]
fn running_attempt_accepts_no_verdict() {
    let mut stage = Stage::of(ONE, run(json!({}), None));
    stage.call();
    let verdict = Event::from(UncertainAnswered {
        step: 1,
        slot: Slot::Main,
        verdict: Verdict::Done,
        result: None,
        by: "ada".into(),
    });
    assert!(stage.walker.observe(now(1), &verdict).is_err());
}

#[test]
fn at_most_once_tool_is_not_repeated_by_default() {
    let action = |params: &str| {
        let config = format!(
            "
  start: a
  nodes:
    a: {{action: {{item_id: rye/core/echo, params: {{once: 1, {params}}}}}, retry: 3}}
  hooks: [{{id: again, event: error, action: {{retry: true, max_retries: 3}}}}]
"
        );
        Stage::of(&config, run(json!({}), None))
    };
    let mut lost = action("fail: lost, end: unknown");
    assert_eq!(lost.play(), Rest::Suspended);
    let mut crashed = action("x: 1");
    crashed.call();
    crashed.crash();
    assert_eq!(crashed.settle(), Rest::Suspended);
    for stage in [&lost, &crashed] {
        let why = stage.why_suspended();
        assert_eq!(why.reason, SuspendReason::Uncertain);
        assert_eq!(
            (&why.uncertain[..], stage.calls.len()),
            (&["a".to_owned()][..], 1)
        );
    }
    let mut refused = action("fail: refused");
    assert_eq!(refused.play(), Rest::Ended);
    assert_eq!(refused.calls.len(), 1, "it had begun");
    assert!(
        refused.run().unknown()[0].once,
        "nor does a run above repeat it"
    );
    let mut never = action("fail: closed, end: never, again: true");
    assert_eq!(never.play(), Rest::Ended);
    assert_eq!(never.calls.len(), 4, "nothing had begun");
}

#[test]
fn at_most_once_branch_is_not_repeated() {
    let parallel = |once: &str| {
        let config = format!(
            "
  start: both
  nodes:
    both:
      type: parallel
      retry: 1
      branches:
        lost: {{item_id: rye/core/echo, params: {{{once}}}}}
        other: {{item_id: rye/core/echo, params: {{fail: other}}}}
"
        );
        Stage::of(&config, run(json!({}), None))
    };
    let mut failed = parallel("once: 1, fail: gone");
    assert_eq!(failed.play(), Rest::Ended);
    let items = failed.items();
    let times = items.iter().filter(|item| **item == 0).count();
    assert_eq!((times, items.len()), (1, 2), "{items:?}");
    let mut lost = parallel("once: 1, fail: lost, end: unknown");
    assert_eq!(lost.play(), Rest::Suspended);
    assert_eq!(lost.why_suspended().uncertain, ["both[lost]"]);
}
