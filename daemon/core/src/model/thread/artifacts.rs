//! The long results that the model of a thread received in outline.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::conversation::Digest;

/// Limit of the results that can be read again; it bounds the record of a thread.
pub const MOST_ARTIFACTS: usize = 128;

/// The names of the long results of which the model received an outline, the newest last.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Artifacts(VecDeque<Digest>);

impl Artifacts {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if the model received it, and it is still among the newest `MOST_ARTIFACTS`.
    pub fn holds(&self, name: &Digest) -> bool {
        self.0.contains(name)
    }

    /// Adds a result as the newest; an earlier entry of it is removed.
    pub(crate) fn add(&mut self, name: &Digest) {
        self.0.retain(|known| known != name);
        self.0.push_back(*name);
        if self.0.len() > MOST_ARTIFACTS {
            self.0.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_are_held_and_each_once() {
        let name = |number: usize| Digest::of(number.to_string());
        let mut artifacts = Artifacts::default();
        for number in 0..MOST_ARTIFACTS {
            artifacts.add(&name(number));
        }
        artifacts.add(&name(0));
        assert!(artifacts.holds(&name(1)), "0 was told of once more");
        artifacts.add(&name(MOST_ARTIFACTS));
        assert!(!artifacts.holds(&name(1)));
        assert!(artifacts.holds(&name(0)) && artifacts.holds(&name(2)));
        assert_eq!(artifacts.0.len(), MOST_ARTIFACTS);
    }
}
