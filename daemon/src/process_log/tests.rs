use std::os::unix::fs::PermissionsExt as _;

use rye_host::clock::HostClock;

use super::*;

struct Rig {
    state: tempfile::TempDir,
    run: RunId,
}

impl Rig {
    fn new() -> Self {
        Self {
            state: tempfile::tempdir().unwrap(),
            run: RunId::new("p-1-a").unwrap(),
        }
    }

    /// The logs, as a daemon that has just started has them.
    fn logs(&self) -> ProcessLogs {
        ProcessLogs::new(self.state.path(), Arc::new(HostClock))
    }

    fn file(&self, name: &str) -> PathBuf {
        let directory = self.state.path().join(DIRECTORY);
        directory.join(self.run.as_str()).join(name)
    }
}

fn texts(page: &LogPage) -> Vec<&str> {
    page.lines.iter().map(|line| line.text.as_str()).collect()
}

async fn attempt(log: &Arc<ProcessLog>, number: u32, output: &str) {
    log.begin(number, None).await;
    log.receive(Source::Stdout, output.as_bytes());
    log.close().await;
}

#[tokio::test]
async fn lines_and_cursors_outlive_the_daemon() {
    let rig = Rig::new();
    let first = rig.logs().of(&rig.run);
    first.begin(1, None).await;
    first.receive(Source::Stdout, b"one\nt");
    first.receive(Source::Stderr, b"oops\n");
    first.receive(Source::Stdout, b"wo\nrest");
    first.close().await;
    let page = first.read(LogRange::Last(10)).await.unwrap();
    assert_eq!(texts(&page), ["one", "oops", "two", "rest"]);
    assert_eq!(page.lines[1].stream, Stream::Stderr);
    let cursor = LogCursor::parse(&page.lines[1].cursor().to_string()).unwrap();

    let second = rig.logs().of(&rig.run);
    assert_eq!(second.read(LogRange::Last(10)).await.unwrap(), page);
    attempt(&second, 2, "again\n").await;
    let later = second.read(LogRange::After(cursor, 10)).await.unwrap();
    assert_eq!(texts(&later), ["two", "rest", "again"]);
    assert_eq!((later.gap, later.lines[2].attempt), (0, 2));
    let last = second.read(LogRange::After(later.next, 10)).await.unwrap();
    assert_eq!((texts(&last).len(), last.next), (0, later.next));
    let two = second.read(LogRange::After(cursor, 2)).await.unwrap();
    assert_eq!(texts(&two), ["two", "rest"], "the first ones");
    let tail = second.read(LogRange::Last(2)).await.unwrap();
    assert_eq!(texts(&tail), ["rest", "again"]);
}

#[tokio::test]
async fn files_are_for_their_user_and_are_replaced_at_a_size() {
    let rig = Rig::new();
    let log = rig.logs().of(&rig.run);
    log.begin(1, None).await;
    let line = format!("{}\n", "x".repeat(1023));
    let lines = 18 * 1024;
    for _ in 0..lines / 64 {
        // Each batch passes as if it came slowly.
        log.shared().allowance = Allowance::default();
        for _ in 0..64 {
            log.receive(Source::Stdout, line.as_bytes());
        }
        log.flush().await;
    }
    log.close().await;
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    for name in ["out.log", "out.log.1"] {
        let path = rig.file(name);
        assert_eq!(mode(&path), 0o600);
        assert!(fs::metadata(&path).unwrap().len() <= 8 << 20);
    }
    assert_eq!(mode(rig.file("out.log").parent().unwrap()), 0o700);
    let page = log
        .read(LogRange::After(LogCursor::default(), usize::MAX))
        .await
        .unwrap();
    let kept = u64::try_from(page.lines.len()).unwrap() * 1024;
    assert!(page.gap > 0);
    assert_eq!(page.gap + kept, lines * 1024, "nothing is lost uncounted");
}

#[tokio::test]
async fn disk_that_takes_no_writes_costs_lines_of_the_file_only() {
    let rig = Rig::new();
    let logs = rig.logs();
    let log = logs.of(&rig.run);
    fs::write(rig.state.path().join(DIRECTORY), "in the way").unwrap();
    log.begin(1, None).await;
    log.receive(Source::Stdout, b"lost\n");
    log.flush().await;
    let page = log.read(LogRange::Last(10)).await.unwrap();
    assert_eq!(texts(&page), ["lost"], "in memory");
    fs::remove_file(rig.state.path().join(DIRECTORY)).unwrap();
    log.receive(Source::Stdout, b"kept\n");
    log.close().await;
    let page = rig.logs().of(&rig.run).read(LogRange::Last(10)).await;
    let page = page.unwrap();
    assert_eq!(texts(&page)[1..], ["kept"]);
    assert_eq!(page.lines[0].stream, Stream::Note);
    assert!(page.lines[0].text.contains("bytes left out"));
}

#[tokio::test]
async fn line_that_a_crash_cut_off_spoils_no_other() {
    let rig = Rig::new();
    attempt(&rig.logs().of(&rig.run), 1, "one\ntwo\n").await;
    let path = rig.file("out.log");
    let text = fs::read(&path).unwrap();
    fs::write(&path, &text[..text.len() - 3]).unwrap();
    attempt(&rig.logs().of(&rig.run), 2, "three\n").await;
    let page = rig.logs().of(&rig.run).read(LogRange::Last(10)).await;
    let page = page.unwrap();
    assert_eq!(texts(&page), ["one", "t", "three"]);
}

#[tokio::test]
async fn memory_is_bounded_in_lines_and_bytes() {
    let rig = Rig::new();
    let log = rig.logs().of(&rig.run);
    log.begin(1, None).await;
    log.receive(Source::Stdout, "x\n".repeat(5000).as_bytes());
    assert_eq!(log.shared().ring.len(), RING_LINES);
    log.receive(
        Source::Stdout,
        format!("{}\n", "y".repeat(10_000)).repeat(500).as_bytes(),
    );
    let shared = log.shared();
    assert!(shared.ring_bytes <= RING_BYTES && shared.pending.len() <= MOST_PENDING + 1024);
    let bytes: u64 = shared.ring.iter().map(|line| line.bytes).sum();
    assert_eq!(usize::try_from(bytes).unwrap(), shared.ring_bytes);
}

#[tokio::test]
async fn flood_is_left_out_and_counted() {
    let rig = Rig::new();
    let log = rig.logs().of(&rig.run);
    log.begin(1, None).await;
    let flood = "x\n".repeat(PART / 2);
    for _ in 0..(16 << 20) / PART {
        log.receive(Source::Stdout, flood.as_bytes());
    }
    assert!(log.shared().lost > 4 << 20);
    log.flush().await;
    log.shared().allowance = Allowance::default();
    log.receive(Source::Stdout, b"rest of a line\nlast\n");
    log.close().await;
    let page = rig
        .logs()
        .of(&rig.run)
        .read(LogRange::Last(3))
        .await
        .unwrap();
    assert_eq!(texts(&page)[1..], ["rest of a line", "last"]);
    let log = rig.logs().of(&rig.run);
    let whole = LogRange::After(LogCursor::default(), usize::MAX);
    let all = log.read(whole).await.unwrap();
    let notes = all.lines.iter().filter(|line| line.stream == Stream::Note);
    assert!(notes.count() > 0);
    assert_eq!(page.next.position, (16 << 20) + 20);
}

#[tokio::test]
async fn observer_sees_lines_of_its_attempt_only() {
    let rig = Rig::new();
    let log = rig.logs().of(&rig.run);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let observer = |seen: &Arc<Mutex<Vec<String>>>| -> LineObserver {
        let seen = Arc::clone(seen);
        Box::new(move |line| seen.lock().unwrap().push(line.to_owned()))
    };
    log.begin(1, Some(observer(&seen))).await;
    log.receive(Source::Stdout, b"a\nb");
    log.close().await;
    attempt(&log, 2, "c\n").await;
    assert_eq!(*seen.lock().unwrap(), ["a", "b"]);
}

#[tokio::test]
async fn runs_with_files_are_found_and_removed() {
    let rig = Rig::new();
    let logs = rig.logs();
    assert_eq!(logs.runs().unwrap(), []);
    attempt(&logs.of(&rig.run), 1, "a\n").await;
    assert_eq!(logs.runs().unwrap(), std::slice::from_ref(&rig.run));
    logs.remove(&rig.run).unwrap();
    logs.remove(&rig.run).unwrap();
    assert_eq!(logs.runs().unwrap(), []);
}

/// Texts of the lines that a follower has not seen.
async fn taken(log: &Arc<ProcessLog>, tail: Tail) -> (Tail, Vec<String>) {
    let (tail, lines) = log.take_in(tail).await;
    (tail, lines.into_iter().map(|line| line.text).collect())
}

#[tokio::test(start_paused = true)]
async fn lines_of_a_shim_are_taken_in_once_across_daemons_and_files() {
    let rig = Rig::new();
    let shim = rig.logs().of(&rig.run);
    attempt(&shim, 1, "before\n").await;
    shim.begin(2, None).await;
    let log = rig.logs().of(&rig.run);
    let mut tail = log.follow(2, None);
    for number in 0..3 {
        shim.receive(Source::Stdout, format!("line {number}\n").as_bytes());
        shim.close().await;
        let (next, lines) = taken(&log, tail).await;
        assert_eq!(lines, [format!("line {number}")]);
        tail = next;
    }
    // A file is full twice before the follower looks again.
    let filling = "x".repeat(1000);
    for _ in 0..20 {
        // More output at a time would be left out.
        tokio::time::advance(Duration::from_millis(200)).await;
        for _ in 0..500 {
            shim.receive(Source::Stdout, format!("{filling}\n").as_bytes());
        }
        shim.close().await;
        let (next, lines) = taken(&log, tail).await;
        assert_eq!(lines.len(), 500);
        tail = next;
    }
    assert!(rig.file("out.log.1").exists());
    drop((log, tail));
    // The next daemon reads the attempt again, and passes on only what is new.
    shim.receive(Source::Stderr, b"last\n");
    shim.close().await;
    let later = rig.logs().of(&rig.run);
    let tail = later.follow(2, None);
    let (_, lines) = taken(&later, tail).await;
    assert_eq!(lines, ["last"]);
    assert_eq!(
        texts(&later.read(LogRange::Last(1)).await.unwrap()),
        ["last"]
    );
    assert!(later.recent(Source::Stdout).contains(&filling));
}

#[tokio::test]
#[expect(
    clippy::await_holding_lock,
    reason = "the lock is that of a write in progress"
)]
async fn end_of_an_attempt_waits_for_a_write_in_progress() {
    let rig = Rig::new();
    let log = rig.logs().of(&rig.run);
    log.begin(1, None).await;
    log.receive(Source::Stdout, b"one\n");
    let mut file = log.file.lock().unwrap();
    let (lines, _) = log.shared().take_pending();
    let closed = tokio::time::timeout(Duration::from_millis(50), log.close()).await;
    assert!(closed.is_err(), "it is not in the file yet");
    file.append(&lines).unwrap();
    drop(file);
    log.close().await;
    assert!(
        fs::read_to_string(rig.file("out.log"))
            .unwrap()
            .contains("one")
    );
}
