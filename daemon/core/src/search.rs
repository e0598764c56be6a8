//! Search over short texts with a few fields, by words.
//!
//! **Owns** the words of a text ([`words`]), the language of queries ([`Query`]) and the index ([`Index`]), which is a value in memory.
//! **Never** reads a file and never knows what a document is: its caller gives each a number.
//!
//! **Rules.** A word is a run of letters and digits, in lower case. Documents are found by words, by beginnings of words (`auth*`), and by
//! words in a row (`"rate limit"`), joined by `AND` (which may be left out), `OR` and `NOT` with parentheses. A word that no document holds
//! is taken for those that differ from it in one letter, at half the weight. What is found is ordered by BM25F: a word counts the more,
//! the fewer documents hold it, and the more the field weighs in which it stands.

mod index;
mod query;
mod sets;
#[cfg(test)]
mod tests;

pub use self::index::{DocId, Field, Hit, Index};
pub use self::query::{BadQuery, Query};

/// Longest word that is distinguished from others.
const MOST_WORD: usize = 64;

/// The words of `text`, in their order.
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
