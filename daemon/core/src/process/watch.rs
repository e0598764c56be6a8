//! Search of the output of a process for lines that its watch rules match, and the messages that follow.
//!
//! **Order.** Lines are read in their order, some of them repeatedly: each rule ignores what it has read before. A
//! **batch** has the matches of all rules since the last one. Its events are one commit, after which
//! [`LineSearch::refresh`] drops it. **Crash.** The counts depend on the record and on the lines with their times alone.
//! So a search that begins again at the recorded position finds the same matches, and makes messages with the same ids.

use super::LinePattern;
use super::line_pattern::without_colours;
use crate::clock::Timestamp;
use crate::id::RunId;
use crate::model::event::{MessageQueued, ProcessWatched};
use crate::model::thread::{MOST_WATCH_BYTES, MOST_WATCH_LINES, Queue, WatchMessage};
use crate::model::{LogCursor, ProcessWatch, WatchMinute, WatchRule, WatchedRule};
use crate::printable::in_line;
use crate::seal::sha256_hex;

/// Limit of the characters of a line in a message.
const MOST_CHARS: usize = 2000;
const MINUTE_MS: u64 = 60_000;

/// The search of one process.
#[derive(Debug, Default)]
pub struct LineSearch {
    rules: Vec<RuleSearch>,
}

#[derive(Debug)]
struct RuleSearch {
    known: WatchedRule,
    /// `None` if the expression cannot be used, which a request refuses.
    pattern: Option<LinePattern>,
    /// Position of the last line that the rule was applied to.
    read: LogCursor,
    /// True if a line took too many steps.
    is_undecided: bool,
    batch: Batch,
}

/// Matches of a rule that are not on record.
#[derive(Debug, Clone, Default)]
struct Batch {
    /// The first ones, as the model receives them.
    lines: Vec<String>,
    bytes: usize,
    matched: u64,
    suppressed: u64,
    minute: Option<WatchMinute>,
}

/// The events of a batch of one rule: of the process, and of the thread that owns it.
#[derive(Debug, Clone, PartialEq)]
pub struct WatchEvents {
    pub process: ProcessWatched,
    pub thread: MessageQueued,
}

impl LineSearch {
    /// Takes over the recorded progress of the rules. Matches that are on record leave the batch.
    pub fn refresh(&mut self, state: &ProcessWatch) {
        let mut before = std::mem::take(&mut self.rules);
        let rules = state.rules.iter().map(|known| {
            let same = before
                .iter()
                .position(|search| search.known.rule == known.rule);
            match same.map(|place| before.swap_remove(place)) {
                Some(search) if search.known == *known => search,
                Some(search) => RuleSearch {
                    read: search.read.max(known.to),
                    known: known.clone(),
                    batch: Batch::default(),
                    ..search
                },
                None => RuleSearch {
                    known: known.clone(),
                    pattern: LinePattern::parse(&known.rule.pattern).ok(),
                    read: known.to,
                    is_undecided: false,
                    batch: Batch::default(),
                },
            }
        });
        self.rules = rules.collect();
    }

    /// Position after which lines have to be read; `None` if no rule is active.
    pub fn pending(&self) -> Option<LogCursor> {
        let active = self.rules.iter().filter(|rule| rule.known.is_active());
        active.map(|rule| rule.read).min()
    }

    /// Applies the rules to a line. Returns the rule that the line takes too many steps of, once for each rule.
    pub fn read(&mut self, cursor: LogCursor, at: Timestamp, text: &str) -> Option<WatchRule> {
        let mut undecided = None;
        for rule in &mut self.rules {
            if !rule.known.is_active() || cursor <= rule.read {
                continue;
            }
            rule.read = cursor;
            let Some(pattern) = &rule.pattern else {
                continue;
            };
            match pattern.matches(text) {
                Some(true) => rule.batch.add(&rule.known, at, text),
                Some(false) => {}
                None if rule.is_undecided => {}
                None => {
                    rule.is_undecided = true;
                    undecided = Some(rule.known.rule.clone());
                }
            }
        }
        undecided
    }

    /// True if matches are not on record.
    pub fn has_batch(&self) -> bool {
        self.rules.iter().any(|rule| rule.batch.is_there())
    }

    /// Returns the events by which the batch of `process` is recorded. `queue` has the messages that wait for the
    /// thread.
    pub fn batch(&self, process: &RunId, queue: &Queue) -> Vec<WatchEvents> {
        let rules = self.rules.iter().filter(|rule| rule.batch.is_there());
        let events = rules.filter_map(|rule| {
            let waiting = queue.lines_of(process, &rule.known.rule.id);
            rule.batch.events(&rule.known, process, rule.read, waiting)
        });
        events.collect()
    }
}

impl Batch {
    const fn is_there(&self) -> bool {
        self.matched > 0 || self.suppressed > 0
    }

    fn add(&mut self, known: &WatchedRule, at: Timestamp, text: &str) {
        let minute = self.minute.or(known.minute);
        let current = minute.filter(|minute| at.ms_since(minute.from) < MINUTE_MS);
        let mut minute = current.unwrap_or(WatchMinute {
            from: at,
            matched: 0,
        });
        if self.suppressed > 0 || minute.matched >= known.rule.max_per_minute {
            self.suppressed += 1;
            self.minute.get_or_insert(minute);
            return;
        }
        minute.matched += 1;
        self.minute = Some(minute);
        self.matched += 1;
        let line = shown(text);
        let has_all = u64::try_from(self.lines.len()).is_ok_and(|lines| lines + 1 == self.matched);
        if has_all
            && self.lines.len() < MOST_WATCH_LINES
            && self.bytes + line.len() < MOST_WATCH_BYTES
        {
            self.bytes += line.len() + 1;
            self.lines.push(line);
        }
    }

    /// Returns the events of the batch, whose lines join the message `waiting` if there is one.
    fn events(
        &self,
        known: &WatchedRule,
        process: &RunId,
        to: LogCursor,
        waiting: Option<&WatchMessage>,
    ) -> Option<WatchEvents> {
        let rule = &known.rule.id;
        let mut message = WatchMessage {
            id: match waiting {
                Some(waiting) => waiting.id.clone(),
                None => id(process, rule, known.to),
            },
            process: process.clone(),
            rule: rule.clone(),
            joins: waiting.is_some(),
            lines: Vec::new(),
            more: 0,
            suppressed: self.suppressed,
        };
        let mut whole = waiting.cloned().unwrap_or_else(|| message.clone());
        for line in &self.lines {
            if !whole.has_room(line) {
                break;
            }
            whole.lines.push(line.clone());
            message.lines.push(line.clone());
        }
        let lines = u64::try_from(message.lines.len()).unwrap_or(u64::MAX);
        message.more = self.matched - lines;
        Some(WatchEvents {
            process: ProcessWatched {
                rule: rule.clone(),
                from: known.to,
                to,
                lines,
                matched: self.matched,
                suppressed: self.suppressed,
                minute: self.minute?,
            },
            thread: MessageQueued {
                text: String::new(),
                by: format!("the process {process}"),
                lines: Some(message),
            },
        })
    }
}

/// Id of the message whose lines follow `from`.
fn id(process: &RunId, rule: &str, from: LogCursor) -> String {
    sha256_hex(format!("{process}\n{rule}\n{from}"))[..16].to_owned()
}

/// Returns the form of a line in a message: printable, bounded, and without a tag that ends an element.
fn shown(text: &str) -> String {
    let text = without_colours(text);
    let mut chars = text.chars();
    let mut line = in_line(&chars.by_ref().take(MOST_CHARS).collect::<String>(), ' ');
    if chars.next().is_some() {
        line.push('…');
    }
    line.replace("</", "&lt;/")
}

#[cfg(test)]
mod tests;
