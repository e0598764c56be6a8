//! Permissions of a thread that its author must have considered before it begins.
//!
//! **Owns** the table of `capability_risk`, and the verdict on the permissions of a directive. **Never** decides what a
//! thread may do: its layers do, for each action. **Rule.** The most specific pattern that covers a permission decides
//! its class. A permission that is wider than some patterns it reaches has at least the highest class among them. A
//! permission that no pattern covers has the highest class.

use serde_json::Value;
use strum::{EnumString, IntoStaticStr, VariantArray};

use super::part::{ConfigSection, ORIGIN, fault};
use crate::capability::{UNSAFE_WRITE, can_match, covers, may_meet};
use crate::declared::Fields as _;
use crate::directive::Acknowledged;
use crate::pattern::Row;

/// The name of the file.
pub const CAPABILITY_RISK: &str = "capability_risk";

/// Keys of an entry.
const KEYS: [&str; 5] = ["id", "pattern", "risk", "description", ORIGIN];

/// A class of risk, the lowest first.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, EnumString, IntoStaticStr, VariantArray,
)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum Risk {
    /// It changes nothing.
    Safe,
    /// It may change files of the project.
    Write,
    /// It may run commands, or make others trust its output: a warning at the start, unless it is acknowledged.
    Elevated,
    /// It may do anything: refused, unless it is acknowledged by name.
    Unrestricted,
}

impl Risk {
    pub const fn as_str(self) -> &'static str {
        self.into_str()
    }

    /// Returns the handling of the start of a thread that does not acknowledge it.
    pub const fn policy(self) -> RiskPolicy {
        match self {
            Self::Safe | Self::Write => RiskPolicy::Allow,
            Self::Elevated => RiskPolicy::AcknowledgeRequired,
            Self::Unrestricted => RiskPolicy::Block,
        }
    }

    fn parse(word: &str) -> Option<Self> {
        word.parse().ok()
    }
}

/// The handling of the start of a thread with a risk that its author has not acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, IntoStaticStr)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum RiskPolicy {
    Allow,
    /// It begins with a warning.
    AcknowledgeRequired,
    Block,
}

impl RiskPolicy {
    pub const fn as_str(self) -> &'static str {
        self.into_str()
    }
}

/// Patterns with their classes of risk.
#[derive(Debug, Clone)]
pub struct Risks(Vec<(String, Risk)>);

/// The consequences of the permissions of a directive for its start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RiskVerdict {
    /// Permissions that prevent its start.
    pub refused: Vec<String>,
    /// Permissions that cause a warning.
    pub warnings: Vec<String>,
}

impl Risks {
    /// Reads the merged file; entries without effect are added to `ignored`. The error names the problem, its position
    /// and the fix.
    pub fn read(config: &Value, ignored: &mut Vec<String>) -> Result<Self, String> {
        let file = ConfigSection::file(CAPABILITY_RISK, config, &["risks"], &[], ignored)?;
        let file = file.ok_or_else(|| fault(CAPABILITY_RISK, None, "it says nothing"))?;
        let mut risks = Vec::new();
        for given in file.entries("risks")? {
            let read = entry(given)
                .map_err(|problem| fault(CAPABILITY_RISK, Some(("entry", given)), &problem))?;
            risks.push(read);
        }
        Ok(Self(risks))
    }

    /// Returns the risk of a permission.
    pub fn of(&self, permission: &str) -> Risk {
        if !can_match(permission) {
            return Risk::Safe;
        }
        let covering = self
            .0
            .iter()
            .filter(|(pattern, _)| covers(pattern, permission));
        // Of two patterns of the same length the riskier one counts.
        let nearest = covering.max_by_key(|(pattern, risk)| (pattern.len(), *risk));
        let Some((_, nearest)) = nearest else {
            // It reaches capabilities that no pattern covers.
            return Risk::Unrestricted;
        };
        let within = self.0.iter().filter(|(pattern, _)| {
            // No wider permission reaches this one.
            pattern != UNSAFE_WRITE && !covers(pattern, permission) && may_meet(pattern, permission)
        });
        within.map(|(_, risk)| *risk).fold(*nearest, Risk::max)
    }

    /// Returns the verdict for the start of a thread with these permissions, whose author accepts the risks
    /// `acknowledged`. An acknowledged class includes those below it.
    pub fn judge(&self, permissions: &[String], acknowledged: &[Acknowledged]) -> RiskVerdict {
        let known = acknowledged
            .iter()
            .filter_map(|known| Risk::parse(&known.risk));
        let known = known.max().unwrap_or(Risk::Safe);
        let mut gate = RiskVerdict::default();
        for permission in permissions {
            let risk = self.of(permission);
            match risk.policy() {
                _ if risk <= known => {}
                RiskPolicy::Allow => {}
                RiskPolicy::AcknowledgeRequired => gate.warnings.push(permission.clone()),
                RiskPolicy::Block => gate.refused.push(permission.clone()),
            }
        }
        gate
    }
}

fn entry(given: &Value) -> Result<(String, Risk), String> {
    let entry = Row::closed(given, "an entry", KEYS)?;
    let pattern = entry.given("pattern").and_then(Value::as_str);
    let pattern = pattern.ok_or("it has no `pattern`, like `rye.sign.*`")?;
    let word = entry.given("risk").and_then(Value::as_str);
    let word = word.unwrap_or_default();
    let risk = Risk::parse(word).ok_or_else(|| {
        let words: Vec<&str> = Risk::VARIANTS.iter().map(|risk| risk.as_str()).collect();
        format!("`risk` is one of {}", words.join(", "))
    })?;
    Ok((pattern.to_owned(), risk))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    /// The shipped table.
    fn shipped() -> Risks {
        let text = include_str!("../../../../.ai/config/agent/capability_risk.yaml");
        Risks::read(&crate::yaml::parse(text).unwrap().value, &mut Vec::new()).unwrap()
    }

    #[test]
    fn most_specific_pattern_decides_and_wide_permission_collects_risks() {
        for (permission, risk) in [
            ("rye.*", Risk::Unrestricted),
            ("*", Risk::Unrestricted),
            ("*.tool.*", Risk::Unrestricted),
            ("rye.execute.*", Risk::Elevated),
            ("rye.execute.tool.*", Risk::Elevated),
            ("rye.execute.tool.rye.*", Risk::Elevated),
            ("rye.execute.tool.rye.bash", Risk::Elevated),
            ("rye.execute.tool.rye.b*", Risk::Elevated),
            ("rye.execute.tool.rye.file-system.*", Risk::Write),
            ("rye.execute.tool.rye.file-system.write", Risk::Write),
            (UNSAFE_WRITE, Risk::Elevated),
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
    fn acknowledged_risk_is_neither_warned_nor_refused() {
        let permissions = ["rye.*", "rye.execute.tool.rye.bash", "rye.fetch.*"];
        let permissions = permissions.map(str::to_owned);
        let gate = |words: &[&str]| {
            let known = words.iter().map(|word| Acknowledged {
                risk: (*word).to_owned(),
                reason: String::new(),
            });
            let known: Vec<Acknowledged> = known.collect();
            let gate = shipped().judge(&permissions, &known);
            (gate.refused.len(), gate.warnings.len())
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
            let problem = Risks::read(&config, &mut Vec::new()).unwrap_err();
            assert!(problem.contains(told), "{problem}");
            assert!(
                problem.contains("ryectl sign config:agent/capability_risk"),
                "{problem}"
            );
        }
    }

    #[test]
    fn single_wildcard_does_not_cover_star() {
        let table = [("t?", Risk::Safe), ("*", Risk::Elevated)];
        let table = table.map(|(id, risk)| (format!("rye.execute.tool.{id}"), risk));
        let risks = Risks(table.to_vec());
        assert_eq!(risks.of("rye.execute.tool.ta"), Risk::Safe);
        assert_eq!(risks.of("rye.execute.tool.t*"), Risk::Elevated);
        assert_eq!(risks.of("rye.execute.tool.t?"), Risk::Safe);
    }

    fn risk() -> impl Strategy<Value = Risk> {
        proptest::sample::select(Risk::VARIANTS.to_vec())
    }

    /// Patterns and names that often meet and cover each other.
    fn pattern() -> impl Strategy<Value = String> {
        let ends = [
            "*", "a", "a.*", "a.b", "a.b.*", "a*", "*b", "a.*.b", "?", "a.?", "[ab]",
        ];
        let ends = ends.map(|end| format!("rye.execute.tool.{end}"));
        let wide = ["*", "rye.*", "rye.execute.*", "rye.fetch.*", "rye.*.a"].map(str::to_owned);
        proptest::sample::select([ends.to_vec(), wide.to_vec()].concat())
    }

    fn table() -> impl Strategy<Value = Vec<(String, Risk)>> {
        proptest::collection::vec((pattern(), risk()), 0..6)
    }

    fn known(risks: &[Risk]) -> Vec<Acknowledged> {
        let known = risks.iter().map(|risk| Acknowledged {
            risk: risk.as_str().to_owned(),
            reason: String::new(),
        });
        known.collect()
    }

    proptest! {
        #[test]
        fn wider_pattern_is_no_less_risky(table in table(), wide in pattern(), narrow in pattern()) {
            prop_assume!(covers(&wide, &narrow));
            let risks = Risks(table);
            prop_assert!(risks.of(&wide) >= risks.of(&narrow));
        }

        #[test]
        fn a_riskier_entry_makes_nothing_less_risky(
            table in table(), at in 0..6_usize, higher in risk(), permission in pattern()
        ) {
            let before = Risks(table.clone()).of(&permission);
            let mut raised = table;
            if let Some((_, risk)) = raised.get_mut(at) {
                *risk = higher.max(*risk);
            }
            prop_assert!(Risks(raised).of(&permission) >= before);
        }

        #[test]
        fn the_order_of_entries_decides_nothing(table in table(), permission in pattern()) {
            let mut turned = table.clone();
            turned.reverse();
            prop_assert_eq!(Risks(table).of(&permission), Risks(turned).of(&permission));
        }

        #[test]
        fn each_permission_is_judged_for_itself_and_a_class_by_its_policy(
            table in table(),
            one in proptest::collection::vec(pattern(), 0..4),
            other in proptest::collection::vec(pattern(), 0..4),
        ) {
            let risks = Risks(table);
            let both = risks.judge(&[one.clone(), other.clone()].concat(), &[]);
            let (one, other) = (risks.judge(&one, &[]), risks.judge(&other, &[]));
            prop_assert_eq!(&both.refused, &[one.refused, other.refused].concat());
            prop_assert_eq!(&both.warnings, &[one.warnings, other.warnings].concat());
            let policy = |permission: &String| risks.of(permission).policy();
            prop_assert!(both.refused.iter().all(|p| policy(p) == RiskPolicy::Block));
            prop_assert!(both.warnings.iter().all(|p| policy(p) == RiskPolicy::AcknowledgeRequired));
        }

        #[test]
        fn acknowledging_more_never_refuses_more(
            table in table(),
            permissions in proptest::collection::vec(pattern(), 0..5),
            some in proptest::collection::vec(risk(), 0..3),
            more in risk(),
        ) {
            let risks = Risks(table);
            let before = risks.judge(&permissions, &known(&some));
            let all = [some, vec![more]].concat();
            let after = risks.judge(&permissions, &known(&all));
            prop_assert!(after.refused.iter().all(|p| before.refused.contains(p)));
            prop_assert!(after.warnings.iter().all(|p| before.warnings.contains(p)));
            // Several classes count as the highest of them.
            let highest = all.iter().max().copied().unwrap_or(more);
            prop_assert_eq!(risks.judge(&permissions, &known(&[highest])), after);
        }
    }
}
