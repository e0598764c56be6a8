//! Checks a transcript as a third party would: from its text and the daemon's public key alone.

use rye_core::seal::{PublicKey, Token, sha256_hex};
use serde_json::Value;

/// Content of a transcript that passed every check.
#[derive(Debug, Default)]
pub struct Checked {
    /// Events, without the checkpoints.
    pub events: Vec<Value>,
    /// Number of signed checkpoints.
    pub checkpoints: usize,
}

/// Checks the hash chain, the gapless `seq` and the signature of every checkpoint of `run`.
pub fn check(text: &str, run: &str, node_key: &str) -> Result<Checked, String> {
    let key = PublicKey::from_pem(node_key).map_err(|error| format!("the node key: {error}"))?;
    let mut checked = Checked::default();
    let mut previous = "0".repeat(64);
    let mut seq = 0;
    for (number, line) in text.lines().enumerate() {
        let at = |what: &str| format!("line {}: {what}: {line}", number + 1);
        let value: Value = serde_json::from_str(line).map_err(|error| at(&error.to_string()))?;
        if value["prev"] != previous {
            return Err(at("`prev` is not the hash of the line before"));
        }
        if value["run_id"] != run {
            return Err(at("it belongs to another run"));
        }
        if value["event_type"] == "checkpoint" {
            checkpoint(&value, run, seq, &previous, &key).map_err(|what| at(&what))?;
            checked.checkpoints += 1;
        } else {
            seq += 1;
            if value["seq"] != seq {
                return Err(at("`seq` is not dense"));
            }
            checked.events.push(value);
        }
        previous = sha256_hex(line);
    }
    Ok(checked)
}

fn checkpoint(
    line: &Value,
    run: &str,
    seq: u64,
    head: &str,
    key: &PublicKey,
) -> Result<(), String> {
    let text = |field: &str| {
        line["payload"][field]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    if text("hash") != head {
        return Err("the checkpoint signs another line".to_owned());
    }
    let token = Token::parse(&text("signature")).ok_or("there is no signature")?;
    let message = sha256_hex(format!(
        "rye:head:1\n{run}\n{seq}\n{head}\n{}",
        text("state_hash")
    ));
    if !text("signature").contains(&message) {
        return Err("the signature covers something else".to_owned());
    }
    token.verify(key).map_err(|error| error.to_string())
}
