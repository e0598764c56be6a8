//! Finds the project of a command.

use std::path::{Path, PathBuf};

use rye_client::Error;
use rye_client::environment::Environment;
use rye_item::spaces;

/// Returns the project, if there is one: the directory of `--project`, else the nearest ancestor with a `.ai`. The
/// search stops at the user space, which is never a project.
pub(crate) fn find(
    named: Option<&Path>,
    environment: &Environment,
) -> Result<Option<PathBuf>, Error> {
    if let Some(named) = named {
        return as_text(environment.absolute(named)?).map(Some);
    }
    let user = environment.user_root().unwrap_or(Path::new(""));
    let found = spaces::find_project(environment.here()?, user);
    found.map(as_text).transpose()
}

/// Returns `path`, which must be UTF-8.
pub(crate) fn as_text(path: PathBuf) -> Result<PathBuf, Error> {
    match path.to_str() {
        Some(_) => Ok(path),
        None => Err(Error::ProjectPath { path }),
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;

    use super::*;

    #[test]
    fn the_nearest_parent_with_a_space_is_the_project_but_never_the_user_space() {
        let home = tempfile::tempdir().unwrap();
        let inner = home.path().join("code/app/src");
        std::fs::create_dir_all(&inner).unwrap();
        std::fs::create_dir(home.path().join(".ai")).unwrap();
        let environment = Environment {
            home: Some(home.path().to_owned()),
            current_dir: Some(inner.clone()),
            ..Environment::default()
        };
        assert_eq!(find(None, &environment).unwrap(), None);
        std::fs::create_dir(home.path().join("code/app/.ai")).unwrap();
        let app = home.path().join("code/app").canonicalize().unwrap();
        assert_eq!(find(None, &environment).unwrap(), Some(app));
        let named = find(Some(Path::new("../x")), &environment).unwrap();
        assert_eq!(named, Some(inner.join("../x")));
        let odd = Path::new(OsStr::from_bytes(b"/no\xff"));
        let error = find(Some(odd), &environment).unwrap_err();
        assert!(matches!(error, Error::ProjectPath { .. }), "{error}");
    }
}
