//! Notices that the reader of a pipe has closed its end.

use std::future::pending;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

const INTEREST: Interest = Interest::WRITABLE.add(Interest::ERROR);

/// Watches the other end of stdout. The default watches nothing.
#[derive(Debug, Default)]
pub(crate) struct ReaderWatch(Option<AsyncFd<OwnedFd>>);

impl ReaderWatch {
    /// Watches stdout if it is a pipe or a socket. Needs a runtime.
    pub(super) fn of_stdout() -> Self {
        Self::of(io::stdout().as_fd())
    }

    #[expect(
        unsafe_code,
        reason = "the poller takes a descriptor that must stay open"
    )]
    fn of(end: impl AsFd) -> Self {
        let Ok(end) = end.as_fd().try_clone_to_owned() else {
            return Self::default();
        };
        // SAFETY: the descriptor is owned, and is closed only after its registration.
        let watched = unsafe { AsyncFd::register_with_interest(end, INTEREST) };
        // A file has no reader that can go away, and cannot be polled.
        Self(watched.ok())
    }

    /// Returns when the reader has gone, once. Cancel safe.
    pub(crate) async fn gone(&mut self) {
        while let Some(end) = &self.0 {
            let Ok(mut guard) = end.ready(INTEREST).await else {
                self.0 = None;
                break;
            };
            let ready = guard.ready();
            if ready.is_error() || ready.is_write_closed() {
                self.0 = None;
                return;
            }
            // Room to write is no news; the next event is.
            guard.clear_ready();
        }
        pending::<()>().await;
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _, pipe};
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    const MOMENT: Duration = Duration::from_millis(20);
    const PATIENCE: Duration = Duration::from_secs(10);

    #[tokio::test]
    async fn closed_reader_is_noticed_without_a_write() {
        let (mut reader, mut writer) = pipe().unwrap();
        let mut watch = ReaderWatch::of(&writer);
        assert!(timeout(MOMENT, watch.gone()).await.is_err());
        // A reader that reads is there.
        writer.write_all(b"text").unwrap();
        reader.read_exact(&mut [0; 4]).unwrap();
        assert!(timeout(MOMENT, watch.gone()).await.is_err());
        drop(reader);
        timeout(PATIENCE, watch.gone()).await.unwrap();
        assert!(timeout(MOMENT, watch.gone()).await.is_err());

        let (reader, writer) = UnixStream::pair().unwrap();
        let mut watch = ReaderWatch::of(&writer);
        assert!(timeout(MOMENT, watch.gone()).await.is_err());
        drop(reader);
        timeout(PATIENCE, watch.gone()).await.unwrap();
    }

    #[tokio::test]
    async fn file_has_no_reader() {
        let file = tempfile::tempfile().unwrap();
        let mut watch = ReaderWatch::of(&file);
        assert!(watch.0.is_none());
        assert!(timeout(MOMENT, watch.gone()).await.is_err());
    }
}
