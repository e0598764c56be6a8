//! The setting `ports.range`.

use std::fmt;
use std::ops::RangeInclusive;

use serde::{Deserialize, Deserializer, de};

/// Ports that managed processes are given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortRange(pub RangeInclusive<u16>);

impl Default for PortRange {
    /// Below the ports that the kernel gives to clients, so that none of these is in the way.
    fn default() -> Self {
        Self(20_000..=32_767)
    }
}

impl PortRange {
    fn parse(text: &str) -> Option<Self> {
        let (first, last) = text.split_once('-')?;
        let first = first.trim().parse().ok()?;
        let range = first..=last.trim().parse().ok()?;
        (first > 0 && !range.is_empty()).then_some(Self(range))
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.0.start(), self.0.end())
    }
}

impl<'de> Deserialize<'de> for PortRange {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let range = Self::parse(&text);
        range.ok_or_else(|| {
            let text = format!("{text:?} is no range of ports, such as {}", Self::default());
            de::Error::custom(text)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_is_two_ports_in_order() {
        assert_eq!(PortRange::parse("20000-32767"), Some(PortRange::default()));
        assert_eq!(PortRange::parse("7 - 7"), Some(PortRange(7..=7)));
        for wrong in ["", "1", "2-1", "0-5", "1-65536", "a-b", "-", "1-2-3"] {
            assert_eq!(PortRange::parse(wrong), None, "{wrong}");
        }
    }
}
