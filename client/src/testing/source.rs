//! Test files of a project, and their cases.

use std::fs;
use std::path::{Path, PathBuf};

use rye_item::spaces::{FOLDER, SKIPPED, is_test};

use super::file::{Case, TestFile};
use crate::local_error::LocalError;

/// Suffix of the name of a test file.
const SUFFIX: &str = ".test.yaml";
/// Largest test file, in bytes.
const MOST_BYTES: u64 = 8 << 20;

/// Test files at or below `root`.
pub(crate) struct Sources {
    root: PathBuf,
    files: Vec<Source>,
}

/// A test file, with its path in the project.
pub(crate) struct Source {
    pub(super) path: PathBuf,
    pub(super) file: TestFile,
}

/// A case to run, with its test file and its number among the selected cases, from 1.
#[derive(Clone, Copy)]
pub(crate) struct Numbered<'s> {
    pub(super) number: usize,
    pub(super) source: &'s Source,
    pub(super) case: &'s Case,
}

impl Sources {
    /// Reads the test files that `named` refers to, or all of `project`.
    pub(crate) fn find(
        named: Option<&Path>,
        project: &Path,
        here: &Path,
    ) -> Result<Self, LocalError> {
        let root = root(named, project, here)?;
        let files = read(project, &root)?;
        Ok(Self { root, files })
    }

    /// Returns the cases whose tool or name contains `filter`. Returns an error if there are none.
    pub(crate) fn select(&self, filter: Option<&str>) -> Result<Vec<Numbered<'_>>, LocalError> {
        let text = filter.unwrap_or_default();
        let mut cases = Vec::new();
        for source in &self.files {
            let has_tool = source.file.tool.id.as_str().contains(text);
            for case in &source.file.cases {
                if has_tool || case.name.contains(text) {
                    let number = cases.len() + 1;
                    cases.push(Numbered {
                        number,
                        source,
                        case,
                    });
                }
            }
        }
        if !cases.is_empty() {
            return Ok(cases);
        }
        let place = match filter {
            Some(filter) => format!("whose tool or name holds `{filter}`"),
            None => format!("below `{}`", self.root.display()),
        };
        Err(LocalError::not_found(format!(
            "there are no tests {place}: a tool is tested by the cases in a file `NAME{SUFFIX}` next to it"
        )))
    }
}

/// Returns the file or folder that is searched for test files.
fn root(named: Option<&Path>, project: &Path, here: &Path) -> Result<PathBuf, LocalError> {
    let tools = project.join(FOLDER).join("tools");
    let Some(named) = named else {
        return Ok(tools);
    };
    let tool = named.to_string_lossy();
    let tool = tool.strip_prefix("tool:").unwrap_or(&tool);
    let meant = [
        here.join(named),
        tools.join(tool),
        tools.join(format!("{tool}{SUFFIX}")),
    ];
    let Some(path) = meant.into_iter().find(|path| path.exists()) else {
        return Err(LocalError::not_found(format!(
            "there is no `{}`: name a folder or a file of tests, or a tool that has one",
            named.display()
        )));
    };
    let real = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let Ok(below) = real(&path).strip_prefix(real(&tools)).map(Path::to_owned) else {
        return Err(LocalError::usage(format!(
            "`{}` is not below `{}`, where the tools of the project are",
            path.display(),
            tools.display()
        )));
    };
    if path.is_file() && !is_test(&path) {
        return Err(LocalError::usage(format!(
            "`{}` is no file of tests: these are called `NAME{SUFFIX}`",
            path.display()
        )));
    }
    // Removes a `/` at the end.
    Ok(tools.join(below).components().collect())
}

/// Reads the test files at or below `root`, in the order of their paths.
fn read(project: &Path, root: &Path) -> Result<Vec<Source>, LocalError> {
    let mut paths = Vec::new();
    collect(root.to_owned(), &mut paths);
    paths.sort();
    let (mut sources, mut faults) = (Vec::new(), Vec::new());
    for found in paths {
        let unreadable = |error| LocalError::unreadable(&format!("`{}`", found.display()), error);
        let path = found.strip_prefix(project).unwrap_or(&found).to_owned();
        if fs::metadata(&found).map_err(unreadable)?.len() > MOST_BYTES {
            faults.push(format!("{}: it is longer than 8 MiB", path.display()));
            continue;
        }
        match TestFile::read(&fs::read_to_string(&found).map_err(unreadable)?) {
            Ok(file) => sources.push(Source { path, file }),
            Err(of_file) => faults.extend(of_file.into_iter().map(|fault| {
                let (line, column, message) = (fault.line, fault.column, fault.message);
                format!("{}:{line}:{column}: {message}", path.display())
            })),
        }
    }
    if faults.is_empty() {
        Ok(sources)
    } else {
        Err(LocalError::usage(faults.join("\n")))
    }
}

/// Adds the test files at or below `path` to `found`. Links are not followed. A folder that cannot be read counts as
/// empty.
fn collect(path: PathBuf, found: &mut Vec<PathBuf>) {
    if path.is_file() {
        found.push(path);
        return;
    }
    for entry in fs::read_dir(&path).into_iter().flatten().flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        let name = name.to_string_lossy();
        let is_skipped = name.starts_with(['.', '_']) || SKIPPED.contains(&&*name);
        match entry.file_type() {
            Ok(kind) if kind.is_dir() && !is_skipped => collect(path, found),
            Ok(kind) if kind.is_file() && is_test(&path) => found.push(path),
            Ok(_) | Err(_) => {}
        }
    }
}
