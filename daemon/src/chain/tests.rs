mod elements;
mod files;
mod reference;

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use rye_core::clock::Timestamp;
use rye_core::id::{ItemId, ItemKind, ItemRef};
use rye_core::model::Object;
use rye_core::seal::{SecretKey, sha256_hex, sign_text};
use rye_item::{Library, OutputFormat, Spaces, TrustStore, library, trust};
use serde_json::json;

use super::terminal::{EXECUTE, HTTP};
use super::*;
use rye_host::clock::HostClock;

/// A project, a user who trusts two keys, and the items of the system.
struct World {
    root: tempfile::TempDir,
    own: SecretKey,
    friend: SecretKey,
    library: Library,
}

impl World {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        let [own, friend] = [[1; 32], [2; 32]].map(|seed| SecretKey::from_seed(&seed));
        fs::create_dir_all(at("project/.ai/tools/t")).unwrap();
        for key in [&own, &friend] {
            let time = Timestamp::default();
            trust::trust(&at("home"), key.public(), "one", &own, time).unwrap();
        }
        let spaces = Spaces::new(Some(at("project")), at("home"), at("system"));
        let trust = Arc::new(TrustStore::open(&spaces));
        let library = Library::open(spaces, trust, Arc::new(HostClock));
        Self {
            root,
            own,
            friend,
            library,
        }
    }

    /// Writes a file to `.ai/tools`.
    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.root.path().join("project/.ai/tools").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    fn sign(&self, name: &str, text: &str, key: &SecretKey) {
        let (_, extension) = name.rsplit_once('.').unwrap();
        let signed = sign_text(ItemKind::Tool, extension, text, key, Timestamp::default());
        self.write(name, &signed.unwrap());
    }

    /// A Python tool with an `__init__.py` and a helper, which the friend signed.
    fn multi(&self) {
        let head = |name: &str, more: &str| {
            format!(
                "__version__ = \"1.0.0\"\n__category__ = \"t/multi\"\n__tool_name__ = \"{name}\"\n{more}"
            )
        };
        let executor = "__executor_id__ = \"rye/core/runtimes/python/function\"\n";
        self.sign("t/multi/tool.py", &head("tool", executor), &self.own);
        let library = "__tool_type__ = \"library\"\n";
        self.sign("t/multi/helper.py", &head("helper", library), &self.friend);
        self.write("t/multi/__init__.py", "");
    }

    fn resolve(&self, id: &str) -> Result<Chain, Error> {
        resolve(&self.library, &item(id), None)
    }

    fn draft(&self, id: &str) -> Result<Draft, Error> {
        draft(&self.library, &item(id))
    }

    fn lock(&self, draft: &Draft, content: Object) {
        let (spaces, time) = (self.library.spaces(), Timestamp::default());
        let (tool, version) = (&draft.tool, &draft.version);
        rye_item::lock::write(spaces, tool, version, content, &self.own, time).unwrap();
    }
}

fn item(id: &str) -> ItemRef {
    ItemRef::tool(ItemId::new(id).unwrap())
}

/// Returns the library error in `error`.
fn of_item(error: Error) -> library::Error {
    let Error::Item(error) = error else {
        panic!("{error}");
    };
    *error
}

#[test]
fn lock_replaces_missing_but_not_bad_signature() {
    let world = World::new();
    world.multi();
    let data = world.write("t/multi/words.json", "{}");
    let signed = fs::read_to_string(data.with_file_name("helper.py")).unwrap();
    let draft = world.draft("t/multi/tool").unwrap();
    assert_eq!(draft.unsigned, [PathBuf::from("words.json")]);
    world.lock(&draft, draft.content.clone());
    assert!(world.resolve("t/multi/tool").is_ok());

    // No byte has changed, but its signer is no longer trusted.
    let fingerprint = world.friend.public().fingerprint();
    trust::untrust(world.library.spaces(), fingerprint).unwrap();
    let refused = of_item(world.resolve("t/multi/tool").unwrap_err());
    assert!(matches!(refused, library::Error::Untrusted { .. }));
    let refused = of_item(world.draft("t/multi/tool").unwrap_err());
    assert!(matches!(refused, library::Error::Untrusted { .. }));

    // A file changed after it was signed. A draft does not include it, and a lock that lists it does not accept it.
    let changed = format!("{signed}planted = 1\n");
    world.write("t/multi/helper.py", &changed);
    let refused = of_item(world.draft("t/multi/tool").unwrap_err());
    assert!(matches!(refused, library::Error::Modified { .. }));
    let mut content = draft.content.clone();
    content["verified_deps"]["files"]["helper.py"] = json!(sha256_hex(&changed));
    world.lock(&draft, content.clone());
    let refused = of_item(world.resolve("t/multi/tool").unwrap_err());
    assert!(matches!(refused, library::Error::Modified { .. }));

    // A helper without a signature is covered like data, only with this content.
    let (_, unsigned) = signed.split_once('\n').unwrap();
    world.write("t/multi/helper.py", unsigned);
    content["verified_deps"]["files"]["helper.py"] = json!(sha256_hex(unsigned));
    world.lock(&draft, content);
    assert!(world.resolve("t/multi/tool").is_ok());
    world.write("t/multi/helper.py", "planted = 1\n");
    let refused = world.resolve("t/multi/tool").unwrap_err();
    assert!(matches!(refused, Error::LockMismatch { .. }), "{refused}");
}

#[test]
fn only_empty_init_py_needs_no_signature() {
    let world = World::new();
    world.multi();
    assert!(world.resolve("t/multi/tool").is_ok());
    world.write("t/multi/below/__init__.py", "");
    assert!(world.draft("t/multi/tool").unwrap().unsigned.is_empty());
    for name in ["json.py", "settings.yaml", "my__init__.py"] {
        let path = world.write(&format!("t/multi/{name}"), "");
        let refused = world.resolve("t/multi/tool").unwrap_err().to_string();
        assert!(
            refused.contains(name) && refused.contains("not signed"),
            "{refused}"
        );
        let unsigned = world.draft("t/multi/tool").unwrap().unsigned;
        assert_eq!(unsigned, [PathBuf::from(name)]);
        fs::remove_file(path).unwrap();
    }
}

/// Size of the descriptor table of this process: an upper bound of the descriptors that were open at the same time.
fn descriptors() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let size = status.lines().find_map(|line| line.strip_prefix("FDSize:"));
    size.unwrap().trim().parse().unwrap()
}

#[test]
fn tool_directories_are_opened_one_by_one_within_depth_limit() {
    let world = World::new();
    world.multi();
    let tool = world.root.path().join("project/.ai/tools/t/multi");
    let before = descriptors();
    for number in 0..5_000 {
        fs::create_dir(tool.join(format!("d{number}"))).unwrap();
    }
    assert!(world.resolve("t/multi/tool").is_ok());
    assert!(descriptors() <= before.max(4_096), "{}", descriptors());
    let deep = |levels: usize| fs::create_dir_all(tool.join(vec!["d"; levels].join("/"))).unwrap();
    deep(64);
    assert!(world.resolve("t/multi/tool").is_ok());
    deep(65);
    let refused = world.resolve("t/multi/tool").unwrap_err().to_string();
    assert!(refused.contains("exclude_dirs"), "{refused}");
}

#[test]
fn tool_type_graph_with_other_executor_is_refused_with_line() {
    let world = World::new();
    let text = "version: \"1.0.0\"\ncategory: t\nname: fake\ntool_type: graph\nexecutor_id: rye/core/runtimes/bash\n\
                env_requires: [NOT_SET]\nlimit: {spend: 1}\nconfig: {script: cat}\n";
    world.sign("t/fake.yaml", text, &world.own);
    let refused = world.resolve("t/fake").unwrap_err().to_string();
    assert!(
        refused.contains("`tool_type`, line 5") && refused.contains(STATE_GRAPH),
        "{refused}"
    );
    let graph = text.replace("rye/core/runtimes/bash", STATE_GRAPH);
    world.sign("t/fake.yaml", &graph, &world.own);
    assert_eq!(world.resolve("t/fake").unwrap().terminal, Terminal::Graph);
}
