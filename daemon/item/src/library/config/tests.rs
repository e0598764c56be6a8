use std::fs;
use std::path::PathBuf;

use rye_core::clock::{Clock, Timestamp, Uptime};
use rye_core::error::{ErrorKind, Kinded as _, with_sources};
use rye_core::policy::Policy;
use rye_core::seal::{SecretKey, sign_text};
use serde_json::json;

use super::*;
use crate::trust::{self, TrustStore};
use crate::{Spaces, system};

#[derive(Debug)]
struct Epoch;

impl Clock for Epoch {
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

struct World {
    root: tempfile::TempDir,
    key: SecretKey,
    library: Library,
}

impl World {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let key = SecretKey::from_seed(&[1; 32]);
        let home = root.path().join("home");
        trust::trust(&home, key.public(), "self", &key, Timestamp::default()).unwrap();
        let project = root.path().join("project");
        fs::create_dir_all(project.join(".ai")).unwrap();
        let spaces = Spaces::new(Some(project), home, system::root(root.path()));
        let trust = Arc::new(TrustStore::open(&spaces));
        let library = Library::open(spaces, trust, Arc::new(Epoch));
        Self { root, key, library }
    }

    /// Writes `.ai/config/agent/<name>.yaml` of a space without signing it.
    fn write(&self, space: &str, name: &str, text: &str) -> PathBuf {
        let path = self.root.path().join(space);
        let path = path.join(format!(".ai/config/agent/{name}.yaml"));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    fn write_signed(&self, space: &str, name: &str, body: &str) -> PathBuf {
        let signed = self.signed(&named(name, body));
        self.write(space, name, &signed)
    }

    fn signed(&self, text: &str) -> String {
        sign_text(
            ItemKind::Config,
            "yaml",
            text,
            &self.key,
            Timestamp::default(),
        )
        .unwrap()
    }

    fn policy(&self) -> Value {
        serde_json::from_str(&self.library.snapshot().unwrap().policy).unwrap()
    }
}

fn text(body: &str) -> String {
    format!("version: \"1.0.0\"\ncategory: agent\n{body}\n")
}

fn named(name: &str, body: &str) -> String {
    format!("name: {name}\n{}", text(body))
}

#[test]
fn shipped_policy_is_snapshot_of_project_without_files() {
    let world = World::new();
    let snapshot = world.library.snapshot().unwrap();
    assert_eq!(snapshot, Snapshot::shipped());
    assert_eq!(snapshot.hash.len(), 64);
    let policy = world.policy();
    for name in policy::FILES {
        assert_eq!(policy[name]["name"], name);
    }
    assert_eq!(Policy::from_config(&policy).unwrap().hooks().len(), 1);
}

#[test]
fn coordination_is_read_below_its_own_name_as_the_original_writes_it() {
    let world = World::new();
    world.write_signed(
        "home",
        "coordination",
        "wait_threads: {default_timeout: 20}",
    );
    let wrapped = "coordination:\n  wait_threads: {default_timeout: 60, max_timeout: 90}";
    world.write_signed("project", "coordination", wrapped);
    let policy = world.policy();
    assert_eq!(
        policy["coordination"]["wait_threads"],
        json!({"default_timeout": 60, "max_timeout": 90})
    );
    assert!(Policy::from_config(&policy).is_ok());
    // A file with both forms contradicts itself.
    let both = format!("{wrapped}\nwait_threads: {{default_timeout: 1}}");
    world.write_signed("project", "coordination", &both);
    let error = Policy::from_config(&world.policy()).unwrap_err();
    assert!(error.contains("`coordination`"), "{error}");
}

#[test]
fn project_overrides_user_and_user_overrides_system() {
    let world = World::new();
    world.write_signed(
        "home",
        "resilience",
        "retry: {max_retries: 4}\nlimits: {depth: 3}",
    );
    world.write_signed("project", "resilience", "retry: {max_retries: 5}");
    let resilience = &world.policy()["resilience"];
    assert_eq!(resilience["retry"]["max_retries"], 5);
    assert_eq!(resilience["limits"]["depth"], 3);
    assert_eq!(
        resilience["name"], "resilience",
        "what the system says stays"
    );
    let item = item_ref("resilience");
    let config = world.library.config(&item).unwrap();
    assert_eq!(Value::Object(config), *resilience);
    let none = world.library.config(&item_ref("no-such-file")).unwrap();
    assert!(none.is_empty());
}

#[test]
fn hook_outside_system_loses_system_flag() {
    let world = World::new();
    let origins = || {
        let policy = world.policy();
        let hooks = policy["hook_conditions"]["builtin_hooks"]
            .as_array()
            .cloned();
        hooks
            .unwrap()
            .iter()
            .map(|hook| (hook["id"].clone(), hook["_space"].clone()))
            .collect::<Vec<_>>()
    };
    let shipped = json!("default_retry_transient");
    assert_eq!(origins(), [(shipped.clone(), json!("system"))]);
    // An exact copy of the shipped hook, and one more.
    world.write_signed(
        "project",
        "hook_conditions",
        "builtin_hooks:\n  - {id: default_retry_transient, event: error, \
         condition: {path: classification.retryable, op: eq, value: true}, action: {retry: true}}\n  \
         - {id: own, event: after_step, action: {item_id: rye/core/echo}}",
    );
    assert_eq!(
        origins(),
        [
            (shipped, json!("project")),
            (json!("own"), json!("project"))
        ]
    );
}

#[test]
fn copy_of_system_file_counts_as_system() {
    let world = World::new();
    let shipped = include_str!("../../../../../.ai/config/agent/hook_conditions.yaml");
    world.write("project", "hook_conditions", shipped);
    assert_eq!(world.library.snapshot().unwrap(), Snapshot::shipped());
}

#[test]
fn configuration_is_verified_like_any_item() {
    let world = World::new();
    let good = text("retry: {max_retries: 4}");
    for (name, content, kind, told) in [
        (
            "resilience",
            good.clone(),
            ErrorKind::Denied,
            "is not signed",
        ),
        (
            "hook_conditions",
            world.signed(&good).replace('4', "9"),
            ErrorKind::Denied,
            "was changed after",
        ),
        (
            "hooks",
            sign_text(
                ItemKind::Config,
                "yaml",
                &good,
                &SecretKey::from_seed(&[2; 32]),
                Timestamp::default(),
            )
            .unwrap(),
            ErrorKind::Denied,
            "whom you do not trust",
        ),
        (
            "agent",
            world.signed("version: \"1.0.0\"\ncategory: other\n"),
            ErrorKind::Denied,
            "category",
        ),
        (
            "error_classification",
            world.signed(&named(
                "error_classification",
                "patterns: [{id: x, _space: system}]",
            )),
            ErrorKind::Invalid,
            "`_space` is reserved",
        ),
        (
            "error_classification",
            world.signed(&named(
                "error_classification",
                "patterns: [{category: transient}]",
            )),
            ErrorKind::Invalid,
            "needs an `id`",
        ),
        (
            "coordination",
            world.signed(&text("a: [")),
            ErrorKind::Invalid,
            "line",
        ),
    ] {
        for space in ["home", "project"] {
            let path = world.write(space, name, &content);
            let error = world.library.snapshot().unwrap_err();
            let message = with_sources(&error);
            assert_eq!(error.kind(), kind, "{message}");
            for part in [
                told,
                path.to_str().unwrap(),
                &format!("config:agent/{name}"),
            ] {
                assert!(message.contains(part), "{message}");
            }
            fs::remove_file(path).unwrap();
        }
    }
    assert_eq!(world.library.snapshot().unwrap(), Snapshot::shipped());
}

#[test]
fn snapshot_is_rebuilt_only_on_file_change() {
    let world = World::new();
    let first = world.library.snapshot().unwrap();
    let again = world.library.snapshot().unwrap();
    assert!(Arc::ptr_eq(&first.policy, &again.policy));
    let path = world.write_signed("project", "resilience", "retry: {max_retries: 4}");
    let changed = world.library.snapshot().unwrap();
    assert_ne!(changed.hash, first.hash);
    assert!(Arc::ptr_eq(
        &world.library.snapshot().unwrap().policy,
        &changed.policy
    ));
    fs::remove_file(path).unwrap();
    assert_eq!(world.library.snapshot().unwrap(), first);
}

#[test]
fn files_unrelated_to_graphs_change_only_hash() {
    let world = World::new();
    let shipped = Snapshot::shipped();
    let mut hashes = vec![Arc::clone(&shipped.hash)];
    for name in ["agent", "hooks"] {
        world.write_signed("home", name, "x-key: 1");
        let snapshot = world.library.snapshot().unwrap();
        assert_eq!(snapshot.policy, shipped.policy);
        assert!(!hashes.contains(&snapshot.hash));
        hashes.push(snapshot.hash);
    }
}

#[test]
fn project_lowers_and_user_sets_default_limits() {
    let world = World::new();
    let spend = |world: &World| {
        let spend = world.policy()["resilience"]["limits"]["defaults"]["spend"].clone();
        (spend, world.library.snapshot().unwrap().ignored.to_vec())
    };
    let limits = |spend: &str| format!("limits: {{defaults: {{spend: {spend}}}}}");
    world.write_signed("project", "resilience", &limits("0.25"));
    assert_eq!(spend(&world), (json!(0.25), Vec::new()));
    let path = world.write_signed("project", "resilience", &limits("2.5"));
    let (kept, ignored) = spend(&world);
    assert_eq!(kept, json!(1.0));
    let [told] = &ignored[..] else {
        panic!("{ignored:?}");
    };
    assert!(told.starts_with(&path.display().to_string()), "{told}");
    assert!(
        told.contains("`limits.defaults.spend: 2.5` is ignored"),
        "{told}"
    );
    world.write_signed("home", "resilience", &limits("3"));
    assert_eq!(spend(&world), (json!(2.5), Vec::new()));
}
