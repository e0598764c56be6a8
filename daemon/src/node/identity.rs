//! The node key: made at the first start, signs system items, run files and heads of runs.

use std::path::PathBuf;

use rye_core::clock::{Clock, Timestamp};
use rye_core::error::{ErrorKind, Kinded};
use rye_core::id::ItemKind;
use rye_core::model::Object;
use rye_core::seal::{Fingerprint, SecretKey, Token, sign_json, signature_line};
use rye_item::keys::{self, KeyDir};
use rye_item::{system, trust};

use super::directory::Origin;
use crate::config::Config;
use crate::journal::Signer;

/// Why the node has no identity.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Its key.
    #[error("failed to open the node key")]
    Key(#[source] keys::Error),
    /// The key is not the one that signed what is kept here.
    #[error(
        "the node key `{path}` {}, and what is kept beside it is signed with {expected}; put that key back",
        found.as_ref().map_or_else(|| "is gone".to_owned(), |found| format!("is another one ({found})"))
    )]
    Lost {
        /// The private key.
        path: PathBuf,
        /// Whose signatures there are.
        expected: String,
        /// The key that is there, if there is one.
        found: Option<Fingerprint>,
    },
    /// The user's trust store.
    #[error("failed to enter the node key into the user's trust store")]
    Trust(#[source] trust::Error),
    /// The items that come with the daemon.
    #[error("failed to install the system items")]
    System(#[source] system::Error),
}

impl Kinded for Error {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Key(source) => source.kind(),
            Self::Lost { .. } => ErrorKind::DataLoss,
            Self::Trust(source) => source.kind(),
            Self::System(source) => source.kind(),
        }
    }
}

/// The key that signs in the name of this node.
#[derive(Debug)]
pub(super) struct NodeKey {
    secret: SecretKey,
}

impl NodeKey {
    /// Opens the key, or makes one where nothing is kept yet, lets the user trust it, and installs the system items it signs.
    pub(super) fn open(config: &Config, origin: &Origin, clock: &dyn Clock) -> Result<Self, Error> {
        let folder = KeyDir::new(config.state_dir.join("keys"));
        let secret = match origin {
            Origin::New | Origin::Copied(None) => folder.load_or_create().map_err(Error::Key)?.0,
            Origin::Own(signer) | Origin::Copied(Some(signer)) => load(&folder, signer)?,
        };
        let word = trust::introduce(&config.user_space, &secret, "ryed", clock.now());
        if word.map_err(Error::Trust)? == trust::Word::TakenOut {
            // What this node keeps for itself it checks with the key at hand; only others do not believe it.
            tracing::warn!(
                fingerprint = %secret.public().fingerprint(),
                "the user took the node key out of the trusted keys; `ryectl key trust {}` trusts it again",
                folder.public_path().display()
            );
        }
        system::install(&config.state_dir, &secret, clock.now()).map_err(Error::System)?;
        Ok(Self { secret })
    }

    pub(super) fn fingerprint(&self) -> &Fingerprint {
        self.secret.public().fingerprint()
    }
}

/// The key of `folder`, if it is the one called `expected`.
fn load(folder: &KeyDir, expected: &str) -> Result<SecretKey, Error> {
    let lost = |found| Error::Lost {
        path: folder.private_path(),
        expected: expected.to_owned(),
        found,
    };
    match folder.load() {
        Ok(key) if key.public().fingerprint().as_str() == expected => Ok(key),
        Ok(key) => Err(lost(Some(key.public().fingerprint().clone()))),
        Err(keys::Error::Missing { .. }) => Err(lost(None)),
        Err(error) => Err(Error::Key(error)),
    }
}

impl Signer for NodeKey {
    fn sign_hex(&self, hash: &str, at: Timestamp) -> String {
        Token::sign(hash.to_owned(), &self.secret, at).to_string()
    }

    fn sign_text(&self, mut body: String, at: Timestamp) -> String {
        let line = signature_line(ItemKind::Knowledge, "md", &body, &self.secret, at)
            .expect("knowledge in Markdown can be signed");
        // In its place: a page may be large.
        body.insert_str(0, &line);
        body
    }

    fn sign_json(&self, document: &Object, at: Timestamp) -> Object {
        let mut document = document.clone();
        sign_json(&mut document, &self.secret, at);
        document
    }

    fn verify_hex(&self, token: &str, hash: &str) -> bool {
        Token::parse(token)
            .is_some_and(|token| token.hash == hash && token.verify(self.secret.public()).is_ok())
    }
}
