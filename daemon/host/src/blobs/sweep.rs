//! Deletion of objects that nothing names.
//!
//! **Owns** the candidates: objects that the store had at [`Store::list_candidates`], less those that were stored again
//! or named since. A name is any sequence of 64 hexadecimal digits, so rather too many objects stay than too few.
//! **Order.** An object that is stored during the sweep is no candidate before the store looks for its file, and what
//! it names is no candidate before it has its own name. **Failure.** The candidates are only in memory: after a crash
//! the store has all objects that were not deleted.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::sync::atomic::Ordering;

use rye_core::digest::Digest;

use super::{DigestWriter, Error, PIECE, Store, lock, sync};

/// Objects that were deleted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Deleted {
    pub objects: u64,
    /// Bytes of the objects together.
    pub bytes: u64,
}

/// Removes the objects from the candidates that a sequence of bytes names, which is passed in pieces of any length.
pub(super) struct NameSearch<'s> {
    store: &'s Store,
    /// End of the bytes so far, which may be the beginning of a name.
    tail: Vec<u8>,
}

impl NameSearch<'_> {
    pub(super) fn add(&mut self, piece: &[u8]) {
        // A name across two pieces is neither in the first nor in the second.
        let most = Digest::TEXT_BYTES - 1;
        self.tail.extend(&piece[..piece.len().min(most)]);
        self.store.keep_named(&self.tail);
        self.store.keep_named(piece);
        if piece.len() >= most {
            self.tail.clear();
            self.tail.extend(&piece[piece.len() - most..]);
        } else {
            self.tail.drain(..self.tail.len().saturating_sub(most));
        }
    }
}

impl Store {
    /// Makes all objects of the store candidates. Must be called before any reference to an object is read. Blocks.
    pub fn list_candidates(&self) -> io::Result<()> {
        for number in 0..=u8::MAX {
            let entries = match fs::read_dir(self.root.join(format!("{number:02x}"))) {
                Ok(entries) => entries,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            let mut directory = lock(&self.directories[usize::from(number)]);
            for entry in entries {
                let entry = entry?;
                let digest = entry
                    .file_name()
                    .to_str()
                    .and_then(|name| name.parse().ok());
                let digest = digest.filter(|digest: &Digest| digest.as_bytes()[0] == number);
                if entry.file_type()?.is_file() {
                    directory.candidates.extend(digest);
                }
            }
        }
        self.has_candidates.store(true, Ordering::Release);
        Ok(())
    }

    /// Ends the sweep: no object is a candidate any more.
    pub fn drop_candidates(&self) {
        self.has_candidates.store(false, Ordering::Release);
        for directory in self.directories.iter() {
            lock(directory).candidates = HashSet::new();
        }
        *lock(&self.named) = Vec::new();
    }

    /// Removes the objects from the candidates that `bytes` names.
    pub fn keep_named(&self, bytes: &[u8]) {
        if self.has_candidates.load(Ordering::Acquire) {
            Digest::all_in(bytes).for_each(|digest| self.keep(&digest));
        }
    }

    /// Removes the objects from the candidates that the bytes name which `write` writes.
    pub fn keep_all_in(
        &self,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut searched = BufWriter::with_capacity(PIECE, self.searching_writer());
        write(&mut searched)?;
        searched.flush()
    }

    /// Removes an object from the candidates.
    pub fn keep(&self, digest: &Digest) {
        if self.directory(digest).candidates.remove(digest) {
            lock(&self.named).push(*digest);
        }
    }

    /// Removes the objects from the candidates that are named by objects for which [`Store::keep`] did so, and so on.
    /// Each is read once. Ends early, between two objects, if `is_stopped` returns true. Blocks.
    pub fn keep_reachable(&self, is_stopped: impl Fn() -> bool) -> Result<(), Error> {
        while !is_stopped() {
            // The lock ends with this statement, for the search takes it again.
            let next = lock(&self.named).pop();
            let Some(digest) = next else { break };
            let failed = |source| Error::Read { digest, source };
            let mut file = File::open(self.path(&digest)).map_err(failed)?;
            let found = self.searching_writer().read(&mut file).map_err(failed)?;
            if found != digest {
                return Err(Error::Damaged { digest, found });
            }
        }
        Ok(())
    }

    /// Deletes up to `most` candidates, none after [`Store::keep`] removed one, until [`Store::keep_reachable`] is called.
    /// Returns `None` if there are none left; all deletions survive a power cut then. Blocks.
    pub fn delete_candidates(&self, most: usize) -> io::Result<Option<Deleted>> {
        for directory in self.directories.iter() {
            let mut directory = lock(directory);
            let chosen: Vec<Digest> = directory.candidates.iter().take(most).copied().collect();
            let Some(path) = chosen.first().map(|digest| self.path(digest)) else {
                continue;
            };
            let mut deleted = Deleted::default();
            for digest in chosen {
                let named = lock(&self.named);
                if !named.is_empty() {
                    // They may name this object.
                    return Ok(Some(deleted));
                }
                let path = self.path(&digest);
                deleted.bytes += fs::symlink_metadata(&path)?.len();
                fs::remove_file(&path)?;
                deleted.objects += 1;
                directory.candidates.remove(&digest);
            }
            if directory.candidates.is_empty() {
                sync(path.parent().expect("an object is in a directory"))?;
            }
            return Ok(Some(deleted));
        }
        Ok(None)
    }

    /// Returns a writer that removes the objects from the candidates that its bytes name, if there are candidates.
    pub(super) fn searching_writer(&self) -> DigestWriter<'_> {
        let has_candidates = self.has_candidates.load(Ordering::Acquire);
        DigestWriter {
            search: has_candidates.then(|| NameSearch {
                store: self,
                tail: Vec::new(),
            }),
            ..DigestWriter::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(names: &[&[u8]]) -> (tempfile::TempDir, Store, Vec<Digest>) {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("objects");
        let former = Store::open(&root);
        let names = names.iter().map(|bytes| former.put(bytes).unwrap());
        let names = names.collect();
        let store = Store::open(root);
        store.list_candidates().unwrap();
        (dir, store, names)
    }

    /// Deletes all candidates, one at a time. Returns the objects that the store had.
    fn delete_all(store: &Store) -> Deleted {
        let mut all = Deleted::default();
        store.keep_reachable(|| false).unwrap();
        while let Some(deleted) = store.delete_candidates(1).unwrap() {
            assert_eq!(deleted.objects, 1);
            all.objects += 1;
            all.bytes += deleted.bytes;
        }
        all
    }

    fn left(store: &Store, names: &[Digest]) -> Vec<bool> {
        names.iter().map(|name| store.get(name).is_ok()).collect()
    }

    #[test]
    fn only_objects_without_a_name_are_deleted() {
        let (_dir, store, names) = store(&[b"named", b"none", b"inside a longer number", b"x"]);
        store.keep_named(format!("[\"{}\",\"0{}f\"]", names[0], names[2]).as_bytes());
        store.keep(&names[3]);
        let deleted = delete_all(&store);
        assert_eq!((deleted.objects, deleted.bytes), (1, 4));
        assert_eq!(left(&store, &names), [true, false, true, true]);
    }

    #[test]
    fn object_that_is_stored_again_is_not_deleted() {
        let (_dir, store, names) = store(&[b"again", b"none"]);
        store.put(b"again").unwrap();
        delete_all(&store);
        assert_eq!(left(&store, &names), [true, false]);
        store.put(b"none").unwrap();
        assert_eq!(left(&store, &names), [true, true]);
    }

    #[test]
    fn object_named_by_a_stored_one_is_not_deleted() {
        let (_dir, store, names) = store(&[b"inner", b"none"]);
        store.put(names[0].to_string().as_bytes()).unwrap();
        delete_all(&store);
        assert_eq!(left(&store, &names), [true, false]);
    }

    #[test]
    fn objects_named_through_others_are_not_deleted() {
        let dir = tempfile::tempdir().unwrap();
        let former = Store::open(dir.path());
        let mut names = vec![former.put(b"first").unwrap()];
        for number in 0..4_usize {
            // The name is in two pieces of a read.
            let text = format!("{}{}", " ".repeat(PIECE - number * 20), names[number]);
            names.push(former.put(text.as_bytes()).unwrap());
        }
        let store = Store::open(dir.path());
        store.list_candidates().unwrap();
        store.keep(&names[3]);
        assert_eq!(delete_all(&store).objects, 1);
        assert_eq!(left(&store, &names), [true, true, true, true, false]);
    }

    #[test]
    fn nothing_is_deleted_until_a_named_object_was_read() {
        let (_dir, store, names) = store(&[b"named", b"none"]);
        store.keep(&names[0]);
        let none = Deleted::default();
        assert_eq!(store.delete_candidates(9).unwrap(), Some(none));
        store.keep_reachable(|| false).unwrap();
        assert_ne!(store.delete_candidates(9).unwrap(), Some(none));
        assert_eq!(left(&store, &names), [true, false]);
    }

    #[test]
    fn damaged_object_that_is_named_fails_the_search() {
        let (_dir, store, names) = store(&[b"named"]);
        fs::write(store.path(&names[0]), "other").unwrap();
        store.keep(&names[0]);
        let searched = store.keep_reachable(|| false);
        assert!(matches!(searched, Err(Error::Damaged { .. })));
    }

    #[test]
    fn names_are_found_in_pieces_of_any_length() {
        for length in [1, 7, 62, 63, 64, 65, 200] {
            let (_dir, store, names) = store(&[b"one", b"two", b"three"]);
            let text = format!("{}-{}{}", names[0], names[1], names[2]);
            let mut search = store.searching_writer().search.unwrap();
            for piece in text.as_bytes().chunks(length) {
                search.add(piece);
            }
            assert_eq!(store.delete_candidates(9).unwrap(), None, "{length}");
        }
    }

    #[test]
    fn nothing_is_a_candidate_after_the_sweep() {
        let (_dir, store, names) = store(&[b"none"]);
        store.drop_candidates();
        assert_eq!(store.delete_candidates(9).unwrap(), None);
        assert_eq!(left(&store, &names), [true]);
    }
}
