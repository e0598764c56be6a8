//! Templates of new items for `ryectl new`.
//!
//! **Never** overwrites a file and never signs: a signature states that the signer has read the item.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rye_core::error::{ErrorKind, Kinded};
use rye_core::id::{ItemId, ItemKind};

use crate::file;
use crate::spaces::FOLDER;

/// Kinds of items that have a template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Tool,
    /// A graph of two steps.
    Graph,
    Directive,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("`{path}` is there already, and is left as it is; choose another name, or edit it")]
    Exists { path: PathBuf },
    /// The id has no folder; the folder is the item's category.
    #[error("`{id}` names no folder: an item is in one, like `team/{id}`")]
    NoFolder { id: ItemId },
    #[error("failed to write `{path}`")]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl Kinded for Error {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Exists { .. } => ErrorKind::Exists,
            Self::NoFolder { .. } => ErrorKind::Invalid,
            Self::Write { source, .. } => file::kind(source),
        }
    }
}

impl Form {
    pub const fn kind(self) -> ItemKind {
        match self {
            Self::Tool | Self::Graph => ItemKind::Tool,
            Self::Directive => ItemKind::Directive,
        }
    }

    const fn folder(self) -> &'static str {
        match self {
            Self::Tool | Self::Graph => "tools",
            Self::Directive => "directives",
        }
    }

    const fn extension(self) -> &'static str {
        match self {
            Self::Tool => "py",
            Self::Graph => "yaml",
            Self::Directive => "md",
        }
    }

    const fn text(self) -> &'static str {
        match self {
            Self::Tool => include_str!("draft/tool.py"),
            Self::Graph => include_str!("draft/graph.yaml"),
            Self::Directive => include_str!("draft/directive.md"),
        }
    }
}

fn text(form: Form, id: &ItemId) -> String {
    filled(form.text(), id)
}

/// Fills `id` into a template. The characters of an id have no special meaning in any of the languages.
fn filled(text: &str, id: &ItemId) -> String {
    text.replace("CATEGORY", id.category())
        .replace("NAME", id.name())
}

/// Writes tests for the new tool `id` and returns their path. Returns `None` if the file exists.
pub fn write_tests(root: &Path, id: &ItemId) -> Result<Option<PathBuf>, Error> {
    let text = filled(include_str!("draft/tool.test.yaml"), id);
    let path = root.join(FOLDER).join(Form::Tool.folder());
    let path = path.join(format!("{id}.test.yaml"));
    match file::create(&path, text.as_bytes(), 0o644) {
        Ok(()) => Ok(Some(path)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(None),
        Err(source) => Err(Error::Write { path, source }),
    }
}

/// Writes a new item `id` below the `.ai` of `root` and returns its path.
pub fn write(root: &Path, form: Form, id: &ItemId) -> Result<PathBuf, Error> {
    if id.category().is_empty() {
        return Err(Error::NoFolder { id: id.clone() });
    }
    let path = root.join(FOLDER).join(form.folder());
    let path = path.join(format!("{id}.{}", form.extension()));
    let made = path.parent().map_or(Ok(()), fs::create_dir_all);
    let written = made.and_then(|()| file::create(&path, text(form, id).as_bytes(), 0o644));
    match written {
        Ok(()) => Ok(path),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(Error::Exists { path }),
        Err(source) => Err(Error::Write { path, source }),
    }
}

#[cfg(test)]
mod tests {
    use rye_core::{definition, directive};

    use super::*;

    #[test]
    fn new_item_has_form_of_its_language() {
        let id = ItemId::new("team/count-words_2").unwrap();
        let (directive, findings) = directive::parse(&text(Form::Directive, &id), &id).unwrap();
        assert_eq!(findings, []);
        assert_eq!(directive.name, "count-words_2");
        let (graph, findings) = definition::parse(&text(Form::Graph, &id)).unwrap();
        assert_eq!((graph.nodes.len(), findings), (2, Vec::new()));
        assert!(text(Form::Tool, &id).contains("__category__ = \"team\""));
        for form in [Form::Tool, Form::Graph, Form::Directive] {
            let text = text(form, &id);
            assert!(
                !text.contains("NAME") && !text.contains("CATEGORY"),
                "{text}"
            );
        }
    }

    #[test]
    fn existing_file_is_kept() {
        let root = tempfile::tempdir().unwrap();
        let id = ItemId::new("team/a/note").unwrap();
        let path = write(root.path(), Form::Directive, &id).unwrap();
        assert_eq!(path, root.path().join(".ai/directives/team/a/note.md"));
        fs::write(&path, "mine").unwrap();
        let again = write(root.path(), Form::Directive, &id);
        assert!(matches!(again, Err(Error::Exists { .. })), "{again:?}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
        let bare = ItemId::new("note").unwrap();
        let refused = write(root.path(), Form::Tool, &bare);
        assert!(
            matches!(refused, Err(Error::NoFolder { .. })),
            "{refused:?}"
        );
    }
}
