//! Signatures: keys, the token in a file, the bytes that it covers, and signed JSON.
//!
//! **Owns** the formats shared with the original system: the token `rye:signed:TIME:HASH:SIGNATURE:FINGERPRINT`, its
//! position in each type of file, canonical JSON, and PEM keys. The signed message is the 64 hex digits of a SHA-256.
//! The time in the token is information only; no signature covers it.
//!
//! **Coverage.** We sign the whole text except our own signature line ([`Coverage::Full`]). The original leaves out
//! shebangs, `---` metadata and the prose of directives. A token that fits only that part is [`Coverage::Partial`];
//! another module decides whether to accept it.
//!
//! **Never** trusts: [`inspect`] reads the claim of a text and checks its hash, and [`Token::verify`] checks that a
//! given key made the claim. Trust in that key is decided elsewhere.
//!
//! **Failure.** Nothing here panics on foreign input. Line ends are normalised before hashing. Code that uses a
//! verified text must use the [`normalise`]d text, because readers differ about a lone carriage return.

mod json;
mod key;
mod text;
mod token;

use sha2::{Digest, Sha256};

use crate::error::{ErrorKind, Kinded};
use crate::id::ItemKind;

pub use json::{canonical, canonical_object, sign_json, verify_json};
pub(crate) use json::{write_object, write_value};
pub use key::{Fingerprint, PublicKey, SecretKey, Signature};
pub use text::{Coverage, Seal, claim, inspect, normalise, sign_text, signature_line, strip};
pub use token::Token;

/// Reason why something is not signed, is not validly signed, or cannot be signed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No comment syntax is known for this type of file.
    #[error("a .{extension} file of type {kind} cannot carry a signature")]
    Unsupported { kind: ItemKind, extension: String },
    /// The required token is missing.
    #[error("there is no signature")]
    Unsigned,
    /// The hash of the content differs from the signed hash.
    #[error("the content was changed after {signer} signed it")]
    Modified {
        /// Key of the former content's signature, as the token claims.
        signer: Fingerprint,
    },
    /// The named key did not make the token.
    #[error("the signature was not made by key {signer}")]
    BadSignature {
        /// Key that the token names.
        signer: Fingerprint,
    },
    /// The text is not a PEM key of a supported form.
    #[error("not an Ed25519 {what} key in PEM form")]
    Key {
        /// `private` or `public`.
        what: &'static str,
        /// Finding of the decoder; it never holds a part of the key.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl Kinded for Error {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Unsupported { .. } | Self::Key { .. } => ErrorKind::Invalid,
            Self::Unsigned | Self::Modified { .. } | Self::BadSignature { .. } => ErrorKind::Denied,
        }
    }
}

/// Returns the SHA-256 of `bytes`, as 64 lowercase hex digits.
pub fn sha256_hex(bytes: impl AsRef<[u8]>) -> String {
    hex(&sha256(bytes))
}

/// Returns the SHA-256 of `bytes`.
pub fn sha256(bytes: impl AsRef<[u8]>) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// Returns `bytes` in lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .map(|nibble| char::from(DIGITS[usize::from(nibble)]))
        .collect()
}

fn is_lower_hex(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests;
