//! Scenarios as data, and the driver that plays them.
//!
//! A script has one command a line:
//!
//! ```text
//! write FILE [TEXT]      a file of the project
//! until FILE             wait until a step has written the file
//! start ITEM [ARGS…]     ryectl run --detach; its run is $1, the next one $2 …
//! do ARGS…               ryectl with these words, to its end; `$1` is the first run
//! settle                 wait until every started run has ended or is suspended
//! kill                   kill -9 of the daemon and its parent
//! boot                   start the next daemon
//! without EVENT          omit events of this type: their presence or position is a race
//! ```

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use rye_tests::world::graph_text;
use rye_tests::{Daemon, Ryectl, World, until};
use serde_json::Value;

use super::normal::{Normal, run_ids};
use super::pin;

/// Actions of users, and the graphs for them.
pub(super) struct Scenario {
    /// Name of the scenario. Its snapshot is `events_<name>`.
    pub(super) name: &'static str,
    /// Ids below `t/`, each with the YAML below its key `config`.
    pub(super) graphs: &'static [(&'static str, &'static str)],
    /// See the module.
    pub(super) script: &'static str,
}

/// Events whose order is a race. They are sorted within one step.
const UNORDERED: [&str; 4] = [
    "item_started",
    "process_started",
    "process_exited",
    "item_completed",
];

/// Plays all `scenarios` with one daemon. Compares the event streams of their runs with the snapshots.
pub(super) fn play(scenarios: &[Scenario]) {
    let world = World::new();
    for scenario in scenarios {
        let directory = project(&world, scenario);
        for (id, config) in scenario.graphs {
            let file = directory.join(format!(".ai/tools/t/{id}.yaml"));
            let head = "permissions: [\"rye.execute.tool.*\"]";
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, graph_text(&format!("t/{id}"), head, config)).unwrap();
        }
        let _signed = world.ryectl("sign tool:t/*").within(&directory).ok();
    }
    let mut daemon = Some(world.start(""));
    let mut told = Vec::new();
    for scenario in scenarios {
        let mut player = Player::new(&world, scenario, &mut daemon);
        for line in scenario.script.lines().map(str::trim) {
            player.play(line);
        }
        told.push((scenario.name, player.rendered()));
    }
    for (name, text) in told {
        pin(&format!("events_{name}"), &text);
    }
}

fn project(world: &World, scenario: &Scenario) -> PathBuf {
    world.home().join("scenarios").join(scenario.name)
}

struct Player<'a> {
    world: &'a World,
    directory: PathBuf,
    daemon: &'a mut Option<Daemon>,
    /// Event types that are omitted.
    races: Vec<String>,
    runs: Vec<String>,
    /// Commands so far and their results.
    done: String,
}

impl<'a> Player<'a> {
    fn new(world: &'a World, scenario: &Scenario, daemon: &'a mut Option<Daemon>) -> Self {
        Self {
            world,
            directory: project(world, scenario),
            daemon,
            races: Vec::new(),
            runs: Vec::new(),
            done: String::new(),
        }
    }

    fn ryectl(&self, words: &str) -> Ryectl {
        self.world.ryectl(words).within(&self.directory)
    }

    fn play(&mut self, line: &str) {
        let (command, rest) = line.split_once(' ').unwrap_or((line, ""));
        match command {
            "" => {}
            "write" => {
                let (file, text) = rest.split_once(' ').unwrap_or((rest, ""));
                fs::write(self.directory.join(file), text).unwrap();
            }
            "until" => until(rest, || self.directory.join(rest).exists().then_some(())),
            "start" => {
                let run = self.with_words("run --detach", rest).ok().line();
                self.runs.push(run);
            }
            "do" => self.act(rest),
            "settle" => self.settle(),
            "kill" => {
                let daemon = self.daemon.take().unwrap();
                daemon.kill_both();
                let _status = daemon.ended();
            }
            "without" => self.races.push(rest.to_owned()),
            "boot" => *self.daemon = Some(self.world.start("")),
            other => panic!("`{other}` is no command of a script"),
        }
    }

    /// Splits words at blanks; `%` is a blank within a word.
    fn with_words(&self, verb: &str, words: &str) -> Ryectl {
        words
            .split_whitespace()
            .fold(self.ryectl(verb), |command, word| {
                let word = word.replace('%', " ");
                match word.strip_prefix('$') {
                    Some(number) => command.arg(&self.runs[number.parse::<usize>().unwrap() - 1]),
                    None => command.arg(word),
                }
            })
    }

    fn act(&mut self, words: &str) {
        let out = self.with_words("", words).run();
        for id in run_ids(&format!("{}{}", out.stdout(), out.stderr())) {
            if !self.runs.contains(&id) {
                self.runs.push(id);
            }
        }
        writeln!(self.done, "$ ryectl {words} → {}", out.exit()).unwrap();
    }

    fn settle(&self) {
        for run in &self.runs {
            let out = self.ryectl("wait --timeout 60").arg(run).run();
            let _settled = out.code_among(&[0, 1, 75]);
        }
    }

    /// Renders the commands and the events of every run of the project: the started runs, the runs that they name, the
    /// rest.
    fn rendered(mut self) -> String {
        let mut normal = Normal::default()
            .call(&self.directory, "<project>")
            .call(self.world.root(), "<world>");
        let mut text = self.done.clone();
        let mut at = 0;
        loop {
            if at == self.runs.len() {
                let Some(more) = self.next_unrendered_run() else {
                    return text;
                };
                self.runs.push(more);
            }
            self.settle();
            let run = self.runs[at].clone();
            let events = self.ryectl("events --json").arg(&run).ok();
            for id in run_ids(&events.stdout()) {
                if !self.runs.contains(&id) {
                    self.runs.push(id);
                }
            }
            write!(text, "\n{}\n", normal.text(&run)).unwrap();
            for event in ordered(events.json_lines()) {
                let name = event["event_type"].as_str().unwrap();
                if self.races.iter().any(|race| race == name) {
                    continue;
                }
                let payload = normal.json(&event["payload"]);
                writeln!(text, "{name} {payload}").unwrap();
            }
            at += 1;
        }
    }

    /// Returns the oldest run of the project that was not rendered yet.
    fn next_unrendered_run(&self) -> Option<String> {
        let all = self.ryectl("ps --all --json").ok().json();
        let here = self.directory.to_str().unwrap();
        let seen: BTreeSet<&str> = self.runs.iter().map(String::as_str).collect();
        let mut ids = all
            .as_array()
            .unwrap()
            .iter()
            .filter(|run| {
                run["project"]
                    .as_str()
                    .is_some_and(|at| Path::new(at) == Path::new(here))
            })
            .filter_map(|run| run["run_id"].as_str())
            .filter(|id| !seen.contains(id));
        ids.next_back().map(str::to_owned)
    }
}

/// Returns `events`, with concurrent ones sorted by their item.
fn ordered(mut events: Vec<Value>) -> Vec<Value> {
    let at_once = |event: &Value| {
        let name = event["event_type"].as_str().unwrap();
        let of_item = event["payload"].get("item").is_some()
            || event["payload"]["slot"].to_string().contains("item");
        UNORDERED.contains(&name) && of_item
    };
    let mut from = 0;
    while from < events.len() {
        let rest = events[from..].iter();
        let length = rest.take_while(|event| at_once(event)).count();
        events[from..from + length].sort_by_key(|event| {
            let name = event["event_type"].as_str().unwrap();
            let payload = &event["payload"];
            let item = payload["item"].as_u64();
            let item = item.or_else(|| payload["slot"]["item"].as_u64());
            (item, UNORDERED.iter().position(|known| *known == name))
        });
        from += length.max(1);
    }
    events
}
