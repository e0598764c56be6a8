//! Memory of all runs, for the texts of answers.

use std::sync::Arc;

use rye_core::memory::Memory;

use super::{Access, Visible};

impl Access {
    /// Memory of all runs.
    pub fn memory(&self) -> Arc<Memory> {
        self.journal().memory()
    }
}

impl Visible {
    /// Memory of all runs.
    pub fn memory(&self) -> Arc<Memory> {
        self.journal().memory()
    }
}
