//! Limits on the resources of the processes of an attempt, which the kernel enforces for all of them together.

use std::fmt;

use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Number, Value};

use crate::expr::nearest;

const KIB: u64 = 1 << 10;
/// Units of memory, the largest first.
const UNITS: [(&str, u64); 4] = [
    ("TiB", KIB << 30),
    ("GiB", KIB << 20),
    ("MiB", KIB << 10),
    ("KiB", KIB),
];
const LEAST_MEMORY: u64 = KIB << 10;
const MOST_MEMORY: u64 = 1024 * (KIB << 30);
/// Most processes that the kernel knows.
const MOST_PIDS: u64 = 1 << 22;
const LEAST_CPU: f64 = 0.01;
const MOST_CPU: f64 = 1024.0;
/// Parts of a processor that are distinguished.
const PARTS: f64 = 1000.0;

/// A resource that can be limited. Its name is also that of the kernel's controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Resource {
    Memory,
    Pids,
    Cpu,
}

impl Resource {
    pub const ALL: [Self; 3] = [Self::Memory, Self::Pids, Self::Cpu];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Pids => "pids",
            Self::Cpu => "cpu",
        }
    }

    /// Names of `resources` for people.
    pub fn list(resources: &[Self]) -> String {
        let names = resources.iter().map(|one| format!("`{}`", one.as_str()));
        names.collect::<Vec<_>>().join(", ")
    }
}

/// Limits of the processes of one attempt. A resource without a limit is as free as those of the daemon.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Value")]
pub struct Resources {
    /// Bytes, without swap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    /// Number of processes and threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pids: Option<u64>,
    /// Thousandths of one processor. Written as a number of processors.
    #[serde(
        rename = "cpu",
        skip_serializing_if = "Option::is_none",
        serialize_with = "processors"
    )]
    pub cpu_milli: Option<u64>,
}

impl Resources {
    /// Reads `{memory: 2GiB, pids: 500, cpu: 1.5}`. An error begins with the name of the wrong key.
    pub fn from_json(given: &Value) -> Result<Self, String> {
        let Some(given) = given.as_object() else {
            return Err(format!(
                "`resources` is a map of {}, not {given}",
                Resource::list(&Resource::ALL)
            ));
        };
        let mut resources = Self::default();
        for (key, value) in given.iter().filter(|(_, value)| !value.is_null()) {
            let known = Resource::ALL.into_iter().find(|one| one.as_str() == key);
            let misfit = |expected: &str| format!("`resources.{key}` is {expected}, not {value}");
            match known {
                Some(Resource::Memory) => {
                    let bytes = memory(value).filter(|bytes| is_memory(*bytes));
                    let expected = "a size from 1MiB to 1024TiB, such as 512MiB or 2GiB";
                    resources.memory = Some(bytes.ok_or_else(|| misfit(expected))?);
                }
                Some(Resource::Pids) => {
                    let count = number(value).and_then(|number| number.as_u64());
                    let count = count.filter(|count| (1..=MOST_PIDS).contains(count));
                    let expected = "a whole number from 1 to 4194304";
                    resources.pids = Some(count.ok_or_else(|| misfit(expected))?);
                }
                Some(Resource::Cpu) => {
                    let expected = "a number of processors from 0.01 to 1024";
                    resources.cpu_milli = Some(cpu(value).ok_or_else(|| misfit(expected))?);
                }
                None => {
                    let hint = nearest(key, Resource::ALL.map(Resource::as_str));
                    let hint = hint.map(|hint| format!("; did you mean `{hint}`?"));
                    return Err(format!(
                        "`resources.{key}` is unknown{}",
                        hint.unwrap_or_default()
                    ));
                }
            }
        }
        Ok(resources)
    }

    /// Returns these limits, and those of `default` for the resources that have none.
    #[must_use]
    pub fn or(self, default: Self) -> Self {
        Self {
            memory: self.memory.or(default.memory),
            pids: self.pids.or(default.pids),
            cpu_milli: self.cpu_milli.or(default.cpu_milli),
        }
    }

    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the part that limits one of `resources`.
    #[must_use]
    pub fn only(self, resources: &[Resource]) -> Self {
        let has = |one| resources.contains(&one);
        Self {
            memory: self.memory.filter(|_| has(Resource::Memory)),
            pids: self.pids.filter(|_| has(Resource::Pids)),
            cpu_milli: self.cpu_milli.filter(|_| has(Resource::Cpu)),
        }
    }

    /// Returns the resources that have a limit.
    pub fn limited(&self) -> Vec<Resource> {
        let limited = |one: &Resource| match one {
            Resource::Memory => self.memory.is_some(),
            Resource::Pids => self.pids.is_some(),
            Resource::Cpu => self.cpu_milli.is_some(),
        };
        Resource::ALL.into_iter().filter(limited).collect()
    }
}

/// Number of processors.
fn in_processors(milli: u64) -> Option<f64> {
    let milli = u32::try_from(milli).ok()?;
    Some(f64::from(milli) / PARTS)
}

#[expect(clippy::ref_option, reason = "the form that serde calls")]
fn processors<S: Serializer>(milli: &Option<u64>, to: S) -> Result<S::Ok, S::Error> {
    milli.and_then(in_processors).serialize(to)
}

/// A value, or the number that a text holds.
fn number(value: &Value) -> Option<Number> {
    match value {
        Value::Number(number) => Some(number.clone()),
        Value::String(text) => text.trim().parse().ok(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Bytes of a number, or of a text with a unit.
fn memory(value: &Value) -> Option<u64> {
    if let Some(bytes) = number(value) {
        return bytes.as_u64();
    }
    let text = value.as_str()?.trim();
    let of_unit = |(unit, bytes): &(&str, u64)| {
        let count = text.strip_suffix(unit)?.trim_end();
        count.parse::<u64>().ok()?.checked_mul(*bytes)
    };
    UNITS.iter().find_map(of_unit)
}

fn is_memory(bytes: u64) -> bool {
    (LEAST_MEMORY..=MOST_MEMORY).contains(&bytes)
}

/// Thousandths of a processor.
fn cpu(value: &Value) -> Option<u64> {
    let count = number(value)?.as_f64()?;
    if !(LEAST_CPU..=MOST_CPU).contains(&count) {
        return None;
    }
    // Rounded to a whole number of parts.
    format!("{:.0}", count * PARTS).parse().ok()
}

impl TryFrom<Value> for Resources {
    type Error = String;

    fn try_from(given: Value) -> Result<Self, String> {
        Self::from_json(&given)
    }
}

/// `memory 2 GiB, pids 500, cpu 1.5`.
impl fmt::Display for Resources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let memory = self.memory.map(|bytes| {
            let unit = UNITS.iter().find(|(_, unit)| bytes % unit == 0);
            let size = unit.map(|(name, unit)| format!("{} {name}", bytes / unit));
            format!(
                "memory {}",
                size.unwrap_or_else(|| format!("{bytes} bytes"))
            )
        });
        let pids = self.pids.map(|count| format!("pids {count}"));
        let cpu = self.cpu_milli.and_then(in_processors);
        let cpu = cpu.map(|count| format!("cpu {count}"));
        let parts: Vec<String> = [memory, pids, cpu].into_iter().flatten().collect();
        f.write_str(&parts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn limits_are_read_and_written() {
        for (given, written, shown) in [
            (
                json!({"memory": "2GiB", "pids": 500, "cpu": 1.5}),
                json!({"memory": 2_147_483_648_u64, "pids": 500, "cpu": 1.5}),
                "memory 2 GiB, pids 500, cpu 1.5",
            ),
            (
                json!({"memory": "2048 KiB", "pids": "7", "cpu": "0.01"}),
                json!({"memory": 2_097_152, "pids": 7, "cpu": 0.01}),
                "memory 2 MiB, pids 7, cpu 0.01",
            ),
            (
                json!({"memory": 1_048_577, "cpu": null}),
                json!({"memory": 1_048_577}),
                "memory 1048577 bytes",
            ),
            (json!({"cpu": 1024}), json!({"cpu": 1024.0}), "cpu 1024"),
            (json!({}), json!({}), ""),
        ] {
            let read: Resources = serde_json::from_value(given.clone()).unwrap();
            assert_eq!(serde_json::to_value(read).unwrap(), written, "{given}");
            assert_eq!(read.to_string(), shown);
            assert_eq!(read.is_empty(), shown.is_empty());
            let again: Resources = serde_json::from_value(written).unwrap();
            assert_eq!(again, read);
        }
    }

    #[test]
    fn wrong_limit_is_refused_by_its_key() {
        for (given, key) in [
            (json!({"memory": "1023KiB"}), "memory"),
            (json!({"memory": "1025TiB"}), "memory"),
            (json!({"memory": "99999999999999TiB"}), "memory"),
            (json!({"memory": "2GB"}), "memory"),
            (json!({"memory": -1}), "memory"),
            (json!({"memory": "-1GiB"}), "memory"),
            (json!({"memory": true}), "memory"),
            (json!({"memory": [1]}), "memory"),
            (json!({"pids": 0}), "pids"),
            (json!({"pids": 4_194_305}), "pids"),
            (json!({"pids": 1.5}), "pids"),
            (json!({"cpu": 0}), "cpu"),
            (json!({"cpu": 0.009}), "cpu"),
            (json!({"cpu": 1025}), "cpu"),
            (json!({"cpu": "NaN"}), "cpu"),
        ] {
            let problem = Resources::from_json(&given).unwrap_err();
            let begins = problem.starts_with(&format!("`resources.{key}` is "));
            assert!(begins, "{given}: {problem}");
        }
        let typo = Resources::from_json(&json!({"memori": 1})).unwrap_err();
        assert_eq!(
            typo,
            "`resources.memori` is unknown; did you mean `memory`?"
        );
        for given in [json!("2GiB"), json!([]), json!(null)] {
            let problem = Resources::from_json(&given).unwrap_err();
            assert!(problem.starts_with("`resources` is a map"), "{problem}");
        }
    }

    #[test]
    fn default_counts_for_each_resource_without_a_limit() {
        let read = |given: Value| Resources::from_json(&given).unwrap();
        let own = read(json!({"memory": "4GiB"}));
        let default = read(json!({"memory": "1GiB", "pids": 10}));
        let both = own.or(default);
        assert_eq!(both, read(json!({"memory": "4GiB", "pids": 10})));
        assert_eq!(both.limited(), [Resource::Memory, Resource::Pids]);
        assert_eq!(
            both.only(&[Resource::Pids, Resource::Cpu]),
            read(json!({"pids": 10}))
        );
        assert_eq!(Resource::list(&both.limited()), "`memory`, `pids`");
    }
}
