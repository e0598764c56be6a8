use std::sync::Arc;

use rye_core::clock::Clock;
use rye_core::id::{ItemId, ItemRef};

use super::*;
use crate::library::{Library, Verdict};
use crate::sign::targets;
use crate::spaces::Space;
use crate::trust::TrustStore;

#[derive(Debug)]
struct Epoch;

impl Clock for Epoch {
    fn now(&self) -> Timestamp {
        Timestamp::default()
    }

    fn up(&self) -> rye_core::clock::Uptime {
        rye_core::clock::Uptime::default()
    }

    fn random(&self) -> u64 {
        0
    }
}

#[test]
fn new_project_runs_and_edited_item_needs_signature() {
    let root = tempfile::tempdir().unwrap();
    let (project, home) = (root.path().join("project"), root.path().join("home"));
    fs::create_dir_all(&project).unwrap();
    let keys = KeyDir::of_user(&home);
    let done = init(&project, &home, &keys, Timestamp::default()).unwrap();
    assert_eq!(
        (done.key, done.written.len(), done.signed.len()),
        (Found::Created, 5, 3)
    );

    let spaces = Spaces::new(
        Some(project.clone()),
        home.clone(),
        root.path().join("system"),
    );
    let trust = Arc::new(TrustStore::open(&spaces));
    let library = Library::open(spaces.clone(), trust, Arc::new(Epoch));
    let tool = |id: &str| ItemRef::tool(ItemId::new(id).unwrap());
    for id in ["sample/hello", "sample/look", "sample/greet"] {
        let item = library.resolve(&tool(id), Space::Project).unwrap();
        assert_eq!(item.metadata.unread, []);
        let executor = tool(item.metadata.executor_id.as_deref().unwrap());
        library.resolve(&executor, item.space).unwrap();
        assert_eq!(library.verify(&item.item).unwrap().verdict, Verdict::Full);
    }

    let greet = project.join(".ai/tools/sample/greet.py");
    let edited = fs::read_to_string(&greet)
        .unwrap()
        .replace("Hello", "Goodbye");
    fs::write(&greet, &edited).unwrap();
    let report = library.verify(&tool("sample/greet")).unwrap();
    assert_eq!(report.verdict, Verdict::Modified);
    let key = keys.load().unwrap();
    for place in targets(&spaces, "tool:sample/greet").unwrap() {
        sign::sign(&spaces, &place, &key, Timestamp::default()).unwrap();
    }
    let report = library.verify(&tool("sample/greet")).unwrap();
    assert_eq!(
        (report.verdict, report.owner.as_deref()),
        (Verdict::Full, Some("self"))
    );

    // A second call overwrites nothing and signs nothing of the user's.
    fs::write(&greet, &edited).unwrap();
    let again = init(&project, &home, &keys, Timestamp::default()).unwrap();
    assert_eq!(
        (again.key, again.written.len(), again.kept.len()),
        (Found::Existing, 0, 5)
    );
    assert_eq!(fs::read_to_string(&greet).unwrap(), edited);
}

#[test]
fn user_space_is_not_a_project() {
    let root = tempfile::tempdir().unwrap();
    let keys = KeyDir::of_user(root.path());
    let error = init(root.path(), root.path(), &keys, Timestamp::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Precondition);
    assert!(!keys.private_path().exists(), "nothing was made");
}

#[test]
fn ensuring_key_keeps_user_trust_decision() {
    let root = tempfile::tempdir().unwrap();
    let keys = KeyDir::of_user(root.path());
    let (key, _) = user_key(root.path(), &keys, Timestamp::default()).unwrap();
    let entry = trust::folder(root.path()).join(format!("{}.toml", key.public().fingerprint()));
    fs::write(&entry, "revoked\n").unwrap();
    user_key(root.path(), &keys, Timestamp::default()).unwrap();
    assert_eq!(fs::read_to_string(&entry).unwrap(), "revoked\n");
    fs::remove_file(&entry).unwrap();
    user_key(root.path(), &keys, Timestamp::default()).unwrap();
    assert!(entry.exists());
}

#[test]
fn project_path_that_is_not_utf8_is_refused_before_anything_is_written() {
    use std::os::unix::ffi::OsStrExt as _;
    let stage = tempfile::tempdir().unwrap();
    let project = stage.path().join(std::ffi::OsStr::from_bytes(b"no\xff"));
    fs::create_dir(&project).unwrap();
    let keys = KeyDir::of_user(stage.path());
    let refused = init(&project, stage.path(), &keys, Timestamp::default()).unwrap_err();
    assert!(refused.to_string().contains("is not UTF-8"), "{refused}");
    assert_eq!(fs::read_dir(&project).unwrap().count(), 0);
    assert!(!keys.path().exists());
}
