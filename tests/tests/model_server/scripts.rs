//! Scripts that cannot be played, and the program.

use rye_tests::ModelServer;

#[test]
fn a_script_that_is_wrong_is_told_with_its_line() {
    for (script, told) in [
        ("", "line 1, column 1: the script is no list"),
        ("[]", "the script is no list with entries"),
        (
            "- reply: {text: a}\n- when: {}",
            "line 2, column 3: the rule has no `reply`",
        ),
        (
            "- reply: {}\n  whenn: {}",
            "line 2, column 3: `/0` has no key `whenn`: it has when, reply",
        ),
        (
            "- when: {turns: 1}\n  reply: {}",
            "line 1, column 10: `/0/when` has no key `turns`",
        ),
        ("- when: {turn: 0}\n  reply: {}", "the first turn is 1"),
        (
            "- when: {contains: 17}\n  reply: {}",
            "`/0/when/contains` is no text: put it in quotes",
        ),
        ("- reply: {}\n  times: 0", "answers nothing"),
        (
            "- reply: {text: a, status: 529}",
            "a reply with `status` has no `text`",
        ),
        (
            "- reply: {text: a, reset_before: true}",
            "a reply with `reset_before` has no `text`",
        ),
        (
            "- reply: {retry_after: 1}",
            "`retry_after` goes with a `status`",
        ),
        ("- reply: {status: 200}", "`status` is from 400 to 599"),
        (
            "- reply:\n    stall: 1\n    cut_after: 1",
            "has `cut_after` or `stall`, not both",
        ),
        (
            "- reply: {stop: end_turn}",
            "`stop` is one of end, calls, length",
        ),
        ("- reply: {calls: [{input: {}}]}", "the call has no `name`"),
        (
            "- reply: {calls: [{name: a, input: [1]}]}",
            "`input` is a mapping, or text",
        ),
        (
            "- reply: {calls: [{name: a}], duplicate_index: true}",
            "needs two calls",
        ),
        (
            "- reply: {text: a, content: [{text: b}]}",
            "`text` belongs into `content`",
        ),
        ("- reply: {content: [{text: a, hold: b}]}", "has one key"),
        ("- reply: {content: [{}]}", "has one key"),
        ("- reply: {hold: {before: 1}}", "`hold` has no `name`"),
        (
            "- reply: {slow_headers: [1]}",
            "neither a number of milliseconds",
        ),
        ("- reply: {huge: 100000000}", "is no number from 0 to"),
        (
            "- reply: {usage: {input: -1}}",
            "`/0/reply/usage/input` is no number",
        ),
        ("- reply: {no_end: 1}", "is neither true nor false"),
        ("- reply: {", "line 2, column 1: while parsing"),
    ] {
        let error = ModelServer::try_start(script).unwrap_err().to_string();
        assert!(
            error.contains(told) && error.contains("line "),
            "{script}: {error}"
        );
    }
}

#[test]
fn only_what_the_script_waits_for_can_be_released() {
    let server = ModelServer::start("- reply: {hold: mine}");
    server.release("mine");
    let other = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| server.release("yours")));
    let told = other.unwrap_err().downcast::<String>().unwrap();
    assert!(told.contains("`yours`") && told.contains("mine"), "{told}");
}
