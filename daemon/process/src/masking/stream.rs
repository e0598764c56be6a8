//! Masks one stream, piece by piece.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use zeroize::Zeroizing;

use super::{Masker, Unbroken, masked};

/// Number of bytes of a secret that must be before a line break at the end of a piece to hold that line back. With
/// fewer, each line that ends like a secret begins would appear late.
const BEFORE_BREAK: usize = 8;
/// Bytes that may be held back beyond the longest search text.
const MOST_HELD: usize = 64 << 10;

/// A stream that is masked.
pub struct MaskedStream {
    masker: Arc<Masker>,
    /// Possible beginning of a secret.
    pub(super) held: Zeroizing<Vec<u8>>,
}

/// Omits the held bytes.
impl fmt::Debug for MaskedStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MaskedStream").finish_non_exhaustive()
    }
}

impl MaskedStream {
    pub fn new(masker: Arc<Masker>) -> Self {
        Self {
            masker,
            held: Zeroizing::default(),
        }
    }

    /// Takes the next piece. Returns what is decided so far.
    pub fn push<'p>(&mut self, piece: &'p [u8]) -> Cow<'p, [u8]> {
        if self.masker.is_empty() {
            return piece.into();
        }
        self.held.extend_from_slice(piece);
        let unbroken = Unbroken::of(&self.held);
        let mut found = self.masker.find_in(&unbroken);
        let mut from = self.masker.undecided(&unbroken);
        // A secret that ends in undecided bytes may be part of a longer one.
        let most = self.masker.longest() + MOST_HELD;
        while let Some(last) = found.last_mut().filter(|last| last.end > from) {
            if last.start < from && self.held.len() - last.start > most {
                last.end = from;
                break;
            }
            from = from.min(last.start);
            found.pop();
        }
        let decided = masked(&self.held[..from], &found);
        drop(unbroken);
        self.held.drain(..from);
        decided.into()
    }

    /// Returns what is held back, once the stream has ended.
    pub fn end(&mut self) -> Vec<u8> {
        let held = std::mem::take(&mut self.held);
        masked(&held, &self.masker.find(&held))
    }
}

impl Masker {
    /// Length of the longest search text.
    fn longest(&self) -> usize {
        let lengths = self.texts.iter().map(|text| text.len());
        lengths.max().unwrap_or_default()
    }

    /// Position in the original bytes from which on they may be the beginning of a search text.
    fn undecided(&self, unbroken: &Unbroken<'_>) -> usize {
        let bytes = unbroken.bytes();
        let total = unbroken.original.len();
        let begins = |text: &[u8]| {
            let longest = (text.len() - 1).min(bytes.len());
            let tail = &bytes[bytes.len() - longest..];
            let mut starts = memchr::memchr_iter(text[0], tail);
            let start = starts.find(|start| text.starts_with(&tail[*start..]))?;
            let length = tail.len() - start;
            let from = unbroken.original(bytes.len() - length);
            let is_broken = total - from > length;
            (!is_broken || length >= BEFORE_BREAK).then_some(from)
        };
        let starts = self.texts.iter().filter_map(|text| begins(text));
        starts.min().unwrap_or(total)
    }
}
