//! Blocks: lines of runs, packed until a block is full.
//!
//! A line `{"run":ID}` names the run of the lines after it. An event is
//! `[seq,lsn,place,ms,"type",payload,flags,"signature"]`; events without a signature have no last element. Records and
//! index entries have one line for each run.

use std::borrow::Cow;
use std::io;

use rye_core::clock::Timestamp;
use rye_core::id::{Lsn, RunId, Seq};
use rye_core::seal::Signature;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::frames::FrameWriter;
use super::payload::{self, EVENTS, damaged};
use super::section::Event;

/// Limit in bytes on the text of a block that has more than one line.
pub(super) const BLOCK_BYTES: usize = 128 << 10;

/// Bytes around the id in the line that names a run, and two line feeds.
const RUN_LINE_BYTES: usize = r#"{"run":""}"#.len() + 2;

/// Flag: no event of the commit follows.
const LAST_OF_COMMIT: u8 = 1;
/// Flag: the payload is a reference to an object.
const OBJECT: u8 = 2;

#[derive(Serialize, Deserialize)]
struct RunLine {
    run: RunId,
}

#[derive(Serialize, Deserialize)]
struct EventLine<'a>(
    Seq,
    Lsn,
    u32,
    i64,
    #[serde(borrow)] Cow<'a, str>,
    #[serde(borrow)] &'a RawValue,
    u8,
    #[serde(default, skip_serializing_if = "Option::is_none")] Option<String>,
);

/// Returns the line of `event` without its line feed.
pub(super) fn event_line(event: &Event) -> io::Result<Vec<u8>> {
    let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
    let line = EventLine(
        event.seq,
        event.lsn,
        event.place,
        event.at.ms(),
        Cow::Borrowed(&event.event_type),
        &event.payload,
        flag(event.is_last_of_commit, LAST_OF_COMMIT) | flag(event.is_object, OBJECT),
        event.signature.map(|signature| signature.to_string()),
    );
    Ok(serde_json::to_vec(&line)?)
}

fn read_event(line: &[u8]) -> io::Result<Event> {
    let EventLine(seq, lsn, place, ms, event_type, payload, flags, signature) =
        serde_json::from_slice(line)?;
    let signature = signature
        .map(|text| Signature::parse(&text).ok_or_else(|| damaged("a signature in it is invalid")));
    Ok(Event {
        seq,
        lsn,
        place,
        at: Timestamp::from_ms(ms),
        event_type: event_type.into(),
        payload: payload.to_owned(),
        is_object: flags & OBJECT != 0,
        is_last_of_commit: flags & LAST_OF_COMMIT != 0,
        signature: signature.transpose()?,
    })
}

/// Returns the events of the runs that `wanted` selects, in the order of the block.
pub(super) fn read_events(
    text: &[u8],
    wanted: impl Fn(&RunId) -> bool,
) -> io::Result<Vec<(RunId, Event)>> {
    let (mut events, mut run) = (Vec::new(), None);
    for line in payload::lines(text, EVENTS)? {
        if line.starts_with(b"{") {
            let RunLine { run: id } = serde_json::from_slice(line)?;
            run = Some(id).filter(&wanted);
        } else if let Some(run) = &run {
            events.push((RunId::clone(run), read_event(line)?));
        }
    }
    Ok(events)
}

/// Returns the lines of records or entries, one for each run, in the order of the block.
pub(super) fn read_texts(text: &[u8], form: &str) -> io::Result<Vec<(RunId, Vec<u8>)>> {
    let mut lines = payload::lines(text, form)?;
    let mut texts = Vec::new();
    while let Some(line) = lines.next() {
        let RunLine { run } = serde_json::from_slice(line)?;
        let text = lines.next().and_then(|text| text.strip_suffix(b"\n"));
        let text = text.ok_or_else(|| damaged("its last line is missing"))?;
        texts.push((run, text.to_vec()));
    }
    Ok(texts)
}

/// Returns the lines of `text` without those of runs that `is_kept` rejects.
pub(super) fn retain(
    text: &[u8],
    form: &str,
    is_kept: impl Fn(&RunId) -> bool,
) -> io::Result<Vec<u8>> {
    let mut kept = payload::begin(form);
    let (mut is_in, mut is_run) = (false, false);
    for line in payload::lines(text, form)? {
        // The text of a record or an entry may begin like the line that names a run. Each follows such a line.
        is_run = if form == EVENTS {
            line.starts_with(b"{")
        } else {
            !is_run
        };
        if is_run {
            let RunLine { run } = serde_json::from_slice(line)?;
            is_in = is_kept(&run);
        }
        if is_in {
            kept.extend_from_slice(line);
        }
    }
    Ok(kept)
}

/// Packs lines of one form into blocks.
pub(super) struct Packer<'f, 'w> {
    frames: &'f mut FrameWriter<'w>,
    form: &'static str,
    text: Vec<u8>,
    /// Run of the last line; `None` if the block is empty.
    run: Option<RunId>,
}

impl<'f, 'w> Packer<'f, 'w> {
    pub(super) fn new(frames: &'f mut FrameWriter<'w>, form: &'static str) -> Self {
        let text = payload::begin(form);
        let run = None;
        Self {
            frames,
            form,
            text,
            run,
        }
    }

    /// Adds a line of `run`. Returns the index of its block in the section.
    pub(super) fn push(&mut self, run: &RunId, line: &[u8]) -> io::Result<u32> {
        if line.contains(&b'\n') {
            let reason = format!("a text of run {run} has a line break");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        }
        let needed = run.as_str().len() + line.len() + RUN_LINE_BYTES;
        if self.run.is_some() && self.text.len() + needed > BLOCK_BYTES {
            self.flush()?;
        }
        if self.run.as_ref() != Some(run) {
            let run = RunLine { run: run.clone() };
            serde_json::to_writer(&mut self.text, &run)?;
            self.text.push(b'\n');
            self.run = Some(run.run);
        }
        self.text.extend_from_slice(line);
        self.text.push(b'\n');
        u32::try_from(self.frames.blocks.len()).map_err(io::Error::other)
    }

    /// Writes the block that is being packed, if it has lines.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        if self.run.take().is_some() {
            let text = std::mem::replace(&mut self.text, payload::begin(self.form));
            self.frames.write_block(&text)?;
        }
        Ok(())
    }
}
