use std::os::unix::fs::symlink;

use nix::sys::stat::Mode;

use super::*;

fn item(text: &str) -> ItemRef {
    ItemRef::parse(text, ItemKind::Tool).unwrap()
}

fn write(path: &Path, content: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

fn project(root: &Path) -> Spaces {
    Spaces::new(
        Some(root.join("project")),
        root.join("home"),
        root.join("state/system"),
    )
}

#[test]
fn project_is_nearest_parent_with_items_except_user_space() {
    let root = tempfile::tempdir().unwrap();
    let home = fs::canonicalize(root.path()).unwrap().join("home");
    for folder in [
        "home/.ai",
        "home/work/app/.ai",
        "home/work/app/src/deep",
        "home/other",
    ] {
        fs::create_dir_all(root.path().join(folder)).unwrap();
    }
    let deep = root.path().join("home/work/app/src/deep");
    assert_eq!(find_project(&deep, &home), Some(home.join("work/app")));
    assert_eq!(find_project(&home.join("other"), &home), None);
    assert_eq!(find_project(&home, &home), None);
    assert_eq!(find_project(&home.join("missing"), &home), None);
    // A folder above the user space is not the user's project either.
    fs::create_dir_all(root.path().join(".ai")).unwrap();
    assert_eq!(find_project(&home.join("other"), &home), None);
}

#[test]
fn extensions_have_fixed_precedence() {
    let root = tempfile::tempdir().unwrap();
    let spaces = project(root.path());
    let tools = root.path().join("project/.ai/tools/a");
    write(&tools.join("x.sh"), "3");
    write(&tools.join("x.yaml"), "2");
    let (place, content) = spaces.find(&item("a/x"), Space::Project).unwrap().unwrap();
    assert_eq!(
        (place.extension, content.as_slice()),
        ("yaml", b"2".as_slice())
    );
    write(&tools.join("x.py"), "1");
    let (place, _) = spaces.find(&item("a/x"), Space::Project).unwrap().unwrap();
    assert_eq!(place.extension, "py");
    assert!(spaces.find(&item("a/y"), Space::Project).unwrap().is_none());
    assert!(spaces.find(&item("b/x"), Space::Project).unwrap().is_none());
    assert!(spaces.find(&item("a/x"), Space::User).unwrap().is_none());
}

#[test]
fn path_and_id_resolve_to_same_item() {
    let root = tempfile::tempdir().unwrap();
    let base = fs::canonicalize(root.path()).unwrap();
    let spaces = project(&base);
    for (path, name, space) in [
        ("project/.ai/tools/a/b.py", "tool:a/b", Space::Project),
        (
            "project/.ai/knowledge/top.md",
            "knowledge:top",
            Space::Project,
        ),
        (
            "project/.ai/config/x/y.config-schema.yaml",
            "config:x/y.config-schema",
            Space::Project,
        ),
        ("home/.ai/directives/d.md", "directive:d", Space::User),
        (
            "state/system/.ai/tools/rye/bash.yaml",
            "tool:rye/bash",
            Space::System,
        ),
        ("elsewhere/.ai/tools/z.sh", "tool:z", Space::Project),
    ] {
        write(&base.join(path), "");
        let place = spaces.locate(&base.join(path)).unwrap();
        assert_eq!(
            (place.item.to_string().as_str(), place.space),
            (name, space)
        );
        assert_eq!(place.path(), base.join(path));
    }
    for path in [
        "project/tools/a.py",
        "project/.ai/a.py",
        "project/.ai/tools/a.exe",
        "project/.ai/state/a.md",
    ] {
        assert!(
            matches!(
                spaces.locate(&base.join(path)),
                Err(Error::NotAnItem { .. })
            ),
            "{path}"
        );
    }
}

#[test]
fn links_may_not_leave_space() {
    let root = tempfile::tempdir().unwrap();
    let spaces = project(root.path());
    let tools = root.path().join("project/.ai/tools");
    write(&tools.join("real/x.py"), "inside");
    write(&root.path().join("secret.py"), "outside");
    write(&root.path().join("outside/x.py"), "outside");
    symlink("real", tools.join("within")).unwrap();
    symlink(root.path().join("outside"), tools.join("folder")).unwrap();
    symlink("../../../secret.py", tools.join("file.py")).unwrap();
    symlink("/proc/self/environ", tools.join("proc.py")).unwrap();
    let (_, content) = spaces
        .find(&item("within/x"), Space::Project)
        .unwrap()
        .unwrap();
    assert_eq!(content, b"inside");
    for escape in ["folder/x", "file", "proc"] {
        let error = spaces.find(&item(escape), Space::Project).unwrap_err();
        assert!(matches!(error, Error::Escapes { .. }), "{escape}: {error}");
        assert_eq!(error.kind(), ErrorKind::Denied);
    }
}

#[test]
fn project_folder_link_may_not_leave_project() {
    let root = tempfile::tempdir().unwrap();
    let spaces = project(root.path());
    write(&root.path().join("evil/tools/x.py"), "");
    fs::create_dir_all(root.path().join("project")).unwrap();
    fs::create_dir_all(root.path().join("home")).unwrap();
    symlink(root.path().join("evil"), root.path().join("project/.ai")).unwrap();
    symlink(root.path().join("evil"), root.path().join("home/.ai")).unwrap();
    assert!(matches!(
        spaces.find(&item("x"), Space::Project),
        Err(Error::Escapes { .. })
    ));
    assert!(
        spaces.find(&item("x"), Space::User).unwrap().is_some(),
        "users link their dotfiles"
    );
}

#[test]
fn items_are_regular_files_of_bounded_size() {
    let root = tempfile::tempdir().unwrap();
    let spaces = project(root.path());
    let tools = root.path().join("project/.ai/tools");
    fs::create_dir_all(tools.join("folder.py")).unwrap();
    nix::unistd::mkfifo(&tools.join("pipe.py"), Mode::S_IRWXU).unwrap();
    for name in ["folder", "pipe"] {
        assert!(matches!(
            spaces.find(&item(name), Space::Project),
            Err(Error::NotAFile { .. })
        ));
    }
    let large = File::create(tools.join("large.py")).unwrap();
    large.set_len(MAX_SIZE).unwrap();
    assert!(
        spaces
            .find(&item("large"), Space::Project)
            .unwrap()
            .is_some()
    );
    large.set_len(MAX_SIZE + 1).unwrap();
    assert!(matches!(
        spaces.find(&item("large"), Space::Project),
        Err(Error::TooLarge { .. })
    ));
}

#[test]
fn test_file_is_never_an_item() {
    let root = tempfile::tempdir().unwrap();
    let tools = root.path().join("project/.ai/tools/a");
    for name in ["b.yaml", "b.test.yaml", "c.test.yml", ".test.yaml"] {
        write(&tools.join(name), "x: 1\n");
    }
    let spaces = project(root.path());
    let tests = tools.join("b.test.yaml");
    assert!(is_test(&tests) && !is_test(&tools.join(".test.yaml")));
    assert!(matches!(
        spaces.locate(&tests),
        Err(Error::NotAnItem { .. })
    ));
    let found = spaces.find(&item("a/b.test"), Space::Project).unwrap();
    assert_eq!(found, None);
    assert_eq!(
        spaces.candidates(&item("a/b.test"), Space::Project),
        Vec::<PathBuf>::new()
    );
    let listed = spaces.listing_of(ItemKind::Tool, Space::Project, 10);
    let mut listed: Vec<_> = listed
        .files
        .iter()
        .map(|(place, _)| place.item.id.as_str())
        .collect();
    listed.sort_unstable();
    assert_eq!(listed, ["a/b", "a/c.test"]);
    let mut ids = spaces.ids(ItemKind::Tool, "a", Space::Project).unwrap();
    ids.sort_unstable();
    let ids: Vec<_> = ids.iter().map(ItemId::as_str).collect();
    assert_eq!(ids, ["a/b", "a/c.test"]);
}
