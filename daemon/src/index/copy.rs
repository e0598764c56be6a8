//! Copies of verified items in another space.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use rye_item::spaces::FOLDER;
use rye_item::{Item, Library, Space};

use super::Error;
use rye_host::safe_path::{Dir, Draft, temporary_name};

/// Writes the verified text of `item` into `space` under the same id.
pub(super) fn copy(
    library: &Library,
    item: &Item,
    space: Space,
    replace: bool,
    random: u64,
) -> Result<PathBuf, Error> {
    if space == Space::System || space == item.space {
        return Err(Error::Invalid(format!(
            "`destination` is project or user, and not where the item is: the {} space",
            item.space
        )));
    }
    let root = library.spaces().root(space).ok_or_else(|| {
        Error::Invalid("`destination: project` needs a project: run `ryectl init`".to_owned())
    })?;
    let folder = Path::new(item.item.kind.folder()).join(item.item.id.category());
    let name = |extension: &str| format!("{}.{extension}", item.item.id.name());
    let path = |extension| root.join(FOLDER).join(&folder).join(name(extension));
    let failed = |source| Error::Write {
        path: path(item.extension),
        source,
    };
    let directory = space_folder(root, space).and_then(|space| space.make(&folder));
    let directory = directory.map_err(failed)?;
    for &extension in item.item.kind.extensions() {
        if directory.look(&name(extension)).map_err(failed)?.is_none() {
            continue;
        }
        let is_same = extension == item.extension;
        if !(is_same && replace) {
            return Err(Error::Exists {
                path: path(extension),
                fix: if is_same {
                    "`replace: true` puts the copy in its place"
                } else {
                    "it is the item of this id there: remove it first"
                },
            });
        }
    }
    let temporary = temporary_name(&format!("{random:016x}"));
    let written = Draft::new(&directory, temporary).and_then(|mut draft| {
        draft.file.write_all(item.text.as_bytes())?;
        draft.commit(&name(item.extension))
    });
    written.map_err(failed)?;
    Ok(path(item.extension))
}

/// Opens the `.ai` of a space. A project's may not be a link; users may link theirs.
fn space_folder(root: &Path, space: Space) -> io::Result<Dir> {
    match space {
        Space::Project => Dir::root(root)?.make(Path::new(FOLDER)),
        Space::User | Space::System => {
            let folder = root.join(FOLDER);
            std::fs::create_dir_all(&folder)?;
            Dir::root(&folder.canonicalize()?)
        }
    }
}
