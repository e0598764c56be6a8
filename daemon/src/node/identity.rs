//! The node key: made at the first start; signs system items, run files and heads of runs.
//!
//! **Rule.** An adopted state directory is a node of its own, with a key of its own. Signatures of the former keys
//! still count here. Their public keys are kept; the copied private key is deleted.
//!
//! **Order.** Before an adoption, history holds everything that the copied key must sign. A new pair is complete in
//! `keys.next` before `node.json` names it, which is the moment of the adoption. Then the previous public key is
//! written to `former-keys/<fingerprint>`, `keys` is removed, and `keys.next` is renamed to `keys`. A start that finds
//! an unfinished move completes it. **Failure.** A missing, different or damaged private key stops the start; none is
//! replaced. The public key is derived: a wrong file is rewritten.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use rye_core::clock::{Clock, Timestamp};
use rye_core::digest::Digest;
use rye_core::error::{ErrorKind, Kinded, with_sources};
use rye_core::id::ItemKind;
use rye_core::model::Object;
use rye_core::seal::{Fingerprint, PublicKey, SecretKey, Token, sign_json, signature_line};
use rye_item::keys::{self, KeyDir};
use rye_item::{system, trust};

use super::directory::{Former, RecordsOrigin, Signers};
use crate::config::Config;
use rye_host::fail_point::{self, FailPlace};
use rye_journal::{Signed, Signer};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("failed to open the node key")]
    Key(#[source] keys::Error),
    /// The key is not the one that signed the stored data.
    #[error(
        "the node key `{path}` {problem}, and what is next to it is signed with {expected}; put that key back"
    )]
    Lost {
        path: PathBuf,
        /// Key whose signatures occur in the directory.
        expected: Fingerprint,
        /// Problem of the current file.
        problem: String,
    },
    /// The keys of an adopted directory cannot be moved.
    #[error("failed to {operation} `{path}`")]
    Io {
        /// The failed operation.
        operation: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The user's trust store cannot be updated.
    #[error("failed to enter the node key into the user's trust store")]
    Trust(#[source] trust::Error),
    /// The system items cannot be installed.
    #[error("failed to install the system items")]
    System(#[source] system::Error),
}

impl Kinded for Error {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Key(source) => source.kind(),
            Self::Lost { .. } => ErrorKind::DataLoss,
            Self::Io { .. } => ErrorKind::Unavailable,
            Self::Trust(source) => source.kind(),
            Self::System(source) => source.kind(),
        }
    }
}

/// Folders of keys in a state directory.
#[derive(Debug)]
struct Folders<'a> {
    state: &'a Path,
    current: KeyDir,
    /// A pair that `node.json` may already name.
    next: KeyDir,
}

impl<'a> Folders<'a> {
    fn of(state: &'a Path) -> Self {
        Self {
            state,
            current: KeyDir::of_node(state),
            next: KeyDir::new(state.join("keys.next")),
        }
    }

    fn former(&self) -> PathBuf {
        keys::former(self.state)
    }

    /// Loads the key `expected` from its final place, and completes an interrupted adoption first.
    fn settle(&self, expected: &Fingerprint) -> Result<SecretKey, Error> {
        let lost = match load(&self.current, expected) {
            Ok(key) => return Ok(key),
            Err(lost) => lost,
        };
        let Ok(key) = load(&self.next, expected) else {
            return Err(lost);
        };
        match self.current.load() {
            Ok(before) => self.put_aside(&before)?,
            Err(keys::Error::Missing { .. }) => {}
            Err(error) => return Err(Error::Key(error)),
        }
        fail_point::reach(FailPlace::Adopting);
        let (next, keys) = (self.next.path(), self.current.path());
        // Rest of a pair without its private key.
        remove(keys)?;
        fs::rename(next, keys).map_err(failed("move", next))?;
        sync(self.state)?;
        Ok(key)
    }

    /// Stores the public key of the current pair `key` among the former ones, and deletes the private one.
    fn put_aside(&self, key: &SecretKey) -> Result<(), Error> {
        let place = self.of_former(key.public().fingerprint());
        let (former, folder) = (self.former(), place.path());
        let mut builder = DirBuilder::new();
        let made = builder.recursive(true).mode(0o700).create(folder);
        made.map_err(failed("create", folder))?;
        place.repair_public(key).map_err(Error::Key)?;
        sync(folder)?;
        sync(&former)?;
        sync(self.state)?;
        let private = self.current.private_path();
        fs::remove_file(&private).map_err(failed("remove", &private))?;
        sync(self.current.path())
    }

    fn of_former(&self, fingerprint: &Fingerprint) -> KeyDir {
        KeyDir::new(self.former().join(fingerprint.as_str()))
    }

    /// Makes the key that signs after `before`.
    fn adopt(&self, before: Option<&Signers>, now: Timestamp) -> Result<Signers, Error> {
        let mut former = Vec::new();
        let last = match before {
            Some(signers) => {
                let _there = self.settle(&signers.fingerprint)?;
                former.clone_from(&signers.former);
                Some(signers.fingerprint.clone())
            }
            // The owner of this key is unknown; it may have signed the data here.
            None => match self.current.load() {
                Ok(key) => Some(key.public().fingerprint().clone()),
                Err(keys::Error::Missing { .. }) => None,
                Err(error) => return Err(Error::Key(error)),
            },
        };
        former.extend(last.map(|fingerprint| Former {
            fingerprint,
            until: now,
        }));
        remove(self.next.path())?;
        let key = self.next.create().map_err(Error::Key)?;
        Ok(Signers {
            fingerprint: key.public().fingerprint().clone(),
            former,
        })
    }
}

fn failed(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Io {
        operation,
        path,
        source,
    }
}

/// Removes a folder, if it exists.
fn remove(folder: &Path) -> Result<(), Error> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(failed("remove", folder)(error))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

fn sync(folder: &Path) -> Result<(), Error> {
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(failed("sync", folder))
}

/// The key of `folder`, if its fingerprint is `expected`.
fn load(folder: &KeyDir, expected: &Fingerprint) -> Result<SecretKey, Error> {
    let found = |key: &SecretKey| key.public().fingerprint().clone();
    expect(folder.load(), found, expected, folder.private_path())
}

/// Checks the fingerprint of the key `loaded` from `path` against `expected`.
fn expect<K>(
    loaded: Result<K, keys::Error>,
    found: impl Fn(&K) -> Fingerprint,
    expected: &Fingerprint,
    path: PathBuf,
) -> Result<K, Error> {
    let problem = match loaded {
        Ok(key) if found(&key) == *expected => return Ok(key),
        Ok(key) => format!("is another one ({})", found(&key)),
        Err(keys::Error::Missing { .. }) => "is gone".to_owned(),
        Err(keys::Error::Malformed { source, .. }) => {
            format!("is damaged ({})", with_sources(&source))
        }
        Err(error) => return Err(Error::Key(error)),
    };
    let expected = expected.clone();
    Err(Error::Lost {
        path,
        expected,
        problem,
    })
}

/// The public key of a former pair, if its fingerprint is `expected`.
fn load_public(folders: &Folders<'_>, expected: &Fingerprint) -> Result<PublicKey, Error> {
    let folder = folders.of_former(expected);
    let found = |key: &PublicKey| key.fingerprint().clone();
    expect(folder.load_public(), found, expected, folder.public_path())
}

/// The key that seals the records of a copied state directory before the adoption; `None` if the directory has none.
pub(super) fn of_copy(state: &Path, before: Option<&Signers>) -> Result<Option<NodeKey>, Error> {
    if let Some(signers) = before {
        return NodeKey::load(state, signers).map(Some);
    }
    match Folders::of(state).current.load() {
        Ok(current) => Ok(Some(NodeKey {
            current,
            former: Vec::new(),
        })),
        Err(keys::Error::Missing { .. }) => Ok(None),
        Err(error) => Err(Error::Key(error)),
    }
}

/// Determines the signers of the state directory `state`. Makes a key for a directory that has none, or is to be
/// adopted; the key signs only once it is recorded.
pub(super) fn signers(
    state: &Path,
    origin: &RecordsOrigin,
    now: Timestamp,
) -> Result<Signers, Error> {
    let folders = Folders::of(state);
    match origin {
        RecordsOrigin::New => {
            let (key, _) = folders.current.load_or_create().map_err(Error::Key)?;
            Ok(Signers {
                fingerprint: key.public().fingerprint().clone(),
                former: Vec::new(),
            })
        }
        RecordsOrigin::Own(signers) | RecordsOrigin::Adopted(signers) => Ok(signers.clone()),
        RecordsOrigin::Copied(before) => {
            let adopted = folders.adopt(before.as_ref(), now)?;
            fail_point::reach(FailPlace::Adopting);
            Ok(adopted)
        }
    }
}

/// Keys that sign for this node.
#[derive(Debug)]
pub(super) struct NodeKey {
    current: SecretKey,
    /// Former keys, which no longer sign.
    former: Vec<PublicKey>,
}

impl NodeKey {
    /// Opens the keys of `signers`, enters the current one in the user's trusted keys, and installs the system items it
    /// signs.
    pub(super) fn open(
        config: &Config,
        signers: &Signers,
        clock: &dyn Clock,
    ) -> Result<Self, Error> {
        let key = Self::load(&config.state_dir, signers)?;
        let (user, current) = (&config.user_space, &key.current);
        let word = trust::introduce(user, current, "ryed", clock.now()).map_err(Error::Trust)?;
        if word == trust::TrustState::TakenOut {
            // This node verifies its own data with its own key; only others do not trust it.
            tracing::warn!(
                fingerprint = %key.fingerprint(),
                "the user took the node key out of the trusted keys; `ryectl key trust {}` trusts it again",
                Folders::of(&config.state_dir).current.public_path().display()
            );
        }
        system::install(&config.state_dir, current, clock.now()).map_err(Error::System)?;
        Ok(key)
    }

    fn load(state: &Path, signers: &Signers) -> Result<Self, Error> {
        let folders = Folders::of(state);
        let current = folders.settle(&signers.fingerprint)?;
        repair_public(&folders.current, &current);
        let former = signers.former.iter();
        let former = former.map(|former| load_public(&folders, &former.fingerprint));
        Ok(Self {
            current,
            former: former.collect::<Result<_, Error>>()?,
        })
    }

    pub(super) fn fingerprint(&self) -> &Fingerprint {
        self.current.public().fingerprint()
    }

    fn public(&self) -> impl Iterator<Item = &PublicKey> {
        self.former.iter().chain([self.current.public()])
    }
}

/// Repairs the file of the public key, because users pass it on for others to trust.
fn repair_public(folder: &KeyDir, key: &SecretKey) {
    let path = folder.public_path();
    match folder.repair_public(key) {
        Ok(false) => {}
        Ok(true) => tracing::warn!(
            path = %path.display(),
            fingerprint = %key.public().fingerprint(),
            "the public key of this node was damaged, another one or gone; it is written anew from the private one"
        ),
        Err(error) => tracing::warn!(
            error = %with_sources(&error),
            "the public key of this node is damaged, another one or gone, and cannot be written anew"
        ),
    }
}

impl Signer for NodeKey {
    fn sign(&self, head: &Digest) -> Signed<'_> {
        let key = &self.current;
        Signed {
            signature: key.sign_hex(&head.to_string()),
            signer: key.public().fingerprint(),
        }
    }

    fn sign_text(&self, mut body: String, at: Timestamp) -> String {
        let line = signature_line(ItemKind::Knowledge, "md", &body, &self.current, at)
            .expect("knowledge in Markdown can be signed");
        // Inserted in place, because a page may be large.
        body.insert_str(0, &line);
        body
    }

    fn sign_json(&self, document: &Object, at: Timestamp) -> Object {
        let mut document = document.clone();
        sign_json(&mut document, &self.current, at);
        document
    }

    fn verifies(&self, token: &Token) -> bool {
        self.public().any(|key| token.verify(key).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: Timestamp = Timestamp::from_ms(1_000);
    const ADOPTED: Timestamp = Timestamp::from_ms(2_000);

    fn first(state: &Path) -> Signers {
        signers(state, &RecordsOrigin::New, BEFORE).unwrap()
    }

    fn adopted(state: &Path, before: Option<Signers>) -> Signers {
        signers(state, &RecordsOrigin::Copied(before), ADOPTED).unwrap()
    }

    /// Token of a checkpoint at `at`.
    fn token(key: &NodeKey, at: Timestamp) -> Token {
        let head = Digest::of("head");
        let Signed { signature, signer } = key.sign(&head);
        Token {
            signed_at: at,
            hash: head.to_string(),
            signature,
            signer: signer.clone(),
        }
    }

    #[test]
    fn adopted_copy_gets_own_key_and_keeps_former_public_key() {
        let home = tempfile::tempdir().unwrap();
        let state = home.path();
        let before = first(state);
        let key = NodeKey::load(state, &before).unwrap();
        let original = token(&key, BEFORE);
        let after = adopted(state, Some(before.clone()));
        assert_ne!(after.fingerprint, before.fingerprint);
        let adopted = NodeKey::load(state, &after).unwrap();
        assert_eq!(adopted.fingerprint(), &after.fingerprint);
        assert!(adopted.verifies(&original));
        let former = state.join("former-keys").join(before.fingerprint.as_str());
        let names = fs::read_dir(former).unwrap();
        let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["public_key.pem"]);
        let own = token(&adopted, ADOPTED);
        assert_eq!(own.signer, after.fingerprint);
        assert!(adopted.verifies(&own));
        assert!(!key.verifies(&own), "the original does not sign so");
        // A copy of the copy has two former keys.
        let third = signers(
            state,
            &RecordsOrigin::Copied(Some(after)),
            Timestamp::from_ms(3_000),
        )
        .unwrap();
        let third = NodeKey::load(state, &third).unwrap();
        for signed in [original, own] {
            assert!(third.verifies(&signed));
        }
    }

    #[test]
    fn interrupted_adoption_keeps_old_key_or_completes() {
        let home = tempfile::tempdir().unwrap();
        let state = home.path();
        let (keys, next) = (state.join("keys"), state.join("keys.next"));
        let before = first(state);
        // Nothing is recorded yet, so the new pair has no effect.
        let unrecorded = adopted(state, Some(before.clone()));
        let key = NodeKey::load(state, &before).unwrap();
        assert_eq!(key.fingerprint(), &before.fingerprint);
        let after = adopted(state, Some(before.clone()));
        assert_ne!(after.fingerprint, unrecorded.fingerprint, "it is made anew");
        // Recorded, and the previous private key is deleted.
        let former = state.join("former-keys");
        let place = former.join(before.fingerprint.as_str());
        fs::create_dir_all(&place).unwrap();
        fs::copy(keys.join("public_key.pem"), place.join("public_key.pem")).unwrap();
        fs::remove_file(keys.join("private_key.pem")).unwrap();
        for _ in 0..2 {
            let key = NodeKey::load(state, &after).unwrap();
            assert_eq!(key.fingerprint(), &after.fingerprint);
            assert_eq!(key.former.len(), 1);
            assert!(keys.exists() && !next.exists());
        }
        // A former key is not replaced either.
        fs::remove_dir_all(&former).unwrap();
        let lost = NodeKey::load(state, &after).unwrap_err();
        assert_eq!(lost.kind(), ErrorKind::DataLoss);
        assert!(lost.to_string().contains("former-keys"), "{lost}");
    }

    #[test]
    fn unrecorded_copy_keeps_existing_key_as_former() {
        let home = tempfile::tempdir().unwrap();
        let state = home.path();
        let before = first(state);
        let after = adopted(state, None);
        let former = &after.former[..];
        assert!(
            matches!(former, [one] if one.fingerprint == before.fingerprint && one.until == ADOPTED),
            "{former:?}"
        );
        let _key = NodeKey::load(state, &after).unwrap();
        let bare = tempfile::tempdir().unwrap();
        assert_eq!(adopted(bare.path(), None).former, []);
    }

    #[test]
    fn private_key_detects_any_bit_flip() {
        let home = tempfile::tempdir().unwrap();
        let signers = first(home.path());
        let path = home.path().join("keys/private_key.pem");
        let sound = fs::read(&path).unwrap();
        for at in 0..sound.len() {
            for bit in [0, 5] {
                let mut flipped = sound.clone();
                flipped[at] ^= 1 << bit;
                fs::write(&path, &flipped).unwrap();
                match NodeKey::load(home.path(), &signers) {
                    Err(error @ Error::Lost { .. }) => {
                        assert!(error.to_string().contains("private_key.pem"), "{error}");
                    }
                    Err(error) => panic!("byte {at}: {error}"),
                    // Text around the key may change, and a line end may become another blank.
                    Ok(key) => assert_eq!(key.fingerprint(), &signers.fingerprint, "byte {at}"),
                }
            }
        }
        fs::write(&path, sound).unwrap();
        let _sound = NodeKey::load(home.path(), &signers).unwrap();
    }

    #[test]
    fn public_key_that_differs_is_rewritten() {
        let home = tempfile::tempdir().unwrap();
        let signers = first(home.path());
        let path = home.path().join("keys/public_key.pem");
        let sound = fs::read(&path).unwrap();
        fs::write(&path, "-----BEGIN PUBLIC KEY-----").unwrap();
        let _key = NodeKey::load(home.path(), &signers).unwrap();
        assert_eq!(fs::read(&path).unwrap(), sound);
    }
}
