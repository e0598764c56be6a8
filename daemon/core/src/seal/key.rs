//! Ed25519 keys, fingerprints and signatures.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ed25519_dalek::pkcs8::spki::der::pem::LineEnding;
use ed25519_dalek::pkcs8::{
    DecodePrivateKey as _, DecodePublicKey as _, EncodePrivateKey as _, EncodePublicKey as _,
    KeypairBytes,
};
use ed25519_dalek::{Signer as _, SigningKey, VerifyingKey};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::{Error, is_lower_hex, sha256_hex};
use crate::id::InvalidId;

/// Name of a public key: the first 16 hex digits of the SHA-256 of its PEM text.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Fingerprint(String);

impl Fingerprint {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Fingerprint {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        if is_lower_hex(text, 16) {
            Ok(Self(text.to_owned()))
        } else {
            Err(InvalidId {
                text: text.to_owned(),
                what: "a key fingerprint",
                reason: "it must be 16 lowercase hex digits",
            })
        }
    }
}

impl TryFrom<String> for Fingerprint {
    type Error = InvalidId;

    fn try_from(text: String) -> Result<Self, InvalidId> {
        text.parse()
    }
}

impl From<Fingerprint> for String {
    fn from(fingerprint: Fingerprint) -> Self {
        fingerprint.0
    }
}

/// An Ed25519 signature. Its text form is base64url without padding.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Signature([u8; 64]);

impl Signature {
    /// Reads the text form. Trailing padding is accepted, because older files have it.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).ok()?;
        bytes.try_into().ok().map(Self)
    }
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&URL_SAFE_NO_PAD.encode(self.0))
    }
}

impl fmt::Debug for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Signature({self})")
    }
}

/// A key that verifies signatures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicKey {
    key: VerifyingKey,
    fingerprint: Fingerprint,
}

impl PublicKey {
    /// Reads an SPKI PEM text.
    pub fn from_pem(pem: &str) -> Result<Self, Error> {
        VerifyingKey::from_public_key_pem(pem.trim())
            .map(Self::new)
            .map_err(|source| Error::Key {
                what: "public",
                source: Box::new(source),
            })
    }

    fn new(key: VerifyingKey) -> Self {
        Self {
            fingerprint: Fingerprint(sha256_hex(pem(&key))[..16].to_owned()),
            key,
        }
    }

    /// Returns the SPKI PEM text with one final line feed. The fingerprint is computed over it.
    pub fn to_pem(&self) -> String {
        pem(&self.key)
    }

    pub fn fingerprint(&self) -> &Fingerprint {
        &self.fingerprint
    }

    /// Returns true if this key made `signature` over the hex digits `hash`.
    pub fn verifies(&self, hash: &str, signature: &Signature) -> bool {
        let signature = ed25519_dalek::Signature::from_bytes(&signature.0);
        self.key.verify_strict(hash.as_bytes(), &signature).is_ok()
    }
}

fn pem(key: &VerifyingKey) -> String {
    key.to_public_key_pem(LineEnding::LF)
        .expect("a public key of fixed size always encodes")
}

/// A signing key. It is wiped from memory when dropped, and never displayed.
pub struct SecretKey {
    key: SigningKey,
    public: PublicKey,
}

impl SecretKey {
    /// Creates the key of 32 secret random bytes.
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        Self::new(SigningKey::from_bytes(seed))
    }

    /// Reads a PKCS#8 PEM text, version 1 or 2.
    pub fn from_pem(pem: &str) -> Result<Self, Error> {
        SigningKey::from_pkcs8_pem(pem.trim())
            .map(Self::new)
            .map_err(|source| Error::Key {
                what: "private",
                source: Box::new(source),
            })
    }

    fn new(key: SigningKey) -> Self {
        Self {
            public: PublicKey::new(key.verifying_key()),
            key,
        }
    }

    /// Returns the PKCS#8 PEM text in version 1, which every reader knows.
    pub fn to_pem(&self) -> Zeroizing<String> {
        let version_1 = KeypairBytes {
            secret_key: *self.key.as_bytes(),
            public_key: None,
        };
        version_1
            .to_pkcs8_pem(LineEnding::LF)
            .expect("a private key of fixed size always encodes")
    }

    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    /// Signs the hex digits `hash` of a SHA-256.
    pub fn sign_hex(&self, hash: &str) -> Signature {
        Signature(self.key.sign(hash.as_bytes()).to_bytes())
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretKey({}, ..)", self.public.fingerprint)
    }
}
