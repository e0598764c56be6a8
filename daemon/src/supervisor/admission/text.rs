//! Which text of its graph a run has.
//!
//! **Rule.** It is the one that the item has now. One that is continued has the text it began with if the caller asks for that, and
//! its readers learn of it if it has another.

use std::sync::Arc;

use rye_item::Item;

use super::{StartAt, declared};

/// The text that a run has of its graph.
pub(super) struct Chosen {
    pub(super) text: Arc<str>,
    /// SHA-256, in hex, of the item that it is the text of.
    pub(super) content_hash: String,
    /// What the readers of the run should know of it.
    pub(super) note: Option<String>,
}

/// The text for a run whose item is `now`.
pub(super) fn chosen(now: &Item, start_at: &StartAt) -> Chosen {
    let mut chosen = Chosen {
        text: Arc::clone(&now.text),
        content_hash: now.content_hash.clone(),
        note: None,
    };
    let continued = declared::recorded(start_at);
    let changed = continued.filter(|(run, _)| run.spec.content_hash != now.content_hash);
    if let Some((run, recorded)) = changed {
        if let StartAt::Continue {
            same_text: true, ..
        } = start_at
        {
            chosen.text = Arc::clone(recorded);
            chosen.content_hash.clone_from(&run.spec.content_hash);
        } else {
            chosen.note = Some(format!(
                "`{}` has changed since run `{}` started, which is continued with the text it has now",
                now.item, run.id
            ));
        }
    }
    chosen
}
