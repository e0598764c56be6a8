//! Threads with random models, tools, crashes, suspensions: invariants in every case.

use crate::conversation::Digest;
use crate::model::ThreadEvent;
use crate::model::event::{CancelRequested, CognitionIn, MessageQueued};
use std::collections::{BTreeMap, BTreeSet};

use super::stage::{Met, execute, result};
use super::*;
use crate::model::thread::Class;
use crate::model::{Failure, SuspendReason};
use crate::provider::failure::Charge;

/// Threads of one test.
const THREADS: u64 = 300;
/// Limit of the random events of one thread.
const MOST_HAPPENINGS: u32 = 400;

const PERMISSIONS: &str = "<execute><tool>t/a</tool></execute>\
     <execute effect=\"idempotent\"><tool>t/i</tool></execute>\
     <execute effect=\"pure\"><tool>t/p</tool></execute>\
     <execute><tool>t/says-once</tool><tool>t/says-again</tool><tool>t/says-pure</tool></execute>";
/// The tools: the permissions declare the effects of the first three, the others declare their own.
const ITEMS: [&str; 6] = [
    "t/a",
    "t/i",
    "t/p",
    "t/says-once",
    "t/says-again",
    "t/says-pure",
];
/// The number in a row of the equal call that is refused.
const REPEATED: u32 = 3;
/// Time limit of the turns in milliseconds.
const DURATION_MS: u64 = 60_000;
const OUTPUTS: &str = "<output name=\"words\" type=\"integer\" required=\"true\">How many</output>";

/// A generator of numbers, the same in every run (xorshift).
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }

    fn place(&mut self, length: usize) -> usize {
        usize::try_from(self.below(u64::try_from(length).unwrap())).unwrap()
    }
}

/// A random answer of the model in a turn, after it received `artifacts`.
fn message(dice: &mut Dice, turn: u32, artifacts: &[Digest]) -> Vec<ModelSignal> {
    if dice.below(8) == 0 {
        return message_signals("", &[("r", "directive_return", json!({"words": turn}))]);
    }
    let count = dice.below(5);
    let ids: Vec<String> = (0..count)
        .map(|number| format!("c{turn}.{number}"))
        .collect();
    let calls: Vec<(&str, &str, Value)> = ids
        .iter()
        .map(|id| {
            let item = ITEMS[dice.place(ITEMS.len())];
            let number = if dice.below(3) == 0 { 0 } else { turn };
            match dice.below(12) {
                10 => (
                    id.as_str(),
                    "read_artifact",
                    json!({"artifact": Digest::of(item)}),
                ),
                11 if !artifacts.is_empty() => {
                    let artifact = &artifacts[dice.place(artifacts.len())];
                    let input = json!({"artifact": artifact, "limit": 10});
                    (id.as_str(), "read_artifact", input)
                }
                0 => (id.as_str(), "nothing", json!({})),
                1 => (id.as_str(), "rye_execute", json!("no object")),
                _ => (id.as_str(), "rye_execute", execute(item, number)),
            }
        })
        .collect();
    message_signals(if dice.below(2) == 0 { "Thinking." } else { "" }, &calls)
}

fn broken(dice: &mut Dice) -> ModelSignal {
    let class = [Class::Transient, Class::RateLimited, Class::Quota][dice.place(3)];
    let charge = [Charge::Nothing, Charge::Hold, Charge::Known][dice.place(3)];
    ModelSignal::Failed(Box::new(CallFailure {
        failure: Failure::permanent("overloaded_error", "too many"),
        class,
        charge,
        received: Received::default(),
        pause_ms: dice.below(2000),
    }))
}

#[test]
fn random_runs_never_repeat_calls_and_match_replay() {
    let mut statuses = BTreeSet::new();
    let mut terms = Arc::into_inner(terms(&directive(PERMISSIONS, OUTPUTS))).unwrap();
    terms.contract.repeated_calls = REPEATED;
    let terms = Arc::new(terms);
    for seed in 1..=THREADS {
        let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let stage = Stage::new(Arc::clone(&terms), |spec| {
            spec.limits.turns = Some(12);
            spec.limits.duration_ms = Some(DURATION_MS);
        });
        statuses.insert(live(stage, &mut dice, seed));
    }
    let seen: Vec<_> = statuses.iter().map(|status| status.as_str()).collect();
    assert_eq!(seen, ["suspended", "completed", "error", "cancelled"]);
}

/// Runs one thread to its end, and returns its status.
fn live(mut stage: Stage, dice: &mut Dice, seed: u64) -> Status {
    let mut speech: std::collections::VecDeque<ModelSignal> = std::collections::VecDeque::new();
    let mut speaks = false;
    for number in 0..MOST_HAPPENINGS {
        if dice.below(12) == 0 {
            stage.others(MessageQueued {
                text: format!("message {number}"),
                by: "me".to_owned(),
                lines: None,
            });
        }
        stage.pass(dice.below(400));
        match stage.play() {
            Met::Model => {
                speaks = true;
                let known: Vec<Digest> = stage.kept.keys().copied().collect();
                speech = message(dice, stage.asked, &known).into();
                if dice.below(6) == 0 {
                    let at = dice.place(speech.len());
                    speech.truncate(at);
                    speech.push_back(broken(dice));
                }
                continue;
            }
            Met::Waits => {}
            Met::Rests => {
                check(&stage, seed);
                let reason = stage.run().suspension().map(|why| why.reason);
                match reason {
                    None | Some(SuspendReason::Limit) => return stage.run().status(),
                    Some(_) if dice.below(4) == 0 => return stage.run().status(),
                    Some(_) => stage.others(RunEvent::resumed(Epoch::default())),
                }
                // No part of it is in flight.
                speaks = false;
                assert!(stage.running.is_empty());
                continue;
            }
        }
        match dice.below(20) {
            0 => {
                stage.crash();
                speaks = false;
            }
            1 => stage.machine.hold(Suspension::new(SuspendReason::User)),
            2 if dice.below(6) == 0 => {
                stage.others(CancelRequested {
                    cause: "me".to_owned(),
                });
                if speaks {
                    stage.machine.abandon(Slot::Main);
                    speaks = false;
                }
                for call in stage.running.drain(..) {
                    stage.machine.abandon(call.slot);
                }
            }
            3..=9 if !stage.running.is_empty() => {
                let at = dice.place(stage.running.len());
                let text = stage.running[at].key.clone();
                // Some are too long to be sent.
                let text = text.repeat(if dice.below(3) == 0 { 40 } else { 1 });
                stage.end(at, &result(json!(text)));
            }
            _ if speaks => {
                if let Some(heard) = speech.pop_front() {
                    stage.signal(heard);
                } else {
                    stage.over();
                    speaks = false;
                }
            }
            _ if !stage.running.is_empty() => {
                let text = stage.running[0].key.clone();
                stage.end(0, &result(json!(text)));
            }
            _ => {}
        }
        check(&stage, seed);
    }
    panic!("seed {seed} comes to no end: {:?}", stage.names());
}

fn check(stage: &Stage, seed: u64) {
    let run = stage.run();
    if run.status() != Status::Running {
        assert_eq!(run.open_call, None, "seed {seed}: a hold stays");
        assert!(
            stage.running.is_empty(),
            "seed {seed}: something is in flight"
        );
        stage.assert_replay();
    }
    let mut tries: BTreeMap<&str, u32> = BTreeMap::new();
    for call in &stage.begun {
        let item = call.item.id.as_str();
        *tries.entry(&call.key).or_default() += 1;
        assert!(
            tries[&*call.key] == 1 || !["t/a", "t/says-once"].contains(&item),
            "seed {seed}: {item} is repeated"
        );
    }
    for item in ["t/a", "t/i", "t/says-once", "t/says-again"] {
        let at_once = stage
            .running
            .iter()
            .filter(|call| call.item.id.as_str() == item);
        assert!(
            at_once.count() <= 1,
            "seed {seed}: {item} runs twice at once"
        );
    }
    check_messages(stage, seed);
    check_repeats(stage, seed);
    // The conversation accepts only matching entries: each was checked when it was stored. The result of an ended call
    // was sent for that call.
    let told = stage.call_results();
    let ids: BTreeSet<&String> = told.iter().map(|(id, _)| id).collect();
    assert_eq!(
        ids.len(),
        told.len(),
        "seed {seed}: a call is answered twice"
    );
}

/// Checks that calls that are repeated too often in a row, with the same result, are refused.
fn check_repeats(stage: &Stage, seed: u64) {
    let messages = || stage.conversation.iter().flat_map(|talk| &talk.messages);
    let blocks: Vec<&Block> = messages().flat_map(Message::blocks).collect();
    let answer = |call: &str| {
        blocks.iter().find_map(|block| match block {
            Block::Result {
                id,
                content,
                is_error,
            } => (id == call).then_some((content, *is_error)),
            Block::Text { .. } | Block::Thinking { .. } | Block::Call { .. } => None,
        })
    };
    let mut repeated = crate::model::thread::Repeated::default();
    for message in messages() {
        let mut count = repeated.message();
        for block in message.blocks() {
            if let Block::Call { id, name, input } = block {
                let is_refused = count.count(name, input) >= REPEATED;
                let answer = answer(id);
                let failed = answer.is_some_and(|(_, is_error)| is_error);
                assert!(
                    failed || !is_refused,
                    "seed {seed}: {id} is made again and again"
                );
                if let Some((content, false)) = answer {
                    count.add_result(content);
                }
            }
        }
        repeated = count.end();
    }
}

/// Checks that each message to the thread is sent once, in order, unless it still waits, and that no last message of
/// the model skips one.
fn check_messages(stage: &Stage, seed: u64) {
    let (mut said, mut told) = (Vec::new(), Vec::new());
    for event in &stage.log {
        match event {
            Event::Thread(ThreadEvent::MessageQueued(MessageQueued { text, .. })) => {
                said.push(text.as_str());
            }
            Event::Thread(ThreadEvent::CognitionIn(CognitionIn {
                source: Source::Message,
                text,
                ..
            })) => told.push(text.as_str()),
            Event::Run(_)
            | Event::Graph(_)
            | Event::Thread(_)
            | Event::Tool(_)
            | Event::Process(_) => {}
        }
    }
    let thread = stage.run().thread().unwrap();
    let waiting: Vec<_> = thread.queue.texts().collect();
    let waiting = waiting.iter().map(|text| &**text);
    let known: Vec<&str> = told.iter().copied().chain(waiting).collect();
    assert_eq!(
        known, said,
        "seed {seed}: something said is lost or doubled"
    );
    let messages = stage.conversation.iter().flat_map(|talk| &talk.messages);
    let sent = messages.filter_map(|message| match message {
        Message::User {
            source: Source::Message,
            blocks,
        } => blocks.iter().find_map(|block| match block {
            Block::Text { text } => Some(text.as_str()),
            Block::Thinking { .. } | Block::Call { .. } | Block::Result { .. } => None,
        }),
        Message::User { .. } | Message::Assistant { .. } => None,
    });
    let sent: Vec<&str> = sent.collect();
    assert!(told.starts_with(&sent), "seed {seed}: {sent:?} of {told:?}");
    if stage.run().status() == Status::Completed {
        assert_eq!(sent, told, "seed {seed}: the conversation lacks something");
        let is_done = thread.returned.is_some() || thread.queue.is_empty();
        assert!(is_done, "seed {seed}: it ended over a message");
    }
}
