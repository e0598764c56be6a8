//! A long list whose copies share their common chunks.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Entries of a chunk, and chunks of a block. A change of one entry of a shared list copies the entries of its chunk,
/// one pointer for each other chunk of its block, and one for each other block.
const CHUNK: usize = 64;
const BLOCK: usize = CHUNK * CHUNK;

/// A list in blocks of chunks. A copy costs one pointer; a change of a shared list copies a chunk and the pointers next
/// to it.
#[derive(Debug, Clone, PartialEq)]
pub struct Chunks<T> {
    length: usize,
    blocks: Arc<Vec<Arc<Block<T>>>>,
}

type Block<T> = Vec<Arc<Vec<T>>>;

impl<T> Default for Chunks<T> {
    fn default() -> Self {
        Self {
            length: 0,
            blocks: Arc::default(),
        }
    }
}

impl<T: Clone> Chunks<T> {
    pub const fn len(&self) -> usize {
        self.length
    }

    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    pub fn get(&self, place: usize) -> Option<&T> {
        let block = self.blocks.get(place / BLOCK)?;
        block.get(place % BLOCK / CHUNK)?.get(place % CHUNK)
    }

    pub fn get_mut(&mut self, place: usize) -> Option<&mut T> {
        let block = Arc::make_mut(&mut self.blocks).get_mut(place / BLOCK)?;
        let chunk = Arc::make_mut(block).get_mut(place % BLOCK / CHUNK)?;
        Arc::make_mut(chunk).get_mut(place % CHUNK)
    }

    pub fn push(&mut self, entry: T) {
        let blocks = Arc::make_mut(&mut self.blocks);
        if self.length.is_multiple_of(BLOCK) {
            blocks.push(Arc::default());
        }
        let Some(block) = blocks.last_mut().map(Arc::make_mut) else {
            return;
        };
        if self.length.is_multiple_of(CHUNK) {
            block.push(Arc::new(Vec::with_capacity(CHUNK.min(4))));
        }
        if let Some(chunk) = block.last_mut() {
            Arc::make_mut(chunk).push(entry);
        }
        self.length += 1;
    }

    pub fn iter(&self) -> impl Iterator<Item = &T> {
        let chunks = self.blocks.iter().flat_map(|block| block.iter());
        chunks.flat_map(|chunk| chunk.iter())
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
    fn chunked_list_copies_keep_their_entries() {
        const MANY: usize = 3 * BLOCK;
        let mut list: Chunks<usize> = (0..MANY).collect();
        let before = list.clone();
        *list.get_mut(BLOCK + 100).unwrap() = 7;
        list.push(MANY);
        assert_eq!((list.len(), before.len()), (MANY + 1, MANY));
        let all = |list: &Chunks<usize>| list.iter().copied().collect::<Vec<_>>();
        assert_eq!(all(&before), (0..MANY).collect::<Vec<_>>());
        for place in 0..=MANY {
            let entry = if place == BLOCK + 100 { 7 } else { place };
            assert_eq!(list.get(place), Some(&entry));
        }
        assert_eq!(list.get(MANY + 1), None);
        let text = serde_json::to_string(&list).unwrap();
        assert_eq!(serde_json::from_str::<Chunks<usize>>(&text).unwrap(), list);
    }

    #[test]
    fn change_copies_one_chunk_and_its_parents() {
        fn differ<T>(one: &[Arc<T>], other: &[Arc<T>]) -> usize {
            let both = one.iter().zip(other);
            both.filter(|(a, b)| !Arc::ptr_eq(a, b)).count()
        }
        let mut list: Chunks<usize> = (0..3 * BLOCK).collect();
        let before = list.clone();
        *list.get_mut(BLOCK + 100).unwrap() = 7;
        assert_eq!(differ(&list.blocks, &before.blocks), 1);
        assert_eq!(differ(&list.blocks[1], &before.blocks[1]), 1);
    }
}
