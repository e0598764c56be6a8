//! Calls to a test server.

use rye_core::conversation::{Block, Stop};
use tokio::io::AsyncWriteExt as _;
use tokio::time::{Instant, timeout};

use super::*;
use crate::http::peer::{LONG, STREAM, chunk, is_closed, read_request, saying, server};

/// Head of a stream with the request id `req-1`.
fn named_stream() -> String {
    STREAM.replacen("\r\n", "\r\nRequest-Id: req-1\r\n", 1)
}

#[tokio::test]
async fn call_yields_signals_then_message() {
    let answer = format!("{}{}0\r\n\r\n", named_stream(), chunk(&events(&hello())));
    let (address, mut tasks) = saying(answer).await;
    let (_clock, providers) = providers();
    let mut call = call(&providers, &model(address)).await;
    let mut signals = all(&mut call).await;

    let Some(CallProgress::Message(message)) = signals.pop() else {
        panic!("{signals:?}")
    };
    let text = "Hello".to_owned();
    assert_eq!(message.ended.blocks, [Block::Text { text: text.clone() }]);
    assert_eq!(message.ended.usage.unwrap().output, 7);
    assert_eq!(message.request_id.as_deref(), Some("req-1"));
    let is_signal = |heard: &CallProgress| matches!(heard, CallProgress::Signal(_));
    assert!(signals.iter().all(is_signal), "{signals:?}");
    for signal in [
        StreamSignal::Begun {
            model: "m-1".to_owned(),
        },
        StreamSignal::Text { position: 0, text },
        StreamSignal::Stopped(Stop::End),
    ] {
        assert!(
            signals.contains(&CallProgress::Signal(signal)),
            "{signals:?}"
        );
    }
    assert_eq!(call.next().await, None);

    let request = tasks.next().await.unwrap();
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    assert_eq!(body, BODY);
    assert!(head.starts_with("POST /v1/messages HTTP/1.1\r\n"), "{head}");
    for line in [
        "x-api-key: k3y",
        concat!("user-agent: rye/", env!("CARGO_PKG_VERSION")),
        "accept: text/event-stream",
        "accept-encoding: identity",
        "content-type: application/json",
    ] {
        assert!(head.lines().any(|found| found == line), "{line}: {head}");
    }
}

#[tokio::test]
async fn signals_arrive_during_stream() {
    let (mut said, rest) = (hello(), hello().split_off(3));
    said.truncate(3);
    let (address, mut tasks) = server(move |mut peer, _| async move {
        let first = format!("{STREAM}{}", chunk(&events(&said)));
        peer.write_all(first.as_bytes()).await.unwrap();
        peer
    })
    .await;
    let (_clock, providers) = providers();
    let mut call = call(&providers, &model(address)).await;
    let text = CallProgress::Signal(StreamSignal::Text {
        position: 0,
        text: "Hello".to_owned(),
    });
    while call.next().await.unwrap() != text {}
    // A cancelled wait loses nothing.
    for _ in 0..3 {
        assert!(call.next().now_or_never().is_none());
    }
    let mut peer = tasks.next().await.unwrap();
    let rest = format!("{}0\r\n\r\n", chunk(&events(&rest)));
    peer.write_all(rest.as_bytes()).await.unwrap();
    let last = all(&mut call).await.pop();
    assert!(matches!(last, Some(CallProgress::Message(_))), "{last:?}");
}

#[tokio::test]
async fn next_call_reuses_connection() {
    let (address, mut tasks) = server(|mut peer, _| async move {
        let answer = format!("{STREAM}{}0\r\n\r\n", chunk(&events(&hello())));
        peer.write_all(answer.as_bytes()).await.unwrap();
        read_request(&mut peer).await;
        peer.write_all(answer.as_bytes()).await.unwrap();
    })
    .await;
    let (_clock, providers) = providers();
    for _ in 0..2 {
        let mut call = call(&providers, &model(address)).await;
        let last = timeout(LONG, all(&mut call)).await.unwrap().pop();
        assert!(matches!(last, Some(CallProgress::Message(_))), "{last:?}");
    }
    tasks.next().await.unwrap();
}

#[tokio::test]
async fn dropped_call_closes_connection_and_frees_slot() {
    for begins in [false, true] {
        let (address, mut tasks) = server(move |mut peer, _| async move {
            if begins {
                let first = format!("{STREAM}{}", chunk(&events(&[start()])));
                peer.write_all(first.as_bytes()).await.unwrap();
            }
            peer
        })
        .await;
        let (_clock, providers) = providers();
        let keys = format!("base_url: http://{address}\nmax_concurrent: 1");
        let model = model_of(Owner::User, &keys);
        let mut call = call(&providers, &model).await;
        let peer = if begins {
            call.next().await.unwrap();
            tasks.next().await.unwrap()
        } else {
            tokio::select! {
                peer = tasks.next() => peer.unwrap(),
                heard = call.next() => panic!("{heard:?}"),
            }
        };
        let project = ProjectEnv::default();
        let mut waits = Box::pin(enter(&providers, &model, &project));
        let blocked = timeout(Duration::from_millis(20), &mut waits).await;
        assert!(blocked.is_err(), "one at once");
        drop(call);
        assert!(is_closed(peer).await);
        timeout(LONG, waits).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn finished_call_frees_slot() {
    let answer = format!("{STREAM}{}0\r\n\r\n", chunk(&events(&hello())));
    let (address, _tasks) = saying(answer).await;
    let (_clock, providers) = providers();
    let keys = format!("base_url: http://{address}\nmax_concurrent: 1");
    let model = model_of(Owner::User, &keys);
    let mut ended = call(&providers, &model).await;
    all(&mut ended).await;
    let project = ProjectEnv::default();
    let next = timeout(LONG, enter(&providers, &model, &project)).await;
    assert!(next.is_ok_and(|place| place.is_ok()));
    drop(ended);
}

#[tokio::test]
async fn idle_timeout_ends_call_and_is_not_reset_by_polling() {
    let (address, mut tasks) = server(|mut peer, _| async move {
        let first = format!("{STREAM}{}", chunk(&events(&[start()])));
        peer.write_all(first.as_bytes()).await.unwrap();
        peer
    })
    .await;
    let (_clock, providers) = providers();
    let keys = format!("base_url: http://{address}\ntimeouts: {{idle: 60}}");
    let mut call = call(&providers, &model_of(Owner::User, &keys)).await;
    for _ in 0..2 {
        assert!(matches!(call.next().await, Some(CallProgress::Signal(_))));
    }
    tokio::time::pause();
    let begun = Instant::now();
    let early = timeout(Duration::from_secs(40), call.next()).await;
    assert!(early.is_err(), "{early:?}");
    let failure = failure(&mut call).await;
    assert_eq!(begun.elapsed().as_secs(), 60);
    assert_eq!(failure.trouble.to_string(), "the answer stopped for 60 s");
    assert_eq!(failure.verdict.class, Class::Transient);
    assert!(failure.begun);
    assert!(is_closed(tasks.next().await.unwrap()).await);
}

#[tokio::test]
async fn first_event_has_own_timeout() {
    let (address, mut tasks) = server(|mut peer, _| async move {
        peer.write_all(named_stream().as_bytes()).await.unwrap();
        peer
    })
    .await;
    let (_clock, providers) = providers();
    let keys = format!("base_url: http://{address}\ntimeouts: {{first_event: 7, idle: 1}}");
    let mut call = call(&providers, &model_of(Owner::User, &keys)).await;
    while !format!("{call:?}").contains("req-1") {
        assert!(call.next().now_or_never().is_none());
        tokio::task::yield_now().await;
    }
    tokio::time::pause();
    let failure = failure(&mut call).await;
    assert_eq!(failure.trouble.to_string(), "the answer stopped for 7 s");
    assert!(!failure.begun);
    assert_eq!(failure.request_id.as_deref(), Some("req-1"));
    drop(tasks.next().await);
}

#[tokio::test]
async fn slow_reader_applies_backpressure() {
    const MOST: usize = 64 << 20;
    let (address, mut tasks) = server(|mut peer, _| async move {
        let first = format!("{STREAM}{}", chunk(&events(&[start()])));
        peer.write_all(first.as_bytes()).await.unwrap();
        let ping = chunk(&events(&[json!({"type": "ping"})])).repeat(1 << 14);
        let mut sent = 0;
        while sent < MOST {
            let written = timeout(Duration::from_millis(200), peer.write(ping.as_bytes())).await;
            let Ok(written) = written else {
                break;
            };
            sent += written.unwrap();
        }
        sent
    })
    .await;
    let (_clock, providers) = providers();
    let mut call = call(&providers, &model(address)).await;
    call.next().await.unwrap();
    let sent = timeout(LONG, tasks.next()).await.unwrap().unwrap();
    assert!(sent < MOST, "all of it was taken although nobody asked");
}
