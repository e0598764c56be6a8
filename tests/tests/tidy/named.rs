//! Tests that the design pages cite: each exists.
//!
//! The last column of a table with the head `test` names tests by the end of their paths, or modules with tests. `…::`
//! repeats the path of the previous name, at first the one in brackets in the head. Other text in brackets is a remark.

use std::collections::BTreeSet;
use std::fs;

use regex::Regex;
use rye_tests::binaries::clone_root;

use super::{files, rust_files};

/// Tests and benchmarks by their full paths.
struct Known(BTreeSet<String>);

impl Known {
    fn of_the_sources() -> Self {
        let function = Regex::new(r"^(?:async )?fn (\w+)").unwrap();
        let mut known = BTreeSet::new();
        for file in rust_files(clone_root()) {
            let place = file.strip_prefix(clone_root()).unwrap().with_extension("");
            let mut module = place.display().to_string().replace('/', "::");
            if module.contains("benches::") {
                known.insert(module.clone());
            }
            let mut is_test = false;
            for line in fs::read_to_string(&file).unwrap().lines() {
                let line = line.trim_start();
                if line.starts_with("mod tests {") {
                    module.push_str("::tests");
                }
                is_test |= line.starts_with("#[test]") || line.starts_with("#[tokio::test");
                if let Some(found) = function.captures(line).filter(|_| is_test) {
                    is_test = false;
                    known.insert(format!("{module}::{}", &found[1]));
                }
            }
        }
        Self(known)
    }

    /// True if `name` is a test or a module that contains one.
    fn has(&self, name: &str) -> bool {
        let (last, within) = (format!("::{name}"), format!("::{name}::"));
        let mut known = self.0.iter();
        known.any(|path| path.ends_with(&last) || path.contains(&within))
    }

    /// Returns the faults in the tables of `page`, by line.
    fn faults(&self, page: &str) -> Vec<(usize, String)> {
        let remark = Regex::new(r"\([^)]*\)").unwrap();
        let name = Regex::new(r"(benchmark )?`([^`]+)`").unwrap();
        let head = Regex::new(r"^test(?: \(`(.*)::…`\))?$").unwrap();
        let mut faults = Vec::new();
        let (mut is_within, mut prefix) = (false, String::new());
        for (number, line) in page.lines().enumerate() {
            let row = line.strip_prefix('|').and_then(|row| row.strip_suffix('|'));
            let Some(cell) = row.and_then(|row| row.split('|').next_back()) else {
                is_within = false;
                continue;
            };
            let cell = cell.trim();
            if let Some(begins) = head.captures(cell).filter(|_| !is_within) {
                is_within = true;
                let begins = begins.get(1).map_or("", |prefix| prefix.as_str());
                begins.clone_into(&mut prefix);
                continue;
            }
            if !is_within || cell.starts_with("---") {
                continue;
            }
            let mut fault = |told: String| faults.push((number + 1, told));
            let told = remark.replace_all(cell, "");
            if told == cell && !name.is_match(&told) {
                fault(format!("`{cell}` names no test, and does not say why"));
            }
            for found in name.captures_iter(&told) {
                let named = match found[2].strip_prefix("…::") {
                    Some(rest) => format!("{prefix}::{rest}"),
                    None => found[2].to_owned(),
                };
                if let Some((before, _)) = named.rsplit_once("::") {
                    before.clone_into(&mut prefix);
                }
                let is_there = match found.get(1) {
                    Some(_) => self.has(&format!("benches::{named}")),
                    None => self.has(&named),
                };
                if !is_there {
                    fault(format!("there is no test `{named}`"));
                }
            }
        }
        faults
    }
}

#[test]
fn every_test_that_a_page_names_is_there() {
    let known = Known::of_the_sources();
    let mut wrong = Vec::new();
    for page in files(clone_root(), "md") {
        let text = fs::read_to_string(&page).unwrap();
        let faults = known.faults(&text).into_iter();
        wrong.extend(faults.map(|(line, told)| format!("{}:{line}: {told}", page.display())));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn missing_cited_test_is_reported_with_line() {
    let known = Known::of_the_sources();
    let page = "| fault | test |\n| --- | --- |\n\
                | a | `tidy::named::every_test_that_a_page_names_is_there`, `…::no_such_test` |\n\
                | b | the benchmark `chain`; `tidy` |\n| c | the benchmark `no_such` |\n| d | nothing |\n| e | (no function) |\n\n\
                | other | column |\n| f | `no_such_test` |\n";
    let told = [
        (3, "there is no test `tidy::named::no_such_test`".to_owned()),
        (5, "there is no test `no_such`".to_owned()),
        (
            6,
            "`nothing` names no test, and does not say why".to_owned(),
        ),
    ];
    assert_eq!(known.faults(page), told);
}
