//! Inverted index: the documents that hold each word.
//!
//! A document is stored as the numbers of its words, field after field. Phrase search and word counts read these
//! numbers, and removal finds the lists that hold the document by them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Bound;

use super::query::{Node, SearchQuery};
use super::{sets, words};

/// BM25 saturation of the frequency of a word.
const K1: f64 = 1.2;
/// BM25 penalty of long fields, from 0 to 1.
const B: f64 = 0.75;
/// Weight of words that replace a word which no document holds.
const FUZZY: f64 = 0.5;
/// Largest number of words that replace a word which no document holds.
const MOST_VARIANTS: usize = 64;
/// Largest number of words of a field that are indexed.
const MOST_WORDS: usize = 20_000;

/// Number of a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DocId(u32);

impl DocId {
    /// Returns the index in a list of all documents. Numbers are small, and are reused after removal.
    pub fn index(self) -> usize {
        to_usize(self.0)
    }
}

/// Field of a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field {
    Name,
    /// Name for people.
    Title,
    Description,
    Category,
    Tags,
    Content,
}

impl Field {
    const ALL: [Self; 6] = [
        Self::Name,
        Self::Title,
        Self::Description,
        Self::Category,
        Self::Tags,
        Self::Content,
    ];
    const COUNT: usize = Self::ALL.len();

    const fn weight(self) -> f64 {
        match self {
            Self::Name | Self::Title => 3.0,
            Self::Description => 2.0,
            Self::Category | Self::Tags => 1.5,
            Self::Content => 1.0,
        }
    }

    const fn index(self) -> usize {
        match self {
            Self::Name => 0,
            Self::Title => 1,
            Self::Description => 2,
            Self::Category => 3,
            Self::Tags => 4,
            Self::Content => 5,
        }
    }
}

/// A matching document.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Hit {
    pub doc: DocId,
    /// Relevance; 0 if only `NOT` or an empty query matched.
    pub score: f64,
}

/// Index of documents by their words.
#[derive(Debug, Clone, Default)]
pub struct Index {
    /// Number of each word, ordered so that words with a common prefix are adjacent.
    numbers: BTreeMap<Box<str>, u32>,
    /// Documents that hold each word, in ascending order.
    holders: Vec<Vec<u32>>,
    docs: Vec<Option<Doc>>,
    free: Vec<u32>,
    /// Total number of words of all documents, by field.
    lengths: [u64; Field::COUNT],
    count: usize,
    bytes: usize,
}

#[derive(Debug, Clone)]
struct Doc {
    words: Box<[u32]>,
    /// End of each field in `words`.
    ends: [u32; Field::COUNT],
}

impl Doc {
    fn field(&self, place: usize) -> &[u32] {
        let start = place.checked_sub(1).map_or(0, |before| self.ends[before]);
        let range = to_usize(start)..to_usize(self.ends[place]);
        self.words.get(range).unwrap_or_default()
    }

    fn distinct(&self) -> Vec<u32> {
        sets::set(self.words.iter().copied())
    }
}

impl Index {
    /// Adds a document and returns its number.
    pub fn add<'t>(&mut self, fields: impl IntoIterator<Item = (Field, &'t str)>) -> DocId {
        let mut by_field: [Vec<u32>; Field::COUNT] = Default::default();
        for (field, text) in fields {
            let place = field.index();
            for word in words(text).take(MOST_WORDS) {
                let number = self.number(&word);
                by_field[place].push(number);
            }
        }
        let mut ends = [0; Field::COUNT];
        let mut all = Vec::new();
        for (place, words) in by_field.into_iter().enumerate() {
            self.lengths[place] += to_u64(words.len());
            all.extend(words);
            ends[place] = to_u32(all.len());
        }
        let doc = Doc {
            words: all.into(),
            ends,
        };
        let number = self.free.pop().unwrap_or_else(|| {
            self.docs.push(None);
            to_u32(self.docs.len() - 1)
        });
        let distinct = doc.distinct();
        self.bytes += size(&doc, distinct.len());
        for word in distinct {
            sets::add(&mut self.holders[to_usize(word)], number);
        }
        self.docs[to_usize(number)] = Some(doc);
        self.count += 1;
        DocId(number)
    }

    /// Removes a document; an unknown one is ignored.
    pub fn remove(&mut self, doc: DocId) {
        let Some(removed) = self.docs.get_mut(to_usize(doc.0)).and_then(Option::take) else {
            return;
        };
        let distinct = removed.distinct();
        self.bytes = self.bytes.saturating_sub(size(&removed, distinct.len()));
        for word in distinct {
            sets::take(&mut self.holders[to_usize(word)], doc.0);
        }
        for place in 0..Field::COUNT {
            self.lengths[place] -= to_u64(removed.field(place).len());
        }
        self.free.push(doc.0);
        self.count -= 1;
    }

    /// Returns the approximate size of the index in memory, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn number(&mut self, word: &str) -> u32 {
        if let Some(number) = self.numbers.get(word) {
            return *number;
        }
        let number = to_u32(self.holders.len());
        self.numbers.insert(word.into(), number);
        self.holders.push(Vec::new());
        // The text, its entry in the map, and its list.
        self.bytes += word.len() + 64;
        number
    }

    /// Returns the documents that match `query` and pass `may_be`, in ascending order, with their scores.
    pub fn search(&self, query: &SearchQuery, may_be: impl Fn(DocId) -> bool) -> Vec<Hit> {
        let mut asked = Vec::new();
        let found = self.eval(&query.root, true, &mut asked);
        let found: Vec<u32> = found
            .into_iter()
            .filter(|doc| may_be(DocId(*doc)))
            .collect();
        let averages = self.averages();
        let mut scores = vec![0.0; found.len()];
        for term in &asked {
            let counts = term.weight * self.rarity(term.count);
            for (place, _) in sets::common_positions(&found, &self.holders_of(&term.words)) {
                scores[place] += counts * self.frequency(found[place], &term.words, &averages);
            }
        }
        let hits = found.into_iter().map(DocId).zip(scores);
        hits.map(|(doc, score)| Hit { doc, score }).collect()
    }

    /// Returns the documents that match `node`. If `counts` is true, its terms are added to `asked` for scoring.
    fn eval(&self, node: &Node, counts: bool, asked: &mut Vec<Term>) -> Vec<u32> {
        match node {
            Node::All => self.all(),
            Node::Word(word) => self.found(self.variants(word), counts, asked),
            Node::Prefix(start) => self.found((self.beginning(start), 1.0), counts, asked),
            Node::Phrase(row) => self.row(row, counts, asked),
            Node::And(parts) => {
                let parts = parts.iter().map(|part| self.eval(part, counts, asked));
                let found = parts.reduce(|found, part| sets::both(&found, &part));
                found.unwrap_or_default()
            }
            Node::Or(parts) => {
                let parts = parts.iter().map(|part| self.eval(part, counts, asked));
                let found = parts.reduce(|found, part| sets::either(&found, &part));
                found.unwrap_or_default()
            }
            Node::Not(part) => sets::without(&self.all(), &self.eval(part, false, asked)),
        }
    }

    fn all(&self) -> Vec<u32> {
        let docs = self.docs.iter().zip(0..);
        docs.filter_map(|(doc, number)| doc.as_ref().map(|_| number))
            .collect()
    }

    /// Returns the documents with one of these words, and adds the words as one term of this weight.
    fn found(
        &self,
        (words, weight): (Vec<u32>, f64),
        counts: bool,
        asked: &mut Vec<Term>,
    ) -> Vec<u32> {
        let found = self.holders_of(&words).into_owned();
        if counts && !found.is_empty() {
            asked.push(Term {
                words,
                weight,
                count: found.len(),
            });
        }
        found
    }

    /// Returns the documents that hold these words as a phrase.
    fn row(&self, row: &[String], counts: bool, asked: &mut Vec<Term>) -> Vec<u32> {
        let row = row.iter().map(|word| self.numbers.get(word.as_str()));
        let Some(row) = row
            .map(Option::<&u32>::copied)
            .collect::<Option<Vec<u32>>>()
        else {
            return Vec::new();
        };
        let mut holders = row.iter().map(|word| self.holders(*word));
        let first = holders.next().unwrap_or_default().to_vec();
        let mut found = holders.fold(first, |found, part| sets::both(&found, part));
        found.retain(|doc| {
            let doc = self.docs.get(to_usize(*doc)).and_then(Option::as_ref);
            doc.is_some_and(|doc| {
                (0..Field::COUNT)
                    .any(|place| doc.field(place).windows(row.len()).any(|part| part == row))
            })
        });
        if counts && !found.is_empty() {
            asked.extend(row.into_iter().map(|word| Term {
                words: vec![word],
                weight: 1.0,
                count: found.len(),
            }));
        }
        found
    }

    fn holders(&self, word: u32) -> &[u32] {
        self.holders
            .get(to_usize(word))
            .map_or(&[][..], Vec::as_slice)
    }

    /// Returns the documents that hold one of `words`, in ascending order.
    fn holders_of(&self, words: &[u32]) -> Cow<'_, [u32]> {
        match *words {
            [only] => self.holders(only).into(),
            _ => sets::set(words.iter().flat_map(|word| self.holders(*word)).copied()).into(),
        }
    }

    /// Returns the word itself, or, if no document holds it, the words that differ in one letter, with a lower weight.
    fn variants(&self, word: &str) -> (Vec<u32>, f64) {
        let own = self.numbers.get(word).copied();
        if let Some(own) = own.filter(|own| !self.holders(*own).is_empty()) {
            return (vec![own], 1.0);
        }
        // One letter is too large a part of a short word.
        let is_short = word.chars().nth(3).is_none();
        let near = self.numbers.iter().filter(|(other, number)| {
            !is_short && !self.holders(**number).is_empty() && is_near(word, other)
        });
        let near = near.map(|(_, number)| *number);
        (near.take(MOST_VARIANTS).collect(), FUZZY)
    }

    fn beginning(&self, start: &str) -> Vec<u32> {
        let from = (Bound::Included(start), Bound::Unbounded);
        let from = self.numbers.range::<str, _>(from);
        from.take_while(|(word, _)| word.starts_with(start))
            .map(|(_, number)| *number)
            .filter(|number| !self.holders(*number).is_empty())
            .collect()
    }

    /// Returns the average number of words of each field, at least 1.
    fn averages(&self) -> [f64; Field::COUNT] {
        let count = to_f64(to_u64(self.count.max(1)));
        self.lengths.map(|length| (to_f64(length) / count).max(1.0))
    }

    /// Returns the inverse document frequency of a term that `holders` documents hold.
    fn rarity(&self, holders: usize) -> f64 {
        let (all, holders) = (to_f64(to_u64(self.count)), to_f64(to_u64(holders)));
        (1.0 + (all - holders + 0.5) / (holders + 0.5)).ln()
    }

    /// Returns the weighted, saturated frequency of these words in `doc`, from 0 to 1. A longer field counts less.
    fn frequency(&self, doc: u32, asked: &[u32], averages: &[f64; Field::COUNT]) -> f64 {
        let Some(doc) = self.docs.get(to_usize(doc)).and_then(Option::as_ref) else {
            return 0.0;
        };
        let mut frequency = 0.0;
        for field in Field::ALL {
            let words = doc.field(field.index());
            let times = times(asked, words);
            if times > 0 {
                let length = to_f64(to_u64(words.len())) / averages[field.index()];
                frequency += field.weight() * to_f64(to_u64(times)) / (1.0 - B + B * length);
            }
        }
        frequency / (K1 + frequency)
    }
}

/// A term of the score. It stores no list of documents, because a query may have hundreds of terms.
#[derive(Debug)]
struct Term {
    /// Interchangeable words.
    words: Vec<u32>,
    weight: f64,
    /// Number of documents that hold the term.
    count: usize,
}

/// Counts the occurrences of the `asked` words in `words`.
fn times(asked: &[u32], words: &[u32]) -> usize {
    let words = words.iter();
    if let [only] = *asked {
        // A single word is the common case; the compiler vectorises it.
        words.filter(|word| **word == only).count()
    } else {
        words.filter(|word| asked.contains(word)).count()
    }
}

/// Returns true if two words differ in one letter: replaced, inserted or deleted.
fn is_near(one: &str, other: &str) -> bool {
    let (mut one, mut other) = (one.chars(), other.chars());
    loop {
        match (one.next(), other.next()) {
            (None, None) => return true,
            (Some(left), Some(right)) if left == right => {}
            (left, right) => {
                // Compares the rest of both words after the differing letter, with the letter of one of them put back.
                let (one_left, other_left) = (|| one.clone(), || other.clone());
                let replaced = left.is_some() && right.is_some() && one_left().eq(other_left());
                let inserted =
                    right.is_some() && left.into_iter().chain(one_left()).eq(other_left());
                let deleted =
                    left.is_some() && right.into_iter().chain(other_left()).eq(one_left());
                return replaced || inserted || deleted;
            }
        }
    }
}

fn size(doc: &Doc, distinct: usize) -> usize {
    // Its own words, and an entry in the list of each distinct word, with some room to grow.
    size_of::<Doc>() + 4 * doc.words.len() + 6 * distinct
}

fn to_u32(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn to_usize(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn to_u64(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

/// Counts are far below the largest exact integer of a float.
fn to_f64(number: u64) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}
