//! How runs wait for each other: what `coordination` says.

use serde_json::Value;

use super::resilience::{ignore_of, part_of, whole_of};
use super::{ITEM_KEYS, fault, section, unknown_key};
use crate::model::{Object, Waits};

/// The name of the file.
pub(super) const COORDINATION: &str = "coordination";

/// Keys at the top.
const KEYS: [&str; 1] = ["wait_threads"];
/// Keys at the top that other programs read, or that say how threads hand over to each other, which they do not do yet.
const IGNORED: [&str; 3] = ["continuation", "transcript_integrity", "orphan_detection"];
/// Keys of `wait_threads`.
const WAITS: [&str; 2] = ["default_timeout", "max_timeout"];

/// What the merged section says of waiting; what of it decides nothing is added to `ignored`.
pub(super) fn read(config: &Value, ignored: &mut Vec<String>) -> Result<Waits, String> {
    let Some(map) = section(COORDINATION, config)? else {
        return Ok(Waits::default());
    };
    let known = KEYS.into_iter().chain(IGNORED).chain(ITEM_KEYS);
    if let Some(problem) = unknown_key(map, known) {
        return Err(fault(COORDINATION, None, &problem));
    }
    ignore_of(COORDINATION, ignored, map, "", &IGNORED);
    let waits = part_of(COORDINATION, map, "wait_threads", "wait_threads", &WAITS)?;
    waits
        .map(of_waits)
        .transpose()
        .map(Option::unwrap_or_default)
}

fn of_waits(waits: &Object) -> Result<Waits, String> {
    let [usual, most] = WAITS.map(|key| {
        let path = format!("wait_threads.{key}");
        whole_of::<u32>(COORDINATION, waits, key, &path)
    });
    let (usual, most) = (usual?, most?.filter(|most| *most > 0));
    if let (Some(usual), Some(most)) = (usual, most)
        && (usual > most || usual == 0)
    {
        let problem = format!(
            "`wait_threads.default_timeout` ({usual}, where 0 is no limit) is above `wait_threads.max_timeout` ({most})"
        );
        return Err(fault(COORDINATION, None, &problem));
    }
    Ok(Waits { usual, most })
}
