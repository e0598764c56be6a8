//! `sign`.

use rye_client::exit::Exit;
use rye_core::yaml;
use rye_item::sign::{self, Change, Signed, SignedCopies};
use serde::Serialize;
use serde_json::{Value, json};
use similar::{ChangeTag, TextDiff};

use super::local::{Local, SystemItems};
use crate::cli::Targets;
use crate::failure::Failure;
use crate::output::{Format, Output};
use crate::render::Style;
use crate::session::Session;

/// Lines of context around a change.
const AROUND: usize = 2;
/// Most lines of changes that are shown of one item.
const MOST_LINES: usize = 60;

/// Changes to an item since its former signature.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Changes {
    /// Number of new lines.
    added: usize,
    /// Number of removed lines.
    removed: usize,
    /// Top-level keys of a YAML file whose values changed.
    keys: Vec<String>,
    /// Unified diff.
    diff: String,
}

pub(super) fn sign(targets: &Targets, session: &mut Session) -> Result<Exit, Failure> {
    let local = Local::of(session)?;
    let key = local.key()?;
    let past = SignedCopies::of(&local.user);
    let output = &mut session.output;
    local.warn_of_untrusted(key.public().fingerprint(), output);
    let mut exit = Exit::Done;
    let mut signed = Vec::new();
    for target in &targets.targets {
        let named = local.target(target, SystemItems::Out);
        let places = named.and_then(|target| Ok(sign::targets(&local.spaces, &target)?));
        let places = match places {
            Ok(places) => places,
            Err(failure) => {
                exit = output.part(exit, Err(failure));
                continue;
            }
        };
        for place in places {
            match sign::sign(&local.spaces, &place, &key, local.now) {
                Ok(done) => {
                    let changes = past
                        .previous(&done)
                        .map(|old| Changes::between(&old, &done));
                    if let Err(error) = past.keep(&done) {
                        output.warning(&format!(
                            "what was signed is not kept for comparison: {error}"
                        ));
                    }
                    for warning in &done.warnings {
                        output.warning(warning);
                    }
                    if output.format() == Format::Text {
                        output.line(&line(&done))?;
                        note_changes(&done, changes.as_ref(), output);
                    }
                    signed.push((done, changes));
                }
                Err(error) => exit = output.part(exit, Err(error.into())),
            }
        }
    }
    if output.format() == Format::Json {
        let fingerprint = key.public().fingerprint();
        let signed: Vec<_> = signed
            .iter()
            .map(|(done, changes)| {
                let before = done.previous_signature.as_ref().map(|token| {
                    json!({
                        "content_hash": token.hash,
                        "fingerprint": token.signer,
                        "signed_at": token.signed_at.to_string(),
                    })
                });
                json!({
                    "path": done.path,
                    "id": done.item.to_string(),
                    "content_hash": done.content_hash,
                    "fingerprint": fingerprint,
                    "changed": done.change == Change::Written,
                    "named": done.named,
                    "warnings": done.warnings,
                    "before": before,
                    "changes": changes,
                })
            })
            .collect();
        output.json(&signed)?;
    }
    Ok(exit)
}

fn line(done: &Signed) -> String {
    let (item, path) = (&done.item, done.path.display());
    match done.change {
        Change::Written if done.named => {
            let name = item.id.name();
            format!("signed {item} ({path}), with a line that was missing: its name, `{name}`")
        }
        Change::Written => format!("signed {item} ({path})"),
        Change::Current => format!("{item} was signed already ({path})"),
    }
}

/// Notes what a new signature covers that the former one did not.
fn note_changes(done: &Signed, changes: Option<&Changes>, output: &mut Output) {
    if done.change == Change::Current {
        return;
    }
    let Some(before) = &done.previous_signature else {
        let lines = done.text.lines().count();
        output.note(&format!("  new: {lines} lines that were not signed"));
        return;
    };
    let since = format!("since {} signed it at {}", before.signer, before.signed_at);
    match changes {
        None => output.note(&format!(
            "  {since}: what has changed is not known, for that text is not kept here; read the file"
        )),
        Some(changes) if changes.added + changes.removed == 0 => {
            output.note(&format!("  {since}: nothing has changed"));
        }
        Some(changes) => {
            let keys = changes.keys.join(", ");
            let keys = if keys.is_empty() {
                keys
            } else {
                format!("; changed: {keys}")
            };
            let (added, removed) = (changes.added, changes.removed);
            output.note(&format!("  {since}: +{added} -{removed} lines{keys}"));
            output.note(&changes.shown(output.style()));
        }
    }
}

impl Changes {
    /// Compares the text `old` with the signed text of `new`.
    fn between(old: &str, new: &Signed) -> Self {
        let diff = TextDiff::from_lines(old, &new.text);
        let count = |tag| {
            let all = diff.iter_all_changes();
            all.filter(|change| change.tag() == tag).count()
        };
        let is_yaml = new
            .path
            .extension()
            .is_some_and(|extension| ["yaml", "yml"].iter().any(|known| extension == *known));
        Self {
            added: count(ChangeTag::Insert),
            removed: count(ChangeTag::Delete),
            keys: if is_yaml {
                changed_keys(old, &new.text)
            } else {
                Vec::new()
            },
            diff: diff.unified_diff().context_radius(AROUND).to_string(),
        }
    }

    /// Renders at most [`MOST_LINES`] lines of the diff.
    fn shown(&self, style: Style) -> String {
        let lines: Vec<&str> = self.diff.lines().collect();
        let some = lines.iter().take(MOST_LINES).map(|line| {
            let text = format!("  {line}");
            match line.chars().next() {
                Some('+') => style.green(&text),
                Some('-') => style.red(&text),
                _ => text,
            }
        });
        let mut some: Vec<String> = some.collect();
        let more = lines.len().saturating_sub(MOST_LINES);
        if more > 0 {
            some.push(format!("  … {more} more lines"));
        }
        some.join("\n")
    }
}

/// Returns the top-level keys whose values differ between two YAML texts.
fn changed_keys(old: &str, new: &str) -> Vec<String> {
    let members = |text: &str| match yaml::parse(text).map(|document| document.value) {
        Ok(Value::Object(members)) => members,
        Ok(_) | Err(_) => serde_json::Map::new(),
    };
    let (old, new) = (members(old), members(new));
    let gone = old.keys().filter(|key| !new.contains_key(*key));
    let changed = new.keys().filter(|key| old.get(*key) != new.get(*key));
    changed.chain(gone).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_of_a_yaml_file_that_changed_are_named() {
        let old = "a: 1\npermissions: [x]\nb: {c: 1}\ngone: 1\n";
        let new = "b: {c: 2}\na: 1\npermissions: [x, y]\nnew: 1\n";
        assert_eq!(changed_keys(old, new), ["b", "permissions", "new", "gone"]);
        assert_eq!(changed_keys("a: [", "a: 1"), ["a"]);
    }

    #[test]
    fn many_changed_lines_are_counted_and_not_all_shown() {
        let changes = Changes {
            added: 100,
            removed: 0,
            keys: Vec::new(),
            diff: "+x\n".repeat(100),
        };
        let shown = changes.shown(Style::Plain);
        assert_eq!(shown.lines().count(), MOST_LINES + 1);
        assert!(shown.ends_with("  … 40 more lines"), "{shown}");
    }
}
