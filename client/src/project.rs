//! Which project a command is about.

use std::path::{Path, PathBuf};

use rye_client::environment::Environment;

/// The directory named by `--project`; else the nearest parent with a `.ai`, searched below the user space, which is
/// never a project; else the current directory.
pub(crate) fn find(named: Option<&Path>, environment: &Environment) -> PathBuf {
    let here = &environment.current_dir;
    if let Some(named) = named {
        return here.join(named);
    }
    let user_space = environment
        .user_space
        .as_ref()
        .or(environment.home.as_ref());
    here.ancestors()
        .take_while(|dir| Some(*dir) != user_space.map(PathBuf::as_path))
        .find(|dir| dir.join(".ai").is_dir())
        .unwrap_or(here)
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_parent_with_a_space_is_the_project_but_never_the_user_space() {
        let home = tempfile::tempdir().unwrap();
        let inner = home.path().join("code/app/src");
        std::fs::create_dir_all(&inner).unwrap();
        std::fs::create_dir(home.path().join(".ai")).unwrap();
        let environment = Environment {
            home: Some(home.path().to_owned()),
            current_dir: inner.clone(),
            ..Environment::default()
        };
        assert_eq!(find(None, &environment), inner);
        std::fs::create_dir(home.path().join("code/app/.ai")).unwrap();
        assert_eq!(find(None, &environment), home.path().join("code/app"));
        assert_eq!(
            find(Some(Path::new("../x")), &environment),
            inner.join("../x")
        );
    }
}
