//! What the tools of a run write to stderr: it goes to `async.log` beside the transcript of the run.
//!
//! **Owns** `state/threads/<run>/async.log` below the run's `files` directory, which is there once a tool had something to say, and
//! which its user alone may read. **Order**: through the gate of the project. **Failure**: what cannot be written is lost, with a warning; a run never waits for it.

use std::io::{self, Write as _};
use std::path::Path;

use rye_core::clock::Timestamp;
use rye_core::id::RunId;
use rye_core::model::Spec;

use crate::beneath::Dir;
use crate::gate::Gate;

/// Longest file; what comes after is dropped.
const MOST_BYTES: u64 = 8 << 20;

/// Appends what a tool of the run `run` wrote, below a line that says that `caller` had ended its call at `now`.
pub async fn keep(
    gate: &Gate,
    run: &RunId,
    spec: &Spec,
    now: Timestamp,
    caller: &str,
    stderr: &[u8],
) {
    if stderr.is_empty() {
        return;
    }
    let mut text = format!("[{now} {caller}]\n").into_bytes();
    text.extend_from_slice(stderr);
    if !stderr.ends_with(b"\n") {
        text.push(b'\n');
    }
    let (files, id) = (spec.files.clone(), run.clone());
    let appended = gate.pass("append to async.log", move || {
        append(Path::new(&files), &id, &text)
    });
    if let Err(error) = appended.await {
        tracing::warn!(%run, %error, "what a tool wrote to stderr was not kept");
    }
}

fn append(files: &Path, run: &RunId, text: &[u8]) -> io::Result<()> {
    let directory = Dir::root(files)?
        .state()?
        .make(&Path::new("threads").join(run.as_str()))?;
    let mut file = directory.append("async.log")?;
    let room = MOST_BYTES.saturating_sub(file.metadata()?.len());
    let room = usize::try_from(room).unwrap_or(usize::MAX).min(text.len());
    file.write_all(&text[..room])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn the_file_grows_to_its_limit_and_no_further() {
        let files = tempfile::tempdir().unwrap();
        let run = RunId::new("r-1").unwrap();
        let path = files.path().join("state/threads/r-1/async.log");
        append(files.path(), &run, b"one\n").unwrap();
        append(files.path(), &run, b"two\n").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"one\ntwo\n");
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        for _ in 0..2 {
            append(
                files.path(),
                &run,
                &vec![b'x'; usize::try_from(MOST_BYTES).unwrap()],
            )
            .unwrap();
        }
        assert_eq!(fs::metadata(&path).unwrap().len(), MOST_BYTES);
    }
}
