//! Parsed contracts of threads.
//!
//! **Owns** the contracts in use, by the SHA-256 of their text. Threads of one directive and one model share a
//! contract. The compiled error patterns of a provider take some hundred kilobytes. **Never** parses under a lock.
//! **Failure.** An invalid text is parsed again at each request.

use std::sync::Arc;

use rye_core::seal::sha256_hex;
use rye_core::thread::Terms;

use rye_host::cache::{self, Cache};

/// Cache capacity. A contract in use by a thread stays alive after eviction.
const MOST: usize = 64;

#[derive(Debug)]
pub struct Contracts {
    read: Cache<String, Terms>,
}

impl Default for Contracts {
    fn default() -> Self {
        Self {
            read: cache::of_count(MOST),
        }
    }
}

impl Contracts {
    /// Returns the contract that `text` holds, or the reason why it is invalid.
    pub fn read(&self, text: &str) -> Result<Arc<Terms>, String> {
        let read = || Terms::read(text).map(Arc::new);
        self.read.get_or_insert_with(&sha256_hex(text), read)
    }
}
