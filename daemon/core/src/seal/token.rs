//! The signature token: `rye:signed:TIME:HASH:SIGNATURE:FINGERPRINT`, optionally followed by `|PROVIDER@USER`.

use std::fmt;

use super::{Error, Fingerprint, PublicKey, SecretKey, Signature, is_lower_hex};
use crate::clock::Timestamp;

const HEAD: &str = "rye:signed:";
/// Length of `2026-04-01T00:00:00Z`.
const TIME_LEN: usize = 20;
const HASH_LEN: usize = 64;
const FINGERPRINT_LEN: usize = 16;

/// A signature with its hash, its key and its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// Time of signing in whole seconds, as claimed by the signer: no signature covers it.
    pub signed_at: Timestamp,
    /// SHA-256 of the covered text, in hex.
    pub hash: String,
    /// Signature over the digits of `hash`.
    pub signature: Signature,
    /// Key that signed.
    pub signer: Fingerprint,
}

impl Token {
    /// Signs `hash`, the hex digits of a SHA-256.
    pub fn sign(hash: String, key: &SecretKey, at: Timestamp) -> Self {
        Self {
            signed_at: Timestamp::from_ms(at.seconds() * 1000),
            signature: key.sign_hex(&hash),
            signer: key.public().fingerprint().clone(),
            hash,
        }
    }

    /// Parses a text that consists of a token only.
    pub fn parse(text: &str) -> Option<Self> {
        let (token, rest) = Self::parse_start(text)?;
        (rest.is_empty() || is_provenance(rest)).then_some(token)
    }

    /// Parses the token at the start of `text`, and returns the rest.
    pub(super) fn parse_start(text: &str) -> Option<(Self, &str)> {
        let rest = text.strip_prefix(HEAD)?;
        let (time, rest) = field(rest, TIME_LEN)?;
        let rest = rest.strip_prefix(':')?;
        let (hash, rest) = field(rest, HASH_LEN)?;
        let (signature, rest) = rest.strip_prefix(':')?.split_once(':')?;
        let (signer, rest) = field(rest, FINGERPRINT_LEN)?;
        let token = Self {
            signed_at: parse_time(time)?,
            hash: is_lower_hex(hash, HASH_LEN).then(|| hash.to_owned())?,
            signature: Signature::parse(signature)?,
            signer: signer.parse().ok()?,
        };
        Some((token, rest))
    }

    /// Checks that `key` is the key named by the token and that it made the signature.
    pub fn verify(&self, key: &PublicKey) -> Result<(), Error> {
        if *key.fingerprint() == self.signer && key.verifies(&self.hash, &self.signature) {
            Ok(())
        } else {
            Err(Error::BadSignature {
                signer: self.signer.clone(),
            })
        }
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = self.signed_at.to_seconds_string();
        write!(
            f,
            "{HEAD}{time}:{}:{}:{}",
            self.hash, self.signature, self.signer
        )
    }
}

fn field(text: &str, len: usize) -> Option<(&str, &str)> {
    text.split_at_checked(len)
}

fn parse_time(text: &str) -> Option<Timestamp> {
    Timestamp::parse(text).filter(|at| at.to_seconds_string() == text)
}

/// Returns true for `|provider@user`, the suffix that a registry appends.
fn is_provenance(text: &str) -> bool {
    let word = |word: &str| {
        !word.is_empty()
            && word
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
    };
    text.strip_prefix('|')
        .and_then(|text| text.split_once('@'))
        .is_some_and(|(provider, user)| word(provider) && word(user))
}
