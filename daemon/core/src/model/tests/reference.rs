//! The reference pages list exactly the events, answers and limits that exist.

use rye_pages::Table;

use crate::bounds;
use crate::model::MOST_DEPTH;
use crate::model::control::{ACTIONS, DEFAULT_EXTENSION, DEFAULT_RETRIES};
use crate::model::thread::{MOST_MESSAGE_BYTES, MOST_QUEUED};
use crate::model::{Event, SuspendReason};

fn reference(name: &str) -> Table {
    Table::read("docs/reference.md", name)
}

#[test]
fn the_pages_list_every_event() {
    Table::read("docs/events-and-files.md", "events").assert_lists(Event::names());
}

#[test]
fn the_pages_list_every_reason_to_be_suspended() {
    let reasons = Table::read("docs/steering-runs.md", "reasons");
    reasons.assert_lists(SuspendReason::ALL.map(SuspendReason::as_str));
}

#[test]
fn the_reference_lists_the_answers_of_hooks_and_what_they_give() {
    let answers = reference("hook answers");
    answers.assert_lists(ACTIONS);
    for (answer, key, given) in [
        ("retry", "max_retries", DEFAULT_RETRIES),
        ("continue", "additional_steps", DEFAULT_EXTENSION),
    ] {
        let also = format!("`{key}`, {given} unless set");
        assert_eq!(answers.cell(answer, "also"), also);
    }
}

#[test]
fn the_reference_has_the_limits_of_the_code() {
    let limits = reference("limits");
    let is = |name: &str, value: String| limits.assert_cell(name, "is", value);
    is(
        "steps of a graph",
        crate::definition::DEFAULT_MAX_STEPS.to_string(),
    );
    is("levels of child runs", MOST_DEPTH.to_string());
    is("tries of a failed node", DEFAULT_RETRIES.to_string());
    is("steps a hook grants", DEFAULT_EXTENSION.to_string());
    let state = bounds::MOST_BYTES >> 20;
    is("state of a run", format!("{state} MiB"));
    let message = MOST_MESSAGE_BYTES >> 10;
    is(
        "messages that wait for a thread",
        format!("{MOST_QUEUED}, of {message} KiB"),
    );
}
