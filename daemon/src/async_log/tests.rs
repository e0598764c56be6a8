use std::fmt::Write as _;
use std::fs;
use std::future::Future as _;
use std::os::unix::fs::PermissionsExt as _;
use std::pin::pin;
use std::sync::mpsc;
use std::task::{Context, Waker};

use futures_util::FutureExt as _;
use rye_core::id::{ItemId, ItemRef};
use rye_core::model::{Budget, Task};
use rye_process::Source;

use super::log_pool::PATIENCE;
use super::*;
use rye_host::file_pool::AT_ONCE;
use rye_host::task::Scope;

fn log(files: &Path) -> Arc<Log> {
    let run = RunId::new("r-1").unwrap();
    let item = ItemRef::tool(ItemId::new("t/t").unwrap());
    let spec = Spec {
        files: files.display().to_string(),
        ..Spec::new(Task::Tool, item, run.clone(), Budget::open(run.clone()))
    };
    Arc::new(Log::new(&run, &Arc::new(spec)))
}

fn reader(log: &Arc<Log>, node: Option<&str>, item: Option<&str>) -> Reader {
    let wanted = LineFilter {
        node: node.map(str::to_owned),
        item: item.map(str::to_owned),
    };
    Reader::new(Arc::clone(log), LogPool::default(), wanted)
}

fn texts(pieces: &[Piece]) -> Vec<(&str, &str)> {
    let pieces = pieces.iter();
    pieces
        .map(|piece| (piece.heading.as_str(), piece.text.as_str()))
        .collect()
}

async fn write_lines(log: &Arc<Log>, heading: &str, bytes: &[u8]) {
    let voice = OutputWriter::new(Arc::clone(log), LogPool::default(), heading);
    voice.receive(Source::Stdout, bytes);
    voice.close().await;
}

#[tokio::test]
async fn lines_follow_heading_of_their_attempt() {
    let files = tempfile::tempdir().unwrap();
    let log = log(files.path());
    let [one, two] = ["step 1 a[0]", "step 1 a[1]"]
        .map(|heading| OutputWriter::new(Arc::clone(&log), LogPool::default(), heading));
    one.receive(Source::Stdout, b"half a ");
    one.receive(Source::Stderr, b"a warning\n");
    one.receive(Source::Stdout, b"line\n== step 9 z ==\n");
    one.close().await;
    two.receive(Source::Stdout, b"without an end");
    two.close().await;
    let path = files.path().join("state/threads/r-1/async.log");
    assert_eq!(
        fs::read_to_string(&path).unwrap(),
        "== step 1 a[0] ==\na warning\nhalf a line\n == step 9 z ==\n== step 1 a[1] ==\nwithout an end\n"
    );
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let all = reader(&log, Some("a"), None).next().await.unwrap();
    assert_eq!(
        texts(&all),
        [
            ("step 1 a[0]", "a warning\nhalf a line\n == step 9 z ==\n"),
            ("step 1 a[1]", "without an end\n")
        ]
    );
    let second = reader(&log, Some("a"), Some("1")).next().await.unwrap();
    assert_eq!(texts(&second), [("step 1 a[1]", "without an end\n")]);
    assert_eq!(reader(&log, Some("b"), None).next().await.unwrap(), []);
}

#[tokio::test]
async fn close_waits_for_pending_write() {
    let files = tempfile::tempdir().unwrap();
    let log = log(files.path());
    let voice = OutputWriter::new(Arc::clone(&log), LogPool::default(), "step 1 a");
    voice.receive(Source::Stdout, b"one\n");
    let mut looking = Context::from_waker(Waker::noop());
    let busy = log.at();
    {
        let write = pin!(voice.write());
        assert!(write.poll(&mut looking).is_pending());
        // The write is cancelled when the tool ends, whether or not it has begun.
    }
    let mut close = pin!(voice.close());
    assert!(close.as_mut().poll(&mut looking).is_pending());
    drop(busy);
    close.await;
    let path = files.path().join("state/threads/r-1/async.log");
    assert_eq!(fs::read_to_string(path).unwrap(), "== step 1 a ==\none\n");
}

/// Work that occupies all threads of a pool until [`Self::end`].
struct Hang {
    tasks: Scope,
    held: Vec<mpsc::Sender<()>>,
}

async fn occupy(pool: &LogPool) -> Hang {
    let mut tasks = Scope::new();
    let (begun, begins) = mpsc::channel();
    let mut held = Vec::new();
    for _ in 0..AT_ONCE {
        let (release, waits) = mpsc::channel::<()>();
        held.push(release);
        let (pool, begun) = (pool.clone(), begun.clone());
        tasks.spawn("hangs", |_| async move {
            let work = move || {
                begun.send(()).unwrap();
                waits.recv().unwrap_err();
            };
            pool.read("hang", work).await;
        });
    }
    tokio::task::yield_now().await;
    for _ in 0..AT_ONCE {
        begins.recv().unwrap();
    }
    Hang { tasks, held }
}

impl Hang {
    async fn end(mut self) {
        drop(self.held);
        while self.tasks.next_ended().await.is_some() {}
    }
}

#[tokio::test(start_paused = true)]
async fn hanging_log_delays_one_attempt_and_counts_what_it_lost() {
    let files = tempfile::tempdir().unwrap();
    let (log, pool) = (log(files.path()), LogPool::default());
    let attempt = |heading| OutputWriter::new(Arc::clone(&log), pool.clone(), heading);
    let hang = occupy(&pool).await;
    let first = attempt("step 1 a");
    first.receive(Source::Stdout, b"one\n");
    {
        let mut close = pin!(first.close());
        assert_eq!(close.as_mut().now_or_never(), None);
        tokio::time::advance(PATIENCE).await;
        assert_eq!(close.now_or_never(), Some(()));
    }
    let second = attempt("step 2 a");
    second.receive(Source::Stdout, b"two\n");
    assert_eq!(second.close().now_or_never(), Some(()));
    // An attempt without output does not wait either.
    assert_eq!(attempt("step 3 a").close().now_or_never(), Some(()));
    hang.end().await;
    let mut written = log.written.subscribe();
    let third = attempt("step 4 a");
    third.receive(Source::Stdout, b"three\n");
    tokio::select! {
        never = third.write() => match never {},
        grown = written.changed() => grown.unwrap(),
    }
    let path = files.path().join("state/threads/r-1/async.log");
    assert_eq!(
        fs::read_to_string(path).unwrap(),
        "[8 bytes left out: this file took no writes]\n== step 4 a ==\nthree\n"
    );
    // Ends after the state of the project is set.
    pool.write(|| Ok(())).await.unwrap();
    let hang = occupy(&pool).await;
    let fourth = attempt("step 5 a");
    fourth.receive(Source::Stdout, b"four\n");
    assert_eq!(
        fourth.close().now_or_never(),
        None,
        "the project is usable again, so the attempt waits"
    );
    hang.end().await;
}

#[tokio::test]
async fn reader_waits_and_misses_nothing() {
    let files = tempfile::tempdir().unwrap();
    let log = log(files.path());
    let mut reader = reader(&log, None, None);
    assert_eq!(reader.next().await.unwrap(), []);
    write_lines(&log, "step 1 a", b"one\n").await;
    reader.grown().await;
    assert_eq!(
        texts(&reader.next().await.unwrap()),
        [("step 1 a", "one\n")]
    );
    assert_eq!(reader.next().await.unwrap(), []);
    write_lines(&log, "step 1 a", b"two\n").await;
    reader.grown().await;
    assert_eq!(
        texts(&reader.next().await.unwrap()),
        [("step 1 a", "two\n")]
    );
}

#[tokio::test]
async fn reader_skipping_existing_lines_reads_new_ones() {
    let files = tempfile::tempdir().unwrap();
    let log = log(files.path());
    for before in [&b"one\n"[..], b"two\n"] {
        let mut reader = reader(&log, None, None);
        reader.skip().await.unwrap();
        assert!(!reader.has_grown());
        assert_eq!(reader.next().await.unwrap(), []);
        write_lines(&log, "step 1 a", before).await;
        assert!(reader.has_grown());
        let line = std::str::from_utf8(before).unwrap();
        assert_eq!(texts(&reader.next().await.unwrap()), [("step 1 a", line)]);
        assert!(!reader.has_grown());
    }
}

#[tokio::test]
async fn last_lines_span_both_files() {
    let files = tempfile::tempdir().unwrap();
    let log = log(files.path());
    let wide = vec![b'x'; usize::try_from(MOST_BYTES).unwrap() - 10];
    write_lines(&log, "step 1 a", b"first\n").await;
    let lines: Vec<u8> = wide
        .chunks(8000)
        .flat_map(|line| [line, b"\n"].concat())
        .collect();
    log.append(&Arc::from("step 1 a"), &lines).unwrap();
    write_lines(&log, "step 2 b", b"last\n").await;
    let directory = files.path().join("state/threads/r-1");
    assert_eq!(
        fs::read_to_string(directory.join("async.log"))
            .unwrap()
            .matches("last")
            .count(),
        1
    );
    assert!(directory.join("async.log.1").exists());
    let tail = reader(&log, Some("b"), None).tail(5).await.unwrap();
    assert_eq!(texts(&tail), [("step 2 b", "last\n")]);
    let two = reader(&log, None, None).tail(2).await.unwrap();
    assert_eq!(
        two.len(),
        2,
        "{:?}",
        two.iter().map(|piece| &piece.heading).collect::<Vec<_>>()
    );
}

#[tokio::test]
async fn removed_log_restarts_with_heading() {
    let files = tempfile::tempdir().unwrap();
    let log = log(files.path());
    let heading = Arc::from("step 1 a");
    log.append(&heading, b"one\n").unwrap();
    log.append(&heading, b"two\n").unwrap();
    let path = files.path().join("state/threads/r-1/async.log");
    assert_eq!(
        fs::read_to_string(&path).unwrap(),
        "== step 1 a ==\none\ntwo\n"
    );
    fs::remove_dir_all(files.path().join("state")).unwrap();
    log.append(&heading, b"three\n").unwrap();
    assert_eq!(
        fs::read_to_string(&path).unwrap(),
        "== step 1 a ==\nthree\n"
    );
}

#[tokio::test]
async fn short_lines_use_bounded_memory() {
    let files = tempfile::tempdir().unwrap();
    let log = log(files.path());
    log.append(&Arc::from("step 1 a"), &vec![b'\n'; 1 << 20])
        .unwrap();
    let tail = reader(&log, None, None).tail(usize::MAX).await.unwrap();
    let lines: usize = tail.iter().map(|piece| piece.text.len()).sum();
    assert!((10_000..100_000).contains(&lines), "{lines}");
}

#[tokio::test]
async fn tool_line_cannot_forge_heading() {
    let files = tempfile::tempdir().unwrap();
    let log = log(files.path());
    write_lines(&log, "step 1 a", b"== step 2 b ==\n== step \xff b ==\nx\n").await;
    let all = reader(&log, None, None).next().await.unwrap();
    assert_eq!(
        texts(&all),
        [("step 1 a", " == step 2 b ==\n == step \u{fffd} b ==\nx\n")]
    );
}

#[tokio::test]
async fn reader_two_files_late_reports_gap() {
    let files = tempfile::tempdir().unwrap();
    let log = log(files.path());
    let mut reader = reader(&log, None, None);
    write_lines(&log, "step 1 a", b"one\n").await;
    reader.next().await.unwrap();
    let lines = [
        vec![b'x'; usize::try_from(MOST_BYTES).unwrap() - 1],
        b"\n".to_vec(),
    ]
    .concat();
    for _ in 0..3 {
        log.append(&Arc::from("step 1 a"), &lines).unwrap();
    }
    let next = reader.next().await.unwrap();
    assert!(next[0].text.contains("left out"), "{}", next[0].text.len());
}

#[tokio::test]
async fn excess_output_is_counted_without_blocking_tool() {
    let files = tempfile::tempdir().unwrap();
    let log = log(files.path());
    let voice = OutputWriter::new(Arc::clone(&log), LogPool::default(), "step 1 a");
    let line = [vec![b'y'; 999], b"\n".to_vec()].concat();
    for _ in 0..2000 {
        voice.receive(Source::Stdout, &line);
    }
    voice.close().await;
    let text = fs::read_to_string(files.path().join("state/threads/r-1/async.log")).unwrap();
    assert!(
        text.contains("bytes left out: they came faster"),
        "{}",
        text.len()
    );
    assert!(text.len() < 2 << 20);
}

#[tokio::test]
async fn flood_keeps_whole_lines_and_counts_dropped() {
    let files = tempfile::tempdir().unwrap();
    let log = log(files.path());
    let voice = OutputWriter::new(Arc::clone(&log), LogPool::default(), "step 1 a");
    // Numbered lines; chunks end within them.
    let mut lines = String::new();
    for number in 0..400_000 {
        writeln!(lines, "{number:063}").unwrap();
    }
    for chunk in lines.as_bytes().chunks(1000) {
        voice.receive(Source::Stdout, chunk);
    }
    voice.close().await;
    voice.receive(Source::Stdout, b"last\n");
    voice.close().await;
    let text = fs::read_to_string(files.path().join("state/threads/r-1/async.log")).unwrap();
    let (mut kept, mut left_out) = (0, 0);
    for line in text.lines().skip(1) {
        if let Some(note) = line.strip_prefix('[') {
            left_out += note.split(' ').next().unwrap().parse::<usize>().unwrap();
        } else if line != "last" {
            assert_eq!(line.len(), 63, "{line}");
            kept += line.len() + 1;
        }
    }
    assert_eq!(kept + left_out, lines.len());
    assert!(left_out > 0 && text.ends_with("last\n"), "{left_out}");
}

#[tokio::test]
async fn burst_is_kept_if_written_in_time() {
    let files = tempfile::tempdir().unwrap();
    let log = log(files.path());
    let voice = OutputWriter::new(Arc::clone(&log), LogPool::default(), "step 1 a");
    let line = [vec![b'y'; 999], b"\n".to_vec()].concat();
    for _ in 0..8 {
        for _ in 0..1000 {
            voice.receive(Source::Stdout, &line);
        }
        voice.close().await;
    }
    let text = fs::read_to_string(files.path().join("state/threads/r-1/async.log")).unwrap();
    assert_eq!(text.matches('y').count(), 8 * 999_000);
    assert!(!text.contains("left out"));
}
