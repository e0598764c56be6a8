//! Masks secrets in what tools print and return.
//!
//! **Owns** the values of secrets that the daemon has seen ([`KnownSecrets`]), and the search for them ([`Masker`]):
//! literally and in base64, also across line breaks. **Never** shows a value. **Never** finds one that a tool has changed
//! in any other way: this protects against accidents, not against a tool that hides what it prints.
//!
//! **Order.** A stream is masked before anything else sees it ([`MaskedStream`]). Bytes that may be the beginning of a
//! secret are held back until the next ones decide. **Bounds.** A value has at least [`SHORTEST`] bytes; shorter ones
//! occur by chance. A stream holds back less than twice the longest search text.

mod stream;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aho_corasick::AhoCorasick;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use rye_core::model::Object;
use serde_json::Value;
use zeroize::Zeroizing;

pub use self::stream::MaskedStream;

/// Minimum length in bytes of a known secret that is masked.
pub const SHORTEST: usize = 8;
/// Text in place of a secret.
const MASK: &str = "[redacted]";

/// Searches for a set of secrets.
#[derive(Default)]
pub struct Masker {
    /// `None` if there are no secrets.
    finder: Option<AhoCorasick>,
    /// The search texts, without line breaks.
    texts: Vec<Zeroizing<Vec<u8>>>,
    /// True if a number may be a secret.
    has_digits_only: bool,
}

/// Omits the secrets.
impl fmt::Debug for Masker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Masker")
            .field("texts", &self.texts.len())
            .finish_non_exhaustive()
    }
}

impl Masker {
    /// Makes a masker of `secrets`, without a bound on their length; empty ones are ignored.
    pub fn new<'s>(secrets: impl IntoIterator<Item = &'s str>) -> Self {
        let mut texts: Vec<Zeroizing<Vec<u8>>> = Vec::new();
        let mut has_digits_only = false;
        for secret in secrets {
            if secret.is_empty() {
                continue;
            }
            has_digits_only |= secret.parse::<f64>().is_ok();
            texts.push(Zeroizing::new(secret.as_bytes().to_vec()));
            if secret.len() >= SHORTEST {
                texts.extend(in_base64(secret.as_bytes()));
            }
        }
        Self::of(texts, has_digits_only)
    }

    fn of(texts: Vec<Zeroizing<Vec<u8>>>, has_digits_only: bool) -> Self {
        let finder = (!texts.is_empty())
            .then(|| AhoCorasick::new(texts.iter().map(|text| text.as_slice())))
            .transpose()
            .expect("a few texts of some kilobytes fit any automaton");
        Self {
            finder,
            texts,
            has_digits_only,
        }
    }

    /// Makes a masker of these secrets and `secret`, which is not empty.
    #[must_use]
    pub fn and(&self, secret: &str) -> Self {
        let own = Self::new([secret]);
        Self::of(
            self.texts.iter().chain(&own.texts).cloned().collect(),
            self.has_digits_only || own.has_digits_only,
        )
    }

    /// Returns the search texts, for [`Masker::of_texts`] in another process.
    pub fn texts(&self) -> &[Zeroizing<Vec<u8>>] {
        &self.texts
    }

    /// Makes a masker of the search texts of another one, for output.
    pub fn of_texts(texts: Vec<Vec<u8>>) -> Self {
        Self::of(texts.into_iter().map(Zeroizing::new).collect(), true)
    }

    /// True if there are no secrets.
    pub const fn is_empty(&self) -> bool {
        self.finder.is_none()
    }

    /// Returns `text` with the secrets masked, or `None` if it contains none.
    pub fn text(&self, text: &str) -> Option<String> {
        let found = self.find(text.as_bytes());
        if found.is_empty() {
            return None;
        }
        let masked = masked(text.as_bytes(), &found);
        Some(String::from_utf8_lossy(&masked).into_owned())
    }

    /// Masks secrets in all texts, keys and numbers of `value`. Returns true if there were any.
    pub fn value(&self, value: &mut Value) -> bool {
        if self.is_empty() {
            return false;
        }
        let shown = match value {
            Value::Null | Value::Bool(_) => None,
            Value::Number(_) if !self.has_digits_only => None,
            Value::Number(number) => self.text(&number.to_string()),
            Value::String(text) => self.text(text),
            Value::Array(list) => {
                let found = list.iter_mut().map(|entry| self.value(entry));
                return found.fold(false, |any, found| any | found);
            }
            Value::Object(map) => return self.object(map),
        };
        let is_found = shown.is_some();
        if let Some(shown) = shown {
            *value = shown.into();
        }
        is_found
    }

    fn object(&self, map: &mut Object) -> bool {
        let mut any = false;
        for entry in map.values_mut() {
            any |= self.value(entry);
        }
        if map.keys().any(|key| !self.find(key.as_bytes()).is_empty()) {
            any = true;
            for (key, entry) in std::mem::take(map) {
                map.insert(self.text(&key).unwrap_or(key), entry);
            }
        }
        any
    }

    /// Ranges of secrets in `bytes`, in order and disjoint.
    fn find(&self, bytes: &[u8]) -> Vec<Range<usize>> {
        match &self.finder {
            Some(_) => self.find_in(&Unbroken::of(bytes)),
            None => Vec::new(),
        }
    }

    /// Same as [`Masker::find`]; the ranges are of the original bytes.
    fn find_in(&self, unbroken: &Unbroken<'_>) -> Vec<Range<usize>> {
        let Some(finder) = &self.finder else {
            return Vec::new();
        };
        let mut found: Vec<Range<usize>> = Vec::new();
        for hit in finder.find_overlapping_iter(unbroken.bytes()) {
            let mut range = unbroken.original(hit.start())..unbroken.original(hit.end() - 1) + 1;
            while let Some(last) = found.last().filter(|last| last.end > range.start) {
                range = last.start.min(range.start)..last.end.max(range.end);
                found.pop();
            }
            found.push(range);
        }
        found
    }
}

/// `bytes` with `MASK` in place of the ranges `found`.
fn masked(bytes: &[u8], found: &[Range<usize>]) -> Vec<u8> {
    let mut masked = Vec::with_capacity(bytes.len());
    let mut end = 0;
    for range in found {
        masked.extend_from_slice(&bytes[end..range.start]);
        masked.extend_from_slice(MASK.as_bytes());
        end = range.end;
    }
    masked.extend_from_slice(&bytes[end..]);
    masked
}

/// The digits that are the same wherever `secret` occurs in longer data that is encoded: for each of the three
/// alignments, in both alphabets.
fn in_base64(secret: &[u8]) -> Vec<Zeroizing<Vec<u8>>> {
    let mut texts = Vec::new();
    for before in 0..3 {
        let mut data = Zeroizing::new(vec![0; before]);
        data.extend_from_slice(secret);
        // The first digits contain bits of the data before, and the last digit bits of the data after.
        let (first, end) = ((before * 8).div_ceil(6), data.len() * 8 / 6);
        for alphabet in [&STANDARD_NO_PAD, &URL_SAFE_NO_PAD] {
            let text = Zeroizing::new(alphabet.encode(&data));
            texts.push(Zeroizing::new(text.as_bytes()[first..end].to_vec()));
        }
    }
    texts
}

/// Bytes without their line breaks, which encoders insert anywhere.
struct Unbroken<'b> {
    original: &'b [u8],
    /// `None` if there are no line breaks.
    joined: Option<Zeroizing<Vec<u8>>>,
    /// Positions of the line breaks in the original.
    breaks: Vec<usize>,
}

impl<'b> Unbroken<'b> {
    fn of(original: &'b [u8]) -> Self {
        let breaks: Vec<usize> = memchr::memchr2_iter(b'\n', b'\r', original).collect();
        let joined = (!breaks.is_empty()).then(|| {
            let mut joined = Zeroizing::new(Vec::with_capacity(original.len()));
            let mut next = 0;
            for at in &breaks {
                joined.extend_from_slice(&original[next..*at]);
                next = at + 1;
            }
            joined.extend_from_slice(&original[next..]);
            joined
        });
        Self {
            original,
            joined,
            breaks,
        }
    }

    fn bytes(&self) -> &[u8] {
        self.joined
            .as_ref()
            .map_or(self.original, |joined| joined.as_slice())
    }

    /// Position in the original of the byte at `at`.
    fn original(&self, at: usize) -> usize {
        // The break number `n` follows `breaks[n] - n` other bytes.
        let (mut low, mut high) = (0, self.breaks.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            if self.breaks[middle] - middle <= at {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        at + low
    }
}

/// The secrets that the daemon has seen.
#[derive(Default)]
pub struct KnownSecrets {
    known: Mutex<Known>,
}

/// Omits the secrets.
impl fmt::Debug for KnownSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KnownSecrets").finish_non_exhaustive()
    }
}

#[derive(Default)]
struct Known {
    /// Secrets of the user, masked in all projects.
    of_user: Vec<Zeroizing<String>>,
    /// Secrets of projects, masked in their project only: a project must not choose what others show.
    of_projects: BTreeMap<String, Vec<Zeroizing<String>>>,
    /// Maskers by project, until a secret is added.
    maskers: BTreeMap<String, Arc<Masker>>,
}

impl KnownSecrets {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a secret of the user, or of `project`.
    pub fn learn(&self, project: Option<&str>, secret: &str) {
        if secret.len() < SHORTEST {
            return;
        }
        let mut known = self.known();
        let values = match project {
            None => &mut known.of_user,
            Some(project) => known.of_projects.entry(project.to_owned()).or_default(),
        };
        if !values.iter().any(|value| value.as_str() == secret) {
            values.push(Zeroizing::new(secret.to_owned()));
            known.maskers.clear();
        }
    }

    /// Masker of the secrets that a tool of `project` may find.
    pub fn masker(&self, project: &str) -> Arc<Masker> {
        let mut known = self.known();
        // Most projects have no secrets of their own, and share one masker.
        let own = known.of_projects.get(project);
        let key = own.map_or("", |_| project);
        if let Some(masker) = known.maskers.get(key) {
            return Arc::clone(masker);
        }
        let all = known.of_user.iter().chain(own.into_iter().flatten());
        let masker = Arc::new(Masker::new(all.map(|secret| secret.as_str())));
        known.maskers.insert(key.to_owned(), Arc::clone(&masker));
        masker
    }
}

#[cfg(test)]
mod tests;
