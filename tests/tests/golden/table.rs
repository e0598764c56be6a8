//! Renders the table of differences for people.

use std::fmt::Write as _;
use std::fs;

use super::{LATER, data, read, rulings_of_cases};

#[test]
fn golden_readme_matches_rulings() {
    let path = data("README.md");
    let table = table_of_differences();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, &table).unwrap();
    }
    assert!(
        fs::read_to_string(&path).is_ok_and(|text| text == table),
        "{} is out of date: run `UPDATE_GOLDEN=1 cargo test -p rye-tests golden`",
        path.display()
    );
}

fn table_of_differences() -> String {
    let cases = read("graphs.json");
    let cases = cases.as_array().unwrap();
    let rulings = read("rulings.json");
    let ruled = rulings_of_cases(&rulings).count();
    let mut text = format!(
        "# Recorded cases\n\n\
         `graphs.json` holds {} cases: graphs, calls, and what the original walker made of them. The tests walk them with the\n\
         daemon and compare status, result, state, walked nodes and errors, and on the way to them the calls of tools with\n\
         their parameters, the answers of hooks, the lines of each step, logs, and paths that lead nowhere. {} are as they\n\
         were recorded; {} differ on purpose, {} wait for a feature. Written from `rulings.json` and `tests/tests/golden.rs` by\n\
         `UPDATE_GOLDEN=1 cargo test -p rye-tests golden`, and checked by that test.\n\n\
         ## Where we differ on purpose\n\n\
         What we do instead stands in `rulings.json`. *Recorded as*: whether the original meant what it did there, or did it\n\
         by accident.\n\n\
         | case | recorded as | why we differ |\n| --- | --- | --- |\n",
        cases.len(),
        cases.len() - ruled - LATER.len(),
        ruled,
        LATER.len()
    );
    for case in cases {
        let id = case["id"].as_str().unwrap();
        if let Some(ruling) = rulings.get(id) {
            let verdict = case["verdict"].as_str().unwrap();
            let because = ruling["because"].as_str().unwrap();
            writeln!(text, "| `{id}` | {verdict} | {because} |").unwrap();
        }
    }
    text.push_str("\n## What is translated everywhere\n\n| what | how |\n| --- | --- |\n");
    for (rule, because) in rulings["everywhere"].as_object().unwrap() {
        writeln!(
            text,
            "| {} | {} |",
            rule.replace('_', " "),
            because.as_str().unwrap()
        )
        .unwrap();
    }
    text.push_str("\n## For later\n\n| case | waits for |\n| --- | --- |\n");
    for (id, reason) in LATER {
        writeln!(text, "| `{id}` | {reason} |").unwrap();
    }
    text
}
