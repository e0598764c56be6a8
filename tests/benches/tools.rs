//! Costs of tools without a process of their own, compared with the bare work in the same process.
//!
//! `cargo bench -p rye-tests --bench tools` prints medians with the smallest and the largest value, and compares them
//! with the goals of the project. The tools read a part of a file of 10,000 lines, edit one of its lines, and call a
//! tool of a warm server of the Model Context Protocol. The cost is the time beyond that of a step that does nothing.
//! The benchmark needs `python3`.
#![expect(clippy::print_stdout, reason = "a benchmark prints its result")]

use std::fmt::Write as _;
use std::fs;
use std::hint::black_box;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use rye_client::Client;
use rye_core::seal::sha256_hex;
use rye_proto::v1;
use rye_tests::World;
use rye_tests::command::in_clean_environment;
use rye_tests::measure::{Goal, Series, append_and_sync, compare, milliseconds};
use serde_json::{Value, json};

/// Measurements of each kind.
const ROUNDS: usize = 7;
/// Steps of a run. One more step is its first, which is not counted.
const STEPS: u32 = 100;
/// Lines of the file.
const LINES: usize = 10_000;
/// Number of the edited line.
const EDITED: usize = 9_000;
/// Lower bound of the bytes of a step in the log.
const STEP_BYTES: usize = 1_000;

const SERVER: &str = include_str!("../tests/mcp/server.py");

/// Two nodes that call each other until the step limit ends the run.
fn endless(one: &str, other: &str) -> String {
    format!(
        "start: a\nmax_steps: 1000000\nnodes:\n  a: {{action: {{{one}}}, next: b}}\n  b: {{action: {{{other}}}, next: a}}"
    )
}

/// Returns a line of the file.
fn line(number: usize) -> String {
    format!("line {number} of a file that is neither short nor long")
}

/// Returns the action of a node that replaces the text `from` of the line by `to`.
fn edit(from: &str, to: &str) -> String {
    let id = sha256_hex(format!("{EDITED}:{from}"));
    let id = id.get(..8).expect("a hash is longer");
    format!(
        "item_id: rye/file-system/edit_lines, params: {{path: long.txt, changes: [{{line_id: \"{id}\", new_content: \"{to}\"}}]}}"
    )
}

fn main() {
    let world = World::measured();
    let mut text = String::new();
    for number in 1..=LINES {
        writeln!(text, "{}", line(number)).expect("a text takes all");
    }
    world.write("long.txt", &text);
    let echo = "item_id: rye/core/echo, params: {n: 1}";
    world.graph("bench/echo", &endless(echo, echo));
    let read = "item_id: rye/file-system/read, params: {path: long.txt, offset: 9000, limit: 50}";
    world.graph("bench/read", &endless(read, read));
    let (old, new) = (line(EDITED), "another line".to_owned());
    let edits = endless(&edit(&old, &new), &edit(&new, &old));
    world.graph("bench/edit", &edits);
    world.write("server.py", SERVER);
    let head = "version: \"1.0.0\"\ndescription: \"Adds.\"\n";
    world.tool(
        "mcp/servers/good.yaml",
        &format!(
            "{head}tool_type: mcp_server\nexecutor_id: null\ncategory: mcp/servers\nname: good\nconfig:\n  transport: stdio\n  command: python3\n  \
             args: [\"-u\", \"{{project_path}}/server.py\", good]\n"
        ),
    );
    world.tool(
        "mcp/good/add.yaml",
        &format!(
            "{head}tool_type: mcp\nexecutor_id: rye/core/runtimes/mcp/stdio\ncategory: mcp/good\nname: add\n\
             config: {{server: mcp/servers/good, tool_name: add}}\n"
        ),
    );
    let call = "item_id: mcp/good/add, params: {a: 1, b: 2}";
    world.graph("bench/mcp", &endless(call, call));
    let _daemon = world.start("");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime can be had");
    runtime.block_on(measure(&world));
}

async fn measure(world: &World) {
    let client = Client::connect(world.socket())
        .await
        .expect("the daemon serves");
    let path = world.project().join("long.txt");
    let mut server = Server::start(world);
    let mut bare_file = Series::new("read and hash the file", "ms");
    let mut bare_write = Series::new("write a file as long and rename it", "ms");
    let mut bare_call = Series::new("call of the bare server + one sync", "ms");
    let mut echo = Series::new("a step that does nothing", "ms");
    let mut read = Series::new("added by: read 50 of 10,000 lines", "ms");
    let mut edit = Series::new("added by: edit one of 10,000 lines", "ms");
    let mut call = Series::new("a call on a warm session beyond the bare one", "ms");
    for _ in 0..ROUNDS {
        let sync =
            milliseconds(append_and_sync(world.root(), STEP_BYTES, STEPS)) / f64::from(STEPS);
        bare_file.add(each(|| drop(black_box(sha256_hex(content(&path))))));
        let (text, beside) = (content(&path), path.with_extension("new"));
        bare_write.add(each(|| {
            fs::write(&beside, &text).expect("there is room");
            fs::rename(&beside, &path).expect("the world is ours");
        }));
        let bare = each(|| server.call()) + sync;
        bare_call.add(bare);
        let nothing = step(&client, world, "bench/echo").await;
        echo.add(nothing);
        read.add(step(&client, world, "bench/read").await - nothing);
        edit.add(step(&client, world, "bench/edit").await - nothing);
        call.add(step(&client, world, "bench/mcp").await - bare);
    }
    for series in [
        &echo,
        &bare_file,
        &read,
        &bare_write,
        &edit,
        &bare_call,
        &call,
    ] {
        series.print();
    }
    println!();
    compare(read.name(), read.median(), &Goal::AtMost(10.0));
    compare(edit.name(), edit.median(), &Goal::AtMost(10.0));
    compare(call.name(), call.median(), &Goal::AtMost(1.0));
}

fn content(path: &std::path::Path) -> Vec<u8> {
    fs::read(path).expect("it is there")
}

/// Returns the milliseconds of one call, as the mean over [`STEPS`] calls.
fn each(mut work: impl FnMut()) -> f64 {
    let began = Instant::now();
    for _ in 0..STEPS {
        work();
    }
    milliseconds(began.elapsed()) / f64::from(STEPS)
}

/// Returns the milliseconds of a step of `item` after its run's first. The time of a short run is subtracted.
async fn step(client: &Client, world: &World, item: &str) -> f64 {
    // An even number of edits leaves the file as it was.
    let short = run(client, world, item, 2).await;
    let long = run(client, world, item, STEPS + 2).await;
    milliseconds(long.saturating_sub(short)) / f64::from(STEPS)
}

/// Runs `item` for `steps` steps. Returns the time from its acceptance to its end.
async fn run(client: &Client, world: &World, item: &str, steps: u32) -> Duration {
    let began = Instant::now();
    let request = v1::StartRequest {
        item: Some(v1::ItemRef {
            r#type: v1::ItemType::Tool.into(),
            id: item.to_owned(),
        }),
        project: world.project().display().to_string(),
        limits: Some(v1::Limits {
            steps: Some(steps),
            ..v1::Limits::default()
        }),
        ..v1::StartRequest::default()
    };
    let started = client.start(request).await.expect("the run starts");
    let ended = client.wait(&[started.run_id], None).await;
    for run in ended.expect("the run ends").runs {
        assert_eq!(run.steps, steps, "{:?}", run.error);
    }
    began.elapsed()
}

/// The server, which the benchmark uses directly over its pipes.
struct Server {
    process: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    asked: u32,
}

impl Server {
    fn start(world: &World) -> Self {
        let mut process = in_clean_environment("python3", &world.home(), world.root())
            .args(["-u", "-c", SERVER])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let stdin = process.stdin.take().expect("it was piped");
        let stdout = process.stdout.take().expect("it was piped");
        let mut server = Self {
            process,
            stdin,
            stdout: BufReader::new(stdout),
            asked: 0,
        };
        let about = json!({"name": "bench", "version": "1.0"});
        let params =
            json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": about});
        drop(server.ask("initialize", &params));
        server.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        server
    }

    fn call(&mut self) {
        let params = json!({"name": "add", "arguments": {"a": 1, "b": 2}});
        let answer = self.ask("tools/call", &params);
        assert!(answer["result"]["content"].is_array(), "{answer}");
    }

    fn ask(&mut self, method: &str, params: &Value) -> Value {
        self.asked += 1;
        let message =
            json!({"jsonrpc": "2.0", "id": self.asked, "method": method, "params": params});
        self.say(&message);
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("it answers");
        serde_json::from_str(&line).expect("it answers in JSON")
    }

    fn say(&mut self, message: &Value) {
        writeln!(self.stdin, "{message}").expect("it listens");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}
