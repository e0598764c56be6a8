//! Multi-file tools: the files that belong to a tool, and their paths.
//!
//! A tool runs from a copy of files that were verified one by one ([`crate::trees`]). A file belongs to it if it
//! verifies as the item of its path, or is an empty `__init__.py`. An unsigned file belongs to it if the lock of the
//! tool lists it with this content. A lock replaces a missing signature, never a bad one. Any other file that a runtime
//! would load is refused by name. A file whose suffix is not listed is left out of the copy.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rye_core::declared::Fields as _;
use rye_core::id::{ItemKind, ItemRef};
use rye_item::spaces::{MAX_SIZE, is_test};
use rye_item::{Item, Library, Metadata, Space, library, metadata};
use serde_json::{Value, json};

use super::environment::Environment;
use super::error::Error;
use super::fields::{Section, malformed};
use super::lock::Cover;
use super::template_paths::TemplatePaths;
use crate::trees::{MOST_BYTES, MOST_FILES, Tree};
use rye_host::safe_path::{Dir, Entry, EntryKind};

pub(super) const ANCHOR: [&str; 8] = [
    "enabled",
    "mode",
    "markers_any",
    "root",
    "lib",
    "cwd",
    "env_paths",
    "links",
];
/// Keys of `verify_deps`. `recursive`, of the original, has no effect: `scope` decides about directories below.
pub(super) const DEPENDENCIES: [&str; 5] = [
    "enabled",
    "scope",
    "extensions",
    "exclude_dirs",
    "recursive",
];

/// Environment variables to which a runtime may add directories of the copy.
const SEARCHED: [&str; 3] = ["PATH", "PYTHONPATH", "NODE_PATH"];

/// Directory of the runtime's library in a copy.
const LIB: &str = ".runtime-lib";

/// Maximum number of directory entries, including those that are not files of the tool.
const MOST_ENTRIES: usize = 50_000;

/// Maximum depth of a directory. Each is opened starting from the first one.
const MOST_LEVELS: usize = 64;

/// File that makes a directory a Python package. An empty one has no content to sign.
const MARKER: &str = "__init__.py";

/// The files of a multi-file tool, and their paths.
#[derive(Debug)]
pub(super) struct Anchored {
    pub(super) tree: Tree,
    pub(super) hash: String,
    /// Path of the tool's own file in the copy.
    tool: PathBuf,
    /// Path of the runtime's library in the copy.
    lib: Option<PathBuf>,
    /// The element whose `anchor` section applies.
    by: Arc<Item>,
    /// Directory that the copy corresponds to.
    root: PathBuf,
    /// Value of `anchor.root`.
    pub(super) begins: &'static str,
    why: &'static str,
    /// Unsigned files. They belong to the tool only if a lock lists them.
    pub(super) unsigned: Vec<PathBuf>,
}

impl Anchored {
    fn settings(&self) -> Result<Section<'_>, Error> {
        let anchor = settings(&self.by)?;
        Ok(anchor.expect("the element was taken because it has an anchor"))
    }

    /// Sets the paths of the tool for its copy at `copy`.
    pub(super) fn set_copy_paths(&self, copy: &Path, places: &mut TemplatePaths) {
        let lib = self.lib.as_ref().map(|lib| copy.join(lib));
        places.copied(copy, &copy.join(&self.tool), lib);
    }

    /// Adds directories to the environment variables that the runtime names.
    pub(super) fn surround(
        &self,
        places: &TemplatePaths,
        environment: &mut Environment,
    ) -> Result<(), Error> {
        const KEYS: [&str; 2] = ["prepend", "append"];
        let wrong = |field: &str, problem: &str| {
            malformed(&self.by, &format!("anchor.env_paths{field}"), problem)
        };
        let Some(asked) = self.settings()?.map("env_paths", "a mapping")? else {
            return Ok(());
        };
        for (name, ends) in asked {
            let field = format!(".{name}");
            if !SEARCHED.contains(&name.as_str()) {
                let problem = format!("is not one of {}", SEARCHED.join(", "));
                return Err(wrong(&field, &problem));
            }
            let ends = ends.as_object();
            let ends =
                ends.ok_or_else(|| wrong(&field, "must be a mapping of `prepend` and `append`"))?;
            let ends = Section::new(&self.by, format!("anchor.env_paths.{name}"), ends, &KEYS)?;
            let end = |key: &str| -> Result<Vec<PathBuf>, Error> {
                let templates = ends.texts(key)?;
                let paths = templates.iter().map(|template| {
                    let path = places.path(template);
                    path.map_err(|problem| wrong(&format!("{field}.{key}"), &problem))
                });
                let paths = paths.collect::<Result<Vec<_>, _>>()?;
                Ok(paths.into_iter().flatten().collect())
            };
            let surrounded = environment.surround(name, &end("prepend")?, &end("append")?);
            surrounded.map_err(|problem| wrong(&field, &problem))?;
        }
        Ok(())
    }

    /// Working directory of the tool if its chain sets none.
    pub(super) fn cwd(&self, places: &TemplatePaths) -> Result<PathBuf, Error> {
        let Some(template) = self.settings()?.text("cwd")? else {
            return Ok(places.project().to_owned());
        };
        let wrong = |problem: &str| malformed(&self.by, "anchor.cwd", problem);
        let path = places.path(template).map_err(|problem| wrong(&problem))?;
        path.ok_or_else(|| wrong("names a path that is not there"))
    }

    pub(super) fn traced(&self) -> [Value; 2] {
        let links = self
            .tree
            .links()
            .map(|(path, target)| json!({"path": path, "target": target, "verified": false}));
        [
            json!({"step": "anchor", "active": true, "why": self.why, "root": self.root, "copy": self.hash}),
            json!({
                "step": "verify_deps",
                "files": self.tree.count(),
                "hash": self.hash,
                "links": links.collect::<Vec<_>>(),
            }),
        ]
    }
}

/// Returns the files of the tool of `elements`, or `None` if no element makes it a multi-file tool.
pub(super) fn look_up(
    elements: &[Arc<Item>],
    library: &Library,
    cover: &Cover<'_>,
) -> Result<Option<Anchored>, Error> {
    let Some(by) = elements
        .iter()
        .find(|element| element.metadata.anchor.is_some())
    else {
        return Ok(None);
    };
    let (Some(tool), Some(anchor)) = (elements.first(), settings(by)?) else {
        return Ok(None);
    };
    let Some(why) = active(&anchor, tool)? else {
        return Ok(None);
    };
    let directory = tool.path.parent().unwrap_or(Path::new("/"));
    let project = library.spaces().root(Space::Project);
    let (begins, root) = match anchor.text("root")?.unwrap_or("tool_dir") {
        "tool_dir" => ("tool_dir", directory),
        "tool_parent" => ("tool_parent", directory.parent().unwrap_or(directory)),
        "project_path" => ("project_path", project.unwrap_or(directory)),
        _ => {
            let problem = "must be `tool_dir`, `tool_parent` or `project_path`";
            return Err(anchor.malformed("root", problem));
        }
    };
    let Ok(name) = tool.path.strip_prefix(root) else {
        return Err(anchor.malformed("root", "must be a directory above the tool"));
    };
    let deps = elements
        .iter()
        .find(|element| element.metadata.verify_deps.is_some())
        .unwrap_or(by);
    let mut tree = Tree::default();
    tree.file(name.to_owned(), Arc::clone(&tool.text).into());
    let mut unsigned = Vec::new();
    // Built-in tools have no directory that could be listed.
    if tool.space != Space::System {
        let walk = Walk::new(deps, tool, library, root, directory, cover)?;
        unsigned.extend(walk.fill(&mut tree)?);
    }
    for link in anchor.texts("links")? {
        let target = directory.join(link);
        let is_plain = Path::new(link).components().count() == 1 && link != "..";
        if !is_plain {
            return Err(anchor.malformed("links", "must be names of directories"));
        }
        if target.is_dir() {
            tree.link(name.with_file_name(link), target);
        }
    }
    let lib = match lib(by, &anchor)? {
        None => None,
        Some(beside) => {
            let place = PathBuf::from(LIB);
            let mut walk = Walk::new(deps, tool, library, &beside, &beside, cover)?;
            walk.in_copy.clone_from(&place);
            unsigned.extend(walk.fill(&mut tree)?);
            Some(place)
        }
    };
    if tree.count() > MOST_FILES || tree.bytes() > MOST_BYTES {
        return Err(too_many(root));
    }
    Ok(Some(Anchored {
        hash: tree.hash(),
        tool: name.to_owned(),
        tree,
        lib,
        by: Arc::clone(by),
        root: root.to_owned(),
        begins,
        why,
        unsigned,
    }))
}

/// Returns the `anchor` section of `by`, or `None` if it has none.
fn settings(by: &Item) -> Result<Option<Section<'_>>, Error> {
    let anchor = by.metadata.anchor.as_ref();
    let section = anchor.map(|anchor| Section::new(by, "anchor", anchor, &ANCHOR));
    section.transpose()
}

/// Returns the reason why this is a multi-file tool, or `None` if it is not.
fn active(anchor: &Section<'_>, tool: &Item) -> Result<Option<&'static str>, Error> {
    if anchor.find("enabled") != Some(&Value::Bool(true)) {
        return Ok(None);
    }
    let directory = tool.path.parent().unwrap_or(Path::new("/"));
    match anchor.text("mode")?.unwrap_or("auto") {
        "always" => Ok(Some("always")),
        "never" => Ok(None),
        "auto" => {
            let markers = anchor.texts("markers_any")?;
            let found = markers
                .iter()
                .any(|marker| directory.join(marker).is_file());
            Ok((found && tool.space != Space::System).then_some("marker"))
        }
        _ => Err(anchor.malformed("mode", "must be `auto`, `always` or `never`")),
    }
}

/// Returns the directory of the library of the runtime `by`, or `None` if there is none. A built-in runtime has none.
fn lib(by: &Item, anchor: &Section<'_>) -> Result<Option<PathBuf>, Error> {
    let Some(lib) = anchor.text("lib")? else {
        return Ok(None);
    };
    let beside = by.path.parent().unwrap_or(Path::new("/")).join(lib);
    Ok((by.space != Space::System && beside.is_dir()).then_some(beside))
}

/// Walk through the directories of a tool.
struct Walk<'a> {
    tool: &'a Item,
    library: &'a Library,
    cover: &'a Cover<'a>,
    root: &'a Path,
    /// Directory of the files in the copy.
    in_copy: PathBuf,
    from: PathBuf,
    is_deep: bool,
    extensions: Vec<&'a str>,
    excluded: Vec<&'a str>,
}

impl<'a> Walk<'a> {
    fn new(
        by: &'a Item,
        tool: &'a Item,
        library: &'a Library,
        root: &'a Path,
        directory: &Path,
        cover: &'a Cover<'a>,
    ) -> Result<Self, Error> {
        let mut walk = Self {
            tool,
            library,
            cover,
            root,
            in_copy: PathBuf::new(),
            from: root.to_owned(),
            is_deep: true,
            extensions: Vec::new(),
            excluded: Vec::new(),
        };
        let Some(asked) = &by.metadata.verify_deps else {
            return Ok(walk);
        };
        let asked = Section::new(by, "verify_deps", asked, &DEPENDENCIES)?;
        let scope = asked.text("scope")?.unwrap_or("anchor");
        match scope {
            "anchor" => {}
            "tool_dir" => directory.clone_into(&mut walk.from),
            "tool_siblings" | "tool_file" => {
                directory.clone_into(&mut walk.from);
                walk.is_deep = false;
            }
            _ => {
                let problem = "must be `anchor`, `tool_dir`, `tool_siblings` or `tool_file`";
                return Err(asked.malformed("scope", problem));
            }
        }
        let is_enabled = asked.find("enabled") == Some(&Value::Bool(true));
        if is_enabled && scope != "tool_file" {
            walk.extensions = asked.texts("extensions")?;
            walk.excluded = asked.texts("exclude_dirs")?;
        }
        Ok(walk)
    }

    /// Adds the files that belong to the tool to `tree`. Returns those that have no signature of their own.
    fn fill(&self, tree: &mut Tree) -> Result<Vec<PathBuf>, Error> {
        let mut unsigned = Vec::new();
        if self.extensions.is_empty() {
            return Ok(unsigned);
        }
        let mut seen = 0;
        let mut bytes = 0;
        // Links above the files were already followed to find the tool.
        let first = fs::canonicalize(&self.from).and_then(|from| Dir::root(&from));
        let first = first.map_err(|source| unreadable(&self.from, &source))?;
        // Only paths are queued, so few directories are open at the same time, however many there are.
        let mut ahead = vec![PathBuf::new()];
        while let Some(below) = ahead.pop() {
            let path = self.from.join(&below);
            let failed = |source: io::Error| unreadable(&path, &source);
            if below.components().count() > MOST_LEVELS {
                return Err(too_many(&self.from));
            }
            let directory = first.enter(&below).map_err(failed)?;
            let entries = directory.entries(MOST_ENTRIES).map_err(failed)?;
            seen += entries.list.len() + entries.foreign.len();
            if entries.is_cut || seen > MOST_ENTRIES {
                return Err(too_many(&self.from));
            }
            for Entry { name, kind } in entries.list {
                if kind == EntryKind::Directory {
                    let is_excluded = self.excluded.contains(&name.as_str());
                    if self.is_deep && !is_excluded {
                        ahead.push(below.join(&name));
                    }
                } else if self.extensions.iter().any(|suffix| name.ends_with(suffix))
                    && !is_test(Path::new(&name))
                {
                    let path = path.join(&name);
                    let Some(content) = content(&directory, &name, kind, &path)? else {
                        continue;
                    };
                    let belongs = self.take(&path, content, tree)?;
                    bytes += belongs.bytes;
                    unsigned.extend(belongs.unsigned);
                }
                if tree.count() > MOST_FILES || bytes > MOST_BYTES {
                    return Err(too_many(&self.from));
                }
            }
        }
        Ok(unsigned)
    }

    /// Adds a file with this content to `tree` if it belongs to the tool.
    fn take(&self, path: &Path, content: Vec<u8>, tree: &mut Tree) -> Result<Taken, Error> {
        let below = path.strip_prefix(self.root).unwrap_or(path);
        let name = self.in_copy.join(below);
        // A file that the lock lists with another content is refused even if it is signed.
        let is_locked = self.is_locked(&name, &content)?;
        let mut taken = Taken {
            bytes: content.len(),
            unsigned: None,
        };
        let (why, sign) = match self.verify(path)? {
            Verified::Signed(item) => {
                taken.bytes = item.text.len();
                tree.file(name, Arc::clone(&item.text).into());
                return Ok(taken);
            }
            Verified::Unsigned(item) => ("is not signed", format!("sign it as `{item}`, or ")),
            Verified::NoItem => ("is no item that could be signed", String::new()),
        };
        let is_marker = content.is_empty() && path.ends_with(MARKER);
        match self.cover {
            Cover::Everything | Cover::Lock(_) if is_marker => {}
            Cover::Everything => taken.unsigned = Some(name.clone()),
            Cover::Lock(_) if is_locked => {}
            Cover::Lock(_) => return Err(self.uncovered(path, why, &sign)),
        }
        tree.file(name, content.into());
        Ok(taken)
    }

    /// Verifies the signature of the file. A bad one is an error, even if a lock covers the file.
    fn verify(&self, path: &Path) -> Result<Verified, Error> {
        let place = self.library.spaces().locate(path).ok();
        let Some(place) = place.filter(|place| place.item.kind == ItemKind::Tool) else {
            return Ok(Verified::NoItem);
        };
        match self.library.at(&place) {
            Ok(item) => Ok(Verified::Signed(item)),
            Err(library::Error::Unsigned { item, .. }) if can_be_signed(path) => {
                Ok(Verified::Unsigned(item))
            }
            Err(library::Error::Unsigned { .. }) => Ok(Verified::NoItem),
            Err(error) => Err(Error::Item(Box::new(error))),
        }
    }

    fn uncovered(&self, path: &Path, why: &str, sign: &str) -> Error {
        Error::Dependency {
            path: path.to_owned(),
            problem: format!(
                "{why}, and no lock covers it: read it, then {sign}lock the tool with `ryectl lock create {}`",
                self.tool.id()
            ),
        }
    }

    /// Returns true if the lock lists this content, and an error if it lists another content for the file.
    fn is_locked(&self, name: &Path, content: &[u8]) -> Result<bool, Error> {
        match self.cover {
            Cover::Lock(Some(lock)) => lock.covers(self.tool, name, content),
            Cover::Lock(None) | Cover::Everything => Ok(false),
        }
    }
}

/// Reads the file at `path`, which is `name` in `directory`. Returns `None` if it was removed.
fn content(
    directory: &Dir,
    name: &str,
    kind: EntryKind,
    path: &Path,
) -> Result<Option<Vec<u8>>, Error> {
    let content = match kind {
        EntryKind::File => directory.read(name, MAX_SIZE),
        EntryKind::Directory | EntryKind::Link | EntryKind::Other => Err(io::Error::other(
            "it is a link, a pipe or a device; put a file there",
        )),
    };
    content.map_err(|source| unreadable(path, &source))
}

enum Verified {
    Signed(Arc<Item>),
    /// The file could be this item, but has no signature.
    Unsigned(ItemRef),
    /// The file is not in a place for items, or has no form of an item.
    NoItem,
}

/// True if a file of this name can hold metadata, and so can be signed.
fn can_be_signed(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    let told = Metadata::parse(ItemKind::Tool, extension.unwrap_or_default(), "");
    !matches!(told, Err(metadata::Error::NoMetadata { .. }))
}

struct Taken {
    bytes: usize,
    /// Its name, if it has no signature of its own.
    unsigned: Option<PathBuf>,
}

fn unreadable(path: &Path, source: &io::Error) -> Error {
    Error::Dependency {
        path: path.to_owned(),
        problem: format!("cannot be read: {source}"),
    }
}

fn too_many(directory: &Path) -> Error {
    Error::Dependency {
        path: directory.to_owned(),
        problem: format!(
            "holds more than the files of a tool may be: {MOST_FILES} files, {} MiB, {MOST_ENTRIES} entries in all, and \
             directories {MOST_LEVELS} deep; name what does not belong to it in `exclude_dirs`",
            MOST_BYTES >> 20
        ),
    }
}
