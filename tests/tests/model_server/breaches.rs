//! Requests that break the rules of the wire are detected, and valid ones are accepted.

use rye_core::conversation::{Block, Message, Stop};
use rye_core::provider::stream::Ended;
use rye_tests::ModelServer;
use rye_tests::model_server::SECRET;

use super::client::{APIS, Client, TestConversation};

const CALLS: &str = r"
- when: {turn: 1}
  reply: {thinking: Hm., text: So., calls: [{name: count, id: a, input: {x: 1}}, {name: count, id: b}]}
- reply: {text: Done.}
";

/// Returns a body with two answered calls, in the form that Rye sends.
fn body(api: (&str, &'static str)) -> String {
    let server = ModelServer::start(CALLS);
    let mut talk = TestConversation::new(api, "Go");
    talk.ask(&mut Client::new(&server));
    talk.answer(&[("a", "1"), ("b", "2")]);
    talk.body()
}

/// Returns the only breach of a body on a server without history.
fn breach(path: &str, body: &str) -> String {
    let server = ModelServer::start(CALLS);
    let answer = Client::new(&server).ask(path, body);
    let requests = server.requests().len();
    let breaches = server.finish();
    assert_eq!(breaches.len(), 1, "{breaches:?}\n{body}");
    assert_eq!((answer.status, requests), (400, 0), "{answer:?}");
    let told = serde_json::to_string(&breaches[0]).unwrap();
    assert!(
        answer.body.contains(told.trim_matches('"')),
        "the client is told, too: {}",
        answer.body
    );
    breaches[0].clone()
}

/// Asserts that `whole` is valid, and invalid with each of the changes.
fn assert_breaches((api, path): (&str, &'static str), whole: &str, changes: &[(&str, &str, &str)]) {
    let server = ModelServer::start(CALLS);
    assert_eq!(Client::new(&server).ask(path, whole).status, 200);
    for (from, to, told) in changes {
        assert!(whole.contains(from), "{from}\n{whole}");
        let breach = breach(path, &whole.replacen(from, to, 1));
        assert!(breach.contains(told), "{api}, {from} → {to}: {breach}");
    }
}

#[test]
fn bodies_that_anthropic_would_refuse_are_found() {
    assert_breaches(
        APIS[0],
        &body(APIS[0]),
        &[
            (r#"{"model""#, r#"{"modle""#, "has a key `modle`"),
            (r#""model":"m","#, "", "has no `model`"),
            (
                r#""max_tokens":4096"#,
                r#""max_tokens":0"#,
                "`max_tokens` is no number above 0",
            ),
            (
                r#""stream":true"#,
                r#""stream":false"#,
                "`stream` is not true",
            ),
            (r#","stream":true"#, "", "has no `stream`"),
            (
                r#""name":"count""#,
                r#""name":"count me""#,
                "`tools[0].name` is no name",
            ),
            (
                r#"{"type":"object"}"#,
                r#"{"type":"array"}"#,
                "`tools[0].input_schema.type` is not",
            ),
            (
                r#""stream":true"#,
                r#""stream":true,"thinking":{"type":"enabled","budget_tokens":4096}"#,
                "is not from 1024 to below `max_tokens`",
            ),
            (
                r#""stream":true"#,
                r#""stream":true,"metadata":[{"cache_control":1},{"cache_control":1},{"cache_control":1}]"#,
                "more than 4 blocks",
            ),
        ],
    );
}

#[test]
fn messages_that_anthropic_would_refuse_are_found() {
    let thinking = r#"{"type":"thinking","thinking":"Hm.","signature":""#;
    assert_breaches(
        APIS[0],
        &body(APIS[0]),
        &[
            (
                r#"[{"role":"user""#,
                r#"[{"role":"assistant""#,
                "`messages[0]` is not the user's",
            ),
            (
                r#"{"role":"assistant""#,
                r#"{"role":"user""#,
                "`messages[1]` is not the assistant's",
            ),
            (
                r#""text":"Go""#,
                r#""text":" ""#,
                "`messages[0].content[0].text` is nothing but blanks",
            ),
            (
                r#""text":"Go""#,
                r#""text":"""#,
                "`messages[0].content[0].text` is empty",
            ),
            (
                r#""tool_use_id":"a""#,
                r#""tool_use_id":"z""#,
                "answers `z`, which",
            ),
            (
                r#""tool_use_id":"a""#,
                r#""tool_use_id":"b""#,
                "answers `b` a second time",
            ),
            (
                r#"{"type":"tool_result","tool_use_id":"a","content":"1","is_error":false},"#,
                "",
                "the call `a` has no answer",
            ),
            (
                r#"[{"type":"tool_result""#,
                r#"[{"type":"text","text":"Wait"},{"type":"tool_result""#,
                "results come first",
            ),
            (r#""id":"a""#, r#""id":"b""#, "`b` a second time in one"),
            (
                thinking,
                r#"{"type":"thinking","thinking":"Hm.","signature":"","was":""#,
                "has a key `was`",
            ),
            (r#""input":{"x":1}"#, r#""input":[]"#, "input` is no object"),
            (r#""content":"2""#, r#""content":2"#, "is no list"),
            (
                r#""is_error":false"#,
                r#""is_error":0"#,
                "is neither true nor false",
            ),
            (
                r#"{"type":"text","text":"So."}"#,
                r#"{"type":"image"}"#,
                "is a `image`",
            ),
            ("{\"model\"", "{\"model", "the body is not JSON"),
        ],
    );
}

#[test]
fn bodies_that_openai_would_refuse_are_found() {
    assert_breaches(
        APIS[1],
        &body(APIS[1]),
        &[
            (r#"{"model""#, r#"{"modle""#, "has a key `modle`"),
            (
                r#""max_completion_tokens":4096"#,
                r#""max_completion_tokens":0"#,
                "is no number above 0",
            ),
            (r#","max_completion_tokens":4096"#, "", "has neither"),
            (
                r#","stream":true"#,
                r#","max_tokens":1,"stream":true"#,
                "has `max_tokens` and",
            ),
            (
                r#""stream":true"#,
                r#""stream":"yes""#,
                "`stream` is not true",
            ),
            (
                r#""name":"count""#,
                r#""name":"""#,
                "`tools[0].function.name` is empty",
            ),
            (
                r#"{"role":"user","content":"Go"},"#,
                "",
                "`messages[1]` is not the user's",
            ),
            (
                r#"{"role":"user""#,
                r#"{"role":"nobody""#,
                "its `role` is not known",
            ),
            (
                r#"{"role":"tool","tool_call_id":"a","content":"1"},"#,
                "",
                "the call `a` has no answer",
            ),
            (
                r#"{"role":"tool","tool_call_id":"a""#,
                r#"{"role":"user","content":"Wait"},{"role":"tool","tool_call_id":"a""#,
                "the call `a` has no answer",
            ),
            (
                r#""tool_call_id":"a""#,
                r#""tool_call_id":"b""#,
                "answers `b` a second time",
            ),
            (
                r#""tool_call_id":"a""#,
                r#""tool_call_id":"z""#,
                "answers `z`, which",
            ),
            (r#"{\"x\":1}"#, "{", "arguments` is not JSON"),
            (r#""id":"a""#, r#""id":"b""#, "`b` a second time in one"),
            (
                r#"{"role":"user""#,
                r#"{"role":"user","name":"x""#,
                "has a key `name`",
            ),
            (
                r#"{"role":"tool""#,
                r#"{"role":"system","content":"Late"},{"role":"tool""#,
                "these stand first",
            ),
        ],
    );
}

#[test]
fn headers_are_checked_and_never_quoted() {
    let body = body(APIS[0]);
    let good = [
        format!("x-api-key: {SECRET}"),
        "anthropic-version: 2023-06-01".to_owned(),
        "accept-encoding: identity".to_owned(),
        "content-type: application/json".to_owned(),
    ];
    for (at, told) in [
        "has the key",
        "no `anthropic-version`",
        "`accept-encoding`",
        "`content-type`",
    ]
    .into_iter()
    .enumerate()
    {
        let server = ModelServer::start(CALLS);
        let mut client = Client::new(&server);
        let mut headers = good.to_vec();
        headers[at] = format!("x-api-key: {SECRET}-of-another");
        client.send_with("POST", "/v1/messages", &headers.join("\r\n"), &body);
        let answer = client.answer();
        let breaches = server.finish();
        assert!(
            breaches.len() == 1 && breaches[0].contains(told),
            "{breaches:?}"
        );
        assert!(!answer.body.contains("another"), "{}", answer.body);
    }
    let server = ModelServer::start(CALLS);
    let mut client = Client::new(&server);
    let bearer = good
        .join("\r\n")
        .replace("x-api-key: ", "authorization: Bearer ");
    client.send_with("POST", "/v1/messages", &bearer, &body);
    assert_eq!(client.answer().status, 200);
    client.send_with("GET", "/v1/models", &bearer, "");
    assert_eq!(client.answer().status, 404);
    assert_eq!(server.finish(), ["GET /v1/models is not served"]);
}

#[test]
fn a_request_that_no_rule_matches_is_a_breach() {
    let server = ModelServer::start("- {when: {turn: 2}, reply: {}}");
    let talk = TestConversation::new(APIS[0], "<directive name=\"x\">");
    assert_eq!(
        Client::new(&server).ask(talk.path, &talk.body()).status,
        400
    );
    assert_eq!(
        server.finish(),
        ["Anthropic, directive x, turn 1: no rule of the script matches it"]
    );
}

#[test]
fn a_stream_that_is_shorter_than_its_fault_says_is_a_breach() {
    for reply in ["cut_after: 100", "hold: {name: h, before: 100}"] {
        let server = ModelServer::start(&format!("- reply: {{text: a, {reply}}}"));
        let talk = TestConversation::new(APIS[0], "Go");
        assert_eq!(
            Client::new(&server).ask(talk.path, &talk.body()).status,
            400
        );
        let breaches = server.finish();
        assert!(breaches[0].contains("the rule of line 1"), "{breaches:?}");
    }
}

#[test]
fn a_server_with_breaches_fails_the_test_that_drops_it() {
    let server = ModelServer::start("- {when: {turn: 2}, reply: {}}");
    let talk = TestConversation::new(APIS[0], "Go");
    Client::new(&server).ask(talk.path, &talk.body());
    let failed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(server)));
    let told = failed.unwrap_err().downcast::<String>().unwrap();
    assert!(told.contains("no rule of the script"), "{told}");
}

/// Returns the breaches of a second turn with a changed body, with the connection of the first turn open or closed.
fn second(
    api: (&str, &'static str),
    is_open: bool,
    change: impl Fn(&str) -> String,
) -> Vec<String> {
    let server = ModelServer::start(CALLS);
    let mut client = Client::new(&server);
    let mut talk = TestConversation::new(api, "Go");
    talk.ask(&mut client);
    talk.answer(&[("a", "1"), ("b", "2")]);
    let body = talk.body();
    let changed = change(&body);
    assert_ne!(body, changed, "{body}");
    if !is_open {
        drop(client);
        server.wait_ended(1);
        client = Client::new(&server);
    }
    client.ask(api.1, &changed);
    server.finish()
}

#[test]
fn altered_answer_is_breach() {
    let is_not = "message 2 of the conversation (counted from 1) is not the answer that was sent";
    for (api, from, to) in [
        (APIS[0], r#""text":"So.""#, r#""text":"so.""#),
        (APIS[0], r#""thinking":"Hm.""#, r#""thinking":"""#),
        (APIS[0], r#""signature":""#, r#""signature":"0"#),
        (APIS[0], r#"{"x":1}"#, r#"{"x":1.0}"#),
        (APIS[0], r#"{"type":"text","text":"So."},"#, ""),
        (APIS[1], r#""content":"So.""#, r#""content":"so.""#),
        (APIS[1], r#"{\"x\":1}"#, r#"{\"x\":2}"#),
    ] {
        for is_open in [true, false] {
            let breaches = second(api, is_open, |body| body.replacen(from, to, 1));
            assert_eq!(breaches.len(), 1, "{from} → {to}");
            assert!(breaches[0].ends_with(is_not), "{breaches:?}");
        }
    }
}

#[test]
fn a_client_that_was_killed_has_the_beginning_of_an_answer() {
    let cut = |body: &str| {
        let body = body.replace(
            r#",{"id":"b","input":{},"name":"count","type":"tool_use"}"#,
            "",
        );
        let body = body.replace(
            r#",{"type":"tool_use","id":"b","name":"count","input":{}}"#,
            "",
        );
        body.replace(
            r#","is_error":false},{"type":"tool_result","tool_use_id":"b","content":"2""#,
            "",
        )
    };
    assert_eq!(second(APIS[0], false, cut), [""; 0]);
    assert_eq!(second(APIS[0], true, cut).len(), 1);
}

#[test]
fn invalid_arguments_come_back_quoted() {
    for api in APIS {
        for input in ["{", "[1]", r#"{"a": 1, "a": 2}"#, "", "{}", r#"{"a": 1e2}"#] {
            let server = ModelServer::start(&format!(
                "- {{when: {{turn: 1}}, reply: {{calls: [{{name: count, id: a, input: '{input}'}}]}}}}\n- {{reply: {{}}}}"
            ));
            let client = &mut Client::new(&server);
            let mut talk = TestConversation::new(api, "Go");
            talk.ask(client);
            talk.answer(&[("a", "1")]);
            assert_eq!(client.ask(api.1, &talk.body()).status, 200, "{input}");
        }
    }
}

#[test]
fn altered_history_is_breach() {
    let other = "is not what the requests before had there";
    for api in APIS {
        for (from, to, at) in [
            ("\"17\"", "\"18\"", "message 3"),
            ("So.", "so.", "message 2"),
        ] {
            let server = ModelServer::start(
                "- when: {turn: 1}\n  reply: {text: So., calls: [{name: count, id: a}]}\n- reply: {text: Done.}",
            );
            let mut client = Client::new(&server);
            let mut talk = TestConversation::new(api, "Go");
            talk.ask(&mut client);
            talk.answer(&[("a", "17")]);
            talk.ask(&mut client);
            talk.add_user_text("More");
            let body = talk.body();
            assert_eq!(client.ask(api.1, &body).status, 200);
            assert!(body.contains(from), "{body}");
            client.ask(api.1, &body.replacen(from, to, 1));
            let breaches = server.finish();
            assert_eq!(breaches.len(), 1);
            assert!(
                breaches[0].contains(other) && breaches[0].contains(at),
                "{breaches:?}"
            );
        }
    }
}

#[test]
fn only_paused_answer_may_be_newest_message() {
    let server = ModelServer::start(
        "- {when: {turn: 1}, reply: {text: One., stop: pause}}\n- {reply: {text: Two.}}",
    );
    let client = &mut Client::new(&server);
    let mut talk = TestConversation::new(APIS[0], "Go");
    talk.ask(client);
    talk.ask(client);
    talk.add_user_text("More");
    talk.ask(client);
    assert_eq!(client.ask(talk.path, &talk.body()).status, 400);
    let told = "the newest message is the model's own, which did not pause";
    assert!(server.finish()[0].ends_with(told));
    for api in APIS {
        let mut whole = TestConversation::new(api, "Go");
        let known = ModelServer::start("- reply: {text: One.}");
        whole.ask(&mut Client::new(&known));
        assert!(breach(api.1, &whole.body()).ends_with(told));
    }
}

#[test]
fn threads_may_share_beginning_and_new_conversation_is_free() {
    for api in APIS {
        let server = ModelServer::start(
            "- {when: {contains: refuse}, reply: {status: 400}}\n\
             - {when: {turn: 1}, reply: {thinking: Hm., text: So., calls: [{name: count, id: a}]}}\n\
             - {reply: {text: Done.}}",
        );
        let client = &mut Client::new(&server);
        let mut twins = [
            TestConversation::new(api, "Go"),
            TestConversation::new(api, "Go"),
        ];
        for talk in &mut twins {
            talk.ask(client);
        }
        for (talk, result) in twins.iter_mut().zip(["1", "2"]) {
            talk.answer(&[("a", result)]);
            talk.ask(client);
            talk.add_user_text("More");
            talk.ask(client);
        }
        // Another first message may contain turns that were never sent.
        let mut anew = TestConversation::new(api, "Go on with a summary");
        let text = "Made up.".to_owned();
        anew.add_answer(&Ended {
            blocks: vec![Block::Text { text }],
            raw: None,
            stop: Stop::End,
            usage: None,
            warnings: Vec::new(),
        });
        anew.add_user_text("More");
        anew.ask(client);
        // After a refusal for the content of a request, the same turns may have another form.
        let mut refused = TestConversation::new(api, "Go");
        let first = refused.ask(client);
        let shape = |talk: &mut TestConversation, blocks: Vec<Block>| {
            talk.wire.push(&Message::Assistant {
                origin: talk.model.origin(),
                blocks,
                raw: None,
                stop: Some(Stop::Calls),
                partial: false,
            });
            talk.answer(&[("a", "1")]);
        };
        refused.answer(&[("a", "1")]);
        refused.add_user_text("refuse");
        assert_eq!(client.ask(api.1, &refused.body()).status, 400);
        let mut other = TestConversation::new(api, "Go");
        let calls = first
            .blocks
            .into_iter()
            .filter(|block| matches!(block, Block::Call { .. }));
        shape(&mut other, calls.collect());
        other.ask(client);
    }
}
