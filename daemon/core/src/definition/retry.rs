//! Repeated tries of a failed node, and the pauses between them.

use std::time::Duration;

use super::backoff::{Backoff, Retry};
use super::keys;
use super::read::{At, Reader};
use crate::declared::Zero;
use crate::model::DEFAULT_RETRIES;

/// The pause of a back-off that names none.
const DEFAULT_PAUSE: Duration = Duration::from_secs(1);
/// The longest exponential pause if the file sets none.
const DEFAULT_LONGEST: Duration = Duration::from_mins(1);

/// The values of `backoff`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    None,
    Fixed,
    Exponential,
}

impl<'d> Reader<'d> {
    /// Reads `retry`: a number of tries, or a map.
    pub(super) fn retry(&mut self, node: &At<'d>) -> Option<Retry> {
        let at = node.given("retry")?;
        if at.value.is_object() {
            return self.retry_map(&at);
        }
        let max = self.whole(node, "retry", 0)?;
        Some(Retry {
            max,
            backoff: Backoff::None,
        })
    }

    fn retry_map(&mut self, at: &At<'d>) -> Option<Retry> {
        self.map(at, &keys::RETRY)?;
        if let (Some(_), Some(both)) = (at.given("max"), at.given("max_retries")) {
            let message = "`max_retries` beside `max`: keep one";
            self.error("conflict", both.named(), message);
        }
        let max = self
            .whole(at, "max", 0)
            .or_else(|| self.whole(at, "max_retries", 0))
            .unwrap_or(DEFAULT_RETRIES);
        let delay = self.seconds(at, "delay", Zero::Allowed);
        let base = self.seconds(at, "base", Zero::Refused);
        let max_delay = self.seconds(at, "max_delay", Zero::Allowed);
        let shape = if at.given("backoff").is_some() {
            self.word(
                at,
                "backoff",
                &[
                    ("none", Shape::None),
                    ("fixed", Shape::Fixed),
                    ("exponential", Shape::Exponential),
                ],
            )?
        } else if base.is_some() || max_delay.is_some() {
            Shape::Exponential
        } else if delay.is_some() {
            Shape::Fixed
        } else {
            Shape::None
        };
        let (unused, why): (&[&str], _) = match shape {
            Shape::None => (&["delay", "base", "max_delay"], "there is no pause"),
            Shape::Fixed => (&["base", "max_delay"], "a fixed pause has `delay`"),
            Shape::Exponential => (&["delay"], "the first pause is `base`"),
        };
        for key in unused {
            if let Some(child) = at.given(key) {
                let message = format!("`{key}` has no effect: {why}");
                self.warn("no_effect", child.named(), message);
            }
        }
        let backoff = match shape {
            Shape::None => Backoff::None,
            Shape::Fixed => Backoff::Fixed(delay.unwrap_or(DEFAULT_PAUSE)),
            Shape::Exponential => Backoff::Exponential {
                base: base.unwrap_or(DEFAULT_PAUSE).as_secs_f64(),
                max: max_delay.unwrap_or(DEFAULT_LONGEST),
            },
        };
        Some(Retry { max, backoff })
    }
}
