//! Frames: the encoding of a record in the log, by which a reader recognises torn and corrupt records.
//!
//! **Owns** the bytes of one frame. **Never** knows the meaning of a payload, nor files.
//!
//! ```text
//! 0      4          12     20         28       32       36
//! │magic │ segment  │ LSN  │ durable  │ length │ CRC-32C│ payload …
//! ```
//!
//! All numbers are little-endian. The checksum covers everything but itself. `durable` is the position known to be on
//! disk when the frame was written. A valid frame therefore testifies for all earlier frames, and a reader that finds a
//! bad one knows whether it was ever acknowledged. The segment id keeps a frame of another file from being accepted.

use std::io;

use crate::id::Lsn;

const MAGIC: [u8; 4] = *b"RyF1";
const CHECKSUM_AT: usize = 32;

/// Length of a frame's header in bytes.
pub const HEADER_BYTES: usize = 36;

/// Id of the file that a frame belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct SegmentId(pub u64);

impl SegmentId {
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    pub segment: SegmentId,
    pub lsn: Lsn,
    /// Position up to which the log was on disk when the frame was written.
    pub durable: Lsn,
    pub payload: &'a [u8],
}

/// Fields of a frame's header, of which only the magic number is verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    pub segment: SegmentId,
    pub lsn: Lsn,
    /// Position up to which the log was on disk when the frame was written.
    pub durable: Lsn,
    /// Length of the payload in bytes.
    pub length: usize,
}

impl Header {
    /// Reads the header at the start of `bytes`; returns `None` if there is none.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let header = bytes.get(..HEADER_BYTES)?;
        if header[..4] != MAGIC {
            return None;
        }
        Some(Self {
            segment: SegmentId(word(header, 4)),
            lsn: Lsn(word(header, 12)),
            durable: Lsn(word(header, 20)),
            length: usize::try_from(half(header, 28)).ok()?,
        })
    }
}

impl<'a> Frame<'a> {
    /// Returns the length of the frame in bytes.
    pub const fn encoded_len(&self) -> usize {
        HEADER_BYTES + self.payload.len()
    }

    /// Appends the frame to `out`.
    ///
    /// # Panics
    /// If the payload is 4 GiB or longer; the journal spills payloads far below that.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.header());
        out.extend_from_slice(self.payload);
    }

    /// Writes the frame to `out`.
    ///
    /// # Errors
    /// Fails if `out` fails.
    ///
    /// # Panics
    /// As [`Frame::encode`].
    pub fn write(&self, out: &mut impl io::Write) -> io::Result<()> {
        out.write_all(&self.header())?;
        out.write_all(self.payload)
    }

    fn header(&self) -> [u8; HEADER_BYTES] {
        let length = u32::try_from(self.payload.len()).expect("a payload is far below 4 GiB");
        let mut header = [0; HEADER_BYTES];
        header[..4].copy_from_slice(&MAGIC);
        header[4..12].copy_from_slice(&self.segment.0.to_le_bytes());
        header[12..20].copy_from_slice(&self.lsn.0.to_le_bytes());
        header[20..28].copy_from_slice(&self.durable.0.to_le_bytes());
        header[28..CHECKSUM_AT].copy_from_slice(&length.to_le_bytes());
        let checksum = crc32c::crc32c_append(crc32c::crc32c(&header[..CHECKSUM_AT]), self.payload);
        header[CHECKSUM_AT..].copy_from_slice(&checksum.to_le_bytes());
        header
    }

    /// Decodes the frame of `segment` at the start of `bytes`; returns `None` if it is incomplete or corrupt.
    pub fn decode(segment: SegmentId, bytes: &'a [u8]) -> Option<Self> {
        let header = bytes.get(..HEADER_BYTES)?;
        if header[..4] != MAGIC || word(header, 4) != segment.0 {
            return None;
        }
        let length = usize::try_from(half(header, 28)).ok()?;
        let payload = bytes.get(HEADER_BYTES..HEADER_BYTES.checked_add(length)?)?;
        let checksum = crc32c::crc32c_append(crc32c::crc32c(&header[..CHECKSUM_AT]), payload);
        (checksum == half(header, CHECKSUM_AT)).then(|| Self {
            segment,
            lsn: Lsn(word(header, 12)),
            durable: Lsn(word(header, 20)),
            payload,
        })
    }

    /// Returns the payload length in `header`, or `None` if it is no header. The checksum is not verified.
    pub fn payload_length(header: &[u8]) -> Option<usize> {
        Header::read(header).map(|header| header.length)
    }

    /// Returns all valid frames of `segment` in `bytes`, at any offset.
    pub fn search(segment: SegmentId, bytes: &'a [u8]) -> impl Iterator<Item = Self> {
        bytes
            .windows(MAGIC.len())
            .enumerate()
            .filter(|(_, window)| *window == MAGIC)
            .filter_map(move |(at, _)| Self::decode(segment, &bytes[at..]))
    }
}

fn word(header: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(header[at..at + 8].try_into().expect("eight bytes"))
}

fn half(header: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(header[at..at + 4].try_into().expect("four bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes(segment: u64, lsn: u64, durable: u64, payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        Frame {
            segment: SegmentId(segment),
            lsn: Lsn(lsn),
            durable: Lsn(durable),
            payload,
        }
        .encode(&mut out);
        out
    }

    #[test]
    fn the_layout_of_a_frame_never_changes() {
        let hex: Vec<String> = bytes(1, 2, 1, b"{}")
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let hex = hex.concat();
        assert_eq!(
            hex,
            "5279463101000000000000000200000000000000010000000000000002000000ec43b77d7b7d"
        );
    }

    #[test]
    fn frame_of_other_segment_is_refused() {
        let frame = bytes(1, 2, 1, b"x");
        assert!(Frame::decode(SegmentId(1), &frame).is_some());
        assert_eq!(Frame::decode(SegmentId(2), &frame), None);
    }

    proptest! {
        #[test]
        fn frame_round_trips(
            segment: u64, lsn: u64, durable: u64,
            payload in proptest::collection::vec(any::<u8>(), 0..300),
            after in proptest::collection::vec(any::<u8>(), 0..50),
        ) {
            let mut encoded = bytes(segment, lsn, durable, &payload);
            let length = encoded.len();
            encoded.extend_from_slice(&after);
            let frame = Frame::decode(SegmentId(segment), &encoded).expect("a whole frame");
            prop_assert_eq!(frame.encoded_len(), length);
            prop_assert_eq!((frame.lsn, frame.durable, frame.payload), (Lsn(lsn), Lsn(durable), &payload[..]));
        }

        #[test]
        fn frame_detects_flipped_bit_and_cut(
            payload in proptest::collection::vec(any::<u8>(), 0..100), place: prop::sample::Index, bit in 0..8_u32,
        ) {
            let whole = bytes(7, 8, 6, &payload);
            let mut flipped = whole.clone();
            let at = place.index(flipped.len());
            flipped[at] ^= 1 << bit;
            prop_assert_eq!(Frame::decode(SegmentId(7), &flipped), None);
            prop_assert_eq!(Frame::decode(SegmentId(7), &whole[..at]), None);
        }

        #[test]
        fn search_finds_valid_frames_after_garbage(
            rubbish in proptest::collection::vec(any::<u8>(), 0..100),
        ) {
            let mut all = rubbish;
            all.extend_from_slice(&MAGIC);
            all.extend_from_slice(&bytes(3, 9, 8, b"one"));
            all.extend_from_slice(&bytes(3, 10, 8, b"two"));
            let found: Vec<Lsn> = Frame::search(SegmentId(3), &all).map(|frame| frame.lsn).collect();
            prop_assert_eq!(found, vec![Lsn(9), Lsn(10)]);
        }
    }
}
