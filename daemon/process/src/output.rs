//! The three pipes of a process.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;

use rye_core::memory::{Charge, Memory};

use super::ending::Captured;
use super::masking::{MaskedStream, Masker};
use super::plan::{Source, Tap};

/// Bytes per read: the default capacity of a pipe.
const CHUNK: usize = 64 * 1024;

/// Length of a stream in bytes from which on its buffer is reserved in one step: a buffer that grows step by step
/// fragments the daemon's memory.
const MANY: usize = 256 * 1024;
/// Maximum reservation in bytes.
const ROOM: usize = 8 << 20;

/// The daemon's ends of the pipes.
#[derive(Debug)]
pub(super) struct Pipes {
    /// Pipe and input; `None` if the process reads `/dev/null`.
    pub(super) stdin: Option<(OwnedFd, Vec<u8>)>,
    /// `None` if another reader has taken it.
    pub(super) stdout: Option<OwnedFd>,
    pub(super) stderr: OwnedFd,
}

/// The pipes in use.
#[derive(Debug)]
pub(super) struct Streams {
    stdin: Option<(pipe::Sender, Vec<u8>)>,
    stdout: Option<Capture>,
    stderr: Capture,
}

impl Streams {
    /// Takes the pipes; must be called in a runtime. `limit` is the maximum number of bytes kept per stream.
    pub(super) fn open(
        pipes: Pipes,
        limit: usize,
        memory: &Arc<Memory>,
        masker: &Arc<Masker>,
        tap: Option<Tap>,
    ) -> io::Result<Self> {
        let open = |pipe, source, tap| {
            let stream = MaskedStream::new(Arc::clone(masker));
            Capture::open(pipe, limit, memory.open(), source, stream, tap)
        };
        let stdin = match pipes.stdin {
            Some((fd, bytes)) => Some((pipe::Sender::from_owned_fd(fd)?, bytes)),
            None => None,
        };
        Ok(Self {
            stdin,
            stdout: pipes
                .stdout
                .map(|pipe| open(pipe, Source::Stdout, tap.clone()))
                .transpose()?,
            stderr: open(pipes.stderr, Source::Stderr, tap)?,
        })
    }

    /// Transfers data until both outputs are closed and the input is written. Dropping the future keeps what was read
    /// so far.
    pub(super) async fn pump(&mut self) -> io::Result<()> {
        let stdin = self.stdin.take();
        let feed = async {
            match stdin {
                Some((pipe, bytes)) => feed(pipe, bytes).await,
                None => Ok(()),
            }
        };
        let stdout = async {
            match &mut self.stdout {
                Some(stdout) => stdout.drain().await,
                None => Ok(()),
            }
        };
        tokio::try_join!(feed, stdout, self.stderr.drain()).map(drop)
    }

    /// True if all output was read.
    pub(super) fn have_ended(&self) -> bool {
        self.stderr.ended && self.stdout.as_ref().is_none_or(|stdout| stdout.ended)
    }

    /// Captured stdout and stderr, and the memory charge for both.
    pub(super) fn into_captured(mut self) -> (Captured, Captured, Charge) {
        self.stderr.release();
        if let Some(stdout) = &mut self.stdout {
            stdout.release();
        }
        let mut charge = self.stderr.charge;
        let stdout = self.stdout.map(|stdout| {
            charge.join(stdout.charge);
            stdout.captured
        });
        let (mut stdout, mut stderr) = (stdout.unwrap_or_default(), self.stderr.captured);
        stdout.bytes.shrink_to_fit();
        stderr.bytes.shrink_to_fit();
        (stdout, stderr, charge)
    }
}

/// Writes `bytes` and closes the pipe. A process need not read its input: a closed pipe counts as success.
async fn feed(mut pipe: pipe::Sender, bytes: Vec<u8>) -> io::Result<()> {
    match pipe.write_all(&bytes).await {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// One stream while it is read.
#[derive(Debug)]
pub(super) struct Capture {
    pipe: pipe::Receiver,
    captured: Captured,
    limit: usize,
    /// Memory charge for the kept bytes.
    charge: Charge,
    ended: bool,
    source: Source,
    masked: MaskedStream,
    tap: Option<Tap>,
}

impl Capture {
    fn open(
        pipe: OwnedFd,
        limit: usize,
        charge: Charge,
        source: Source,
        masked: MaskedStream,
        tap: Option<Tap>,
    ) -> io::Result<Self> {
        Ok(Self {
            pipe: pipe::Receiver::from_owned_fd(pipe)?,
            captured: Captured::default(),
            limit,
            charge,
            ended: false,
            source,
            masked,
            tap,
        })
    }

    /// Reads until the last writer closes the pipe. Bytes beyond the limit are only counted, so that the writer never
    /// blocks.
    async fn drain(&mut self) -> io::Result<()> {
        let mut chunk = Vec::with_capacity(CHUNK);
        while self.pipe.read_buf(&mut chunk).await? > 0 {
            self.receive(&chunk);
            chunk.clear();
        }
        self.ended = true;
        Ok(())
    }

    fn receive(&mut self, chunk: &[u8]) {
        let decided = self.masked.push(chunk);
        if !decided.is_empty() {
            self.take(&decided);
        }
    }

    /// Takes what was held back as a possible secret.
    fn release(&mut self) {
        let held = self.masked.end();
        if !held.is_empty() {
            self.take(&held);
        }
    }

    /// Takes bytes without secrets.
    fn take(&mut self, chunk: &[u8]) {
        let room = self.limit.saturating_sub(self.captured.bytes.len());
        let kept = &chunk[..chunk.len().min(room)];
        if self.charge.grow(kept.len()) {
            let bytes = &mut self.captured.bytes;
            let most = self.limit.min(ROOM);
            if bytes.len() + kept.len() > MANY && bytes.capacity() < most {
                // Pages that are not written take no memory.
                bytes.reserve_exact(most - bytes.len());
            }
            self.captured.bytes.extend_from_slice(kept);
        } else {
            // Only the beginning before this chunk is kept.
            self.limit = self.captured.bytes.len();
            self.captured.is_starved = true;
        }
        self.captured.total += u64::try_from(chunk.len()).expect("lengths fit 64 bits");
        if let Some(tap) = &self.tap {
            tap.report(self.source, chunk, &self.captured.bytes);
        }
    }
}
