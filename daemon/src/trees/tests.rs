use std::os::unix::fs::MetadataExt as _;

use rye_core::clock::Clock as _;

use super::*;
use rye_host::clock::HostClock;
use rye_host::safe_path::Dir;

fn tree() -> Tree {
    let mut tree = Tree::default();
    tree.file("a.py".into(), (*b"a").into());
    tree.file("lib/deep/b.py".into(), (*b"b").into());
    tree.link("node_modules".into(), "/nowhere".into());
    tree
}

#[test]
fn copy_holds_files_and_is_read_only() {
    let state = tempfile::tempdir().unwrap();
    let path = place(state.path(), &tree()).unwrap();
    assert_eq!(path, state.path().join("trees").join(tree().hash()));
    assert_eq!(fs::read_to_string(path.join("lib/deep/b.py")).unwrap(), "b");
    assert_eq!(
        fs::read_link(path.join("node_modules")).unwrap(),
        Path::new("/nowhere")
    );
    for (below, mode) in [("", 0o500), ("lib", 0o500), ("lib/deep/b.py", 0o400)] {
        let about = fs::metadata(path.join(below)).unwrap();
        assert_eq!(about.mode() & 0o777, mode, "{below}");
    }
    assert_eq!(fs::read_dir(state.path().join("trees")).unwrap().count(), 1);
}

#[test]
fn changed_copy_is_rewritten_before_use() {
    let state = tempfile::tempdir().unwrap();
    let path = place(state.path(), &tree()).unwrap();
    let open =
        |below: &str| fs::set_permissions(path.join(below), Permissions::from_mode(0o700)).unwrap();
    let changes: [&dyn Fn(); 6] = [
        &|| fs::create_dir(path.join("json")).unwrap(),
        &|| fs::write(path.join("a.py"), "x").unwrap(),
        &|| fs::write(path.join("json.py"), "planted").unwrap(),
        &|| fs::remove_file(path.join("a.py")).unwrap(),
        &|| {
            fs::remove_file(path.join("node_modules")).unwrap();
            symlink("/elsewhere", path.join("node_modules")).unwrap();
        },
        &|| {
            fs::remove_file(path.join("a.py")).unwrap();
            fs::create_dir(path.join("a.py")).unwrap();
        },
    ];
    for change in changes {
        open("");
        if path.join("a.py").is_file() {
            open("a.py");
        }
        change();
        assert_eq!(place(state.path(), &tree()).unwrap(), path);
        assert!(is_copy(&path, &tree()).unwrap());
    }
}

#[test]
fn undeletable_wrong_copy_is_moved_aside() {
    let state = tempfile::tempdir().unwrap();
    let path = place(state.path(), &tree()).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o700)).unwrap();
    // Paths deeper than the maximum path length.
    let mut planted = Dir::root(&path).unwrap();
    for _ in 0..30 {
        planted = planted.make(Path::new(&"d".repeat(200))).unwrap();
    }
    assert!(remove(&path).is_err());
    assert_eq!(place(state.path(), &tree()).unwrap(), path);
    assert!(is_copy(&path, &tree()).unwrap());
    // It does not prevent the removal of other copies at the next start.
    let folder = state.path().join("trees");
    for name in [".new-x", ".new-y"] {
        fs::create_dir(folder.join(name)).unwrap();
    }
    assert!(sweep(state.path(), HostClock.now()).is_err());
    let mut left = fs::read_dir(&folder).unwrap().flatten();
    assert!(
        left.all(|entry| !entry.path().ends_with(".new-x") && !entry.path().ends_with(".new-y"))
    );
    drop(planted);
}

#[test]
fn copy_identity_covers_content_location_and_link() {
    let mut hashes = vec![tree().hash()];
    let mut content = tree();
    content.files.insert("a.py".into(), (*b"b").into());
    let mut moved = tree();
    moved.files.remove(Path::new("a.py"));
    moved.file("lib/a.py".into(), (*b"a").into());
    let mut linked = tree();
    linked.link("node_modules".into(), "/elsewhere".into());
    hashes.extend([content.hash(), moved.hash(), linked.hash()]);
    hashes.sort();
    hashes.dedup();
    assert_eq!(hashes.len(), 4);
}

#[test]
fn cleanup_removes_unfinished_and_old_copies_not_used_ones() {
    let now = HostClock.now();
    let later = Timestamp::from_ms(now.ms() + i64::try_from(KEPT_MS).unwrap() - 60_000);
    let much_later = Timestamp::from_ms(later.ms() + 120_000);
    let state = tempfile::tempdir().unwrap();
    sweep(state.path(), now).unwrap();
    let path = place(state.path(), &tree()).unwrap();
    let folder = state.path().join("trees");
    fs::create_dir_all(folder.join(".new-1/lib")).unwrap();
    sweep(state.path(), later).unwrap();
    assert!(path.exists() && !folder.join(".new-1").exists());
    let long_ago = SystemTime::UNIX_EPOCH;
    File::open(&path).unwrap().set_modified(long_ago).unwrap();
    assert_eq!(place(state.path(), &tree()).unwrap(), path);
    sweep(state.path(), later).unwrap();
    assert!(path.exists(), "it was asked for just now");
    sweep(state.path(), much_later).unwrap();
    assert!(!path.exists());
}
