//! Files of multi-file tools, and refusals of bad arrangements.

use std::os::unix::fs::symlink;

use nix::sys::stat::Mode;

use super::*;
use crate::trees::{self, Tree};

/// Names of the files that would be copied.
fn names(chain: &Chain) -> Vec<String> {
    let tree = &chain
        .anchored
        .as_ref()
        .expect("it is a tool of several files")
        .tree;
    let names = tree.hashes().map(|(name, _)| name.display().to_string());
    names.collect()
}

/// A runtime `t/shells` with these `anchor` and `verify_deps` sections, and a tool `t/deep/tool` that it runs.
fn on_runtime(world: &World, anchor: &str, deps: &str) -> Result<Chain, Error> {
    let runtime = format!(
        "version: \"1.0.0\"\ncategory: t\nname: shells\nexecutor_id: {EXECUTE}\nanchor: {anchor}\n\
         verify_deps: {{enabled: true, extensions: [.sh], {deps}}}\nconfig: {{command: /bin/true}}\n"
    );
    world.sign("t/shells.yaml", &runtime, &world.own);
    let tool = "version: \"1.0.0\"\ncategory: t/deep\nname: tool\nexecutor_id: t/shells\n";
    world.sign("t/deep/tool.yaml", tool, &world.own);
    world.resolve("t/deep/tool")
}

/// Signs a script that is a library.
fn script(world: &World, name: &str) {
    let (category, stem) = name.rsplit_once('/').unwrap();
    let stem = stem.strip_suffix(".sh").unwrap();
    let text = format!(
        "# ---\n# version: \"1.0.0\"\n# tool_type: library\n# category: {category}\n# name: {stem}\n# ---\ntrue\n"
    );
    world.sign(name, &text, &world.own);
}

#[test]
fn anchor_root_and_scope_select_copied_files() {
    let world = World::new();
    for name in [
        "t/top.sh",
        "t/deep/beside.sh",
        "t/deep/below/low.sh",
        "t/deep/skipped/no.sh",
    ] {
        script(&world, name);
    }
    let anchor = |root: &str| format!("{{enabled: true, mode: always, root: {root}}}");
    let all = ["below/low.sh", "beside.sh", "skipped/no.sh", "tool.yaml"];
    let deep = |names: &[&str]| {
        names
            .iter()
            .map(|name| format!("deep/{name}"))
            .collect::<Vec<_>>()
    };
    let found = |root: &str, deps: &str| names(&on_runtime(&world, &anchor(root), deps).unwrap());
    assert_eq!(found("tool_dir", "scope: anchor"), all);
    assert_eq!(
        found("tool_dir", "exclude_dirs: [skipped]"),
        ["below/low.sh", "beside.sh", "tool.yaml"]
    );
    let whole = [deep(&all), vec!["top.sh".to_owned()]].concat();
    assert_eq!(found("tool_parent", "scope: anchor"), whole);
    assert_eq!(found("tool_parent", "scope: tool_dir"), deep(&all));
    assert_eq!(
        found("tool_parent", "scope: tool_siblings"),
        deep(&["beside.sh", "tool.yaml"])
    );
    assert_eq!(
        found("tool_parent", "scope: tool_file"),
        deep(&["tool.yaml"])
    );
    let of_project = found("project_path", "scope: anchor");
    assert_eq!(of_project.len(), 5, "{of_project:?}");
    assert!(of_project.contains(&".ai/tools/t/deep/tool.yaml".to_owned()));
    // A file outside `.ai` cannot be signed, and is refused unless a lock covers it.
    fs::write(world.root.path().join("project/loose.sh"), "true\n").unwrap();
    let refused = on_runtime(&world, &anchor("project_path"), "scope: anchor").unwrap_err();
    assert!(refused.to_string().contains("loose.sh"), "{refused}");
}

#[test]
fn anchor_mode_and_markers_select_multi_file_tools() {
    let world = World::new();
    script(&world, "t/deep/beside.sh");
    let is_anchored = |anchor: &str| on_runtime(&world, anchor, "").unwrap().anchored.is_some();
    let marked = "{enabled: true, mode: auto, markers_any: [lib.txt, marker.txt]}";
    assert!(!is_anchored(marked));
    assert!(!is_anchored("{enabled: false, mode: always}"));
    assert!(!is_anchored("{enabled: true, mode: never}"));
    assert!(is_anchored("{enabled: true, mode: always}"));
    // A marker in the parent directory of the tool does not count.
    world.write("t/marker.txt", "");
    assert!(!is_anchored(marked));
    world.write("t/deep/marker.txt", "");
    assert!(is_anchored(marked));
    assert!(!is_anchored(
        "{enabled: true, mode: never, markers_any: [marker.txt]}"
    ));
}

#[test]
fn runtime_library_is_verified_and_copied() {
    let world = World::new();
    script(&world, "t/lib/common.sh");
    let anchor = "{enabled: true, mode: always, lib: lib}";
    let chain = on_runtime(&world, anchor, "").unwrap();
    assert_eq!(names(&chain), [".runtime-lib/common.sh", "tool.yaml"]);
    let path = world.root.path().join("project/.ai/tools/t/lib/common.sh");
    let signed = fs::read_to_string(&path).unwrap();
    fs::write(&path, format!("{signed}false\n")).unwrap();
    let refused = of_item(on_runtime(&world, anchor, "").unwrap_err());
    assert!(
        matches!(refused, library::Error::Modified { .. }),
        "{refused}"
    );
}

#[test]
fn lock_and_signature_do_not_cover_files_of_other_tool() {
    let world = World::new();
    world.multi();
    let data = world.write("t/multi/words.json", "{\"word\": 1}");
    let draft = world.draft("t/multi/tool").unwrap();
    world.lock(&draft, draft.content.clone());
    assert!(world.resolve("t/multi/tool").is_ok());

    // Another tool with a lock of its own.
    let head = "__version__ = \"1.0.0\"\n__category__ = \"t/other\"\n__tool_name__ = \"tool\"\n";
    let executor = "__executor_id__ = \"rye/core/runtimes/python/function\"\n";
    world.sign("t/other/tool.py", &format!("{head}{executor}"), &world.own);
    world.write("t/other/__init__.py", "");
    let draft = world.draft("t/other/tool").unwrap();
    world.lock(&draft, draft.content.clone());
    assert!(world.resolve("t/other/tool").is_ok());

    let moved = fs::read(&data).unwrap();
    let path = world.write("t/other/words.json", "");
    fs::write(&path, moved).unwrap();
    let refused = world.resolve("t/other/tool").unwrap_err().to_string();
    for told in [
        "words.json",
        "no lock covers it",
        "lock create t/other/tool",
    ] {
        assert!(refused.contains(told), "{refused}");
    }
    fs::remove_file(path).unwrap();

    let helper = fs::read_to_string(data.with_file_name("helper.py")).unwrap();
    world.write("t/other/helper.py", &helper);
    let refused = of_item(world.resolve("t/other/tool").unwrap_err());
    assert!(
        matches!(refused, library::Error::Misplaced { .. }),
        "{refused}"
    );
    let refused = of_item(world.draft("t/other/tool").unwrap_err());
    assert!(
        matches!(refused, library::Error::Misplaced { .. }),
        "no lock takes it in: {refused}"
    );
}

/// Creates the entry at a path.
type Plant<'a> = &'a dyn Fn(&std::path::Path);

#[test]
fn fifo_and_link_are_refused_without_blocking() {
    let world = World::new();
    world.multi();
    let tool = world.root.path().join("project/.ai/tools/t/multi");
    let plant: [(&str, Plant<'_>); 3] = [
        ("pipe.py", &|path| {
            nix::unistd::mkfifo(path, Mode::S_IRWXU).unwrap();
        }),
        ("link.py", &|path| symlink("helper.py", path).unwrap()),
        ("out.json", &|path| symlink("/etc/hostname", path).unwrap()),
    ];
    for (name, plant) in plant {
        let path = tool.join(name);
        plant(&path);
        for refused in [
            world.resolve("t/multi/tool").unwrap_err(),
            world.draft("t/multi/tool").unwrap_err(),
        ] {
            let refused = refused.to_string();
            assert!(
                refused.contains(name) && refused.contains("link, a pipe"),
                "{refused}"
            );
        }
        fs::remove_file(path).unwrap();
    }
    // A link to a directory is not followed, so no file in its target belongs to the tool.
    symlink("/etc", tool.join("more")).unwrap();
    assert_eq!(
        names(&world.resolve("t/multi/tool").unwrap()),
        ["__init__.py", "helper.py", "tool.py"]
    );
}

#[test]
fn tool_files_entries_and_bytes_are_bounded() {
    let refused = |fill: &dyn Fn(&std::path::Path)| {
        let world = World::new();
        world.multi();
        fill(&world.root.path().join("project/.ai/tools/t/multi"));
        // While a lock is being written, files need no signature.
        let told = world.draft("t/multi/tool").map(drop);
        told.map_err(|error| error.to_string()).err()
    };
    let files = |count: usize, suffix: &'static str| {
        move |tool: &std::path::Path| {
            for number in 0..count {
                fs::File::create(tool.join(format!("f{number}{suffix}"))).unwrap();
            }
        }
    };
    // Three files exist already.
    assert_eq!(refused(&files(trees::MOST_FILES - 3, ".json")), None);
    let told = refused(&files(trees::MOST_FILES - 2, ".json")).unwrap();
    assert!(
        told.contains("2000 files") && told.contains("exclude_dirs"),
        "{told}"
    );
    let told = refused(&files(50_001, ".txt")).unwrap();
    assert!(told.contains("50000 entries"), "{told}");
    let large = |count: u64| {
        move |tool: &std::path::Path| {
            for number in 0..count {
                let file = fs::File::create(tool.join(format!("large{number}.json"))).unwrap();
                file.set_len(8 << 20).unwrap();
            }
        }
    };
    let told = refused(&large(9)).unwrap();
    assert!(told.contains("64 MiB"), "{told}");
    let one = |tool: &std::path::Path| {
        let file = fs::File::create(tool.join("larger.json")).unwrap();
        file.set_len((8 << 20) + 1).unwrap();
    };
    let told = refused(&one).unwrap();
    assert!(told.contains("larger.json"), "{told}");
}

#[test]
fn file_changed_after_verification_does_not_run() {
    let world = World::new();
    world.multi();
    let helper = world
        .root
        .path()
        .join("project/.ai/tools/t/multi/helper.py");
    let signed = fs::read_to_string(&helper).unwrap();
    let chain = world.resolve("t/multi/tool").unwrap();
    fs::write(&helper, "planted = 1\n").unwrap();
    let tree: &Tree = &chain.anchored.as_ref().unwrap().tree;
    let copy = trees::place(&world.root.path().join("state"), tree).unwrap();
    assert_eq!(fs::read_to_string(copy.join("helper.py")).unwrap(), signed);
    assert!(world.resolve("t/multi/tool").is_err());
}

#[test]
fn ambiguous_or_deep_lock_is_refused() {
    let world = World::new();
    world.multi();
    let draft = world.draft("t/multi/tool").unwrap();
    world.lock(&draft, draft.content.clone());
    let path = ".ai/lockfiles/t/multi/tool@1.0.0.lock.json";
    let path = world.root.path().join("project").join(path);
    let signed = fs::read_to_string(&path).unwrap();
    let twice = signed.replacen('{', "{\"lockfile_version\": 1,", 1);
    let deep = format!("{{\"a\": {}{}}}", "[".repeat(5000), "]".repeat(5000));
    let tagged = "!!map {a: 1}".to_owned();
    for (text, told) in [
        (twice, "lockfile_version"),
        (deep, ""),
        (tagged, ""),
        ("[]".to_owned(), "no JSON object"),
    ] {
        fs::write(&path, text).unwrap();
        let refused = world.resolve("t/multi/tool").unwrap_err();
        let refused = rye_core::error::with_sources(&refused);
        for told in ["tool@1.0.0.lock.json", "lock create", told] {
            assert!(refused.contains(told), "{refused}");
        }
    }
}

#[test]
fn lock_contains_root_of_tool_files() {
    let world = World::new();
    world.multi();
    let draft = world.draft("t/multi/tool").unwrap();
    assert_eq!(draft.content["verified_deps"]["root"], "tool_dir");
    let mut content = draft.content.clone();
    content["verified_deps"]["root"] = json!("tool_parent");
    world.lock(&draft, content);
    let refused = world.resolve("t/multi/tool").unwrap_err().to_string();
    assert!(refused.contains("verified_deps.root"), "{refused}");
}
