//! Everything that documents cite exists: pages and headings, files, tests, names of the code, and error codes.

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use regex::Regex;
use rye_pages::{Table, in_backticks};

/// Directories of the files that a design page cites.
const ROOTS: [&str; 10] = [
    "",
    "daemon",
    "daemon/src",
    "daemon/core",
    "daemon/core/src",
    "daemon/item/src",
    "daemon/process/src",
    "client/src",
    "tests",
    "tests/tests",
];

/// The fictitious kind of run by which the design explains how a kind is added.
const MADE_UP: &str = "timer";

fn of_design() -> Vec<String> {
    let users = rye_pages::for_users();
    let mut pages = rye_pages::all();
    pages.retain(|page| !users.contains(page) && page != "CHANGELOG.md");
    pages
}

/// Returns the texts in backticks in the prose and tables of a page, with their lines.
fn spans(page: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut is_block = false;
    for (index, line) in rye_pages::read(page).lines().enumerate() {
        is_block ^= line.starts_with("```");
        if !is_block {
            let place = format!("{page}:{}", index + 1);
            found.extend(
                in_backticks(line)
                    .into_iter()
                    .map(|span| (place.clone(), span)),
            );
        }
    }
    found
}

fn is_rust(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "rs")
}

fn sources() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![rye_pages::root().to_owned()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if path.is_dir() && !["target", ".git"].contains(&name) {
                open.push(path);
            } else if is_rust(&path) {
                found.push(path);
            }
        }
    }
    found
}

/// Expands `a/{b,c}.rs` to `a/b.rs` and `a/c.rs`.
fn expanded(path: &str) -> Vec<String> {
    let (Some(open), Some(close)) = (path.find('{'), path.find('}')) else {
        return vec![path.to_owned()];
    };
    let (before, after) = (&path[..open], &path[close + 1..]);
    let parts = path[open + 1..close].split(',');
    parts.map(|part| format!("{before}{part}{after}")).collect()
}

#[test]
fn files_that_the_design_names_are_there() {
    let top: Vec<String> = fs::read_dir(rye_pages::root())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let is_path = |span: &str| {
        let first = span.split('/').next().unwrap_or_default();
        let is_plain = !span.contains([' ', '*', '<', '…', ':', '$']);
        let begins_at_the_top = span.contains('/') && top.iter().any(|name| name == first);
        is_plain && (is_rust(span.as_ref()) || begins_at_the_top) && !span.contains(MADE_UP)
    };
    let mut wrong = Vec::new();
    for page in of_design() {
        for (place, span) in spans(&page).into_iter().filter(|(_, span)| is_path(span)) {
            for path in expanded(&span) {
                let is_at = |root: &&str| rye_pages::root().join(root).join(&path).exists();
                if !path.starts_with(".ai/") && !ROOTS.iter().any(is_at) {
                    wrong.push(format!("{place}: `{path}`"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn tests_and_names_of_the_code_that_the_design_names_are_there() {
    let mut functions = BTreeSet::new();
    let mut words = HashSet::new();
    let function = Regex::new(r"(?-u:\b)fn ([a-z0-9_]+)").unwrap();
    let word = Regex::new(r"[A-Za-z_][A-Za-z0-9_]*").unwrap();
    for path in sources() {
        let text = fs::read_to_string(&path).unwrap();
        functions.extend(
            function
                .captures_iter(&text)
                .map(|found| found[1].to_owned()),
        );
        words.extend(word.find_iter(&text).map(|found| found.as_str().to_owned()));
        words.extend(
            path.file_stem()
                .and_then(|stem| stem.to_str())
                .map(str::to_owned),
        );
    }
    // A test may be cited by the beginning of its name, and relative to the path of the previous one.
    let of_code = "^(?:…::)?(?:[A-Za-z][A-Za-z0-9_]*::)*[A-Za-z][A-Za-z0-9_]*…?$";
    let of_code = Regex::new(of_code).unwrap();
    let mut wrong = Vec::new();
    for page in of_design() {
        for (place, span) in spans(&page) {
            let name = span.rsplit("::").next().unwrap_or_default();
            let is_there = match name.strip_suffix('…') {
                _ if !of_code.is_match(&span) => true,
                Some(beginning) => {
                    let mut after = functions.range(beginning.to_owned()..);
                    after
                        .next()
                        .is_some_and(|found| found.starts_with(beginning))
                }
                None if name.matches('_').count() >= 4 => functions.contains(name),
                None if span.contains("::") => {
                    let mut parts = span.split("::").filter(|part| *part != "…");
                    parts.all(|part| words.contains(part))
                }
                None => true,
            };
            if !is_there && !span.to_lowercase().contains(MADE_UP) {
                wrong.push(format!("{place}: `{span}`"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Returns the texts of the daemon's source files without tests.
fn production() -> Vec<String> {
    let daemon = rye_pages::root().join("daemon");
    let is_test = |path: &Path| {
        let is_folder = |name: &std::ffi::OsStr| name == "tests" || name == "benches";
        path.iter().any(is_folder) || path.ends_with("tests.rs")
    };
    let mut found = Vec::new();
    for path in sources() {
        let Ok(below) = path.strip_prefix(&daemon) else {
            continue;
        };
        if !is_test(below) {
            let text = fs::read_to_string(&path).unwrap();
            let end = text.find("#[cfg(test)]\nmod tests").unwrap_or(text.len());
            found.push(text[..end].to_owned());
        }
    }
    found
}

#[test]
fn the_reference_has_each_code_that_a_failure_is_made_with_and_no_other() {
    let made = [
        r#"Failure::permanent\([ \n]*"([a-z_]+)""#,
        r#"(?-u:\b)fail\([ \n]*"([a-z_]+)""#,
        r#"(?-u:\b)stopped(?:_by)?\((?:&by, )?"([a-z_]+)""#,
    ];
    let made = made.map(|pattern| Regex::new(pattern).unwrap());
    let several = Regex::new(r"into_failure\(\[([^\]]*)\]").unwrap();
    let literal = Regex::new(r#""([a-z_]+)""#).unwrap();
    let (mut codes, mut literals) = (BTreeSet::new(), HashSet::new());
    for text in &production() {
        for pattern in &made {
            codes.extend(pattern.captures_iter(text).map(|found| found[1].to_owned()));
        }
        for list in several.captures_iter(text) {
            codes.extend(
                literal
                    .captures_iter(&list[1])
                    .map(|found| found[1].to_owned()),
            );
        }
        literals.extend(literal.captures_iter(text).map(|found| found[1].to_owned()));
    }
    assert!(codes.len() > 50, "{codes:?}");
    let said: BTreeSet<String> = Table::read("docs/reference.md", "failure codes")
        .names()
        .into_iter()
        .collect();
    let missing: Vec<&String> = codes.difference(&said).collect();
    assert!(missing.is_empty(), "docs/reference.md lacks {missing:?}");
    let unknown: Vec<&String> = said
        .iter()
        .filter(|code| !literals.contains(*code))
        .collect();
    assert!(unknown.is_empty(), "the code does not know {unknown:?}");
}

#[test]
fn page_links_resolve() {
    let mut wrong = Vec::new();
    for page in rye_pages::all() {
        let text = rye_pages::read(&page);
        for target in links(&text) {
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let beside = Path::new(&page).parent().unwrap();
            let path = if file.is_empty() {
                rye_pages::root().join(&page)
            } else {
                rye_pages::root().join(beside).join(file)
            };
            let is_there = path.exists()
                && (heading.is_empty()
                    || headings(&fs::read_to_string(&path).unwrap_or_default())
                        .iter()
                        .any(|known| known == heading));
            if !is_there {
                wrong.push(format!("{page}: {target}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Returns the links of a page to targets in the repository.
fn links(text: &str) -> Vec<&str> {
    let targets = text
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split(')').next());
    let inside = targets.filter(|target| !target.contains("://"));
    inside
        .filter(|target| !target.contains([' ', '\n']))
        .collect()
}

/// Returns the anchors of the headings of a page.
fn headings(text: &str) -> Vec<String> {
    let lines = text.lines().filter(|line| line.starts_with('#'));
    let titles = lines.map(|line| line.trim_start_matches('#').trim().to_lowercase());
    let kept = |c: &char| c.is_alphanumeric() || [' ', '-', '_'].contains(c);
    titles
        .map(|title| {
            title
                .chars()
                .filter(kept)
                .collect::<String>()
                .replace(' ', "-")
        })
        .collect()
}
