//! Waiting of runs for each other, from `coordination`.

use serde_json::Value;

use super::part::ConfigSection;
use crate::declared::Fields;
use crate::model::Waits;

/// The name of the file.
pub(super) const COORDINATION: &str = "coordination";

/// Keys at the top.
const KEYS: [&str; 1] = ["wait_threads"];
/// Keys at the top that other programs read, or that describe handover between threads, which is not supported yet.
const IGNORED: [&str; 3] = ["continuation", "transcript_integrity", "orphan_detection"];
/// Keys of `wait_threads`.
const WAITS: [&str; 2] = ["default_timeout", "max_timeout"];

/// Reads the waiting times of the merged section; entries without effect are added to `ignored`.
pub(super) fn read(config: &Value, ignored: &mut Vec<String>) -> Result<Waits, String> {
    let file = ConfigSection::file(COORDINATION, config, &KEYS, &IGNORED, ignored)?;
    let Some(file) = file else {
        return Ok(Waits::default());
    };
    let waits = file.part("wait_threads", &WAITS)?;
    waits
        .as_ref()
        .map_or_else(|| Ok(Waits::default()), of_waits)
}

fn of_waits(waits: &ConfigSection<'_>) -> Result<Waits, String> {
    let [usual, most] = WAITS.map(|key| waits.whole::<u32>(key));
    let (usual, most) = (usual?, most?.filter(|most| *most > 0));
    if let (Some(usual), Some(most)) = (usual, most)
        && (usual > most || usual == 0)
    {
        return Err(waits.fault(&format!(
            "`wait_threads.default_timeout` ({usual}, where 0 is no limit) is above `wait_threads.max_timeout` ({most})"
        )));
    }
    Ok(Waits { usual, most })
}
