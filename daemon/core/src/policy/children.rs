//! What `resilience` says about the runs that a run starts: `child_policy` and `concurrency`.

use super::part::ConfigSection;
use crate::declared::Fields;
use crate::model::{ChildTerms, Fate, ParentEnd};

/// The ends of a parent, by the key that says what they mean for those that follow it.
const ENDS: [&str; 3] = ["on_parent_complete", "on_parent_error", "on_parent_cancel"];

/// What an end of the parent may mean.
const FATES: [(&str, Fate); 2] = [("allow", Fate::Leave), ("cascade_cancel", Fate::Cancel)];

/// The key that says how many child runs a thread may have at once.
const CHILDREN: &str = "max_concurrent_children";
/// The key that says in how large a tree a thread may begin.
const THREADS: &str = "max_total_threads";

/// Child runs that a thread may have at once, if nobody says.
const MOST_CHILDREN: u32 = 10;

/// What is fixed about the child runs of a thread, if nobody says.
pub(super) fn usual() -> ChildTerms {
    ChildTerms {
        most: Some(MOST_CHILDREN),
        ..ChildTerms::default()
    }
}

/// What is fixed about the child runs of a thread that begins under this configuration.
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
