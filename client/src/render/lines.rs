//! Lines for a followed run: one per step or call, the model's text as it arrives, and a progress line on a terminal.
//!
//! ```text
//! [graph:<id>] step 2/8 batch_scrape ✓ 8.1s (+key1, key2)
//! [graph:<id>] step 3/8 clean ... 4.1s 57/300 · 2 failed
//!   clean[57] [graph:<child>] step 1/2 fetch ✓
//! [thread:<id>] turn 3 rye/bash ✓ 0.4s
//! ```

use rye_client::view::{CurrentStep, FailedItem, StepEnd, View, ViewUpdate};
use rye_core::clock::Timestamp;
use rye_core::model::thread::TurnWait;
use rye_core::model::{RunKind, StepStatus};
use rye_core::money::Usd;
use rye_core::thread::ShellCommand;

use super::budget::money;
use super::screen::in_line;
use super::{Style, cut, elapsed, items_so_far, one_line, waits};

/// Longest error in a line, in characters. The result has the whole text.
const MAX_ERROR_CHARS: usize = 160;
/// Longest message in a line, in characters.
const MAX_MESSAGE_CHARS: usize = 160;
/// Time in milliseconds after which a step shows a clock.
const CLOCK: u64 = 1000;

/// Next output for a followed run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Line {
    /// Progress of the present step, shown until the next line replaces it.
    Current(String),
    /// A line that stays.
    Done(String),
    /// More of a text.
    More(String),
    /// Rest of a text of which a part was shown.
    Rest(String),
}

/// Renderer of the lines of one run.
#[derive(Debug, Clone)]
pub(crate) struct Lines {
    kind: RunKind,
    style: Style,
    /// Prefix of each line of a child run: its indentation, and the attempt that it executes.
    label: String,
}

impl Lines {
    /// Makes the renderer of a run of this kind.
    pub(crate) const fn new(kind: RunKind, style: Style) -> Self {
        Self {
            kind,
            style,
            label: String::new(),
        }
    }

    /// Makes the renderer of a child run `depth` levels down, which executes the attempt `label`.
    pub(crate) fn of_child(kind: RunKind, style: Style, depth: usize, label: &str) -> Self {
        let label = format!("{}{} ", "  ".repeat(depth), in_line(label));
        Self { kind, style, label }
    }

    /// Renders `news`, which `view` has already applied. Returns `None` if there is nothing to show.
    pub(crate) fn line(&self, view: &View, news: &ViewUpdate, now: Timestamp) -> Option<Line> {
        Some(Line::Done(match news {
            ViewUpdate::CurrentChanged | ViewUpdate::Child(_) => {
                return self.current_line(view, now);
            }
            ViewUpdate::More(text) => return Some(Line::More(text.clone())),
            ViewUpdate::Rest(text) => return Some(Line::Rest(text.clone())),
            ViewUpdate::ModelMessage(text) => text.clone(),
            ViewUpdate::Step(step) => self.step(view, step),
            ViewUpdate::Retry {
                step,
                node,
                why,
                retries,
                wait_ms,
                by,
            } => {
                let head = self.head(view, *step, node);
                let why = why.as_ref().map_or_else(String::new, |why| {
                    let why = one_line(why, MAX_ERROR_CHARS);
                    format!("{} ({why}) ", self.style.red("✗"))
                });
                let (wait, by) = (elapsed(*wait_ms), requester(by));
                format!("{head} {why}retry {retries} in {wait} ({by})")
            }
            ViewUpdate::Warning { node, message } => self.warning(view, node.as_deref(), message),
            ViewUpdate::Retracted { turn } => {
                format!("{} the answer broke off", self.turn(view, *turn))
            }
            ViewUpdate::UserMessage { turn, text } => {
                let text = one_line(text, MAX_MESSAGE_CHARS);
                format!("{} is told: {text}", self.turn(view, *turn))
            }
            ViewUpdate::Call {
                turn,
                item,
                elapsed_ms,
                error,
                command,
            } => {
                let item = item
                    .as_deref()
                    .map_or_else(|| "call refused".to_owned(), in_line);
                let (head, time) = (self.turn(view, *turn), elapsed(*elapsed_ms));
                let output = command.as_ref().map_or_else(String::new, shell_output);
                match error {
                    Some(error) => {
                        // The output is below.
                        let first = || error.lines().next().unwrap_or_default();
                        let why = command.as_ref().map_or(error.as_str(), |_| first());
                        let (icon, why) = (self.style.red("✗"), one_line(why, MAX_ERROR_CHARS));
                        format!("{head} {item} {icon} {time} ({why}){output}")
                    }
                    None => format!("{head} {item} {} {time}{output}", self.style.green("✓")),
                }
            }
            ViewUpdate::TurnWaiting { turn, waiting } => {
                format!("{} {}", self.turn(view, *turn), turn_waits(waiting))
            }
            ViewUpdate::TurnFailed {
                turn,
                error,
                pause_ms,
            } => {
                let why = one_line(error, MAX_ERROR_CHARS);
                let again = match pause_ms {
                    0 => String::new(),
                    pause => format!(" retry in {}", elapsed(*pause)),
                };
                format!(
                    "{} {} ({why}){again}",
                    self.turn(view, *turn),
                    self.style.red("✗")
                )
            }
        }))
    }

    /// Renders the present step with the progress of its items, and with a clock if it takes longer than [`CLOCK`].
    pub(crate) fn current_line(&self, view: &View, now: Timestamp) -> Option<Line> {
        let hand = view.current.as_ref()?;
        let head = match self.kind {
            RunKind::Thread => {
                let head = self.turn(view, hand.number);
                let name = in_line(&hand.name);
                format!("{head} {name}").trim_end().to_owned()
            }
            RunKind::Graph | RunKind::Tool | RunKind::Process => {
                self.head(view, hand.number, &hand.name)
            }
        };
        let waits = match &hand.waiting {
            Some(waiting) => format!(" {}", turn_waits(waiting)),
            None if hand.waits => " waits".to_owned(),
            None => String::new(),
        };
        let items = hand.items.filter(|items| items.ended > 0);
        let items = items.map_or_else(String::new, |items| format!(" {}", items_so_far(items)));
        let spend = if view.spend == Usd::ZERO {
            String::new()
        } else {
            format!(" {} USD", money(&view.spend.to_string()))
        };
        Some(Line::Current(format!(
            "{head}{waits} ...{}{items}{spend}",
            clock(hand, now)
        )))
    }

    fn name(&self, view: &View) -> String {
        let kind = match self.kind {
            RunKind::Thread => "thread",
            RunKind::Graph | RunKind::Tool => "graph",
            RunKind::Process => "process",
        };
        format!("{}[{kind}:{}]", self.label, view.item)
    }

    /// Renders the head of a step. The number of nodes is omitted when a loop or a continued run takes more steps.
    fn head(&self, view: &View, step: u32, node: &str) -> String {
        let of = if step <= view.nodes {
            format!("/{}", view.nodes)
        } else {
            String::new()
        };
        format!("{} step {step}{of} {}", self.name(view), in_line(node))
    }

    fn warning(&self, view: &View, node: Option<&str>, message: &str) -> String {
        let node = node.map_or_else(String::new, |node| format!("{node}: "));
        let text = one_line(message, MAX_ERROR_CHARS);
        format!("{} warning: {node}{text}", self.name(view))
    }

    fn turn(&self, view: &View, turn: u32) -> String {
        format!("{} turn {turn}", self.name(view))
    }

    fn step(&self, view: &View, step: &StepEnd) -> String {
        let some_failed = step.items.is_some_and(|items| items.failed > 0);
        let icon = match step.status {
            StepStatus::Foreach | StepStatus::Parallel if some_failed => self.style.yellow("!"),
            StepStatus::Error => self.style.red("✗"),
            StepStatus::Return => "⏹".to_owned(),
            StepStatus::Ok
            | StepStatus::Gate
            | StepStatus::Foreach
            | StepStatus::Parallel
            | StepStatus::Wait
            | StepStatus::Approval
            | StepStatus::Service
            | StepStatus::Cached
            | StepStatus::Declared => self.style.green("✓"),
        };
        let mut words = vec![self.head(view, step.step, &step.node), icon];
        // Shorter times are not shown.
        if step.elapsed_ms >= 50 {
            words.push(elapsed(step.elapsed_ms));
        }
        words.extend(detail(step).map(|detail| format!("({detail})")));
        words.join(" ")
    }
}

/// Renders the wait of a turn: `waiting: provider until 2026-04-01T00:00:07Z`.
fn turn_waits(waiting: &TurnWait) -> String {
    let waits = waits(waiting.waits.as_str(), waiting.until);
    format!("waiting: {waits}")
}

/// Requester of a retry, for people.
fn requester(by: &str) -> String {
    match by {
        "node" => "by `retry` of the node".to_owned(),
        "resume" => "by `resume`".to_owned(),
        hook => format!("by hook {}", in_line(hook)),
    }
}

/// Renders a command and the end of its output, each line below the line of the call.
fn shell_output(command: &ShellCommand) -> String {
    let lines = shell_lines(&command.line, &command.last, command.more);
    format!("\n{}", lines.join("\n"))
}

/// Renders a command and the last lines of its output, which follow `more` others.
pub(crate) fn shell_lines(command: &str, last: &[String], more: usize) -> Vec<String> {
    let mut lines = vec![format!("  $ {}", one_line(command, MAX_MESSAGE_CHARS))];
    if more > 0 {
        let plural = if more == 1 { "" } else { "s" };
        lines.push(format!("    … {more} line{plural}"));
    }
    let last = last.iter();
    lines.extend(last.map(|line| format!("    {}", cut(line, Some(MAX_MESSAGE_CHARS)))));
    lines
}

/// Renders the time since the step began. Returns an empty text below [`CLOCK`].
fn clock(hand: &CurrentStep, now: Timestamp) -> String {
    let time = hand.since.map_or(0, |since| now.ms_since(since));
    if time < CLOCK {
        String::new()
    } else {
        format!(" {}", elapsed(time))
    }
}

fn detail(step: &StepEnd) -> Option<String> {
    if let Some(error) = &step.error {
        return Some(one_line(error, MAX_ERROR_CHARS));
    }
    let word = step.status.as_str();
    match step.status {
        StepStatus::Foreach | StepStatus::Parallel => {
            let failed = step.items.filter(|items| items.failed > 0);
            let failed = failed.map(|items| format!("{} of {} failed", items.failed, items.total));
            let cached = (step.cached > 0).then(|| format!("{} cached", step.cached));
            let parts = [Some(word.to_owned()), cached, failed];
            Some(parts.into_iter().flatten().collect::<Vec<_>>().join(", "))
        }
        StepStatus::Gate
        | StepStatus::Cached
        | StepStatus::Declared
        | StepStatus::Wait
        | StepStatus::Approval
        | StepStatus::Service => Some(word.to_owned()),
        StepStatus::Ok | StepStatus::Error | StepStatus::Return => {
            let new = &step.new_keys;
            (!new.is_empty()).then(|| in_line(&format!("+{}", new.join(", "))))
        }
    }
}

/// Renders the failed items, one a line, each with the beginning of its value. Returns an empty text if none failed.
pub(crate) fn failed_items(view: &View) -> String {
    let line = |failed: &FailedItem| {
        let about = failed
            .about
            .as_ref()
            .map(|about| format!(" {}", in_line(about)));
        let (node, error) = (
            in_line(&failed.node),
            one_line(&failed.error, MAX_ERROR_CHARS),
        );
        format!(
            "  {node}[{}]{}: {error}",
            in_line(&failed.item),
            about.unwrap_or_default()
        )
    };
    let mut lines: Vec<String> = view.failed.iter().map(line).collect();
    if view.more_failed > 0 {
        lines.push(format!("  and {} more", view.more_failed));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use rye_core::model::Event;
    use rye_core::model::thread::WaitsFor;
    use rye_proto::v1::ItemCount;
    use serde_json::json;

    use super::*;

    fn step(status: StepStatus, elapsed_ms: u64) -> StepEnd {
        StepEnd {
            step: 2,
            node: "scrape".to_owned(),
            status,
            elapsed_ms,
            new_keys: Vec::new(),
            error: None,
            items: None,
            cached: 0,
        }
    }

    fn graph(news: &ViewUpdate) -> Option<Line> {
        let view = View::new("g", 2);
        Lines::new(RunKind::Graph, Style::Plain).line(&view, news, Timestamp::from_ms(0))
    }

    fn done(text: &str) -> Line {
        Line::Done(text.to_owned())
    }

    #[test]
    fn step_line_has_icon_time_and_new_keys() {
        let keys = StepEnd {
            new_keys: vec!["a".to_owned(), "b".to_owned()],
            ..step(StepStatus::Ok, 8_100)
        };
        let failed = StepEnd {
            error: Some("connection\nrefused".to_owned()),
            ..step(StepStatus::Error, 3)
        };
        let some_failed = StepEnd {
            items: Some(ItemCount {
                total: 5,
                ended: 5,
                failed: 2,
                retrying: 0,
            }),
            ..step(StepStatus::Foreach, 3)
        };
        let beyond = StepEnd {
            step: 14,
            ..step(StepStatus::Ok, 3)
        };
        for (step, line) in [
            (keys, "step 2/2 scrape ✓ 8.1s (+a, b)"),
            (failed, "step 2/2 scrape ✗ (connection refused)"),
            (
                some_failed.clone(),
                "step 2/2 scrape ! (foreach, 2 of 5 failed)",
            ),
            (
                StepEnd {
                    cached: 3,
                    ..some_failed
                },
                "step 2/2 scrape ! (foreach, 3 cached, 2 of 5 failed)",
            ),
            (step(StepStatus::Return, 3), "step 2/2 scrape ⏹"),
            (step(StepStatus::Gate, 3), "step 2/2 scrape ✓ (gate)"),
            (step(StepStatus::Foreach, 3), "step 2/2 scrape ✓ (foreach)"),
            (
                step(StepStatus::Cached, 60),
                "step 2/2 scrape ✓ 60ms (cached)",
            ),
            (beyond, "step 14 scrape ✓"),
        ] {
            assert_eq!(
                graph(&ViewUpdate::Step(step)),
                Some(done(&format!("[graph:g] {line}")))
            );
        }
    }

    #[test]
    fn retry_line_has_reason_delay_and_origin() {
        let retry = |why: Option<&str>, by: &str| ViewUpdate::Retry {
            step: 2,
            node: "scrape".to_owned(),
            why: why.map(str::to_owned),
            retries: 1,
            wait_ms: 2_000,
            by: by.to_owned(),
        };
        for (news, line) in [
            (
                retry(Some("no\nroute"), "node"),
                "scrape ✗ (no route) retry 1 in 2.0s (by `retry` of the node)",
            ),
            (
                retry(None, "resume"),
                "scrape retry 1 in 2.0s (by `resume`)",
            ),
            (retry(None, "h"), "scrape retry 1 in 2.0s (by hook h)"),
        ] {
            assert_eq!(
                graph(&news),
                Some(done(&format!("[graph:g] step 2/2 {line}")))
            );
        }
    }

    #[test]
    fn progress_line_has_clock_after_one_second_and_item_count() {
        let mut view = View::new("g", 3);
        view.current = Some(CurrentStep {
            number: 1,
            name: "n".to_owned(),
            since: Some(Timestamp::from_ms(1_000)),
            waits: false,
            waiting: None,
            items: None,
            cached: 0,
        });
        let lines = Lines::new(RunKind::Graph, Style::Plain);
        let shown = |view: &View, ms: i64| match lines.current_line(view, Timestamp::from_ms(ms)) {
            Some(Line::Current(text)) => text,
            other => panic!("{other:?}"),
        };
        assert_eq!(shown(&view, 1_900), "[graph:g] step 1/3 n ...");
        assert_eq!(shown(&view, 5_100), "[graph:g] step 1/3 n ... 4.1s");
        view.current.as_mut().unwrap().items = Some(ItemCount {
            total: 300,
            ended: 57,
            failed: 2,
            retrying: 0,
        });
        assert_eq!(
            shown(&view, 5_100),
            "[graph:g] step 1/3 n ... 4.1s 57/300 · 2 failed"
        );
    }

    #[test]
    fn a_child_run_is_indented_and_has_its_label() {
        let view = View::new("t/child", 2);
        let lines = Lines::of_child(RunKind::Graph, Style::Plain, 1, "each[1]");
        let news = ViewUpdate::Step(step(StepStatus::Ok, 3));
        assert_eq!(
            lines.line(&view, &news, Timestamp::from_ms(0)),
            Some(done("  each[1] [graph:t/child] step 2/2 scrape ✓"))
        );
    }

    #[test]
    fn failed_items_are_named_by_value() {
        let mut view = View::new("g", 2);
        let failed = |item: &str, about: Option<&str>| FailedItem {
            step: 1,
            node: "each".to_owned(),
            item: item.to_owned(),
            about: about.map(str::to_owned),
            error: "no\nrows".to_owned(),
        };
        view.failed = vec![failed("1", Some("b.csv")), failed("lint", None)];
        view.more_failed = 3;
        assert_eq!(
            failed_items(&view),
            "  each[1] b.csv: no rows\n  each[lint]: no rows\n  and 3 more"
        );
    }

    #[test]
    fn thread_has_line_for_each_call_and_user_message() {
        let view = View::new("t/count", 0);
        let lines = Lines::new(RunKind::Thread, Style::Plain);
        let shown = |news: &ViewUpdate| lines.line(&view, news, Timestamp::from_ms(0));
        let call = |item: Option<&str>, error: Option<&str>| ViewUpdate::Call {
            turn: 3,
            item: item.map(str::to_owned),
            elapsed_ms: 400,
            error: error.map(str::to_owned),
            command: None,
        };
        let failed = |pause_ms| ViewUpdate::TurnFailed {
            turn: 3,
            error: "over\nloaded".to_owned(),
            pause_ms,
        };
        let told = ViewUpdate::UserMessage {
            turn: 3,
            text: "Be\nquick.".to_owned(),
        };
        for (news, line) in [
            (call(Some("rye/bash"), None), "rye/bash ✓ 0.4s"),
            (
                call(Some("rye/bash"), Some("no\nroute")),
                "rye/bash ✗ 0.4s (no route)",
            ),
            (call(None, Some("no")), "call refused ✗ 0.4s (no)"),
            (failed(2_000), "✗ (over loaded) retry in 2.0s"),
            (failed(0), "✗ (over loaded)"),
            (told, "is told: Be quick."),
        ] {
            assert_eq!(
                shown(&news),
                Some(done(&format!("[thread:t/count] turn 3 {line}")))
            );
        }
    }

    #[test]
    fn waiting_turn_has_a_line_and_a_clock() {
        let until = Timestamp::parse("2026-04-01T00:00:07.250Z");
        let now = until.unwrap().plus(std::time::Duration::from_secs(2));
        let lines = Lines::new(RunKind::Thread, Style::Plain);
        let provider = TurnWait::for_provider(until);
        let budget = TurnWait {
            waits: WaitsFor::Budget,
            until: None,
        };
        for (waiting, text) in [
            (provider, "waiting: provider until 2026-04-01T00:00:07Z"),
            (TurnWait::for_provider(None), "waiting: provider"),
            (budget, "waiting: budget"),
        ] {
            let mut view = View::new("t/count", 0);
            let payload =
                json!({"turn": 2, "attempt": 1, "waits": waiting.waits, "until": waiting.until});
            let event = Event::read("turn_waiting", &payload.to_string()).unwrap();
            let update = view.take(&event, until).unwrap();
            let head = format!("[thread:t/count] turn 2 {text}");
            assert_eq!(lines.line(&view, &update, now), Some(done(&head)));
            let current = Line::Current(format!("{head} ... 2.0s"));
            assert_eq!(lines.current_line(&view, now), Some(current));
        }
    }

    #[test]
    fn shell_call_shows_command_and_end_of_output_and_turn_shows_spend() {
        let call = |error: Option<&str>, more| ViewUpdate::Call {
            turn: 1,
            item: Some("rye/bash".to_owned()),
            elapsed_ms: 600,
            error: error.map(str::to_owned),
            command: Some(ShellCommand {
                line: "pytest\n-q".to_owned(),
                last: vec!["1 failed".to_owned()],
                more,
            }),
        };
        let mut view = View::new("t/fix", 0);
        let lines = Lines::new(RunKind::Thread, Style::Plain);
        for (update, expected) in [
            (call(None, 0), "✓ 0.6s\n  $ pytest -q\n    1 failed"),
            (
                call(Some("exit code 1\n--- stdout\n1 failed"), 12),
                "✗ 0.6s (exit code 1)\n  $ pytest -q\n    … 12 lines\n    1 failed",
            ),
        ] {
            let expected = format!("[thread:t/fix] turn 1 rye/bash {expected}");
            assert_eq!(
                lines.line(&view, &update, Timestamp::from_ms(0)),
                Some(done(&expected))
            );
        }
        view.spend = Usd::from_nanos(12_300_000);
        view.current = Some(CurrentStep {
            number: 2,
            name: String::new(),
            since: None,
            waits: false,
            waiting: None,
            items: None,
            cached: 0,
        });
        let line = lines.current_line(&view, Timestamp::from_ms(0));
        assert_eq!(
            line,
            Some(Line::Current(
                "[thread:t/fix] turn 2 ... 0.0123 USD".to_owned()
            ))
        );
    }
}
