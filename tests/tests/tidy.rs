//! Rules about the source itself.

mod named;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use rye_tests::binaries::clone_root;

/// Rows of `ryed` (ARCHITECTURE.md, "Rows"): a module uses only modules of lower rows, one of row 0 also those listed before it.
const DAEMON_ROWS: &[(&str, u8)] = &[
    ("acting", 0),
    ("clock", 0),
    ("config", 0),
    ("exhausted", 0),
    ("exit", 0),
    ("fail_point", 0),
    ("logging", 0),
    ("memo", 0),
    ("stop", 0),
    ("task", 0),
    ("beneath", 1),
    ("gate", 1),
    ("async_log", 2),
    ("index", 2),
    ("object", 2),
    ("journal", 3),
    ("cache", 4),
    ("contracts", 4),
    ("exports", 4),
    ("graphs", 4),
    ("http", 4),
    ("port", 4),
    ("process", 4),
    ("projects", 4),
    ("storage_backoff", 4),
    ("trees", 4),
    ("mcp", 5),
    ("native", 5),
    ("provider", 5),
    ("chain", 6),
    ("directives", 6),
    ("models", 6),
    ("offers", 7),
    ("services", 7),
    ("dispatch", 8),
    ("drive", 8),
    ("inspect", 8),
    ("children", 9),
    ("graph", 10),
    ("thread", 10),
    ("tool", 10),
    ("supervisor", 11),
    ("access", 12),
    ("rpc", 13),
    ("node", 14),
];

/// Rows of `rye-core`; both stand in the order in which they may use each other.
const CORE_ROWS: &[(&str, u8)] = &[
    ("error", 0),
    ("id", 0),
    ("memory", 0),
    ("money", 0),
    ("clock", 0),
    ("bounds", 0),
    ("seal", 0),
    ("served_at", 0),
    ("digest", 0),
    ("frame", 0),
    ("markdown", 0),
    ("sight", 0),
    ("json", 0),
    ("yaml", 1),
    ("expr", 1),
    ("search", 1),
    ("capability", 1),
    ("ledger", 1),
    ("conversation", 1),
    ("model", 1),
    ("access", 1),
    ("state", 1),
    ("cas", 1),
    ("definition", 1),
    ("pattern", 1),
    ("directive", 1),
    ("provider", 1),
    ("policy", 1),
    ("machine", 1),
    ("walker", 1),
    ("thread", 1),
    ("tool", 1),
    ("transcript", 1),
];

/// Most lines of a source file without its tests.
const MOST_LINES: usize = 600;

#[test]
fn modules_of_the_core_use_earlier_rows_only() {
    assert_rows("daemon/core/src", CORE_ROWS, |_| true);
}

#[test]
fn modules_of_the_daemon_use_earlier_rows_only() {
    assert_rows("daemon/src", DAEMON_ROWS, |row| row == 0);
}

#[test]
fn calls_from_outside_get_at_runs_only_through_access() {
    let source = clone_root().join("daemon/src");
    for file in files_of(&source, "rpc") {
        let text = fs::read_to_string(&file).unwrap();
        for owner in ["Supervisor", "Journal", "dyn Runs"] {
            assert!(
                !without_tests(&text).contains(owner),
                "{} names `{owner}`: ask `Access`, which asks whether the caller may",
                file.display()
            );
        }
    }
}

/// Asserts that each module of the crate in `source` is in `rows` and uses only what stands before it. Within a row for which
/// `listed_order` holds, what is listed first may be used by what follows; within any other, neither may use the other.
fn assert_rows(source: &str, rows: &[(&str, u8)], listed_order: impl Fn(u8) -> bool) {
    let source = clone_root().join(source);
    let declared = modules(&source.join("lib.rs"));
    let row_of = |module: &String| {
        rows.iter()
            .find(|(name, _)| name == module)
            .map(|(_, row)| *row)
    };
    let in_order: Vec<Option<u8>> = declared.iter().map(row_of).collect();
    assert!(
        in_order.is_sorted() && in_order.first() != Some(&None) && declared.len() == rows.len(),
        "lib.rs of {} does not list its modules by row: {declared:?}",
        source.display()
    );
    let place: BTreeMap<&str, (u8, usize)> = rows
        .iter()
        .enumerate()
        .map(|(at, (module, row))| (*module, (*row, at)))
        .collect();
    let mut wrong = Vec::new();
    for (module, (row, at)) in &place {
        for file in files_of(&source, module) {
            for (line, used) in uses(&file) {
                let Some((used_row, used_at)) = place.get(used.as_str()) else {
                    continue;
                };
                let fine = used == *module
                    || used_row < row
                    || (used_row == row && listed_order(*row) && used_at < at);
                if !fine {
                    wrong.push(format!(
                        "{}:{line}: `{module}` (row {row}) uses `{used}` (row {used_row})",
                        file.display()
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The modules a crate declares, in its order.
fn modules(lib: &Path) -> Vec<String> {
    let text = fs::read_to_string(lib).unwrap();
    text.lines()
        .filter_map(|line| line.strip_prefix("pub mod ").or(line.strip_prefix("mod ")))
        .filter_map(|rest| rest.strip_suffix(';'))
        .map(str::to_owned)
        .collect()
}

fn files_of(source: &Path, module: &str) -> Vec<PathBuf> {
    let mut files = vec![source.join(format!("{module}.rs"))];
    files.extend(
        rust_files(&source.join(module))
            .into_iter()
            .filter(|path| !is_tests(path)),
    );
    files
}

/// Modules of the own crate that the code of `file` names, with the line.
fn uses(file: &Path) -> Vec<(usize, String)> {
    let text = fs::read_to_string(file).unwrap();
    let mut found = Vec::new();
    for (number, line) in without_tests(&text).lines().enumerate() {
        let code = line.split("//").next().unwrap_or_default();
        for rest in code.split("crate::").skip(1) {
            let heads: Vec<&str> = match rest.strip_prefix('{') {
                Some(list) => list.split(',').collect(),
                None => vec![rest],
            };
            for head in heads {
                let name: String = head
                    .trim()
                    .chars()
                    .take_while(|c| c.is_ascii_alphanumeric() || *c == '_')
                    .collect();
                found.push((number + 1, name));
            }
        }
    }
    found
}

fn without_tests(text: &str) -> &str {
    let end = text.find("#[cfg(test)]\nmod tests").unwrap_or(text.len());
    &text[..end]
}

fn is_tests(path: &Path) -> bool {
    path.file_stem().is_some_and(|stem| stem == "tests")
        || path.components().any(|part| part.as_os_str() == "tests")
}

fn rust_files(root: &Path) -> Vec<PathBuf> {
    files(root, "rs")
}

/// Files below `root` with this extension, without what is generated or built.
fn files(root: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![root.to_owned()];
    while let Some(directory) = open.pop() {
        let Ok(entries) = fs::read_dir(&directory) else {
            continue;
        };
        for entry in entries {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            if path.is_dir() {
                let is_ours = !matches!(name.as_str(), "target" | ".git" | "gen" | "data");
                if is_ours && !path.ends_with(".ai/state") {
                    open.push(path);
                }
            } else if path.extension().is_some_and(|found| found == extension) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

#[test]
fn no_source_file_has_more_than_600_lines_without_its_tests() {
    let long: Vec<String> = rust_files(clone_root())
        .into_iter()
        .filter(|path| !is_tests(path.strip_prefix(clone_root()).unwrap()))
        .filter_map(|path| {
            let text = fs::read_to_string(&path).unwrap();
            let lines = without_tests(&text).lines().count();
            (lines > MOST_LINES).then(|| format!("{}: {lines} lines", path.display()))
        })
        .collect();
    assert!(long.is_empty(), "{}", long.join("\n"));
}

#[test]
fn documents_name_no_path_of_somebodys_machine() {
    let mut wrong = Vec::new();
    for extension in ["md", "toml", "yaml", "yml", "service"] {
        for path in files(clone_root(), extension) {
            let text = fs::read_to_string(&path).unwrap_or_default();
            for (number, line) in text.lines().enumerate() {
                if ["/home/", "/Users/", "/root/", "/work/", "C:\\"]
                    .iter()
                    .any(|machine| line.contains(machine))
                {
                    wrong.push(format!("{}:{}: {line}", path.display(), number + 1));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_readme_begins_with_the_two_commands_that_ci_runs() {
    let readme = fs::read_to_string(clone_root().join("README.md")).unwrap();
    let first = readme.find("cargo build --release && ./target/release/ryectl run rye/examples/project-stats -i directory=.");
    let second = readme.find("cargo test --workspace");
    assert!(first.is_some() && first < second, "{first:?} {second:?}");
    let fences: Vec<usize> = readme.match_indices("```").map(|(at, _)| at).collect();
    assert!(
        fences.first() < first.as_ref(),
        "the first command stands in the first block"
    );
    assert!(
        readme.contains("python3"),
        "the README says what the tests need"
    );
}
