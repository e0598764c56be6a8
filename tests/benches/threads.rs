//! What threads cost beside the models that they call, which a scripted server on this machine plays.
//!
//! `cargo bench -p rye-tests --bench threads [NAME …]` prints medians with the smallest and the largest value, and how they stand against the
//! marks of the project. Numbers mean something on an otherwise idle machine only; what they are compared with (the time of a sync,
//! of an object) is measured on the same disk in the same run.
//!
//! * `turns`: from the end of an answer to the next call, where no tool has to be waited for; what a turn adds to the transcript, late
//!   and early
//! * `calls`: from a call that is complete, while the model still speaks, to its tool being about to start
//! * `memory`: threads whose models speak, all at once

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use rye_client::Client;
use rye_client::events::Follow;
use rye_proto::v1;
use rye_tests::World;
use rye_tests::measure::{Mark, Series, compare, milliseconds, resident};
use rye_tests::model_server::ModelServer;

/// Turns of the long thread.
const TURNS: u32 = 1000;
/// How many of its first turns and of its last are compared.
const COMPARED: usize = 100;
/// Calls that are measured.
const CALLS: u32 = 5;
/// Threads at once.
const CROWD: u32 = 1000;
/// Syncs and objects that are measured.
const SYNCS: u64 = 200;

/// A model that asks for a tool that there is not, over and over: each turn is answered at once.
const ENDLESS: &str = "
- when: {directive: long}
  reply: {text: A turn like any other., calls: [{name: nothing, input: {n: 1}}], usage: {input: 10, output: 10}}
";
/// A model that calls a tool and speaks on.
const CALLING: &str = "
- when: {directive: call, turn: 1}
  reply: {content: [{call: {name: rye_execute, input: {item_id: rye/core/echo, parameters: {n: 1}}}}, {hold: called}, {text: Done.}]}
- when: {directive: call, turn: 2}
  reply: {text: Done.}
";
/// A model that does not come to an end.
const SPEAKING: &str = "
- when: {directive: speak}
  reply: {content: [{text: I begin.}, {hold: middle}, {text: I end.}]}
";

/// A directive without limits that matter, which may call one tool.
const HEAD: &str = "<model tier=\"general\"/><limits turns=\"100000\" tokens=\"1000000000\" duration_seconds=\"86400\"/>\
    <permissions><execute><tool>rye/core/echo</tool></execute></permissions>";

fn main() {
    // Cargo adds flags of its own.
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| !word.starts_with('-'))
        .collect();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|word| word == name);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime can be had");
    runtime.block_on(async {
        if is_wanted("turns") {
            turns().await;
        }
        if is_wanted("calls") {
            calls().await;
        }
        if is_wanted("memory") {
            memory().await;
        }
    });
}

/// A world whose daemon calls `server`, and which has the directive `bench/NAME`.
fn world(server: &ModelServer, name: &str) -> World {
    let mut world = World::measured();
    world.find_models(server);
    world.directive(&format!("bench/{name}"), HEAD, "", "Work.");
    world
}

async fn client(world: &World) -> Client {
    let client = Client::connect(world.socket()).await;
    client.expect("the daemon serves")
}

async fn start(world: &World, client: &Client, name: &str, turns: Option<u32>) -> String {
    let request = v1::StartRequest {
        item: Some(v1::ItemRef {
            r#type: v1::ItemType::Directive.into(),
            id: format!("bench/{name}"),
        }),
        project: world.project().display().to_string(),
        limits: Some(v1::Limits {
            turns,
            ..v1::Limits::default()
        }),
        ..v1::StartRequest::default()
    };
    let started = client.start(request).await.expect("the thread starts");
    started.run_id
}

/// The time of a sync, and of an object: a file that is written, synced, renamed, and whose directory is synced.
fn of_the_disk(directory: &Path) -> (f64, f64) {
    let mut syncs = Series::new("sync", "ms");
    let mut objects = Series::new("object", "ms");
    let path = directory.join("measured");
    let whole = "the place can be written to";
    let mut log = File::create(&path).expect(whole);
    log.write_all(&vec![0; 1 << 20]).expect(whole);
    log.sync_all().expect(whole);
    for number in 0..SYNCS {
        let began = Instant::now();
        log.write_all_at(&[1; 2048], number * 2048).expect(whole);
        log.sync_data().expect(whole);
        syncs.add(milliseconds(began.elapsed()));
        let began = Instant::now();
        let mut object = File::create(directory.join("object.new")).expect(whole);
        object.write_all(&[1; 1024]).expect(whole);
        object.sync_all().expect(whole);
        fs::rename(directory.join("object.new"), directory.join("object")).expect(whole);
        File::open(directory)
            .and_then(|directory| directory.sync_all())
            .expect(whole);
        objects.add(milliseconds(began.elapsed()));
    }
    syncs.print();
    objects.print();
    (syncs.median(), objects.median())
}

async fn turns() {
    let server = ModelServer::start(ENDLESS);
    let world = world(&server, "long");
    let daemon = world.start("");
    let (sync, object) = of_the_disk(&world.state());
    let client = client(&world).await;
    let run = start(&world, &client, "long", Some(TURNS)).await;
    let ended = client.wait(std::slice::from_ref(&run), None).await;
    assert_eq!(ended.expect("the thread rests").runs.len(), 1);
    let requests = server.requests();
    assert_eq!(u32::try_from(requests.len()), Ok(TURNS), "one call a turn");
    let mut gaps = Series::new("end of an answer to the next call", "ms");
    for pair in requests.windows(2) {
        let ended = pair[0].ended().expect("it was answered");
        gaps.add(milliseconds(pair[1].arrived.duration_since(ended)));
    }
    gaps.print();
    compare(
        "the same beyond two syncs and an object, ms",
        gaps.median() - 2.0 * sync - object,
        &Mark::AtMost(2.0),
    );
    let bytes = bytes_a_turn(&world, &run);
    let sum = |turns: &[u32]| f64::from(turns.iter().sum::<u32>());
    let (first, last) = (&bytes[1..=COMPARED], &bytes[bytes.len() - COMPARED..]);
    compare(
        "transcript of a late turn to that of an early one",
        sum(last) / sum(first),
        &Mark::AtMost(1.05),
    );
    daemon.kill_both();
    let _status = daemon.ended();
}

/// Bytes of the transcript, turn by turn.
fn bytes_a_turn(world: &World, run: &str) -> Vec<u32> {
    let path = world.project().join(".ai/state/threads").join(run);
    let text = fs::read_to_string(path.join("transcript.jsonl")).expect("there is a transcript");
    let mut turns = vec![0];
    for line in text.lines() {
        if line.contains("\"event_type\":\"step_start\"") {
            turns.push(0);
        }
        *turns.last_mut().expect("there is one") +=
            u32::try_from(line.len()).expect("a line is short");
    }
    turns.remove(0);
    turns
}

async fn calls() {
    let mut starts = Series::new("a complete call to its start on record", "ms");
    let mut sync = 0.0;
    for _ in 0..CALLS {
        let server = ModelServer::start(CALLING);
        let world = world(&server, "call");
        let daemon = world.start("");
        (sync, _) = of_the_disk(&world.state());
        let client = client(&world).await;
        let run = start(&world, &client, "call", None).await;
        let mut events = client.events(&run, "", Follow::UntilEnd);
        let mut spoken = None;
        while let Some(event) = events.next().await.expect("events come") {
            match event.event_type.as_str() {
                "step_start" => {
                    server.wait_held("called");
                    spoken.get_or_insert_with(Instant::now);
                }
                "tool_call_start" => break,
                _ => {}
            }
        }
        starts.add(milliseconds(spoken.expect("it spoke").elapsed()));
        server.release("called");
        let _ended = client.wait(&[run], None).await.expect("the thread ends");
        daemon.kill_both();
        let _status = daemon.ended();
    }
    starts.print();
    compare(
        "the same beyond a sync, ms",
        starts.median() - sync,
        &Mark::AtMost(0.3),
    );
}

async fn memory() {
    let server = ModelServer::start(SPEAKING);
    let world = world(&server, "speak");
    let text = include_str!("../../.ai/config/agent/providers/anthropic.yaml");
    let path = world
        .home()
        .join(".ai/config/agent/providers/anthropic.yaml");
    fs::create_dir_all(path.parent().expect("a file has a directory")).expect("the world is ours");
    let most = text.replace("max_concurrent: 64", "max_concurrent: 2000");
    assert_ne!(most, text, "the shipped file has a limit");
    fs::write(&path, most).expect("the world is ours");
    let _signed = world.ryectl("sign").arg(&path).ok();
    let daemon = world.start("budget: {}\n");
    let client = client(&world).await;
    let _first = start(&world, &client, "speak", None).await;
    server.wait_for(|requests| requests.len() == 1);
    let before = resident(&world);
    for _ in 0..CROWD {
        let _run = start(&world, &client, "speak", None).await;
    }
    server.wait_for(|requests| u32::try_from(requests.len()) == Ok(CROWD + 1));
    // What the daemon still makes of the starts is over when it answers.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let more = resident(&world) - before;
    compare(
        "memory of 1,000 streaming threads, MB",
        more,
        &Mark::AtMost(250.0),
    );
    compare(
        "memory of one, KB",
        more * 1024.0 / f64::from(CROWD),
        &Mark::AtMost(128.0),
    );
    daemon.kill_both();
    let _status = daemon.ended();
}
