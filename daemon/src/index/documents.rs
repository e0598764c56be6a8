//! Documents of one library, kept in step with the files.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rye_core::clock::Uptime;
use rye_core::id::ItemRef;
use rye_core::search::{DocId, Field, Index};
use rye_item::library::Document;
use rye_item::spaces::{ItemLocation, Stamp};
use rye_item::{Library, Space};

/// Retention of an unused index.
const IDLE: Duration = Duration::from_mins(10);
/// Maximum delay until a change of a file's content is noticed.
const FRESH: Duration = Duration::from_secs(2);
/// Maximum number of documents per space.
const MOST_DOCUMENTS: usize = 20_000;
/// Memory limit of an index in bytes; beyond it, only the metadata of further documents is indexed.
const MOST_BYTES: usize = 32 * 1024 * 1024;
/// Maximum indexed length of a text, in bytes.
const MOST_CONTENT: usize = 64 * 1024;
/// Number of changes after which the index is rebuilt, because unused words remain in it.
const MOST_CHANGES: usize = 20_000;

/// Data about a document besides its words.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) item: ItemRef,
    pub(super) space: Space,
    pub(super) path: PathBuf,
    /// Location of the file; `None` for an item that is part of this program.
    pub(super) location: Option<ItemLocation>,
    pub(super) title: Option<String>,
    pub(super) description: Option<String>,
    /// Precedence among several files of one item.
    pub(super) rank: Rank,
}

/// Rank of the space, then of the extension; lower is preferred.
pub(super) type Rank = (u8, usize);

#[derive(Debug, Default)]
pub(super) struct Documents {
    pub(super) index: Index,
    /// Indexed by document id.
    known: Vec<Option<Known>>,
    by_item: HashMap<ItemRef, Vec<DocId>>,
    /// Document of each file; `None` if the file is not text.
    files: HashMap<PathBuf, (Stamp, Option<DocId>)>,
    folders: Vec<(PathBuf, Option<Stamp>)>,
    checked: Option<Uptime>,
    used: Uptime,
    changes: usize,
}

impl Documents {
    /// True if the index was unused for `IDLE`.
    pub(super) fn is_old(&self, now: Uptime) -> bool {
        now.since(self.used) >= IDLE
    }

    /// Updates the index with changed files.
    pub(super) fn refresh(&mut self, library: &Library, now: Uptime) {
        let is_fresh = self
            .checked
            .is_some_and(|looked| now.since(looked) < FRESH && !self.have_folders_changed());
        self.used = now;
        if is_fresh {
            return;
        }
        if self.checked.is_none() || self.changes > MOST_CHANGES {
            *self = Self {
                used: now,
                ..Self::default()
            };
            for document in library.shipped() {
                self.add(document, None);
            }
        }
        self.checked = Some(now);
        self.folders.clear();
        let mut seen = HashSet::new();
        for space in [Space::Project, Space::User] {
            let listing = library.spaces().listing(space, MOST_DOCUMENTS);
            self.folders.extend(listing.folders);
            for (place, stamp) in listing.files {
                let path = place.path();
                self.update(library, place, &path, stamp);
                seen.insert(path);
            }
        }
        let gone = self.files.extract_if(|path, _| !seen.contains(path));
        let gone: Vec<DocId> = gone.filter_map(|(_, (_, doc))| doc).collect();
        for doc in gone {
            self.remove(doc);
        }
    }

    fn have_folders_changed(&self) -> bool {
        self.folders
            .iter()
            .any(|(path, stamp)| Stamp::at(path) != *stamp)
    }

    fn update(&mut self, library: &Library, place: ItemLocation, path: &PathBuf, stamp: Stamp) {
        match self.files.get(path) {
            Some((known, _)) if *known == stamp => return,
            Some((_, Some(doc))) => {
                let doc = *doc;
                self.remove(doc);
            }
            Some((_, None)) | None => {}
        }
        let document = library.document(&place);
        let doc = document.map(|document| self.add(document, Some(place)));
        self.files.insert(path.clone(), (stamp, doc));
    }

    fn add(&mut self, document: Document, place: Option<ItemLocation>) -> DocId {
        let Document {
            item,
            space,
            path,
            title,
            description,
            tags,
            content,
        } = document;
        let content = if self.index.bytes() < MOST_BYTES {
            &content[..content.floor_char_boundary(MOST_CONTENT)]
        } else {
            ""
        };
        let tags = tags.join(" ");
        let doc = self.index.add([
            (Field::Name, item.id.name()),
            (Field::Title, title.as_deref().unwrap_or_default()),
            (
                Field::Description,
                description.as_deref().unwrap_or_default(),
            ),
            (Field::Category, item.id.category()),
            (Field::Tags, &tags),
            (Field::Content, content),
        ]);
        self.changes += 1;
        self.by_item.entry(item.clone()).or_default().push(doc);
        let known = Known {
            rank: rank(&item, space, &path),
            item,
            space,
            path,
            location: place,
            title,
            description,
        };
        if self.known.len() <= doc.index() {
            self.known.resize_with(doc.index() + 1, || None);
        }
        self.known[doc.index()] = Some(known);
        doc
    }

    fn remove(&mut self, doc: DocId) {
        self.index.remove(doc);
        self.changes += 1;
        let known = self.known.get_mut(doc.index()).and_then(Option::take);
        if let Some(known) = known
            && let Some(docs) = self.by_item.get_mut(&known.item)
        {
            docs.retain(|other| *other != doc);
            if docs.is_empty() {
                self.by_item.remove(&known.item);
            }
        }
    }

    /// Data about `doc`.
    pub(super) fn known(&self, doc: DocId) -> Option<&Known> {
        self.known.get(doc.index())?.as_ref()
    }

    /// Other files of this item, in order of precedence.
    pub(super) fn namesakes(&self, doc: DocId, item: &ItemRef) -> Vec<&Known> {
        let docs = self.by_item.get(item).into_iter().flatten();
        let others = docs.filter(|other| **other != doc);
        let mut known: Vec<&Known> = others.filter_map(|doc| self.known(*doc)).collect();
        known.sort_by_key(|known| known.rank);
        known
    }
}

/// Precedence of the file at `path` among the files of `item`.
fn rank(item: &ItemRef, space: Space, path: &Path) -> Rank {
    let space = match space {
        Space::Project => 0,
        Space::User => 1,
        Space::System => 2,
    };
    let extension = path.extension().and_then(|extension| extension.to_str());
    let mut extensions = item.kind.extensions().iter();
    let place = extensions.position(|known| Some(*known) == extension);
    (space, place.unwrap_or(usize::MAX))
}
