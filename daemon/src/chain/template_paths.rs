//! Paths that templates of a chain may name.

use std::path::{Path, PathBuf};

use rye_item::Item;
use rye_process::file_path;

/// Paths that a template may name.
#[derive(Debug)]
pub(super) struct TemplatePaths {
    named: Vec<(&'static str, Option<PathBuf>)>,
    project: PathBuf,
}

impl TemplatePaths {
    /// Paths of `tool`, whose file is passed to its interpreter in memory.
    pub(super) fn of(tool: &Item, project: &Path, user: &Path, system: &Path) -> Self {
        let directory = tool.path.parent().map(Path::to_owned);
        let parent = directory.as_deref().and_then(Path::parent);
        let named = vec![
            ("tool_path", Some(file_path(0))),
            ("tool_source", Some(tool.path.clone())),
            ("tool_parent", parent.map(Path::to_owned)),
            ("tool_dir", directory),
            ("project_path", Some(project.to_owned())),
            ("user_space", Some(user.to_owned())),
            ("system_space", Some(system.to_owned())),
            // These two are set for multi-file tools.
            ("anchor_path", None),
            ("runtime_lib", None),
        ];
        Self {
            named,
            project: project.to_owned(),
        }
    }

    /// Replaces the paths by those of a multi-file tool, whose copy is at `copy`.
    pub(super) fn copied(&mut self, copy: &Path, tool: &Path, lib: Option<PathBuf>) {
        let directory = tool.parent().map(Path::to_owned);
        let parent = directory.as_deref().and_then(Path::parent);
        let parent = parent.filter(|parent| parent.starts_with(copy));
        let places = [
            ("tool_path", Some(tool.to_owned())),
            ("tool_parent", parent.map(Path::to_owned)),
            ("tool_dir", directory),
            ("anchor_path", Some(copy.to_owned())),
            ("runtime_lib", lib),
        ];
        for (name, place) in places {
            if let Some((_, known)) = self.named.iter_mut().find(|(known, _)| *known == name) {
                *known = place;
            }
        }
    }

    pub(super) fn project(&self) -> &Path {
        &self.project
    }

    /// Returns the path of `template`: a slot, optionally with a literal after it, an absolute path, or a path in the
    /// project. `None` if it is a slot without a value here.
    pub(super) fn path(&self, template: &str) -> Result<Option<PathBuf>, String> {
        match self.slot(template) {
            Some((place, "")) => Ok(place.cloned()),
            Some((Some(place), below)) => Ok(Some(place.join(below))),
            Some((None, _)) => Err(format!(
                "holds `{template}`, and there is no such path here"
            )),
            None if template.starts_with('{') => Err(format!(
                "holds `{template}`, which is no path; {}",
                self.known_paths()
            )),
            None => Ok(Some(self.project.join(template))),
        }
    }

    /// Returns the value of the path slot at the beginning of `template`, and the literal after it.
    pub(super) fn slot<'t>(&self, template: &'t str) -> Option<(Option<&PathBuf>, &'t str)> {
        let (name, behind) = template.strip_prefix('{')?.split_once('}')?;
        let below = match behind.strip_prefix('/') {
            Some(below) => below,
            None if behind.is_empty() => "",
            None => return None,
        };
        let (_, place) = self.named.iter().find(|(known, _)| *known == name)?;
        Some((place.as_ref(), below))
    }

    pub(super) fn known_paths(&self) -> String {
        let names = self.named.iter().map(|(name, _)| format!("`{{{name}}}`"));
        format!("paths are {}", names.collect::<Vec<_>>().join(", "))
    }
}
