//! Clients that send the path of the socket as `:authority`.
//!
//! The gRPC libraries of C, Python, Java and Swift do so on a Unix socket, and our HTTP/2 server refuses such a request
//! before any service is called. [`Lenient`] replaces an invalid authority with [`INSTEAD`] as the bytes are read. It
//! changes nothing else of the protocol.
//!
//! **Order.** The frames of a header block are held until the block is complete. If the authority of the first request
//! is valid, everything passes unchanged from then on. Otherwise all later header blocks of the connection are decoded
//! and encoded again, because HPACK refers to earlier fields. **Failure.** Data that is not HTTP/2, or exceeds the
//! bounds below, passes unchanged; the server refuses it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use loona_hpack::{Decoder, Encoder};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tonic::codegen::http::uri;
use tonic::transport::server::Connected;

/// Replacement for an invalid authority.
const INSTEAD: &[u8] = b"localhost";
/// Length of the HTTP/2 connection preface, in bytes.
const PREFACE: usize = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".len();
/// Bytes of a frame header.
const HEAD: usize = 9;
/// Most bytes of a frame that the server accepts.
const MOST_FRAME: usize = 16_384;
/// Most bytes of the frames of a header block.
const MOST_BLOCK: usize = 64 << 10;
/// Most bytes of the decoded fields of a header block.
const MOST_HEADERS: usize = 256 << 10;
/// Bytes per read.
const CHUNK: usize = 16 << 10;

const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 0x1;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

/// A connection whose requests reach the server with a valid authority.
#[derive(Debug)]
pub(super) struct Lenient<S> {
    stream: S,
    /// `None` once everything passes unchanged.
    filter: Option<Box<Filter>>,
    /// Bytes that were read; those from `given` on are still to be delivered.
    ready: Vec<u8>,
    given: usize,
}

impl<S> Lenient<S> {
    pub(super) fn new(stream: S) -> Self {
        Self {
            stream,
            filter: Some(Box::default()),
            ready: Vec::new(),
            given: 0,
        }
    }

    fn hand_out(&mut self, buf: &mut ReadBuf<'_>) {
        let left = &self.ready[self.given..];
        let count = left.len().min(buf.remaining());
        buf.put_slice(&left[..count]);
        self.given += count;
        if self.given == self.ready.len() {
            self.ready = Vec::new();
            self.given = 0;
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Lenient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        loop {
            if this.given < this.ready.len() {
                this.hand_out(buf);
                return Poll::Ready(Ok(()));
            }
            let Some(filter) = &mut this.filter else {
                return Pin::new(&mut this.stream).poll_read(cx, buf);
            };
            let mut chunk = [0; CHUNK];
            let mut read = ReadBuf::new(&mut chunk);
            ready!(Pin::new(&mut this.stream).poll_read(cx, &mut read))?;
            if read.filled().is_empty() {
                // End of the stream. An incomplete frame that the filter may hold is dropped.
                return Poll::Ready(Ok(()));
            }
            if filter.take(read.filled(), &mut this.ready) == Passes::All {
                this.filter = None;
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Lenient<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

impl<S: Connected> Connected for Lenient<S> {
    type ConnectInfo = S::ConnectInfo;

    fn connect_info(&self) -> Self::ConnectInfo {
        self.stream.connect_info()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Passes {
    /// The filter inspects the frames that follow.
    Frames,
    /// All bytes that follow pass unchanged.
    All,
}

/// State of a connection until its bytes pass unchanged.
#[derive(Debug, Default)]
struct Filter {
    at: At,
    /// The part received so far of the preface, a frame header or a `HEADERS` frame.
    unit: Vec<u8>,
    /// The frames of the current header block, as received.
    frames: Vec<u8>,
    /// Header of the first of `frames`.
    first: Option<Frame>,
    /// Header block of `frames`, without padding and priority.
    block: Vec<u8>,
    codec: Option<Codec>,
}

#[derive(Debug, Default, Clone, Copy)]
enum At {
    #[default]
    Preface,
    Head,
    /// Body of a `HEADERS` or `CONTINUATION` frame.
    Headers(Frame),
    /// Number of bytes left of a frame that passes unchanged.
    Passing(usize),
}

struct Codec {
    decoder: Decoder<'static>,
    encoder: Encoder<'static>,
    /// True once a block was encoded here; then all later ones must be, as the encoder's table differs.
    rewrites: bool,
}

impl std::fmt::Debug for Codec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Codec").field(&self.rewrites).finish()
    }
}

impl Filter {
    /// Consumes `read` and appends to `out` what may pass.
    fn take(&mut self, mut read: &[u8], out: &mut Vec<u8>) -> Passes {
        while !read.is_empty() {
            let wanted = match self.at {
                At::Preface => PREFACE,
                At::Head => HEAD,
                At::Headers(frame) => frame.length,
                At::Passing(left) => left,
            };
            let (taken, rest) = read.split_at(read.len().min(wanted - self.unit.len()));
            read = rest;
            if let At::Passing(left) = &mut self.at {
                out.extend_from_slice(taken);
                *left -= taken.len();
                if *left == 0 {
                    self.at = At::Head;
                }
                continue;
            }
            self.unit.extend_from_slice(taken);
            if self.unit.len() == wanted && self.whole(out) == Passes::All {
                out.append(&mut self.frames);
                out.append(&mut self.unit);
                out.extend_from_slice(read);
                return Passes::All;
            }
        }
        Passes::Frames
    }

    /// Handles a complete unit.
    fn whole(&mut self, out: &mut Vec<u8>) -> Passes {
        match self.at {
            At::Preface => {
                out.append(&mut self.unit);
                self.at = At::Head;
                Passes::Frames
            }
            At::Head => self.head(out),
            At::Headers(frame) => self.headers(frame, out),
            At::Passing(_) => Passes::Frames,
        }
    }

    /// Handles a complete frame header.
    fn head(&mut self, out: &mut Vec<u8>) -> Passes {
        let Some(frame) = Frame::read(&self.unit) else {
            return Passes::All;
        };
        // RFC 9113: the frames of a block are consecutive, and only a `CONTINUATION` frame continues one.
        let continues = frame.kind == CONTINUATION;
        if frame.length > MOST_FRAME || continues != self.first.is_some() {
            return Passes::All;
        }
        if continues || frame.kind == HEADERS {
            self.frames.append(&mut self.unit);
            self.at = At::Headers(frame);
            if frame.length == 0 {
                return self.headers(frame, out);
            }
        } else {
            out.append(&mut self.unit);
            if frame.length > 0 {
                self.at = At::Passing(frame.length);
            }
        }
        Passes::Frames
    }

    /// Handles a complete `HEADERS` or `CONTINUATION` frame.
    fn headers(&mut self, frame: Frame, out: &mut Vec<u8>) -> Passes {
        let Some(fragment) = frame.fragment(&self.unit) else {
            return Passes::All;
        };
        self.block.extend_from_slice(fragment);
        self.frames.append(&mut self.unit);
        self.at = At::Head;
        let first = *self.first.get_or_insert(frame);
        if frame.stream != first.stream || self.frames.len() > MOST_BLOCK {
            return Passes::All;
        }
        if frame.flags & END_HEADERS == 0 {
            return Passes::Frames;
        }
        self.first = None;
        let block = std::mem::take(&mut self.block);
        let codec = self.codec.get_or_insert_with(Codec::new);
        let Some(block) = codec.checked(&block) else {
            return Passes::All;
        };
        self.frames.clear();
        write(first, &block, out);
        Passes::Frames
    }
}

impl Codec {
    fn new() -> Self {
        Self {
            decoder: Decoder::new(),
            encoder: Encoder::new(),
            rewrites: false,
        }
    }

    /// Returns the block to send to the server, or `None` if everything may pass unchanged.
    fn checked(&mut self, block: &[u8]) -> Option<Vec<u8>> {
        let mut fields = self.decode(block)?;
        let named = fields.iter_mut().find(|(name, _)| name == b":authority");
        let wrong = named.filter(|(_, value)| !is_authority(value));
        if wrong.is_none() && !self.rewrites {
            return None;
        }
        self.rewrites = true;
        if let Some((_, value)) = wrong {
            *value = INSTEAD.to_vec();
        }
        let fields = fields.iter();
        let fields = fields.map(|(name, value)| (name.as_slice(), value.as_slice()));
        Some(self.encoder.encode(fields))
    }

    /// Returns `None` if the block is malformed or its fields exceed [`MOST_HEADERS`].
    fn decode(&mut self, block: &[u8]) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
        let (mut fields, mut bytes) = (Vec::new(), 0);
        let decoded = self.decoder.decode_with_cb(block, |name, value| {
            bytes += name.len() + value.len() + 32;
            if bytes <= MOST_HEADERS {
                fields.push((name.into_owned(), value.into_owned()));
            }
        });
        (decoded.is_ok() && bytes <= MOST_HEADERS).then_some(fields)
    }
}

#[derive(Debug, Clone, Copy)]
struct Frame {
    length: usize,
    kind: u8,
    flags: u8,
    stream: [u8; 4],
}

impl Frame {
    /// Returns `None` if `bytes` are shorter than a frame header.
    fn read(bytes: &[u8]) -> Option<Self> {
        let &[a, b, c, kind, flags, ref stream @ ..] = bytes.first_chunk::<HEAD>()?;
        let length = u32::from_be_bytes([0, a, b, c]);
        Some(Self {
            length: usize::try_from(length).ok()?,
            kind,
            flags,
            stream: *stream,
        })
    }

    /// Returns the part of the header block in `body`, without padding and priority; `None` if `body` is malformed.
    fn fragment(self, mut body: &[u8]) -> Option<&[u8]> {
        if self.kind == CONTINUATION {
            return Some(body);
        }
        if self.flags & PADDED != 0 {
            let (padding, rest) = body.split_first()?;
            body = rest.get(..rest.len().checked_sub(usize::from(*padding))?)?;
        }
        if self.flags & PRIORITY != 0 {
            body = body.get(5..)?;
        }
        Some(body)
    }
}

/// Writes `block` as frames that replace those that began with `first`.
fn write(first: Frame, block: &[u8], out: &mut Vec<u8>) {
    let mut parts = block.chunks(MOST_FRAME).peekable();
    let (mut kind, mut flags) = (HEADERS, first.flags & END_STREAM);
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            flags |= END_HEADERS;
        }
        let length = u32::try_from(part.len()).unwrap_or_default().to_be_bytes();
        out.extend_from_slice(&length[1..]);
        out.extend_from_slice(&[kind, flags]);
        out.extend_from_slice(&first.stream);
        out.extend_from_slice(part);
        (kind, flags) = (CONTINUATION, 0);
    }
}

/// True if the server accepts `value` as an authority.
fn is_authority(value: &[u8]) -> bool {
    uri::Authority::try_from(value).is_ok()
}

#[cfg(test)]
mod tests;
