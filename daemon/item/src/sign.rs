//! Signing files with the user's key: what `ryectl sign` does.
//!
//! **Never** signs what could not be used afterwards: the item must declare its version and the place it lies in, or
//! the signature is refused with the reason. A name that is missing is added, so that the signature covers it. The file is replaced atomically and keeps its permissions
//! and its line ends.

mod name;
mod past;
mod schemas;

use std::borrow::Cow;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use globset::{GlobBuilder, GlobMatcher};
use rye_core::clock::Timestamp;
use rye_core::error::{ErrorKind, Kinded};
use rye_core::id::{InvalidId, ItemId, ItemKind, ItemRef};
use rye_core::seal::{self, Coverage, SecretKey, Token};

use crate::file;
use crate::library::{self, declared_place};
use crate::metadata::{self, Metadata};
use crate::spaces::{self, FOLDER, Place, SKIPPED, Space, Spaces};
use crate::trust;

pub use self::past::Past;

/// Why a file is not signed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The name is no item name.
    #[error("failed to read the name of an item")]
    Name {
        /// Why.
        #[source]
        source: InvalidId,
    },
    /// The pattern is no glob.
    #[error("failed to read the pattern `{pattern}`")]
    Pattern {
        /// The pattern.
        pattern: String,
        /// Why.
        #[source]
        source: globset::Error,
    },
    /// Nothing has this name.
    #[error("no file is {target} in the {searched} space")]
    NotFound {
        /// What was asked for.
        target: String,
        /// The spaces that were searched, in words.
        searched: &'static str,
    },
    /// System items are not the user's to sign.
    #[error("{item} is a system item; copy it to your project or user space to change it")]
    System {
        /// The item.
        item: ItemRef,
    },
    /// The file cannot be opened, or is no item.
    #[error("failed to sign")]
    Unreadable {
        /// Why.
        #[source]
        source: spaces::Error,
    },
    /// The file is a symbolic link.
    #[error("`{path}` is a symbolic link; sign the file it points to")]
    Link {
        /// The file.
        path: PathBuf,
    },
    /// The file cannot be read as an item.
    #[error("failed to sign `{path}`")]
    Metadata {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: metadata::Error,
    },
    /// The item does not say where it belongs.
    #[error("failed to sign")]
    Misplaced {
        /// Which field, and what it should be.
        #[source]
        source: Box<library::Error>,
    },
    /// It is a tool and says nothing about itself.
    #[error(
        "`{path}` does not say what it is: a tool has {how}; `ryectl new tool ID` writes one to begin with"
    )]
    Bare {
        /// The file.
        path: PathBuf,
        /// The fields it lacks.
        how: &'static str,
    },
    /// It is not what a schema asks of configuration in its place.
    #[error("failed to sign `{path}`: {problem} (`{schema}`)")]
    Unfit {
        /// The file.
        path: PathBuf,
        /// What does not fit.
        problem: String,
        /// The file with the schema.
        schema: PathBuf,
    },
    /// It is in the folder of trusted keys and cannot be read as one: signed, it would end the trust in that key.
    #[error("failed to sign `{path}`: it is no trusted key: {problem}")]
    NoKey {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// It says what configuration has to be like, and cannot be used for that.
    #[error("failed to use `{path}`: {problem}")]
    Schema {
        /// The file.
        path: PathBuf,
        /// What is wrong, and the fix.
        problem: String,
    },
    /// The item has no version, or one that is none.
    #[error("failed to sign `{path}`: `version` must be three numbers, as in \"1.0.0\"{}",
        found.as_ref().map(|found| format!(", not \"{found}\"")).unwrap_or_default())]
    Version {
        /// The file.
        path: PathBuf,
        /// What stands there.
        found: Option<String>,
    },
    /// This type of file has no place for a signature.
    #[error("failed to sign `{path}`")]
    Seal {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: seal::Error,
    },
    /// The operating system refused.
    #[error("failed to write `{path}`")]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl Error {
    /// Whether the words of the call are at fault: a name or a pattern that cannot be one.
    pub fn is_about_the_words(&self) -> bool {
        matches!(self, Self::Name { .. } | Self::Pattern { .. })
    }
}

impl Kinded for Error {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Name { .. }
            | Self::Pattern { .. }
            | Self::Link { .. }
            | Self::Misplaced { .. }
            | Self::Unfit { .. }
            | Self::NoKey { .. }
            | Self::Schema { .. }
            | Self::Version { .. }
            | Self::Bare { .. } => ErrorKind::Invalid,
            Self::NotFound { .. } => ErrorKind::NotFound,
            Self::System { .. } => ErrorKind::Denied,
            Self::Unreadable { source } => source.kind(),
            Self::Metadata { source, .. } => source.kind(),
            Self::Seal { source, .. } => source.kind(),
            Self::Write { source, .. } => file::kind(source),
        }
    }
}

/// A file that is signed now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signed {
    /// The item.
    pub item: ItemRef,
    /// Its file.
    pub path: PathBuf,
    /// SHA-256 of what the signature covers, in hex.
    pub content_hash: String,
    /// Whether the file was touched.
    pub change: Change,
    /// Whether the item did not name itself, and does now.
    pub named: bool,
    /// The signature that stood in the file before, of whomever and whether or not it still fitted.
    pub before: Option<Token>,
    /// What the signature covers, with line ends normalised.
    pub text: String,
}

/// Whether signing changed a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It has a new signature.
    Written,
    /// This key had signed this very content; the file was left alone.
    Current,
}

/// The files that `target` names: `TYPE:ID`, `TYPE:GLOB`, or a path.
///
/// Names are looked up in the project, then in the user space; a glob takes what it matches in the first of them
/// that exists. A glob without `/` matches the last part of ids at any depth.
pub fn targets(spaces: &Spaces, target: &str) -> Result<Vec<Place>, Error> {
    let Some((kind, name)) = target
        .split_once(':')
        .and_then(|(kind, name)| Some((kind.parse::<ItemKind>().ok()?, name)))
    else {
        return spaces
            .locate(Path::new(target))
            .map(|place| vec![place])
            .map_err(|source| Error::Unreadable { source });
    };
    let searched = match spaces.root(Space::Project) {
        Some(_) => "project or user",
        None => "user",
    };
    let both = [Space::Project, Space::User];
    places(spaces, &both, kind, name)?.ok_or_else(|| Error::NotFound {
        target: target.to_owned(),
        searched,
    })
}

/// The files of `space` that an id, or a glob of ids, names.
pub fn targets_in(
    spaces: &Spaces,
    space: Space,
    kind: ItemKind,
    name: &str,
) -> Result<Vec<Place>, Error> {
    places(spaces, &[space], kind, name)?.ok_or_else(|| Error::NotFound {
        target: format!("{kind}:{name}"),
        searched: space.as_str(),
    })
}

/// Whether a name stands for several.
pub fn is_glob(name: &str) -> bool {
    name.contains(['*', '?', '[', '{'])
}

/// What is named in the first of `searched` that has it; `None` if none does.
fn places(
    spaces: &Spaces,
    searched: &[Space],
    kind: ItemKind,
    name: &str,
) -> Result<Option<Vec<Place>>, Error> {
    let found = if is_glob(name) {
        matching(spaces, searched, kind, name)?
    } else {
        let id = ItemId::new(name).map_err(|source| Error::Name { source })?;
        let item = ItemRef { kind, id };
        named(spaces, searched, &item)?.into_iter().collect()
    };
    Ok(Some(found).filter(|found| !found.is_empty()))
}

fn named(spaces: &Spaces, searched: &[Space], item: &ItemRef) -> Result<Option<Place>, Error> {
    for &space in searched {
        let found = spaces
            .find(item, space)
            .map_err(|source| Error::Unreadable { source })?;
        if let Some((place, _)) = found {
            return Ok(Some(place));
        }
    }
    Ok(None)
}

fn matching(
    spaces: &Spaces,
    searched: &[Space],
    kind: ItemKind,
    pattern: &str,
) -> Result<Vec<Place>, Error> {
    let anywhere = if pattern.contains('/') {
        pattern.to_owned()
    } else {
        format!("**/{pattern}")
    };
    let glob = GlobBuilder::new(&anywhere)
        .literal_separator(true)
        .build()
        .map_err(|source| Error::Pattern {
            pattern: pattern.to_owned(),
            source,
        })?
        .compile_matcher();
    let root = searched.iter().find_map(|space| spaces.root(*space));
    let mut found = Vec::new();
    if let Some(root) = root {
        collect(
            spaces,
            &root.join(FOLDER).join(kind.folder()),
            &glob,
            &mut found,
        );
    }
    found.sort_by_cached_key(Place::path);
    Ok(found)
}

/// Adds the items below `folder` that match; links are not followed.
fn collect(spaces: &Spaces, folder: &Path, glob: &GlobMatcher, found: &mut Vec<Place>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let Ok(file_type) = entry.file_type() else {
            continue;
        };
        let path = entry.path();
        if file_type.is_dir() {
            if !SKIPPED.iter().any(|skipped| entry.file_name() == *skipped) {
                collect(spaces, &path, glob, found);
            }
        } else if file_type.is_file()
            && let Ok(place) = spaces.locate(&path)
            && glob.is_match(place.item.id.as_str())
        {
            found.push(place);
        }
    }
}

/// Signs the file at `place` with `key`; what the schemas of `spaces` ask of configuration holds.
pub fn sign(
    spaces: &Spaces,
    place: &Place,
    key: &SecretKey,
    at: Timestamp,
) -> Result<Signed, Error> {
    let path = place.path();
    if place.space == Space::System {
        return Err(Error::System {
            item: place.item.clone(),
        });
    }
    let attributes = fs::symlink_metadata(&path).map_err(|source| Error::Unreadable {
        source: spaces::Error::Read {
            path: path.clone(),
            source,
        },
    })?;
    if attributes.is_symlink() {
        return Err(Error::Link { path });
    }
    let content = place
        .read()
        .and_then(|content| {
            content.ok_or_else(|| spaces::Error::Read {
                path: path.clone(),
                source: io::ErrorKind::NotFound.into(),
            })
        })
        .map_err(|source| Error::Unreadable { source })?;
    let text = metadata::utf8(&content)
        .map_err(|source| Error::Metadata {
            path: path.clone(),
            source,
        })?
        .trim_start_matches('\u{feff}');
    let (kind, extension) = (place.item.kind, place.extension);
    let before = seal::claim(kind, extension, text);
    let text = with_name(place, text)?;
    let (named, text) = (matches!(text, Cow::Owned(_)), &*text);
    check(spaces, place, text)?;
    let seal_error = |source| Error::Seal {
        path: path.clone(),
        source,
    };
    let covered = seal::strip(kind, extension, text).map_err(seal_error)?;
    let current = seal::inspect(kind, extension, text)
        .ok()
        .filter(|seal| seal.coverage == Coverage::Full && seal.token.verify(key.public()).is_ok());
    if let Some(seal) = current {
        return Ok(Signed {
            item: place.item.clone(),
            path,
            content_hash: seal.token.hash,
            change: Change::Current,
            named: false,
            before,
            text: covered,
        });
    }
    let signed = seal::sign_text(kind, extension, text, key, at).map_err(seal_error)?;
    let seal = seal::inspect(kind, extension, &signed).map_err(seal_error)?;
    file::replace(&path, signed.as_bytes(), attributes.mode() & 0o7777).map_err(|source| {
        Error::Write {
            path: path.clone(),
            source,
        }
    })?;
    Ok(Signed {
        item: place.item.clone(),
        path,
        content_hash: seal.token.hash,
        change: Change::Written,
        named,
        before,
        text: covered,
    })
}

/// What the item at `place` says about itself in `text`.
fn metadata(place: &Place, text: &str) -> Result<Metadata, Error> {
    let text = seal::normalise(text);
    let metadata = Metadata::parse(place.item.kind, place.extension, &text);
    metadata.map_err(|source| Error::Metadata {
        path: place.path(),
        source,
    })
}

/// `text`, or if the item does not name itself there, `text` with a line that does.
fn with_name<'a>(place: &Place, text: &'a str) -> Result<Cow<'a, str>, Error> {
    let before = metadata(place, text)?;
    if before.name.is_some() {
        return Ok(Cow::Borrowed(text));
    }
    let (item, name) = (&place.item, place.item.id.name());
    let says_nothing =
        before.version.is_none() && before.tool_type.is_none() && before.category.is_none();
    if item.kind == ItemKind::Tool && says_nothing {
        let how = match place.extension {
            "yaml" | "yml" => "`version`, `tool_type`, `executor_id` and `category`",
            _ => "`__version__`, `__tool_type__`, `__executor_id__` and `__category__`",
        };
        let path = place.path();
        return Err(Error::Bare { path, how });
    }
    let added = name::added(item.kind, place.extension, text, name);
    let is_read = |text: &String| {
        let name = Some(name.to_owned());
        metadata(place, text).is_ok_and(|after| after == Metadata { name, ..before })
    };
    match added.filter(is_read) {
        Some(text) => Ok(Cow::Owned(text)),
        None => Err(Error::Misplaced {
            source: Box::new(library::nameless(place)),
        }),
    }
}

/// Refuses to sign what could not be used.
fn check(spaces: &Spaces, place: &Place, text: &str) -> Result<(), Error> {
    schemas::check(spaces, place, &seal::normalise(text))?;
    if place.item.kind == ItemKind::Config && trust::is_entry(&place.item.id) {
        let path = place.path();
        let text = seal::normalise(text);
        if let Err(problem) = trust::check_entry(&path, &text) {
            return Err(Error::NoKey { path, problem });
        }
    }
    let metadata = metadata(place, text)?;
    declared_place(place, &metadata).map_err(|error| Error::Misplaced {
        source: Box::new(error),
    })?;
    if metadata.version.as_deref().is_some_and(is_version) {
        Ok(())
    } else {
        Err(Error::Version {
            path: place.path(),
            found: metadata.version,
        })
    }
}

/// Whether `text` is a version that can be signed: `N.N.N`, without leading zeros.
pub fn is_version(text: &str) -> bool {
    let number = |part: &str| {
        part.parse::<u64>()
            .is_ok_and(|number| number.to_string() == part)
    };
    let parts: Vec<&str> = text.split('.').collect();
    parts.len() == 3 && parts.into_iter().all(number)
}

#[cfg(test)]
mod tests;
