//! Memory of the texts of answers.

use std::sync::Arc;

use rye_core::memory::Memory;

use super::{Access, Visible};

impl Access {
    /// Memory of the texts of all answers.
    pub fn answer_memory(&self) -> Arc<Memory> {
        self.supervisor.answer_memory()
    }
}

impl Visible {
    /// Memory of the texts of all answers.
    pub fn answer_memory(&self) -> Arc<Memory> {
        self.supervisor.answer_memory()
    }
}
