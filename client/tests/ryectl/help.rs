//! Compares every `--help` with its snapshot in `tests/help`. `UPDATE_HELP=1` writes the snapshots.

use std::path::Path;

use super::{end, ryectl};

/// Every verb as it is typed.
const VERBS: [&str; 78] = [
    "",
    "init",
    "key",
    "key generate",
    "key show",
    "key list",
    "key trust",
    "key untrust",
    "sign",
    "verify",
    "trust",
    "untrust",
    "lock",
    "lock create",
    "lock verify",
    "lock ls",
    "run",
    "graph",
    "graph run",
    "graph step",
    "graph validate",
    "graph show",
    "thread",
    "thread run",
    "thread validate",
    "thread show",
    "thread say",
    "models",
    "new",
    "new tool",
    "new graph",
    "new directive",
    "schema",
    "execute",
    "ls",
    "show",
    "fetch",
    "test",
    "ps",
    "get",
    "can",
    "steps",
    "state",
    "attach",
    "approvals",
    "approve",
    "deny",
    "logs",
    "events",
    "transcript",
    "wait",
    "cancel",
    "kill",
    "rm",
    "prune",
    "suspend",
    "resume",
    "tree",
    "chain",
    "budget",
    "budget show",
    "budget tree",
    "budget raise",
    "cache",
    "cache ls",
    "cache drop",
    "objects",
    "objects export",
    "objects get",
    "completions",
    "man",
    "daemon",
    "daemon status",
    "daemon start",
    "daemon stop",
    "daemon restart",
    "daemon logs",
    "daemon info",
];

#[tokio::test(flavor = "multi_thread")]
async fn help_matches_its_snapshot() {
    let home = tempfile::tempdir().unwrap();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/help");
    for verb in VERBS {
        let mut arguments: Vec<&str> = verb.split_whitespace().collect();
        arguments.push("--help");
        let ended = end(ryectl(home.path(), &arguments)).await;
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{verb}");
        let name = arguments[..arguments.len() - 1].join("-");
        let name = if name.is_empty() { "ryectl" } else { &name };
        let path = folder.join(format!("{name}.txt"));
        if std::env::var_os("UPDATE_HELP").is_some() {
            std::fs::write(&path, &ended.stdout).unwrap();
        }
        let snapshot = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(
            ended.stdout,
            snapshot,
            "the help of `{verb}` differs from {}; UPDATE_HELP=1 writes it anew",
            path.display()
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bare_command_prints_help_and_mistyped_verb_suggests_nearest() {
    let home = tempfile::tempdir().unwrap();
    let run = |arguments: &'static [&'static str]| end(ryectl(home.path(), arguments));
    let bare = run(&[]).await;
    assert_eq!((bare.code, bare.stderr.as_str()), (Some(0), ""));
    for part in [
        "Look at runs:",
        "  ps ",
        "Items:",
        "  ls ",
        "Options of every verb:",
        "Example:",
    ] {
        assert!(bare.stdout.contains(part), "no {part:?} in {}", bare.stdout);
    }
    let group = run(&["graph"]).await;
    assert_eq!(group.code, Some(0));
    assert!(group.stdout.contains("validate"), "{}", group.stdout);
    // A value from the environment is no argument.
    for (arguments, told) in [(vec![], &bare), (vec!["graph"], &group)] {
        let mut again = ryectl(home.path(), &arguments);
        again.env("RYE_STATE_DIR", home.path());
        let again = end(again).await;
        assert_eq!((again.code, &again.stdout), (Some(0), &told.stdout));
    }
    let option = run(&["--json"]).await;
    assert_eq!(option.code, Some(2), "{}", option.stdout);
    let help = run(&["help", "run"]).await;
    assert_eq!(help.code, Some(0));
    assert!(help.stdout.contains("--idempotency-key"), "{}", help.stdout);
    for (typed, near) in [("rnu", "run"), ("attch", "attach")] {
        let wrong = end(ryectl(home.path(), &[typed])).await;
        assert_eq!(wrong.code, Some(2));
        assert!(
            wrong.stderr.contains(&format!("'{near}'")),
            "{}",
            wrong.stderr
        );
    }
    let missing = run(&["get"]).await;
    assert_eq!((missing.code, missing.stdout.as_str()), (Some(2), ""));
    // The usage leaves out an option that the environment sets.
    let mut get = ryectl(home.path(), &["graph", "show"]);
    get.env("RYE_STATE_DIR", home.path());
    let usage = end(get).await.stderr;
    assert!(
        usage.contains("Usage: ryectl graph show [OPTIONS] <ITEM>\n"),
        "{usage}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn completions_are_scripts_of_the_shells() {
    let home = tempfile::tempdir().unwrap();
    for (shell, part) in [
        ("bash", "complete -F _ryectl"),
        ("zsh", "#compdef ryectl"),
        ("fish", "complete -c ryectl"),
    ] {
        let ended = end(ryectl(home.path(), &["completions", shell])).await;
        assert_eq!(
            (ended.code, ended.stderr.as_str()),
            (Some(0), ""),
            "{shell}"
        );
        assert!(ended.stdout.contains(part), "{shell}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_verb_has_a_manual_page_with_its_example() {
    let home = tempfile::tempdir().unwrap();
    let pages = home.path().join("share/man1");
    let directory = pages.to_str().unwrap();
    let ended = end(ryectl(home.path(), &["man", directory])).await;
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    for verb in VERBS {
        let words: Vec<&str> = ["ryectl"]
            .into_iter()
            .chain(verb.split_whitespace())
            .collect();
        let page = std::fs::read_to_string(pages.join(format!("{}.1", words.join("-"))));
        let page = page.unwrap_or_else(|error| panic!("{verb}: {error}"));
        assert!(page.contains(".SH SYNOPSIS"), "{verb}: {page}");
        assert!(page.contains("Example"), "{verb}: {page}");
    }
    std::fs::write(home.path().join("file"), "").unwrap();
    let file = end(ryectl(home.path(), &["man", "file"])).await;
    assert_eq!(file.code, Some(5), "{}", file.stderr);
    assert!(file.stderr.contains("`file`"), "{}", file.stderr);
}
