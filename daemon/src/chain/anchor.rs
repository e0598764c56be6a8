//! Tools of several files: which of them belong to the tool, and where it finds them.
//!
//! What runs is a copy of files that were verified one by one ([`crate::trees`]). A file belongs if it is empty, or verifies as the item of its place;
//! any other that a runtime would load is refused with its name. What no list of suffixes names is simply not in the copy.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rye_core::id::ItemKind;
use rye_item::{Item, Library, Space};
use serde_json::{Map, Value, json};

use super::environment::Environment;
use super::template::Places;
use super::{Error, close_keys, malformed};
use crate::trees::{MOST_BYTES, MOST_FILES, Tree};

const ANCHOR: [&str; 8] = [
    "enabled",
    "mode",
    "markers_any",
    "root",
    "lib",
    "cwd",
    "env_paths",
    "links",
];
const DEPENDENCIES: [&str; 4] = ["enabled", "scope", "extensions", "exclude_dirs"];

/// Variables of programs that a runtime may put directories of the copy into.
const SEARCHED: [&str; 3] = ["PATH", "PYTHONPATH", "NODE_PATH"];

/// Most entries of its directories, those that are no files of it included.
const MOST_ENTRIES: usize = 50_000;

/// The files of a tool, and where they are for it.
#[derive(Debug)]
pub(super) struct Anchored {
    pub(super) tree: Tree,
    pub(super) hash: String,
    /// The tool's own file, in the copy.
    tool: PathBuf,
    /// The library of the runtime, in the copy.
    lib: Option<PathBuf>,
    /// The element that says how.
    by: Arc<Item>,
    /// The directory that the copy stands for.
    root: PathBuf,
    why: &'static str,
}

impl Anchored {
    /// What `by` says under `anchor`.
    fn settings(&self) -> &Map<String, Value> {
        let anchor = self.by.metadata.anchor.as_ref();
        anchor.expect("the element was taken because it has an anchor")
    }

    /// The places of the tool in its copy, which lies at `copy`.
    pub(super) fn places(&self, copy: &Path, places: &mut Places) {
        let lib = self.lib.as_ref().map(|lib| copy.join(lib));
        places.copied(copy, &copy.join(&self.tool), lib);
    }

    /// Puts directories into the variables that the runtime names.
    pub(super) fn surround(
        &self,
        places: &Places,
        environment: &mut Environment,
    ) -> Result<(), Error> {
        const KEYS: [&str; 2] = ["prepend", "append"];
        let wrong = |field: &str, problem: &str| {
            malformed(&self.by, &format!("anchor.env_paths{field}"), problem)
        };
        let asked = match self.settings().get("env_paths") {
            None | Some(Value::Null) => return Ok(()),
            Some(Value::Object(asked)) => asked,
            Some(_) => return Err(wrong("", "must be a mapping")),
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
            let section = format!("anchor.env_paths.{name}");
            close_keys(&self.by, &section, ends, &KEYS)?;
            let end = |key: &str| -> Result<Vec<PathBuf>, Error> {
                let templates = texts(&self.by, &section, ends, key)?;
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

    /// Where the tool works if its chain does not say otherwise.
    pub(super) fn cwd(&self, places: &Places) -> Result<PathBuf, Error> {
        let Some(template) = text(&self.by, "anchor", self.settings(), "cwd")? else {
            return Ok(places.project().to_owned());
        };
        let wrong = |problem: &str| malformed(&self.by, "anchor.cwd", problem);
        let path = places.path(template).map_err(|problem| wrong(&problem))?;
        path.ok_or_else(|| wrong("names a path that is not there"))
    }

    /// The entries of a trace.
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

/// The files of the tool of `elements`, if an element says that it has more than one.
pub(super) fn look_up(
    elements: &[Arc<Item>],
    library: &Library,
) -> Result<Option<Anchored>, Error> {
    let Some(by) = elements
        .iter()
        .find(|element| element.metadata.anchor.is_some())
    else {
        return Ok(None);
    };
    let (Some(tool), Some(anchor)) = (elements.first(), &by.metadata.anchor) else {
        return Ok(None);
    };
    close_keys(by, "anchor", anchor, &ANCHOR)?;
    let Some(why) = active(by, anchor, tool)? else {
        return Ok(None);
    };
    let directory = tool.path.parent().unwrap_or(Path::new("/"));
    let project = library.spaces().root(Space::Project);
    let root = match text(by, "anchor", anchor, "root")?.unwrap_or("tool_dir") {
        "tool_dir" => directory,
        "tool_parent" => directory.parent().unwrap_or(directory),
        "project_path" => project.unwrap_or(directory),
        _ => {
            let problem = "must be `tool_dir`, `tool_parent` or `project_path`";
            return Err(malformed(by, "anchor.root", problem));
        }
    };
    let Ok(name) = tool.path.strip_prefix(root) else {
        return Err(malformed(
            by,
            "anchor.root",
            "must be a directory above the tool",
        ));
    };
    let deps = elements
        .iter()
        .find(|element| element.metadata.verify_deps.is_some())
        .unwrap_or(by);
    let mut tree = Tree::default();
    tree.file(name.to_owned(), Arc::clone(&tool.text));
    // What the program itself ships lies nowhere that could be listed.
    if tool.space != Space::System {
        Walk::new(deps, library, root, directory)?.fill(&mut tree)?;
    }
    for link in texts(by, "anchor", anchor, "links")? {
        let target = directory.join(link);
        let is_plain = Path::new(link).components().count() == 1 && link != "..";
        if !is_plain {
            return Err(malformed(
                by,
                "anchor.links",
                "must be names of directories",
            ));
        }
        if target.is_dir() {
            tree.link(name.with_file_name(link), target);
        }
    }
    let lib = lib(by, deps, library, &mut tree)?;
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
        why,
    }))
}

/// Why the tool is one of several files; `None` if it is not.
fn active(
    by: &Item,
    anchor: &Map<String, Value>,
    tool: &Item,
) -> Result<Option<&'static str>, Error> {
    if anchor.get("enabled") != Some(&Value::Bool(true)) {
        return Ok(None);
    }
    let directory = tool.path.parent().unwrap_or(Path::new("/"));
    match text(by, "anchor", anchor, "mode")?.unwrap_or("auto") {
        "always" => Ok(Some("always")),
        "never" => Ok(None),
        "auto" => {
            let markers = texts(by, "anchor", anchor, "markers_any")?;
            let found = markers
                .iter()
                .any(|marker| directory.join(marker).is_file());
            Ok((found && tool.space != Space::System).then_some("marker"))
        }
        _ => Err(malformed(
            by,
            "anchor.mode",
            "must be `auto`, `always` or `never`",
        )),
    }
}

/// The library that lies beside the runtime `by`: its verified files, in the copy.
fn lib(
    by: &Item,
    deps: &Item,
    library: &Library,
    tree: &mut Tree,
) -> Result<Option<PathBuf>, Error> {
    let anchor = by.metadata.anchor.as_ref();
    let Some(lib) = anchor.map_or(Ok(None), |anchor| text(by, "anchor", anchor, "lib"))? else {
        return Ok(None);
    };
    let beside = by.path.parent().unwrap_or(Path::new("/")).join(lib);
    if by.space == Space::System || !beside.is_dir() {
        return Ok(None);
    }
    let mut files = Tree::default();
    Walk::new(deps, library, &beside, &beside)?.fill(&mut files)?;
    let place = PathBuf::from(".runtime-lib");
    tree.join(&place, files);
    Ok(Some(place))
}

/// A walk through the directories of a tool.
struct Walk<'a> {
    library: &'a Library,
    root: &'a Path,
    from: PathBuf,
    is_deep: bool,
    extensions: Vec<&'a str>,
    excluded: Vec<&'a str>,
}

impl<'a> Walk<'a> {
    fn new(
        by: &'a Item,
        library: &'a Library,
        root: &'a Path,
        directory: &Path,
    ) -> Result<Self, Error> {
        const SECTION: &str = "verify_deps";
        let mut walk = Self {
            library,
            root,
            from: root.to_owned(),
            is_deep: true,
            extensions: Vec::new(),
            excluded: Vec::new(),
        };
        let Some(asked) = &by.metadata.verify_deps else {
            return Ok(walk);
        };
        close_keys(by, SECTION, asked, &DEPENDENCIES)?;
        let scope = text(by, SECTION, asked, "scope")?.unwrap_or("anchor");
        match scope {
            "anchor" => {}
            "tool_dir" => directory.clone_into(&mut walk.from),
            "tool_siblings" | "tool_file" => {
                directory.clone_into(&mut walk.from);
                walk.is_deep = false;
            }
            _ => {
                let problem = "must be `anchor`, `tool_dir`, `tool_siblings` or `tool_file`";
                return Err(malformed(by, "verify_deps.scope", problem));
            }
        }
        let is_enabled = asked.get("enabled") == Some(&Value::Bool(true));
        if is_enabled && scope != "tool_file" {
            walk.extensions = texts(by, SECTION, asked, "extensions")?;
            walk.excluded = texts(by, SECTION, asked, "exclude_dirs")?;
        }
        Ok(walk)
    }

    fn fill(&self, tree: &mut Tree) -> Result<(), Error> {
        if self.extensions.is_empty() {
            return Ok(());
        }
        let mut seen = 0;
        let mut bytes = 0;
        let mut open = vec![self.from.clone()];
        while let Some(directory) = open.pop() {
            let failed = |source: std::io::Error| Error::Dependency {
                path: directory.clone(),
                problem: format!("cannot be read: {source}"),
            };
            for entry in fs::read_dir(&directory).map_err(failed)? {
                let entry = entry.map_err(failed)?;
                seen += 1;
                if seen > MOST_ENTRIES {
                    return Err(too_many(&self.from));
                }
                let path = entry.path();
                let name = entry.file_name();
                if entry.file_type().map_err(failed)?.is_dir() {
                    let is_excluded = self.excluded.iter().any(|excluded| name == *excluded);
                    if self.is_deep && !is_excluded {
                        open.push(path);
                    }
                    continue;
                }
                let name = name.to_string_lossy();
                if self.extensions.iter().any(|suffix| name.ends_with(suffix)) {
                    bytes += self.take(&path, tree)?;
                }
                if tree.count() > MOST_FILES || bytes > MOST_BYTES {
                    return Err(too_many(&self.from));
                }
            }
        }
        Ok(())
    }

    /// Puts the file into the tree if it belongs, and answers how many bytes it has.
    fn take(&self, path: &Path, tree: &mut Tree) -> Result<usize, Error> {
        let refused = |problem: String| Error::Dependency {
            path: path.to_owned(),
            problem,
        };
        let Ok(name) = path.strip_prefix(self.root) else {
            return Ok(0);
        };
        let place = self.library.spaces().locate(path).ok();
        let place = place.filter(|place| place.item.kind == ItemKind::Tool);
        let Some(place) = place else {
            return Err(refused(
                "is no item, so no signature can cover it; move it out of the directories of the tool".to_owned(),
            ));
        };
        let content = place
            .read()
            .map_err(|error| refused(format!("cannot be read: {error}")))?;
        let content = content.ok_or_else(|| refused("went away while it was read".to_owned()))?;
        if content.is_empty() {
            tree.file(name.to_owned(), "".into());
            return Ok(0);
        }
        let item = self
            .library
            .at(&place)
            .map_err(|error| Error::Item(Box::new(error)))?;
        tree.file(name.to_owned(), Arc::clone(&item.text));
        Ok(item.text.len())
    }
}

fn too_many(directory: &Path) -> Error {
    Error::Dependency {
        path: directory.to_owned(),
        problem: format!(
            "holds more than the files of a tool may be: {MOST_FILES} files, {} MiB, and {MOST_ENTRIES} entries in all; \
             name what does not belong to it in `exclude_dirs`",
            MOST_BYTES >> 20
        ),
    }
}

fn text<'m>(
    by: &Item,
    section: &str,
    map: &'m Map<String, Value>,
    key: &str,
) -> Result<Option<&'m str>, Error> {
    match map.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(malformed(by, &format!("{section}.{key}"), "must be a text")),
    }
}

fn texts<'m>(
    by: &Item,
    section: &str,
    map: &'m Map<String, Value>,
    key: &str,
) -> Result<Vec<&'m str>, Error> {
    let wrong = || malformed(by, &format!("{section}.{key}"), "must be a list of texts");
    match map.get(key) {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(list)) => list
            .iter()
            .map(|entry| entry.as_str().ok_or_else(wrong))
            .collect(),
        Some(_) => Err(wrong()),
    }
}
