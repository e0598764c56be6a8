//! Full-text search over short texts with a few fields.
//!
//! **Owns** the words of a text ([`words`]), the query language ([`SearchQuery`]) and the in-memory index ([`Index`]).
//! **Never** reads a file or knows the meaning of a document: the index returns a number for each.
//!
//! **Rules.** A word is a run of letters and digits, in lower case. Queries match words, prefixes (`auth*`), and
//! phrases (`"rate limit"`). `AND` (which may be omitted), `OR`, `NOT` and parentheses join them. A word that no
//! document holds also matches words that differ in one letter, at half the weight. Results are ranked by BM25F: a word
//! scores higher in fewer documents and in fields of more weight.

mod index;
mod query;
mod sets;
#[cfg(test)]
mod tests;

pub use self::index::{DocId, Field, Hit, Index};
pub use self::query::{BadQuery, SearchQuery};

/// Number of characters after which longer words are cut.
const MOST_WORD: usize = 64;

/// Returns the words of `text`, in order.
pub fn words(text: &str) -> impl Iterator<Item = String> {
    let runs = text.split(|letter: char| !letter.is_alphanumeric());
    runs.filter(|run| !run.is_empty()).map(|run| {
        let word = run.to_lowercase();
        match word.char_indices().nth(MOST_WORD) {
            Some((end, _)) => word[..end].to_owned(),
            None => word,
        }
    })
}
