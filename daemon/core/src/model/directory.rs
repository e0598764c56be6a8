//! Telling a directory from another one in its place.

use serde::{Deserialize, Serialize};

/// Which directory a path led to. It means something within one boot of the machine only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectoryIdentity {
    /// The boot.
    pub boot_id: String,
    /// The file system.
    pub device: u64,
    /// The directory on it.
    pub inode: u64,
}

impl DirectoryIdentity {
    /// Whether `found` is another one, as far as that can be told.
    pub fn is_other(&self, found: &Self) -> bool {
        let place = |identity: &Self| (identity.device, identity.inode);
        self.boot_id == found.boot_id && place(self) != place(found)
    }
}
