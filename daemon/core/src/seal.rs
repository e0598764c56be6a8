//! Signatures: keys, the token that stands in a file, which bytes it covers, and signed JSON.
//!
//! **Owns** the formats shared with the original system: the token `rye:signed:TIME:HASH:SIGNATURE:FINGERPRINT`,
//! where it stands in each type of file, canonical JSON, and PEM keys. The signed message is the 64 hex digits of a
//! SHA-256; the time in the token is information only, no signature covers it.
//!
//! **Coverage.** We sign the whole text except our own signature line ([`Coverage::Full`]). The original leaves out
//! shebangs, `---` metadata and the prose of directives; a token that fits only that part is
//! [`Coverage::Partial`], and whether to accept it is a decision of trust made elsewhere.
//!
//! **Never** trusts: [`inspect`] says what a text claims and that its hash fits, [`Token::verify`] that a given key
//! made the claim. Whether that key counts is not known here.
//!
//! **Failure.** Nothing here panics on foreign input. Line ends are normalised before hashing, so code that uses a
//! verified text must use the [`normalise`]d text: a lone carriage return means other things to other readers.

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

/// Why something is not signed, not signed well, or cannot be.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No comment syntax is known for this type of file.
    #[error("a .{extension} file of type {kind} cannot carry a signature")]
    Unsupported {
        /// The type of the item.
        kind: ItemKind,
        /// The file's extension.
        extension: String,
    },
    /// There is no token where one must stand.
    #[error("there is no signature")]
    Unsigned,
    /// The content does not have the hash that was signed.
    #[error("the content was changed after {signer} signed it")]
    Modified {
        /// The key that signed the former content, if the token tells the truth.
        signer: Fingerprint,
    },
    /// The token was not made by the key it names.
    #[error("the signature was not made by key {signer}")]
    BadSignature {
        /// The key the token names.
        signer: Fingerprint,
    },
    /// A text is no PEM key that we can read.
    #[error("not an Ed25519 {what} key in PEM form")]
    Key {
        /// `private` or `public`.
        what: &'static str,
        /// What the decoder found; never any part of the key.
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

/// The SHA-256 of `bytes`, as 64 lowercase hex digits.
pub fn sha256_hex(bytes: impl AsRef<[u8]>) -> String {
    hex(&sha256(bytes))
}

/// SHA-256.
pub fn sha256(bytes: impl AsRef<[u8]>) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// `bytes` in lower-case hexadecimal digits.
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
