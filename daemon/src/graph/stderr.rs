//! What the tools of a detached run complain about: nobody waits for it, so it goes to `async.log` beside its transcript.

use std::io::{self, Write as _};
use std::path::Path;

use rye_core::id::RunId;
use rye_core::walker::Call;

use super::attend::Bench;
use crate::beneath::Dir;
use crate::task;

/// Longest file; what comes after is dropped.
const MOST_BYTES: u64 = 8 << 20;

/// Appends `stderr` of the process that carried out `call`. What cannot be written is lost, with a warning.
pub(super) async fn keep(bench: &Bench<'_>, call: &Call, stderr: &[u8]) {
    let now = bench.ports.journal.now();
    let head = format!("[{now} step {} {} {}]\n", call.step, call.node, call.item);
    let mut text = head.into_bytes();
    text.extend_from_slice(stderr);
    if !stderr.ends_with(b"\n") {
        text.push(b'\n');
    }
    let (files, run) = (bench.birth.files.clone(), bench.run.clone());
    let appended = task::blocking("append to async.log", move || {
        append(Path::new(&files), &run, &text)
    });
    if let Err(error) = appended.await {
        tracing::warn!(run = %bench.run, %error, "what a tool wrote to stderr was not kept");
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

    #[test]
    fn the_file_grows_to_its_limit_and_no_further() {
        let files = tempfile::tempdir().unwrap();
        let run = RunId::new("r-1").unwrap();
        let path = files.path().join("state/threads/r-1/async.log");
        append(files.path(), &run, b"one\n").unwrap();
        append(files.path(), &run, b"two\n").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"one\ntwo\n");
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
