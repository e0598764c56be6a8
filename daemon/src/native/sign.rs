//! Signing of items with the key of the daemon: `rye/core/sign`, and the same operation of the API.
//!
//! **Rule.** A signature allows code to run. Each item needs the capability to sign it, and of several items none is
//! signed unless all may be. An item that could not be used afterwards is not signed ([`rye_item::sign`]). **Order.**
//! The file is signed first, then the event is recorded in the calling run. A repeated call after a crash finds the
//! file signed, and records it then. **Failure.** If one of several items cannot be signed, the others stay signed, and
//! the failed one is named.

use std::sync::Arc;

use rye_core::capability::{Denied, Layer, Primary, permit};
use rye_core::clock::Timestamp;
use rye_core::error::{ErrorKind, Kinded, with_sources};
use rye_core::id::{InvalidId, ItemKind};
use rye_core::model::event::ItemSigned;
use rye_core::model::{Event, Failure, Object};
use rye_core::seal::SecretKey;
use rye_item::keys::{self, KeyDir};
use rye_item::library;
use rye_item::sign::{self, Change, is_glob, targets_in};
use rye_item::spaces::ItemLocation;
use rye_item::{Item, Library, Origin, Space};
use serde::Deserialize;
use serde_json::{Value, json};

use super::session::{Session, read};
use crate::port::Refusal;
use crate::projects::{self, ProjectRef, ProjectView, Projects};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Project(#[from] projects::Error),
    #[error("failed to open the key of the daemon")]
    Key(#[from] keys::Error),
    #[error(transparent)]
    Sign(#[from] sign::Error),
    /// The item was signed, but cannot be used.
    #[error(transparent)]
    Item(#[from] Box<library::Error>),
    #[error("`item_type` cannot be read")]
    Kind(#[source] InvalidId),
    /// The parameters do not name what to sign.
    #[error("{0}")]
    Invalid(&'static str),
    #[error(transparent)]
    Denied(#[from] Denied),
}

impl Kinded for Error {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Project(error) => error.kind(),
            Self::Key(error) => error.kind(),
            Self::Sign(error) => error.kind(),
            Self::Item(error) => error.kind(),
            Self::Kind(_) | Self::Invalid(_) => ErrorKind::Invalid,
            Self::Denied(_) => ErrorKind::Denied,
        }
    }
}

/// Parameters of a request to sign.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignRequest {
    pub item_type: String,
    /// One item, or a pattern of ids.
    pub item_id: Option<String>,
    /// A pattern of ids.
    pub glob: Option<String>,
    /// Space of the items; default is the project.
    pub source: Option<String>,
}

#[derive(Debug)]
pub struct Done {
    /// Events of the calling run.
    pub events: Vec<ItemSigned>,
    /// Answer of the tool.
    pub answer: Value,
}

/// Signs the items that the parameters name.
pub(super) async fn sign(params: Object, session: &Session<'_>) -> Result<Value, Failure> {
    let asked: SignRequest = read(params)?;
    let layers = session.spec.layers.clone();
    let done = asked.sign_items(session.projects, session.spec, layers, session.clock.now());
    let done = done.await.map_err(|error| match error {
        Error::Denied(denied) => Failure::permanent("permission_denied", denied.to_string()),
        Error::Project(error) => {
            let gone = error.gone();
            gone.unwrap_or_else(|| Refusal::from(&error).of_item())
        }
        error @ (Error::Key(_)
        | Error::Sign(_)
        | Error::Item(_)
        | Error::Kind(_)
        | Error::Invalid(_)) => Refusal::from(&error).of_item(),
    })?;
    for event in done.events {
        (session.note)(Event::from(event));
    }
    Ok(done.answer)
}

impl SignRequest {
    /// Signs the items in the project of `site`, if each of `layers` allows it.
    pub async fn sign_items(
        self,
        projects: &Arc<Projects>,
        site: impl Into<ProjectRef>,
        layers: Vec<Layer>,
        at: Timestamp,
    ) -> Result<Done, Error> {
        let keys = KeyDir::new(projects.config().state_dir.join("keys"));
        let work = move |inside: &ProjectView<'_>| {
            let key = keys.load()?;
            self.carry_out(inside.library, &layers, &key, at)
        };
        projects.visit(site, "sign items", work).await
    }

    fn carry_out(
        &self,
        library: &Library,
        layers: &[Layer],
        key: &SecretKey,
        at: Timestamp,
    ) -> Result<Done, Error> {
        let kind: ItemKind = self.item_type.parse().map_err(Error::Kind)?;
        let ((Some(name), None) | (None, Some(name))) = (&self.item_id, &self.glob) else {
            return Err(Error::Invalid(
                "name what to sign by `item_id`, or by `glob`",
            ));
        };
        let space = match self.source.as_deref() {
            None | Some("project") => Space::Project,
            Some("user") => Space::User,
            Some(_) => {
                return Err(Error::Invalid(
                    "`source` is project or user: nothing else is signed",
                ));
            }
        };
        let places = targets_in(library.spaces(), space, kind, name)?;
        for place in &places {
            permit(layers, Primary::Sign, &place.item)?;
        }
        match places.as_slice() {
            [place] if !is_glob(name) && self.glob.is_none() => {
                let item = signed(library, place, key, at)?;
                Ok(Done {
                    answer: describe(&item),
                    events: event(&item).into_iter().collect(),
                })
            }
            places => Ok(batch(library, places, key, at)),
        }
    }
}

/// Signs one file, and verifies it as any later use will.
fn signed(
    library: &Library,
    place: &ItemLocation,
    key: &SecretKey,
    at: Timestamp,
) -> Result<SignedItem, Error> {
    let change = sign::sign(library.spaces(), place, key, at)?.change;
    let item = library.at(place).map_err(Box::new)?;
    Ok(SignedItem { item, change })
}

/// A signed item.
struct SignedItem {
    item: Arc<Item>,
    change: Change,
}

fn batch(library: &Library, places: &[ItemLocation], key: &SecretKey, at: Timestamp) -> Done {
    let (mut done, mut failed, mut events) = (Vec::new(), Vec::new(), Vec::new());
    for place in places {
        match signed(library, place, key, at) {
            Ok(item) => {
                done.push(place.item.id.as_str());
                events.extend(event(&item));
            }
            Err(error) => failed.push(json!({
                "item": place.item.id,
                "error": with_sources(&error),
            })),
        }
    }
    let status = if failed.is_empty() {
        "completed"
    } else {
        "completed_with_errors"
    };
    Done {
        answer: json!({
            "status": status,
            "signed": done,
            "failed": failed,
            "total": places.len(),
            "summary": format!("{} of {} items are signed", done.len(), places.len()),
        }),
        events,
    }
}

fn describe(SignedItem { item, change }: &SignedItem) -> Value {
    let message = match change {
        Change::Written => "signed",
        Change::Current => "was signed already",
    };
    let signature = match &item.origin {
        Origin::BuiltIn => Value::Null,
        Origin::Signed { token, .. } => json!({
            "timestamp": token.signed_at.to_seconds_string(),
            "hash": token.hash,
            "ed25519_sig": token.signature.to_string(),
            "pubkey_fp": token.signer.to_string(),
        }),
    };
    json!({
        "status": "signed",
        "item_id": item.item.id,
        "item_type": item.item.kind.as_str(),
        "path": item.path.display().to_string(),
        "location": item.space.as_str(),
        "signature": signature,
        "warnings": [],
        "message": format!("{} {message}", item.item),
    })
}

fn event(SignedItem { item, .. }: &SignedItem) -> Option<ItemSigned> {
    let signer = item.signer()?;
    Some(ItemSigned {
        item: item.item.to_string(),
        hash: item.content_hash.clone(),
        key_fp: signer.key.fingerprint().to_string(),
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use tempfile::TempDir;

    use super::*;

    /// A project whose daemon has a key.
    struct SignFixture {
        root: TempDir,
        key: SecretKey,
        library: Library,
    }

    impl SignFixture {
        fn new() -> Self {
            let (root, key, library) = crate::index::tests::project();
            Self { root, key, library }
        }

        /// Writes an unsigned tool; `version` may be invalid.
        fn tool(&self, id: &str, version: &str) -> PathBuf {
            let (category, name) = id.rsplit_once('/').unwrap();
            let path = self.root.path().join("project/.ai/tools");
            let path = path.join(format!("{id}.yaml"));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            let text = format!(
                "version: \"{version}\"\ntool_type: bash\nexecutor_id: rye/core/runtimes/bash\ncategory: {category}\nname: {name}\n"
            );
            fs::write(&path, text).unwrap();
            path
        }

        fn sign_items(&self, pattern: &str, params: Value) -> Result<Done, Error> {
            let asked: SignRequest = serde_json::from_value(params).unwrap();
            let layer = Layer {
                source: "a test".to_owned(),
                patterns: vec![pattern.to_owned()],
            };
            asked.carry_out(&self.library, &[layer], &self.key, Timestamp::default())
        }
    }

    #[test]
    fn single_item_result_has_signature() {
        let stage = SignFixture::new();
        let path = stage.tool("t/one", "1.0.0");
        let asked = json!({"item_type": "tool", "item_id": "t/one"});
        let done = stage
            .sign_items("rye.sign.tool.t.*", asked.clone())
            .unwrap();
        let fingerprint = stage.key.public().fingerprint().to_string();
        let answer = &done.answer;
        assert_eq!(answer["status"], "signed", "{answer}");
        assert_eq!(answer["signature"]["pubkey_fp"], fingerprint);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(answer["signature"]["ed25519_sig"].as_str().unwrap()));
        let expected = ItemSigned {
            item: "tool:t/one".to_owned(),
            hash: answer["signature"]["hash"].as_str().unwrap().to_owned(),
            key_fp: fingerprint,
        };
        assert_eq!(done.events, [expected]);
        // A repeated request does not change the signature.
        let again = stage.sign_items("rye.*", asked).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        assert_eq!(again.answer["message"], "tool:t/one was signed already");
    }

    #[test]
    fn several_items_are_signed_only_if_all_are_permitted() {
        let stage = SignFixture::new();
        let (one, other) = (stage.tool("t/one", "1.0.0"), stage.tool("u/one", "1.0.0"));
        let before = fs::read(&one).unwrap();
        let all = json!({"item_type": "tool", "glob": "**/one"});
        let error = stage
            .sign_items("rye.sign.tool.t.*", all.clone())
            .err()
            .unwrap();
        assert_eq!(error.kind(), ErrorKind::Denied);
        assert!(error.to_string().contains("rye.sign.tool.u.one"), "{error}");
        assert_eq!(fs::read(&one).unwrap(), before);
        let done = stage.sign_items("rye.sign.*", all).unwrap();
        assert_eq!(done.answer["status"], "completed");
        assert_eq!(done.answer["signed"], json!(["t/one", "u/one"]));
        assert_eq!(done.events.len(), 2);
        assert_ne!(fs::read(&other).unwrap(), before);
    }

    #[test]
    fn unsignable_item_is_named_and_others_signed() {
        let stage = SignFixture::new();
        stage.tool("t/good", "1.0.0");
        stage.tool("t/worse", "1");
        let all = json!({"item_type": "tool", "item_id": "t/*"});
        let answer = stage.sign_items("rye.*", all).unwrap().answer;
        assert_eq!(answer["status"], "completed_with_errors");
        assert_eq!(
            (&answer["signed"], &answer["total"]),
            (&json!(["t/good"]), &json!(2))
        );
        assert_eq!(answer["failed"][0]["item"], "t/worse");
        for (params, kind) in [
            (
                json!({"item_type": "tool", "item_id": "t/worse"}),
                ErrorKind::Invalid,
            ),
            (
                json!({"item_type": "tool", "item_id": "t/none"}),
                ErrorKind::NotFound,
            ),
            (
                json!({"item_type": "tool", "item_id": "../x"}),
                ErrorKind::Invalid,
            ),
            (
                json!({"item_type": "tool", "glob": "none/*"}),
                ErrorKind::NotFound,
            ),
            (
                json!({"item_type": "spoon", "item_id": "t/x"}),
                ErrorKind::Invalid,
            ),
            (json!({"item_type": "tool"}), ErrorKind::Invalid),
            (
                json!({"item_type": "tool", "item_id": "t/good", "source": "system"}),
                ErrorKind::Invalid,
            ),
        ] {
            let error = stage.sign_items("rye.*", params.clone()).err().unwrap();
            assert_eq!(error.kind(), kind, "{params}: {error}");
        }
    }
}
