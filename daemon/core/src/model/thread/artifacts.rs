//! The long results that the model of a thread was shown.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::conversation::Digest;

/// Most results that can be read again; the record of a thread stays small however long it lives.
pub const MOST_ARTIFACTS: usize = 128;

/// The names of the long results of which the model received an outline, the newest last.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Artifacts(VecDeque<Digest>);

impl Artifacts {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the model was shown it, and not too many others since.
    pub fn holds(&self, name: &Digest) -> bool {
        self.0.contains(name)
    }

    /// The model is shown another one, or one once more.
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
