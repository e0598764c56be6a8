//! Costs of threads, compared with a scripted model server on this machine.
//!
//! `cargo bench -p rye-tests --bench threads [NAME …]` prints medians with the smallest and the largest value, and
//! compares them with the goals of the project. The numbers are valid only on an otherwise idle machine. The reference
//! values (the time of a sync and of an object) are measured on the same disk in the same run.
//!
//! * `turns`: time from the end of an answer to the next call, without a tool; growth of the transcript by a late and
//!   by an early turn
//! * `calls`: time from a complete call in an unfinished answer to the start of its tool, from the view of a listener,
//!   and from the time at which the server sent it
//! * `tokens`: time from the server's sending of a piece of text to its display, compared with `curl` (required) on the
//!   same stream
//! * `memory`: threads whose models all stream at the same time
//! * `crowd`: like `tokens`, for some of a thousand threads whose models all send fifty tokens a second
#![expect(clippy::print_stdout, reason = "a benchmark prints its result")]

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use rye_client::Client;
use rye_client::events::{Deltas, Follow, StreamItem};
use rye_proto::v1;
use rye_tests::World;
use rye_tests::measure::{Goal, Series, compare, milliseconds, resident};
use rye_tests::model_server::{ModelServer, Request, SECRET};
use tokio::task::JoinHandle;

/// Turns of the long thread.
const TURNS: u32 = 1000;
/// Number of its first and last turns that are compared.
const COMPARED: usize = 100;
/// Calls that are measured, and calls before them.
const CALLS: u32 = 60;
const WARM: u32 = 10;
/// Concurrent threads.
const CROWD: u32 = 1000;
/// Pieces of a text, characters of each, pause between two, and number of times that each reader gets the text.
const PIECES: usize = 500;
const PIECE: usize = 12;
const PACE_MS: u32 = 10;
const REPETITIONS: u32 = 3;
/// Number of threads of a crowd that are observed, pause between two pieces of each, and events after the last piece.
const OBSERVED: usize = 8;
const CROWD_PACE_MS: u32 = 20;
const TRAILING_EVENTS: usize = 3;
/// Syncs and objects that are measured.
const SYNCS: u64 = 200;

/// A model that requests a missing tool again and again, so each turn is answered immediately.
const ENDLESS: &str = "
- when: {directive: long}
  reply: {text: A turn like any other., calls: [{name: nothing, input: {n: 1}}], usage: {input: 10, output: 10}}
";
/// A model that calls a tool in each turn and continues its answer when it is released.
fn calling() -> String {
    let turn = |turn: u32| {
        format!(
            "- when: {{directive: call, turn: {turn}}}\n  reply: {{content: [{{call: {{name: rye_execute, input: {{item_id: rye/core/echo, \
             parameters: {{n: {turn}}}}}}}}}, {{hold: called_{turn}}}, {{text: More.}}]}}\n"
        )
    };
    let turns: String = (1..=WARM + CALLS).map(turn).collect();
    format!("{turns}- when: {{directive: call}}\n  reply: {{text: Done.}}\n")
}
/// A model that does not finish its answer.
const STREAMING: &str = "
- when: {directive: speak}
  reply: {content: [{text: I begin.}, {hold: middle}, {text: I end.}]}
";

/// A directive without relevant limits, which may call one tool.
const HEAD: &str = "<model tier=\"general\"/><limits turns=\"100000\" tokens=\"1000000000\" duration_seconds=\"86400\"/>\
    <permissions><execute><tool>rye/core/echo</tool></execute></permissions>";

fn main() {
    // Cargo adds flags of its own.
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| !word.starts_with('-'))
        .collect();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime can be had");
    // The measurement runs on a thread of the runtime, so that no hand-over between threads is measured.
    let measured = runtime.spawn(measure(wanted));
    runtime.block_on(measured).expect("all is measured");
}

async fn measure(wanted: Vec<String>) {
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|word| word == name);
    if is_wanted("turns") {
        turns().await;
    }
    if is_wanted("calls") {
        calls().await;
    }
    if is_wanted("tokens") {
        tokens().await;
    }
    if is_wanted("memory") {
        memory().await;
    }
    if is_wanted("crowd") {
        crowd().await;
    }
}

/// Makes a world whose daemon calls `server`, with the directive `bench/NAME`.
fn world(server: &ModelServer, name: &str) -> World {
    let mut world = World::measured();
    world.find_models(server);
    world.directive(&format!("bench/{name}"), HEAD, "", "Work.");
    world
}

/// Writes a configuration to the user space.
fn configure(world: &World, file: &str, text: &str) {
    let path = world.home().join(".ai/config/agent").join(file);
    fs::create_dir_all(path.parent().expect("a file has a directory")).expect("the world is ours");
    fs::write(&path, text).expect("the world is ours");
    let _signed = world.ryectl("sign").arg(&path).ok();
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

/// Waits until the daemon has received text of a thread's model.
async fn until_first_text(client: &Client, run: &str) {
    let events = client.events(run, "", Follow::UntilEnd);
    let mut events = events.with(Deltas::Texts);
    while let Some(told) = events.next_item().await.expect("the thread is told") {
        if matches!(told, StreamItem::Delta(delta) if !delta.text.is_empty()) {
            return;
        }
    }
}

/// Measures the time of a sync, and of an object: a file that is written, synced and renamed, and a sync of its
/// directory.
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
    let patient =
        "version: \"1.0.0\"\ncategory: agent\nname: resilience\nlimits: {repeated_calls: 0}\n";
    configure(&world, "resilience.yaml", patient);
    let daemon = world.start("");
    let (sync, object) = of_the_disk(&world.state());
    let client = client(&world).await;
    let run = start(&world, &client, "long", Some(TURNS)).await;
    let ended = client.wait(std::slice::from_ref(&run), None).await;
    assert_eq!(ended.expect("the thread rests").runs.len(), 1);
    let requests = server.requests();
    assert_eq!(u32::try_from(requests.len()), Ok(TURNS), "one call a turn");
    let gaps = gaps("end of an answer to the next call", &requests);
    let _early = self::gaps("the same early", &requests[..=COMPARED]);
    let _late = self::gaps("the same late", &requests[requests.len() - COMPARED..]);
    compare(
        "the same beyond two syncs and an object, ms",
        gaps.median() - 2.0 * sync - object,
        &Goal::AtMost(2.0),
    );
    let bytes = bytes_a_turn(&world, &run);
    let sum = |turns: &[u32]| f64::from(turns.iter().sum::<u32>());
    let (first, last) = (&bytes[1..=COMPARED], &bytes[bytes.len() - COMPARED..]);
    compare(
        "transcript of a late turn to that of an early one",
        sum(last) / sum(first),
        &Goal::AtMost(1.05),
    );
    daemon.kill_both();
    let _status = daemon.ended();
}

/// Returns the time from the end of each answer to the next call.
fn gaps(name: &'static str, requests: &[Request]) -> Series {
    let mut gaps = Series::new(name, "ms");
    for pair in requests.windows(2) {
        let ended = pair[0].ended().expect("it was answered");
        gaps.add(milliseconds(pair[1].arrived.duration_since(ended)));
    }
    gaps.print();
    gaps
}

/// Returns the bytes of the transcript for each turn.
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
    let server = ModelServer::start(&calling());
    let world = world(&server, "call");
    let daemon = world.start("");
    let (sync, _) = of_the_disk(&world.state());
    let client = client(&world).await;
    let run = start(&world, &client, "call", None).await;
    let mut whole = Series::new("a call sent to its start on record", "ms");
    let mut starts = Series::new("a call complete to its start on record", "ms");
    let events = client.events(&run, "", Follow::UntilEnd);
    let mut events = events.with(Deltas::Everything);
    let (mut turn, mut complete) = (0, None);
    while let Some(told) = events.next_item().await.expect("events come") {
        let now = Instant::now();
        match told {
            StreamItem::Delta(delta) if delta.kind() == v1::DeltaKind::CallReady => {
                complete = Some(now);
            }
            StreamItem::Event(event) if event.event_type == "tool_call_start" => {
                turn += 1;
                // The last event sent is the end of the call.
                let told = server.requests().pop().expect("the model was called");
                let spoken = *told.sent().last().expect("it spoke");
                let complete = complete.take().expect("the call is told before its start");
                if turn > WARM {
                    whole.add(milliseconds(now.duration_since(spoken)));
                    starts.add(milliseconds(now.duration_since(complete)));
                }
                server.release(&format!("called_{turn}"));
            }
            StreamItem::Delta(_) | StreamItem::Event(_) => {}
        }
    }
    assert_eq!(turn, WARM + CALLS);
    whole.print();
    starts.print();
    compare(
        "the same beyond a sync, ms",
        starts.median() - sync,
        &Goal::AtMost(0.3),
    );
    daemon.kill_both();
    let _status = daemon.ended();
}

/// Measures the delay of each piece of a slowly sent text, for a listener of the thread and for a direct reader of the
/// answer.
async fn tokens() {
    let text = "a few words ".repeat(PIECES);
    assert_eq!(text.len(), PIECES * PIECE);
    let server = ModelServer::start(&format!(
        "- when: {{directive: tell}}\n  reply: {{text: \"{text}\", pace_ms: {PACE_MS}}}\n"
    ));
    let world = world(&server, "tell");
    let daemon = world.start("");
    let client = client(&world).await;
    let mut shown = Series::new("a piece of text to a listener", "ms");
    let mut read = Series::new("a piece of text to curl", "ms");
    for _ in 0..REPETITIONS {
        let heard = listen(&world, &client).await;
        let told = server.requests().pop().expect("the model was called");
        let body = told.body.to_string();
        let url = format!("{}/v1/messages", server.base_url());
        let (ahead, lines) = tokio::task::block_in_place(|| curl(&url, &body));
        let again = server.requests().pop().expect("curl has called");
        late(&mut shown, &told.sent()[ahead..], heard);
        late(
            &mut read,
            &again.sent()[ahead..],
            lines.into_iter().map(Some),
        );
    }
    print_late(&[&shown, &read]);
    compare(
        "added by the daemon, median, ms",
        shown.median() - read.median(),
        &Goal::AtMost(0.2),
    );
    compare(
        "added by the daemon, 99 of 100, ms",
        shown.p99() - read.p99(),
        &Goal::AtMost(2.0),
    );
    daemon.kill_both();
    let _status = daemon.ended();
}

/// Prints the delays of pieces.
fn print_late(all: &[&Series]) {
    for series in all {
        series.print();
        println!(
            "{:<46} {:>9.2} ms",
            "99 of 100 of these within",
            series.p99()
        );
    }
}

/// Adds the time of each piece from its sending to its arrival.
fn late(series: &mut Series, sent: &[Instant], there: impl IntoIterator<Item = Option<Instant>>) {
    for (sent, there) in sent.iter().zip(there) {
        if let Some(there) = there {
            series.add(milliseconds(there.duration_since(*sent)));
        }
    }
}

/// Starts a thread and listens to it.
async fn listen(world: &World, client: &Client) -> Vec<Option<Instant>> {
    let run = start(world, client, "tell", None).await;
    observe(client, &run).await
}

/// Listens to a thread. Returns the arrival time of each piece, or `None` for a piece that came before the listener.
async fn observe(client: &Client, run: &str) -> Vec<Option<Instant>> {
    let events = client.events(run, "", Follow::UntilEnd);
    let mut events = events.with(Deltas::Texts);
    let mut there = Vec::new();
    let mut text = String::new();
    while let Some(told) = events.next_item().await.expect("the thread is told") {
        let StreamItem::Delta(delta) = told else {
            continue;
        };
        let now = match delta.kind() {
            v1::DeltaKind::Text => Some(Instant::now()),
            v1::DeltaKind::Reset => {
                text.clear();
                None
            }
            v1::DeltaKind::Unspecified
            | v1::DeltaKind::Thinking
            | v1::DeltaKind::CallBegun
            | v1::DeltaKind::CallArgs
            | v1::DeltaKind::CallReady
            | v1::DeltaKind::Output => continue,
        };
        text.push_str(&delta.text);
        there.resize(text.len() / PIECE, now);
    }
    assert_eq!(there.len(), PIECES, "all of it was told");
    there
}

/// Reads the same answer with `curl`. Returns the number of events before the text, and the arrival time of each piece.
#[expect(
    clippy::disallowed_methods,
    reason = "what is measured beside the daemon is a program that nobody here wrote"
)]
fn curl(url: &str, body: &str) -> (usize, Vec<Instant>) {
    let key = format!("x-api-key: {SECRET}");
    let headers = [
        "content-type: application/json",
        "accept-encoding: identity",
        "anthropic-version: 2023-06-01",
        &key,
    ];
    let mut command = Command::new("curl");
    command.args(["-sSfN", "--data-binary", "@-", url]);
    for header in headers {
        command.args(["-H", header]);
    }
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut curl = piped.spawn().expect("curl can be started");
    let mut input = curl.stdin.take().expect("it is piped");
    input.write_all(body.as_bytes()).expect("curl reads");
    drop(input);
    let (mut ahead, mut there) = (0, Vec::new());
    let lines = BufReader::new(curl.stdout.take().expect("it is piped")).lines();
    for line in lines.map(|line| line.expect("curl writes text")) {
        if line.contains("text_delta") {
            there.push(Instant::now());
        } else if there.is_empty() && line.starts_with("data:") {
            ahead += 1;
        }
    }
    assert!(curl.wait().expect("it is ours").success());
    assert_eq!(there.len(), PIECES, "all of it was read");
    (ahead, there)
}

/// Makes a [`world`] that allows as many concurrent calls as there are threads.
fn wide_world(server: &ModelServer, name: &str) -> World {
    let world = world(server, name);
    let text = include_str!("../../.ai/config/agent/providers/anthropic.yaml");
    let most = text.replace("max_concurrent: 64", "max_concurrent: 2000");
    assert_ne!(most, text, "the shipped file has a limit");
    configure(&world, "providers/anthropic.yaml", &most);
    world
}

/// Measures the delay of pieces for listeners of some threads, while the models of all threads stream, until the first
/// of them ends. The delays while nearly all of them end are printed separately.
async fn crowd() {
    let text = "a few words ".repeat(PIECES);
    let server = ModelServer::start(&format!(
        "- when: {{directive: crowd}}\n  reply: {{slow_headers: go, text: \"{text}\", pace_ms: {CROWD_PACE_MS}}}\n"
    ));
    let world = wide_world(&server, "crowd");
    let daemon = world.start("budget: {}\n");
    let client = client(&world).await;
    let mut runs = Vec::new();
    for number in 1..=CROWD {
        runs.push(start(&world, &client, "crowd", None).await);
        // The calls of observed threads arrive in the order of their threads.
        if runs.len() <= OBSERVED {
            server.wait_for(|requests| u32::try_from(requests.len()) == Ok(number));
        }
    }
    server.wait_for(|requests| u32::try_from(requests.len()) == Ok(CROWD));
    let curls = curls(&server);
    let heard = runs[..OBSERVED].iter().map(|run| observe(&client, run));
    let begin = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        server.release("go");
    };
    let (heard, read_by_curl, ()) = tokio::join!(join_all(heard), join_all(curls), begin);
    let mut shown = Series::new("a piece of text of one of 1,000 to a listener", "ms");
    let mut read = Series::new("a piece of text of one more to curl", "ms");
    let mut ending = Series::new("a piece of text to a listener while threads end", "ms");
    let requests = server.requests();
    let ends = requests[..runs.len()].iter().filter_map(Request::ended);
    let first_end = ends.min().expect("the answers end");
    for (told, heard) in requests.iter().zip(heard) {
        let sent = told.sent();
        let sent = &sent[sent.len() - PIECES - TRAILING_EVENTS..];
        let all_speak = sent.partition_point(|at| *at < first_end);
        let (before, behind) = heard.split_at(all_speak.min(heard.len()));
        late(&mut shown, sent, before.iter().copied());
        late(&mut ending, &sent[before.len()..], behind.iter().copied());
    }
    for (told, lines) in requests[runs.len()..].iter().zip(read_by_curl) {
        let (ahead, lines) = lines.expect("curl is followed");
        let sent = &told.sent()[ahead..];
        let all_speak = sent.partition_point(|at| *at < first_end);
        let before = lines.into_iter().take(all_speak);
        late(&mut read, sent, before.map(Some));
    }
    print_late(&[&shown, &read, &ending]);
    compare(
        "added by the daemon, 99 of 100, ms",
        shown.p99() - read.p99(),
        &Goal::AtMost(20.0),
    );
    daemon.kill_both();
    let _status = daemon.ended();
}

/// Runs blocking work on a thread of its own.
#[expect(
    clippy::disallowed_methods,
    reason = "no task of the daemon, whose work is named"
)]
fn following<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    tokio::task::spawn_blocking(work)
}

/// Reads answers like those of a crowd with `curl`, one for each observed thread. The server knows them in this order.
fn curls(server: &ModelServer) -> Vec<JoinHandle<(usize, Vec<Instant>)>> {
    let calls = server.requests();
    let url = format!("{}/v1/messages", server.base_url());
    let begin = |number: usize| {
        let (url, body) = (url.clone(), calls[0].body.to_string());
        let curl = following(move || curl(&url, &body));
        server.wait_for(|requests| requests.len() > calls.len() + number);
        curl
    };
    (0..OBSERVED).map(begin).collect()
}

async fn memory() {
    let server = ModelServer::start(STREAMING);
    let world = wide_world(&server, "speak");
    let daemon = world.start("budget: {}\n");
    let client = client(&world).await;
    let _first = start(&world, &client, "speak", None).await;
    server.wait_for(|requests| requests.len() == 1);
    let before = resident(&world);
    let mut runs = Vec::new();
    for _ in 0..CROWD {
        runs.push(start(&world, &client, "speak", None).await);
    }
    server.wait_for(|requests| u32::try_from(requests.len()) == Ok(CROWD + 1));
    for run in &runs {
        until_first_text(&client, run).await;
    }
    let more = resident(&world) - before;
    compare(
        "memory of 1,000 streaming threads, MB",
        more,
        &Goal::AtMost(250.0),
    );
    compare(
        "memory of one, KB",
        more * 1024.0 / f64::from(CROWD),
        &Goal::AtMost(128.0),
    );
    daemon.kill_both();
    let _status = daemon.ended();
}
