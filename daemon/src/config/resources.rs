//! Limits of the processes of tools.

use rye_core::model::Resources;

use super::layer::Stack;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ResourceSettings {
    /// Limits of processes that declare none.
    pub default: Resources,
    /// True if nothing starts whose limits the host does not enforce.
    pub are_required: bool,
}

impl ResourceSettings {
    pub(super) fn of(stack: &mut Stack) -> Self {
        let default = stack.pick("resources.default", |layer| layer.resources.default);
        let required = stack.pick("resources.required", |layer| layer.resources.required);
        Self {
            default: default.unwrap_or_default(),
            are_required: required.unwrap_or_default(),
        }
    }
}
