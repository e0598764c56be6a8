//! Which text of its graph a run has.
//!
//! **Rule.** It is the one that the item has now. One that is continued has the text it began with if the caller asks for that, and
//! its readers learn of it if it has another.

use std::sync::Arc;

use rye_core::model::Spec;

use super::{StartAt, declared};

/// The text for the run of `spec`, whose item has the text `now`; and what the readers of the run should know of it.
pub(super) fn chosen(
    spec: &mut Spec,
    now: &Arc<str>,
    start_at: &StartAt,
) -> (Arc<str>, Option<String>) {
    let continued = declared::recorded(start_at);
    let changed = continued.filter(|(run, _)| run.spec.content_hash != spec.content_hash);
    let Some((run, recorded)) = changed else {
        return (Arc::clone(now), None);
    };
    if let StartAt::Continue {
        same_text: true, ..
    } = start_at
    {
        spec.content_hash.clone_from(&run.spec.content_hash);
        return (Arc::clone(recorded), None);
    }
    let note = format!(
        "`{}` has changed since run `{}` started, which is continued with the text it has now",
        spec.item, run.id
    );
    (Arc::clone(now), Some(note))
}
