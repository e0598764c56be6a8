//! The text of a model is visible while it streams.

use std::io::{BufRead as _, BufReader, Lines, Read};
use std::process::{Child, ChildStdout};

use rye_tests::World;
use rye_tests::command::Outcome;
use rye_tests::model_server::ModelServer;
use serde_json::Value;

use super::{BASH, start};

/// Sends a beginning, and the rest when the test releases it.
const STORY: &str = "
- when: {turn: 1}
  reply:
    content: [{thinking: Hm.}, {text: 'Once upon a time,'}, {hold: story}, {text: 'and so on.'}]
    usage: {input: 100, output: 20}
";
const BEGINNING: &str = "Once upon a time,";
const WHOLE: &str = "Once upon a time,\n\nand so on.";

fn telling(script: &str) -> (ModelServer, World) {
    let server = ModelServer::start(script);
    let world = World::with_models(&server);
    world.directive("t/story", BASH, "", "Tell a story.");
    (server, world)
}

/// Reads until `part` has arrived.
fn read_to(from: &mut impl Read, part: &str) -> String {
    let mut seen = Vec::new();
    let mut byte = [0];
    while !String::from_utf8_lossy(&seen).contains(part) {
        from.read_exact(&mut byte).unwrap();
        seen.push(byte[0]);
    }
    String::from_utf8(seen).unwrap()
}

/// The lines of a stream with deltas.
struct Stream(Lines<BufReader<ChildStdout>>);

impl Stream {
    /// Reads the lines up to the first that satisfies `enough`, inclusive.
    fn to(&mut self, enough: impl Fn(&Value) -> bool) -> Vec<Value> {
        let mut seen = Vec::new();
        for line in self.0.by_ref() {
            let line: Value = serde_json::from_str(&line.unwrap()).unwrap();
            let is_last = enough(&line);
            seen.push(line);
            if is_last {
                return seen;
            }
        }
        panic!("the stream ended: {seen:?}");
    }

    /// Reads the lines until the text equals `so_far`.
    fn until_text(&mut self, so_far: &str) -> Vec<Value> {
        let mut seen = Vec::new();
        while text(&seen) != so_far {
            seen.extend(self.to(|_| true));
        }
        seen
    }
}

fn listen(world: &World, run: &str) -> (Child, Stream) {
    let follower = world.ryectl("events --follow --deltas --json").arg(run);
    let mut follower = follower.spawn();
    let lines = BufReader::new(follower.stdout.take().unwrap()).lines();
    (follower, Stream(lines))
}

/// Assembles the texts of the deltas, as a listener has them at the end.
fn text(lines: &[Value]) -> String {
    let mut text = String::new();
    let mut place = Value::Null;
    for delta in lines.iter().map(|line| &line["delta"]) {
        let more = delta["text"].as_str().unwrap_or_default();
        if delta["kind"] == "reset" {
            more.clone_into(&mut text);
        } else if delta["kind"] == "text" {
            if !text.is_empty() && delta["position"] != place {
                text.push_str("\n\n");
            }
            text.push_str(more);
        } else {
            continue;
        }
        place = delta["position"].clone();
    }
    text
}

fn named(line: &Value, name: &str) -> bool {
    line["event_type"] == name
}

#[test]
fn streamed_text_is_shown_early_and_once() {
    let (server, world) = telling(STORY);
    let _daemon = world.start("");
    let mut shown = world.ryectl("thread run t/story").spawn();
    let mut stderr = shown.stderr.take().unwrap();
    let mut told = read_to(&mut stderr, BEGINNING);
    server.wait_held("story");
    assert!(!told.contains("and so on."), "{told}");
    server.release("story");
    stderr.read_to_string(&mut told).unwrap();
    assert_eq!(told.matches(BEGINNING).count(), 1, "{told}");
    assert!(told.contains(&format!("{WHOLE}\n")), "{told}");
    let printed = Outcome::of(shown).code(0).stdout();
    assert_eq!(printed, format!("{WHOLE}\n"));
}

#[test]
fn deltas_are_ordered_among_events_and_not_recorded() {
    let (server, world) = telling(STORY);
    let _daemon = world.start("");
    let run = start(&world, "t/story");
    server.wait_held("story");
    let (mut follower, mut stream) = listen(&world, &run);
    // A listener that connects in the middle gets the earlier text.
    let mut lines = stream.until_text(BEGINNING);
    server.release("story");
    lines.extend(stream.to(|line| named(line, "thread_completed")));
    assert!(follower.wait().unwrap().success());
    assert_eq!(text(&lines), WHOLE);
    let at = |name: &str| lines.iter().position(|line| named(line, name)).unwrap();
    let said = lines
        .iter()
        .enumerate()
        .filter(|(_, line)| line["delta"].is_object());
    let said: Vec<usize> = said.map(|(place, _)| place).collect();
    let (first, last) = (said[0], said[said.len() - 1]);
    assert!(
        at("step_start") < first && last < at("cognition_out"),
        "{lines:?}"
    );
    let record = world.ryectl("events --json").arg(&run).ok().json_lines();
    let events: Vec<&Value> = lines
        .iter()
        .filter(|line| line["delta"].is_null())
        .collect();
    assert_eq!(record.iter().collect::<Vec<_>>(), events);
    let _alone = world.ryectl("events --deltas").arg(&run).run().code(2);
}

#[test]
fn broken_answer_is_retracted_before_its_failure() {
    let (server, world) = telling(
        "
- when: {turn: 1}
  times: 1
  reply: {content: [{text: Half a story.}, {hold: half}, {text: More.}], cut_after: 8}
- when: {turn: 1}
  reply: {content: [{hold: whole}, {text: A whole story.}], usage: {input: 100, output: 10}}
",
    );
    let _daemon = world.start("");
    let run = start(&world, "t/story");
    server.wait_held("half");
    let (mut follower, mut stream) = listen(&world, &run);
    let mut lines = stream.until_text("Half a story.");
    server.release("half");
    lines.extend(stream.to(|line| named(line, "error_classified")));
    assert_eq!(text(&lines), "", "{lines:?}");
    server.release("whole");
    lines.extend(stream.to(|line| named(line, "thread_completed")));
    assert!(follower.wait().unwrap().success());
    assert_eq!(text(&lines), "A whole story.", "{lines:?}");
    let shown = world.ryectl("attach").arg(&run).ok();
    assert_eq!(shown.stdout(), "A whole story.\n");
    assert_eq!(shown.stderr().matches("A whole story.").count(), 1);
}

#[test]
fn listener_gets_reset_and_retry_after_crash() {
    let (server, world) = telling(STORY);
    let daemon = world.start("");
    let run = start(&world, "t/story");
    server.wait_held("story");
    let (mut follower, mut stream) = listen(&world, &run);
    let _first = stream.until_text(BEGINNING);
    daemon.kill();
    let _status = daemon.ended();
    let _daemon = world.start("");
    let mut lines = stream.to(|line| line["delta"]["attempt"] == 2);
    assert_eq!(lines.last().unwrap()["delta"]["kind"], "reset", "{lines:?}");
    server.release("story");
    lines.extend(stream.to(|line| named(line, "thread_completed")));
    assert!(follower.wait().unwrap().success());
    assert_eq!(text(&lines), WHOLE);
}

/// Returns the screen of a person who runs `words` on a terminal with both streams.
fn on_a_terminal(world: &World, words: &str) -> String {
    let terminal = nix::pty::openpty(None, None).unwrap();
    let mut command = world.ryectl(words).into_command();
    let end = || terminal.slave.try_clone().unwrap();
    command
        .env("TERM", "xterm")
        .stdin(end())
        .stdout(end())
        .stderr(end());
    let mut child = command.spawn().unwrap();
    // Its end is visible only when no process has the other side open.
    drop((command, terminal.slave));
    let mut screen = std::fs::File::from(terminal.master);
    let mut seen = Vec::new();
    let mut piece = [0; 4096];
    while let Ok(count @ 1..) = screen.read(&mut piece) {
        seen.extend_from_slice(&piece[..count]);
    }
    assert!(child.wait().unwrap().success());
    String::from_utf8(seen).unwrap()
}

#[test]
fn terminal_shows_final_text_once_then_outputs() {
    let (_server, world) = telling(
        "
- when: {directive: story}
  reply: {text: A short story.}
- when: {directive: count}
  reply: {text: I counted., calls: [{name: directive_return, input: {words: 4}}]}
",
    );
    world.directive("t/count", BASH, super::WORDS, "Count.");
    let _daemon = world.start("");
    let shown = on_a_terminal(&world, "thread run t/story");
    assert_eq!(shown.matches("A short story.").count(), 1, "{shown}");
    let shown = on_a_terminal(&world, "thread run t/count");
    assert_eq!(shown.matches("I counted.").count(), 1, "{shown}");
    // Numbers have a colour of their own.
    assert!(
        shown.contains("\"words\": ") && shown.contains('4'),
        "{shown}"
    );
}
