//! SIGKILL at each point of a thread before or after a durable write (`ryed::fail_point`): the table of the effects of
//! a crash. After each death no finished turn is lost, no finished call runs again, and the money is the sum of the
//! settlements.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::ops::RangeInclusive;

use rye_tests::model_server::ModelServer;
use rye_tests::{Daemon, Ryectl, World, transcript, until};
use serde_json::Value;

use super::account;
use super::crash::{bash, call, keys};

/// A death, and its allowed effects.
struct Row {
    fail_point: &'static str,
    directive: &'static str,
    /// Executions of the tool.
    runs: RangeInclusive<usize>,
    /// Calls of models that are charged at the held amount.
    estimated: RangeInclusive<usize>,
}

const fn row(
    fail_point: &'static str,
    directive: &'static str,
    runs: RangeInclusive<usize>,
    estimated: RangeInclusive<usize>,
) -> Row {
    Row {
        fail_point,
        directive,
        runs,
        estimated,
    }
}

/// A thread that calls a tool in its first turn and ends in its second.
const OF_A_TURN: &[Row] = &[
    row("before:run_created", "undeclared", 1..=1, 0..=0),
    row("after:run_created", "undeclared", 1..=1, 0..=0),
    row("at:composing", "undeclared", 1..=1, 0..=0),
    row("before:prompt_composed", "undeclared", 1..=1, 0..=0),
    row("after:prompt_composed", "undeclared", 1..=1, 0..=0),
    row("before:step_start", "undeclared", 1..=1, 0..=0),
    row("after:step_start", "undeclared", 1..=1, 1..=1),
    row("before:tool_call_start", "undeclared", 1..=1, 1..=1),
    // The call ran, or was to run, before the message was durable. The parts that had arrived are then the message.
    row("before:cognition_out", "undeclared", 0..=1, 1..=1),
    row("after:cognition_out", "undeclared", 0..=1, 0..=0),
    row("before:step_finish", "undeclared", 1..=1, 0..=0),
    row("after:step_finish", "undeclared", 1..=1, 0..=0),
    row("before:step_start:2", "undeclared", 1..=1, 0..=0),
    row("after:step_start:2", "undeclared", 1..=1, 1..=1),
    row("before:cognition_out:2", "undeclared", 1..=1, 1..=1),
    // A final message, its turn and the end are one commit, or two if storing the turn takes long.
    row("before:thread_completed", "undeclared", 1..=1, 0..=1),
    row("after:thread_completed", "undeclared", 1..=1, 0..=0),
];

/// The same thread, by the declared effect of a second execution of its tool.
const OF_A_CALL: &[Row] = &[
    row("after:tool_call_start", "undeclared", 0..=0, 0..=1),
    row("after:tool_call_start", "idempotent", 1..=1, 0..=1),
    row("after:tool_call_start", "at_most_once", 0..=0, 0..=0),
    row("after:process_started", "undeclared", 0..=1, 0..=1),
    row("after:process_started", "idempotent", 1..=2, 0..=1),
    row("after:process_started", "at_most_once", 0..=1, 0..=0),
    row("before:tool_call_result", "undeclared", 1..=1, 0..=1),
    row("before:tool_call_result", "idempotent", 2..=2, 0..=1),
    row("before:tool_call_result", "at_most_once", 1..=1, 0..=0),
    row("after:tool_call_result", "undeclared", 1..=1, 0..=1),
    row("after:tool_call_result", "idempotent", 1..=1, 0..=1),
    row("after:tool_call_result", "at_most_once", 1..=1, 0..=0),
    // The message has not ended, and does not end before the death.
    row("after:tool_call_start", "speaks_on", 1..=1, 1..=1),
    row("before:tool_call_result", "speaks_on", 2..=2, 1..=1),
    row("after:tool_call_result", "speaks_on", 1..=1, 1..=1),
];

/// A provider that is busy at first. The held amount of a failed call is charged if its failure is not recorded.
const OF_A_FAILURE: &[Row] = &[
    row("before:error_classified", "busy_1", 1..=1, 1..=1),
    row("after:error_classified", "busy_2", 1..=1, 0..=0),
    row("before:turn_retry_scheduled", "busy_3", 1..=1, 1..=1),
    row("after:turn_retry_scheduled", "busy_4", 1..=1, 0..=0),
];

/// A thread whose first turn starts another one with a share of its money. The other one is as above, and its tool may
/// be repeated.
const OF_A_CHILD: &[Row] = &[
    row("before:run_created:2", "parent", 1..=1, 0..=1),
    row("after:run_created:2", "parent", 1..=1, 0..=0),
    row("before:step_start:2", "parent", 1..=1, 0..=0),
    row("after:step_start:2", "parent", 1..=1, 1..=1),
    row("before:cognition_out:2", "parent", 1..=2, 1..=1),
    row("before:tool_call_result", "parent", 2..=2, 0..=1),
    row("after:tool_call_result", "parent", 1..=1, 0..=1),
    row("before:thread_completed", "parent", 1..=1, 0..=1),
    row("after:thread_completed", "parent", 1..=1, 0..=0),
    row("before:tool_call_result:2", "parent", 1..=1, 0..=0),
    row("after:tool_call_result:2", "parent", 1..=1, 0..=0),
    row("before:thread_completed:2", "parent", 1..=1, 0..=1),
    row("after:thread_completed:2", "parent", 1..=1, 0..=0),
    // It waits for that thread in its second turn, and not in its first.
    row("at:waiting", "waits", 1..=2, 0..=1),
];

const USAGE: &str = "usage: {input: 100, output: 10}";

fn script() -> String {
    let note = call("echo $RYE_IDEMPOTENCY_KEY >> keys; echo done");
    let mut script = String::new();
    let mut rule = |when: &str, reply: &str| {
        let _written = writeln!(
            script,
            "- when: {{directive: {when}}}\n  reply: {{{reply}, {USAGE}}}"
        );
    };
    let works = format!("text: I work., calls: [{note}]");
    for name in ["undeclared", "idempotent", "at_most_once", "below"] {
        rule(&format!("{name}, turn: 1"), &works);
    }
    let speaks =
        format!("content: [{{text: I work.}}, {{call: {note}}}, {{hold: rest}}, {{text: More.}}]");
    rule("speaks_on, turn: 1", &speaks);
    let share = "{name: rye_execute, input: {item_type: directive, item_id: t/below, limit_overrides: {spend: 0.25}}}";
    rule(
        "parent, turn: 1",
        &format!("text: I ask., calls: [{share}]"),
    );
    let begin = "{name: rye_execute, input: {item_id: rye/agent/threads/thread_tool, parameters: \
                 {directive_name: t/below, directive_inputs: {}}}}";
    rule("waits, turn: 1", &format!("text: I ask., calls: [{begin}]"));
    let wait = "{name: rye_execute, input: {item_id: rye/agent/threads/wait_threads, parameters: {thread_ids: $threads, timeout: 0}}}";
    rule("waits, turn: 2", &format!("text: I wait., calls: [{wait}]"));
    for number in 1..=4 {
        let _written = writeln!(
            script,
            "- when: {{directive: busy_{number}, turn: 1}}\n  times: 1\n  \
             reply: {{status: 529, retry_after: 0, error: {{type: overloaded_error, message: Busy.}}}}\n\
             - when: {{directive: busy_{number}, turn: 1}}\n  reply: {{{works}, {USAGE}}}"
        );
    }
    let _written = writeln!(script, "- reply: {{text: Done., {USAGE}}}");
    script
}

/// The common part of all rows of a table.
struct Table {
    world: World,
    _server: ModelServer,
    node_key: String,
}

impl Table {
    fn new() -> Self {
        let server = ModelServer::start(&script());
        let world = World::with_models(&server);
        let again = bash(" effect=\"idempotent\"");
        let plain = [
            ("undeclared", bash("")),
            ("idempotent", again.clone()),
            ("at_most_once", bash(" effect=\"at_most_once\"")),
            ("speaks_on", again.clone()),
            ("below", again.clone()),
        ];
        let busy = ["busy_1", "busy_2", "busy_3", "busy_4"].map(|name| (name, again.clone()));
        for (name, permissions) in plain.into_iter().chain(busy) {
            world.directive(&format!("t/{name}"), &permissions, "", "Work.");
        }
        let asks = "<tools start=\"message\"/><permissions><execute><directive>t/below</directive>\
                    <tool>rye/bash</tool><tool>rye/agent/threads/*</tool></execute></permissions>";
        for name in ["parent", "waits"] {
            world.directive(&format!("t/{name}"), asks, "", "Ask.");
        }
        let daemon = world.start("");
        let node_key = world.node_key();
        super::crash::die(daemon);
        Self {
            world,
            _server: server,
            node_key,
        }
    }

    /// Returns the present transcript of a run.
    fn transcript(&self, run: &str) -> String {
        self.world
            .read(&format!(".ai/state/threads/{run}/transcript.jsonl"))
    }

    /// Returns the runs with a transcript.
    fn runs(&self) -> BTreeSet<String> {
        let entries = std::fs::read_dir(self.world.project().join(".ai/state/threads"));
        let entries = entries.into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.filter(|name| name.starts_with("t-")).collect()
    }

    /// Starts the thread of `row`. A second request finds the existing run.
    fn begin(&self, row: &Row) -> Ryectl {
        let run = self
            .world
            .ryectl("run --detach --no-autostart --limit spend=20");
        let run = run.arg(format!("directive:t/{}", row.directive));
        run.arg("--idempotency-key")
            .arg(format!("{} {}", row.fail_point, row.directive))
    }

    fn play(&self, rows: &[Row]) {
        for row in rows {
            println!("{} in `{}`", row.fail_point, row.directive);
            let known = self.runs();
            let daemon = self.world.start_until(row.fail_point, "");
            // The daemon may be gone before it answers.
            let _out = self.begin(row).run();
            let _status = daemon.ended();
            let at_death: Vec<(String, String)> = self
                .runs()
                .difference(&known)
                .map(|run| (run.clone(), self.transcript(run)))
                .collect();

            let daemon = self.world.start("");
            let run = self.begin(row).ok().line();
            let record = self.world.settled(&run);
            if record["suspend"]["reason"] == "uncertain" {
                assert_eq!(row.directive, "at_most_once", "{record}");
                let resume = self.world.ryectl("resume --detach").arg(&run);
                let _resumed = resume.arg("--uncertain").arg("t/at_most_once[0]=done").ok();
            }
            let record = self.world.settled(&run);
            assert_eq!(record["status"], "completed", "{record}");
            self.check(row, &run, &known);
            for (run, text) in at_death {
                let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
                assert!(
                    self.transcript(&run).starts_with(whole),
                    "{run} has lost lines"
                );
            }
            super::crash::die(daemon);
        }
    }

    /// Checks the result of `row`: the thread `root` and those below it, which are not in `known`.
    fn check(&self, row: &Row, root: &str, known: &BTreeSet<String>) {
        let wanted = if ["parent", "waits"].contains(&row.directive) {
            2
        } else {
            1
        };
        let runs = until("the files of all threads", || {
            let runs: Vec<String> = self.runs().difference(known).cloned().collect();
            (runs.len() >= wanted).then_some(runs)
        });
        assert_eq!(runs.len(), wanted, "no thread is started twice: {runs:?}");
        let ran = keys(&self.world);
        let (mut sum, mut estimated, mut times) = (0, 0, 0);
        for run in &runs {
            let events = self.ended(run);
            let of = |name: &str| -> Vec<&Value> {
                let of = events.iter().filter(|event| event["event_type"] == name);
                of.map(|event| &event["payload"]).collect()
            };
            let turns: Vec<u64> = of("cognition_out")
                .iter()
                .filter_map(|said| said["turn"].as_u64())
                .collect();
            let all: Vec<u64> = (1..).take(turns.len()).collect();
            assert_eq!(turns, all, "each turn of {run} came to one message");
            assert_eq!(of("step_finish").len(), turns.len(), "{run}");
            let started: BTreeSet<&str> = of("tool_call_start")
                .iter()
                .filter_map(|call| call["call_id"].as_str())
                .collect();
            let results: Vec<&str> = of("tool_call_result")
                .iter()
                .filter_map(|call| call["call_id"].as_str())
                .collect();
            assert_eq!(
                results.len(),
                started.len(),
                "each call has one result: {results:?}"
            );
            assert_eq!(results.into_iter().collect::<BTreeSet<_>>(), started);
            let used: BTreeSet<&str> = of("tool_call_start")
                .iter()
                .filter_map(|call| call["key"].as_str())
                .collect();
            times += used.iter().filter_map(|key| ran.get(*key)).sum::<usize>();
            let settled = of("budget_settled");
            assert_eq!(
                settled.len(),
                of("budget_held").len(),
                "each hold of {run} is settled once"
            );
            estimated += settled
                .iter()
                .filter(|settled| settled["estimated"] == true)
                .count();
            sum += settled
                .iter()
                .map(|settled| super::tree::nanos(&settled["usage"]["usd"]))
                .sum::<u64>();
        }
        assert!(row.runs.contains(&times), "the tool ran {times} times");
        assert!(
            row.estimated.contains(&estimated),
            "{estimated} calls are charged at their hold"
        );
        let paid = account(&self.world, root);
        let amounts = ["actual", "held", "reserved"].map(|name| super::tree::nanos(&paid[name]));
        assert_eq!(amounts, [sum, 0, 0], "{paid}");
    }

    /// Returns the events of an ended run, after a check of its transcript.
    fn ended(&self, run: &str) -> Vec<Value> {
        let text = until("the end in the transcript", || {
            let text = self.transcript(run);
            text.contains("\"event_type\":\"thread_completed\"")
                .then_some(text)
        });
        transcript::check(&text, run, &self.node_key)
            .unwrap()
            .events
    }
}

#[test]
fn at_each_commit_of_a_turn() {
    Table::new().play(OF_A_TURN);
}

#[test]
fn at_each_commit_of_a_call_by_what_was_declared_of_it() {
    Table::new().play(OF_A_CALL);
}

#[test]
fn at_each_commit_of_a_failure_and_of_a_thread_below() {
    let table = Table::new();
    table.play(OF_A_FAILURE);
    table.play(OF_A_CHILD);
}

#[test]
fn unknown_fail_point_is_refused_by_name() {
    let world = World::new();
    let mut refused = Daemon::spawn_until(&world, "", Some("before:step_begin"));
    let status = until("the daemon to end", || refused.try_wait().unwrap());
    assert_eq!(status.code(), Some(2), "{}", world.log());
    assert!(
        world.log().contains("there is no event `step_begin`"),
        "{}",
        world.log()
    );
}
