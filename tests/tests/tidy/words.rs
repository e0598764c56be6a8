//! Names use the terms of the field. The lists grow with each word that a reviewer does not understand.

use std::fs;
use std::sync::LazyLock;

use regex::Regex;
use rye_tests::binaries::clone_root;

use super::rust_files;

/// Words that no function, module or type has in its name, each with terms to use instead.
const WORDS: [(&str, &str); 24] = [
    ("acting", "running calls"),
    ("behind", "after"),
    ("beneath", "safe path"),
    ("beside", "a term for its content"),
    ("forgive", "clear"),
    ("glance", "a term for what it looks up"),
    ("heed", "handle"),
    ("lack", "shortage"),
    ("lag", "backlog"),
    ("lane", "exporter, queue"),
    ("lies", "is, is in"),
    ("mailbox", "queue"),
    ("memo", "cache"),
    ("mend", "fix"),
    ("offers", "tool offer, model choice"),
    ("owe", "pending"),
    ("promise", "guarantee, limit"),
    ("sight", "printable"),
    ("speech", "model text"),
    ("talk", "conversation"),
    ("unseen", "invisible"),
    ("voice", "output stream"),
    ("vouch", "verify"),
    ("whoever", "caller"),
];

/// Words that, in addition, no type has in its name.
const TYPE_WORDS: [(&str, &str); 8] = [
    ("asked", "request"),
    ("nobody", "none"),
    ("said", "message"),
    ("seen", "shown"),
    ("stands", "is, state"),
    ("told", "answer"),
    ("wanted", "requested"),
    ("wants", "requests"),
];

static NAME: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"^\s*(?:pub(?:\([^)]*\))? )?(?:const |async |unsafe )*(fn|mod|struct|enum|trait|type) (?:r#)?(\w+)")
        .unwrap()
});
static PART: LazyLock<Regex> = LazyLock::new(|| Regex::new("[A-Z]?[a-z0-9]+|[A-Z]+").unwrap());

#[test]
fn names_are_terms_of_the_field() {
    let mut wrong = Vec::new();
    for path in ["client", "daemon", "proto", "tests"].map(|root| clone_root().join(root)) {
        for file in rust_files(&path) {
            let text = fs::read_to_string(&file).unwrap();
            for (number, line) in text.lines().enumerate() {
                let Some(found) = NAME.captures(line) else {
                    continue;
                };
                let is_type = !["fn", "mod"].contains(&&found[1]);
                let more: &[(&str, &str)] = if is_type { &TYPE_WORDS } else { &[] };
                let parts: Vec<String> = PART
                    .find_iter(&found[2])
                    .map(|part| part.as_str().to_lowercase())
                    .collect();
                let banned = WORDS.iter().chain(more);
                for (word, instead) in
                    banned.filter(|(word, _)| parts.iter().any(|part| part == word))
                {
                    let (file, name, line) = (file.display(), &found[2], number + 1);
                    wrong.push(format!(
                        "{file}:{line}: `{name}` has the word `{word}`: use {instead}"
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
