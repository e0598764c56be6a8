//! Files of one run, and the position up to which they are written.
//!
//! **Owns** the state derived from its events: the end of its transcript, its objects, its page. **Order**: lines
//! before the files that show a later state; objects before their referrers, and all of them before the ref. Records
//! and pages are written when the run is suspended or ends, and otherwise once a second. **Failure**: after an error
//! this state is dropped, and a new one begins with the first event of the run.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rye_core::clock::Timestamp;
use rye_core::id::{RunId, Seq};
use rye_core::model::{Object, Run, RunKind, Spec};
use rye_core::process::ProcessView;
use rye_core::transcript::{Fact, Head, Signed};
use serde_json::json;

use super::common::{Change, Stale, Trouble, Writes};
use super::made::{Made, Outlines};
use super::objects::{self, Objects};
use super::transcript::{self, Transcript};
use super::{render, thread_state};
use rye_host::fail_point::FailPlace;
use rye_host::safe_path::{Dir, Found};
use rye_journal::{ExportSource, FoundRun, Money, PublishedRun, Signer, THREADS};

/// Minimum time between two renderings of the record and the page of a running run.
const RENDER_EVERY: Duration = Duration::from_secs(1);
/// Bytes of spilled payloads after which a turn ends.
const MAX_SPILLED: usize = 4 << 20;

/// Parameters of a turn.
pub(super) struct Context<'a> {
    pub(super) source: &'a ExportSource,
    pub(super) signer: &'a dyn Signer,
    /// The `files` directory of the project.
    pub(super) root: &'a Dir,
    pub(super) writes: Writes<'a>,
    /// End of the turn.
    pub(super) until: Instant,
    /// True if files are compared with their expected content, even without new events.
    pub(super) verify: bool,
    /// True if there are no further turns: record and page are written now.
    pub(super) is_last: bool,
    /// Files of runs created before this time are written only by a rebuild.
    pub(super) adopted: Option<Timestamp>,
}

#[derive(Debug)]
pub(super) struct RunFiles {
    run: RunId,
    found: FoundRun,
    head: Head,
    made: Option<Made>,
    objects: Objects,
    open: Option<Open>,
    /// Transcript as last written; `None` before it was opened.
    transcript: Option<Found>,
    /// Time and position of the last write of record and page.
    rendered: Option<(Instant, Head)>,
    pub(super) change: Change,
}

/// Descriptors of a run.
#[derive(Debug)]
struct Open {
    dir: Dir,
    transcript: Transcript,
    pages: Option<Pages>,
}

/// Directories of the page, and of the state page if there is one.
#[derive(Debug)]
struct Pages {
    page: Dir,
    state: Option<Dir>,
}

/// Result of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    /// All is written, and the run is suspended or ended.
    Rested,
    /// All is written.
    Done,
    /// Record and page are due at this time.
    Due(Instant),
    /// There are more events to read.
    More,
}

impl RunFiles {
    pub(super) fn new(run: &RunId, found: FoundRun, outlines: &Outlines) -> Self {
        Self {
            run: run.clone(),
            made: Made::new(run, found.spec(), outlines),
            found,
            head: Head::default(),
            objects: Objects::of(run),
            open: None,
            transcript: None,
            rendered: None,
            change: Change::default(),
        }
    }

    pub(super) fn spec(&self) -> &Spec {
        self.found.spec()
    }

    pub(super) const fn is_open(&self) -> bool {
        self.open.is_some()
    }

    pub(super) fn close(&mut self) {
        self.open = None;
    }

    /// Writes new content. Blocks.
    pub(super) fn advance(&mut self, context: &Context<'_>) -> Result<Progress, Trouble> {
        if self.is_foreign(context)? {
            return Ok(Progress::Rested);
        }
        let mut open = self.opened(context.root)?;
        let progress = self.write(&mut open, context)?;
        self.transcript = Some(open.transcript.found());
        self.open = Some(open);
        Ok(progress)
    }

    /// True if the files belong to the daemon whose state directory was copied to this one.
    fn is_foreign(&self, context: &Context<'_>) -> Result<bool, Trouble> {
        let is_begun = self.head.seq > Seq::default();
        let Some(adopted) = context.adopted.filter(|_| !context.verify && !is_begun) else {
            return Ok(false);
        };
        let events = context.source.events(&self.found, Seq::default())?;
        let created = events.first().map(|event| event.line.timestamp);
        Ok(created.is_some_and(|created| created < adopted))
    }

    fn write(&mut self, open: &mut Open, context: &Context<'_>) -> Result<Progress, Trouble> {
        while self.read(open, context)? {
            if self.objects.is_due() {
                let (root, verify) = (context.root, context.verify);
                let change = self.objects.append(root, verify, &context.writes)?;
                self.add(change);
            }
            if Instant::now() >= context.until {
                return Ok(Progress::More);
            }
        }
        let change = open
            .transcript
            .end(&open.dir, self.head.bytes, &context.writes)?;
        self.add(change);
        let mut wait = None;
        if let Some((at, head)) = self.rendered {
            let due = at + RENDER_EVERY;
            let is_early = Instant::now() < due && !context.is_last;
            wait = (head == self.head || is_early).then_some((head, due));
        }
        if let Some((head, due)) = wait
            && !context.source.may_rest(&self.run, self.head.seq)
        {
            let is_new = head != self.head;
            return Ok(if is_new {
                Progress::Due(due)
            } else {
                Progress::Done
            });
        }
        let Some(shown) = context.source.record(&self.run)? else {
            return Ok(Progress::Rested);
        };
        let rests = shown.run.status().is_terminal() || shown.run.suspension().is_some();
        if rests && shown.run.seq == self.head.seq {
            self.settle(context, &shown.run)?;
            // No later write follows, so the directories are opened again to be the current ones.
            open.pages = None;
            self.render(open, context, &shown)?;
            return Ok(Progress::Rested);
        }
        if self.rendered.is_none() {
            self.append(context)?;
        }
        self.render(open, context, &shown)?;
        Ok(Progress::Done)
    }

    /// Reads the next page of events and writes their lines. Returns false at the end.
    fn read(&mut self, open: &mut Open, context: &Context<'_>) -> Result<bool, Trouble> {
        let events = context.source.events(&self.found, self.head.seq)?;
        if events.is_empty() {
            return Ok(false);
        }
        let (start, mut lines, mut spilled) = (self.head.bytes, Vec::new(), 0);
        for event in events {
            let line = &event.line;
            let fact = Fact {
                run: &self.run,
                seq: line.seq,
                at: line.timestamp,
                name: &line.event_type,
                payload: &line.payload,
            };
            let signed = event.signed.as_ref().map(|(signature, signer)| Signed {
                signature: *signature,
                signer,
            });
            self.head.write(&fact, signed.as_ref(), &mut lines);
            if let Some(made) = &mut self.made {
                let whole = context.source.event(&self.run, line)?;
                made.take(line.seq, line.timestamp, &whole, &mut self.objects);
            }
            spilled += event.spilled;
            if spilled > MAX_SPILLED {
                break;
            }
        }
        let change = open
            .transcript
            .put(&open.dir, start, &lines, &context.writes)?;
        self.add(change);
        Ok(true)
    }

    /// Writes the files that show the record, and the page.
    fn render(
        &mut self,
        open: &mut Open,
        context: &Context<'_>,
        shown: &PublishedRun,
    ) -> Result<(), Trouble> {
        let PublishedRun { run, money } = shown;
        let cost = &money.cost;
        self.put_record(
            open,
            context,
            "thread.json",
            run,
            &render::thread(run, cost),
        )?;
        if let Some(process) = ProcessView::of(run, run.updated_at) {
            self.put_record(open, context, "process.json", run, &process.file())?;
        }
        self.put_thread_state(open, context, run, money)?;
        self.put_pages(open, context, shown)?;
        self.rendered = Some((Instant::now(), self.head));
        Ok(())
    }

    fn put_pages(
        &mut self,
        open: &mut Open,
        context: &Context<'_>,
        shown: &PublishedRun,
    ) -> io::Result<()> {
        let Some((page, at)) = self.made.as_ref().map(Made::page) else {
            return Ok(());
        };
        let PublishedRun { run, money } = shown;
        let state_page = render::state_page(run, &money.cost);
        let pages = match open.pages.take() {
            Some(pages) => pages,
            None => self.pages(context.root, state_page.is_some())?,
        };
        let name = format!("{}.md", self.run);
        context.writes.reach(FailPlace::ExportPage)?;
        if let Some((dir, page)) = pages.state.as_ref().zip(state_page) {
            let page = context.signer.sign_text(page, run.updated_at);
            self.put(dir, context, &name, page.as_bytes())?;
        }
        let page = context.signer.sign_text(page, at);
        context.writes.reach(FailPlace::ExportPage)?;
        self.put(&pages.page, context, &name, page.as_bytes())?;
        open.pages = Some(pages);
        Ok(())
    }

    fn put_thread_state(
        &mut self,
        open: &Open,
        context: &Context<'_>,
        run: &Run,
        money: &Money,
    ) -> io::Result<()> {
        let Some(state) = thread_state::state(run, money) else {
            return Ok(());
        };
        match thread_state::escalation(run, &money.cost) {
            Some(escalation) => {
                self.put_record(open, context, "escalation.json", run, &escalation)?;
            }
            None => drop(open.dir.remove("escalation.json")?),
        }
        self.put_record(open, context, "state.json", run, &state)
    }

    /// Writes the last objects of a suspended or ended run: its snapshot, and the ref to it.
    fn settle(&mut self, context: &Context<'_>, run: &Run) -> Result<(), Trouble> {
        let made = self.made.as_ref();
        let Some((state, execution)) = made.and_then(|made| made.snapshots(run)) else {
            return Ok(());
        };
        let pointer = Object::from_iter([
            ("hash".to_owned(), json!(execution.hash)),
            ("graph_run_id".to_owned(), json!(run.id)),
        ]);
        let pointer = context.signer.sign_json(&pointer, run.updated_at);
        let pointer = serde_json::to_vec(&pointer).expect("a JSON object is plain data");
        self.objects.add(state);
        self.objects.add(execution);
        self.append(context)?;
        objects::put_ref(context.root, &self.run, &pointer, &context.writes)?;
        Ok(())
    }

    /// Appends the objects up to now. All later ones are new.
    fn append(&mut self, context: &Context<'_>) -> Result<(), Trouble> {
        let (root, verify) = (context.root, context.verify);
        let change = self.objects.append(root, verify, &context.writes)?;
        self.add(change);
        self.objects.caught_up();
        Ok(())
    }

    fn put_record(
        &mut self,
        open: &Open,
        context: &Context<'_>,
        name: &str,
        run: &Run,
        object: &Object,
    ) -> io::Result<()> {
        let signed = context.signer.sign_json(object, run.updated_at);
        let mut text = serde_json::to_vec_pretty(&signed).expect("a JSON object is plain data");
        text.push(b'\n');
        context.writes.reach(FailPlace::ExportRecord)?;
        self.put(&open.dir, context, name, &text)
    }

    /// Returns the permission bits of the files of the run: a conversation is for its user alone.
    fn mode(&self) -> u32 {
        match self.spec().kind() {
            RunKind::Thread => 0o600,
            RunKind::Graph | RunKind::Tool | RunKind::Process => 0o666,
        }
    }

    /// Replaces the file `name`; with `verify`, only if its content differs.
    fn put(&mut self, dir: &Dir, context: &Context<'_>, name: &str, text: &[u8]) -> io::Result<()> {
        if context.verify {
            let most = u64::try_from(text.len()).map_err(io::Error::other)?;
            match dir.read(name, most) {
                Ok(Some(there)) if there == text => return Ok(()),
                Ok(None) => {}
                // Any other file or error counts as a difference.
                Ok(Some(_)) | Err(_) => self.change.replaced = true,
            }
        }
        self.change.written = true;
        dir.replace_with(name, text, self.mode())
    }

    fn add(&mut self, change: Change) {
        self.change.written |= change.written;
        self.change.replaced |= change.replaced;
    }

    /// Opens the run's directory and transcript, or checks that the open ones are still at their paths.
    fn opened(&mut self, root: &Dir) -> Result<Open, Trouble> {
        let dir = PathBuf::from(THREADS).join(self.run.as_str());
        let open = if let Some(open) = self.open.take() {
            let found = root.find(&dir.join(transcript::NAME))?;
            if found != Some(open.transcript.found()) {
                return Err(Trouble::Stale(Stale));
            }
            open
        } else {
            let dir = run_dir(root, &dir)?;
            Open {
                transcript: Transcript::open(&dir, self.mode())?,
                dir,
                pages: None,
            }
        };
        let is_known = self
            .transcript
            .is_none_or(|known| known == open.transcript.found());
        if is_known {
            Ok(open)
        } else {
            Err(Trouble::Stale(Stale))
        }
    }

    fn pages(&self, root: &Dir, has_state: bool) -> io::Result<Pages> {
        let item = self.spec().item.id.as_str();
        let state = has_state.then(|| root.pages("knowledge/graphs", item));
        Ok(Pages {
            page: root.pages("knowledge/agent/threads", item)?,
            state: state.transpose()?,
        })
    }
}

/// Opens the directory of a run at `path`, and creates it if it is missing.
fn run_dir(root: &Dir, path: &Path) -> io::Result<Dir> {
    match root.enter(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let state = root.state()?;
            let below = path.strip_prefix("state").map_err(io::Error::other)?;
            state.make(below)
        }
        entered => entered,
    }
}
