use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use super::*;

fn key() -> SecretKey {
    SecretKey::from_seed(&[1; 32])
}

fn at() -> Timestamp {
    Timestamp::default()
}

struct World {
    root: tempfile::TempDir,
    spaces: Spaces,
}

impl World {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(root.path()).unwrap();
        let spaces = Spaces::new(
            Some(base.join("project")),
            base.join("home"),
            base.join("sys"),
        );
        Self { root, spaces }
    }

    fn write(&self, path: &str, text: &str) -> PathBuf {
        let path = fs::canonicalize(self.root.path()).unwrap().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    fn sign(&self, target: &str) -> Result<Vec<Signed>, Error> {
        targets(&self.spaces, target)?
            .iter()
            .map(|place| sign(&self.spaces, place, &key(), at()))
            .collect()
    }

    fn ids(&self, target: &str) -> Vec<String> {
        let places = targets(&self.spaces, target).unwrap();
        places.iter().map(|place| place.item.to_string()).collect()
    }
}

const GOOD: &str = "version: \"1.0.0\"\ncategory: a\nname: x\n";

#[test]
fn signing_keeps_permissions_and_is_idempotent() {
    let world = World::new();
    let path = world.write("project/.ai/tools/a/x.yaml", GOOD);
    fs::set_permissions(&path, Permissions::from_mode(0o750)).unwrap();
    let signed = world.sign("tool:a/x").unwrap();
    assert_eq!(
        (signed[0].change, &signed[0].path),
        (Change::Written, &path)
    );
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.starts_with("# rye:signed:") && text.ends_with(GOOD));
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o750);
    assert_eq!(
        fs::read_dir(path.parent().unwrap()).unwrap().count(),
        1,
        "no draft is left"
    );
    let again = world.sign(path.to_str().unwrap()).unwrap();
    assert_eq!(again[0].change, Change::Current);
    assert_eq!(again[0].content_hash, signed[0].content_hash);
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
}

#[test]
fn signature_ignores_and_keeps_line_ends() {
    let world = World::new();
    let windows = |text: &str| text.replace('\n', "\r\n");
    let hash = |path: &Path| {
        let signed = world.sign(path.to_str().unwrap()).unwrap().remove(0);
        signed.content_hash
    };
    let python = "#!/usr/bin/env python3\n__version__ = \"1.0.0\"\n__category__ = \"a\"\nx = 1\n";
    for (name, text) in [("tools/a/x.yaml", GOOD), ("tools/a/p.py", python)] {
        let path = world.write(&format!("project/.ai/{name}"), text);
        let plain = hash(&path);
        let signed = fs::read_to_string(&path).unwrap();
        fs::write(&path, windows(text)).unwrap();
        assert_eq!(hash(&path), plain, "{name}");
        let written = fs::read_to_string(&path).unwrap();
        assert_eq!(
            written.matches('\n').count(),
            written.matches("\r\n").count()
        );
        let body = |text: &str| text.replace("\r\n", "\n");
        assert_eq!(body(&written), signed, "{name}");
        // Signed again with other content: there is still one signature.
        fs::write(&path, format!("{written}# more\r\n")).unwrap();
        let _changed = hash(&path);
        let again = fs::read_to_string(&path).unwrap();
        assert_eq!(again.matches("rye:signed:").count(), 1);
        assert!(again.ends_with("# more\r\n"));
        // Mixed line ends stay mixed.
        fs::write(&path, format!("{signed}# mixed\r\n")).unwrap();
        let _mixed = hash(&path);
        let mixed = fs::read_to_string(&path).unwrap();
        assert_eq!(mixed.matches("\r\n").count(), 1, "{mixed:?}");
    }
}

#[test]
fn configuration_is_signed_only_if_valid() {
    let world = World::new();
    let head = "version: \"1.0.0\"\ncategory: web\n";
    let schema = |target: &str, schema: &str| {
        format!(
            "{head}name: limits.config-schema\ntool_type: config-schema\ntarget_config: \"{target}\"\nschema: {schema}\n"
        )
    };
    let wanted = "{type: object, required: [retries], properties: {retries: {type: integer}}}";
    let file = "project/.ai/tools/web/limits.config-schema.yaml";
    let path = world.write(file, &schema("web/*.yaml", wanted));
    assert_eq!(
        world.sign("tool:web/limits.config-schema").unwrap().len(),
        1
    );
    let config = |place: &str, text: &str| {
        let name = Path::new(place).file_stem().unwrap().to_str().unwrap();
        let folder = place.rsplit('/').nth(1).unwrap();
        let text = format!("version: \"1.0.0\"\ncategory: {folder}\nname: {name}\n{text}");
        let path = world.write(place, &text);
        let signed = world.sign(path.to_str().unwrap());
        signed.map_err(|error| (error.kind(), with_sources(&error)))
    };
    assert!(config("project/.ai/config/web/search.yaml", "retries: 3\n").is_ok());
    assert!(config("project/.ai/config/other/search.yaml", "retries: x\n").is_ok());
    for (text, told) in [("retries: x\n", "`retries`"), ("tries: 3\n", "retries")] {
        let (kind, message) = config("project/.ai/config/web/search.yaml", text).unwrap_err();
        assert_eq!(kind, ErrorKind::Invalid);
        for told in [told, "config/web/search.yaml", "limits.config-schema.yaml"] {
            assert!(message.contains(told), "{message}");
        }
    }
    // A schema of the project does not bind its user; one of the user binds the project.
    assert!(config("home/.ai/config/web/search.yaml", "retries: x\n").is_ok());
    fs::remove_file(&path).unwrap();
    assert!(config("project/.ai/config/web/search.yaml", "retries: x\n").is_ok());
    world.write(
        &file.replace("project", "home"),
        &schema("web/search.yaml", wanted),
    );
    assert!(config("project/.ai/config/web/search.yaml", "retries: y\n").is_err());
    // An invalid schema is not signed, and is reported where it would have to be used.
    world.write(file, &schema("web/*.yaml", "{type: nonsense}"));
    let error = world.sign("tool:web/limits.config-schema").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let (_, message) = config("project/.ai/config/web/search.yaml", "retries: 3\n").unwrap_err();
    assert!(
        message.contains("failed to use") && message.contains("schema"),
        "{message}"
    );
}

#[test]
fn version_is_three_numbers_with_an_optional_suffix() {
    for version in ["0.0.0", "1.20.3", "1.0.0-rc.1", "1.0.0-alpha+build.7"] {
        assert!(is_version(version), "{version}");
    }
    let long = format!("1.0.0-{}", "a".repeat(MOST_VERSION));
    for version in [
        "",
        "1.0",
        "1.0.0.0",
        "01.0.0",
        "1.0.0-",
        "1.0.0-a/../b",
        "v1.0.0",
        &long,
    ] {
        assert!(!is_version(version), "{version}");
    }
}

#[test]
fn unusable_item_is_not_signed() {
    let world = World::new();
    for (text, reason) in [
        ("version: \"1.0.0\"\n", "category"),
        ("version: \"1.0.0\"\ncategory: b\n", "category: a"),
        ("version: \"1.0.0\"\ncategory: a\nname: y\n", "name: x"),
        ("category: a\n", "three numbers"),
        ("version: \"1.0\"\ncategory: a\n", "not \"1.0\""),
        ("version: \"01.0.0\"\ncategory: a\n", "not \"01.0.0\""),
        ("version: [\n", "line"),
    ] {
        let path = world.write("project/.ai/tools/a/x.yaml", text);
        let error = world.sign("tool:a/x").unwrap_err();
        let message = with_sources(&error);
        assert!(message.contains(reason), "{message}");
        assert!(message.contains(&path.display().to_string()), "{message}");
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert_eq!(
            fs::read_to_string(&path).unwrap(),
            text,
            "the file is left alone"
        );
    }
}

#[test]
fn missing_name_is_added_and_signed() {
    let world = World::new();
    for (path, text, line) in [
        (
            "tools/a/x.yaml",
            "version: \"1.0.0\"\ncategory: a\nconfig:\n  category: b\n",
            "category: a\nname: x\nconfig",
        ),
        (
            "tools/a/1.5.yaml",
            "category: a\nversion: \"1.0.0\"",
            "category: a\nname: \"1.5\"\nversion",
        ),
        (
            "tools/top.yaml",
            "version: \"1.0.0\"",
            "version: \"1.0.0\"\nname: top\n",
        ),
        (
            "tools/a/p.py",
            "#!/usr/bin/env python3\n__version__ = \"1.0.0\"\n__category__ = \"a\"\n\nx = 1\n",
            "__category__ = \"a\"\n__tool_name__ = \"p\"\n\nx",
        ),
        (
            "tools/a/j.js",
            "export const __version__ = \"1.0.0\";\nexport const __category__ = \"a\";\n",
            "\"a\";\nexport const __tool_name__ = \"j\";\n",
        ),
        (
            "config/a/t.toml",
            "version = \"1.0.0\"\ncategory = \"a\"\n[b]\n",
            "category = \"a\"\nname = \"t\"\n[b]",
        ),
        (
            "knowledge/a/k.md",
            "# category: none\n\n```yaml\nversion: \"1.0.0\"\ncategory: a\n```\n\nText.\n",
            "category: a\nname: k\n```",
        ),
    ] {
        let path = world.write(&format!("project/.ai/{path}"), text);
        let signed = world.sign(path.to_str().unwrap()).unwrap().remove(0);
        assert_eq!((signed.change, signed.named), (Change::Written, true));
        let written = fs::read_to_string(&path).unwrap();
        assert!(written.contains(line), "{written}");
        let again = world.sign(path.to_str().unwrap()).unwrap().remove(0);
        assert_eq!((again.change, again.named), (Change::Current, false));
    }
    // No line of these is suitable, or the added line would not be read as the name.
    for (path, text) in [
        ("tools/a/flow.yaml", "{version: \"1.0.0\", category: a}\n"),
        (
            "tools/a/folded.yaml",
            "category: >-\n  a\nversion: \"1.0.0\"\n",
        ),
        (
            "tools/a/quoted.py",
            "x = \"\"\"\n__category__ = \"a\"\n\"\"\"\n__category__ = \"a\"\n__version__ = \"1.0.0\"\n",
        ),
        (
            "directives/a/d.md",
            "```xml\n<directive version=\"1.0.0\"><category>a</category></directive>\n```\n",
        ),
    ] {
        let path = world.write(&format!("project/.ai/{path}"), text);
        let error = world.sign(path.to_str().unwrap()).unwrap_err();
        let message = with_sources(&error);
        assert!(message.contains("does not declare `name: "), "{message}");
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }
}

#[test]
fn file_with_unknown_keys_gets_its_name_and_tool_with_them_is_refused_for_them() {
    let world = World::new();
    let schema = "version: \"1.0.0\"\ntool_type: config-schema\nexecutor_id: null\ncategory: a\n\
                  target_config: b/c.yaml\nschema: {type: object}\n";
    let path = world.write("project/.ai/tools/a/c.config-schema.yaml", schema);
    let signed = world.sign(path.to_str().unwrap()).unwrap().remove(0);
    assert!(signed.named, "its own keys are below the added line");
    let tool = "version: \"1.0.0\"\ntool_type: bash\nexecutor_id: rye/core/runtimes/bash\ncategory: a\n\
                descripton: d\nresorces: {}\nconfig: {script: 'true'}\n";
    for tool in [tool.to_owned(), format!("name: x\n{tool}")] {
        world.write("project/.ai/tools/a/x.yaml", &tool);
        let error = world.sign("tool:a/x").unwrap_err();
        let message = with_sources(&error);
        for part in [
            "the key `descripton` (line ",
            "did you mean `description`?",
            "the key `resorces` (line ",
            "did you mean `resources`?",
        ] {
            assert!(message.contains(part), "no {part} in {message}");
        }
        assert!(!message.contains("does not declare"), "{message}");
        assert_eq!(error.kind(), ErrorKind::Invalid);
    }
    world.write(
        "project/.ai/tools/a/x.yaml",
        &tool.replace("descripton: d\nresorces: {}\n", "x-note: 1\n"),
    );
    assert!(world.sign("tool:a/x").unwrap()[0].named);
}

/// Writes `.ai/config/agent/<name>.yaml` of a space with this body, and signs it.
fn configure(world: &World, space: &str, name: &str, body: &str) -> Result<Signed, String> {
    let (folder, stem) = name.rsplit_once('/').unwrap_or(("", name));
    let category = format!("agent/{folder}");
    let text = format!(
        "version: \"1.0.0\"\ncategory: {}\nname: {stem}\n{body}\n",
        category.trim_end_matches('/')
    );
    let path = world.write(&format!("{space}/.ai/config/agent/{name}.yaml"), &text);
    let signed = world.sign(path.to_str().unwrap());
    let signed = signed.map_err(|error| with_sources(&error));
    signed.map(|mut signed| signed.remove(0))
}

const PROVIDER: &str = "api: anthropic\nbase_url: https://x.invalid\npath: /v1\nmodels: []";

#[test]
fn configuration_for_which_runs_are_refused_is_not_signed() {
    let world = World::new();
    let insecure = format!("{PROVIDER}\ninsecure: true");
    for (name, body, part) in [
        ("resilience", "retries: 3", "unknown key `retries`"),
        (
            "resilience",
            "limits: {defaults: {turns: many}}",
            "`limits.defaults.turns`",
        ),
        (
            "coordination",
            "coordination: {wait_thread: {}}",
            "`wait_thread`",
        ),
        (
            "hook_conditions",
            "builtin_hooks: [{id: a, event: eror, action: {}}]",
            "there is no event `eror`",
        ),
        (
            "error_classification",
            "patterns: [{id: a}]",
            "it has no `match`",
        ),
        (
            "capability_risk",
            "risks: [{id: a, pattern: '*', risk: mild}]",
            "`risk` is one of",
        ),
        (
            "agent",
            "default_teir: fast",
            "did you mean `default_tier`?",
        ),
        ("providers/p", "api: smtp", "there is no api `smtp`"),
        (
            "providers/p",
            &insecure,
            "a file of a project cannot be `insecure`",
        ),
    ] {
        let error = configure(&world, "project", name, body).unwrap_err();
        assert!(
            error.contains(part) && error.contains("failed to sign"),
            "{name}: {error}"
        );
    }
    // It is merged as runs merge it: over the file of the user.
    configure(
        &world,
        "home",
        "coordination",
        "wait_threads: {max_timeout: 60}",
    )
    .unwrap();
    let body = "wait_threads: {default_timeout: 90}";
    let error = configure(&world, "project", "coordination", body).unwrap_err();
    assert!(
        error.contains("is above `wait_threads.max_timeout` (60)"),
        "{error}"
    );
}

#[test]
fn configuration_of_the_original_is_signed_with_notes_about_keys_without_effect() {
    let world = World::new();
    for (name, body, warnings) in [
        (
            "agent",
            "schema_version: \"1.0.0\"\nprovider: {default: anthropic}",
            1,
        ),
        (
            "resilience",
            "tool_type: config\nretry: {max_retries: 2}",
            1,
        ),
        (
            "error_classification",
            "patterns: []\noperators: [eq]\ncombinators: [any]\nretry_policy_types: [fixed]",
            3,
        ),
        (
            "coordination",
            "coordination:\n  wait_threads: {default_timeout: 60}",
            0,
        ),
        ("providers/p", PROVIDER, 0),
    ] {
        let signed = configure(&world, "project", name, body).unwrap();
        assert_eq!(
            signed.warnings.len(),
            warnings,
            "{name}: {:?}",
            signed.warnings
        );
        assert!(
            signed
                .warnings
                .iter()
                .all(|warning| warning.contains("no effect"))
        );
    }
}

#[test]
fn file_without_metadata_is_refused_with_what_it_needs() {
    let world = World::new();
    for (path, text, field) in [
        ("tools/a/bare.py", "print(1)\n", "`__tool_type__`"),
        ("tools/a/bare.yaml", "a: 1\n", "`tool_type`"),
        (
            "config/a/bare.yaml",
            "a: 1\n",
            "`version`, `category` and `name`",
        ),
    ] {
        let path = world.write(&format!("project/.ai/{path}"), text);
        let error = with_sources(&world.sign(path.to_str().unwrap()).unwrap_err());
        for part in ["does not say what it is", field] {
            assert!(error.contains(part), "no {part} in {error}");
        }
    }
}

#[test]
fn globs_match_ids_in_fixed_order() {
    let world = World::new();
    for path in [
        "a/x.yaml",
        "a/y.yaml",
        "a/b/x.py",
        "c.yaml",
        "a/__pycache__/z.py",
        "a/README",
    ] {
        world.write(&format!("project/.ai/tools/{path}"), "");
    }
    assert_eq!(world.ids("tool:a/*"), ["tool:a/x", "tool:a/y"]);
    assert_eq!(
        world.ids("tool:*"),
        ["tool:a/b/x", "tool:a/x", "tool:a/y", "tool:c"]
    );
    assert_eq!(world.ids("tool:x*"), ["tool:a/b/x", "tool:a/x"]);
    let missing = targets(&world.spaces, "tool:q/*").unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    assert!(matches!(
        targets(&world.spaces, "tool:a/../x"),
        Err(Error::Name { .. })
    ));
    assert!(matches!(
        targets(&world.spaces, "tool:a/[x"),
        Err(Error::Pattern { .. })
    ));
}

#[test]
fn names_are_looked_up_in_project_then_user_space() {
    let world = World::new();
    let user = world.write("home/.ai/tools/a/x.yaml", GOOD);
    assert_eq!(world.sign("tool:a/x").unwrap()[0].path, user);
    let project = world.write("project/.ai/tools/a/x.yaml", GOOD);
    assert_eq!(world.sign("tool:a/x").unwrap()[0].path, project);
}

#[test]
fn links_and_system_items_are_not_signed() {
    let world = World::new();
    let real = world.write("project/.ai/tools/a/x.yaml", GOOD);
    let link = real.with_file_name("y.yaml");
    symlink("x.yaml", &link).unwrap();
    assert!(matches!(
        world.sign(link.to_str().unwrap()),
        Err(Error::Link { .. })
    ));
    let system = world.write("sys/.ai/tools/a/x.yaml", GOOD);
    assert!(matches!(
        world.sign(system.to_str().unwrap()),
        Err(Error::System { .. })
    ));
    let outside = world.write("project/x.yaml", GOOD);
    assert!(world.sign(outside.to_str().unwrap()).is_err());
}

#[test]
fn previous_signature_is_recognized_unless_copy_differs() {
    let world = World::new();
    let past = SignedCopies::of(&fs::canonicalize(world.root.path()).unwrap().join("home"));
    let path = "project/.ai/tools/a/x.yaml";
    let signed = |change: &str| {
        let file = world.root.path().join(path);
        let line = fs::read_to_string(&file).unwrap_or_default();
        let line = line
            .lines()
            .next()
            .filter(|line| line.contains("rye:signed"));
        let line = line.map_or_else(String::new, |line| format!("{line}\n"));
        world.write(path, &format!("{line}{GOOD}x-a: {change}\n"));
        world.sign("tool:a/x").unwrap().remove(0)
    };
    let first = signed("one");
    assert_eq!(
        (&first.previous_signature, past.previous(&first)),
        (&None, None)
    );
    past.keep(&first).unwrap();
    let second = signed("two");
    assert_eq!(past.previous(&second).as_deref(), Some(first.text.as_str()));
    // There is no comparison without a copy, or with a changed one.
    let third = signed("three");
    assert_eq!(
        third.previous_signature.as_ref().unwrap().hash,
        second.content_hash
    );
    assert_eq!(past.previous(&third), None);
    past.keep(&second).unwrap();
    assert_eq!(past.previous(&third).as_deref(), Some(second.text.as_str()));
    let copy = format!("home/.ai/cache/signed/{}", second.content_hash);
    world.write(&copy, "x-a: forged\n");
    assert_eq!(past.previous(&third), None);
    // If the file is signed already, its previous text is its own.
    let again = world.sign("tool:a/x").unwrap().remove(0);
    assert_eq!(again.change, Change::Current);
    assert_eq!(past.previous(&again), Some(third.text));
}

#[test]
fn trust_entry_is_signed_only_if_it_remains_valid() {
    let world = World::new();
    let home = fs::canonicalize(world.root.path()).unwrap().join("home");
    let friend = SecretKey::from_seed(&[2; 32]);
    trust::trust(&home, key().public(), "self", &key(), at()).unwrap();
    let path = trust::trust(&home, friend.public(), "friend", &key(), at()).unwrap();
    let store = trust::TrustStore::open(&world.spaces);
    let text = fs::read_to_string(&path).unwrap();
    let edited = text.replace("attestation = \"\"", "accept_partial = true");
    fs::write(&path, &edited).unwrap();
    let places = targets_in(&world.spaces, Space::User, ItemKind::Config, "keys/*/*").unwrap();
    assert_eq!(places.len(), 2);
    for place in places {
        sign(&world.spaces, &place, &key(), at()).unwrap();
    }
    assert_eq!(store.refused(), []);
    let fingerprint = friend.public().fingerprint();
    let counts = store.key(fingerprint).unwrap();
    assert_eq!(counts.partial, trust::PartialCoverage::Accepted);
    let signed = fs::read_to_string(&path).unwrap();
    assert!(signed.contains(&format!("name = \"{fingerprint}\"")));
    for (broken, problem) in [
        (
            signed.replace("accept_partial", "acept_partial"),
            "acept_partial",
        ),
        (signed.replace("pem = ", "key = "), "key"),
    ] {
        fs::write(&path, &broken).unwrap();
        let refused = world.sign(path.to_str().unwrap()).unwrap_err();
        assert!(matches!(refused, Error::NoKey { .. }), "{refused}");
        assert!(refused.to_string().contains(problem), "{refused}");
        assert_eq!(fs::read_to_string(&path).unwrap(), broken);
    }
}
