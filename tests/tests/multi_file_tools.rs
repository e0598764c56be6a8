//! Tools of several files: a copy of verified files runs, and no other file.

use std::fs;

use rye_tests::{Outcome, World, skipped};
use serde_json::json;

/// Writes and signs a Python tool in `t/multi`, with a helper and an empty marker next to it.
fn multi(world: &World) {
    world.write(".ai/tools/t/multi/__init__.py", "");
    world.tool(
        "t/multi/helper.py",
        "__version__ = \"1.0.0\"\n__tool_type__ = \"library\"\n__category__ = \"t/multi\"\n__tool_name__ = \"helper\"\n\
         def word():\n    return \"of the helper\"\n",
    );
    world.python(
        "t/multi/tool",
        "import helper, json\nreturn {'word': helper.word(), 'json': json.dumps([1]), 'file': __file__}",
    );
}

fn execute(world: &World, tool: &str) -> Outcome {
    world.ryectl("execute tool").arg(tool).arg("--json").run()
}

#[test]
fn a_tool_imports_its_own_files_from_a_copy_and_each_of_them_is_verified() {
    let world = World::new();
    multi(&world);
    let out = execute(&world, "t/multi/tool").code(0).json();
    assert_eq!(out["data"]["word"], "of the helper");
    let trees = world.state().join("trees").display().to_string();
    let file = out["data"]["file"].as_str().unwrap();
    assert!(file.starts_with(&trees), "{file}");
    // Planted bytecode and files with other suffixes are not in the copy.
    let project = world.project();
    let cache = project.join(".ai/tools/t/multi/__pycache__");
    fs::create_dir_all(&cache).unwrap();
    fs::write(cache.join("helper.cpython-311.pyc"), "planted").unwrap();
    fs::write(project.join(".ai/tools/t/multi/evil.pth"), "import os").unwrap();
    let again = execute(&world, "t/multi/tool").code(0).json();
    assert_eq!(again["data"]["file"], file);
    let copy = std::path::Path::new(file).parent().unwrap();
    let mut names: Vec<_> = fs::read_dir(copy)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["__init__.py", "helper.py", "tool.py"]);
    // A file next to the tool cannot replace a module of the standard library.
    fs::write(
        project.join(".ai/tools/t/multi/json.py"),
        "def dumps(x): return 'planted'\n",
    )
    .unwrap();
    let _refused = execute(&world, "t/multi/tool")
        .code(4)
        .stderr_contains(&["json.py", "not signed"]);
    fs::remove_file(project.join(".ai/tools/t/multi/json.py")).unwrap();
    let helper = world.read(".ai/tools/t/multi/helper.py");
    world.write(
        ".ai/tools/t/multi/helper.py",
        helper.replace("of the helper", "of somebody"),
    );
    let _refused = execute(&world, "t/multi/tool")
        .code(4)
        .stderr_contains(&["helper.py", "changed after"]);
}

#[test]
fn changed_tool_copy_is_not_executed() {
    use std::os::unix::fs::PermissionsExt as _;
    let world = World::new();
    multi(&world);
    let out = execute(&world, "t/multi/tool").code(0).json();
    let copy = std::path::Path::new(out["data"]["file"].as_str().unwrap())
        .parent()
        .unwrap()
        .to_owned();
    for path in [copy.clone(), copy.join("helper.py")] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o700)).unwrap();
    }
    fs::write(copy.join("helper.py"), "def word(): return 'forged'\n").unwrap();
    fs::write(copy.join("json.py"), "def dumps(x): return 'planted'\n").unwrap();
    let again = execute(&world, "t/multi/tool").code(0).json();
    assert_eq!(again["data"], out["data"]);
}

#[test]
fn cache_key_covers_all_files_of_tool() {
    let world = World::new();
    multi(&world);
    let action = "action: {item_id: t/multi/tool}, cache_result: true, assign: {word: \"${result.word}\"}, next: b";
    let b = "  b: {type: return, output: {word: \"${state.word}\"}}";
    world.graph("t/g", &format!("start: a\nnodes:\n  a: {{{action}}}\n{b}"));
    let said = || {
        let run = world.start_run("t/g");
        world.settled(&run)["output"]["word"].clone()
    };
    assert_eq!(
        (said(), said()),
        (json!("of the helper"), json!("of the helper"))
    );
    let helper = world.read(".ai/tools/t/multi/helper.py");
    world.tool(
        "t/multi/helper.py",
        &helper.replace("of the helper", "another"),
    );
    assert_eq!(said(), json!("another"));
}

#[test]
fn node_runs_a_module_with_what_it_imports_from_the_copy() {
    let world = World::new();
    let head = |name: &str| {
        format!(
            "export const VERSION = \"1.0.0\";\nexport const CATEGORY = \"t/js\";\nexport const NAME = \"{name}\";\n\
             export const EXECUTOR_ID = \"rye/core/runtimes/node/node\";\n"
        )
    };
    let helper = format!(
        "{}export const word = () => 'of the module';\n",
        head("helper")
    );
    world.tool("t/js/helper.mjs", &helper);
    let tool = format!(
        "{}export const CONFIG_SCHEMA = {{type: 'object', properties: {{n: {{type: 'integer'}}}}}};\n\
         import {{ word }} from './helper.mjs';\nimport {{ readFileSync }} from 'node:fs';\n\
         const params = JSON.parse(readFileSync(0));\n\
         console.log(JSON.stringify({{ word: word(), params, argv: process.argv.slice(2) }}));\n",
        head("tool")
    );
    world.tool("t/js/tool.mjs", &tool);
    let run = |params: &str| {
        let execute = world.ryectl("execute tool t/js/tool --json --params");
        execute.arg(params).run()
    };
    let out = run(r#"{"n": 1}"#).code(0).json();
    let project = world.project().display().to_string();
    let expected =
        json!({"word": "of the module", "params": {"n": 1}, "argv": ["--project-path", project]});
    assert_eq!(out["data"], expected);
    let _refused = run(r#"{"n": "x"}"#).code(2).stderr_contains(&["`n`"]);
    world.write(".ai/tools/t/js/unsigned.js", "1\n");
    let _refused = run("{}")
        .code(4)
        .stderr_contains(&["unsigned.js", "not signed"]);
}

/// Writes a tool in `t/multi` that reads `words.json`, which cannot be signed.
fn with_data(world: &World) {
    multi(world);
    world.write(".ai/tools/t/multi/words.json", r#"{"word": "of the data"}"#);
    world.python(
        "t/multi/reader",
        "import json, os\nwith open(os.path.join(os.path.dirname(__file__), 'words.json')) as f:\n    return json.load(f)",
    );
}

fn lock(world: &World, words: &str) -> Outcome {
    world.ryectl(&format!("lock {words}")).run()
}

#[test]
fn unsigned_data_needs_lock_and_any_changed_byte_refuses_tool() {
    let world = World::new();
    with_data(&world);
    let _refused = execute(&world, "t/multi/reader")
        .code(4)
        .stderr_contains(&["words.json", "lock create t/multi/reader"])
        .stderr_lacks("sign it as");
    let _covered = lock(&world, "create t/multi/reader")
        .code(0)
        .stderr_contains(&["words.json", "is not signed"]);
    let out = execute(&world, "t/multi/reader").code(0).json();
    assert_eq!(out["data"]["word"], "of the data");
    let listed = lock(&world, "ls --json").code(0).json();
    let path = ".ai/lockfiles/t/multi/reader@1.0.0.lock.json";
    let whole = world.project().join(path);
    assert_eq!(
        listed,
        json!([{"tool": "t/multi/reader", "version": "1.0.0", "space": "project", "path": whole}])
    );
    let _as_locked = lock(&world, "verify").code(0);
    // A file with another name does not prevent the check of the rest.
    let stray = "a:b@1.0.0.lock.json";
    world.write(&format!(".ai/lockfiles/{stray}"), "{}");
    let told = lock(&world, "verify").code(1).stderr_contains(&[stray]);
    assert!(told.stdout().contains("as locked  t/multi/reader"));
    fs::remove_file(world.project().join(".ai/lockfiles").join(stray)).unwrap();
    let words = ".ai/tools/t/multi/words.json";
    let before = world.read(words);
    world.write(words, before.replace("data", "dada"));
    let told = [
        "verified_deps.files.words.json",
        path,
        "lock create t/multi/reader",
    ];
    let _refused = execute(&world, "t/multi/reader")
        .code(4)
        .stderr_contains(&told);
    let _refused = lock(&world, "verify t/multi/reader")
        .code(1)
        .stderr_contains(&told);
    world.write(words, before);
    let _same = execute(&world, "t/multi/reader").code(0);
}

#[test]
fn any_change_after_lock_refuses_tool() {
    let world = World::new();
    with_data(&world);
    let helper = world.read(".ai/tools/t/multi/helper.py");
    let _locked = lock(&world, "create t/multi/reader").code(0);
    // The file is signed by the same user, and still differs from the locked one.
    world.tool(
        "t/multi/helper.py",
        &helper.replace("of the helper", "another"),
    );
    let _refused = execute(&world, "t/multi/reader")
        .code(4)
        .stderr_contains(&["verified_deps.files.helper.py"]);
    world.tool("t/multi/helper.py", &helper);
    world.write(".ai/tools/t/multi/more.json", "{}");
    let _refused = execute(&world, "t/multi/reader")
        .code(4)
        .stderr_contains(&["more.json", "no lock covers it"]);
    fs::remove_file(world.project().join(".ai/tools/t/multi/more.json")).unwrap();
    fs::remove_file(world.project().join(".ai/tools/t/multi/__init__.py")).unwrap();
    let _refused = execute(&world, "t/multi/reader")
        .code(4)
        .stderr_contains(&["verified_deps", "lock create"]);
}

#[test]
fn tool_changed_during_run_fails_its_node() {
    let world = World::new();
    with_data(&world);
    let _locked = lock(&world, "create t/multi/reader").code(0);
    let change = "a: {action: {item_id: rye/bash, params: {command: \"echo >> .ai/tools/t/multi/words.json\"}}, next: b}";
    world.graph(
        "t/g",
        &format!("start: a\nnodes:\n  {change}\n  b: {{action: {{item_id: t/multi/reader}}, next: c}}\n  c: {{type: return}}"),
    );
    let run = world.start_run("t/g");
    let ended = world.settled(&run);
    assert_eq!(ended["error"]["code"], "lock_mismatch", "{ended}");
}

#[test]
fn unsigned_lock_is_ignored_and_foreign_lock_refuses_tool() {
    let world = World::new();
    with_data(&world);
    let _locked = lock(&world, "create t/multi/reader").code(0);
    let path = ".ai/lockfiles/t/multi/reader@1.0.0.lock.json";
    let signed = world.read(path);
    world.write(
        path,
        signed.replace("\"lockfile_version\": 1", "\"lockfile_version\": 2"),
    );
    let _refused = execute(&world, "t/multi/reader")
        .code(4)
        .stderr_contains(&["reader@1.0.0.lock.json", "changed after"]);
    let mut unsigned: serde_json::Value = serde_json::from_str(&signed).unwrap();
    unsigned.as_object_mut().unwrap().remove("_signature");
    world.write(path, unsigned.to_string());
    let _refused = execute(&world, "t/multi/reader")
        .code(4)
        .stderr_contains(&["words.json", "no lock covers it"]);
    let standing = lock(&world, "verify --json").code(1).json();
    assert_eq!(standing[0]["standing"], "not signed");
    fs::remove_file(world.project().join(".ai/tools/t/multi/words.json")).unwrap();
    let out = world
        .ryectl("execute tool t/multi/tool --json --trace")
        .run();
    let out = out.code(0).json();
    assert_eq!(out["data"]["word"], "of the helper");
    assert!(!out["trace"].to_string().contains("\"lock\""));
}

#[test]
fn invalid_anchor_error_names_line() {
    let world = World::new();
    for (name, anchor, told) in [
        (
            "key",
            "{enabled: true, mod: always}",
            "did you mean `mode`?",
        ),
        (
            "mode",
            "{enabled: true, mode: sometimes}",
            "`auto`, `always` or `never`",
        ),
        (
            "root",
            "{enabled: true, mode: always, root: home}",
            "`tool_parent`",
        ),
        (
            "links",
            "{enabled: true, mode: always, links: [../..]}",
            "names of directories",
        ),
    ] {
        let text = format!(
            "version: \"1.0.0\"\nexecutor_id: rye/core/runtimes/bash\ncategory: t\nname: {name}\n\
             anchor: {anchor}\nconfig: {{script: cat}}\n"
        );
        world.tool(&format!("t/{name}.yaml"), &text);
        let id = format!("t/{name}");
        let file = format!("{name}.yaml");
        let _refused = execute(&world, &id)
            .code(2)
            .stderr_contains(&[&file, "line 6", told]);
    }
}

#[test]
fn uv_gets_signed_script_unchanged() {
    use std::os::unix::fs::PermissionsExt as _;
    let world = World::new();
    // Replaces uv: prints its arguments and the script that it got.
    let uv = world.write("uv", "#!/bin/sh\nprintf '{\"args\": \"%s\", \"file\": \"%s\"}' \"$*\" \"$(grep -c requires-python \"$6\")\"\n");
    fs::set_permissions(&uv, fs::Permissions::from_mode(0o755)).unwrap();
    let _daemon = world.start(&format!("interpreters: {{RYE_UV: {}}}\n", uv.display()));
    let run = |name: &str| {
        let head = "# /// script\n# requires-python = \">=3.11\"\n# ///\n__version__ = \"1.0.0\"\n";
        let text = format!(
            "{head}__executor_id__ = \"rye/core/runtimes/python/uv\"\n__category__ = \"t\"\n__tool_name__ = \"{name}\"\n"
        );
        world.tool(&format!("t/{name}.py"), &text);
        execute(&world, &format!("t/{name}")).code(0).json()["data"].take()
    };
    let (needs, other) = (run("needs"), run("other"));
    // It got the signed script, and no unsigned `uv.toml` of the project decides what it installs.
    assert_eq!(needs["file"], "1");
    let args = needs["args"].as_str().unwrap();
    let project = world.project().display().to_string();
    let script = args
        .strip_prefix("run --no-config --quiet --no-project --script ")
        .and_then(|rest| rest.strip_suffix(&format!(" --project-path {project}")));
    let script = std::path::Path::new(script.unwrap());
    assert!(script.starts_with(world.state().join("trees")) && script.ends_with("needs.py"));
    // uv keeps an environment for each path; no two tools share one.
    assert_ne!(needs["args"], other["args"]);
    let again = execute(&world, "t/needs").code(0).json();
    assert_eq!(again["data"], needs);
}

/// Writes a package `greeting` of this version to `folder`, where `uv` finds it. Its `word` is `says`.
fn wheel(world: &World, folder: &str, version: &str, says: &str) -> std::path::PathBuf {
    let about = format!("greeting-{version}.dist-info");
    let files = [
        ("greeting/__init__.py", format!("word = '{says}'\n")),
        (
            "METADATA",
            format!("Metadata-Version: 2.1\nName: greeting\nVersion: {version}\n"),
        ),
        (
            "WHEEL",
            "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
                .to_owned(),
        ),
        (
            "RECORD",
            format!(
                "greeting/__init__.py,,\n{about}/METADATA,,\n{about}/WHEEL,,\n{about}/RECORD,,\n"
            ),
        ),
    ];
    for (name, text) in files {
        let below = if name.contains('/') {
            ""
        } else {
            about.as_str()
        };
        world.write(&format!("made/{version}/{below}/{name}"), text);
    }
    let package = world.project().join("made").join(version);
    fs::create_dir_all(world.project().join(folder)).unwrap();
    let path = world.project().join(folder);
    let path = path.join(format!("greeting-{version}-py3-none-any.whl"));
    let packed = rye_tests::command::in_clean_environment("python3", &world.home(), &package)
        .args(["-m", "zipfile", "-c"])
        .arg(&path)
        .args(["greeting", &about])
        .status();
    assert!(packed.unwrap().success());
    path
}

#[test]
fn uv_installs_script_requirements_and_ignores_project_files() {
    let Some(uv) = std::env::var_os("RYE_UV") else {
        skipped("RYE_UV names no uv");
        return;
    };
    let world = World::new();
    let _own = wheel(&world, "wheels", "1.0", "of the package");
    // Files of the project that `uv` would read, and a module that Python would import.
    let planted = wheel(&world, "planted", "2.0", "planted");
    let planted = planted.parent().unwrap().display().to_string();
    world.write("uv.toml", format!("find-links = [\"{planted}\"]\n"));
    let mine = format!(
        "[project]\nname = \"mine\"\nversion = \"1.0\"\n[tool.uv]\nfind-links = [\"{planted}\"]\n"
    );
    world.write("pyproject.toml", mine);
    world.write(".env", format!("UV_FIND_LINKS={planted}\n"));
    for beside in ["greeting.py", ".ai/tools/t/greeting.py"] {
        world.write(beside, "word = 'planted'\n");
    }
    let config = format!("interpreters: {{RYE_UV: {}}}\n", uv.display());
    let _daemon = world.start(&config);
    let tool = |name: &str, requires: &str| {
        let text = format!(
            "# /// script\n# requires-python = \">=3.9\"\n# dependencies = [{requires}]\n# ///\n__version__ = \"1.0.0\"\n\
             __executor_id__ = \"rye/core/runtimes/python/uv\"\n__category__ = \"t\"\n__tool_name__ = \"{name}\"\n\
             ENV_CONFIG = {{\"env\": {{\"UV_FIND_LINKS\": \"wheels\", \"UV_OFFLINE\": \"1\"}}}}\n\
             import greeting, json, sys\n\
             print(json.dumps({{\"word\": greeting.word, \"params\": json.load(sys.stdin), \"argv\": sys.argv[1:], \"home\": sys.prefix}}))\n"
        );
        world.tool(&format!("t/{name}.py"), &text);
    };
    let run = |name: &str| {
        let execute = world.ryectl("execute tool").arg(format!("t/{name}"));
        execute.words("--json --params {\"n\":1}").run()
    };
    tool("first", "\"greeting\"");
    tool("second", "\"greeting>=1\"");
    let first = run("first").code(0).json()["data"].take();
    assert_eq!(first["word"], "of the package");
    assert_eq!(first["params"], json!({"n": 1}));
    let project = world.project().display().to_string();
    assert_eq!(first["argv"], json!(["--project-path", project]));
    // It is installed for this tool with this text, and for no other.
    assert_eq!(run("first").code(0).json()["data"], first);
    let second = run("second").code(0).json()["data"].take();
    assert_eq!(second["word"], "of the package");
    assert_ne!(second["home"], first["home"]);
    tool("missing", "\"greeting\", \"no-such-package\"");
    let missing = run("missing").code(1).json();
    let told = missing["data"]["stderr"].as_str().unwrap();
    assert!(told.contains("no-such-package"), "{missing}");
}

#[test]
fn trace_shows_lock_and_verified_files() {
    let world = World::new();
    with_data(&world);
    let _locked = lock(&world, "create t/multi/reader").code(0);
    let out = world
        .ryectl("execute tool t/multi/reader --json --trace")
        .ok()
        .json();
    let trace = out["trace"].as_array().unwrap();
    let of = |step: &str| {
        let found = trace.iter().find(|entry| entry["step"] == step);
        found.unwrap_or_else(|| panic!("{step} is not in {trace:?}"))
    };
    assert_eq!(trace[0]["step"], "lock");
    assert_eq!(trace[0]["status"], "holds");
    let path = trace[0]["path"].as_str().unwrap();
    assert!(path.ends_with(".ai/lockfiles/t/multi/reader@1.0.0.lock.json"));
    assert_eq!(of("anchor")["active"], true);
    assert_eq!(of("anchor")["why"], "marker");
    assert_eq!(of("anchor")["copy"], of("verify_deps")["hash"]);
    // The marker, the helper, both tools and the data.
    assert_eq!(of("verify_deps")["files"], 5);
    assert_eq!(of("plan")["from"], "copy");
    assert_eq!(of("plan")["isolation"], "scoped");
    let timing = of("timing");
    let micros = |key: &str| timing[key].as_u64().unwrap();
    assert!(micros("verify_us") <= micros("resolve_us"), "{timing}");
    assert!(micros("verify_us") > 0, "{timing}");
    let order = |step: &str| trace.iter().position(|entry| entry["step"] == step);
    assert!(order("validate") < order("anchor") && order("anchor") < order("verify_deps"));
}

#[test]
fn a_runtime_puts_directories_of_the_copy_and_its_own_library_where_its_tools_find_them() {
    use std::os::unix::fs::PermissionsExt as _;
    let world = World::new();
    let head = |category: &str, name: &str| {
        format!(
            "# ---\n# version: \"1.0.0\"\n# tool_type: library\n# category: {category}\n# name: {name}\n# ---\n"
        )
    };
    let runtime = "version: \"1.0.0\"\ntool_type: runtime\nexecutor_id: rye/core/primitives/execute\ncategory: r\nname: shells\n\
        anchor:\n  enabled: true\n  mode: always\n  root: tool_parent\n  lib: lib\n  links: [vendor]\n  cwd: \"{tool_dir}\"\n  \
        env_paths: {PATH: {prepend: [\"{tool_dir}/vendor\"], append: [\"{anchor_path}/last\"]}}\n\
        verify_deps: {enabled: true, scope: anchor, extensions: [\".sh\"], exclude_dirs: [vendor]}\n\
        config: {command: /bin/bash, args: [\"-c\", \". \\\"$1/common.sh\\\"; . ./beside.sh; . ../above.sh; vendored; printf '%s' \\\"$PATH\\\" | sed 's/.*:/last /'\", bash, \"{runtime_lib}\"]}\n";
    world.tool("r/shells.yaml", runtime);
    world.tool(
        "r/lib/common.sh",
        &format!("{}echo of the library\n", head("r/lib", "common")),
    );
    world.tool(
        "t/deep/beside.sh",
        &format!("{}echo beside\n", head("t/deep", "beside")),
    );
    world.tool("t/above.sh", &format!("{}echo above\n", head("t", "above")));
    world.tool(
        "t/deep/tool.yaml",
        "version: \"1.0.0\"\nexecutor_id: r/shells\ncategory: t/deep\nname: tool\n",
    );
    let vendored = world.write(
        ".ai/tools/t/deep/vendor/vendored",
        "#!/bin/sh\necho vendored\n",
    );
    fs::set_permissions(&vendored, fs::Permissions::from_mode(0o755)).unwrap();
    let out = world
        .ryectl("execute tool t/deep/tool --json --trace")
        .ok()
        .json();
    let said = out["data"]["stdout"].as_str().unwrap();
    let lines: Vec<_> = said.lines().collect();
    assert_eq!(
        lines[..4],
        ["of the library", "beside", "above", "vendored"]
    );
    let last = lines[4].strip_prefix("last ").unwrap();
    let trees = world.state().join("trees");
    assert!(
        std::path::Path::new(last).starts_with(trees) && last.ends_with("/last"),
        "{last}"
    );
    // Linked files are named, and not reported as verified.
    let trace = out["trace"].as_array().unwrap();
    let deps = trace.iter().find(|entry| entry["step"] == "verify_deps");
    let linked = &deps.unwrap()["links"];
    assert_eq!(linked[0]["path"], "deep/vendor");
    assert_eq!(linked[0]["verified"], false);
    let library = world.read(".ai/tools/r/lib/common.sh");
    world.write(
        ".ai/tools/r/lib/common.sh",
        format!("{library}echo forged\n"),
    );
    let _refused = execute(&world, "t/deep/tool")
        .code(4)
        .stderr_contains(&["common.sh", "changed after"]);
}

#[test]
fn typescript_tool_runs_by_project_tsx_with_unverified_packages() {
    use std::os::unix::fs::PermissionsExt as _;
    let world = World::new();
    // Replaces tsx: node runs the text of the file.
    let tsx = "#!/bin/sh\nfile=$1\nshift\nexec node --input-type=module --eval \"$(cat \"$file\")\" -- \"$@\"\n";
    let tsx = world.write(".ai/tools/t/ts/node_modules/.bin/tsx", tsx);
    fs::set_permissions(&tsx, fs::Permissions::from_mode(0o755)).unwrap();
    world.write(
        ".ai/tools/t/ts/node_modules/left/package.json",
        r#"{"name": "left", "version": "1.0.0", "main": "index.js"}"#,
    );
    world.write(
        ".ai/tools/t/ts/node_modules/left/index.js",
        "module.exports = (text) => 'left of ' + text;\n",
    );
    // A link out of the packages is followed; the files are named as not verified.
    std::os::unix::fs::symlink(
        "/etc",
        world.project().join(".ai/tools/t/ts/node_modules/out"),
    )
    .unwrap();
    world.tool(
        "t/ts/tool.ts",
        "export const VERSION = \"1.0.0\";\nexport const CATEGORY = \"t/ts\";\nexport const NAME = \"tool\";\n\
         export const EXECUTOR_ID = \"rye/core/runtimes/node/node\";\nimport left from 'left';\nimport { readFileSync } from 'node:fs';\n\
         const params = JSON.parse(readFileSync(0));\nconsole.log(JSON.stringify({ said: left(params.of), in: process.cwd() }));\n",
    );
    let run = world.ryectl("execute tool t/ts/tool --json --trace --params");
    let out = run.arg(r#"{"of": "here"}"#).ok().json();
    assert_eq!(out["data"]["said"], "left of here", "{out}");
    let copy = out["data"]["in"].as_str().unwrap();
    assert!(
        std::path::Path::new(copy).starts_with(world.state().join("trees")),
        "{copy}"
    );
    let trace = out["trace"].as_array().unwrap();
    let of = |step: &str| trace.iter().find(|entry| entry["step"] == step).unwrap();
    assert_eq!(of("interpreter")["path"], tsx.display().to_string());
    let links = of("verify_deps")["links"].as_array().unwrap();
    let target = world.project().join(".ai/tools/t/ts/node_modules");
    assert_eq!(
        links,
        &[json!({"path": "node_modules", "target": target, "verified": false})]
    );
    assert_eq!(of("verify_deps")["files"], 1);
}
