//! Interruptions that end a verb early: signals, and a reader of stdout that goes away.

use std::fs;
use std::future::poll_fn;
use std::task::Poll;

use rye_client::exit::{Exit, Interruption};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::local_error::LocalError;
use crate::output::ReaderWatch;

/// Listens for interruptions. A signal that this process was started to ignore, as by `nohup`, stays ignored.
#[derive(Debug)]
pub(super) struct Interruptions {
    signals: Vec<(Interruption, Signal)>,
    reader: ReaderWatch,
}

impl Interruptions {
    /// Listens for Ctrl-C.
    pub(super) fn of_keyboard() -> Result<Self, LocalError> {
        Self::of(&[Interruption::Keyboard])
    }

    /// Listens for Ctrl-C, for TERM, and for the end of the terminal.
    pub(super) fn all() -> Result<Self, LocalError> {
        Self::of(&[
            Interruption::Keyboard,
            Interruption::Termination,
            Interruption::HangUp,
        ])
    }

    fn of(kinds: &[Interruption]) -> Result<Self, LocalError> {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let heard = kinds.iter().filter(|kind| !is_ignored(&status, **kind));
        let signals = heard.map(|kind| {
            let listening = signal(SignalKind::from_raw(kind.signal().into()));
            let listening = listening.map_err(|error| {
                LocalError::because(Exit::Internal, "cannot listen for signals", error)
            })?;
            Ok((*kind, listening))
        });
        Ok(Self {
            signals: signals.collect::<Result<_, LocalError>>()?,
            reader: ReaderWatch::default(),
        })
    }

    /// Adds the reader of stdout.
    pub(super) fn and_reader(self, reader: ReaderWatch) -> Self {
        Self { reader, ..self }
    }

    /// Waits for the next interruption.
    pub(super) async fn next(&mut self) -> Interruption {
        let Self { signals, reader } = self;
        let signal = poll_fn(|cx| {
            let mut signals = signals.iter_mut();
            let due =
                signals.find_map(|(kind, signal)| signal.poll_recv(cx).is_ready().then_some(*kind));
            due.map_or(Poll::Pending, Poll::Ready)
        });
        tokio::select! {
            kind = signal => kind,
            () = reader.gone() => Interruption::ReaderGone,
        }
    }
}

/// True if the process with this `/proc/PID/status` ignores the signal of `kind`.
fn is_ignored(status: &str, kind: Interruption) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (kind.signal() - 1) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_in_the_mask_of_the_process() {
        let status =
            "SigBlk:\t0000000000000003\nSigIgn:\t0000000000001001\nSigCgt:\t0000000000004002\n";
        assert!(is_ignored(status, Interruption::HangUp));
        assert!(!is_ignored(status, Interruption::Keyboard));
        assert!(!is_ignored(status, Interruption::Termination));
        assert!(!is_ignored("", Interruption::HangUp));
    }
}
