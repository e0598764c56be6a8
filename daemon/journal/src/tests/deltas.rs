//! Deltas of a model reach the listeners, in order with the events of the run.

use rye_core::id::{RunId, Seq};

use crate::Journal;
use crate::testing::*;
use crate::{Delta, DeltaKind, DeltaSender, Live, Shown};

/// Limit in bytes on the queue of a listener.
const MOST: usize = 32 << 10;

fn text(after: u64, text: &str) -> Delta {
    Delta {
        after: Seq(after),
        turn: 1,
        attempt: 1,
        kind: DeltaKind::Text,
        position: 0,
        text: text.to_owned(),
        left_out: 0,
    }
}

fn reset(after: u64, so_far: &str) -> Delta {
    Delta {
        kind: DeltaKind::Reset,
        ..text(after, so_far)
    }
}

/// Sends a delta of a text of which no listener has missed a part.
fn send(speaker: &DeltaSender, delta: &Delta) {
    speaker.send(delta, || panic!("nobody is behind"));
}

/// Receives the next item of a listener: the number of an event, or a delta.
async fn next(live: &mut Live) -> Result<u64, Delta> {
    match live.next().await.unwrap().unwrap() {
        Shown::Line(event) => Ok(event.seq.0),
        Shown::Delta(delta) => Err(delta),
    }
}

/// A run whose events up to 4 are published, a listener after them, and a speaker.
async fn listening(rig: &Rig) -> (Journal, RunId, Live, DeltaSender) {
    let journal = rig.open().await;
    let run = journal.put_run(rig, "run-a", 0).await;
    let live = journal.listen(&run, Seq(4)).await.unwrap();
    let speaker = journal.delta_sender(&run).unwrap();
    (journal, run, live, speaker)
}

#[tokio::test]
async fn delta_is_shown_between_its_event_and_the_next() {
    let rig = Rig::new();
    let (journal, run, mut live, speaker) = listening(&rig).await;
    // Sent after event 6, which no listener has received yet, and then after event 8.
    send(&speaker, &text(6, "Hel"));
    send(&speaker, &text(6, "lo"));
    send(&speaker, &text(8, "Again."));
    journal.put(turn(&run, 1)).await;
    journal.put(turn(&run, 2)).await;
    let mut shown = Vec::new();
    for _ in 0..6 {
        shown.push(next(&mut live).await);
    }
    let expected = [
        Ok(5),
        Ok(6),
        Err(text(6, "Hello")),
        Ok(7),
        Ok(8),
        Err(text(8, "Again.")),
    ];
    assert_eq!(shown, expected);
}

#[tokio::test]
async fn delta_wakes_waiting_listener() {
    let rig = Rig::new();
    let (_journal, _run, mut live, speaker) = listening(&rig).await;
    let (shown, ()) = tokio::join!(next(&mut live), async {
        tokio::task::yield_now().await;
        send(&speaker, &text(4, "Hello"));
    });
    assert_eq!(shown, Err(text(4, "Hello")));
}

#[tokio::test]
async fn slow_listener_gets_text_so_far_within_bound() {
    let rig = Rig::new();
    let (journal, run, mut live, speaker) = listening(&rig).await;
    let mut quick = journal.listen(&run, Seq(4)).await.unwrap();
    speaker.catch_up(|| reset(4, ""));
    assert_eq!(next(&mut quick).await, Err(reset(4, "")));
    for step in 0..2_000_u32 {
        // Texts at different positions, so that they are not joined.
        let said = Delta {
            position: step,
            ..text(4, "word ")
        };
        speaker.send(&said, || reset(4, &format!("up to {step}")));
        assert_eq!(
            next(&mut quick).await,
            Err(said),
            "who reads misses nothing"
        );
    }
    let Err(first) = next(&mut live).await else {
        panic!("no delta");
    };
    assert_eq!(first.kind, DeltaKind::Reset);
    let from: u32 = first.text.strip_prefix("up to ").unwrap().parse().unwrap();
    let mut waited = 0;
    for step in from + 1..2_000 {
        let said = next(&mut live).await.unwrap_err();
        assert_eq!((said.kind, said.position), (DeltaKind::Text, step));
        waited += said.text.len();
    }
    assert!(waited > 0 && waited < MOST, "{waited}");
    // A delta that is longer than the queue is replaced by the text so far.
    speaker.send(&text(4, &"x".repeat(MOST)), || reset(4, "the end"));
    assert_eq!(next(&mut live).await, Err(reset(4, "the end")));
}

#[tokio::test]
async fn late_listener_gets_text_so_far_first() {
    let rig = Rig::new();
    let journal = rig.open().await;
    let run = journal.put_run(&rig, "run-a", 0).await;
    let speaker = journal.delta_sender(&run).unwrap();
    assert!(!speaker.has_listeners(), "nobody listens yet");
    let mut late = journal.listen(&run, Seq(4)).await.unwrap();
    assert!(speaker.has_listeners());
    // The speaker is notified of the listener between two deltas.
    speaker.joined().await;
    speaker.catch_up(|| reset(4, "Hel"));
    send(&speaker, &text(4, "lo"));
    assert_eq!(next(&mut late).await, Err(reset(4, "Hel")));
    assert_eq!(next(&mut late).await, Err(text(4, "lo")));
    // Or the listener gets the text so far with the next delta.
    let mut later = journal.listen(&run, Seq(4)).await.unwrap();
    speaker.send(&text(4, "!"), || reset(4, "Hello!"));
    assert_eq!(next(&mut later).await, Err(reset(4, "Hello!")));
    assert_eq!(next(&mut late).await, Err(text(4, "!")));
    drop((late, later));
    assert!(
        !speaker.has_listeners(),
        "a listener that left receives nothing more"
    );
}

#[tokio::test]
async fn reset_replaces_deltas_and_new_call_starts_complete() {
    let rig = Rig::new();
    let (journal, run, mut live, speaker) = listening(&rig).await;
    send(&speaker, &text(4, "Half a th"));
    send(&speaker, &reset(4, ""));
    assert_eq!(next(&mut live).await, Err(reset(4, "")));
    let _idle = journal.listen(&run, Seq(4)).await.unwrap();
    let speaker = journal.delta_sender(&run).unwrap();
    send(&speaker, &text(4, "Anew."));
    assert_eq!(next(&mut live).await, Err(text(4, "Anew.")));
    // The subscription ends with the run.
    journal.put(vec![change(&run, finish())]).await;
    while live.next().await.is_some() {}
    journal.ended(&run).await.unwrap();
}
