//! Items of foreach nodes.

use super::*;
use crate::model::GraphEvent;
use crate::model::event::{ItemCompleted, StepFailed};

/// A foreach over `inputs.list`, with more keys.
fn over(keys: &str) -> String {
    format!(
        "
  start: each
  nodes:
    each:
      type: foreach
      over: '${{inputs.list}}'
      action: {{item_id: rye/core/echo, params: {{it: '${{item}}', seen: '${{state.item}}', fail: '${{item.fail}}',
                n: '${{state._retries.each}}', below: '${{item.below}}', end: '${{item.end}}',
                thread_id: '${{item.thread}}'}}}}
      collect: all
      {keys}
      next: end
    end: {{type: return}}
"
    )
}

fn each(keys: &str, list: &Value) -> Stage {
    Stage::of(&over(keys), run(json!({"list": list}), None))
}

#[test]
fn sequential_items_take_turns_and_are_collected_in_order() {
    let mut stage = each("", &json!([1, "two", null]));
    assert_eq!(stage.play(), Rest::Ended);
    assert_eq!(stage.path(), "each:foreach end:return");
    assert_eq!(stage.most_at_once, 1);
    assert_eq!(
        stage.state()["all"],
        json!([{"it": 1, "seen": 1}, {"it": "two", "seen": "two"}, {}]),
        "the variable stands alone and in the state"
    );
    assert_eq!(stage.run().graph().unwrap().at.items(), None);
    let items = stage.names();
    assert_eq!(
        items
            .iter()
            .filter(|name| **name == "item_completed")
            .count(),
        3
    );
}

#[test]
fn parallel_items_are_bounded_by_the_node_then_the_graph_then_ten() {
    let list: Vec<u32> = (0..25).collect();
    for (node, config, most) in [
        ("parallel: true", "", 10),
        ("parallel: true", "  max_concurrency: 4\n", 4),
        (
            "parallel: true\n      max_concurrency: 3",
            "  max_concurrency: 4\n",
            3,
        ),
        (
            "parallel: true\n      max_concurrency: 40",
            "  max_concurrency: 4\n",
            25,
        ),
        ("parallel: false", "  max_concurrency: 4\n", 1),
    ] {
        let text = format!("{}{config}", over(node));
        let mut stage = Stage::of(&text, run(json!({"list": list}), None));
        assert_eq!(stage.play(), Rest::Ended);
        assert_eq!(stage.most_at_once, most, "{node} {config}");
        let collected: Vec<Value> = list
            .iter()
            .map(|it| json!({"it": it, "seen": it}))
            .collect();
        assert_eq!(stage.state()["all"], json!(collected));
    }
}

#[test]
fn over_accepts_list_text_or_null() {
    let mut none = each("", &Value::Null);
    assert_eq!(none.play(), Rest::Ended);
    assert_eq!(none.state()["all"], json!([]));
    assert!(
        none.warnings()
            .iter()
            .any(|it| it.contains("`over` is null")),
        "{:?}",
        none.warnings()
    );
    let mut text = each("", &json!("[1, 2]"));
    assert_eq!(text.play(), Rest::Ended);
    assert_eq!(text.state()["all"].as_array().map(Vec::len), Some(2));
    for wrong in [
        json!("no list"),
        json!("{}"),
        json!(true),
        json!(7),
        json!({"a": 1}),
    ] {
        let mut stage = each("", &wrong);
        assert_eq!(stage.play(), Rest::Ended);
        assert_eq!(stage.path(), "each:error");
        assert_eq!(stage.failure().code, "over_not_a_list");
    }
}

#[test]
fn the_state_is_untouched_by_the_loop_variable() {
    let text = over("").replace("start: each", "start: each\n  state: {item: mine}");
    let mut stage = Stage::of(&text, run(json!({"list": [1, 2]}), None));
    assert_eq!(stage.call().params["seen"], 1);
    assert_eq!(stage.state(), json!({"item": "mine"}));
    stage.play();
    assert_eq!(stage.state()["item"], "mine");
    let mut plain = each("", &json!([1]));
    plain.play();
    assert!(plain.state().get("item").is_none());
}

#[test]
fn a_result_with_a_thread_is_collected_as_its_id() {
    let mut stage = each("", &json!([{"thread": "t-1"}, {"thread": 7}]));
    stage.play();
    assert_eq!(stage.state()["all"][0], "t-1");
    assert_eq!(stage.state()["all"][1]["thread_id"], 7);
}

#[test]
fn collect_follows_its_template() {
    let keys = "on_item_error: collect
      collect_value: '${item.name}: ${result.below | json}'";
    let list = json!([{"name": "a", "below": [1]}, {"name": "b", "fail": "no"}, {"name": "c", "below": 2}]);
    let mut stage = each(keys, &list);
    assert_eq!(stage.play(), Rest::Ended);
    let all = &stage.state()["all"];
    assert_eq!((&all[0], &all[2]), (&json!("a: [1]"), &json!("c: 2")));
    assert_eq!(all[1]["error"], "no", "a failure stays in its place");
}

#[test]
fn item_with_failing_collect_fails() {
    let keys = "collect_value: '${result.it | keys}'";
    let mut stage = each(keys, &json!([{"a": 1}, "text"]));
    assert_eq!(stage.play(), Rest::Ended);
    let failure = stage.failure();
    assert_eq!(failure.code, "item_failed");
    assert!(failure.message.contains("each[1]"), "{}", failure.message);
    assert!(
        failure.message.contains("needs a map"),
        "{}",
        failure.message
    );
}

#[test]
fn failed_collect_does_not_repeat_item() {
    let keys = "collect_value: '${result.it | keys}'\n      retry: {max: 3}";
    let mut stage = each(keys, &json!([{"a": 1}, "text"]));
    assert_eq!(stage.play(), Rest::Ended);
    assert_eq!(stage.failure().code, "item_failed");
    assert_eq!(stage.calls.len(), 2);
}

#[test]
fn assign_sees_collected_values_and_counts() {
    let keys = "on_item_error: collect
      assign: {first: '${state.all.0.it}', n: '${result.count}', bad: '${result.failed}', same: '${result.results.0}'}";
    let mut stage = each(keys, &json!([5, {"fail": "no"}]));
    stage.play();
    let mut kept = stage.state();
    let all = kept.as_object_mut().unwrap().shift_remove("all").unwrap();
    assert_eq!(
        kept,
        json!({"first": 5, "n": 2, "bad": 1, "same": {"it": 5, "seen": 5}})
    );
    assert_eq!(
        all[1],
        json!({"status": "error", "error": "no", "code": "tool_failed"}),
        "an error is collected in its place"
    );
    assert_eq!(stage.run().status(), Status::CompletedWithErrors);
    assert_eq!(stage.run().graph().unwrap().suppressed.len(), 1);
    assert_eq!(
        stage
            .run()
            .graph()
            .unwrap()
            .suppressed
            .get(0)
            .unwrap()
            .error,
        "each[1]: no"
    );
}

#[test]
fn edges_and_hooks_see_the_result_of_a_foreach() {
    let text = over("").replace(
        "next: end",
        "next: [{to: end, when: {path: result.count, op: eq, value: 2}}]",
    ) + "  hooks: [{event: after_step, condition: {path: node, op: eq, value: each},
             action: {item_id: rye/core/echo, params: {r: '${result}'}}}]\n";
    let mut stage = Stage::of(&text, run(json!({"list": [1, 2]}), None));
    stage.play();
    assert_eq!(stage.path(), "each:foreach end:return");
    assert_eq!(stage.hooks()[0].params["r"]["count"], 2);
}

#[test]
fn failing_template_fails_its_item() {
    let text = over("on_item_error: collect").replace("'${item}'", "'${item | from_json}'");
    let mut stage = Stage::of(&text, run(json!({"list": ["1", "{"]}), None));
    assert_eq!(stage.play(), Rest::Ended);
    assert_eq!(stage.items(), [0]);
    assert_eq!(stage.state()["all"][1]["code"], "interpolation_failed");
    assert_eq!(stage.run().status(), Status::CompletedWithErrors);
}

#[test]
fn failed_item_stops_new_items() {
    let list = json!([0, {"fail": "no"}, 2, 3, 4, 5]);
    let mut stage = each("parallel: true\n      max_concurrency: 3", &list);
    assert_eq!(stage.play(), Rest::Ended);
    assert_eq!(
        stage.items(),
        [0, 1, 2, 3],
        "3 took the place of 0, nothing that of 1"
    );
    let ended = stage
        .names()
        .into_iter()
        .filter(|name| *name == "item_completed");
    assert_eq!(ended.count(), 4);
    assert_eq!(stage.path(), "each:error");
    assert_eq!(stage.failure().message, "each[1] failed: no (tool_failed)");
    assert!(
        stage.state().get("all").is_none(),
        "a failed node assigns nothing"
    );
    let mut one_by_one = each("", &list);
    one_by_one.play();
    assert_eq!(one_by_one.items(), [0, 1]);
}

#[test]
fn a_failed_foreach_follows_its_error_edge_or_the_policy() {
    let text = over("on_error: end");
    let mut stage = Stage::of(&text, run(json!({"list": [{"fail": "no"}]}), None));
    stage.play();
    assert_eq!(stage.path(), "each:error end:return");
    assert_eq!(stage.run().status(), Status::Completed);
}

#[test]
fn another_try_of_the_node_repeats_the_failed_and_unstarted_items_only() {
    let list = json!([0, {"fail": "no", "below": 1}, 2, 3]);
    let hooks = "  hooks: [{event: error, action: {retry: true, max_retries: 1}}]\n";
    let config = over("parallel: true\n      max_concurrency: 3") + hooks;
    let mut stage = Stage::of(&config, run(json!({"list": list}), None));
    assert_eq!(stage.play(), Rest::Ended);
    assert_eq!(stage.path(), "each:foreach end:return");
    assert_eq!(stage.items(), [0, 1, 2, 3, 1]);
    let tries: Vec<_> = stage.calls.iter().map(|call| call.attempt).collect();
    assert_eq!(
        tries,
        [1, 1, 1, 1, 2],
        "the tries of an item are counted on"
    );
    assert_eq!(stage.calls[1].key, stage.calls[4].key);
    assert_eq!(stage.run().steps(), 2, "a retry costs no step");
    assert_eq!(stage.state()["all"][2]["it"], 2);
}

#[test]
fn items_that_were_refused_are_not_tried_again() {
    let refused = json!([{"fail": "no", "end": "never"}]);
    let mut stage = each("retry: 2", &refused);
    stage.play();
    assert_eq!(stage.items(), [0]);
    let mut answered = each("retry: 2", &json!([{"fail": "no"}]));
    answered.play();
    assert_eq!(answered.items(), [0, 0, 0]);
}

#[test]
fn a_resumed_foreach_repeats_no_item_that_ended() {
    let list: Vec<u32> = (0..6).collect();
    let mut stage = each("parallel: true\n      max_concurrency: 2", &json!(list));
    stage.settle();
    stage.end_one(echo);
    stage.settle();
    stage.crash();
    assert_eq!(stage.play(), Rest::Ended);
    assert_eq!(stage.items(), [0, 1, 2, 1, 2, 3, 4, 5]);
    let tries: Vec<_> = stage.calls.iter().map(|call| call.attempt).collect();
    assert_eq!(tries, [1, 1, 1, 2, 2, 1, 1, 1]);
    assert_eq!(stage.calls[1].key, stage.calls[3].key);
    assert_eq!(stage.state()["all"].as_array().map(Vec::len), Some(6));
}

#[test]
fn crash_stops_running_items_of_failed_node() {
    let list = json!([{"fail": "no"}, 1, 2]);
    let mut stage = each("parallel: true\n      max_concurrency: 2", &list);
    stage.settle();
    stage.end_one(echo);
    stage.settle();
    stage.crash();
    stage.play();
    assert_eq!(
        stage.items(),
        [0, 1],
        "1 was running and is not repeated, 2 never starts"
    );
    assert_eq!(stage.failure().message, "each[0] failed: no (tool_failed)");
}

#[test]
fn a_finished_item_clears_the_run_of_suspicion() {
    let mut stage = each("", &json!([1, 2]));
    stage.call();
    stage.crash();
    stage.call();
    assert_eq!(stage.run().suspicions, 1);
    stage.end_one(echo);
    assert_eq!(stage.run().suspicions, 0);
}

#[test]
fn item_reports_its_own_duration() {
    let mut stage = each("", &json!([1, 2, 3]));
    stage.play();
    let took: Vec<u64> = stage
        .log
        .iter()
        .filter_map(|(_, event)| {
            let Event::Graph(GraphEvent::ItemCompleted(ItemCompleted { elapsed_ms, .. })) = event
            else {
                return None;
            };
            Some(*elapsed_ms)
        })
        .collect();
    assert_eq!(took, [1, 1, 1]);
}

#[test]
fn stop_and_suspend_apply_between_items() {
    let mut cancelled = each("", &json!([1, 2, 3]));
    cancelled.call();
    cancelled.cancel();
    cancelled.end_one(echo);
    assert_eq!(cancelled.settle(), Rest::Ended);
    assert_eq!(cancelled.run().status(), Status::Cancelled);
    assert_eq!(cancelled.items(), [0]);
    assert_eq!(
        cancelled.run().attempts().count(),
        0,
        "nothing of an ended run is in flight"
    );

    let mut held = each(
        "parallel: true\n      max_concurrency: 2",
        &json!([1, 2, 3]),
    );
    held.settle();
    held.walker.hold(Suspension::new(SuspendReason::User));
    held.end_one(echo);
    assert!(
        matches!(held.settle(), Rest::Waits(_)),
        "what is in flight may end"
    );
    held.end_one(echo);
    assert_eq!(held.settle(), Rest::Suspended);
    held.resume(None);
    assert_eq!(held.play(), Rest::Ended);
    assert_eq!(held.items(), [0, 1, 2]);
}

#[test]
fn failed_item_is_classified_by_its_report() {
    let configuration = json!({
        "hook_conditions": {"builtin_hooks": [
            {"id": "again", "event": "error", "condition": {"path": "classification.retryable", "op": "eq", "value": true},
             "action": {"retry": true}}
        ]},
        "error_classification": {"patterns": [
            {"id": "busy", "category": "rate_limited", "match": {"path": "status_code", "op": "eq", "value": 429},
             "retry_policy": {"type": "fixed", "delay": 5}}
        ]},
    });
    let config = over("");
    let mut stage = Stage::under(&config, run(json!({"list": [0, 1]}), None), &configuration);
    let tries = std::cell::Cell::new(0);
    let busy_once = |call: &Call| {
        tries.set(tries.get() + 1);
        if tries.get() > 1 {
            return echo(call);
        }
        CallOutcome {
            failure: Some(Failure::permanent("tool_failed", "busy")),
            ..answered(json!({"success": false, "status_code": 429}))
        }
    };
    assert_eq!(stage.play_with(busy_once), Rest::Ended);
    assert_eq!(stage.path(), "each:foreach end:return");
    assert_eq!(stage.items(), [0, 0, 1]);
    assert!(stage.clock >= 5000, "{}", stage.clock);
    let failed = stage.log.iter().find_map(|(_, event)| {
        let Event::Graph(GraphEvent::StepFailed(StepFailed {
            error,
            classification,
            ..
        })) = event
        else {
            return None;
        };
        Some((error.message.as_str(), &classification["code"]))
    });
    assert_eq!(
        failed,
        Some(("each[0] failed: busy (tool_failed)", &json!("busy")))
    );
}

#[test]
fn collected_errors_keep_item_order() {
    let config = over("parallel: true\n      on_item_error: collect");
    let mut stage = Stage::of(&config, run(json!({"list": [0, 1, 2]}), None));
    stage.settle();
    stage.in_flight.rotate_left(1);
    let fails = |call: &Call| CallOutcome {
        failure: Some(Failure::permanent("tool_failed", "no")),
        ..echo(call)
    };
    assert_eq!(stage.play_with(fails), Rest::Ended);
    let errors = stage.run().graph().unwrap().suppressed.iter();
    let errors: Vec<_> = errors.map(|error| error.error.as_str()).collect();
    assert_eq!(errors, ["each[0]: no", "each[1]: no", "each[2]: no"]);
}

#[test]
fn item_results_are_bounded_before_recording() {
    let config = over("parallel: true\n      max_concurrency: 6\n      on_item_error: collect");
    let mut stage = Stage::of(&config, run(json!({"list": [0, 1, 2, 3, 4, 5, 6]}), None));
    let text = "x".repeat(bounds::MOST_BYTES / 4);
    let prints = |_: &Call| answered(json!({"stdout": text}));
    assert_eq!(stage.settle(), Rest::Waits(None));
    for taken in 1..=6 {
        stage.end_one(prints);
        // The error of a result that does not fit is kept.
        let (held, errors) = (stage.run().held(), 10_000);
        assert!(held < bounds::MOST_BYTES + errors, "{taken} items: {held}");
    }
    assert_eq!(stage.play_with(prints), Rest::Ended);
    assert_eq!(
        stage.items(),
        [0, 1, 2, 3, 4, 5],
        "the last one does not start"
    );
    assert_eq!(stage.failure().code, "results_too_large");
    let mut codes = Vec::new();
    for (_, event) in &stage.log {
        let bytes = serde_json::to_string(event).unwrap().len();
        let mut is_kept = false;
        if let Event::Graph(GraphEvent::ItemCompleted(ItemCompleted { error, .. })) = event {
            codes.push(error.as_ref().map_or("ok", |error| error.code.as_str()));
            is_kept = error.is_none();
        }
        assert_eq!(bytes > 10_000, is_kept, "{} takes {bytes}", event.name());
    }
    let large = "results_too_large";
    assert_eq!(codes, ["ok", "ok", "ok", large, large, large]);
    // None of them is repeated: their actions have succeeded.
    assert_eq!(stage.calls.len(), 6);
}

#[test]
fn node_results_are_copied_only_with_memory() {
    let text = "x".repeat(100_000);
    let prints = |_: &Call| answered(json!({"stdout": text}));
    let ended = |room: usize| {
        let memory = Arc::new(Memory::new(room));
        let mut stage = each("", &json!([1, 2]));
        stage.walker = stage.walker.clone().with_memory(Arc::clone(&memory));
        assert_eq!(stage.play_with(prints), Rest::Ended);
        let failure = match stage.run().outcome() {
            Some(Outcome::Error { error }) => Some(error.code.clone()),
            _ => None,
        };
        (failure, memory.taken())
    };
    assert_eq!(ended(150_000).0.as_deref(), Some("memory_exceeded"));
    assert_eq!(ended(1_000_000).0, None);
}
