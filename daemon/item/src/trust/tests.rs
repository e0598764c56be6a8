use super::*;

fn key(byte: u8) -> SecretKey {
    SecretKey::from_seed(&[byte; 32])
}

fn at() -> Timestamp {
    Timestamp::from_ms(1_000_000)
}

fn spaces(root: &Path) -> Spaces {
    Spaces::new(
        Some(root.join("project")),
        root.join("home"),
        root.join("system"),
    )
}

fn fingerprints(store: &TrustStore) -> Vec<String> {
    let mut all: Vec<String> = store
        .keys()
        .iter()
        .map(|key| key.key.fingerprint().to_string())
        .collect();
    all.sort();
    all
}

#[test]
fn entry_round_trips_in_original_format() {
    let root = tempfile::tempdir().unwrap();
    let home = root.path().join("home");
    let key = key(1);
    let path = trust(&home, key.public(), "Ada \"the first\"", &key, at()).unwrap();
    let text = fs::read_to_string(&path).unwrap();
    let (first, rest) = text.split_once('\n').unwrap();
    assert!(first.starts_with("# rye:signed:1970-01-01T00:16:40Z:"));
    let fingerprint = key.public().fingerprint();
    assert!(rest.starts_with(&format!(
        "version = \"1.0.0\"\ncategory = \"keys/trusted\"\nfingerprint = \"{fingerprint}\"\n\
         owner = \"Ada \\\"the first\\\"\"\nattestation = \"\"\n\n[public_key]\npem = \"\"\"\n-----BEGIN"
    )));
    assert!(rest.ends_with("-----END PUBLIC KEY-----\n\"\"\"\n"));
    let store = TrustStore::open(&spaces(root.path()));
    let entry = store.key(fingerprint).unwrap();
    assert_eq!(
        (entry.owner.as_str(), entry.space),
        ("Ada \"the first\"", Space::User)
    );
    assert_eq!(entry.partial, PartialCoverage::Refused);
    untrust(&spaces(root.path()), fingerprint).unwrap();
    assert!(!path.exists());
    assert!(store.key(fingerprint).is_none(), "the change is noticed");
    assert!(matches!(
        untrust(&spaces(root.path()), fingerprint),
        Err(Error::Unknown { .. })
    ));
}

#[test]
fn project_keys_are_not_trusted() {
    let root = tempfile::tempdir().unwrap();
    let key = key(1);
    trust(&root.path().join("project"), key.public(), "x", &key, at()).unwrap();
    let store = TrustStore::open(&spaces(root.path()));
    assert!(store.key(key.public().fingerprint()).is_none());
}

#[test]
fn entry_is_valid_if_its_signer_is() {
    let root = tempfile::tempdir().unwrap();
    let home = root.path().join("home");
    let (own, friend, stranger, lost) = (key(1), key(2), key(3), key(4));
    trust(&home, own.public(), "self", &own, at()).unwrap();
    trust(&home, friend.public(), "friend", &own, at()).unwrap();
    // Two keys that sign each other's entries do not become trusted.
    trust(&home, stranger.public(), "stranger", &lost, at()).unwrap();
    trust(&home, lost.public(), "lost", &stranger, at()).unwrap();
    let store = TrustStore::open(&spaces(root.path()));
    let mut expected = vec![
        own.public().fingerprint().to_string(),
        friend.public().fingerprint().to_string(),
    ];
    expected.sort();
    assert_eq!(fingerprints(&store), expected);
    assert_eq!(store.refused().len(), 2);
}

#[test]
fn damaged_or_misnamed_entry_is_refused_with_reason() {
    let root = tempfile::tempdir().unwrap();
    let home = root.path().join("home");
    let key = key(1);
    let path = trust(&home, key.public(), "self", &key, at()).unwrap();
    let text = fs::read_to_string(&path).unwrap();
    let store = TrustStore::open(&spaces(root.path()));
    let unsigned = text.split_once('\n').unwrap().1.to_owned();
    for (content, reason) in [
        (
            text.replace("attestation = \"\"", "accept_partial = true"),
            "changed after",
        ),
        (unsigned.replace("attestation", "revoked"), "unknown field"),
        (
            unsigned.replace("attestation = \"\"", "not_after = \"soon\""),
            "2027-01-31T00:00:00Z",
        ),
        (
            unsigned.replace("fingerprint = \"", "fingerprint = \"0"),
            "16 lowercase hex digits",
        ),
        (unsigned.replace("MCow", "MCoW"), "PEM"),
    ] {
        fs::write(&path, content).unwrap();
        assert!(store.key(key.public().fingerprint()).is_none(), "{reason}");
        let refused = store.refused();
        assert!(refused[0].reason.contains(reason), "{}", refused[0].reason);
    }
    fs::rename(&path, path.with_file_name("0123456789abcdef.toml")).unwrap();
    fs::write(path.with_file_name("0123456789abcdef.toml"), &unsigned).unwrap();
    assert!(
        store.refused()[0]
            .reason
            .contains("its name is not its fingerprint")
    );
}

#[test]
fn user_trust_overrides_system_trust() {
    let root = tempfile::tempdir().unwrap();
    let (node, own) = (key(1), key(2));
    trust(
        &root.path().join("system"),
        node.public(),
        "node",
        &node,
        at(),
    )
    .unwrap();
    let home = root.path().join("home");
    trust(&home, own.public(), "self", &own, at()).unwrap();
    let path = trust(&home, node.public(), "my node", &own, at()).unwrap();
    let text = fs::read_to_string(&path).unwrap();
    let unsigned = text.split_once('\n').unwrap().1;
    let revoked = unsigned.replace("attestation = \"\"", "revoked_at = 2026-01-01T00:00:00Z");
    let store = TrustStore::open(&spaces(root.path()));
    let fingerprint = node.public().fingerprint();
    assert_eq!(store.key(fingerprint).unwrap().owner, "my node");
    let before = store.refresh();
    fs::write(&path, revoked).unwrap();
    assert_ne!(store.refresh(), before);
    let entry = store.key(fingerprint).unwrap();
    assert_eq!(entry.revoked_at, Timestamp::parse("2026-01-01T00:00:00Z"));
}

#[test]
fn removed_key_stays_untrusted_until_trusted_again() {
    let root = tempfile::tempdir().unwrap();
    let (home, system) = (root.path().join("home"), root.path().join("system"));
    let (node, friend) = (key(1), key(2));
    trust(&system, node.public(), "ryed", &node, at()).unwrap();
    assert_eq!(
        introduce(&home, &node, "ryed", at()).unwrap(),
        TrustState::Entered
    );
    assert_eq!(
        introduce(&home, &node, "ryed", at()).unwrap(),
        TrustState::Present
    );
    trust(&home, friend.public(), "friend", &node, at()).unwrap();
    let store = TrustStore::open(&spaces(root.path()));
    let fingerprint = node.public().fingerprint();
    assert_eq!(store.keys().len(), 2);
    untrust(&spaces(root.path()), fingerprint).unwrap();
    assert_eq!(
        introduce(&home, &node, "ryed", at()).unwrap(),
        TrustState::TakenOut
    );
    // Its entry in the system space no longer counts, nor do the entries it signed.
    assert_eq!(fingerprints(&store), Vec::<String>::new());
    let refused = store.refused();
    assert!(
        refused
            .iter()
            .any(|entry| entry.reason.contains("ryectl key trust"))
    );
    let again = untrust(&spaces(root.path()), fingerprint);
    assert!(matches!(again, Err(Error::Unknown { .. })));
    trust(&home, node.public(), "ryed", &node, at()).unwrap();
    assert_eq!(store.keys().len(), 2);
}

#[test]
fn key_is_read_from_pem_or_entry() {
    let root = tempfile::tempdir().unwrap();
    let key = key(1);
    let path = trust(root.path(), key.public(), "Ada", &key, at()).unwrap();
    let text = fs::read_to_string(path).unwrap();
    let read = read_key("x.toml", &text).unwrap();
    assert_eq!(
        read,
        KeyFile::new(key.public().clone(), Some("Ada".to_owned()))
    );
    let read = read_key("x.pem", &key.public().to_pem()).unwrap();
    assert_eq!(read, KeyFile::new(key.public().clone(), None));
    assert!(read_key("x", "hello").is_err());
    assert!(trust(root.path(), key.public(), "a\nb", &key, at()).is_err());
}

#[test]
fn entry_fields_round_trip() {
    let root = tempfile::tempdir().unwrap();
    let home = root.path().join("home");
    let key = key(1);
    let terms = KeyFile {
        not_after: Timestamp::parse("2027-01-31T00:00:00Z"),
        revoked_at: Timestamp::parse("2026-01-01T00:00:00Z"),
        partial: PartialCoverage::Accepted,
        ..KeyFile::new(key.public().clone(), Some("Ada".to_owned()))
    };
    let path = enter(&home, &terms, &key, at()).unwrap();
    let text = fs::read_to_string(path).unwrap();
    assert_eq!(read_key("x.toml", &text).unwrap(), terms);
    assert_eq!(entry(&home, key.public().fingerprint()), Some(terms));
    let store = TrustStore::open(&spaces(root.path()));
    let counts = store.key(key.public().fingerprint()).unwrap();
    assert_eq!(counts.partial, PartialCoverage::Accepted);
    assert!(counts.not_after.is_some() && counts.revoked_at.is_some());
}

#[test]
fn entry_of_one_project_counts_in_it_alone_and_goes_with_it() {
    let root = tempfile::tempdir().unwrap();
    let (home, project) = (root.path().join("home"), root.path().join("project"));
    fs::create_dir(&project).unwrap();
    let (own, case) = (key(1), key(2));
    trust(&home, own.public(), "self", &own, at()).unwrap();
    let path = enter_for(&home, &case, "a test", &project, at()).unwrap();
    let counts = |spaces: &Spaces| {
        let store = TrustStore::open(spaces);
        assert_eq!(store.refused(), []);
        store.key(case.public().fingerprint()).is_some()
    };
    let inside = spaces(root.path());
    assert!(counts(&inside));
    let other = root.path().join("project/inner");
    for elsewhere in [Some(other), None] {
        let spaces = Spaces::new(elsewhere, home.clone(), root.path().join("system"));
        assert!(!counts(&spaces));
    }
    remove_stale(&home);
    assert!(path.exists());
    fs::remove_dir(&project).unwrap();
    remove_stale(&home);
    assert!(!path.exists());
    assert_eq!(fingerprints(&TrustStore::open(&inside)).len(), 1);
}

#[test]
fn edited_entry_is_refused_with_fix_command() {
    let root = tempfile::tempdir().unwrap();
    let home = root.path().join("home");
    let (own, friend) = (key(1), key(2));
    trust(&home, own.public(), "self", &own, at()).unwrap();
    let path = trust(&home, friend.public(), "friend", &own, at()).unwrap();
    let fingerprint = friend.public().fingerprint();
    let store = TrustStore::open(&spaces(root.path()));
    assert_eq!(store.refusal(fingerprint), None);
    let text = fs::read_to_string(&path).unwrap();
    let edited = text.replace("attestation = \"\"", "accept_partial = true");
    fs::write(&path, &edited).unwrap();
    let reason = store.refusal(fingerprint).unwrap().reason;
    let command = format!("`ryectl key trust {}`", path.display());
    assert!(reason.contains(&command), "{reason}");
    // The command reads the file's content and enters it.
    enter(&home, &read_key("x", &edited).unwrap(), &own, at()).unwrap();
    let entry = store.key(fingerprint).unwrap();
    assert_eq!(entry.partial, PartialCoverage::Accepted);
    assert_eq!(entry.owner, "friend");
}
