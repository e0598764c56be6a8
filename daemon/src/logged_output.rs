//! Output of a process on its way to the log of its run.
//!
//! If a tool returns JSON on stdout, its stdout is held back as long as it may be the beginning of one document: a
//! result is not logged as output.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rye_item::OutputFormat;
use rye_process::Source;
use rye_process::Tap;
use serde::de::IgnoredAny;

use crate::async_log::OutputWriter;
use crate::chain::OutputForm;

/// Number of held bytes up to which each new piece triggers a check. Beyond it, a check follows each doubling.
const ALWAYS_LOOKED_AT: usize = 4096;
/// Maximum number of held bytes.
const MOST_HELD: usize = 8 << 20;

/// A process that prints.
#[derive(Debug)]
pub struct LoggedOutput {
    log: Arc<OutputWriter>,
    stdout: Arc<Mutex<Stdout>>,
}

#[derive(Debug)]
enum Stdout {
    /// Stdout is logged as it arrives.
    Open,
    /// Stdout may be a result. The process keeps the only copy of it.
    Held {
        format: OutputFormat,
        /// Number of bytes printed so far.
        printed: usize,
        look_at: usize,
    },
}

impl LoggedOutput {
    /// The result is read as `answer` specifies.
    pub fn new(voice: &Arc<OutputWriter>, answer: OutputForm) -> Self {
        let stdout = match answer {
            OutputForm::Shell | OutputForm::Declared(OutputFormat::Text) => Stdout::Open,
            OutputForm::Declared(format) => Stdout::Held {
                format,
                printed: 0,
                look_at: 0,
            },
        };
        Self {
            log: Arc::clone(voice),
            stdout: Arc::new(Mutex::new(stdout)),
        }
    }

    /// Observer of the output of the process.
    pub fn tap(&self) -> Tap {
        let (voice, stdout) = (Arc::clone(&self.log), Arc::clone(&self.stdout));
        Tap::new(move |source, piece, kept| match source {
            Source::Stderr => voice.receive(source, piece),
            Source::Stdout => lock(&stdout).take(&voice, piece, kept),
        })
    }

    /// Ends the output. `kept` is the part of stdout that the process has kept. It is logged if it was held back and is
    /// no result. All output is in the file when this returns.
    pub async fn close(&self, kept: &[u8]) {
        lock(&self.stdout).end(&self.log, kept);
        self.log.close().await;
    }
}

fn lock(stdout: &Mutex<Stdout>) -> MutexGuard<'_, Stdout> {
    stdout.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Stdout {
    /// Receives `piece`. `kept` is the part kept of the stream up to the end of the piece.
    fn take(&mut self, voice: &OutputWriter, piece: &[u8], kept: &[u8]) {
        let Self::Held {
            format,
            printed,
            look_at,
        } = self
        else {
            return voice.receive(Source::Stdout, piece);
        };
        *printed += piece.len();
        let lost = printed.saturating_sub(kept.len());
        if lost == 0 && *printed < *look_at {
            return;
        }
        if lost > 0 || *printed > MOST_HELD || !may_begin_document(*format, kept) {
            voice.receive(Source::Stdout, kept);
            voice.receive(Source::Stdout, &piece[piece.len().saturating_sub(lost)..]);
            *self = Self::Open;
        } else if *printed > ALWAYS_LOOKED_AT {
            *look_at = *printed * 2;
        }
    }

    fn end(&mut self, voice: &OutputWriter, kept: &[u8]) {
        if let Self::Held { format, .. } = *self
            && !is_document(format, kept).is_ok_and(|is_document| is_document)
        {
            voice.receive(Source::Stdout, kept);
        }
        *self = Self::Open;
    }
}

/// True if `printed` is one document of `format`, or may become one with more output.
fn may_begin_document(format: OutputFormat, printed: &[u8]) -> bool {
    is_document(format, printed).unwrap_or_else(|error| error.is_eof())
}

/// True if `printed` is one JSON document that `format` takes as the result.
fn is_document(format: OutputFormat, printed: &[u8]) -> Result<bool, serde_json::Error> {
    let begins = printed.trim_ascii_start().first();
    if format == OutputFormat::Auto && begins.is_some_and(|first| !b"{[".contains(first)) {
        return Ok(false);
    }
    serde_json::from_slice::<IgnoredAny>(printed).map(|IgnoredAny| true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stdout_is_held_only_while_it_may_be_json() {
        for held in [
            "",
            " ",
            "{",
            "{\"a\": [1,",
            "\"tex",
            "12",
            "tru",
            "null",
            "{\"a\": 1}\n",
            "{\"a\": \"\\udce9",
        ] {
            let held = held.as_bytes();
            assert!(may_begin_document(OutputFormat::Json, held), "{held:?}");
            let is_container = !matches!(held, [b'"' | b'1' | b't' | b'n', ..]);
            let is_held = may_begin_document(OutputFormat::Auto, held);
            assert_eq!(is_held, is_container, "{held:?}");
        }
        for text in [
            "building",
            "1 of 3",
            "{a",
            "true story",
            "{} {}",
            "[ok] done",
        ] {
            assert!(
                !may_begin_document(OutputFormat::Json, text.as_bytes()),
                "{text}"
            );
        }
    }
}
