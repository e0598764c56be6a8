//! Text for people. Pure: every function takes what it shows and gives back the text.

pub(crate) mod budget;
pub(crate) mod capability;
pub(crate) mod events;
pub(crate) mod items;
pub(crate) mod lines;
pub(crate) mod models;
pub(crate) mod screen;
pub(crate) mod transcript;

use rye_client::json;
use rye_core::clock::Timestamp;
use rye_core::model::Printed;
use serde_json::Value;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// Longest text in a cell of a table.
const CELL: usize = 60;

/// Whether text may be coloured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// On a terminal.
    Colour,
    /// Everywhere else.
    Plain,
}

impl Style {
    /// Something that went well.
    pub(crate) fn green(self, text: &str) -> String {
        self.paint(screen::GREEN, text)
    }

    /// Something that failed.
    pub(crate) fn red(self, text: &str) -> String {
        self.paint(screen::RED, text)
    }

    /// Something to look at.
    pub(crate) fn yellow(self, text: &str) -> String {
        self.paint(screen::YELLOW, text)
    }

    fn paint(self, colour: char, text: &str) -> String {
        match self {
            Self::Colour => format!("{colour}{text}{}", screen::END),
            Self::Plain => text.to_owned(),
        }
    }

    /// A run's status in its colour.
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

/// Wall time: `14ms`, `0.4s`, `8.1s`, `2m05s`, `1h02m`.
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

/// Time since something began, in its largest unit: `12s`, `5m`, `3h`, `2d`.
pub(crate) fn age(ms: u64) -> String {
    let seconds = ms / 1000;
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86400),
    }
}

/// Columns under their heads, two blanks apart. The last column is not padded. Every row stays on its line.
pub(crate) fn table<const N: usize>(heads: [&str; N], rows: &[[String; N]]) -> String {
    table_within(heads, rows, None)
}

/// The same in `most` columns of a terminal: a column in which nothing stands is left out, and the last one is cut.
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

/// `line` in `most` columns.
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

/// Columns that `text` takes on a terminal.
fn width(text: &str) -> usize {
    text.width()
}

/// `name  value` pairs, one a line; pairs without a value are left out. Further lines of a value stand below its first.
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

/// A text on one line of at most `most` characters.
pub(crate) fn one_line(text: &str, most: usize) -> String {
    let mut line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some((end, _)) = line.char_indices().nth(most) {
        line.truncate(end);
        line.push('…');
    }
    line
}

/// JSON for reading.
pub(crate) fn pretty(value: &Value) -> String {
    format!("{value:#}")
}

/// The record of a run, for reading.
pub(crate) fn run(run: &json::Run, now: Timestamp, style: Style) -> String {
    let error = run.error.as_ref().map(|error| match &error.node {
        Some(node) => format!("{} (node {node}, {})", error.message, error.code),
        None => format!("{} ({})", error.message, error.code),
    });
    let asks: Vec<String> = run
        .approvals
        .iter()
        .map(|asked| format!("{} ({})", asked.message, asked.id))
        .collect();
    let asks = (!asks.is_empty()).then(|| asks.join("\n"));
    let in_doubt = run.suspend.iter().flat_map(|why| &why.attempts);
    let in_doubt: Vec<String> = in_doubt.chain(&run.uncertain).map(attempt).collect();
    let uncertain = (!in_doubt.is_empty()).then(|| in_doubt.join("\n"));
    let child_runs = (run.spawn_count > 0).then(|| run.spawn_count.to_string());
    // A thread takes turns, which its cost counts.
    let is_walked = run.kind != "thread";
    let head = fields(&[
        ("run", Some(run.run_id.clone())),
        ("item", Some(run.item_id.clone())),
        ("kind", Some(run.kind.to_owned())),
        ("status", Some(style.status(run.standing()))),
        ("cancelled by", run.cancel.as_ref().map(cancel)),
        ("suspended", run.suspend.as_ref().map(suspension)),
        ("asks", asks),
        ("uncertain", uncertain),
        ("error", error),
        ("model", model(run)),
        ("steps", is_walked.then(|| run.steps.to_string())),
        ("child runs", child_runs),
        ("cost", budget::cost(&run.cost)),
        ("project", run.project.clone()),
        ("parent", run.parent_id.clone()),
        ("started", since(run.started_at.as_deref(), now)),
        ("ended", since(run.ended_at.as_deref(), now)),
        ("took", ran(run).map(elapsed)),
        ("continues", run.continuation_of.clone()),
        ("continued by", run.continued_by.clone()),
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
        .chain(body(run))
        .collect();
    parts.join("\n")
}

/// The model of a thread, as `provider/model`.
fn model(run: &json::Run) -> Option<String> {
    let model = run.model.as_ref()?;
    Some(match &run.provider {
        Some(provider) => format!("{provider}/{model}"),
        None => model.clone(),
    })
}

/// Who asked a run to stop, why and when: `uid:1000, at …: too slow`.
fn cancel(cancel: &json::Cancel) -> String {
    let at = cancel.at.as_ref().map(|at| format!(", at {at}"));
    let reason = cancel.reason.as_ref().map(|reason| format!(": {reason}"));
    let parts = [Some(cancel.by.clone()), at, reason];
    parts.into_iter().flatten().collect()
}

/// What `cancel` says of a run that was asked to stop.
pub(crate) fn cancelling(run: &json::Run) -> String {
    let id = &run.run_id;
    if run.success.is_some() {
        return format!("{id} is {}", run.status);
    }
    format!(
        "{id} is cancelling: what it is at gets a moment to end; `ryectl wait {id}` waits for it, `ryectl kill {id}` does not"
    )
}

/// Why a run stands where it does, for a table: the reason it is suspended for, and what it asks.
pub(crate) fn why(run: &json::Run) -> String {
    let asks = run.approvals.first().map(|asked| asked.message.as_str());
    let (Some(why), None) = (&run.suspend, &run.cancel) else {
        let cancel = run.cancel.as_ref().filter(|_| run.success.is_none());
        let reason = cancel.and_then(|cancel| cancel.reason.as_deref());
        return one_line(reason.unwrap_or_default(), CELL);
    };
    match asks {
        Some(message) => one_line(&format!("{}: {message}", why.reason), CELL),
        None => suspension(why),
    }
}

/// A step that has not ended: `step 3 build, running for 4.1s, 57/300`.
pub(crate) fn step_at_hand(step: &json::Step) -> String {
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

/// How far items have come: `57/300 · 2 failed`.
pub(crate) fn items_so_far(items: json::ItemCount) -> String {
    match items.failed {
        0 => format!("{}/{}", items.ended, items.total),
        failed => format!("{}/{} · {failed} failed", items.ended, items.total),
    }
}

/// Why a run is suspended: `limit (max_steps_exceeded), before node x`.
pub(crate) fn suspension(suspension: &json::Suspension) -> String {
    let code = suspension.code.as_ref().map(|code| format!(" ({code})"));
    let reached = match (&suspension.current, &suspension.max) {
        (Some(current), Some(max)) => Some(format!(", {current} of {max}")),
        (Some(_) | None, _) => None,
    };
    let node = suspension.node.as_ref();
    let place = if suspension.begun { "in" } else { "before" };
    let node = node.map(|node| format!(", {place} node {node}"));
    let parts = [Some(suspension.reason.clone()), code, reached, node];
    parts.into_iter().flatten().collect()
}

/// What is known of an attempt whose outcome is not: `charge of RUN: tool:rye/bash {…}, since …, RYE_IDEMPOTENCY_KEY=…`.
fn attempt(attempt: &json::InDoubt) -> String {
    let call = attempt.item.as_ref().map(|item| {
        let params = attempt.params.as_ref().map(ToString::to_string);
        format!("{item} {}", params.unwrap_or_default())
    });
    let since = attempt.started_at.as_ref();
    let since = since.map(|since| format!("since {since}"));
    let key = attempt.key.as_ref();
    let key = key.map(|key| format!("RYE_IDEMPOTENCY_KEY={key}"));
    let known: Vec<String> = [call, since, key].into_iter().flatten().collect();
    let known = known.join(", ");
    let of = attempt.run_id.as_ref();
    let of = of.map_or_else(String::new, |run| format!(" of {run}"));
    let known = if known.is_empty() {
        "it failed after it had begun"
    } else {
        &known
    };
    format!("{}{of}: {known}", attempt.name)
}

/// Why a run failed: `node x: the message`.
pub(crate) fn failure(error: &json::RunError) -> String {
    let place = error.node.as_ref().map(|node| format!("node {node}: "));
    format!("{}{}", place.unwrap_or_default(), error.message)
}

/// How a process ended that failed and what it printed last.
pub(crate) fn printed(end: &Printed) -> String {
    end.lines().join("\n")
}

/// A drawn tree of runs: the run's place as indentation of its id.
pub(crate) fn flatten(trees: &[json::Tree]) -> Vec<(usize, &json::Run)> {
    fn walk<'t>(level: usize, trees: &'t [json::Tree], out: &mut Vec<(usize, &'t json::Run)>) {
        for tree in trees {
            out.push((level, &tree.run));
            walk(level + 1, &tree.children, out);
        }
    }
    let mut out = Vec::new();
    walk(0, trees, &mut out);
    out
}

/// A finding as `path:line:col: node: message [code]`.
pub(crate) fn finding(path: &str, finding: &json::Finding, word: &str) -> String {
    let node = finding.node.as_ref();
    let node = node.map(|node| format!("{node}: ")).unwrap_or_default();
    screen::in_line(&format!(
        "{path}:{}:{}: {word}{node}{} [{}]",
        finding.line, finding.column, finding.message, finding.code
    ))
}

/// What a run came to: its output, or its state where it has no output.
pub(crate) fn body(run: &json::Run) -> Option<String> {
    if let Some(output) = run.declared() {
        return Some(format!("output:\n{}", pretty(output)));
    }
    if let Some(outputs) = &run.outputs {
        return Some(format!("outputs:\n{}", pretty(outputs)));
    }
    match &run.result {
        Some(Value::String(text)) => return Some(format!("result:\n{text}")),
        Some(other) => return Some(format!("result:\n{}", pretty(other))),
        None => {}
    }
    let mut state = run.state.clone()?;
    let members = state.as_object_mut()?;
    members.shift_remove("inputs");
    (!members.is_empty()).then(|| format!("state:\n{}", pretty(&state)))
}

/// How long a run took that has ended: ` in 22.7s`.
pub(crate) fn took(run: &json::Run) -> String {
    ran(run).map_or_else(String::new, |ms| format!(" in {}", elapsed(ms)))
}

/// Milliseconds from its start to its end, of one that has ended.
fn ran(run: &json::Run) -> Option<u64> {
    let at = |text: &Option<String>| Timestamp::parse(text.as_deref()?);
    Some(at(&run.ended_at)?.ms_since(at(&run.started_at)?))
}

/// A time, and how long ago that was.
fn since(time: Option<&str>, now: Timestamp) -> Option<String> {
    let time = time?;
    let ago = Timestamp::parse(time).map(|at| age(now.ms_since(at)));
    Some(ago.map_or_else(|| time.to_owned(), |ago| format!("{time} ({ago} ago)")))
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
    fn a_text_of_several_lines_keeps_its_place() {
        let value = Some("one\ntwo\n".to_owned());
        assert_eq!(
            fields(&[("error", value), ("longer", Some("x".to_owned()))]),
            "error   one\n        two\nlonger  x"
        );
        let rows = [["a\nb\u{1b}".to_owned(), "c".to_owned()]];
        assert_eq!(table(["ID", "N"], &rows), "ID          N\na\\nb\\u{1b}  c");
    }
}
