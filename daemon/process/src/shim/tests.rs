use super::*;

#[test]
fn record_ignores_unknown_fields_and_needs_known_ones() {
    let directory = tempfile::tempdir().unwrap();
    assert_eq!(ShimRecord::read(directory.path()).unwrap(), None);
    let record = ShimRecord::of_this_process(3, "a.b.3".to_owned(), None);
    record.write(directory.path()).unwrap();
    assert_eq!(
        ShimRecord::read(directory.path()).unwrap(),
        Some(record.clone())
    );
    let mut later = serde_json::to_value(&record).unwrap();
    later["later"] = "unknown".into();
    replace(directory.path(), RECORD, later.to_string().as_bytes()).unwrap();
    assert_eq!(ShimRecord::read(directory.path()).unwrap(), Some(record));
    later.as_object_mut().unwrap().remove("pid");
    replace(directory.path(), RECORD, later.to_string().as_bytes()).unwrap();
    ShimRecord::read(directory.path()).unwrap_err();
}

#[test]
fn record_names_a_process_by_start_time_and_boot() {
    let record = ShimRecord::of_this_process(1, String::new(), None);
    assert!(record.process().is_some());
    let other = ShimRecord {
        start_time: record.start_time + 1,
        ..record.clone()
    };
    assert!(other.process().is_none());
    let other = ShimRecord {
        boot_id: "another".to_owned(),
        ..record
    };
    assert!(other.process().is_none());
}

#[test]
fn living_shims_are_those_of_readable_records() {
    let state = tempfile::tempdir().unwrap();
    assert_eq!(living(state.path()), []);
    for (handle, is_own) in [("a", true), ("b", false)] {
        let directory = state.path().join(DIRECTORY).join(handle);
        fs::create_dir_all(&directory).unwrap();
        let mut record = ShimRecord::of_this_process(1, String::new(), None);
        record.start_time += u64::from(!is_own);
        record.write(&directory).unwrap();
    }
    let garbage = state.path().join(DIRECTORY).join("c");
    fs::create_dir_all(&garbage).unwrap();
    fs::write(garbage.join(RECORD), "{").unwrap();
    let own = ShimRecord::of_this_process(1, String::new(), None);
    assert_eq!(living(state.path()), [(own.pid, own.start_time)]);
}

#[test]
fn lock_is_held_as_long_as_a_copy_of_its_descriptor_is_open() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path().join("below");
    assert!(!ShimLock::is_held(&directory).unwrap());
    let lock = ShimLock::take(&directory).unwrap().unwrap();
    assert!(ShimLock::take(&directory).unwrap().is_none());
    let copy = lock.0.try_clone().unwrap();
    drop(lock);
    assert!(ShimLock::is_held(&directory).unwrap());
    drop(copy);
    assert!(!ShimLock::is_held(&directory).unwrap());
}

#[test]
fn record_of_a_shim_that_was_just_started_is_awaited() {
    let directory = tempfile::tempdir().unwrap();
    assert_eq!(awaited_record(directory.path()).unwrap(), None);
    let lock = ShimLock::take(directory.path()).unwrap();
    let record = ShimRecord::of_this_process(1, "a.b.1".to_owned(), None);
    thread::scope(|scope| {
        let awaited = scope.spawn(|| awaited_record(directory.path()).unwrap());
        record.write(directory.path()).unwrap();
        assert_eq!(awaited.join().unwrap(), Some(record.clone()));
    });
    drop(lock);
}
