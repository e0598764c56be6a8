//! Faults and waits that a script requests.

use rye_core::conversation::{Block, Stop};
use rye_core::provider::sse::{Splitter, Unreadable};
use rye_core::provider::stream::{Arguments, StreamSignal};
use rye_tests::ModelServer;

use super::client::{APIS, Answer, Client, End, TestConversation, signals};

const PROMPT: &str = "Go";

/// Returns the answer of a script with this reply.
fn answer(api: (&str, &'static str), reply: &str) -> (TestConversation, Answer) {
    let server = ModelServer::start(&format!("- reply: {reply}"));
    let talk = TestConversation::new(api, PROMPT);
    let answer = Client::new(&server).ask(talk.path, &talk.body());
    assert_eq!(server.abandoned(), 0, "the server ended it, not the client");
    (talk, answer)
}

/// Returns the last signal of a reply.
fn last(api: (&str, &'static str), reply: &str) -> (StreamSignal, End) {
    let (talk, answer) = answer(api, reply);
    let last = signals(&talk.model, &answer).pop();
    (last.unwrap(), answer.end)
}

#[test]
fn streams_break_as_the_script_says() {
    let message = "text: A text of several pieces.";
    for api in APIS {
        for (fault, expected, end) in [
            ("cut_after: 4", "the answer was cut off", End::Closed),
            ("cut_after: 0", "the answer was cut off", End::Closed),
            ("reset_after: 4", "the answer was cut off", End::Reset),
            ("no_end: true", "the answer was cut off", End::Clean),
            ("malformed: 4", "an event is not JSON", End::Clean),
            (
                "error_event: {after: 4, type: busy, message: Come again.}",
                "Come again.",
                End::Clean,
            ),
            ("error_event: {}", "The script says so.", End::Clean),
        ] {
            let (signal, ended) = last(api, &format!("{{{message}, {fault}}}"));
            let StreamSignal::Broken(fault_seen) = signal else {
                panic!("{fault}: {signal:?}");
            };
            let told = fault_seen.to_string();
            let is_unmarked = api == APIS[0] && fault.starts_with("no_end");
            let expected = if is_unmarked {
                "ended without `message_stop`"
            } else {
                expected
            };
            assert!(told.contains(expected), "{api:?}, {fault}: {told}");
            assert_eq!(ended, end, "{api:?}, {fault}");
        }
    }
}

#[test]
fn events_before_stream_fault_arrive() {
    for fault in ["cut_after: 5", "reset_after: 5"] {
        let (_, answer) = answer(
            APIS[0],
            &format!("{{text: A text of several pieces., {fault}}}"),
        );
        assert_eq!(answer.body.matches("event: ").count(), 5, "{}", answer.body);
    }
}

#[test]
fn a_connection_is_reset_before_anything_is_said() {
    let (_, answer) = answer(APIS[0], "{reset_before: true}");
    assert_eq!((answer.status, answer.end), (0, End::Reset));
}

#[test]
fn calls_with_one_index_are_read_one_by_one() {
    let calls = "{duplicate_index: true, calls: [{name: a, id: a}, {name: b, id: b}]}";
    for api in APIS {
        let (talk, answer) = answer(api, calls);
        let mut ids = Vec::new();
        for signal in signals(&talk.model, &answer) {
            if let StreamSignal::CallReady(call) = signal {
                ids.push(call.id);
            }
        }
        assert_eq!(ids, ["a", "b"]);
    }
}

#[test]
fn script_sets_unusual_messages() {
    for api in APIS {
        let ended = |reply: &str| {
            let (signal, _) = last(api, reply);
            let StreamSignal::Ended(ended) = signal else {
                panic!("{signal:?}");
            };
            ended
        };
        assert_eq!(ended("{text: a, no_usage: true}").usage, None);
        let huge = ended("{huge: 1000000}");
        assert!(matches!(&huge.blocks[0], Block::Text { text } if text.len() == 1_000_000));
        for (word, anthropic, chat) in [
            ("end", Stop::End, Stop::End),
            ("calls", Stop::Calls, Stop::Calls),
            ("length", Stop::Length, Stop::Length),
            ("window", Stop::Window, Stop::Length),
            ("refusal", Stop::Refusal, Stop::Refusal),
            ("pause", Stop::Pause, Stop::End),
        ] {
            let stop = ended(&format!("{{text: a, stop: {word}}}")).stop;
            assert_eq!(stop, if api == APIS[0] { anthropic } else { chat });
        }
        let (talk, answer) = answer(
            api,
            "{calls: [{name: a, input: '{\"x\": '}, {name: b, input: ''}]}",
        );
        let mut arguments = Vec::new();
        for signal in signals(&talk.model, &answer) {
            if let StreamSignal::CallReady(call) = signal {
                arguments.push(matches!(call.arguments, Arguments::Object(_)));
            }
        }
        assert_eq!(arguments, [false, true]);
    }
}

#[test]
fn an_event_may_be_larger_than_any_client_takes() {
    let (_, answer) = answer(APIS[0], "{huge: 9000000}");
    let taken = Splitter::default().push(answer.body.as_bytes(), |_| {});
    assert_eq!(taken, Err(Unreadable::Event));
}

#[test]
fn a_refusal_has_its_status_its_pause_and_its_error() {
    for (api, reply, status, told) in [
        (
            APIS[0],
            "{status: 529, retry_after: 2}",
            529,
            r#"{"type":"overloaded_error","message":"The script says so."}"#,
        ),
        (
            APIS[0],
            "{status: 400, error: {message: Too long}}",
            400,
            r#"{"type":"invalid_request_error","message":"Too long"}"#,
        ),
        (
            APIS[1],
            "{status: 429, retry_after: 2}",
            429,
            r#""type":"rate_limit_exceeded""#,
        ),
        (
            APIS[1],
            "{status: 400, error: {type: context_length_exceeded}}",
            400,
            r#""code":"context_length_exceeded""#,
        ),
    ] {
        let (_, answer) = answer(api, reply);
        assert_eq!(answer.status, status);
        assert!(answer.body.contains(told), "{}", answer.body);
        let paused = answer.head.contains("retry-after: 2\r\n");
        assert_eq!(paused, reply.contains("retry_after"), "{}", answer.head);
    }
}

#[test]
fn a_stream_waits_until_it_is_released() {
    let server = ModelServer::start(
        "- reply:\n    content: [{text: one}, {hold: middle}, {text: two}]\n    hold: {name: event, before: 3}\n    slow_headers: headers\n    pace_ms: 1\n",
    );
    for api in APIS {
        let talk = TestConversation::new(api, PROMPT);
        let client = &mut Client::new(&server);
        client.send(talk.path, &talk.body());
        if api == APIS[0] {
            server.wait_held("headers");
            server.release("headers");
            server.wait_held("event");
            let so_far = client.read_until("ping");
            assert!(!so_far.contains("one"), "{so_far}");
            server.release("event");
            server.wait_held("middle");
            let so_far = client.read_until("content_block_stop");
            assert!(!so_far.contains("two"), "{so_far}");
            server.release("middle");
        }
        let answer = client.answer();
        assert!(answer.body.contains("two"), "{answer:?}");
        assert_eq!(answer.end, End::Clean);
    }
    server.wait_for(|requests| requests.len() == 2);
}

#[test]
fn a_client_that_goes_away_is_counted() {
    let server = ModelServer::start(
        "- {when: {contains: stall}, reply: {text: a, stall: 2}}\n- reply: {text: a, slow_headers: never}",
    );
    let talk = TestConversation::new(APIS[0], "stall");
    let mut client = Client::new(&server);
    client.send(talk.path, &talk.body());
    client.read_until("content_block_start");
    drop(client);
    server.wait_abandoned(1);
    let talk = TestConversation::new(APIS[0], "headers");
    let mut client = Client::new(&server);
    client.send(talk.path, &talk.body());
    server.wait_held("never");
    drop(client);
    server.wait_abandoned(2);
    assert_eq!(server.abandoned(), 2);
}
