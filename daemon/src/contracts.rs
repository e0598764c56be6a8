//! What threads go by, each contract read once.
//!
//! **Owns** the contracts in use by the SHA-256 of their text. Threads of one directive and one model go by the same, and the patterns by
//! which the errors of a provider are classed take some hundred kilobytes once they are compiled. **Never** parses under a lock.
//! **Failure.** A text that is no contract is read again at each request.

use std::sync::Arc;

use rye_core::seal::sha256_hex;
use rye_core::thread::Terms;

use crate::memo::Memo;

/// How many are kept. Those that a thread goes by stay as long as it does.
const MOST: usize = 64;

/// The contracts in use.
#[derive(Debug)]
pub struct Contracts {
    read: Memo<Terms>,
}

impl Default for Contracts {
    fn default() -> Self {
        Self {
            read: Memo::new(MOST),
        }
    }
}

impl Contracts {
    /// The contract that `text` holds, or why it holds none.
    pub fn read(&self, text: &str) -> Result<Arc<Terms>, String> {
        let read = || Terms::read(text);
        self.read.get_or_make(&sha256_hex(text), 1, read)
    }
}
