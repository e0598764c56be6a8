//! What a thread may do that somebody should have thought about before it begins.
//!
//! **Owns** the table of `capability_risk`, and the verdict on the permissions of a directive. **Never** decides what a thread may do:
//! its layers do, and they are asked for each action. **Rule.** The most specific pattern that covers a permission says its class; a
//! permission that reaches into patterns which it is wider than has the highest class among them, too.

use serde_json::Value;

use super::{ITEM_KEYS, ORIGIN, entries, fault, section, unknown_key};
use crate::capability::{can_match, covers, may_meet};
use crate::directive::Acknowledged;

/// The name of the file.
pub const CAPABILITY_RISK: &str = "capability_risk";

/// Keys of an entry.
const KEYS: [&str; 5] = ["id", "pattern", "risk", "description", ORIGIN];

/// A class of risk, the lowest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Risk {
    /// It changes nothing.
    Safe,
    /// It may change what lies in the project.
    Write,
    /// It may run commands, or make others trust what it wrote: told at the start, unless it is acknowledged.
    Elevated,
    /// There is nothing that it may not do: refused, unless it is acknowledged by name.
    Unrestricted,
}

impl Risk {
    const ALL: [Self; 4] = [Self::Safe, Self::Write, Self::Elevated, Self::Unrestricted];

    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Safe => "safe",
            Self::Write => "write",
            Self::Elevated => "elevated",
            Self::Unrestricted => "unrestricted",
        }
    }

    fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|risk| risk.as_str() == word)
    }
}

/// Which patterns are how risky.
#[derive(Debug, Clone)]
pub struct Risks(Vec<(String, Risk)>);

/// What the permissions of a directive mean for its start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Gate {
    /// Permissions that keep it from starting.
    pub refused: Vec<String>,
    /// Permissions that are told.
    pub told: Vec<String>,
}

impl Risks {
    /// Reads the merged file. The error says what is wrong, where, and how to fix it.
    pub fn read(config: &Value) -> Result<Self, String> {
        let map = section(CAPABILITY_RISK, config)?;
        let map = map.ok_or_else(|| fault(CAPABILITY_RISK, None, "it says nothing"))?;
        if let Some(problem) = unknown_key(map, ["risks"].into_iter().chain(ITEM_KEYS)) {
            return Err(fault(CAPABILITY_RISK, None, &problem));
        }
        let mut risks = Vec::new();
        for given in entries(CAPABILITY_RISK, map, "risks")? {
            let read = entry(given)
                .map_err(|problem| fault(CAPABILITY_RISK, Some(("entry", given)), &problem))?;
            risks.push(read);
        }
        Ok(Self(risks))
    }

    /// How risky a permission is.
    pub fn of(&self, permission: &str) -> Risk {
        if !can_match(permission) {
            return Risk::Safe;
        }
        let covering = self
            .0
            .iter()
            .filter(|(pattern, _)| covers(pattern, permission));
        // Of two that are as long, the riskier one.
        let nearest = covering.max_by_key(|(pattern, risk)| (pattern.len(), *risk));
        let within = self
            .0
            .iter()
            .filter(|(pattern, _)| !covers(pattern, permission) && may_meet(pattern, permission));
        let risks = nearest.into_iter().chain(within).map(|(_, risk)| *risk);
        risks.max().unwrap_or(Risk::Unrestricted)
    }

    /// What these permissions mean for the start of a thread whose author knows of the risks `acknowledged`. A class that is
    /// acknowledged stands for those below it.
    pub fn gate(&self, permissions: &[String], acknowledged: &[Acknowledged]) -> Gate {
        let known = acknowledged
            .iter()
            .filter_map(|known| Risk::parse(&known.risk));
        let known = known.max().unwrap_or(Risk::Safe);
        let mut gate = Gate::default();
        for permission in permissions {
            match self.of(permission) {
                risk if risk <= known => {}
                Risk::Safe | Risk::Write => {}
                Risk::Elevated => gate.told.push(permission.clone()),
                Risk::Unrestricted => gate.refused.push(permission.clone()),
            }
        }
        gate
    }
}

fn entry(given: &Value) -> Result<(String, Risk), String> {
    let map = given
        .as_object()
        .ok_or_else(|| format!("an entry is a map, not {given}"))?;
    if let Some(problem) = unknown_key(map, KEYS.into_iter()) {
        return Err(problem);
    }
    let pattern = map.get("pattern").and_then(Value::as_str);
    let pattern = pattern.ok_or("it has no `pattern`, like `rye.sign.*`")?;
    let word = map.get("risk").and_then(Value::as_str).unwrap_or_default();
    let risk = Risk::parse(word).ok_or_else(|| {
        let words = Risk::ALL.map(Risk::as_str);
        format!("`risk` is one of {}", words.join(", "))
    })?;
    Ok((pattern.to_owned(), risk))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// What is shipped.
    fn shipped() -> Risks {
        let text = include_str!("../../../../.ai/config/agent/capability_risk.yaml");
        Risks::read(&crate::yaml::parse(text).unwrap().value).unwrap()
    }

    #[test]
    fn the_most_specific_pattern_decides_and_a_wide_permission_has_all_it_reaches() {
        for (permission, risk) in [
            ("rye.*", Risk::Unrestricted),
            ("*", Risk::Unrestricted),
            ("*.tool.*", Risk::Unrestricted),
            ("rye.execute.*", Risk::Elevated),
            ("rye.execute.tool.*", Risk::Elevated),
            ("rye.execute.tool.rye.*", Risk::Elevated),
            ("rye.execute.tool.rye.bash", Risk::Elevated),
            ("rye.execute.tool.rye.b*", Risk::Elevated),
            ("rye.execute.tool.team.*", Risk::Write),
            ("rye.execute.tool.team.count", Risk::Write),
            ("rye.execute.directive.*", Risk::Write),
            ("rye.fetch.*", Risk::Safe),
            ("rye.fetch.knowledge.team.*", Risk::Safe),
            ("rye.sign.*", Risk::Elevated),
            ("rye.sign.tool.team.a", Risk::Elevated),
            ("spoon", Risk::Safe),
        ] {
            assert_eq!(shipped().of(permission), risk, "{permission}");
        }
        let none = Risks(Vec::new());
        assert_eq!(
            none.of("rye.fetch.*"),
            Risk::Unrestricted,
            "nobody has said"
        );
    }

    #[test]
    fn what_is_acknowledged_is_neither_told_nor_refused() {
        let permissions = ["rye.*", "rye.execute.tool.rye.bash", "rye.fetch.*"];
        let permissions = permissions.map(str::to_owned);
        let gate = |words: &[&str]| {
            let known = words.iter().map(|word| Acknowledged {
                risk: (*word).to_owned(),
                reason: String::new(),
            });
            let known: Vec<Acknowledged> = known.collect();
            let gate = shipped().gate(&permissions, &known);
            (gate.refused.len(), gate.told.len())
        };
        assert_eq!(gate(&[]), (1, 1));
        assert_eq!(gate(&["safe", "write"]), (1, 1));
        assert_eq!(gate(&["elevated"]), (1, 0));
        assert_eq!(gate(&["unrestricted"]), (0, 0));
    }

    #[test]
    fn faults_name_the_entry_and_the_fix() {
        let entry = |entry: Value| json!({"risks": [entry]});
        for (config, told) in [
            (json!(null), "it says nothing"),
            (json!([]), "it holds no map"),
            (json!({"risk": []}), "did you mean `risks`?"),
            (json!({"risks": {}}), "`risks` is not a list"),
            (entry(json!("rye.*")), "an entry is a map"),
            (
                entry(json!({"id": "a", "risk": "safe"})),
                "entry `a`: it has no `pattern`",
            ),
            (
                entry(json!({"id": "a", "pattern": "*", "risk": "mild"})),
                "safe, write, elevated, unrestricted",
            ),
            (
                entry(json!({"id": "a", "patern": "*"})),
                "did you mean `pattern`?",
            ),
        ] {
            let problem = Risks::read(&config).unwrap_err();
            assert!(problem.contains(told), "{problem}");
            assert!(
                problem.contains("ryectl sign config:agent/capability_risk"),
                "{problem}"
            );
        }
    }
}
