//! The six tools on a real directory.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use nix::sys::stat::Mode;
use rye_core::capability::Layer;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;

/// A project, and a directory outside it.
struct FilesFixture {
    root: TempDir,
    layers: Vec<Layer>,
}

impl FilesFixture {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("project")).unwrap();
        fs::write(root.path().join("secret"), "outside\n").unwrap();
        let layers = vec![Layer {
            source: "permissions of tool:a/b".to_owned(),
            patterns: vec!["rye.*".to_owned()],
        }];
        Self { root, layers }
    }

    fn project(&self) -> std::path::PathBuf {
        self.root.path().join("project")
    }

    fn put(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.project().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn get(&self, path: &str) -> Vec<u8> {
        fs::read(self.project().join(path)).unwrap()
    }

    /// Answer of `tool`, or the code and the message of its failure.
    fn execute(&self, tool: FileTool, params: Value) -> Result<Value, (String, String)> {
        let told = |failure: Failure| (failure.code, failure.message);
        let Value::Object(params) = params else {
            panic!("parameters are a map")
        };
        let work = parse_call(tool, params).map_err(told)?;
        let watch = Watch(Arc::new(AtomicBool::new(false)));
        let unsafe_write = permit_action(&self.layers, Capability::unsafe_write());
        let done = Workspace::open(&self.project(), unsafe_write, 7)
            .and_then(|place| work(&place, &watch));
        done.map_err(|error| told(Refusal::from(&error).of_file()))
    }

    fn ok(&self, tool: FileTool, params: Value) -> Value {
        let answer = self.execute(tool, params).unwrap();
        assert_eq!(answer["success"], true, "{answer}");
        answer
    }

    #[track_caller]
    fn refused(&self, tool: FileTool, params: Value, code: &str, told: &str) {
        let asked = params.to_string();
        let (found, message) = self.execute(tool, params).unwrap_err();
        assert_eq!(found, code, "{asked}: {message}");
        assert!(message.contains(told), "{asked}: {message}");
    }

    /// Names in a directory of the project, hidden ones included.
    fn names(&self, path: &str) -> Vec<String> {
        let entries = fs::read_dir(self.project().join(path)).unwrap();
        let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name();
        let mut names: Vec<String> = entries
            .map(|entry| name(entry).into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    /// Id of a line as shown by `read`.
    fn id(&self, path: &str, number: usize) -> String {
        let output = self.ok(FileTool::Read, json!({"path": path}))["output"].clone();
        let start = format!("{number}:");
        let lines = output.as_str().unwrap().lines().skip(1);
        let mut ids = lines.filter_map(|line| line.strip_prefix(&start)?.split('│').next());
        ids.next().unwrap().to_owned()
    }
}

fn found(answer: &Value) -> Vec<&str> {
    let files = answer["files"].as_array().unwrap();
    files.iter().map(|file| file.as_str().unwrap()).collect()
}

#[test]
fn read_returns_numbers_and_ids_from_any_offset() {
    let stage = FilesFixture::new();
    stage.put("a.txt", "one\ntwo\ntwo\nfour");
    let all = stage.ok(FileTool::Read, json!({"path": "a.txt"}));
    assert_eq!(
        (&all["total_lines"], &all["truncated"]),
        (&json!(4), &json!(false))
    );
    let output = all["output"].as_str().unwrap();
    assert!(
        output.starts_with("a.txt: lines 1 to 4 of 4\n1:"),
        "{output}"
    );
    let part = stage.ok(
        FileTool::Read,
        json!({"path": "./a.txt", "offset": 3, "limit": 1}),
    );
    let told = part["output"].as_str().unwrap();
    assert!(
        told.contains(&format!("3:{}│ two\n", stage.id("a.txt", 3))),
        "{told}"
    );
    assert!(told.contains("offset 4"), "{told}");
    assert_eq!(
        (&part["line_count"], &part["offset"], &part["truncated"]),
        (&json!(1), &json!(3), &json!(true))
    );
    assert_ne!(stage.id("a.txt", 2), stage.id("a.txt", 3));
    // The path may include the project.
    let whole = stage.project().join("a.txt");
    stage.ok(FileTool::Read, json!({"path": whole}));
    stage.put("empty", "");
    assert_eq!(
        stage.ok(FileTool::Read, json!({"path": "empty"}))["total_lines"],
        0
    );
}

#[test]
fn read_result_is_bounded() {
    let stage = FilesFixture::new();
    stage.put("long", "x\n".repeat(5_000));
    let answer = stage.ok(FileTool::Read, json!({"path": "long", "limit": 5_000}));
    assert_eq!(
        (&answer["line_count"], &answer["total_lines"]),
        (&json!(2_000), &json!(5_000))
    );
    let told = answer["output"].as_str().unwrap();
    assert!(
        told.ends_with("\n[3000 more lines: read on with offset 2001]\n"),
        "{told}"
    );
    // In the format of `cat -n`, 48 KB: 7 bytes of number, 17 of text, the line end.
    stage.put("narrow", format!("{}\n", "y".repeat(17)).repeat(1_990));
    let answer = stage.ok(FileTool::Read, json!({"path": "narrow"}));
    assert_eq!(answer["line_count"], 48 * 1024 / 25);
    stage.put("wide", format!("{}\n", "y".repeat(1_900)).repeat(100));
    let answer = stage.ok(FileTool::Read, json!({"path": "wide"}));
    assert_eq!(
        (&answer["truncated"], &answer["line_count"]),
        (&json!(true), &json!(25))
    );
    stage.put("one", "z".repeat(100_000));
    let told = stage.ok(FileTool::Read, json!({"path": "one"}))["output"].to_string();
    assert!(told.contains("[98000 more characters]"), "{told}");
    let huge = fs::File::create(stage.project().join("huge")).unwrap();
    huge.set_len(5 << 30).unwrap();
    stage.refused(
        FileTool::Read,
        json!({"path": "huge"}),
        "invalid_params",
        "larger than 32 MiB",
    );
}

#[test]
fn unreadable_file_is_refused_with_its_kind() {
    let stage = FilesFixture::new();
    stage.put("dir/x", "");
    stage.put("binary", b"\x7fELF\0");
    nix::unistd::mkfifo(&stage.project().join("pipe"), Mode::S_IRWXU).unwrap();
    for (path, code, told) in [
        ("missing", "file_not_found", "does not exist"),
        ("dir", "invalid_params", "not a plain file"),
        ("dir/x/y", "invalid_params", "not a directory"),
        ("binary", "invalid_params", "NUL"),
        ("pipe", "invalid_params", "not a plain file"),
        ("", "invalid_params", "not a plain file"),
    ] {
        stage.refused(FileTool::Read, json!({"path": path}), code, told);
    }
    stage.put("a", "x\n");
    let beyond = json!({"path": "a", "offset": 2});
    stage.refused(FileTool::Read, beyond, "invalid_params", "has 1 lines");
}

#[test]
fn paths_and_links_stay_in_project() {
    let stage = FilesFixture::new();
    let root = stage.root.path();
    stage.put("real/file", "inside\n");
    symlink(root.join("secret"), stage.project().join("out")).unwrap();
    symlink(root, stage.project().join("up")).unwrap();
    symlink("../..", stage.project().join("real/above")).unwrap();
    symlink("real", stage.project().join("linked")).unwrap();
    symlink("file", stage.project().join("real/alias")).unwrap();
    let secret = root.join("secret").display().to_string();
    let outside = [
        "../secret",
        "out",
        "up/secret",
        "real/above/secret",
        "/etc/passwd",
        &secret,
    ];
    for path in outside {
        let (code, told) = ("permission_denied", "outside the project");
        stage.refused(FileTool::Read, json!({"path": path}), code, told);
        let write = json!({"path": path, "content": "x"});
        stage.refused(FileTool::Write, write, code, told);
        let edit = json!({"path": path, "changes": [{"line_id": "0", "new_content": ""}]});
        stage.refused(FileTool::EditLines, edit, code, told);
    }
    for path in ["..", "up", "/"] {
        let (code, told) = ("permission_denied", "outside the project");
        stage.refused(FileTool::Ls, json!({"path": path}), code, told);
        let find = json!({"pattern": "*", "path": path});
        stage.refused(FileTool::Glob, find.clone(), code, told);
        stage.refused(FileTool::Grep, find, "invalid_params", "no pattern");
        let search = json!({"pattern": "outside", "path": path});
        stage.refused(FileTool::Grep, search, code, told);
    }
    let outside = stage.ok(FileTool::Grep, json!({"pattern": "outside"}));
    assert_eq!(outside["count"], 0, "{outside}");
    let made = json!({"path": "up/new", "content": "x"});
    stage.refused(FileTool::Write, made, "permission_denied", "outside");
    assert!(!root.join("new").exists());
    assert_eq!(fs::read(root.join("secret")).unwrap(), b"outside\n");

    // A link that stays inside is followed, and remains a link.
    let told = stage.ok(FileTool::Read, json!({"path": "linked/alias"}));
    assert!(told["output"].as_str().unwrap().contains("inside"));
    let write = json!({"path": "linked/alias", "content": "new\n"});
    let told = stage.ok(FileTool::Write, write);
    assert_eq!(told["file_path"], "real/file");
    assert_eq!(stage.get("real/file"), b"new\n");
    assert!(stage.project().join("real/alias").is_symlink());
    stage.ok(
        FileTool::Write,
        json!({"path": "linked/deep/er", "content": "x"}),
    );
    assert_eq!(stage.get("real/deep/er"), b"x");
}

#[test]
fn what_takes_effect_unsigned_is_written_with_its_exact_capability_only() {
    let mut stage = FilesFixture::new();
    stage.put("node_modules/p/index.js", "a\n");
    symlink("node_modules/p", stage.project().join("linked")).unwrap();
    let unsigned = [
        ".ai/tools/t/new.py",
        ".env",
        ".env.local",
        ".envrc",
        ".venv/lib/python3/site-packages/x.pth",
        "sub/.git/hooks/pre-commit",
        ".GIT/config",
        "linked/index.js",
        "cases/a.test.yaml",
    ];
    for path in unsigned {
        let (code, told) = ("permission_denied", UNSAFE_WRITE);
        let write = json!({"path": path, "content": "x"});
        stage.refused(FileTool::Write, write.clone(), code, told);
        let batch = json!({"files": [{"path": "harmless", "content": "x"}, write]});
        stage.refused(FileTool::Write, batch, code, told);
        let edit = json!({"path": path, "changes": [{"old_content": "a", "new_content": "b"}]});
        stage.refused(FileTool::EditLines, edit, code, "(rye.*)");
    }
    assert_eq!(stage.names(""), ["linked", "node_modules"]);
    for path in [
        ".env.example",
        "deep/.env.sample",
        ".env.template",
        ".env.prod.dist",
        ".github/ci.yml",
        "test.yaml",
    ] {
        stage.ok(FileTool::Write, json!({"path": path, "content": "x"}));
    }
    stage.layers[0].patterns = vec![UNSAFE_WRITE.to_owned()];
    for path in unsigned {
        stage.ok(FileTool::Write, json!({"path": path, "content": "x"}));
    }
    let record = json!({"path": ".ai/state/x", "content": "x"});
    stage.refused(FileTool::Write, record, "permission_denied", ".ai/state");
}

#[test]
fn run_records_are_not_writable_by_any_path() {
    let stage = FilesFixture::new();
    stage.put(".ai/state/threads/r/transcript.jsonl", "1\n");
    symlink(".ai/state", stage.project().join("record")).unwrap();
    for path in [
        ".ai/state/x",
        ".ai/state/new/x",
        ".ai/../.ai/state/x",
        "record/x",
        "record/threads/r/transcript.jsonl",
    ] {
        let write = json!({"path": path, "content": "x"});
        stage.refused(FileTool::Write, write, "permission_denied", ".ai/state");
        let batch =
            json!({"files": [{"path": "fine", "content": "x"}, {"path": path, "content": "x"}]});
        stage.refused(FileTool::Write, batch, "permission_denied", ".ai/state");
    }
    assert_eq!(stage.names(".ai/state"), ["threads"]);
    assert_eq!(stage.names(""), [".ai", "record"]);
    let told = stage.ok(
        FileTool::Read,
        json!({"path": "record/threads/r/transcript.jsonl"}),
    );
    assert_eq!(told["total_lines"], 1);
    // This is no record, and takes effect without a signature.
    let other = json!({"path": ".ai/statement", "content": "x"});
    stage.refused(FileTool::Write, other, "permission_denied", "write.unsafe");
}

#[test]
fn write_is_atomic_and_keeps_permissions() {
    let stage = FilesFixture::new();
    let made = stage.ok(
        FileTool::Write,
        json!({"path": "a/b/new.txt", "content": "ä\n"}),
    );
    assert_eq!(
        (&made["created"], &made["bytes_written"], &made["file_path"]),
        (&json!(true), &json!(3), &json!("a/b/new.txt"))
    );
    let script = stage.project().join("run.sh");
    stage.put("run.sh", "echo 1\n");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o751)).unwrap();
    let told = stage.ok(
        FileTool::Write,
        json!({"path": "run.sh", "content": "echo 2\n"}),
    );
    assert_eq!(told["created"], false);
    let output = told["output"].as_str().unwrap();
    assert!(output.contains("-echo 1\n+echo 2\n"), "{output}");
    let attributes = fs::metadata(&script).unwrap();
    assert_eq!(attributes.permissions().mode() & 0o7777, 0o751);
    assert_eq!(stage.names(""), ["a", "run.sh"], "nothing is left behind");
    for params in [
        json!({}),
        json!({"path": "x"}),
        json!({"content": "x"}),
        json!({"path": "x", "content": "x", "files": []}),
        json!({"files": []}),
    ] {
        stage.refused(FileTool::Write, params, "invalid_params", "files");
    }
    let onto = json!({"path": "a", "content": "x"});
    stage.refused(FileTool::Write, onto, "invalid_params", "not a plain file");
    symlink("nowhere", stage.project().join("dangling")).unwrap();
    let onto = json!({"path": "dangling", "content": "x"});
    assert!(stage.execute(FileTool::Write, onto).is_err());
}

#[test]
fn batch_with_invalid_file_writes_none() {
    let stage = FilesFixture::new();
    stage.put("old", "old\n");
    stage.put("dir/x", "");
    let file = |path: &str| json!({"path": path, "content": "new\n"});
    for bad in ["dir", "../x", "old", "./old"] {
        let batch = json!({"files": [file("old"), file("fresh"), file(bad)]});
        assert!(stage.execute(FileTool::Write, batch).is_err(), "{bad}");
        assert_eq!(stage.get("old"), b"old\n");
        assert_eq!(stage.names(""), ["dir", "old"]);
    }
    let told = stage.ok(
        FileTool::Write,
        json!({"files": [file("old"), file("fresh")]}),
    );
    assert_eq!(
        (&told["files_written"], &told["files_total"]),
        (&json!(2), &json!(2))
    );
    assert_eq!(told["results"][1]["created"], true);
    assert_eq!(stage.get("old"), b"new\n");
}

#[test]
fn concurrently_changed_file_is_not_overwritten() {
    let stage = FilesFixture::new();
    stage.put("a", "one\n");
    let place = Workspace::open(&stage.project(), Ok(()), 7).unwrap();
    let draft = place.draft(place.target("a").unwrap(), b"ours\n").unwrap();
    stage.put("a", "theirs, longer\n");
    let error = draft.put().unwrap_err();
    assert!(error.to_string().contains("changed by somebody"), "{error}");
    let made = place
        .draft(place.target("new").unwrap(), b"ours\n")
        .unwrap();
    stage.put("new", "theirs\n");
    assert!(made.put().is_err());
    assert_eq!(stage.get("a"), b"theirs, longer\n");
    assert_eq!(stage.names(""), ["a", "new"]);
}

#[test]
fn directory_replaced_by_link_is_not_followed() {
    let stage = FilesFixture::new();
    stage.put("dir/a", "one\n");
    let place = Workspace::open(&stage.project(), Ok(()), 7).unwrap();
    let target = place.target("dir/a").unwrap();
    fs::rename(
        stage.project().join("dir"),
        stage.project().join("elsewhere"),
    )
    .unwrap();
    symlink(stage.root.path(), stage.project().join("dir")).unwrap();
    assert!(place.draft(target, b"ours\n").is_err());
    assert!(!stage.root.path().join("a").exists());
}

#[test]
fn edit_replaces_lines_by_id_and_keeps_line_ends() {
    let stage = FilesFixture::new();
    // The content, the change to lines 2 and 2, or 2 to 3, and the result.
    for (before, last, new, after) in [
        ("a\nb\nc\n", 2, "B", "a\nB\nc\n"),
        ("a\nb\nc\n", 2, "B\n", "a\nB\nc\n"),
        ("a\nb\nc\n", 3, "x\ny\nz", "a\nx\ny\nz\n"),
        ("a\nb\nc\n", 3, "", "a\n"),
        ("a\nb\nc\n", 2, "\n", "a\n\nc\n"),
        ("a\r\nb\r\nc\r\n", 2, "x\ny", "a\r\nx\r\ny\r\nc\r\n"),
        ("a\r\nb\r\nc", 3, "x\r\ny", "a\r\nx\r\ny"),
        ("a\nb\nc", 3, "x\n", "a\nx"),
        ("a\nb\u{c}\u{2028}b\nc\n", 2, "B", "a\nB\nc\n"),
    ] {
        stage.put("f", before);
        let change = if last == 2 {
            json!({"line_id": stage.id("f", 2), "new_content": new})
        } else {
            json!({"start_line_id": stage.id("f", 2), "end_line_id": stage.id("f", 3), "new_content": new})
        };
        let told = stage.ok(
            FileTool::EditLines,
            json!({"path": "f", "changes": [change]}),
        );
        assert_eq!(told["changes_applied"], 1);
        let content = String::from_utf8(stage.get("f")).unwrap();
        assert_eq!(content, after, "{before:?} with {new:?}");
    }
    stage.put("latin", b"caf\xe9\nb\n");
    let change = json!({"line_id": stage.id("latin", 2), "new_content": "B"});
    stage.ok(
        FileTool::EditLines,
        json!({"path": "latin", "changes": [change]}),
    );
    assert_eq!(stage.get("latin"), b"caf\xe9\nB\n");
}

#[test]
fn edit_replaces_unique_text_with_any_line_ends() {
    let stage = FilesFixture::new();
    for (before, old, new, after, touched) in [
        ("a b\nc\n", "b\nc", "x", "a x\n", 2),
        ("a b\nc\n", " b", "", "a\nc\n", 1),
        ("a\nb", "b", "c\nd", "a\nc\nd", 1),
        ("a\r\nb\r\nc\r\n", "a\nb\n", "x\ny\n", "x\r\ny\r\nc\r\n", 2),
        ("a\r\nb\nc", "b\n", "x\n", "a\r\nx\nc", 1),
        ("ää€", "€", "e", "ääe", 1),
    ] {
        stage.put("f", before);
        let change = json!({"old_content": old, "new_content": new});
        let told = stage.ok(
            FileTool::EditLines,
            json!({"path": "f", "changes": [change]}),
        );
        assert_eq!(told["lines_changed"], touched, "{before:?}");
        let content = String::from_utf8(stage.get("f")).unwrap();
        assert_eq!(content, after, "{before:?} with {new:?}");
    }
    stage.put("latin", b"caf\xe9 b\n");
    let by_text = json!({"old_content": " b", "new_content": " B"});
    stage.ok(
        FileTool::EditLines,
        json!({"path": "latin", "changes": [by_text]}),
    );
    assert_eq!(stage.get("latin"), b"caf\xe9 B\n");
    stage.put("f", "a\nb\nc\n");
    let both = json!([
        {"old_content": "c", "new_content": "C"},
        {"line_id": stage.id("f", 1), "new_content": "A"},
    ]);
    stage.ok(FileTool::EditLines, json!({"path": "f", "changes": both}));
    assert_eq!(stage.get("f"), b"A\nb\nC\n");
    // Overlapping occurrences count as two.
    stage.put("f", "aaa");
    let twice = json!({"path": "f", "changes": [{"old_content": "aa", "new_content": "x"}]});
    stage.refused(
        FileTool::EditLines,
        twice,
        "invalid_params",
        "more than once",
    );
}

#[test]
fn edit_distinguishes_equal_lines_of_original() {
    let stage = FilesFixture::new();
    stage.put("f", "x\nx\nx\ny\n");
    let id = |number| stage.id("f", number);
    let told = stage.ok(
        FileTool::EditLines,
        json!({"path": "f", "changes": [
            {"line_id": id(4), "new_content": "end"},
            {"line_id": format!("3:{}", id(3)), "new_content": "third"},
            {"line_id": id(1), "new_content": "first\nand more"},
        ]}),
    );
    assert_eq!(
        (&told["changes_applied"], &told["lines_changed"]),
        (&json!(3), &json!(3))
    );
    assert_eq!(stage.get("f"), b"first\nand more\nx\nthird\nend\n");
}

#[test]
fn edit_that_does_not_match_changes_nothing() {
    let stage = FilesFixture::new();
    let before = "a\nb\nc\nd\n";
    stage.put("f", before);
    let id = |number| stage.id("f", number);
    for (changes, code, told) in [
        (json!([]), "invalid_params", "is empty"),
        (
            json!([{"line_id": "ffffffff", "new_content": ""}]),
            "precondition_failed",
            "no line `ffffffff`",
        ),
        (
            json!([{"line_id": format!("3:{}", id(2)), "new_content": ""}]),
            "precondition_failed",
            "read it again",
        ),
        (
            json!([{"new_content": "x"}]),
            "invalid_params",
            "changes[0]",
        ),
        (
            json!([{"line_id": id(1), "end_line_id": id(2), "new_content": "x"}]),
            "invalid_params",
            "changes[0]",
        ),
        (
            json!([{"start_line_id": id(3), "end_line_id": id(2), "new_content": "x"}]),
            "invalid_params",
            "after its end",
        ),
        (
            json!([{"start_line_id": id(1), "end_line_id": id(3), "new_content": "x"},
                   {"line_id": id(3), "new_content": "y"}]),
            "invalid_params",
            "about line 3",
        ),
        (
            json!([{"line_id": id(2), "new_content": "b"}]),
            "invalid_params",
            "as it is",
        ),
        (
            json!([{"old_content": "e", "new_content": "x"}]),
            "precondition_failed",
            "`changes[0].old_content`; nothing was written",
        ),
        (
            json!([{"old_content": "\n", "new_content": "x"}]),
            "invalid_params",
            "more than once, at the lines 1 and 2",
        ),
        (
            json!([{"old_content": "", "new_content": "x"}]),
            "invalid_params",
            "is empty",
        ),
        (
            json!([{"old_content": "a", "line_id": id(1), "new_content": "x"}]),
            "invalid_params",
            "changes[0]",
        ),
        (
            json!([{"old_content": "b\nc", "new_content": "x"}, {"line_id": id(3), "new_content": "y"}]),
            "invalid_params",
            "about line 3",
        ),
    ] {
        stage.refused(
            FileTool::EditLines,
            json!({"path": "f", "changes": changes}),
            code,
            told,
        );
        assert_eq!(stage.get("f"), before.as_bytes());
    }
}

#[test]
fn edit_of_moved_line_or_missing_file_is_refused() {
    let stage = FilesFixture::new();
    stage.put("f", "a\nb\n");
    let old = stage.id("f", 2);
    stage.put("f", "new\na\nb\n");
    let late = json!({"path": "f", "changes": [{"line_id": old, "new_content": "x"}]});
    stage.refused(FileTool::EditLines, late, "precondition_failed", "now");
    let none = json!({"path": "g", "changes": [{"line_id": "0", "new_content": "x"}]});
    stage.refused(FileTool::EditLines, none, "file_not_found", "g");
}

/// A project with files that a search finds, and others that it must skip.
fn searched() -> FilesFixture {
    let stage = FilesFixture::new();
    stage.put(".gitignore", "target/\n*.log\n!keep.log\n");
    stage.put("src/main.rs", "fn main() {\n    todo();\n}\n");
    stage.put("src/deep/lib.rs", "// TODO: more\n");
    stage.put("src/deep/.gitignore", "/made.rs\n");
    stage.put("src/deep/made.rs", "todo\n");
    stage.put("target/debug.rs", "todo\n");
    stage.put("a.log", "todo\n");
    stage.put("keep.log", "todo\n");
    stage.put(".github/ci.yml", "todo: yes\n");
    stage.put(".git/config", "todo\n");
    stage.put("Zebra", "\n");
    stage.put("image", b"todo\0");
    stage
}

#[test]
fn listing_has_directories_first_without_hidden_or_ignored() {
    let stage = searched();
    symlink("src", stage.project().join("link")).unwrap();
    let told = stage.ok(FileTool::Ls, json!({}));
    let names: Vec<&str> = told["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["src", "image", "keep.log", "link", "Zebra"]);
    assert_eq!(
        told["output"], "src/\nimage\nkeep.log\nlink@\nZebra\n",
        "{told}"
    );
    let deep = stage.ok(FileTool::Ls, json!({"path": "src/deep"}));
    assert_eq!(
        deep["entries"],
        json!([{"name": "src/deep/lib.rs", "type": "file"}])
    );
    let hidden = stage.ok(FileTool::Ls, json!({"path": ".github"}));
    assert_eq!(hidden["count"], 1);
    stage.refused(
        FileTool::Ls,
        json!({"path": "image"}),
        "invalid_params",
        "not a directory",
    );
    stage.refused(
        FileTool::Ls,
        json!({"path": "no"}),
        "file_not_found",
        "`no`",
    );
    for number in 0..150 {
        stage.put(&format!("many/{number:03}"), "");
    }
    let many = stage.ok(FileTool::Ls, json!({"path": "many"}));
    assert_eq!(
        (&many["count"], &many["truncated"]),
        (&json!(100), &json!(true))
    );
    assert_eq!(many["entries"][99]["name"], "many/099");
}

#[test]
fn names_that_are_not_utf8_are_counted() {
    use std::os::unix::ffi::OsStrExt as _;
    let stage = searched();
    let put = |name: &[u8]| {
        let path = stage.project().join(std::ffi::OsStr::from_bytes(name));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "fn\n").unwrap();
    };
    // The hidden file and the one in `.gitignore` are no visible entries.
    for name in [
        &b"src/bad\xff.rs"[..],
        b"src/dir\xfe/inner.rs",
        b"src/.\xff",
        b"src/\xff.log",
    ] {
        put(name);
    }
    let note = "[left out, because the name is not UTF-8: 2, such as `bad\u{fffd}.rs`; rename, or use rye/bash]\n";
    for (tool, params) in [
        (FileTool::Ls, json!({"path": "src"})),
        (FileTool::Glob, json!({"pattern": "*.rs"})),
        (FileTool::Glob, json!({"pattern": "*.none"})),
        (FileTool::Grep, json!({"pattern": "fn"})),
    ] {
        let answer = stage.ok(tool, params);
        assert_eq!(answer["not_utf8"], 2, "{answer}");
        assert!(
            answer["output"].as_str().unwrap().ends_with(note),
            "{answer}"
        );
    }
    let nothing = stage.ok(FileTool::Glob, json!({"pattern": "*.none"}));
    assert_eq!(nothing["output"], note);
    let file = stage.ok(
        FileTool::Grep,
        json!({"pattern": "fn", "path": "src/main.rs"}),
    );
    assert_eq!(file["not_utf8"], 0);
}

#[test]
fn glob_returns_paths_in_order() {
    let stage = searched();
    for (params, files) in [
        (
            json!({"pattern": "*.rs"}),
            vec!["src/deep/lib.rs", "src/main.rs"],
        ),
        (json!({"pattern": "src/*.rs"}), vec!["src/main.rs"]),
        (
            json!({"pattern": "*.rs", "path": "src/deep"}),
            vec!["src/deep/lib.rs"],
        ),
        (json!({"pattern": "*.log"}), vec!["keep.log"]),
        (json!({"pattern": "*.yml"}), vec![]),
        (json!({"pattern": ".github/*.yml"}), vec![".github/ci.yml"]),
        (
            json!({"pattern": "*", "path": "target"}),
            vec!["target/debug.rs"],
        ),
    ] {
        let told = stage.ok(FileTool::Glob, params.clone());
        assert_eq!(found(&told), files, "{params}");
        assert_eq!(told["truncated"], false);
    }
    stage.refused(
        FileTool::Glob,
        json!({"pattern": "a[", "path": "."}),
        "invalid_params",
        "is no pattern",
    );
    for number in (0..150).rev() {
        stage.put(&format!("many/{number:03}"), "");
    }
    let many = stage.ok(FileTool::Glob, json!({"pattern": "many/*"}));
    assert_eq!(many["truncated"], true);
    let files = found(&many);
    assert_eq!((files[0], files[99]), ("many/000", "many/099"));
}

#[test]
fn search_returns_lines_with_edit_ids() {
    let stage = searched();
    let told = stage.ok(
        FileTool::Grep,
        json!({"pattern": "(?i)todo", "include": "*.rs"}),
    );
    let at: Vec<(&str, u64)> = told["matches"]
        .as_array()
        .unwrap()
        .iter()
        .map(|found| {
            (
                found["file"].as_str().unwrap(),
                found["line"].as_u64().unwrap(),
            )
        })
        .collect();
    assert_eq!(at, [("src/deep/lib.rs", 1), ("src/main.rs", 2)], "{told}");
    let id = &told["matches"][1]["line_id"];
    assert_eq!(id, &stage.id("src/main.rs", 2));
    let change = json!({"line_id": id, "new_content": "    done();"});
    let edit = json!({"path": "src/main.rs", "changes": [change]});
    stage.ok(FileTool::EditLines, edit);
    let all = stage.ok(FileTool::Grep, json!({"pattern": "todo"}));
    assert_eq!(all["count"], 1, "keep.log alone: {all}");
    let one = stage.ok(FileTool::Grep, json!({"pattern": "todo", "path": "a.log"}));
    assert_eq!(one["count"], 1, "who names a file means it");
    let hidden = stage.ok(
        FileTool::Grep,
        json!({"pattern": "todo", "include": ".github/**"}),
    );
    assert_eq!(hidden["count"], 1);
    let none = stage.ok(FileTool::Grep, json!({"pattern": "nowhere at all"}));
    assert_eq!(none["output"], "[no line fits the pattern]\n");
}

#[test]
fn search_refuses_bad_pattern_and_is_bounded() {
    let stage = FilesFixture::new();
    for pattern in ["(", "a{99999}{99999}"] {
        let params = json!({"pattern": pattern});
        stage.refused(FileTool::Grep, params, "invalid_params", "is no pattern");
    }
    stage.put("many", "hit\n".repeat(500));
    stage.put("large", "hit\n".repeat(3 << 20));
    let told = stage.ok(FileTool::Grep, json!({"pattern": "hit"}));
    assert_eq!(
        (&told["count"], &told["truncated"]),
        (&json!(100), &json!(true))
    );
    let large = stage.ok(FileTool::Grep, json!({"pattern": "hit", "path": "large"}));
    let output = large["output"].as_str().unwrap();
    assert!(output.contains("1 files larger than 8 MiB"), "{output}");
    stage.put("wide", format!("hit{}\n", "x".repeat(3_000)).repeat(90));
    let wide = stage.ok(FileTool::Grep, json!({"pattern": "hit", "path": "wide"}));
    assert!(wide["output"].as_str().unwrap().len() < 55 * 1024);
    assert_eq!(wide["truncated"], true);
}

#[test]
fn abandoned_search_ends() {
    let stage = searched();
    let asked = json!({"pattern": "todo"});
    let Value::Object(params) = asked else {
        panic!("a map")
    };
    let work = parse_call(FileTool::Grep, params).unwrap();
    let waiting = Waiting::default();
    let watch = Watch(Arc::clone(&waiting.0));
    drop(waiting);
    let place = Workspace::open(&stage.project(), Ok(()), 7).unwrap();
    let told = work(&place, &watch).unwrap();
    assert_eq!(
        (&told["count"], &told["truncated"]),
        (&json!(0), &json!(true))
    );
}
