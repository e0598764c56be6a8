//! Capabilities of a run, for people.

use rye_core::capability::Layer;
use rye_proto::v1::PermissionRisk;
use serde::Serialize;

use super::screen;

/// Answer of `can`, and its JSON form.
#[derive(Debug, Serialize)]
pub(crate) struct Answer<'a> {
    pub(crate) run_id: &'a str,
    /// The action in the form that patterns match.
    pub(crate) action: String,
    pub(crate) allowed: bool,
    /// First layer that does not allow the action; `None` also if there are no layers.
    pub(crate) refused_by: Option<&'a Layer>,
    /// Risk of the action as a permission of a thread; `None` if the daemon does not know it.
    pub(crate) risk: Option<PermissionRisk>,
}

/// Renders the layers of a run: the source of each, and its patterns below.
pub(crate) fn layers(layers: &[Layer]) -> String {
    if layers.is_empty() {
        return "there are no capabilities at all, so it may do nothing".to_owned();
    }
    let lines = layers.iter().flat_map(|layer| {
        let patterns = layer.patterns.iter();
        let patterns = patterns.map(|pattern| format!("  {}", screen::in_line(pattern)));
        let none = layer.patterns.is_empty().then(|| "  nothing".to_owned());
        std::iter::once(screen::in_line(&layer.source))
            .chain(patterns)
            .chain(none)
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Renders the verdict on an action, the layer that refuses it, and the risk.
pub(crate) fn answer(answer: &Answer<'_>) -> String {
    let verdict = verdict(answer);
    match &answer.risk {
        Some(PermissionRisk { risk, policy, .. }) => format!("{verdict}\nrisk: {risk} ({policy})"),
        None => verdict,
    }
}

fn verdict(answer: &Answer<'_>) -> String {
    let action = screen::in_line(&answer.action);
    if answer.allowed {
        return format!("allowed: {action}");
    }
    let by = answer.refused_by.as_ref().map_or_else(
        || "there are no capabilities at all".to_owned(),
        |layer| {
            let patterns = match layer.patterns.as_slice() {
                [] => "an empty list, which allows nothing".to_owned(),
                patterns => screen::in_line(&patterns.join(", ")),
            };
            format!(
                "not covered by {} ({patterns})",
                screen::in_line(&layer.source)
            )
        },
    );
    format!("refused: {action} is {by}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layer(source: &str, patterns: &[&str]) -> Layer {
        Layer {
            source: source.to_owned(),
            patterns: patterns.iter().map(ToString::to_string).collect(),
        }
    }

    fn refused(by: Option<&Layer>) -> String {
        answer(&Answer {
            run_id: "r",
            action: "rye.execute.tool.a".to_owned(),
            allowed: false,
            refused_by: by,
            risk: None,
        })
    }

    #[test]
    fn capability_layer_precedes_its_patterns() {
        let two = [
            layer("uid:7", &["rye.*"]),
            layer("permissions of tool:a/b", &[]),
        ];
        assert_eq!(
            layers(&two),
            "uid:7\n  rye.*\npermissions of tool:a/b\n  nothing"
        );
        assert!(layers(&[]).contains("may do nothing"));
        let odd = [layer("a\nb", &["\u{1b}[2J"])];
        assert_eq!(layers(&odd).lines().count(), 2);
        assert!(!layers(&odd).contains('\u{1b}'));
    }

    #[test]
    fn a_refusal_names_the_layer_and_what_it_covers() {
        assert_eq!(
            refused(Some(&layer("uid:7", &["x.*", "y"]))),
            "refused: rye.execute.tool.a is not covered by uid:7 (x.*, y)"
        );
        assert!(
            refused(Some(&layer("uid:7", &[]))).ends_with("(an empty list, which allows nothing)")
        );
        assert!(refused(None).ends_with("there are no capabilities at all"));
    }

    #[test]
    fn capability_answer_is_followed_by_risk() {
        let risk = PermissionRisk {
            permission: "rye.execute.tool.a".to_owned(),
            risk: "elevated".to_owned(),
            policy: "acknowledge_required".to_owned(),
        };
        let told = answer(&Answer {
            run_id: "r",
            action: risk.permission.clone(),
            allowed: true,
            refused_by: None,
            risk: Some(risk),
        });
        assert_eq!(
            told,
            "allowed: rye.execute.tool.a\nrisk: elevated (acknowledge_required)"
        );
    }
}
