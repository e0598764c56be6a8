//! A journal in a temporary directory for tests, with a clock that ticks at each reading and a fixed key.
#![expect(
    missing_debug_implementations,
    clippy::new_without_default,
    clippy::panic,
    clippy::unwrap_used,
    reason = "parts of tests"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use rye_core::capability::Layer;
use rye_core::clock::{Clock, Timestamp, Uptime};
use rye_core::digest::Digest;
use rye_core::id::{Epoch, ItemId, ItemRef, RunId, Seq};
use rye_core::memory::Memory;
use rye_core::model::event::{
    Emitted, GraphCompleted, GraphStarted, ProcessStarted, StepCompleted, StepStarted,
};
use rye_core::model::{
    Budget, Effect, Event, GraphSource, GraphTask, Object, ProcessIdentity, Run, RunEvent, Slot,
    Spec, Status, StepStatus, Task,
};
use rye_core::seal::{SecretKey, Token, sha256_hex, sign_json};
use rye_core::transcript::CHECKPOINT;
use serde_json::{Value, json};

use crate::error::Error;
use crate::faults::Faults;
use crate::options::{Options, SealBounds, Signer};
use crate::record::Line;
use crate::sequencer::{Committed, Ticket};
use crate::{Cursor, Of, Since, Until};
use crate::{Journal, Recovered};
use rye_core::state::{Change, Refused};
use rye_core::transcript::{Head, Signed};

#[derive(Debug, Default)]
pub struct Ticking(AtomicI64);

impl Clock for Ticking {
    fn now(&self) -> Timestamp {
        Timestamp::from_ms(1_700_000_000_000 + self.0.fetch_add(7, Ordering::Relaxed))
    }

    fn up(&self) -> Uptime {
        Uptime::default()
    }

    fn random(&self) -> u64 {
        4
    }
}

pub struct Key(SecretKey);

impl Key {
    pub fn new() -> Self {
        Self(SecretKey::from_seed(&[7; 32]))
    }
}

impl Signer for Key {
    fn sign(&self, head: &Digest) -> Signed<'_> {
        Signed {
            signature: self.0.sign_hex(&head.to_string()),
            signer: self.0.public().fingerprint(),
        }
    }

    fn sign_text(&self, body: String, at: Timestamp) -> String {
        let token = Token::sign(sha256_hex(&body), &self.0, at);
        format!("<!-- {token} -->\n{body}")
    }

    fn sign_json(&self, object: &Object, at: Timestamp) -> Object {
        let mut signed = object.clone();
        sign_json(&mut signed, &self.0, at);
        signed
    }

    fn verifies(&self, token: &Token) -> bool {
        token.verify(self.0.public()).is_ok()
    }
}

pub struct Rig {
    pub root: tempfile::TempDir,
    clock: Arc<Ticking>,
    pub faults: Faults,
    pub segment_bytes: u64,
    pub seal: SealBounds,
}

impl Rig {
    pub fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join(".ai")).unwrap();
        Self {
            root,
            clock: Arc::default(),
            faults: Faults::default(),
            segment_bytes: 256 * 1024,
            seal: SealBounds {
                idle: Duration::from_millis(10),
                ..SealBounds::default()
            },
        }
    }

    pub fn with_segments_of(segment_bytes: u64) -> Self {
        Self {
            segment_bytes,
            ..Self::new()
        }
    }

    pub fn state(&self) -> PathBuf {
        self.root.path().join("state")
    }

    pub fn ai(&self) -> PathBuf {
        self.root.path().join(".ai")
    }

    pub fn options(&self) -> Options {
        let clock: Arc<dyn Clock> = Arc::<Ticking>::clone(&self.clock);
        Options {
            segment_bytes: self.segment_bytes,
            seal: self.seal,
            memory: Arc::new(Memory::new(1 << 40)),
            ..Options::new(self.state(), clock, Arc::new(Key::new()))
        }
    }

    pub async fn try_open(&self) -> Result<(Journal, Recovered), Error> {
        Journal::open_with(self.options(), self.faults.clone()).await
    }

    pub async fn open(&self) -> Journal {
        self.try_open().await.unwrap().0
    }

    pub fn spec(&self, run: &RunId) -> Spec {
        Spec {
            project: self.root.path().display().to_string(),
            files: self.ai().display().to_string(),
            principal: "uid:0".into(),
            layers: vec![Layer {
                source: "uid:0".into(),
                patterns: vec!["rye.*".into()],
            }],
            content_hash: "00".into(),
            ..Spec::new(
                Task::Graph(GraphTask {
                    source: graph(),
                    start_from: None,
                }),
                ItemRef::tool(ItemId::new("demo/graph").unwrap()),
                id("run-a"),
                Budget::open(run.clone()),
            )
        }
    }

    pub fn create(&self, run: &RunId) -> Change {
        Change::create(run, Arc::new(self.spec(run)))
    }

    pub fn transcript_path(&self, run: &RunId) -> PathBuf {
        self.ai()
            .join("state/threads")
            .join(run.as_str())
            .join("transcript.jsonl")
    }
}

/// The graph of the runs in tests.
pub fn graph() -> GraphSource {
    GraphSource {
        text: "start: a".into(),
        category: "demo".into(),
        version: "1.0.0".into(),
        nodes: 1,
        ..GraphSource::default()
    }
}

pub fn id(text: &str) -> RunId {
    RunId::new(text).unwrap()
}

pub fn change(run: &RunId, event: Event) -> Change {
    Change::event(run, event)
}

/// Decodes the content of an event.
pub fn payload(line: &Line) -> Value {
    serde_json::from_str(&line.payload).unwrap()
}

/// Returns an event that a run emits about itself.
pub fn emits(content: Value) -> Event {
    let name = "content".to_owned();
    Event::from(Emitted { name, content })
}

/// Returns a text that is stored as an object.
pub fn long(text: &str) -> String {
    format!("{text}{}", "-".repeat(70_000))
}

pub fn emitted(run: &RunId, number: usize) -> Change {
    change(run, emits(json!(number)))
}

/// Returns the refusal of a commit, and panics if it was not refused.
pub fn refusal(committed: Result<Committed, Error>) -> Refused {
    match committed {
        Err(Error::Refused(refused)) => refused,
        other => panic!("it was not refused: {other:?}"),
    }
}

pub fn begin(run: &RunId) -> Vec<Change> {
    let events = [
        Event::Run(RunEvent::started(Epoch(1))),
        Event::from(GraphStarted {
            graph_id: "demo/graph".into(),
            graph_run_id: run.clone(),
            start_node: "n".into(),
            state: Object::new().into(),
        }),
        started(1),
    ];
    events.into_iter().map(|event| change(run, event)).collect()
}

pub fn started(step: u32) -> Event {
    Event::from(StepStarted {
        step,
        node: "n".into(),
        visit: step - 1,
        attempt: 1,
        action_id: "tool:rye/core/echo".into(),
        effect: Effect::Idempotent,
        key: "k".into(),
        replays: false,
        now: Timestamp::from_ms(0),
        items: None,
        branches: Vec::new(),
        child: None,
        call: None,
        chain: None,
        node_input_hash: None,
    })
}

pub fn process_started(step: u32, boot_id: &str) -> Event {
    Event::from(ProcessStarted {
        step,
        slot: Slot::Main,
        process: ProcessIdentity {
            pid: 1,
            start_time: 1,
            boot_id: boot_id.to_owned(),
        },
        isolation: None,
        resources: rye_core::model::Resources::default(),
    })
}

pub fn completed(step: u32, value: Value) -> Event {
    Event::from(StepCompleted {
        step,
        node: "n".into(),
        status: StepStatus::Ok,
        elapsed_ms: 1,
        next_node: Some("n".into()),
        assigned: Object::from_iter([("last".to_owned(), value)]).into(),
        error: None,
        suppressed: false,
        output: None,
        action_id: None,
        result: None,
        cache_hit: false,
        node_input_hash: None,
    })
}

/// The end of step `step` and the start of the next, as a running graph commits them.
pub fn turn(run: &RunId, step: u32) -> Vec<Change> {
    vec![
        change(run, completed(step, json!(step))),
        change(run, started(step + 1)),
    ]
}

pub fn finish() -> Event {
    Event::from(GraphCompleted {
        status: Status::Completed,
        steps: 1,
        elapsed_ms: 5,
        output: Arc::new(json!({"done": true})),
    })
}

impl Journal {
    /// Epoch of this process.
    pub fn epoch(&self) -> Epoch {
        self.sequencer.lock().epoch
    }

    /// Commits and waits until that is durable.
    pub async fn put(&self, changes: Vec<Change>) {
        let ticket = self.commit(changes).await.unwrap().ticket;
        self.durable(ticket).await.unwrap();
    }

    /// Creates a run with `steps` completed steps and one open step; returns when all of it is published.
    pub async fn put_run(&self, rig: &Rig, name: &str, steps: u32) -> RunId {
        let run = id(name);
        self.put(vec![rig.create(&run)]).await;
        self.put(begin(&run)).await;
        for step in 1..=steps {
            self.put(turn(&run, step)).await;
        }
        let lsn = self.sequencer.snapshot(&run).unwrap().1;
        self.published(Ticket { lsn }).await.unwrap();
        run
    }

    /// Returns the events of `run` from `from` on, past and new.
    pub async fn subscribe(&self, run: &RunId, from: Seq) -> Result<Lines, Error> {
        let since = Since::Seq(Seq(from.0.saturating_sub(1)));
        let cursor = self.read(Of::Run(run.clone()), since, Until::Ended).await?;
        Ok(Lines(cursor))
    }

    pub async fn record(&self, run: &RunId) -> Arc<Run> {
        self.run(run).await.unwrap().expect("the run exists")
    }
}

#[derive(Debug)]
pub struct Lines(Cursor);

impl Lines {
    pub async fn next(&mut self) -> Option<Result<Line, Error>> {
        let read = self.0.next().await?;
        Some(read.map(|read| read.line().expect("a run is read")))
    }
}

/// Polls until `what` returns a value, for at most one minute.
pub async fn eventually<T>(mut what: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = tokio::time::Instant::now() + Duration::from_mins(1);
    let mut pause = tokio::time::interval(Duration::from_millis(2));
    loop {
        if let Some(found) = what().await {
            return found;
        }
        assert!(
            tokio::time::Instant::now() < deadline,
            "it did not happen within a minute"
        );
        pause.tick().await;
    }
}

/// Returns the text of a file once it has `events` lines of events.
pub async fn transcript(path: &Path, events: u64) -> String {
    eventually(async || {
        let text = fs::read_to_string(path).ok()?;
        let found = text
            .lines()
            .filter(|line| !line.contains(r#""event_type":"checkpoint""#))
            .count();
        (u64::try_from(found).unwrap() >= events && text.ends_with('\n')).then_some(text)
    })
    .await
}

/// Checks every line, hash and signature of a transcript, and returns the events.
pub fn check_transcript(run: &RunId, text: &str) -> Vec<Value> {
    let mut head = Head::default();
    let mut events = Vec::new();
    for line in text.lines() {
        let value: Value = serde_json::from_str(line).unwrap();
        let seq = Seq(value["seq"].as_u64().unwrap());
        assert_eq!(value["prev"], json!(head.hash), "{line}");
        assert_eq!(value["run_id"], json!(run));
        if value["event_type"] == CHECKPOINT {
            assert_eq!(seq, head.seq);
            assert_eq!(value["payload"]["hash"], json!(head.hash));
            let state = value["payload"]["state_hash"].as_str().unwrap();
            head.state = state.parse().unwrap();
            let token = value["payload"]["signature"].as_str().unwrap();
            let token = Token::parse(token).unwrap();
            assert_eq!(token.hash, head.digest(run).to_string());
            assert!(Key::new().verifies(&token));
        } else {
            assert_eq!(seq, head.seq.next());
            head.seq = seq;
            events.push(value);
        }
        head.hash = Digest::of(line);
    }
    events
}

/// Returns every file below `dir` with its content.
pub fn image(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(image(&path));
        } else {
            files.push((path.clone(), fs::read(path).unwrap()));
        }
    }
    files.sort();
    files
}

/// Replaces the content of `dir` by `files`.
pub fn restore(dir: &Path, files: &[(PathBuf, Vec<u8>)]) {
    fs::remove_dir_all(dir).unwrap();
    for (path, content) in files {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
}
