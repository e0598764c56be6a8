use std::io::{self, BufReader};

use proptest::prelude::*;

use super::*;
use crate::seal::{PublicKey, SecretKey};

const RUN: &str = "app-deploy-1767225600-abcdefghij";
const LONG: &str = r#"{"object":"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad","bytes":70000}"#;

fn key(seed: u8) -> SecretKey {
    SecretKey::from_seed(&[seed; 32])
}

/// An event by name, payload and the seed of the key that signs its checkpoint.
type Given = (&'static str, &'static str, Option<u8>);

/// Events of a graph run that completes.
const GRAPH: &[Given] = &[
    ("run_created", r#"{"item":"tool:app/deploy"}"#, None),
    ("run_started", r#"{"epoch":1}"#, None),
    ("graph_started", LONG, None),
    ("step_started", r#"{"step":1,"node":"é \"q\" \\ /"}"#, None),
    (
        "step_completed",
        r#"{"step":1,"assigned":{"n": 1}}"#,
        Some(1),
    ),
    ("graph_completed", r#"{"status":"completed"}"#, Some(1)),
];

/// Writes the transcript of `events`, all of the run [`RUN`].
fn written(events: &[Given]) -> Vec<u8> {
    let (mut head, mut out) = (Head::default(), Vec::new());
    let run = RunId::new(RUN).unwrap();
    for (number, (name, payload, seed)) in (0_i64..).zip(events) {
        let event = Fact {
            run: &run,
            seq: head.seq.next(),
            at: Timestamp::from_ms(1_767_225_600_000 + 1234 * number),
            name,
            payload,
        };
        head.write_event(&event, &mut out);
        if let Some(seed) = seed {
            sign(
                &mut head,
                &event,
                &key(*seed),
                key(*seed).public(),
                &mut out,
            );
        }
    }
    assert_eq!(head.bytes, length(&out));
    out
}

/// Writes a checkpoint that `key` signs and that names `named`.
fn sign(head: &mut Head, event: &Fact<'_>, key: &SecretKey, named: &PublicKey, out: &mut Vec<u8>) {
    let signed = Signed {
        signature: key.sign_hex(&head.digest(event.run).to_string()),
        signer: named.fingerprint(),
    };
    head.write_checkpoint(event.run, event.at, &signed, out);
}

/// Verifies `text` with the key of seed 1.
fn check(text: &[u8]) -> Verdict {
    verify(text, &[key(1).public().clone()])
}

/// Returns the byte that a fault names.
fn byte(fault: &TranscriptFault) -> Option<u64> {
    match fault {
        TranscriptFault::Read(_) | TranscriptFault::Head => None,
        TranscriptFault::Short(at)
        | TranscriptFault::Long(at)
        | TranscriptFault::Foreign(at, _)
        | TranscriptFault::Broken(at)
        | TranscriptFault::Replaced(at)
        | TranscriptFault::Trailing(at)
        | TranscriptFault::Differs(at)
        | TranscriptFault::Unsigned(at)
        | TranscriptFault::UnknownKey { at, .. }
        | TranscriptFault::Unended(at) => Some(*at),
    }
}

/// Asserts that `text` fails, and that neither the fault nor the proved part is past byte `most`.
fn assert_fails_by(text: &[u8], most: usize, what: &str) -> TranscriptFault {
    let verdict = check(text);
    let most = u64::try_from(most).unwrap();
    let fault = verdict.fault.unwrap_or_else(|| panic!("{what} passed"));
    assert!(byte(&fault).unwrap() <= most, "{what}: {fault} > {most}");
    assert!(verdict.bytes <= most, "{what}: {} proved", verdict.bytes);
    fault
}

/// Returns the starts of the lines of `text`, and its end.
fn starts(text: &[u8]) -> Vec<usize> {
    let ends = text.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
    let starts = std::iter::once(0).chain(ends.map(|(at, _)| at + 1));
    starts.collect()
}

#[test]
fn transcript_has_its_published_bytes() {
    let events = [
        ("run_created", "{}", None),
        ("tool_completed", r#"{"result":1}"#, Some(1)),
    ];
    let text = String::from_utf8(written(&events)).unwrap();
    assert_eq!(text, include_str!("published.jsonl"));
}

#[test]
fn stored_signature_renders_the_same_lines() {
    let text = written(GRAPH);
    let run = RunId::new(RUN).unwrap();
    let (mut head, mut out) = (Head::default(), Vec::new());
    let (mut cursor, mut pending) = (Cursor::default(), None);
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        let state = head.state;
        match cursor.pass(&run, line.trim_ascii_end()).unwrap() {
            TranscriptLine::Event {
                seq,
                at,
                name,
                payload,
            } => {
                if let Some(event) = pending.replace((seq, at, name, payload)) {
                    render(&mut head, &run, &event, None, &mut out);
                }
            }
            TranscriptLine::Checkpoint(checkpoint) => {
                let event = pending.take().unwrap();
                let mut state = state;
                fold(&mut state, &event.2, event.3);
                let token = checkpoint.token(&run, &state).unwrap();
                let signed = Signed {
                    signature: token.signature,
                    signer: &token.signer,
                };
                render(&mut head, &run, &event, Some(&signed), &mut out);
            }
        }
    }
    assert_eq!(out, text);
    cursor.meet(&head).unwrap();
}

fn render(
    head: &mut Head,
    run: &RunId,
    (seq, at, name, payload): &(Seq, Timestamp, std::borrow::Cow<'_, str>, &str),
    signed: Option<&Signed<'_>>,
    out: &mut Vec<u8>,
) {
    let event = Fact {
        run,
        seq: *seq,
        at: *at,
        name,
        payload,
    };
    head.write(&event, signed, out);
}

#[test]
fn transcript_of_each_end_passes() {
    let ends = crate::model::Event::names().filter(|name| crate::model::Event::ends_run(name));
    for end in ends {
        let mut events = GRAPH.to_vec();
        events.pop();
        events.push((end, LONG, Some(1)));
        let text = written(&events);
        let verdict = check(&text);
        assert!(verdict.fault.is_none(), "{end}: {:?}", verdict.fault);
        assert_eq!((verdict.events, verdict.checkpoints), (6, 2), "{end}");
        assert_eq!(verdict.bytes, length(&text));
        assert_eq!(verdict.run, RunId::new(RUN).ok());
        assert_eq!(verdict.signers, [key(1).public().fingerprint().clone()]);
    }
}

#[test]
fn flipped_byte_is_found_at_or_before_it() {
    let text = written(GRAPH);
    for at in 0..text.len() {
        let mut flipped = text.clone();
        flipped[at] ^= 1;
        let _fault = assert_fails_by(&flipped, at, &format!("flip at {at}"));
    }
}

#[test]
fn cut_transcript_is_found_at_each_byte() {
    let text = written(GRAPH);
    for at in 0..text.len() {
        let _fault = assert_fails_by(&text[..at], at, &format!("cut at {at}"));
    }
}

#[test]
fn removed_line_is_found_at_or_before_its_place() {
    let text = written(GRAPH);
    for line in starts(&text).windows(2) {
        let without = [&text[..line[0]], &text[line[1]..]].concat();
        let fault = assert_fails_by(&without, line[0], &format!("without {line:?}"));
        let removed = str::from_utf8(&text[line[0]..line[1]]).unwrap();
        if !removed.contains(CHECKPOINT) {
            let is_gap =
                matches!(fault, TranscriptFault::Broken(at) if at == length(&text[..line[0]]));
            assert!(is_gap, "without {line:?}: {fault}");
        }
    }
}

#[test]
fn repeated_line_is_found_at_the_second() {
    let text = written(GRAPH);
    for line in starts(&text).windows(2) {
        let twice = [&text[..line[1]], &text[line[0]..]].concat();
        let _fault = assert_fails_by(&twice, line[1], &format!("{line:?} twice"));
    }
}

#[test]
fn swapped_lines_are_found_at_or_before_the_first() {
    let text = written(GRAPH);
    for lines in starts(&text).windows(3) {
        let (one, other) = (&text[lines[0]..lines[1]], &text[lines[1]..lines[2]]);
        let swapped = [&text[..lines[0]], other, one, &text[lines[2]..]].concat();
        let _fault = assert_fails_by(&swapped, lines[0], &format!("{lines:?} swapped"));
    }
}

proptest! {
    #[test]
    fn changed_range_is_found_at_or_before_its_last_byte(
        at in any::<prop::sample::Index>(),
        bytes in prop::collection::vec(any::<u8>(), 1..40),
    ) {
        let text = written(GRAPH);
        let at = at.index(text.len());
        let mut changed = text.clone();
        for (old, new) in changed[at..].iter_mut().zip(&bytes) {
            *old = *new;
        }
        if changed != text {
            let _fault = assert_fails_by(&changed, at + bytes.len(), "a changed range");
        }
    }
}

#[test]
fn transcript_of_another_key_is_not_accepted() {
    let text = written(GRAPH);
    let other = [key(2).public().clone()];
    for keys in [&other[..], &[]] {
        let verdict = verify(&*text, keys);
        let Some(TranscriptFault::UnknownKey { signer, .. }) = verdict.fault else {
            panic!("{:?}", verdict.fault);
        };
        assert_eq!(signer, *key(1).public().fingerprint());
        assert_eq!((verdict.bytes, verdict.events), (0, 0));
    }
}

#[test]
fn rechained_history_fails_at_first_checkpoint() {
    let run = RunId::new(RUN).unwrap();
    let event = Fact {
        run: &run,
        seq: Seq(1),
        at: Timestamp::from_ms(0),
        name: "tool_completed",
        payload: "{}",
    };
    let (mut head, mut out) = (Head::default(), Vec::new());
    head.write_event(&event, &mut out);
    let checkpoint = head.bytes;
    sign(&mut head, &event, &key(2), key(1).public(), &mut out);
    let verdict = check(&out);
    let is_unsigned =
        matches!(verdict.fault, Some(TranscriptFault::Unsigned(at)) if at == checkpoint);
    assert!(is_unsigned, "{:?}", verdict.fault);
    assert_eq!(verdict.checkpoints, 0);
}

#[test]
fn transcript_signed_by_former_and_current_key_passes_with_both() {
    let mut events = GRAPH.to_vec();
    events[4].2 = Some(2);
    let text = written(&events);
    let keys = [2, 1].map(|seed| key(seed).public().clone());
    let verdict = verify(&*text, &keys);
    assert!(verdict.fault.is_none(), "{:?}", verdict.fault);
    assert_eq!(
        verdict.signers,
        keys.each_ref().map(|key| key.fingerprint().clone())
    );
    let verdict = verify(&*text, &keys[..1]);
    assert!(matches!(
        verdict.fault,
        Some(TranscriptFault::UnknownKey { .. })
    ));
    assert_eq!((verdict.events, verdict.checkpoints), (5, 1));
}

#[test]
fn live_run_proves_its_checkpoints() {
    let suspended = [GRAPH[0], GRAPH[1], ("run_suspended", "{}", Some(1))];
    let resumed = [&suspended[..], &[("run_resumed", "{}", None)]].concat();
    for (events, proved) in [
        (&suspended[..], 3),
        (&resumed, 3),
        (&GRAPH[..4], 0),
        (&[], 0),
    ] {
        let text = written(events);
        let verdict = check(&text);
        let is_unended =
            matches!(verdict.fault, Some(TranscriptFault::Unended(at)) if at == length(&text));
        assert!(is_unended, "{:?}", verdict.fault);
        assert_eq!(verdict.events, proved);
    }
}

#[test]
fn end_without_checkpoint_is_short_and_text_after_end_is_refused() {
    let text = written(GRAPH);
    let last = starts(&text)[7];
    let fault = check(&text[..last]).fault;
    assert!(matches!(fault, Some(TranscriptFault::Short(at)) if at == length(&text[..last])));
    for more in ["\n", "{", "{}\n"] {
        let longer = [&text, more.as_bytes()].concat();
        let fault = check(&longer).fault;
        assert!(matches!(fault, Some(TranscriptFault::Trailing(at)) if at == length(&text)));
    }
}

#[test]
fn endless_line_is_refused_at_its_bound() {
    let endless = BufReader::with_capacity(1 << 20, io::repeat(b'x'));
    let verdict = verify(endless, &[]);
    assert!(
        matches!(verdict.fault, Some(TranscriptFault::Long(0))),
        "{:?}",
        verdict.fault
    );
}

#[test]
fn source_that_fails_is_reported_as_unreadable() {
    struct Failing;
    impl io::Read for Failing {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::ErrorKind::PermissionDenied.into())
        }
    }
    let verdict = verify(BufReader::new(Failing), &[]);
    assert!(matches!(verdict.fault, Some(TranscriptFault::Read(_))));
}
