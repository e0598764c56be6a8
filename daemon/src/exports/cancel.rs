//! Cancel requests that users write as a file into the directory of a run.
//!
//! **Never** follows a link, and does not remove the files: their author may want to see them.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use rye_core::id::RunId;
use rye_core::json;
use rye_core::model::Run;
use serde_json::Value;

use rye_host::safe_path::Dir;
use rye_journal::THREADS;

/// Names of such a file.
const NAMES: [&str; 2] = ["cancel", "cancel.requested"];
/// Maximum size of such a file in bytes; a larger one counts as a request without a reason.
const MOST_BYTES: u64 = 64 << 10;
/// Maximum length of the reason in characters.
const MOST_CHARS: usize = 1000;

/// Runs of `runs` with a cancel file, and the reason in it. Blocks.
pub fn cancel_requests(runs: &[Arc<Run>]) -> Vec<(RunId, String)> {
    let places = runs.iter().map(|run| (&run.id, run.spec.files.as_str()));
    requests(places)
}

/// As [`cancel_requests`], for runs with their `files` directories.
fn requests<'a>(runs: impl Iterator<Item = (&'a RunId, &'a str)>) -> Vec<(RunId, String)> {
    let mut threads: HashMap<&str, Option<Dir>> = HashMap::new();
    let mut asked = Vec::new();
    for (run, files) in runs {
        let threads = threads.entry(files).or_insert_with_key(|files| {
            let root = Dir::root(Path::new(files));
            root.and_then(|root| root.enter(Path::new(THREADS))).ok()
        });
        let directory = threads
            .as_ref()
            .and_then(|threads| threads.enter(Path::new(run.as_str())).ok());
        asked.extend(
            directory
                .and_then(|directory| requested(&directory))
                .map(|reason| (run.clone(), reason)),
        );
    }
    asked
}

fn requested(directory: &Dir) -> Option<String> {
    NAMES.iter().find_map(|name| {
        let content = match directory.read(name, MOST_BYTES) {
            Ok(content) => content?,
            // It is a request whatever its content.
            Err(error) if error.kind() == io::ErrorKind::FileTooLarge => Vec::new(),
            // Anything but a regular file is not a request.
            Err(_) => return None,
        };
        Some(reason(&content).unwrap_or_else(|| format!("the file `{name}`")))
    })
}

/// Field `reason` of a JSON object; a value that is not a string is shown as JSON.
fn reason(content: &[u8]) -> Option<String> {
    let document: Value = serde_json::from_str(&json::decoded(content)).ok()?;
    let reason = document.get("reason").filter(|said| !said.is_null())?;
    let reason = reason
        .as_str()
        .map_or_else(|| reason.to_string(), str::to_owned);
    let reason: String = reason.trim().chars().take(MOST_CHARS).collect();
    (!reason.is_empty()).then_some(reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn requested_reason(files: &Path, run: &str) -> Option<String> {
        let run = RunId::new(run).unwrap();
        let files = files.to_string_lossy();
        let runs = [(&run, files.as_ref())].into_iter();
        requests(runs).pop().map(|(_, reason)| reason)
    }

    #[test]
    fn cancel_file_gives_reason_or_its_name() {
        let files = tempfile::tempdir().unwrap();
        assert_eq!(requested_reason(files.path(), "a-1"), None);
        let directory = files.path().join(THREADS).join("a-1");
        fs::create_dir_all(&directory).unwrap();
        assert_eq!(requested_reason(files.path(), "a-1"), None);
        let path = directory.join("cancel.requested");
        fs::write(&path, r#"{"reason": " too dear "}"#).unwrap();
        assert_eq!(requested_reason(files.path(), "a-1").unwrap(), "too dear");
        for content in [
            "",
            "{",
            "{}",
            "[1]",
            r#"{"reason": null}"#,
            r#"{"reason": ""}"#,
        ] {
            fs::write(directory.join("cancel"), content).unwrap();
            assert_eq!(
                requested_reason(files.path(), "a-1").unwrap(),
                "the file `cancel`"
            );
        }
        for (content, reason) in [
            (br#"{"reason": 7}"#.as_slice(), "7"),
            (br#"{"reason": "half \ud83d"}"#, "half \u{fffd}"),
            (b"{\"reason\": \"caf\xe9\"}", "caf\u{fffd}"),
        ] {
            fs::write(directory.join("cancel"), content).unwrap();
            assert_eq!(requested_reason(files.path(), "a-1").unwrap(), reason);
        }
        assert!(path.exists());
    }

    #[test]
    fn links_and_irregular_files_are_ignored() {
        let files = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("cancel"), "{}").unwrap();
        let threads = files.path().join(THREADS);
        fs::create_dir_all(threads.join("a-1/cancel")).unwrap();
        assert_eq!(requested_reason(files.path(), "a-1"), None);
        symlink(outside.path(), threads.join("b-1")).unwrap();
        assert_eq!(requested_reason(files.path(), "b-1"), None);
        fs::create_dir_all(threads.join("c-1")).unwrap();
        symlink(outside.path().join("cancel"), threads.join("c-1/cancel")).unwrap();
        assert_eq!(requested_reason(files.path(), "c-1"), None);
    }
}
