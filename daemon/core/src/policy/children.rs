//! What `resilience` says about the runs that a run starts: `child_policy` and `concurrency`.

use super::fault;
use super::resilience::{RESILIENCE, part, whole};
use crate::model::{ChildTerms, Fate, Object, ParentEnd};

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
pub(super) fn read(map: &Object) -> Result<ChildTerms, String> {
    let usual = usual();
    Ok(ChildTerms {
        follow: follow(map)?.unwrap_or(usual.follow),
        most: concurrency(map, CHILDREN)?.or(usual.most),
        most_in_tree: concurrency(map, THREADS)?,
        ..usual
    })
}

fn follow(map: &Object) -> Result<Option<ParentEnd>, String> {
    let Some(policy) = part(map, "child_policy", "child_policy", &ENDS)? else {
        return Ok(None);
    };
    let [complete, error, cancel] = ENDS;
    Ok(Some(ParentEnd::Follow {
        on_complete: fate(policy, complete, Fate::Leave)?,
        on_error: fate(policy, error, Fate::Cancel)?,
        on_cancel: fate(policy, cancel, Fate::Cancel)?,
    }))
}

fn fate(policy: &Object, key: &str, usual: Fate) -> Result<Fate, String> {
    let Some(given) = policy.get(key).filter(|given| !given.is_null()) else {
        return Ok(usual);
    };
    let known = FATES.iter().find(|(word, _)| given == word);
    known.map(|(_, fate)| *fate).ok_or_else(|| {
        let words = FATES.map(|(word, _)| word).join(" or ");
        let problem = format!("`child_policy.{key}` is {words}, not {given}");
        fault(RESILIENCE, None, &problem)
    })
}

/// The number under `key` of `concurrency`.
fn concurrency(map: &Object, key: &str) -> Result<Option<u32>, String> {
    let concurrency = part(map, "concurrency", "concurrency", &[CHILDREN, THREADS])?;
    let Some(concurrency) = concurrency else {
        return Ok(None);
    };
    whole(concurrency, key, &format!("concurrency.{key}"))
}
