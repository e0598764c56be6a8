//! What a process prints, on its way into the log of its run.
//!
//! Of a tool whose result is JSON on stdout, stdout is held back for as long as it may be the beginning of one document: a result is no
//! line of output.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::de::IgnoredAny;

use crate::async_log::{Source, Voice};
use crate::chain::Answer;
use crate::process::Tap;

/// Bytes up to which what is held back is looked at whenever there is more of it; beyond that when it has doubled.
const ALWAYS_LOOKED_AT: usize = 4096;
/// The most that is held back.
const MOST_HELD: usize = 8 << 20;

/// One process, while it prints.
#[derive(Debug)]
pub(super) struct Live {
    voice: Arc<Voice>,
    stdout: Arc<Mutex<Stdout>>,
}

/// What is done with stdout.
#[derive(Debug)]
enum Stdout {
    /// It is handed on.
    Open,
    /// It may be a result. Of what was printed the process keeps the only copy.
    Held {
        /// Bytes that were printed.
        printed: usize,
        look_at: usize,
    },
}

impl Live {
    /// A process whose result is read as `answer` says.
    pub(super) fn new(voice: &Arc<Voice>, answer: Answer) -> Self {
        let stdout = match answer {
            Answer::Shell => Stdout::Open,
            Answer::Json => Stdout::Held {
                printed: 0,
                look_at: 0,
            },
        };
        Self {
            voice: Arc::clone(voice),
            stdout: Arc::new(Mutex::new(stdout)),
        }
    }

    /// Who is to be told what it prints.
    pub(super) fn tap(&self) -> Tap {
        let (voice, stdout) = (Arc::clone(&self.voice), Arc::clone(&self.stdout));
        Tap::new(move |source, piece, kept| match source {
            Source::Stderr => voice.hear(source, piece),
            Source::Stdout => lock(&stdout).take(&voice, piece, kept),
        })
    }

    /// It has ended, and `kept` is what is left of stdout: what was held back and is no result is handed on, and everything is written.
    pub(super) async fn close(&self, kept: &[u8]) {
        lock(&self.stdout).end(&self.voice, kept);
        self.voice.close().await;
    }
}

fn lock(stdout: &Mutex<Stdout>) -> MutexGuard<'_, Stdout> {
    stdout.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Stdout {
    /// Takes the next `piece`, up to which `kept` is left of the stream.
    fn take(&mut self, voice: &Voice, piece: &[u8], kept: &[u8]) {
        let Self::Held { printed, look_at } = self else {
            return voice.hear(Source::Stdout, piece);
        };
        *printed += piece.len();
        let lost = printed.saturating_sub(kept.len());
        if lost == 0 && *printed < *look_at {
            return;
        }
        if lost > 0 || *printed > MOST_HELD || !may_begin_document(kept) {
            voice.hear(Source::Stdout, kept);
            voice.hear(Source::Stdout, &piece[piece.len().saturating_sub(lost)..]);
            *self = Self::Open;
        } else if *printed > ALWAYS_LOOKED_AT {
            *look_at = *printed * 2;
        }
    }

    fn end(&mut self, voice: &Voice, kept: &[u8]) {
        if let Self::Held { .. } = self
            && serde_json::from_slice::<IgnoredAny>(kept).is_err()
        {
            voice.hear(Source::Stdout, kept);
        }
        *self = Self::Open;
    }
}

/// Whether more of it may make one JSON document of it, if it is none yet.
fn may_begin_document(printed: &[u8]) -> bool {
    match serde_json::from_slice::<IgnoredAny>(printed) {
        Ok(IgnoredAny) => true,
        Err(error) => error.is_eof(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_may_be_a_result_is_held_back() {
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
            assert!(may_begin_document(held.as_bytes()), "{held}");
        }
        for text in [
            "building",
            "1 of 3",
            "{a",
            "true story",
            "{} {}",
            "[ok] done",
        ] {
            assert!(!may_begin_document(text.as_bytes()), "{text}");
        }
    }
}
