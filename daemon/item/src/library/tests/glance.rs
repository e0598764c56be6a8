use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use super::*;

fn at_once(library: &Library, item: &ItemRef) -> Option<Arc<Item>> {
    library.glance().built_in(item)
}

#[test]
fn a_system_item_is_known_at_once_unless_a_file_may_have_to_be_read() {
    let echo = tool("rye/core/echo");
    for nearer in ["project", "home"] {
        let world = World::new();
        // The first look goes to the file system, and the kernel remembers what is not there.
        let found = world.resolve("rye/core/echo").unwrap();
        assert_eq!(at_once(&world.library, &echo), Some(found));
        assert_eq!(at_once(&world.library, &tool("t/mine")), None);
        let folder = format!("{nearer}/.ai/tools/rye/core");
        fs::create_dir_all(world.root.path().join(&folder)).unwrap();
        assert_eq!(at_once(&world.library, &echo), None, "{folder}");
    }
    let nowhere = Spaces::new(
        None,
        PathBuf::from("/nowhere/at/all"),
        "/state/system".into(),
    );
    let trust = Arc::new(TrustStore::open(&nowhere));
    let library = Library::open(nowhere, trust, Arc::<TestClock>::default());
    let _warm = library.resolve(&echo, Space::Project).unwrap();
    assert!(at_once(&library, &echo).is_some());
}

#[test]
fn a_glance_tells_what_is_missing_and_takes_nothing_for_missing_that_is_there() {
    let lacks = |world: &World, path: &str| {
        let path = Path::new(path);
        world.library.glance().project_surely_lacks(path)
    };
    let unlocked = |world: &World, tool: &Item| world.library.glance().surely_unlocked(tool);
    for nearer in ["project", "home"] {
        let world = World::new();
        let bash = world.resolve("rye/bash").unwrap();
        let project = world.root.path().join("project");
        // The kernel remembers what it has looked for.
        assert!(fs::metadata(project.join(".env")).is_err());
        assert!(matches!(world.library.lock(bash.id(), "1.0.0"), Ok(None)));
        assert!(lacks(&world, ".env") && unlocked(&world, &bash), "{nearer}");
        fs::write(project.join(".env"), "").unwrap();
        assert!(!lacks(&world, ".env"));
        let folder = format!("{nearer}/.ai/lockfiles/rye");
        let folder = world.root.path().join(folder);
        fs::create_dir_all(&folder).unwrap();
        assert!(matches!(world.library.lock(bash.id(), "1.0.0"), Ok(None)));
        assert!(unlocked(&world, &bash), "{nearer}");
        fs::write(folder.join("bash@1.0.0.lock.json"), "{}").unwrap();
        assert!(!unlocked(&world, &bash), "{nearer}");
        let seen = world.library.glance().project_identity();
        let found = fs::metadata(&project).unwrap();
        assert_eq!(seen, Some((found.dev(), found.ino())));
    }
}

#[test]
fn a_link_out_of_the_project_is_no_sign_that_a_system_item_is_meant() {
    let world = World::new();
    let folder = world.root.path().join("project/.ai/tools/rye");
    std::os::unix::fs::symlink("../../../elsewhere", &folder).unwrap();
    assert!(world.resolve("rye/core/echo").is_err());
    let echo = tool("rye/core/echo");
    assert_eq!(at_once(&world.library, &echo), None);
}

#[test]
fn a_space_behind_a_link_is_looked_at_as_well() {
    let world = World::new();
    let link = world.root.path().join("linked");
    std::os::unix::fs::symlink("project", &link).unwrap();
    let spaces = Spaces::new(
        Some(link.clone()),
        world.root.path().join("home"),
        world.root.path().join("state/system"),
    );
    let trust = Arc::new(TrustStore::open(&spaces));
    let library = Library::open(spaces, trust, Arc::<TestClock>::default());
    let echo = tool("rye/core/echo");
    let found = library.resolve(&echo, Space::Project).unwrap();
    assert_eq!(at_once(&library, &echo), Some(found));
    fs::create_dir_all(link.join(".ai/tools/rye/core")).unwrap();
    assert_eq!(at_once(&library, &echo), None);
}
