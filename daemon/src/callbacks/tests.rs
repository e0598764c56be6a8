use std::pin::pin;

use futures_util::FutureExt as _;

use super::*;

fn attempt() -> ProgramAttempt {
    ProgramAttempt {
        run: RunId::new("r-1").unwrap(),
        step: 1,
        slot: Slot::Main,
        node: "a".to_owned(),
        number: 1,
        key: "key".to_owned(),
        tag: "r-1.key.1".to_owned(),
        layer: None,
        replays: false,
    }
}

fn registered() -> (Callbacks, Registered) {
    let callbacks = Callbacks::new("/run/ryed.sock".into(), Some("/bin/ryectl".into()));
    let registered = callbacks.register(attempt(), [7; 32]);
    (callbacks, registered)
}

#[test]
fn token_counts_for_processes_of_its_attempt_only_and_while_it_lasts() {
    let (callbacks, registered) = registered();
    let token = registered.token().to_owned();
    assert!(token.starts_with("rye_"));
    let tag = b"r-1.key.1";
    assert!(callbacks.program(&token, tag).is_some());
    for (token, tag) in [
        (&*token, b"r-1.key.2".as_slice()),
        (&token, b""),
        (&token[..token.len() - 1], tag),
        ("", tag),
    ] {
        assert!(callbacks.program(token, tag).is_none(), "{token} {tag:?}");
    }
    assert!(callbacks.knows(tag));
    let other = callbacks.register(attempt(), [8; 32]);
    assert_ne!(other.token(), token);
    drop(registered);
    assert!(callbacks.program(&token, tag).is_none());
    drop(other);
    assert!(!callbacks.knows(tag));
}

#[test]
fn variables_name_socket_client_and_token() {
    let (_callbacks, registered) = registered();
    let names: Vec<_> = registered.variables().map(|(name, _)| name).collect();
    assert_eq!(
        names,
        ["RYE_SOCKET", "RYE_NO_AUTOSTART", "RYE_CTL", "RYE_TOKEN"]
    );
    assert!(!format!("{registered:?}").contains(registered.token()));
}

#[tokio::test]
async fn end_waits_for_open_calls_and_admits_no_other() {
    let (callbacks, registered) = registered();
    let program = callbacks.program(registered.token(), b"r-1.key.1").unwrap();
    let call = program.enter().unwrap();
    let mut end = pin!(registered.end());
    assert!(end.as_mut().now_or_never().is_none());
    assert!(program.has_ended());
    assert_eq!(program.enter().unwrap_err(), Closed::Ended);
    drop(call);
    assert!(end.now_or_never().is_some());
}

#[test]
fn calls_are_bounded_at_once_and_in_all() {
    let (callbacks, registered) = registered();
    let program = callbacks.program(registered.token(), b"r-1.key.1").unwrap();
    let open: Vec<_> = (0..MOST_OPEN).map(|_| program.enter().unwrap()).collect();
    assert_eq!(program.enter().unwrap_err(), Closed::TooManyOpen);
    drop(open);
    let made = std::iter::repeat_with(|| program.enter()).position(|entered| entered.is_err());
    let most = usize::try_from(MOST_CALLS).unwrap();
    assert_eq!(made, Some(most - MOST_OPEN));
    assert_eq!(program.enter().unwrap_err(), Closed::TooMany);
}

#[test]
fn progress_is_recorded_once_a_second() {
    let (callbacks, registered) = registered();
    let program = callbacks.program(registered.token(), b"r-1.key.1").unwrap();
    let at = |ms| Uptime::from_ns(ms * 1_000_000_u64);
    let taken = [5_000, 5_999, 6_000, 6_500, 7_100].map(|ms| program.takes_progress(at(ms)));
    assert_eq!(taken, [true, false, true, false, true]);
}
