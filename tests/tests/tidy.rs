//! Rules about the source itself.

mod named;
mod rows;
mod words;

use std::fs;
use std::path::{Path, PathBuf};

use rye_tests::binaries::clone_root;
use rye_tests::command::program;

/// Most lines of a source file without its tests.
const MOST_LINES: usize = 600;

#[test]
fn no_crate_or_room_is_over_its_budget_of_lines() {
    let counted = program("python3")
        .args(["tests/scripts/lines", "--check"])
        .current_dir(clone_root())
        .output()
        .expect("python3 starts");
    let faults = String::from_utf8_lossy(&counted.stdout);
    assert!(counted.status.success(), "{faults}");
}

#[test]
fn rpc_reaches_runs_only_through_access() {
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

fn files_of(source: &Path, module: &str) -> Vec<PathBuf> {
    let mut files = vec![source.join(format!("{module}.rs"))];
    files.extend(
        rust_files(&source.join(module))
            .into_iter()
            .filter(|path| !is_tests(path)),
    );
    files
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

/// Lists the files below `root` with this extension, without generated and built ones.
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
fn documents_have_no_machine_paths() {
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
