//! `ls` and `show`, and names of items.

use super::scripted::Daemon;
use super::{ask, good};

#[tokio::test(flavor = "multi_thread")]
async fn ls_lists_all_pages_of_what_runs_and_of_the_type_that_is_named() {
    let daemon = Daemon::serve(good());
    let ended = ask(&daemon, &["ls", "--json"]).await;
    let ids: Vec<String> = ended
        .json()
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["id"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(
        ids,
        [
            "tool:app/a",
            "tool:app/b",
            "directive:app/a",
            "directive:app/b"
        ]
    );
    let ended = ask(&daemon, &["ls", "knowledge", "app/*"]).await;
    assert_eq!(
        ended.stdout,
        "ITEM             SPACE    STATUS  ABOUT\n\
         knowledge:app/a  project  ok      Does a thing.\n\
         knowledge:app/b  project  ok      Does a thing.\n"
    );
    assert_eq!(daemon.requests().last().unwrap(), "list items 3 app/*");
}

#[tokio::test(flavor = "multi_thread")]
async fn show_says_what_an_item_takes_and_may_do() {
    let daemon = Daemon::serve(good());
    let ended = ask(&daemon, &["show", "app/a"]).await;
    for line in [
        "item          tool:app/a",
        "may           rye.execute.tool.*",
        "signature     full",
        "signed by     self (0123456789abcdef)",
        "INPUT  TYPE     DEFAULT   ABOUT",
        "who    string   required  Whom.",
        "times  integer  3",
    ] {
        assert!(
            ended.stdout.lines().any(|found| found == line),
            "no {line:?} in {}",
            ended.stdout
        );
    }
    let ended = ask(&daemon, &["show", "tool:app/a", "--json"]).await;
    assert_eq!(ended.json()["id"], "tool:app/a");
    assert_eq!(daemon.requests(), ["describe 0 app/a", "describe 1 app/a"]);
}
