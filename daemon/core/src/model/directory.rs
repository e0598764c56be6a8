//! Identifies a directory, so that another one at its path is noticed.

use serde::{Deserialize, Serialize};

/// Identity of a directory. It means something within one boot of the machine only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectoryIdentity {
    pub boot_id: String,
    /// Device number of the file system.
    pub device: u64,
    pub inode: u64,
}

impl DirectoryIdentity {
    /// True if `found` is another directory, as far as that is known.
    pub fn is_other(&self, found: &Self) -> bool {
        let place = |identity: &Self| (identity.device, identity.inode);
        self.boot_id == found.boot_id && place(self) != place(found)
    }
}
