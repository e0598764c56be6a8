use rye_core::error::Kinded;

use rye_core::error::ErrorKind;
use rye_core::id::ItemId;
use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, Ordering};

use rye_core::id::ItemKind;
use rye_core::seal::SecretKey;

use super::*;
use crate::{system, trust};

#[derive(Debug, Default)]
struct TestClock(AtomicI64);

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_ms(self.0.load(Ordering::Relaxed))
    }

    fn up(&self) -> rye_core::clock::Uptime {
        rye_core::clock::Uptime::default()
    }

    fn random(&self) -> u64 {
        0
    }
}

struct World {
    root: tempfile::TempDir,
    key: SecretKey,
    clock: Arc<TestClock>,
    library: Library,
}

impl World {
    /// Makes a project, a user who trusts their own key, and the system.
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let key = SecretKey::from_seed(&[1; 32]);
        let at = |name: &str| root.path().join(name);
        fs::create_dir_all(at("project/.ai/tools")).unwrap();
        trust::trust(
            &at("home"),
            key.public(),
            "self",
            &key,
            Timestamp::default(),
        )
        .unwrap();
        let spaces = Spaces::new(Some(at("project")), at("home"), at("state/system"));
        let trust = Arc::new(TrustStore::open(&spaces));
        let clock = Arc::new(TestClock::default());
        let library = Library::open(spaces, trust, Arc::<TestClock>::clone(&clock));
        Self {
            root,
            key,
            clock,
            library,
        }
    }

    fn write(&self, path: &str, text: &str) -> PathBuf {
        let path = self.root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    fn write_signed(&self, path: &str, text: &str) -> PathBuf {
        self.write(path, &self.signed(text))
    }

    fn signed(&self, text: &str) -> String {
        sign(text, &self.key)
    }

    fn resolve(&self, id: &str) -> Result<Arc<Item>, Error> {
        self.library.resolve(&tool(id), Space::Project)
    }

    fn verdict(&self, id: &str) -> Verdict {
        self.library.verify(&tool(id)).unwrap().verdict
    }
}

fn sign(text: &str, key: &SecretKey) -> String {
    seal::sign_text(ItemKind::Tool, "yaml", text, key, Timestamp::default()).unwrap()
}

fn tool(id: &str) -> ItemRef {
    ItemRef::tool(ItemId::new(id).unwrap())
}

fn yaml(category: &str) -> String {
    format!(
        "version: \"1.0.0\"\ncategory: {category}\nname: x\nexecutor_id: rye/core/runtimes/bash\n"
    )
}

#[test]
fn signed_item_is_returned_as_verified() {
    let world = World::new();
    let path = world.write(
        "project/.ai/tools/a/x.yaml",
        &world.signed(&yaml("a")).replace('\n', "\r\n"),
    );
    let item = world.resolve("a/x").unwrap();
    assert_eq!(item.space, Space::Project);
    assert_eq!(item.path, path);
    assert_eq!(
        &*item.text,
        world.signed(&yaml("a")),
        "line ends as they were hashed"
    );
    assert_eq!(item.content_hash, sha256_hex(yaml("a")));
    assert_eq!(item.signer().unwrap().owner, "self");
    assert_eq!(world.verdict("a/x"), Verdict::Full);
}

#[test]
fn refusal_names_file_and_fix() {
    let world = World::new();
    let stranger = SecretKey::from_seed(&[2; 32]);
    let good = world.signed(&yaml("a"));
    let forged = sign(&yaml("a"), &stranger).replace(
        stranger.public().fingerprint().as_str(),
        world.key.public().fingerprint().as_str(),
    );
    let cases = [
        (yaml("a"), Verdict::Unsigned, "ryectl sign tool:a/x"),
        (
            good.replace("1.0.0", "1.0.1"),
            Verdict::Modified,
            "ryectl sign tool:a/x",
        ),
        (
            sign(&yaml("a"), &stranger),
            Verdict::Untrusted,
            "ryectl key trust",
        ),
        (forged, Verdict::BadSignature, "ryectl sign tool:a/x"),
        (
            world.signed(&yaml("b")),
            Verdict::Misplaced,
            "`category: a`",
        ),
        (
            world.signed("version: \"1.0.0\"\n"),
            Verdict::Misplaced,
            "`category: a`",
        ),
        (
            world.signed(&yaml("a").replace("name: x", "name: y")),
            Verdict::Misplaced,
            "`name: x`",
        ),
        (
            world.signed(&yaml("a").replace("name: x\n", "")),
            Verdict::Partial,
            "its name, which is not in the file; run `ryectl sign tool:a/x`",
        ),
        (world.signed("a: [\n"), Verdict::Invalid, "line "),
        (
            world.signed("a: 1\n").replacen('\n', " junk\n", 1),
            Verdict::Partial,
            "--accept-partial",
        ),
    ];
    for (text, verdict, fix) in cases {
        let path = world.write("project/.ai/tools/a/x.yaml", &text);
        let report = world.library.verify_path(&path).unwrap();
        assert_eq!(report.verdict, verdict, "{text}");
        assert_eq!(report.item, tool("a/x"));
        let error = world.resolve("a/x").unwrap_err();
        let text = rye_core::error::with_sources(&error);
        assert!(text.contains(fix), "{text}");
        assert!(text.contains(&path.display().to_string()), "{text}");
        assert!(matches!(
            error.kind(),
            ErrorKind::Denied | ErrorKind::Invalid
        ));
    }
    let error = world.resolve("a/none").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("tools/a/none.*"), "{error}");
}

#[test]
fn changed_byte_of_item_is_detected() {
    let world = World::new();
    let text = world.signed(&yaml("a"));
    let time = text.find("1970").unwrap();
    let place = world
        .library
        .spaces()
        .locate(&world.write_signed("project/.ai/tools/a/x.yaml", &yaml("a")))
        .unwrap();
    for index in (0..text.len()).filter(|index| !(time..time + 20).contains(index)) {
        let mut bytes = text.clone().into_bytes();
        bytes[index] ^= 1;
        let result = world.library.admit(&place, &bytes);
        let full = result.is_ok_and(|item| {
            matches!(
                &item.origin,
                Origin::Signed {
                    coverage: Coverage::Full,
                    ..
                }
            )
        });
        assert!(!full, "byte {index}");
    }
}

#[test]
fn moved_signed_file_is_refused() {
    let world = World::new();
    let path = world.write_signed("project/.ai/tools/a/x.yaml", &yaml("a"));
    fs::create_dir_all(world.root.path().join("project/.ai/tools/rye/core")).unwrap();
    for id in ["rye/core/echo", "x"] {
        fs::copy(
            &path,
            world
                .root
                .path()
                .join(format!("project/.ai/tools/{id}.yaml")),
        )
        .unwrap();
        assert!(
            matches!(world.resolve(id), Err(Error::Misplaced { .. })),
            "{id}"
        );
    }
}

#[test]
fn nearest_space_wins_and_hides_from_lower_spaces() {
    let world = World::new();
    world.write_signed("home/.ai/tools/a/x.yaml", &yaml("a"));
    assert_eq!(world.resolve("a/x").unwrap().space, Space::User);
    // The next lookup sees a new file that shadows.
    world.write_signed("project/.ai/tools/a/x.yaml", &yaml("a"));
    let item = world.resolve("a/x").unwrap();
    assert_eq!(item.space, Space::Project);
    let shadowed = world.library.shadowed(&item, Space::Project);
    assert_eq!(shadowed.len(), 1);
    assert_eq!(shadowed[0].space, Space::User);
    let seen = |referrer| world.library.resolve(&tool("a/x"), referrer);
    assert_eq!(seen(Space::User).unwrap().space, Space::User);
    let error = seen(Space::System).unwrap_err();
    assert!(matches!(error, Error::OutOfReach { .. }), "{error}");
    assert_eq!(error.kind(), ErrorKind::NotFound);
    let none = world.library.resolve(&tool("a/none"), Space::User);
    assert!(matches!(none, Err(Error::NotFound { .. })));
    // A bad file in a nearer space is an error; it is not skipped.
    world.write("project/.ai/tools/a/x.yaml", &yaml("a"));
    assert!(matches!(world.resolve("a/x"), Err(Error::Unsigned { .. })));
}

#[test]
fn unsigned_file_that_cannot_be_signed_is_refused_with_that_reason() {
    let world = World::new();
    for (file, text, reason) in [
        ("sh", "echo hi\n", "a .sh tool describes itself"),
        ("py", "print(1)\n", "does not say what it is"),
        ("yaml", "version: [\n", "cannot be signed"),
    ] {
        world.write(&format!("project/.ai/tools/a/{file}.{file}"), text);
        let message = world.resolve(&format!("a/{file}")).unwrap_err().to_string();
        assert!(
            message.contains("is not signed, and cannot be signed as it is"),
            "{message}"
        );
        assert!(message.contains(reason), "{message}");
        assert!(!message.contains("ryectl sign"), "{message}");
        assert_eq!(world.verdict(&format!("a/{file}")), Verdict::Unsigned);
    }
}

#[test]
fn system_items_need_no_file_and_can_be_shadowed() {
    let world = World::new();
    let item = world.resolve("rye/bash").unwrap();
    assert_eq!(
        (item.space, &item.origin),
        (Space::System, &Origin::BuiltIn)
    );
    assert_eq!(world.verdict("rye/bash"), Verdict::BuiltIn);
    // This repository as a project: the file of the system item itself, unsigned.
    let path = "project/.ai/tools/rye/bash.yaml";
    let file = world.write(path, &item.text);
    assert!(Arc::ptr_eq(&world.resolve("rye/bash").unwrap(), &item));
    assert_eq!(
        world.library.verify_path(&file).unwrap().verdict,
        Verdict::BuiltIn
    );
    world.write(path, &format!("{}# edited\n", item.text));
    assert!(matches!(
        world.resolve("rye/bash"),
        Err(Error::Unsigned { .. })
    ));
    world.write_signed(path, &format!("{}# edited\n", item.text));
    assert_eq!(world.resolve("rye/bash").unwrap().space, Space::Project);
    let for_system = world
        .library
        .resolve(&tool("rye/bash"), Space::System)
        .unwrap();
    assert_eq!(for_system.space, Space::System);
}

#[test]
fn installed_system_items_verify_with_node_key() {
    let world = World::new();
    let state = world.root.path().join("state");
    let node = SecretKey::from_seed(&[7; 32]);
    system::install(&state, &node, Timestamp::default()).unwrap();
    let copy = state.join("system/.ai/tools/rye/core/echo.yaml");
    let report = world.library.verify_path(&copy).unwrap();
    assert_eq!(
        (report.verdict, report.owner.as_deref()),
        (Verdict::Full, Some("node"))
    );
}

#[test]
fn equal_bytes_are_verified_once() {
    let world = World::new();
    let path = world.write_signed("project/.ai/tools/a/x.yaml", &yaml("a"));
    let item = world.resolve("a/x").unwrap();
    assert!(Arc::ptr_eq(&world.resolve("a/x").unwrap(), &item));
    // Touched but unchanged; then changed.
    fs::write(&path, &*item.text).unwrap();
    assert!(Arc::ptr_eq(&world.resolve("a/x").unwrap(), &item));
    fs::write(&path, world.signed(&format!("{}# more\n", yaml("a")))).unwrap();
    assert!(!Arc::ptr_eq(&world.resolve("a/x").unwrap(), &item));
}

#[test]
fn expired_key_invalidates_cached_items() {
    let world = World::new();
    let home = world.root.path().join("home");
    world.write_signed("project/.ai/tools/a/x.yaml", &yaml("a"));
    world.resolve("a/x").unwrap();
    let entry = trust::folder(&home).join(format!("{}.toml", world.key.public().fingerprint()));
    let text = fs::read_to_string(&entry).unwrap();
    let unsigned = text.split_once('\n').unwrap().1;
    let set = |line: &str| {
        fs::write(&entry, unsigned.replace("attestation = \"\"", line)).unwrap();
    };
    set("not_after = 1970-01-01T00:01:00Z");
    world.resolve("a/x").unwrap();
    world.clock.0.store(60_001, Ordering::Relaxed);
    let error = world.resolve("a/x").unwrap_err();
    assert!(
        error.to_string().contains("expired at 1970-01-01T00:01:00"),
        "{error}"
    );
    assert_eq!(world.verdict("a/x"), Verdict::Expired);
    set("revoked_at = \"1970-01-01T00:00:30Z\"");
    assert!(matches!(
        world.resolve("a/x"),
        Err(Error::Lapsed {
            state: Lapse::Revoked,
            ..
        })
    ));
    assert_eq!(world.verdict("a/x"), Verdict::Revoked);
    trust::untrust(world.library.spaces(), world.key.public().fingerprint()).unwrap();
    assert_eq!(world.verdict("a/x"), Verdict::Untrusted);
}

#[test]
fn key_in_project_is_not_trusted() {
    let world = World::new();
    let stranger = SecretKey::from_seed(&[2; 32]);
    let project = world.root.path().join("project");
    trust::trust(
        &project,
        stranger.public(),
        "me",
        &stranger,
        Timestamp::default(),
    )
    .unwrap();
    world.write("project/.ai/tools/a/x.yaml", &sign(&yaml("a"), &stranger));
    assert_eq!(world.verdict("a/x"), Verdict::Untrusted);
}

#[test]
fn original_knowledge_file_verifies_with_published_key() {
    let world = World::new();
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let read = |name: &str| fs::read_to_string(data.join(name)).unwrap();
    world.write(
        "home/.ai/config/keys/trusted/6ea18199041a1ea8.toml",
        &read("6ea18199041a1ea8.toml"),
    );
    let text = read("state-graph-walker.md");
    let place = "project/.ai/knowledge/rye/core/runtimes/state-graph-walker.md";
    let path = world.write(place, &text);
    let report = world.library.verify_path(&path).unwrap();
    assert_eq!(
        (report.verdict, report.owner.as_deref()),
        (Verdict::Full, Some("github-ci"))
    );
    world.write(place, text.trim_end());
    assert_eq!(
        world.library.verify_path(&path).unwrap().verdict,
        Verdict::Modified
    );
}

#[test]
fn partial_coverage_requires_trust_entry() {
    let world = World::new();
    // Signed as the original signs a file with a shebang: without it.
    let theirs = format!("#!/usr/bin/env x\n{}", world.signed(&yaml("a")));
    world.write("project/.ai/tools/a/x.yaml", &theirs);
    assert!(matches!(
        world.resolve("a/x"),
        Err(Error::PartialOnly { .. })
    ));
    let home = world.root.path().join("home");
    let entry = trust::folder(&home).join(format!("{}.toml", world.key.public().fingerprint()));
    let text = fs::read_to_string(&entry).unwrap();
    let unsigned = text.split_once('\n').unwrap().1;
    fs::write(
        &entry,
        unsigned.replace("attestation = \"\"", "accept_partial = true"),
    )
    .unwrap();
    world.resolve("a/x").unwrap();
    let report = world.library.verify(&tool("a/x")).unwrap();
    assert_eq!(report.verdict, Verdict::Partial);
    assert!(report.refusal.is_none());
}

#[test]
fn item_copied_over_another_is_refused() {
    let world = World::new();
    let path = world.write_signed("project/.ai/tools/a/x.yaml", &yaml("a"));
    let script = "__version__ = \"1.0.0\"\n__category__ = \"a\"\n__tool_name__ = \"z\"\n";
    let signed = seal::sign_text(
        ItemKind::Tool,
        "py",
        script,
        &world.key,
        Timestamp::default(),
    );
    let script = world.write("project/.ai/tools/a/z.py", &signed.unwrap());
    for id in ["a/x", "a/z"] {
        assert_eq!(world.verdict(id), Verdict::Full, "{id}");
    }
    let folder = path.parent().unwrap();
    fs::copy(&path, folder.join("y.yaml")).unwrap();
    fs::hard_link(&script, folder.join("w.py")).unwrap();
    for id in ["a/y", "a/w"] {
        assert_eq!(world.verdict(id), Verdict::Misplaced, "{id}");
    }
}

#[test]
fn system_items_declare_location_and_have_no_unread_keys() {
    let items = Embedded::all();
    assert!(items.len() >= 7);
    for item in items {
        let place = item.place(Path::new("/"));
        let metadata = Metadata::parse(place.item.kind, place.extension, item.text()).unwrap();
        check_location(&place, &metadata).unwrap();
        assert_eq!(metadata.unread, [], "{}", place.item);
        assert!(metadata.version.is_some(), "{}", place.item);
        assert!(metadata.name.is_some(), "{}", place.item);
        assert!(metadata.description.is_some(), "{}", place.item);
        assert!(
            !item.text().contains("rye:signed:"),
            "the repository holds them unsigned"
        );
    }
}

fn provider(name: &str, words: &str) -> String {
    format!("version: \"1.0.0\"\ncategory: agent/providers\nname: {name}\ndescription: {words}\n")
}

#[test]
fn folder_listing_spans_spaces_with_precedence() {
    let world = World::new();
    let folder = ItemId::new("agent/providers").unwrap();
    let list = || world.library.category(ItemKind::Config, &folder);
    let names = |items: &[Arc<Item>]| -> Vec<(String, Space)> {
        let named = |item: &Arc<Item>| (item.id().name().to_owned(), item.space);
        items.iter().map(named).collect()
    };
    let shipped = names(&list().unwrap());
    assert!(shipped.contains(&("anthropic".to_owned(), Space::System)));
    let write = |space: &str, name: &str, text: &str| {
        let signed = seal::sign_text(
            ItemKind::Config,
            "yaml",
            text,
            &world.key,
            Timestamp::default(),
        );
        let path = format!("{space}/.ai/config/agent/providers/{name}.yaml");
        world.write(&path, &signed.unwrap())
    };
    write("home", "mine", &provider("mine", "the user's"));
    write("project", "mine", &provider("mine", "the project's"));
    write("home", "anthropic", &provider("anthropic", "the user's"));
    // Not items: an invalid id, another extension, a folder.
    world.write("project/.ai/config/agent/providers/a:b.yaml", "");
    world.write("project/.ai/config/agent/providers/notes.txt", "");
    world.write("project/.ai/config/agent/providers/deep/x.yaml", "");
    let found = names(&list().unwrap());
    assert_eq!(found.len(), shipped.len() + 1, "{found:?}");
    assert!(found.is_sorted());
    for expected in [("mine", Space::Project), ("anthropic", Space::User)] {
        assert!(
            found.contains(&(expected.0.to_owned(), expected.1)),
            "{found:?}"
        );
    }
    let unsigned = "project/.ai/config/agent/providers/new.yaml";
    let path = world.write(unsigned, &provider("new", "nobody's"));
    assert!(matches!(list(), Err(Error::Unsigned { .. })));
    fs::remove_file(path).unwrap();
    let elsewhere = world.root.path().join("elsewhere");
    let providers = world.root.path().join("project/.ai/config/agent/providers");
    fs::rename(&providers, &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &providers).unwrap();
    assert!(
        matches!(list(), Err(Error::Unreadable { .. })),
        "it leads out of the project"
    );
}

#[test]
fn folder_with_too_many_files_is_refused() {
    let world = World::new();
    for number in 0..=1000 {
        world.write(&format!("project/.ai/config/many/c{number}.txt"), "");
    }
    let folder = ItemId::new("many").unwrap();
    let refused = world
        .library
        .category(ItemKind::Config, &folder)
        .unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
}

#[test]
fn folder_ids_span_spaces_up_to_limit() {
    let world = World::new();
    let below = |folder: &str, most| {
        let folder = ItemId::new(folder).unwrap();
        let found = world.library.below(ItemKind::Tool, &folder, most).unwrap();
        found.map(|ids| ids.iter().map(ToString::to_string).collect::<Vec<_>>())
    };
    assert_eq!(below("team", 20), Some(Vec::new()));
    world.write("project/.ai/tools/team/a.py", "");
    world.write("project/.ai/tools/team/deep/down/b.yaml", "");
    world.write("home/.ai/tools/team/a.yaml", "");
    world.write("home/.ai/tools/team/c.py", "");
    world.write("home/.ai/tools/teammate/d.py", "");
    world.write("home/.ai/tools/team/notes.txt", "");
    let all = ["team/a", "team/c", "team/deep/down/b"].map(str::to_owned);
    assert_eq!(below("team", 3), Some(all.to_vec()));
    assert_eq!(below("team", 2), None);
    let shipped = below("rye/core/processes", 20).unwrap();
    assert_eq!(shipped.len(), 4, "{shipped:?}");
    // A folder that contains a link to itself.
    let project = world.root.path().join("project/.ai/tools/round");
    fs::create_dir_all(&project).unwrap();
    std::os::unix::fs::symlink(".", project.join("again")).unwrap();
    let folder = ItemId::new("round").unwrap();
    let refused = world.library.below(ItemKind::Tool, &folder, 20);
    assert!(
        matches!(refused, Err(Error::Unreadable { .. })),
        "{refused:?}"
    );
}
