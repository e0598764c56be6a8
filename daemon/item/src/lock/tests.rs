use std::os::unix::fs::symlink;
use std::sync::Arc;

use rye_core::clock::{Clock, Uptime};
use serde_json::json;

use super::*;
use crate::trust::{self, TrustStore};

#[derive(Debug)]
struct TestClock;

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        Timestamp::default()
    }

    fn up(&self) -> Uptime {
        Uptime::default()
    }

    fn random(&self) -> u64 {
        0
    }
}

struct LockFixture {
    root: tempfile::TempDir,
    key: SecretKey,
    library: Library,
}

impl LockFixture {
    /// Makes a project, and a user who trusts their own key.
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        fs::create_dir_all(at("project/.ai")).unwrap();
        let key = SecretKey::from_seed(&[1; 32]);
        let time = Timestamp::default();
        trust::trust(&at("home"), key.public(), "self", &key, time).unwrap();
        let spaces = Spaces::new(Some(at("project")), at("home"), at("system"));
        let trust = Arc::new(TrustStore::open(&spaces));
        let library = Library::open(spaces, trust, Arc::new(TestClock));
        Self { root, key, library }
    }

    /// Writes a lock of the project, or of the user if there is no project.
    fn write(&self, spaces: &Spaces, version: &str) -> Result<PathBuf, Error> {
        let content = Map::from_iter([("root".to_owned(), json!({}))]);
        write(
            spaces,
            &tool(),
            version,
            content,
            &self.key,
            Timestamp::default(),
        )
    }

    fn user(&self) -> Spaces {
        let at = |name: &str| self.root.path().join(name);
        Spaces::new(None, at("home"), at("system"))
    }

    fn found(&self) -> Option<Lock> {
        self.library.lock(&tool(), "1.0.0").unwrap()
    }
}

fn tool() -> ItemId {
    ItemId::new("t/one").unwrap()
}

#[test]
fn unsigned_file_cannot_disable_signed_lock() {
    let world = LockFixture::new();
    assert!(world.found().is_none());
    let of_user = world.write(&world.user(), "1.0.0").unwrap();
    let of_project = world.root.path().join("project/.ai/lockfiles/t");
    fs::create_dir_all(&of_project).unwrap();
    let of_project = of_project.join("one@1.0.0.lock.json");
    fs::write(&of_project, "{}").unwrap();
    let found = world.found().unwrap();
    assert_eq!(found.path, of_user);
    assert!(found.signer.is_some());
    // A damaged lock does not count as an unsigned one.
    fs::write(&of_project, "{").unwrap();
    let damaged = world.library.lock(&tool(), "1.0.0");
    assert!(matches!(damaged, Err(Error::Malformed { .. })));
    // The project's lock precedes the user's; an unsigned one counts only if there is no other.
    assert_eq!(
        world.write(world.library.spaces(), "1.0.0").unwrap(),
        of_project
    );
    assert_eq!(world.found().unwrap().path, of_project);
    fs::write(&of_project, "{}").unwrap();
    fs::remove_file(of_user).unwrap();
    let found = world.found().unwrap();
    assert_eq!((found.path, found.signer), (of_project, None));
}

#[test]
fn invalid_version_gives_no_path() {
    let world = LockFixture::new();
    let outside = world.root.path().join("project/outside.lock.json");
    for version in ["", "1", "1.0", "1.0.0/../../../../outside", "1.0.0-"] {
        let refused = world.write(world.library.spaces(), version);
        assert!(matches!(refused, Err(Error::Version { .. })), "{version}");
        let found = world.library.lock(&tool(), version).unwrap();
        assert!(found.is_none(), "{version}");
    }
    assert!(!outside.exists());
    assert_eq!(list(world.library.spaces()), []);
}

#[test]
fn lock_is_written_in_its_space_without_links() {
    let world = LockFixture::new();
    let at = |path: &str| world.root.path().join(path);
    fs::create_dir(at("elsewhere")).unwrap();
    symlink(at("elsewhere"), at("project/.ai/lockfiles")).unwrap();
    let refused = world.write(world.library.spaces(), "1.0.0");
    assert!(matches!(
        refused,
        Err(Error::Unreadable(spaces::Error::Escapes { .. }))
    ));
    assert_eq!(fs::read_dir(at("elsewhere")).unwrap().count(), 0);
    fs::remove_file(at("project/.ai/lockfiles")).unwrap();
    // A link is replaced, and its target is not changed.
    let first = world.write(world.library.spaces(), "1.0.0").unwrap();
    fs::write(at("elsewhere/file"), "kept").unwrap();
    fs::remove_file(&first).unwrap();
    symlink(at("elsewhere/file"), &first).unwrap();
    assert_eq!(world.write(world.library.spaces(), "1.0.0").unwrap(), first);
    assert_eq!(fs::read_to_string(at("elsewhere/file")).unwrap(), "kept");
    assert!(world.found().unwrap().signer.is_some());
    // A user space without an `.ai` gets one.
    fs::remove_dir_all(at("home")).unwrap();
    let of_user = world.write(&world.user(), "2.0.0").unwrap();
    assert_eq!(of_user, at("home/.ai/lockfiles/t/one@2.0.0.lock.json"));
    assert!(of_user.is_file());
}

#[test]
fn lock_file_without_tool_is_listed_by_own_name() {
    let world = LockFixture::new();
    let good = world.write(world.library.spaces(), "1.0.0").unwrap();
    for stray in ["a\\b@1.0.0", "one@1.0.0 (copy)"] {
        fs::write(good.with_file_name(format!("{stray}.lock.json")), "{}").unwrap();
    }
    let (named, strays): (Vec<_>, Vec<_>) = list(world.library.spaces())
        .into_iter()
        .map(|listed| listed.id())
        .partition(Result::is_ok);
    assert_eq!(named.len(), 1);
    let strays: Vec<_> = strays
        .into_iter()
        .map(|stray| stray.unwrap_err().to_string())
        .collect();
    assert_eq!(strays.len(), 2);
    assert!(strays[0].contains("a\\b@1.0.0.lock.json") && strays[0].contains("remove it"));
    assert!(strays[1].contains("no version of a tool"), "{strays:?}");
}
