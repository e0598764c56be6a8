//! Terms of child runs from `resilience`: `child_policy` and `concurrency`.

use super::part::ConfigSection;
use crate::declared::Fields;
use crate::model::{ChildTerms, Fate, ParentEnd};

/// The ends of a parent, by the key for their consequence.
const ENDS: [&str; 3] = ["on_parent_complete", "on_parent_error", "on_parent_cancel"];

/// The consequences of a parent's end.
const FATES: [(&str, Fate); 2] = [("allow", Fate::Leave), ("cascade_cancel", Fate::Cancel)];

/// The key of the limit of live child runs of a thread.
const CHILDREN: &str = "max_concurrent_children";
/// The key of the limit of the tree in which a thread may begin.
const THREADS: &str = "max_total_threads";

/// Default limit of live child runs of a thread.
const MOST_CHILDREN: u32 = 10;

/// Returns the default terms of the child runs of a thread.
pub(super) fn usual() -> ChildTerms {
    ChildTerms {
        most: Some(MOST_CHILDREN),
        ..ChildTerms::default()
    }
}

/// Reads the terms of the child runs of a thread that begins under this configuration.
pub(super) fn read(file: &ConfigSection<'_>) -> Result<ChildTerms, String> {
    let usual = usual();
    let concurrency = file.part("concurrency", &[CHILDREN, THREADS])?;
    let most = |key: &str| match &concurrency {
        Some(concurrency) => concurrency.whole(key),
        None => Ok(None),
    };
    Ok(ChildTerms {
        follow: follow(file)?.unwrap_or(usual.follow),
        most: most(CHILDREN)?.or(usual.most),
        most_in_tree: most(THREADS)?,
        ..usual
    })
}

fn follow(file: &ConfigSection<'_>) -> Result<Option<ParentEnd>, String> {
    let Some(policy) = file.part("child_policy", &ENDS)? else {
        return Ok(None);
    };
    let fate = |key: &str, usual: Fate| {
        let words = FATES.map(|(word, _)| word).join(" or ");
        let fate = policy.word(key, &FATES, &words)?;
        Ok::<_, String>(fate.unwrap_or(usual))
    };
    let [complete, error, cancel] = ENDS;
    Ok(Some(ParentEnd::Follow {
        on_complete: fate(complete, Fate::Leave)?,
        on_error: fate(error, Fate::Cancel)?,
        on_cancel: fate(cancel, Fate::Cancel)?,
    }))
}
