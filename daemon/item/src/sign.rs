//! Signing of files with the user's key, for `ryectl sign`.
//!
//! **Never** signs an item that could not be used afterwards: it must declare its version and match its path, or
//! signing fails with the reason. A missing name is added, so that the signature covers it. The file is replaced
//! atomically and keeps its permissions and line ends.

mod name;
mod schemas;
mod signed_copies;

use std::borrow::Cow;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use globset::{GlobBuilder, GlobMatcher};
use rye_core::clock::Timestamp;
use rye_core::configuration;
use rye_core::error::{ErrorKind, Kinded, with_sources};
use rye_core::expr::did_you_mean;
use rye_core::id::{InvalidId, ItemId, ItemKind, ItemRef, STATE_GRAPH};
use rye_core::provider::Owner;
use rye_core::seal::{self, Coverage, SecretKey, Token};
use semver::Version;

use crate::file;
use crate::library::{self, ConfigFile, check_location};
use crate::metadata::{self, Metadata, Unread};
use crate::spaces::{self, FOLDER, ItemLocation, SKIPPED, Space, Spaces};
use crate::trust;

pub use self::signed_copies::SignedCopies;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("failed to read the name of an item")]
    Name {
        #[source]
        source: InvalidId,
    },
    #[error("failed to read the pattern `{pattern}`")]
    Pattern {
        pattern: String,
        #[source]
        source: globset::Error,
    },
    #[error("no file is {target} in the {searched} space")]
    NotFound {
        /// The requested name or pattern.
        target: String,
        /// The searched spaces, as text.
        searched: &'static str,
    },
    /// Users cannot sign system items.
    #[error("{item} is a system item; copy it to your project or user space to change it")]
    System { item: ItemRef },
    /// The file cannot be opened, or is not an item.
    #[error("failed to sign")]
    Unreadable {
        #[source]
        source: spaces::Error,
    },
    #[error("`{path}` is a symbolic link; sign the file it points to")]
    Link { path: PathBuf },
    #[error("failed to sign `{path}`")]
    Metadata {
        path: PathBuf,
        #[source]
        source: metadata::Error,
    },
    /// The item does not declare where it belongs.
    #[error("failed to sign")]
    Misplaced {
        /// Names the field and its expected value.
        #[source]
        source: Box<library::Error>,
    },
    /// The configuration does not match a schema for its path.
    #[error("failed to sign `{path}`: {problem} (`{schema}`)")]
    Unfit {
        path: PathBuf,
        /// The mismatch.
        problem: String,
        /// The file with the schema.
        schema: PathBuf,
    },
    /// The file is in the folder of trusted keys and is not a valid entry. With a signature it would end the trust in
    /// that key.
    #[error("failed to sign `{path}`: it is no trusted key: {problem}")]
    NoKey { path: PathBuf, problem: String },
    /// A schema file cannot be used.
    #[error("failed to use `{path}`: {problem}")]
    Schema {
        path: PathBuf,
        /// The problem and the fix.
        problem: String,
    },
    /// Every run that reads this configuration would be refused.
    #[error("failed to sign `{path}`: {problem}")]
    Configuration {
        path: PathBuf,
        /// The problem and the fix.
        problem: String,
    },
    /// The tool has keys for which it would be refused.
    #[error("failed to sign `{path}`: {problem}")]
    Unread {
        path: PathBuf,
        /// The keys, with their lines and the fix.
        problem: String,
    },
    /// The item has no version or an invalid one.
    #[error("failed to sign `{path}`: `version` must be three numbers, as in \"1.0.0\" or \"1.0.0-rc.1\"{}",
        found.as_ref().map(|found| format!(", not \"{found}\"")).unwrap_or_default())]
    Version {
        path: PathBuf,
        found: Option<String>,
    },
    /// Files of this type cannot carry a signature.
    #[error("failed to sign `{path}`")]
    Seal {
        path: PathBuf,
        #[source]
        source: seal::Error,
    },
    #[error("failed to write `{path}`")]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl Error {
    /// True if the arguments of the call are invalid: a name or a pattern that cannot be one.
    pub fn is_invalid_argument(&self) -> bool {
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
            | Self::Configuration { .. }
            | Self::Unread { .. }
            | Self::Version { .. } => ErrorKind::Invalid,
            Self::NotFound { .. } => ErrorKind::NotFound,
            Self::System { .. } => ErrorKind::Denied,
            Self::Unreadable { source } => source.kind(),
            Self::Metadata { source, .. } => source.kind(),
            Self::Seal { source, .. } => source.kind(),
            Self::Write { source, .. } => file::kind(source),
        }
    }
}

/// Result of signing a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signed {
    pub item: ItemRef,
    pub path: PathBuf,
    /// SHA-256 of the signed content, in hex.
    pub content_hash: String,
    pub change: Change,
    /// True if the item's name was missing and has been added.
    pub named: bool,
    /// Previous signature in the file, by any signer, valid or not.
    pub previous_signature: Option<Token>,
    /// The signed content, with line ends normalised.
    pub text: String,
    /// Notes about entries without effect.
    pub warnings: Vec<String>,
}

/// Effect of signing on the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// The file has a new signature.
    Written,
    /// This key had already signed this content; the file was not changed.
    Current,
}

/// Files that `target` names: `TYPE:ID`, `TYPE:GLOB`, or a path.
///
/// Names are looked up in the project, then in the user space. A glob matches files of the first of these spaces that
/// exists. A glob without `/` matches the last part of ids at any depth.
pub fn targets(spaces: &Spaces, target: &str) -> Result<Vec<ItemLocation>, Error> {
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

/// Files of `space` that an id, or a glob of ids, names.
pub fn targets_in(
    spaces: &Spaces,
    space: Space,
    kind: ItemKind,
    name: &str,
) -> Result<Vec<ItemLocation>, Error> {
    places(spaces, &[space], kind, name)?.ok_or_else(|| Error::NotFound {
        target: format!("{kind}:{name}"),
        searched: space.as_str(),
    })
}

/// True if the name is a pattern that may match several items.
pub fn is_glob(name: &str) -> bool {
    name.contains(['*', '?', '[', '{'])
}

/// Matches in the first of `searched` that has any; `None` if none has.
fn places(
    spaces: &Spaces,
    searched: &[Space],
    kind: ItemKind,
    name: &str,
) -> Result<Option<Vec<ItemLocation>>, Error> {
    let found = if is_glob(name) {
        matching(spaces, searched, kind, name)?
    } else {
        let id = ItemId::new(name).map_err(|source| Error::Name { source })?;
        let item = ItemRef { kind, id };
        named(spaces, searched, &item)?.into_iter().collect()
    };
    Ok(Some(found).filter(|found| !found.is_empty()))
}

fn named(
    spaces: &Spaces,
    searched: &[Space],
    item: &ItemRef,
) -> Result<Option<ItemLocation>, Error> {
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
) -> Result<Vec<ItemLocation>, Error> {
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
    found.sort_by_cached_key(ItemLocation::path);
    Ok(found)
}

/// Adds the matching items below `folder`; links are not followed.
fn collect(spaces: &Spaces, folder: &Path, glob: &GlobMatcher, found: &mut Vec<ItemLocation>) {
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

/// Signs the file at `place` with `key`. Configuration must match the schemas of `spaces`.
pub fn sign(
    spaces: &Spaces,
    place: &ItemLocation,
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
    let warnings = check(spaces, place, text)?;
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
            previous_signature: before,
            text: covered,
            warnings,
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
        previous_signature: before,
        text: covered,
        warnings,
    })
}

fn metadata(place: &ItemLocation, text: &str) -> Result<Metadata, Error> {
    let text = seal::normalise(text);
    Metadata::parse(place.item.kind, place.extension, &text).map_err(|source| unread(place, source))
}

fn unread(place: &ItemLocation, source: metadata::Error) -> Error {
    Error::Metadata {
        path: place.path(),
        source,
    }
}

/// Returns `text`, with a line that names the item if that is missing.
fn with_name<'a>(place: &ItemLocation, text: &'a str) -> Result<Cow<'a, str>, Error> {
    let (kind, extension) = (place.item.kind, place.extension);
    let before = Metadata::of_draft(kind, extension, &seal::normalise(text))
        .map_err(|source| unread(place, source))?;
    if before.name.is_some() {
        return Ok(Cow::Borrowed(text));
    }
    let name = place.item.id.name();
    let added = name::added(kind, extension, text, name);
    let name = Some(name.to_owned());
    let expected = without_lines(Metadata { name, ..before });
    let is_read =
        |text: &String| metadata(place, text).is_ok_and(|after| without_lines(after) == expected);
    match added.filter(is_read) {
        Some(text) => Ok(Cow::Owned(text)),
        None => Err(Error::Misplaced {
            source: Box::new(library::nameless(place)),
        }),
    }
}

/// Removes the positions, which an added line changes.
fn without_lines(mut metadata: Metadata) -> Metadata {
    for unread in &mut metadata.unread {
        unread.line = None;
    }
    metadata
}

/// Refuses to sign an item that could not be used. Returns notes about entries without effect.
fn check(spaces: &Spaces, place: &ItemLocation, text: &str) -> Result<Vec<String>, Error> {
    schemas::check(spaces, place, &seal::normalise(text))?;
    if place.item.kind == ItemKind::Config && trust::is_entry(&place.item.id) {
        let path = place.path();
        let text = seal::normalise(text);
        if let Err(problem) = trust::check_entry(&path, &text) {
            return Err(Error::NoKey { path, problem });
        }
    }
    let metadata = metadata(place, text)?;
    check_location(place, &metadata).map_err(|error| Error::Misplaced {
        source: Box::new(error),
    })?;
    if !metadata.version.as_deref().is_some_and(is_version) {
        return Err(Error::Version {
            path: place.path(),
            found: metadata.version,
        });
    }
    // Without an executor it is a file that others read, such as a schema of configuration.
    if is_graph_without_type(&metadata)
        || metadata.executor_id.is_some() && !metadata.unread.is_empty()
    {
        return Err(Error::Unread {
            path: place.path(),
            problem: unread_keys(&metadata),
        });
    }
    if place.item.kind == ItemKind::Config {
        return check_configuration(spaces, place, &seal::normalise(text));
    }
    let ignored = metadata.ignored.iter();
    let note = |key| {
        format!(
            "`{}`: `{key}` has no effect; nothing here depends on it",
            place.item
        )
    };
    Ok(ignored.map(note).collect())
}

/// True if the executor is that of graphs, and the type is not. Only a file with `tool_type: graph` may have their keys.
fn is_graph_without_type(metadata: &Metadata) -> bool {
    let executor = metadata.executor_id.as_deref().map(ItemId::new);
    let is_of_graphs = |id| ItemRef::tool(id).canonical().id.as_str() == STATE_GRAPH;
    metadata.tool_type.as_deref() != Some("graph")
        && executor.and_then(Result::ok).is_some_and(is_of_graphs)
}

/// Describes the keys for which a tool is refused, for people.
fn unread_keys(metadata: &Metadata) -> String {
    if is_graph_without_type(metadata) {
        return "the `executor_id` is that of graphs: write `tool_type: graph`".to_owned();
    }
    let told = metadata.unread.iter().map(|unread| {
        let Unread {
            key,
            line,
            suggestion,
        } = unread;
        let line = line.map_or_else(String::new, |line| format!(" (line {line})"));
        let hint = did_you_mean(*suggestion);
        format!("the key `{key}`{line} is unknown{hint}")
    });
    let told: Vec<String> = told.collect();
    format!(
        "{}; a run would refuse it: correct the key, or call it `x-…`",
        told.join("; ")
    )
}

/// Refuses a configuration file for which runs would be refused. It is merged as runs merge it, over the files of the
/// spaces below. Returns notes about entries without effect.
fn check_configuration(
    spaces: &Spaces,
    place: &ItemLocation,
    text: &str,
) -> Result<Vec<String>, Error> {
    let (item, path) = (&place.item, place.path());
    let refused = |problem: String| Error::Configuration {
        path: path.clone(),
        problem,
    };
    let (owner, below) = match place.space {
        Space::Project => (Owner::Project, readable(spaces, item, Space::User)),
        Space::User | Space::System => (Owner::User, None),
    };
    let below = below
        .as_ref()
        .map(|(place, text)| (place.path(), place.extension, text));
    let below = below.as_ref().map(|(path, extension, text)| ConfigFile {
        space: Space::User,
        path,
        extension,
        text,
    });
    let own = ConfigFile {
        space: place.space,
        path: &path,
        extension: place.extension,
        text,
    };
    let merged = library::merged_over_shipped(item, below.into_iter().chain([own]));
    let (merged, mut notes) = merged.map_err(|error| refused(with_sources(&error)))?;
    notes.extend(configuration::check(&item.id, owner, text, merged).map_err(refused)?);
    Ok(notes)
}

/// The configuration file `item` of `space`, if it can be read.
fn readable(spaces: &Spaces, item: &ItemRef, space: Space) -> Option<(ItemLocation, String)> {
    let (place, content) = spaces.find(item, space).ok()??;
    let text = seal::normalise(metadata::utf8(&content).ok()?).into_owned();
    metadata::configuration(place.extension, &text).ok()?;
    Some((place, text))
}

/// Maximum length of a version in bytes; a lock has it in its file name.
const MOST_VERSION: usize = 64;

/// True if `text` is a version that can be signed: a semantic version, such as `1.0.0` or `1.0.0-rc.1`.
pub fn is_version(text: &str) -> bool {
    text.len() <= MOST_VERSION && Version::parse(text).is_ok()
}

#[cfg(test)]
mod tests;
