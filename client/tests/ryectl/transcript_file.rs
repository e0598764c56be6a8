//! `transcript --verify FILE` without a daemon; none is started.

use std::fs;
use std::path::Path;

use rye_core::clock::Timestamp;
use rye_core::seal::SecretKey;
use rye_item::keys;
use rye_item::trust::{self, KeyFile};
use serde_json::json;

use super::{Ended, end, ryectl};

/// Two events and a checkpoint, signed with the key of seed 1.
const TEXT: &str = include_str!("../../../daemon/core/src/transcript/published.jsonl");

const RUN: &str = "app-deploy-1767225600-abcdefghij";

fn key(seed: u8) -> SecretKey {
    SecretKey::from_seed(&[seed; 32])
}

/// Makes a home with the transcript `t.jsonl`.
fn home() -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("t.jsonl"), TEXT).unwrap();
    home
}

fn put(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// Runs `ryectl --state-dir state transcript ARGUMENTS` in `home`.
async fn transcript(home: &Path, arguments: &[&str]) -> Ended {
    let words = [&["--state-dir", "state", "transcript"], arguments].concat();
    end(ryectl(home, &words)).await
}

fn assert_passes(ended: &Ended, file: &str) {
    let signer = key(1).public().fingerprint().clone();
    let sentence = format!(
        "`{file}` is the whole transcript of {RUN}, as it was written: 2 events, 1 checkpoints signed by {signer}\n"
    );
    assert_eq!(
        (ended.code, &*ended.stdout, &*ended.stderr),
        (Some(0), &*sentence, "")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn file_is_verified_with_the_given_key_and_no_daemon_is_started() {
    let home = home();
    let home = home.path();
    put(&home.join("node.pem"), &key(1).public().to_pem());
    let words = ["--verify", "t.jsonl", "--key", "node.pem"];
    assert_passes(&transcript(home, &words).await, "t.jsonl");
    assert!(!home.join("state").exists(), "no daemon was started");

    let printed = transcript(home, &[&words[..], &["--json"]].concat()).await;
    let expected = json!({
        "run_id": RUN,
        "signers": [key(1).public().fingerprint()],
        "verdict": {"intact": true, "problem": null, "events": 2, "checkpoints": 1, "bytes": TEXT.len()},
    });
    assert_eq!((printed.code, printed.json()), (Some(0), expected));
}

#[tokio::test(flavor = "multi_thread")]
async fn change_of_a_byte_ends_with_1_and_names_the_byte() {
    let home = home();
    let home = home.path();
    put(&home.join("node.pem"), &key(1).public().to_pem());
    let at = TEXT.rfind("checkpoint").unwrap() - 9;
    let mut changed = TEXT.as_bytes().to_vec();
    changed[at] ^= 1;
    fs::write(home.join("t.jsonl"), changed).unwrap();
    let words = ["--verify", "./t.jsonl", "--key", "node.pem"];
    let ended = transcript(home, &words).await;
    let line = TEXT[..at].rfind('\n').unwrap() + 1;
    let error = format!("error: `./t.jsonl`: the line at byte {line} is not one of a transcript");
    assert_eq!((ended.code, &*ended.stdout), (Some(1), ""));
    assert!(ended.stderr.starts_with(&error), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("prove its first 0 bytes"),
        "{}",
        ended.stderr
    );

    let printed = transcript(home, &[&words[..], &["--json"]].concat()).await;
    let verdict = &printed.json()["verdict"];
    assert_eq!((printed.code, &verdict["intact"]), (Some(1), &json!(false)));
    assert!(
        verdict["problem"]
            .as_str()
            .unwrap()
            .contains(&line.to_string())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_of_the_state_directory_come_before_trusted_ones() {
    let home = home();
    let home = home.path();
    let words = ["--verify", "t.jsonl"];
    let refused = transcript(home, &words).await;
    assert_eq!(refused.code, Some(1));
    assert!(
        refused.stderr.contains("signed by the key"),
        "{}",
        refused.stderr
    );
    assert!(refused.stderr.contains("hint: "), "{}", refused.stderr);

    let mut entry = KeyFile::new(key(1).public().clone(), Some("node".to_owned()));
    let at = Timestamp::from_ms(0);
    let _path = trust::enter(home, &entry, &key(1), at).unwrap();
    assert_passes(&transcript(home, &words).await, "t.jsonl");
    entry.revoked_at = Some(at);
    let _path = trust::enter(home, &entry, &key(1), at).unwrap();
    assert_eq!(
        transcript(home, &words).await.code,
        Some(1),
        "it is revoked"
    );
    entry.revoked_at = None;
    let _path = trust::enter(home, &entry, &key(1), at).unwrap();

    let state = home.join("state");
    put(
        &state.join("keys/public_key.pem"),
        &key(2).public().to_pem(),
    );
    assert_eq!(transcript(home, &words).await.code, Some(1), "another node");
    let former = keys::former(&state).join("0123456789abcdef/public_key.pem");
    put(&former, &key(1).public().to_pem());
    assert_passes(&transcript(home, &words).await, "t.jsonl");
}

#[tokio::test(flavor = "multi_thread")]
async fn flags_that_do_not_fit_the_source_end_with_2() {
    let home = home();
    let home = home.path();
    for (words, part) in [
        ("t.jsonl", "--verify"),
        ("--verify t.jsonl --tail 3", "--tail is for a run"),
        (
            "--verify app-1-abcdefghij --key k.pem",
            "--key is for a file",
        ),
        ("t.jsonl --key k.pem", "--verify"),
        ("--verify ./absent", "cannot read `./absent`"),
        ("--verify t.jsonl --key absent", "cannot read `absent`"),
        ("--verify t.jsonl --key t.jsonl", "holds no public key"),
    ] {
        let words: Vec<&str> = words.split(' ').collect();
        let ended = transcript(home, &words).await;
        assert_eq!(ended.code, Some(2), "{words:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(part), "{words:?}: {}", ended.stderr);
    }
    assert!(!home.join("state").exists(), "no daemon was started");
}
