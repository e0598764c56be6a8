//! Clients that name the socket's path as `:authority`.
//!
//! Of a Unix socket the gRPC libraries of C, Python, Java and Swift make an `:authority` that is its path, which HTTP/2 as we serve it
//! refuses before anybody can answer. [`Lenient`] puts [`INSTEAD`] in its place as the bytes are read. **Owns** nothing else of the
//! protocol. **Order.** Until the first request of a connection is whole, its frames are held; when that names an authority that can be one,
//! everything passes as it is from then on. If not, the blocks of headers of this connection are decoded and encoded again, for
//! an encoder may name later what it sent earlier. **Failure.** What is no HTTP/2, or more than is held here, passes as it is, and the server
//! refuses it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use loona_hpack::{Decoder, Encoder};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tonic::codegen::http::uri;
use tonic::transport::server::Connected;

/// The authority of a request that names none that can be one.
const INSTEAD: &[u8] = b"localhost";
/// What a client says first.
const PREFACE: usize = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".len();
/// Bytes of the head of a frame, and the longest frame that the server takes.
const HEAD: usize = 9;
const MOST_FRAME: usize = 16_384;
/// Most bytes of a block of headers, and most that they may mean.
const MOST_BLOCK: usize = 64 << 10;
const MOST_HEADERS: usize = 256 << 10;
/// Bytes read at once.
const CHUNK: usize = 16 << 10;

const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 0x1;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

/// A connection whose requests have an authority that can be one.
#[derive(Debug)]
pub(super) struct Lenient<S> {
    stream: S,
    /// None when everything passes as it is.
    filter: Option<Box<Filter>>,
    /// What was read and is not handed out yet, from `given` on.
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
                // The end: what is held is half a frame.
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

/// What becomes of the bytes that are still to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Passes {
    /// They are looked at.
    Frames,
    /// They pass as they are.
    All,
}

/// The frames of a connection, until it is known that they may pass.
#[derive(Debug, Default)]
struct Filter {
    at: At,
    /// What has come of the preface, of the head of a frame, or of a frame of headers.
    unit: Vec<u8>,
    /// The frames of the block at hand, as they came.
    frames: Vec<u8>,
    /// The head of the first of them.
    first: Option<Frame>,
    /// What they say, without padding and priority.
    block: Vec<u8>,
    codec: Option<Codec>,
}

/// What comes next.
#[derive(Debug, Default, Clone, Copy)]
enum At {
    #[default]
    Preface,
    Head,
    /// The body of a frame of headers.
    Headers(Frame),
    /// So many bytes of a frame that passes as it is.
    Passing(usize),
}

/// Decodes blocks of headers and encodes them again.
struct Codec {
    decoder: Decoder<'static>,
    encoder: Encoder<'static>,
    /// Whether a block was encoded here: then all that follow are.
    rewrites: bool,
}

impl std::fmt::Debug for Codec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Codec").field(&self.rewrites).finish()
    }
}

impl Filter {
    /// Takes what was read; what may pass is put into `out`.
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

    /// The unit at hand is whole.
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

    /// The head of a frame is whole.
    fn head(&mut self, out: &mut Vec<u8>) -> Passes {
        let Some(frame) = Frame::read(&self.unit) else {
            return Passes::All;
        };
        // The frames of a block follow each other, and nothing else continues one.
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

    /// A frame of headers is whole.
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

    /// The block as the server is to have it; `None` if all may pass as it is.
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

    /// The fields of a block; `None` if it is none, or says more than we keep.
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

/// The head of a frame.
#[derive(Debug, Clone, Copy)]
struct Frame {
    length: usize,
    kind: u8,
    flags: u8,
    stream: [u8; 4],
}

impl Frame {
    /// The head with which `bytes` begin, if it is whole.
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

    /// What `body` says of the block, without padding and priority; `None` if it cannot be the body of this frame.
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

/// Writes `block` as frames in place of those that began with `first`.
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

/// Whether the server takes it as one.
fn is_authority(value: &[u8]) -> bool {
    uri::Authority::try_from(value).is_ok()
}

#[cfg(test)]
mod tests;
