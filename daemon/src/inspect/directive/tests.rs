use std::cell::Cell;
use std::sync::Arc;

use rye_core::id::{ItemId, ItemKind};

use super::*;
use crate::node::tests::rig::Rig;
use crate::projects::ProjectView;

/// A directive with these attributes and this content of `metadata`.
fn file(name: &str, attributes: &str, metadata: &str) -> String {
    format!(
        "```xml\n<directive name=\"{name}\" version=\"1.0.0\"{attributes}>\n<metadata>\n<description>d</description>\
         <author>me</author><category>t</category>\n{metadata}\n</metadata>\n</directive>\n```\nGo.\n"
    )
}

#[tokio::test]
async fn directive_check_covers_dependencies() {
    let rig = Rig::new();
    let daemon = rig.start().await;
    let project = rig.project("p", &[]);
    let put = |name: &str, text: &str| {
        let file = format!("t/{name}.md");
        rig.item(&project, ItemKind::Directive, &file, text)
    };
    put("good", &file("good", "", ""));
    put("broken", &file("broken", "", "<permission/>"));
    put("orphan", &file("orphan", " extends=\"t/none\"", ""));
    put("circle", &file("circle", " extends=\"t/circle\"", ""));
    put(
        "forgets",
        &file("forgets", "", "<context><before>t/none</before></context>"),
    );
    put(
        "wishes",
        &file("wishes", "", "<model id=\"claude-haiku\"/>"),
    );
    let all = "<permissions>*</permissions>";
    put("rash", &file("rash", "", all));
    let meant =
        "<permissions>*<acknowledge risk=\"unrestricted\">it is a test</acknowledge></permissions>";
    put("meant", &file("meant", "", meant));
    let absent = "<permissions><execute><tool>t/absent</tool></execute></permissions>";
    put("absent", &file("absent", "", absent));
    let signs = "<permissions><sign><tool>t/*</tool></sign></permissions>";
    put("signs", &file("signs", "", signs));
    let long = file("long", "", "<model id=\"claude-haiku-4-5-20251001\"/>");
    put("long", &format!("{long}{}", "x".repeat(900_000)));
    put("rests", &file("rests", " extends=\"t/draft\"", ""));
    let draft = put("draft", "");
    std::fs::write(&draft, file("draft", "", "")).unwrap();
    let check = async |name: &str| {
        let item = ItemRef {
            kind: ItemKind::Directive,
            id: ItemId::new(format!("t/{name}")).unwrap(),
        };
        let inspector = daemon.supervisor.inspector();
        inspector.validate(&item, &project, false).await
    };
    // Codes of errors, then of warnings; no secret is needed.
    let table: [(&str, &[&str], &[&str]); 13] = [
        ("good", &[], &[]),
        ("draft", &[], &["unsigned"]),
        ("broken", &["unknown_element"], &[]),
        ("orphan", &["bad_lineage"], &[]),
        ("circle", &["bad_lineage"], &[]),
        ("forgets", &["item_refused"], &[]),
        ("wishes", &["unknown_model"], &[]),
        ("rests", &[], &["bad_lineage"]),
        ("rash", &["unacknowledged_risk"], &[]),
        ("meant", &[], &[]),
        ("absent", &[], &["not_offered"]),
        ("signs", &[], &["risk"]),
        ("long", &[], &["prompt_too_long"]),
    ];
    let codes = |findings: &[Finding]| -> Vec<&str> {
        findings.iter().map(|finding| finding.code).collect()
    };
    for (name, errors, warnings) in table {
        let report = check(name).await.unwrap().report;
        assert_eq!(codes(&report.errors), errors, "{name}: {report:?}");
        assert_eq!(codes(&report.warnings), warnings, "{name}: {report:?}");
    }
    let broken = check("broken").await.unwrap();
    assert!(broken.path.ends_with("t/broken.md"));
    assert_eq!(broken.report.errors[0].line, 6, "the signature is a line");
    assert_eq!(
        check("nobody").await.unwrap_err().kind(),
        ErrorKind::NotFound
    );
}

#[tokio::test]
async fn shipped_bases_validate_and_can_be_extended() {
    let rig = Rig::new();
    let daemon = rig.start().await;
    let project = rig.project("p", &[]);
    let outputs = file("heir", " extends=\"rye/agent/core/base_review\"", "");
    rig.item(&project, ItemKind::Directive, "t/heir.md", &outputs);
    // Permissions to sign, or to execute everything, are a risk that each start warns of.
    for (id, warnings) in [
        ("agent/core/base", 0),
        ("rye/agent/core/base", 1),
        ("rye/agent/core/base_execute_only", 1),
        ("rye/agent/core/base_review", 0),
        ("t/heir", 0),
    ] {
        let item = ItemRef {
            kind: ItemKind::Directive,
            id: ItemId::new(id).unwrap(),
        };
        let inspector = daemon.supervisor.inspector();
        let checked = inspector.validate(&item, &project, false);
        let report = checked.await.unwrap().report;
        assert_eq!(report.errors, [], "{id}");
        assert_eq!(report.warnings.len(), warnings, "{id}: {report:?}");
    }
}

#[tokio::test]
async fn check_is_aborted_at_deadline_anywhere() {
    let rig = Rig::new();
    let daemon = rig.start().await;
    let project = rig.project("p", &[]);
    let names = |tag: &str, name: &str| {
        let named = (0..20).map(|n| format!("<{tag}>t/{name}{n}</{tag}>"));
        named.collect::<String>()
    };
    let text = file(
        "wide",
        "",
        &format!(
            "<permissions><execute>{}</execute></permissions><context>{}</context>",
            names("tool", "tool"),
            names("before", "known")
        ),
    );
    rig.item(&project, ItemKind::Directive, "t/wide.md", &text);
    let projects = Arc::clone(&daemon.supervisor.services().projects);
    let looked = async |patience: usize| {
        let item = ItemRef {
            kind: ItemKind::Directive,
            id: ItemId::new("t/wide").unwrap(),
        };
        let also = Arc::clone(&projects);
        let work = move |inside: &ProjectView<'_>| {
            let asked = Cell::new(0);
            let is_late = || asked.replace(asked.get() + 1) >= patience;
            let report = check(inside.library, &also, item, &is_late).unwrap().report;
            Ok::<_, crate::projects::Error>((report, asked.get()))
        };
        projects.visit(&project, "look", work).await.unwrap()
    };
    let (whole, asked) = looked(usize::MAX).await;
    assert!(
        whole
            .errors
            .iter()
            .all(|found| found.code == "item_refused")
    );
    assert!(asked > 80, "{asked}");
    // During the parse, the read of knowledge, and the lookup of tools.
    for patience in [0, 30, asked / 2, asked - 2] {
        let (report, _) = looked(patience).await;
        let codes: Vec<&str> = report.errors.iter().map(|found| found.code).collect();
        let given_up = codes.iter().filter(|code| **code == "too_complex").count();
        assert_eq!(given_up, 1, "{patience} of {asked}: {codes:?}");
    }
}
