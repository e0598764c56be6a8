use std::sync::LazyLock;
use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::select;
use serde_json::json;

use super::classify::{REFUSALS, STOPPED};
use super::*;
use crate::definition::Backoff;
use crate::model::{Fate, ParentEnd};
use crate::yaml;

const SHIPPED: [(&str, &str); 4] = [
    (
        "hook_conditions",
        include_str!("../../../../.ai/config/agent/hook_conditions.yaml"),
    ),
    (
        "error_classification",
        include_str!("../../../../.ai/config/agent/error_classification.yaml"),
    ),
    (
        "resilience",
        include_str!("../../../../.ai/config/agent/resilience.yaml"),
    ),
    (
        "coordination",
        include_str!("../../../../.ai/config/agent/coordination.yaml"),
    ),
];

/// The shipped configuration, its list entries with the origin `system`.
fn shipped() -> Value {
    let read = |text| {
        let mut file = yaml::parse(text).unwrap().value;
        for list in ["builtin_hooks", "patterns", "provider_errors"] {
            let entries = file.get_mut(list).and_then(Value::as_array_mut);
            for entry in entries.into_iter().flatten() {
                entry[ORIGIN] = json!(SYSTEM);
            }
        }
        file
    };
    SHIPPED
        .iter()
        .map(|(name, text)| ((*name).to_owned(), read(text)))
        .collect()
}

static POLICY: LazyLock<Policy> = LazyLock::new(|| policy(&shipped()));

fn policy(config: &Value) -> Policy {
    Policy::from_config(config).unwrap()
}

fn patterns(patterns: &Value) -> Result<Policy, String> {
    Policy::from_config(&json!({CLASSIFICATION: {"patterns": patterns}}))
}

fn hooks_of(builtin: &Value) -> Result<Policy, String> {
    Policy::from_config(&json!({HOOKS: {"builtin_hooks": builtin}}))
}

fn tool(message: &str) -> Failure {
    Failure::permanent("tool_failed", message)
}

fn exponential(base: f64, seconds: u64) -> Backoff {
    Backoff::Exponential {
        base,
        max: Duration::from_secs(seconds),
    }
}

/// The verdict of the shipped configuration: code and category.
fn verdict(failure: &Failure, result: &Value) -> (String, String) {
    let class = POLICY.classify(failure, result);
    assert_eq!(
        class.retryable,
        ["transient", "rate_limited"].contains(&class.category.as_str()),
        "{class:?}"
    );
    (class.code, class.category)
}

const CATEGORIES: [(&str, &str); 10] = [
    ("quota_exhausted", "permanent"),
    ("http_429", "rate_limited"),
    ("auth_failure", "permanent"),
    ("validation_error", "permanent"),
    ("cancelled", "cancelled"),
    ("http_5xx", "transient"),
    ("http_0_connection", "transient"),
    ("network_timeout", "transient"),
    ("network_connection", "transient"),
    ("default", "permanent"),
];

/// Asserts that the shipped patterns find `code` in a failure of a tool, with its category.
fn assert_sorted(text: &str, result: &Value, code: &str) {
    let category = CATEGORIES.iter().find(|(known, _)| *known == code);
    let (_, category) = category.unwrap();
    let found = verdict(&tool(text), result);
    assert_eq!(found, (code.into(), (*category).into()), "{text} {result}");
}

#[test]
fn shipped_patterns_classify_by_stated_category() {
    for (result, code) in [
        (json!({"code": "insufficient_quota"}), "quota_exhausted"),
        (
            json!({"code": "quota_exceeded", "status_code": 429}),
            "quota_exhausted",
        ),
        (json!({"status_code": 429}), "http_429"),
        (json!({"error": {"type": "rate_limit_error"}}), "http_429"),
        (json!({"error": {"type": "ReadTimeout"}}), "network_timeout"),
        (json!({"code": "timeout"}), "network_timeout"),
        (
            json!({"error_type": "ConnectionResetError"}),
            "network_connection",
        ),
        (json!({"status_code": 0}), "http_0_connection"),
        (json!({"status_code": 503}), "http_5xx"),
        (json!({"error": {"status_code": 500}}), "http_5xx"),
        (json!({"status_code": 501}), "default"),
        (json!({"status_code": 401}), "auth_failure"),
        (
            json!({"error": {"code": "authentication_error"}}),
            "auth_failure",
        ),
        (json!({"status_code": 422}), "validation_error"),
        (
            json!({"error": {"type": "ValidationError"}}),
            "validation_error",
        ),
        (json!({"error": {"type": "CancelledError"}}), "cancelled"),
        (json!({"cancelled": true}), "cancelled"),
        (json!({"exit_code": 1}), "default"),
        (json!([1, 2]), "default"),
        (Value::Null, "default"),
    ] {
        assert_sorted("x", &result, code);
    }
}

#[test]
fn shipped_patterns_classify_by_text() {
    for (text, code) in [
        ("You exceeded your current quota", "quota_exhausted"),
        ("request timed out", "network_timeout"),
        ("ECONNREFUSED: connection refused", "network_connection"),
        ("the network is down", "network_connection"),
        ("no such file", "default"),
        ("", "default"),
    ] {
        assert_sorted(text, &json!({}), code);
        assert_sorted("x", &json!({"error": {"message": text}}), code);
    }
    assert_sorted(
        "no network for you",
        &json!({"status_code": 403}),
        "auth_failure",
    );
}

#[test]
fn texts_compare_without_regard_to_case() {
    for (text, result, code) in [
        ("Connection Refused", json!({}), "network_connection"),
        ("NETWORK unreachable", json!({}), "network_connection"),
        (
            "x",
            json!({"error": {"type": "timeouterror"}}),
            "network_timeout",
        ),
        ("x", json!({"code": "QUOTA_EXCEEDED"}), "quota_exhausted"),
        (
            "x",
            json!({"error": {"type": "VALIDATIONERROR"}}),
            "validation_error",
        ),
    ] {
        assert_eq!(verdict(&tool(text), &result).0, code, "{text} {result}");
    }
    // The pattern is folded as well, whatever the operator; classes of characters stay as they are.
    for test in [
        json!({"path": "error.message", "op": "regex", "value": "^DISK \\S+ Full$"}),
        json!({"path": "error.message", "op": "contains", "value": "DISK"}),
        json!({"path": "error.message", "value": "Disk sda Full"}),
        json!({"path": "error.message", "op": "in", "value": ["x", "Disk SDA full"]}),
        json!({"all": [{"not": {"path": "error.message", "op": "eq", "value": "OTHER"}}]}),
    ] {
        let own = patterns(&json!([{"id": "p", "category": "transient", "match": test}])).unwrap();
        let class = own.classify(&tool("dISK sda full"), &Value::Null);
        assert_eq!(class.code, "p", "{test}");
    }
}

#[test]
fn failures_of_our_own_are_sorted_by_their_code() {
    let own = |code: &str, retryable| Failure {
        retryable,
        ..Failure::permanent(code, "something with a network that timed out")
    };
    let said = |failure, result| verdict(&failure, &result).1;
    for code in [
        "permission_denied",
        "item_refused",
        "item_not_found",
        "executor_not_found",
        "invalid_action",
        "precondition_failed",
        "input_validation_failed",
        "interpolation_failed",
        "internal",
    ] {
        assert_eq!(said(own(code, false), Value::Null), "permanent", "{code}");
        assert_eq!(said(own(code, true), Value::Null), "permanent", "{code}");
        // A nested run passes on the cause of its failure.
        let nested = said(tool("network"), json!({"success": false, "code": code}));
        assert_eq!(nested, "permanent", "{code}");
    }
    for code in ["stopped", "interrupted", "cancelled"] {
        assert_eq!(said(own(code, true), Value::Null), "cancelled", "{code}");
    }
    let timeout = Failure {
        retryable: true,
        ..Failure::permanent("timeout", "took too long")
    };
    assert_eq!(verdict(&timeout, &Value::Null).0, "network_timeout");
    // The output of the interrupted tool does not change the cause.
    assert_eq!(
        verdict(&timeout, &json!({"code": "permission_denied"})).0,
        "network_timeout"
    );
    let unavailable = Failure {
        retryable: true,
        ..Failure::permanent("unavailable", "no process can be started now")
    };
    let class = POLICY.classify(&unavailable, &Value::Null);
    assert_eq!(
        (
            class.category.as_str(),
            class.code.as_str(),
            class.retryable
        ),
        ("transient", "unavailable", true)
    );
    assert_eq!(class.backoff, exponential(1.0, 30));
}

proptest! {
    #[test]
    fn refused_and_stopped_failures_are_never_retryable(
        text in ".*(network|timeout|connection reset).*",
        status in 0..600,
        (code, category) in prop_oneof![
            select(&REFUSALS[..]).prop_map(|code| (code, "permanent")),
            select(&STOPPED[..]).prop_map(|code| (code, "cancelled")),
        ],
    ) {
        let refused = Failure::permanent(code, text.clone());
        let result = json!({"error": {"message": text, "type": "TimeoutError"}, "status_code": status});
        let class = POLICY.classify(&refused, &result);
        prop_assert!(!class.retryable);
        prop_assert_eq!(class.category, category);
    }
}

#[test]
fn the_first_pattern_that_matches_decides() {
    let two = patterns(&json!([
        {"id": "first", "category": "odd", "match": {"path": "status_code", "op": "gte", "value": 500}},
        {"id": "second", "category": "transient", "match": {"path": "status_code", "value": 503}},
    ]))
    .unwrap();
    let class = two.classify(&tool("x"), &json!({"status_code": 503}));
    assert_eq!((class.code.as_str(), class.retryable), ("first", false));
    assert_eq!(class.backoff, Backoff::None);
}

#[test]
fn a_pattern_says_how_long_to_wait() {
    for (retry_policy, expected) in [
        (json!(null), exponential(1.0, 30)),
        (json!({"type": "none"}), Backoff::None),
        (
            json!({"type": "fixed", "delay": 0.5}),
            Backoff::Fixed(Duration::from_millis(500)),
        ),
        (
            json!({"type": "fixed"}),
            Backoff::Fixed(Duration::from_mins(1)),
        ),
        (
            json!({"type": "exponential", "base": 3.0, "max": 30}),
            exponential(3.0, 30),
        ),
        (json!({"type": "exponential"}), exponential(2.0, 120)),
        (
            json!({"type": "use_header", "fallback": {"type": "fixed", "delay": 7}}),
            Backoff::Fixed(Duration::from_secs(7)),
        ),
        (json!({"type": "use_header"}), exponential(1.0, 30)),
    ] {
        let entry = json!({"id": "p", "category": "transient", "match": {"path": "status_code", "value": 1}, "retry_policy": retry_policy});
        let class = patterns(&json!([entry]))
            .unwrap()
            .classify(&tool("x"), &json!({"status_code": 1}));
        assert_eq!(class.backoff, expected, "{retry_policy}");
    }
}

#[test]
fn a_result_may_ask_for_its_pause_where_the_pattern_allows_it() {
    let shipped = &*POLICY;
    let fallback = exponential(2.0, 60);
    for (asked, expected) in [
        (
            json!({"retry_after": 3}),
            Backoff::Fixed(Duration::from_secs(3)),
        ),
        (
            json!({"retry_after": "1.5"}),
            Backoff::Fixed(Duration::from_millis(1500)),
        ),
        (
            json!({"error": {"retry_after": 0}}),
            Backoff::Fixed(Duration::ZERO),
        ),
        (
            json!({"headers": {"Retry-After": "20"}}),
            Backoff::Fixed(Duration::from_secs(20)),
        ),
        (
            json!({"retry_after": 1e12}),
            Backoff::Fixed(Duration::from_hours(1)),
        ),
        (json!({"retry_after": -1}), fallback),
        (json!({"retry_after": "soon"}), fallback),
        (
            json!({"headers": {"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}}),
            fallback,
        ),
        (json!({}), fallback),
    ] {
        let mut result = asked.clone();
        result["status_code"] = json!(429);
        let class = shipped.classify(&tool("x"), &result);
        assert_eq!(class.backoff, expected, "{asked}");
    }
    let class = shipped.classify(&tool("x"), &json!({"status_code": 500, "retry_after": 3}));
    assert_eq!(class.backoff, exponential(2.0, 120));
}

#[test]
fn hooks_read_a_classification_as_a_document() {
    let shipped = &*POLICY;
    let told = |result| shipped.classify(&tool("x"), &result).to_json();
    assert_eq!(
        told(json!({"status_code": 503})),
        json!({
            "category": "transient", "code": "http_5xx", "retryable": true,
            "retry_policy": {"type": "exponential", "base": 2.0, "max": 120.0},
        })
    );
    assert_eq!(
        told(json!({"status_code": 429, "retry_after": 3}))["retry_policy"],
        json!({"type": "fixed", "delay": 3.0})
    );
    assert_eq!(
        told(json!({})),
        json!({"category": "permanent", "code": "default", "retryable": false, "retry_policy": null})
    );
}

#[test]
fn a_tool_says_by_a_bool_or_its_text_that_it_may_be_retried() {
    for (said, retryable) in [
        (json!(true), true),
        (json!("true"), true),
        (json!("True"), true),
        (json!(false), false),
        (json!("False"), false),
    ] {
        let class = POLICY.classify(&tool("odd"), &json!({"error": "odd", "retryable": said}));
        assert_eq!(class.retryable, retryable, "{said}");
    }
}

#[test]
fn the_default_can_be_set() {
    let config = json!({CLASSIFICATION: {"default": {"category": "transient"}}});
    let class = policy(&config).classify(&tool("x"), &Value::Null);
    assert_eq!((class.code.as_str(), class.retryable), ("default", true));
    assert_eq!(class.backoff, exponential(1.0, 30));
}

#[test]
fn without_any_configuration_there_are_no_hooks_and_everything_is_permanent() {
    for nothing in [
        Value::Null,
        json!({}),
        json!({HOOKS: {}, CLASSIFICATION: null}),
    ] {
        let none = policy(&nothing);
        assert!(none.hooks().is_empty());
        assert_eq!(
            none.classify(&tool("network"), &Value::Null).category,
            "permanent"
        );
    }
}

#[test]
fn a_bad_pattern_is_named_with_file_entry_and_fix() {
    let good = json!({"path": "status_code", "value": 1});
    for (entry, told) in [
        (
            json!({"id": "p", "category": "x", "match": {"path": "error.message", "op": "regex", "value": "("}}),
            "`match/value`",
        ),
        (
            json!({"id": "p", "category": "x", "match": {"any": [{"path": "error.message", "op": "like", "value": "a"}]}}),
            "unknown op `like`",
        ),
        (
            json!({"id": "p", "category": "x", "match": {"path": "result.x", "value": 1}}),
            "`result.x`",
        ),
        (json!({"id": "p", "category": "x"}), "no `match`"),
        (
            json!({"id": "p", "category": "x", "match": {}}),
            "no `match`",
        ),
        (json!({"id": "p", "match": good}), "no `category`"),
        (
            json!({"id": "p", "category": "x", "match": good, "retryabel": true}),
            "did you mean `retryable`?",
        ),
        (
            json!({"id": "p", "category": "x", "match": good, "retryable": "yes"}),
            "`retryable`",
        ),
        (
            json!({"id": "p", "category": "x", "match": good, "retry_policy": {"type": "expo"}}),
            "`type`",
        ),
        (
            json!({"id": "p", "category": "x", "match": good, "retry_policy": {"type": "exponential", "base": -1}}),
            "`base`",
        ),
        (
            json!({"id": "p", "category": "x", "match": good, "retry_policy": {"type": "exponential", "max": 1e300}}),
            "`max`",
        ),
        (
            json!({"id": "p", "category": "x", "match": good, "retry_policy": {"type": "fixed", "base": 1}}),
            "`base`",
        ),
    ] {
        let mut marked = entry.clone();
        marked[ORIGIN] = json!("project");
        let error = patterns(&json!([marked])).unwrap_err();
        for part in [
            told,
            "config:agent/error_classification",
            "`p`",
            "project",
            "ryectl sign",
        ] {
            assert!(error.contains(part), "{entry}: {error}");
        }
    }
}

/// Asserts that the file is refused with its problem and the fix.
fn assert_named_with_the_fix(config: &Value, told: &str) {
    let error = Policy::from_config(config).unwrap_err();
    assert!(
        error.contains(told) && error.contains("ryectl sign config:agent/"),
        "{error}"
    );
}

#[test]
fn a_bad_file_of_classes_or_hooks_is_named_with_the_fix() {
    for (config, told) in [
        (
            json!({CLASSIFICATION: {"paterns": []}}),
            "did you mean `patterns`?",
        ),
        (
            json!({CLASSIFICATION: {"patterns": {}}}),
            "`patterns` is not a list",
        ),
        (
            json!({CLASSIFICATION: {"patterns": [{"category": "x"}]}}),
            "no `id`",
        ),
        (
            json!({CLASSIFICATION: {"default": {"categry": "x"}}}),
            "`default`",
        ),
        (json!({CLASSIFICATION: []}), "no map"),
        (
            json!({HOOKS: {"buildin_hooks": []}}),
            "did you mean `builtin_hooks`?",
        ),
        (
            json!({HOOKS: {"builtin_hooks": 1}}),
            "`builtin_hooks` is not a list",
        ),
        (json!({HOOKS: {"hooks": "x"}}), "unknown key `hooks`"),
    ] {
        assert_named_with_the_fix(&config, told);
    }
}

#[test]
fn a_bad_file_of_resilience_is_named_with_the_fix() {
    for (config, told) in [
        (
            json!({RESILIENCE: {"retry": {"max_retrys": 5}}}),
            "`retry`: unknown key `max_retrys` (did you mean `max_retries`?)",
        ),
        (
            json!({RESILIENCE: {"retry": "x"}}),
            "(`.ai/config/agent/resilience.yaml`): `retry` is a map",
        ),
        (json!({RESILIENCE: {"bogus": 1}}), "unknown key `bogus`"),
        (
            json!({RESILIENCE: {"limits": 5}}),
            "`limits` is a map with defaults, enforcement, repeated_calls, not 5",
        ),
        (
            json!({RESILIENCE: {"limits": {"spend": 5}}}),
            "`limits`: unknown key `spend`",
        ),
        (
            json!({RESILIENCE: {"limits": {"defaults": [5]}}}),
            "`limits.defaults` is a map",
        ),
        (
            json!({RESILIENCE: {"limits": {"defaults": {"spent": 5}}}}),
            "`limits.defaults`: unknown key `spent` (did you mean `spend`?)",
        ),
        (
            json!({RESILIENCE: {"limits": {"defaults": {"spend": -1}}}}),
            "`limits.defaults.spend`",
        ),
        (
            json!({RESILIENCE: {"child_policy": {"on_parent_cancel": "maybe"}}}),
            "`child_policy.on_parent_cancel` is allow or cascade_cancel, not \"maybe\"",
        ),
        (
            json!({RESILIENCE: {"child_policy": {"on_parent_cancle": "allow"}}}),
            "did you mean `on_parent_cancel`?",
        ),
        (
            json!({RESILIENCE: {"concurrency": {"max_concurrent_children": -1}}}),
            "`concurrency.max_concurrent_children`",
        ),
        (
            json!({RESILIENCE: {"concurrency": {"max_total_threads": "many"}}}),
            "`concurrency.max_total_threads`",
        ),
        (
            json!({RESILIENCE: {"concurrency": {"max_total_thread": 5}}}),
            "did you mean `max_total_threads`?",
        ),
        (
            json!({RESILIENCE: {"retry": {"max_retries": -1}}}),
            "`retry.max_retries`",
        ),
    ] {
        assert_named_with_the_fix(&config, told);
    }
}

#[test]
fn the_built_in_hook_tries_again_what_may_pass() {
    let shipped = &*POLICY;
    let [hook] = shipped.hooks() else {
        unreachable!("there is one: {:?}", shipped.hooks())
    };
    assert_eq!(hook.id, "default_retry_transient");
    assert_eq!(
        (hook.event, hook.layer, hook.authority),
        (HookEvent::Error, 2, Authority::Node)
    );
    assert_eq!(
        hook.action,
        HookAction::Control(json!({"action": "retry", "max_retries": 3}))
    );
    for (result, holds) in [
        (json!({"status_code": 503}), true),
        (json!({"status_code": 401}), false),
    ] {
        let classification = shipped.classify(&tool("x"), &result).to_json();
        let scope = crate::expr::Names::new(vec![("classification", &classification)]);
        let condition = hook.condition.as_ref().unwrap();
        assert_eq!(condition.holds(&scope, &mut Vec::new()), holds, "{result}");
    }
}

#[test]
fn resilience_sets_default_spend() {
    let spend = |value: Value| {
        let config = json!({RESILIENCE: {"limits": {"defaults": {"spend": value}}}});
        policy(&config).default_spend()
    };
    assert_eq!(policy(&shipped()).default_spend(), Usd::parse("1").ok());
    assert_eq!(spend(json!(0.25)), Usd::parse("0.25").ok());
    assert_eq!(spend(json!(0)), Some(Usd::ZERO));
    assert_eq!(spend(json!("none")), None);
    assert_eq!(spend(Value::Null), None);
}

#[test]
fn resilience_sets_default_thread_limits() {
    let of = |limits: Value| policy(&json!({RESILIENCE: {"limits": limits}}));
    let shipped = policy(&shipped());
    let limits = shipped.default_limits();
    let numbers = (limits.turns, limits.tokens, limits.spawns, limits.depth);
    assert_eq!(numbers, (Some(25), Some(200_000), Some(50), Some(10)));
    assert_eq!(limits.duration_ms, Some(1_800_000));
    assert_eq!(shipped.on_exceed(), OnExceed::Escalate);
    assert_eq!(shipped.repeated_calls(), 6);
    assert_eq!(shipped.ignored(), [""; 0]);
    let none = json!({"defaults": {"turns": "none", "tokens": null}});
    assert_eq!(*of(none).default_limits(), Limits::default());
    for (word, becomes) in [
        ("escalate", OnExceed::Escalate),
        ("suspend", OnExceed::Suspend),
        ("fail", OnExceed::Fail),
        ("abort", OnExceed::Fail),
    ] {
        let policy = of(json!({"enforcement": {"on_exceed": word}}));
        assert_eq!(policy.on_exceed(), becomes);
    }
    assert_eq!(of(json!({"repeated_calls": 0})).repeated_calls(), 0);
}

#[test]
fn tools_offered_by_name_take_a_tenth_of_the_window_and_no_more_than_the_cap() {
    let of = |preload: Value| policy(&json!({RESILIENCE: {"tool_preload": preload}})).preload();
    let shipped = policy(&shipped()).preload();
    assert_eq!(shipped.most_tokens(1_000_000), 100_000);
    assert_eq!(shipped.most_tokens(8_000), 800);
    for (preload, most) in [
        (json!({}), 20_000),
        (json!({"enabled": true}), 20_000),
        (json!({"max_tokens": 2_000}), 2_000),
        (json!({"max_tokens": 50_000}), 20_000),
        (json!({"enabled": false}), 0),
        (json!({"enabled": false, "max_tokens": 9}), 0),
    ] {
        assert_eq!(of(preload.clone()).most_tokens(200_000), most, "{preload}");
    }
}

#[test]
fn resilience_reports_foreign_keys_and_refuses_unknown() {
    let read = |resilience: Value| Policy::from_config(&json!({RESILIENCE: resilience}));
    let foreign = json!({
        "checkpoint": {"triggers": {}},
        "coordination": {"fail_fast": false},
        "retry": {"policies": {}},
        "limits": {"enforcement": {"check_before_turn": true, "check_after_turn": true}},
    });
    let policy = read(foreign).unwrap();
    let told = ["`checkpoint`", "`coordination`", "`retry.policies`"]
        .into_iter()
        .chain([
            "`limits.enforcement.check_before_turn`",
            "`limits.enforcement.check_after_turn`",
        ]);
    assert_eq!(policy.ignored().len(), 5);
    for (told, ignored) in told.zip(policy.ignored()) {
        assert!(
            ignored.contains(told) && ignored.contains("no_effect"),
            "{ignored}"
        );
    }
    for (resilience, told) in [
        (json!({"limit": {}}), "did you mean `limits`?"),
        (
            json!({"limits": {"default": {}}}),
            "did you mean `defaults`?",
        ),
        (
            json!({"limits": {"defaults": {"turns": -1}}}),
            "`limits.defaults.turns` is a whole number",
        ),
        (
            json!({"limits": {"defaults": {"turns": 1.5}}}),
            "`limits.defaults.turns` is a whole number",
        ),
        (
            json!({"limits": {"defaults": {"depth": "deep"}}}),
            "`limits.defaults.depth`",
        ),
        (
            json!({"limits": {"repeated_calls": true}}),
            "`limits.repeated_calls`",
        ),
        (
            json!({"limits": {"enforcement": {"on_exceed": "ask"}}}),
            "escalate, suspend, fail or abort",
        ),
        (
            json!({"limits": {"enforcement": 1}}),
            "`limits.enforcement` is a map",
        ),
        (
            json!({"tool_preload": {"enabled": "no"}}),
            "`tool_preload.enabled` is true or false",
        ),
        (
            json!({"tool_preload": {"tokens": 1}}),
            "`tool_preload`: unknown key",
        ),
    ] {
        let problem = read(resilience).unwrap_err();
        assert!(problem.contains(told), "{problem}");
        assert!(
            problem.contains("ryectl sign config:agent/resilience"),
            "{problem}"
        );
    }
}

#[test]
fn resilience_sets_parent_end_and_child_limits() {
    let read = |resilience: Value| policy(&json!({RESILIENCE: resilience})).children();
    let usual = ChildTerms {
        most: Some(10),
        ..ChildTerms::default()
    };
    assert_eq!(policy(&shipped()).children(), usual);
    assert_eq!(read(Value::Null), usual);
    let given = read(json!({
        "child_policy": {"on_parent_complete": "cascade_cancel", "on_parent_error": "allow"},
        "concurrency": {"max_concurrent_children": 3, "max_total_threads": 20},
    }));
    let follow = ParentEnd::Follow {
        on_complete: Fate::Cancel,
        on_error: Fate::Leave,
        on_cancel: Fate::Cancel,
    };
    assert_eq!((given.follow, given.most), (follow, Some(3)));
    assert_eq!(given.most_in_tree, Some(20));
}

#[test]
fn decided_failure_ignores_its_text() {
    let words = "connection refused, please try again: 503 rate limit";
    assert!(
        POLICY
            .classify(&tool(words), &json!({"status_code": 503}))
            .retryable
    );
    let failed = Failure::permanent("outputs_missing", words).decided();
    let class = POLICY.classify(&failed, &json!({"status_code": 503}));
    assert_eq!(
        (class.category.as_str(), class.code.as_str()),
        ("permanent", "outputs_missing")
    );
    assert!(!class.retryable);
    let may_pass = Failure {
        retryable: true,
        ..failed
    };
    assert!(POLICY.classify(&may_pass, &Value::Null).retryable);
}

#[test]
fn resilience_counts_the_retries_of_built_in_hooks_that_name_no_number() {
    let mut config = shipped();
    config[RESILIENCE]["retry"]["max_retries"] = json!(5);
    config[HOOKS]["builtin_hooks"] = json!([
        {"id": "a", "event": "error", "action": {"retry": true}},
        {"id": "b", "event": "error", "action": {"retry": true, "max_retries": 1}},
    ]);
    let actions: Vec<_> = policy(&config)
        .hooks()
        .iter()
        .map(|hook| hook.action.clone())
        .collect();
    assert_eq!(
        actions,
        [5, 1].map(|max| HookAction::Control(json!({"action": "retry", "max_retries": max})))
    );
}

#[test]
fn only_hooks_of_the_system_have_the_authority_of_the_node() {
    let hook = |id: &str, origin: Value| {
        let mut hook = json!({"id": id, "event": "after_step", "action": {"item_id": "a/b"}});
        if !origin.is_null() {
            hook[ORIGIN] = origin;
        }
        hook
    };
    let list = json!([
        hook("system", json!("system")),
        hook("user", json!("user")),
        hook("project", json!("project")),
        hook("nowhere", Value::Null),
        hook("odd", json!(true)),
    ]);
    let found: Vec<_> = hooks_of(&list)
        .unwrap()
        .hooks()
        .iter()
        .map(|hook| (hook.id.clone(), hook.authority))
        .collect();
    let run = |id: &str| (id.to_owned(), Authority::Run);
    assert_eq!(
        found,
        [
            ("system".to_owned(), Authority::Node),
            run("user"),
            run("project"),
            run("nowhere"),
            run("odd"),
        ]
    );
}

#[test]
fn hooks_are_ordered_by_layer_without_thread_hooks() {
    let hook =
        |id: &str, event: &str| json!({"id": id, "event": event, "action": {"item_id": "a/b"}});
    let config = json!({HOOKS: {
        "infra_hooks": [hook("i1", "after_step"), hook("i2", "after_complete")],
        "builtin_hooks": [
            hook("b1", "limit"),
            // A hook for threads: nothing else in it is checked.
            {"id": "t", "event": "context_window_pressure", "directive": "x", "layer": 9},
            hook("b2", "error"),
        ],
        "context_hooks": [{"anything": 1}],
        "action_primaries": ["execute"],
        "action_item_types": [],
    }});
    let found: Vec<_> = policy(&config)
        .hooks()
        .iter()
        .map(|hook| (hook.id.clone(), hook.layer))
        .collect();
    let expected = [("b1", 2), ("b2", 2), ("i1", 3)];
    assert_eq!(found, expected.map(|(id, layer)| (id.to_owned(), layer)));
    // Entries without effect are reported: their author relies on them.
    let told = [
        "`context_hooks` has no effect",
        "`action_primaries` has no effect",
        "`action_item_types` has no effect",
        "the hook `t` of `context_window_pressure` has no effect",
        "the hook `i2` of `after_complete` has no effect",
    ];
    let policy = policy(&config);
    assert_eq!(policy.ignored().len(), told.len(), "{:?}", policy.ignored());
    for (told, ignored) in told.iter().zip(policy.ignored()) {
        assert!(
            ignored.contains(told) && ignored.ends_with("(no_effect)"),
            "{ignored}"
        );
    }
}

#[test]
fn keys_of_files_of_the_original_have_no_effect_and_are_reported() {
    let head = json!({"schema_version": "1.0.0", "tool_type": "config"});
    let mut classification = head.clone();
    for key in ["operators", "combinators", "retry_policy_types"] {
        classification[key] = json!([]);
    }
    for (file, content, count) in [
        (RESILIENCE, head.clone(), 2),
        (COORDINATION, head.clone(), 2),
        (HOOKS, head.clone(), 2),
        (CLASSIFICATION, classification, 5),
    ] {
        let policy = Policy::from_config(&json!({file: content})).unwrap();
        assert_eq!(policy.ignored().len(), count, "{file}");
        assert!(policy.ignored().iter().all(|note| note.contains(file)));
    }
    let mut ignored = Vec::new();
    Risks::read(&head, &mut ignored).unwrap();
    assert_eq!(ignored.len(), 2);
}

#[test]
fn coordination_sets_longest_wait_and_refuses_unknown_keys() {
    let read = |coordination: Value| Policy::from_config(&json!({COORDINATION: coordination}));
    let waits =
        |given: Value| read(json!({"wait_threads": given})).map(|policy| policy.children().waits);
    let of = |usual, most| Ok(Waits { usual, most });
    assert_eq!(waits(json!(null)), of(None, None));
    assert_eq!(waits(json!({"default_timeout": 5})), of(Some(5), None));
    assert_eq!(
        waits(json!({"default_timeout": 5, "max_timeout": 5})),
        of(Some(5), Some(5))
    );
    assert_eq!(waits(json!({"max_timeout": 0})), of(None, None));
    assert_eq!(POLICY.children().waits, Waits::default());
    for (given, told) in [
        (json!({"wait_threads": {"timeout": 5}}), "`wait_threads`: "),
        (
            json!({"wait_threads": {"default_timeout": "soon"}}),
            "`wait_threads.default_timeout` is a whole number",
        ),
        (
            json!({"wait_threads": {"default_timeout": 6, "max_timeout": 5}}),
            "is above",
        ),
        (
            json!({"wait_threads": {"default_timeout": 0, "max_timeout": 5}}),
            "is above",
        ),
        (json!({"wait_thread": {}}), "did you mean `wait_threads`?"),
        (json!([]), "it holds no map"),
    ] {
        let problem = read(given).unwrap_err();
        assert!(problem.contains(told), "{problem}");
        assert!(problem.contains("config:agent/coordination"), "{problem}");
    }
    let foreign =
        json!({"continuation": {}, "transcript_integrity": "strict", "orphan_detection": {}});
    let policy = read(foreign).unwrap();
    assert_eq!(policy.ignored().len(), 3, "{:?}", policy.ignored());
}

#[test]
fn a_bad_hook_is_named_with_file_entry_and_fix() {
    for (entry, told) in [
        (
            json!({"id": "h", "event": "eror", "action": {"retry": true}}),
            "no event `eror`",
        ),
        (
            json!({"id": "h", "event": "error", "action": {"retry": true}, "layer": 1}),
            "`layer: 1`",
        ),
        (
            json!({"id": "h", "event": "error", "action": {"retry": true}, "when": {}}),
            "when",
        ),
        (json!({"id": "h", "event": "error"}), "action"),
        (
            json!({"id": "h", "event": "error", "action": {"retry": true}, "condition": {"op": "like"}}),
            "like",
        ),
    ] {
        let mut marked = entry.clone();
        marked[ORIGIN] = json!("user");
        let error = hooks_of(&json!([marked])).unwrap_err();
        for part in [
            told,
            "config:agent/hook_conditions",
            "`h`",
            "user",
            "ryectl sign",
        ] {
            assert!(error.contains(part), "{entry}: {error}");
        }
    }
}

#[test]
fn rows_about_providers_are_kept_as_data_and_a_bad_one_is_named_with_the_fix() {
    let shipped = POLICY.provider_errors();
    assert!(shipped.len() > 5, "{shipped:?}");
    assert!(shipped.iter().all(|row| row.get(ORIGIN).is_none()));
    let row = json!({"id": "own", "category": "cancelled", "match": {"path": "status_code", "op": "eq", "value": 1}, ORIGIN: "project"});
    let error =
        Policy::from_config(&json!({CLASSIFICATION: {"provider_errors": [row]}})).unwrap_err();
    for part in [
        "config:agent/error_classification",
        "entry of `provider_errors` `own` of the project space",
        "`category` is one of transient",
        "ryectl sign",
    ] {
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn the_reference_has_every_code_that_has_a_meaning_of_its_own() {
    let codes = rye_pages::Table::read("docs/reference.md", "failure codes").names();
    let known = REFUSALS.into_iter().chain(STOPPED);
    let missing: Vec<&str> = known
        .filter(|code| !codes.iter().any(|said| said == code))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn the_reference_has_the_limits_of_threads_as_they_are_shipped() {
    let (_, resilience) = SHIPPED[2];
    let limits = yaml::parse(resilience).unwrap().value["limits"]["defaults"].take();
    let limits = limits.as_object().unwrap();
    let table = rye_pages::Table::read("docs/reference.md", "thread limits");
    table.assert_lists(limits.keys());
    for (name, value) in limits {
        let said: f64 = table.cell(name, "as shipped").parse().unwrap();
        assert_eq!(Some(said), value.as_f64(), "{name}");
    }
}
