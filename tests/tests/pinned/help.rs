//! `--help` of both programs, verb by verb.

use std::fmt::Write as _;

use rye_tests::command::in_clean_environment;
use rye_tests::{World, binaries};

use super::pin;

/// Width of the text, independent of the terminal.
const WIDTH: &str = "100";

#[test]
fn help_of_every_verb() {
    let world = World::bare();
    let mut text = String::new();
    let mut verbs = vec![String::new()];
    while let Some(verb) = verbs.pop() {
        let help = world
            .ryectl(&verb)
            .arg("--help")
            .env("COLUMNS", WIDTH)
            .ok()
            .stdout();
        let below = subcommands(&help).into_iter().rev();
        verbs.extend(below.map(|name| format!("{verb} {name}").trim().to_owned()));
        write!(text, "$ ryectl {verb} --help\n{help}\n").unwrap();
    }
    pin("help_ryectl", &text);
}

/// Returns the verbs in a help text: in groups at the top level, under one heading below.
fn subcommands(help: &str) -> Vec<&str> {
    let lines = help
        .lines()
        .skip_while(|line| !line.starts_with("Usage:"))
        .skip(1);
    let lines =
        lines.take_while(|line| !line.starts_with("Arguments:") && !line.starts_with("Options"));
    // The description of a verb may continue on lines with a deeper indent.
    let names = lines
        .filter_map(|line| line.strip_prefix("  "))
        .filter(|line| !line.starts_with(' '))
        .filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").collect()
}

#[test]
fn help_of_the_daemon() {
    let world = World::bare();
    let out = in_clean_environment(binaries::ryed(), &world.home(), world.root())
        .arg("--help")
        .env("COLUMNS", WIDTH)
        .output()
        .unwrap();
    pin("help_ryed", &String::from_utf8(out.stdout).unwrap());
}
