//! A long list whose copies share what they have in common.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Entries of a chunk: a change of one entry of a shared list copies one chunk, and one pointer for each other.
const CHUNK: usize = 64;

/// A list in chunks. A copy costs one pointer; a change of a shared one costs a chunk.
#[derive(Debug, Clone, PartialEq)]
pub struct Chunks<T> {
    length: usize,
    chunks: Arc<Vec<Arc<Vec<T>>>>,
}

impl<T> Default for Chunks<T> {
    fn default() -> Self {
        Self {
            length: 0,
            chunks: Arc::default(),
        }
    }
}

impl<T: Clone> Chunks<T> {
    /// How many entries there are.
    pub const fn len(&self) -> usize {
        self.length
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The entry at `place`.
    pub fn get(&self, place: usize) -> Option<&T> {
        self.chunks.get(place / CHUNK)?.get(place % CHUNK)
    }

    /// The entry at `place`, to be changed.
    pub fn get_mut(&mut self, place: usize) -> Option<&mut T> {
        let chunk = Arc::make_mut(&mut self.chunks).get_mut(place / CHUNK)?;
        Arc::make_mut(chunk).get_mut(place % CHUNK)
    }

    /// Adds an entry at the end.
    pub fn push(&mut self, entry: T) {
        let chunks = Arc::make_mut(&mut self.chunks);
        if self.length.is_multiple_of(CHUNK) {
            chunks.push(Arc::new(Vec::with_capacity(CHUNK.min(4))));
        }
        if let Some(last) = chunks.last_mut() {
            Arc::make_mut(last).push(entry);
        }
        self.length += 1;
    }

    /// All entries, in order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.chunks.iter().flat_map(|chunk| chunk.iter())
    }
}

impl<T: Clone> FromIterator<T> for Chunks<T> {
    fn from_iter<I: IntoIterator<Item = T>>(entries: I) -> Self {
        let mut list = Self::default();
        for entry in entries {
            list.push(entry);
        }
        list
    }
}

impl<T: Clone + Serialize> Serialize for Chunks<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

impl<'de, T: Clone + Deserialize<'de>> Deserialize<'de> for Chunks<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Vec::<T>::deserialize(deserializer)?.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_in_chunks_is_a_list_and_its_copies_keep_what_they_had() {
        let mut list: Chunks<usize> = (0..1_000).collect();
        let before = list.clone();
        *list.get_mut(100).unwrap() = 7;
        list.push(1_000);
        assert_eq!((list.len(), before.len()), (1_001, 1_000));
        assert_eq!(
            before.iter().copied().collect::<Vec<_>>(),
            (0..1_000).collect::<Vec<_>>()
        );
        assert_eq!(
            (list.get(100), list.get(1_000), list.get(1_001)),
            (Some(&7), Some(&1_000), None)
        );
        let text = serde_json::to_string(&list).unwrap();
        assert_eq!(serde_json::from_str::<Chunks<usize>>(&text).unwrap(), list);
    }

    #[test]
    fn a_change_copies_one_chunk() {
        let mut list: Chunks<usize> = (0..1_000).collect();
        let before = list.clone();
        *list.get_mut(100).unwrap() = 7;
        let shared = list.chunks.iter().zip(before.chunks.iter());
        assert_eq!(shared.filter(|(a, b)| !Arc::ptr_eq(a, b)).count(), 1);
    }
}
