//! Templates and conditions of a run can read exactly the names that the reader of graphs allows.

use super::*;
use crate::definition::roots::{APPROVAL, COUNTS, EVERYWHERE, RESULTS};
use crate::model::event::StepFailed;

fn keys(value: &Value) -> BTreeSet<&str> {
    value
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect()
}

#[test]
fn readable_names_exist_at_run_time() {
    let read = |more: &[&str]| {
        let names = EVERYWHERE.iter().chain(more);
        let names = names.map(|name| format!("<${{{name}}}>"));
        names.collect::<Vec<_>>().concat()
    };
    let config = format!(
        "
  start: one
  nodes:
    one: {{action: {{item_id: rye/core/echo, params: {{p: '{0}'}}}}, assign: {{one: '{1}'}}, next: each}}
    each:
      type: foreach
      over: ['{0}']
      as: file
      action: {{item_id: rye/core/echo, params: {{p: '{2}'}}}}
      collect: all
      collect_value: '{3}'
      assign: {{each: '{1}'}}
      next: both
    both:
      type: parallel
      branches: {{lint: {{item_id: rye/core/echo, params: {{p: '{0}'}}}}}}
      assign: {{both: '{1}'}}
      next: [{{to: gate, when: {{path: result.succeeded, value: 1}}}}]
    gate: {{assign: {{gate: '{0}'}}, next: rest}}
    rest: {{type: wait, for: 0, assign: {{rest: '{0}'}}, next: stop}}
    stop: {{type: fail, message: '{0}', output: '{0}'}}
",
        read(&[]),
        read(&["result"]),
        read(&["file"]),
        read(&["file", "result"]),
    );
    let mut stage = Stage::of(&config, run(json!({"x": 1}), None));
    assert_eq!(stage.play(), Rest::Ended);
    assert_eq!(
        stage.path(),
        "one:ok each:foreach both:parallel gate:gate rest:wait stop:error"
    );
    assert_eq!(stage.failure().code, "graph_failed");
    assert_eq!(stage.warnings(), Vec::<&str>::new());
}

#[test]
fn result_keys_match_readable_names() {
    let config = "
  start: each
  nodes:
    each:
      type: foreach
      over: [1]
      action: {item_id: rye/core/echo}
      assign: {each: '${result}'}
      next: both
    both:
      type: parallel
      branches: {lint: {item_id: rye/core/echo}}
      assign: {both: '${result}'}
      next: ask
    ask: {type: approval, message: m, assign: {ask: '${result}'}}
";
    let mut stage = Stage::of(config, run(json!({}), None));
    assert_eq!(stage.play(), Rest::Suspended);
    stage.answer(true, None);
    assert_eq!(stage.play(), Rest::Ended);
    let assigned = stage.state();
    let of_items = COUNTS.into_iter().chain([RESULTS]);
    assert_eq!(keys(&assigned["each"]), of_items.collect());
    let of_branches = COUNTS.into_iter().chain(["lint"]);
    assert_eq!(keys(&assigned["both"]), of_branches.collect());
    assert_eq!(keys(&assigned["ask"]), APPROVAL.into_iter().collect());
}

/// A parallel node that collects failures and is a gate.
fn checks(branches: &str) -> Stage {
    let config = format!(
        "
  start: checks
  nodes:
    checks:
      type: parallel
      on_item_error: collect
      branches: {branches}
      assign: {{result: '${{result}}'}}
      next:
        - {{to: red, when: {{path: result.failed, op: gt, value: 0}}}}
        - {{to: green}}
    red: {{type: return}}
    green: {{type: return}}
"
    );
    Stage::of(&config, run(json!({}), None))
}

#[test]
fn a_parallel_node_says_how_many_branches_failed() {
    let lint = "lint: {item_id: rye/core/echo, params: {fail: boom}}";
    let test = "test: {item_id: rye/core/echo, params: {n: 1}}";
    let mut red = checks(&format!("{{{lint}, {test}}}"));
    assert_eq!(red.play(), Rest::Ended);
    assert_eq!(red.path(), "checks:parallel red:return");
    assert_eq!(
        red.state()["result"],
        json!({
            "lint": {"status": "error", "error": "boom", "code": "tool_failed"}, "test": {"n": 1},
            "count": 2, "failed": 1, "succeeded": 1,
        })
    );
    let mut green = checks(&format!("{{{test}}}"));
    assert_eq!(green.play(), Rest::Ended);
    assert_eq!(green.path(), "checks:parallel green:return");
}

#[test]
fn branch_named_like_number_keeps_name() {
    let mut stage = checks("{failed: {item_id: rye/core/echo, params: {n: 1}}}");
    assert_eq!(stage.play(), Rest::Ended);
    assert_eq!(
        stage.state()["result"],
        json!({"failed": {"n": 1}, "count": 1, "succeeded": 1})
    );
}

#[test]
fn items_that_never_began_did_not_succeed() {
    let config = "
  start: each
  nodes:
    each:
      type: foreach
      over: [null, boom, null]
      action: {item_id: rye/core/echo, params: {fail: '${item}'}}
";
    let mut stage = Stage::of(config, run(json!({}), None));
    assert_eq!(stage.play(), Rest::Ended);
    let result = stage.log.iter().find_map(|(_, event)| match event {
        Event::Graph(GraphEvent::StepFailed(StepFailed { result, .. })) => {
            Some(Value::clone(result))
        }
        Event::Graph(_) | Event::Run(_) | Event::Thread(_) | Event::Tool(_) | Event::Process(_) => {
            None
        }
    });
    let result = result.unwrap();
    assert_eq!(
        (&result["count"], &result["failed"], &result["succeeded"]),
        (&json!(3), &json!(1), &json!(1))
    );
}
