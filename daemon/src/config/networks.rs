//! The setting `http.networks`.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Networks that calls of other hosts may reach; each value includes those above it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Networks {
    /// Public addresses.
    Public,
    /// Loopback and private networks too.
    #[default]
    Private,
    /// Link-local addresses and metadata services too.
    Any,
}

impl fmt::Display for Networks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Public => "public",
            Self::Private => "private",
            Self::Any => "any",
        })
    }
}
