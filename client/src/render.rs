//! Text for people. Pure: each function returns its text.

pub(crate) mod screen;
mod words;

pub(crate) mod budget;
pub(crate) mod capability;
pub(crate) mod events;
pub(crate) mod items;
pub(crate) mod lines;
pub(crate) mod transcript;

pub(crate) mod models;

use std::fmt::Write as _;

use rye_core::clock::Timestamp;
use rye_core::model::{Printed, RunKind};
use rye_proto::convert::{self, Malformed};
use rye_proto::v1;
use serde_json::Value;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// Longest text in a cell of a table.
const CELL: usize = 60;

/// Style of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// On a terminal.
    Colour,
    /// Everywhere else.
    Plain,
}

impl Style {
    /// Colours a success.
    pub(crate) fn green(self, text: &str) -> String {
        self.paint(screen::GREEN, text)
    }

    /// Colours a failure.
    pub(crate) fn red(self, text: &str) -> String {
        self.paint(screen::RED, text)
    }

    /// Colours a warning.
    pub(crate) fn yellow(self, text: &str) -> String {
        self.paint(screen::YELLOW, text)
    }

    fn paint(self, colour: char, text: &str) -> String {
        match self {
            Self::Colour => format!("{colour}{text}{}", screen::END),
            Self::Plain => text.to_owned(),
        }
    }

    /// Colours the status of a run.
    pub(crate) fn status(self, status: &str) -> String {
        match status {
            "completed" => self.green(status),
            "error" | "killed" => self.red(status),
            "suspended" | "cancelling" | "cancelled" | "completed_with_errors" => {
                self.yellow(status)
            }
            _ => status.to_owned(),
        }
    }
}

/// Renders a wall time: `14ms`, `0.4s`, `8.1s`, `2m05s`, `1h02m`.
pub(crate) fn elapsed(ms: u64) -> String {
    if ms < 95 {
        return format!("{ms}ms");
    }
    let tenths = ms.saturating_add(50) / 100;
    if tenths < 600 {
        return format!("{}.{}s", tenths / 10, tenths % 10);
    }
    let seconds = tenths / 10;
    if seconds < 3600 {
        format!("{}m{:02}s", seconds / 60, seconds % 60)
    } else {
        format!("{}h{:02}m", seconds / 3600, seconds % 3600 / 60)
    }
}

/// Renders a span of time in its largest unit: `12s`, `5m`, `3h`, `2d`.
pub(crate) fn age(ms: u64) -> String {
    let seconds = ms / 1000;
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86400),
    }
}

/// Renders columns under their heads, two blanks apart. Each row is one line. A column without values is omitted.
pub(crate) fn table<const N: usize>(heads: [&str; N], rows: &[[String; N]]) -> String {
    table_within(heads, rows, None)
}

/// Renders the table of [`table`] and cuts each line to `most` columns of a terminal.
pub(crate) fn table_within<const N: usize>(
    heads: [&str; N],
    rows: &[[String; N]],
    most: Option<usize>,
) -> String {
    let rows: Vec<[String; N]> = rows
        .iter()
        .map(|row| row.each_ref().map(|cell| screen::in_line(cell)))
        .collect();
    let mut widths = heads.map(width);
    for row in &rows {
        for (widest, cell) in widths.iter_mut().zip(row) {
            *widest = width(cell).max(*widest);
        }
    }
    let is_shown: Vec<bool> = (0..N)
        .map(|at| {
            heads[at].is_empty() || rows.is_empty() || rows.iter().any(|row| !row[at].is_empty())
        })
        .collect();
    let line = |cells: [&str; N]| {
        let mut text = String::new();
        for ((cell, wide), _) in cells
            .into_iter()
            .zip(widths)
            .zip(&is_shown)
            .filter(|(_, shown)| **shown)
        {
            text.push_str(cell);
            text.extend(std::iter::repeat_n(' ', wide - width(cell) + 2));
        }
        cut(text.trim_end(), most)
    };
    let mut lines = vec![line(heads)];
    lines.extend(
        rows.iter()
            .map(|row| line(row.each_ref().map(String::as_str))),
    );
    lines.join("\n")
}

/// Cuts `line` to `most` columns of a terminal.
pub(crate) fn cut(line: &str, most: Option<usize>) -> String {
    let Some(most) = most.filter(|most| width(line) > *most) else {
        return line.to_owned();
    };
    let mut text = String::new();
    let mut used = 0;
    for character in line.chars() {
        used += character.width().unwrap_or(0);
        if used >= most {
            break;
        }
        text.push(character);
    }
    text.push('…');
    text
}

/// Returns the number of columns that `text` takes on a terminal.
fn width(text: &str) -> usize {
    text.width()
}

/// Renders `name  value` pairs, one a line. Pairs without a value are omitted. Further lines of a value are indented.
pub(crate) fn fields(pairs: &[(&str, Option<String>)]) -> String {
    let widest = pairs.iter().map(|(name, _)| width(name)).max().unwrap_or(0);
    let lines: Vec<String> = pairs
        .iter()
        .filter_map(|(name, value)| value.as_ref().map(|value| (name, value)))
        .map(|(name, value)| {
            let value = value
                .trim_end()
                .replace('\n', &format!("\n{:widest$}  ", ""));
            format!("{name:<widest$}  {value}")
        })
        .collect();
    lines.join("\n")
}

/// Puts a text on one line and cuts it to `most` characters.
pub(crate) fn one_line(text: &str, most: usize) -> String {
    let mut line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some((end, _)) = line.char_indices().nth(most) {
        line.truncate(end);
        line.push('…');
    }
    line
}

/// Renders indented JSON.
pub(crate) fn pretty(value: &Value) -> String {
    format!("{value:#}")
}

/// Renders the record of a run.
pub(crate) fn run(run: &v1::Run, now: Timestamp, style: Style) -> Result<String, Malformed> {
    let error = run.error.as_ref().map(|error| match error.node.as_str() {
        "" => format!("{} ({})", error.message, error.code),
        node => format!("{} (node {node}, {})", error.message, error.code),
    });
    let asks = run.approvals.iter();
    let asks: Vec<String> = asks
        .map(|asked| format!("{} ({})", asked.message, asked.id))
        .collect();
    let in_doubt = run.suspend.iter().flat_map(|why| &why.attempts);
    let in_doubt: Vec<String> = in_doubt.chain(&run.uncertain).map(attempt).collect();
    let kind = run.core_kind()?;
    // A thread has turns instead of steps; its cost counts them.
    let steps = (kind != RunKind::Thread).then(|| run.steps.to_string());
    let head = fields(&[
        ("run", Some(run.run_id.clone())),
        ("item", Some(run.item_id().to_owned())),
        ("kind", Some(kind.as_str().to_owned())),
        ("status", Some(style.status(status(run)?))),
        ("cancelled by", run.cancel.as_ref().map(cancel)),
        ("waiting", run.waiting.as_ref().map(wait)),
        ("suspended", run.suspend.as_ref().map(suspension)),
        ("asks", some(&asks.join("\n"))),
        ("uncertain", some(&in_doubt.join("\n"))),
        ("error", error),
        ("model", model(run)),
        ("steps", steps),
        (
            "child runs",
            (run.spawn_count > 0).then(|| run.spawn_count.to_string()),
        ),
        ("cost", cost(run)?),
        ("project", some(&run.project)),
        ("parent", some(&run.parent_id)),
        ("started", since(run.started_at.as_ref(), now)),
        ("ended", since(run.ended_at.as_ref(), now)),
        ("took", ran(run).map(elapsed)),
        ("continues", some(&run.continuation_of)),
        ("continued by", some(&run.continued_by)),
    ]);
    let process = run.error.as_ref().and_then(|error| error.process.as_ref());
    let errors = run.errors.iter().map(|error| {
        format!(
            "suppressed at step {} ({}): {}",
            error.step,
            screen::in_line(&error.node),
            error.error.trim_end().replace('\n', "\n  ")
        )
    });
    let parts: Vec<String> = std::iter::once(head)
        .chain(process.map(printed))
        .chain(errors)
        .chain(body(run)?)
        .collect();
    Ok(parts.join("\n"))
}

/// Returns the status in a word. A run with a request to stop that has not ended is `cancelling`.
pub(crate) fn status(run: &v1::Run) -> Result<&'static str, Malformed> {
    let status = run.core_status()?;
    Ok(if run.cancel.is_some() && !status.is_terminal() {
        "cancelling"
    } else {
        status.as_str()
    })
}

/// Renders the cost of a run; `None` if it has cost nothing.
pub(crate) fn cost(run: &v1::Run) -> Result<Option<String>, Malformed> {
    let cost = run.cost.as_ref().map(budget::cost);
    Ok(cost.transpose()?.flatten())
}

/// Returns the model of a thread as `provider/model`.
fn model(run: &v1::Run) -> Option<String> {
    let model = some(&run.model)?;
    Some(match run.provider.as_str() {
        "" => model,
        provider => format!("{provider}/{model}"),
    })
}

/// Renders a request to stop with requester, time and reason: `uid:1000, at …: too slow`.
fn cancel(cancel: &v1::Cancel) -> String {
    let at = cancel.at.as_ref().map(convert::timestamp);
    let at = at.map(|at| format!(", at {at}"));
    let reason = some(&cancel.reason).map(|reason| format!(": {reason}"));
    let parts = [Some(cancel.by.clone()), at, reason];
    parts.into_iter().flatten().collect()
}

/// Renders the answer to `cancel`.
pub(crate) fn cancelling(run: &v1::Run) -> Result<String, Malformed> {
    let (id, status) = (&run.run_id, run.core_status()?);
    if status.is_terminal() {
        return Ok(format!("{id} is {status}"));
    }
    Ok(format!(
        "{id} is cancelling: what it is at gets a moment to end; `ryectl wait {id}` waits for it, `ryectl kill {id}` does not"
    ))
}

/// Renders the wait of a thread, the reason of a suspension and the open question, or the reason of a request to stop,
/// for a table.
pub(crate) fn why(run: &v1::Run) -> Result<String, Malformed> {
    let asks = run.approvals.first().map(|asked| asked.message.as_str());
    if let (Some(waiting), None) = (&run.waiting, &run.cancel) {
        return Ok(format!("waiting: {}", wait(waiting)));
    }
    let (Some(why), None) = (&run.suspend, &run.cancel) else {
        let ended = run.has_ended()?;
        let cancel = run.cancel.as_ref().filter(|_| !ended);
        let reason = cancel.map(|cancel| cancel.reason.as_str());
        return Ok(one_line(reason.unwrap_or_default(), CELL));
    };
    Ok(match asks {
        Some(message) => one_line(&format!("{}: {message}", why.reason), CELL),
        None => suspension(why),
    })
}

/// Renders a step that has not ended: `step 3 build, running for 4.1s, 57/300`.
pub(crate) fn step_at_hand(step: &v1::Step) -> String {
    let items = step.items.map(|items| format!(", {}", items_so_far(items)));
    format!(
        "step {} {}, {} for {}{}",
        step.step,
        step.node,
        step.status,
        elapsed(step.elapsed_ms),
        items.unwrap_or_default()
    )
}

/// Renders the numbers of ended and failed items, and of those that pause: `57/300 · 2 failed · 1 retrying`.
pub(crate) fn items_so_far(items: v1::ItemCount) -> String {
    let mut text = format!("{}/{}", items.ended, items.total);
    for (number, word) in [(items.failed, "failed"), (items.retrying, "retrying")] {
        if number > 0 {
            write!(text, " · {number} {word}").expect("writing to a String cannot fail");
        }
    }
    text
}

/// Renders what a thread waits for: `provider until 2026-04-01T00:00:07Z`.
fn wait(waiting: &v1::Waiting) -> String {
    let until = waiting.until.as_ref().map(convert::timestamp);
    waits(&waiting.waits, until)
}

/// Renders what is waited for, and until when.
fn waits(waits: &str, until: Option<Timestamp>) -> String {
    let until = until.map(|until| format!(" until {}", until.to_seconds_string()));
    format!("{waits}{}", until.unwrap_or_default())
}

/// Renders the reason of a suspension: `limit (max_steps_exceeded), before node x`.
pub(crate) fn suspension(suspension: &v1::Suspension) -> String {
    let code = some(&suspension.code).map(|code| format!(" ({code})"));
    let reached = some(&suspension.current)
        .zip(some(&suspension.max))
        .map(|(current, max)| format!(", {current} of {max}"));
    let place = if suspension.begun { "in" } else { "before" };
    let node = some(&suspension.node).map(|node| format!(", {place} node {node}"));
    let parts = [Some(suspension.reason.clone()), code, reached, node];
    parts.into_iter().flatten().collect()
}

/// Renders an attempt of unknown outcome: `charge of RUN: tool:rye/bash {…}, since …, RYE_IDEMPOTENCY_KEY=…`.
fn attempt(attempt: &v1::UncertainAttempt) -> String {
    let call = some(&attempt.item).map(|item| format!("{item} {}", attempt.params_json));
    let since = attempt.started_at.as_ref().map(convert::timestamp);
    let since = since.map(|since| format!("since {since}"));
    let key = some(&attempt.key).map(|key| format!("RYE_IDEMPOTENCY_KEY={key}"));
    let known: Vec<String> = [call, since, key].into_iter().flatten().collect();
    let known = some(&known.join(", "));
    let known = known.unwrap_or_else(|| "it failed after it had begun".to_owned());
    let of = some(&attempt.run_id).map(|run| format!(" of {run}"));
    format!("{}{}: {known}", attempt.name, of.unwrap_or_default())
}

/// Renders the error of a failed run: `node x: the message`.
pub(crate) fn failure(error: &v1::RunError) -> String {
    let place = some(&error.node).map(|node| format!("node {node}: "));
    format!("{}{}", place.unwrap_or_default(), error.message)
}

/// Renders the end of a failed process and its last output.
pub(crate) fn printed(end: &v1::ProcessEnd) -> String {
    Printed::from(end).lines().join("\n")
}

/// Renders a finding as `path:line:col: node: message [code]`. Further lines of the message are indented.
pub(crate) fn finding(path: &str, finding: &v1::Finding, word: &str) -> String {
    let node = some(&finding.node).map(|node| format!("{node}: "));
    let text = format!(
        "{path}:{}:{}: {word}{}{} [{}]",
        finding.line,
        finding.column,
        node.unwrap_or_default(),
        finding.message,
        finding.code
    );
    let lines: Vec<String> = text.lines().map(screen::in_line).collect();
    lines.join("\n    ")
}

/// Returns the result of a successful run, or `None` for any other run. The result of a graph is the output of its
/// return node, or its state if there is no output. The result of a thread is its outputs or its last text.
pub(crate) fn outcome(run: &v1::Run) -> Result<Option<Value>, Malformed> {
    if !run.core_status()?.is_success() {
        return Ok(None);
    }
    let output = run.output()?;
    Ok(match run.state()? {
        Some(state) => output.filter(declares).or(Some(state)),
        None => output,
    })
}

/// Renders the output of a run under a heading, or its state if it has no output.
pub(crate) fn body(run: &v1::Run) -> Result<Option<String>, Malformed> {
    let output = run.output()?;
    let text = match (run.core_kind()?, output) {
        (RunKind::Thread, Some(outputs @ Value::Object(_))) => {
            format!("outputs:\n{}", pretty(&outputs))
        }
        (RunKind::Thread, Some(Value::String(text))) => format!("result:\n{text}"),
        (RunKind::Thread, Some(other)) => format!("result:\n{}", pretty(&other)),
        (RunKind::Graph | RunKind::Tool | RunKind::Process, Some(output)) if declares(&output) => {
            format!("output:\n{}", pretty(&output))
        }
        (RunKind::Graph | RunKind::Tool | RunKind::Thread | RunKind::Process, _) => {
            let Some(Value::Object(mut state)) = run.state()? else {
                return Ok(None);
            };
            state.shift_remove("inputs");
            if state.is_empty() {
                return Ok(None);
            }
            format!("state:\n{}", pretty(&Value::Object(state)))
        }
    };
    Ok(Some(text))
}

/// True unless an output is null or has no members.
fn declares(output: &Value) -> bool {
    !output.is_null() && output.as_object().is_none_or(|members| !members.is_empty())
}

/// Renders the duration of an ended run: ` in 22.7s`. Returns an empty text for a run that has not ended.
pub(crate) fn took(run: &v1::Run) -> String {
    ran(run).map_or_else(String::new, |ms| format!(" in {}", elapsed(ms)))
}

/// Returns the duration of an ended run in milliseconds.
pub(crate) fn ran(run: &v1::Run) -> Option<u64> {
    let (ended, started) = (run.ended_at.as_ref()?, run.started_at.as_ref()?);
    Some(convert::timestamp(ended).ms_since(convert::timestamp(started)))
}

/// Renders a time and its age.
fn since(time: Option<&prost_types::Timestamp>, now: Timestamp) -> Option<String> {
    let at = convert::timestamp(time?);
    Some(format!("{at} ({} ago)", age(now.ms_since(at))))
}

/// Returns the text, or `None` if it is empty. The contract has no other form of an absent text.
pub(crate) fn some(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_short() {
        for (ms, text) in [
            (0, "0ms"),
            (14, "14ms"),
            (94, "94ms"),
            (95, "0.1s"),
            (400, "0.4s"),
            (8_149, "8.1s"),
            (59_949, "59.9s"),
            (59_950, "1m00s"),
            (125_000, "2m05s"),
            (3_725_000, "1h02m"),
        ] {
            assert_eq!(elapsed(ms), text);
        }
        for (ms, text) in [
            (999, "0s"),
            (60_000, "1m"),
            (7_200_000, "2h"),
            (172_800_000, "2d"),
        ] {
            assert_eq!(age(ms), text);
        }
    }

    #[test]
    fn columns_line_up_and_lines_have_no_trailing_blanks() {
        let rows = [
            ["a".to_owned(), "ünï".to_owned()],
            ["long".to_owned(), "x".to_owned()],
        ];
        assert_eq!(table(["ID", "N"], &rows), "ID    N\na     ünï\nlong  x");
    }

    #[test]
    fn a_long_or_broken_text_becomes_one_line() {
        assert_eq!(one_line("a\n  b", 10), "a b");
        assert_eq!(one_line("üüüü", 3), "üüü…");
    }

    #[test]
    fn plain_text_has_no_escapes() {
        assert_eq!(Style::Plain.status("error"), "error");
        assert_eq!(
            screen::shown(&Style::Colour.status("error"), Style::Colour),
            "\u{1b}[31merror\u{1b}[0m"
        );
    }

    #[test]
    fn multiline_field_is_aligned_and_table_cell_is_escaped() {
        let value = Some("one\ntwo\n".to_owned());
        assert_eq!(
            fields(&[("error", value), ("longer", Some("x".to_owned()))]),
            "error   one\n        two\nlonger  x"
        );
        let rows = [["a\nb\u{1b}".to_owned(), "c".to_owned()]];
        assert_eq!(table(["ID", "N"], &rows), "ID          N\na\\nb\\u{1b}  c");
    }
}
