//! Directives merged with those they extend.

use super::*;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Space {
    System,
    User,
    Project,
}

fn item(name: &str) -> ItemRef {
    ItemRef::parse(name, ItemKind::Directive).unwrap()
}

fn directive(extends: Option<&str>, metadata: &str) -> Directive {
    let (mut directive, _) = read(metadata, "", "body");
    directive.extends = extends.map(item);
    directive
}

fn ids(list: &[ItemId]) -> Vec<&str> {
    list.iter().map(ItemId::as_str).collect()
}

#[test]
fn lineage_joins_knowledge_and_takes_nearest_permissions() {
    let leaf = directive(
        Some("mid"),
        "<context><before>shared</before><before>own</before><suppress>hook</suppress></context>",
    );
    let middle = directive(
        Some("root"),
        "<permissions><fetch>*</fetch></permissions><limits turns=\"1\"/>\
         <context><before>mid</before><system>mid-sys</system><suppress>item</suppress></context>",
    );
    let root = directive(
        None,
        "<permissions>*</permissions><context><before>shared</before><system>root-sys</system><suppress>hook</suppress></context>",
    );
    let mut lineage = Lineage::new(item("leaf"), Space::Project, leaf).unwrap();
    assert_eq!(lineage.missing(), Some(&item("mid")));
    lineage.add(Space::User, middle).unwrap();
    assert_eq!(lineage.missing(), Some(&item("root")));
    lineage.add(Space::System, root).unwrap();
    assert_eq!(lineage.missing(), None);
    let effective = lineage.effective();
    assert_eq!(effective.parents, [item("mid"), item("root")]);
    let context = &effective.directive.context;
    assert_eq!(ids(&context.system), ["root-sys", "mid-sys"]);
    assert_eq!(ids(&context.before), ["shared", "mid", "own"]);
    assert_eq!(context.suppress, ["hook", "item"]);
    assert_eq!(effective.permissions().patterns, ["rye.fetch.*"]);
    assert_eq!(
        effective.directive.limits.turns, None,
        "limits are not taken over"
    );
    let stored = serde_json::to_string(&effective).unwrap();
    assert_eq!(
        serde_json::from_str::<Effective>(&stored).unwrap(),
        effective
    );
}

#[test]
fn lineage_respects_empty_permissions() {
    let leaf = directive(Some("root"), "<permissions/>");
    let mut lineage = Lineage::new(item("leaf"), Space::Project, leaf).unwrap();
    lineage
        .add(
            Space::System,
            directive(None, "<permissions>*</permissions>"),
        )
        .unwrap();
    assert!(lineage.effective().permissions().patterns.is_empty());
    let alone = Lineage::new(item("leaf"), Space::Project, directive(None, "")).unwrap();
    assert!(alone.effective().permissions().patterns.is_empty());
}

#[test]
fn lineage_refuses_cycles_depth_and_spaces() {
    let own = Lineage::new(item("a"), Space::User, directive(Some("a"), ""));
    assert!(matches!(own, Err(LineageError::Cycle(..))), "{own:?}");
    let mut circle = Lineage::new(item("a"), Space::User, directive(Some("b"), "")).unwrap();
    let error = circle
        .add(Space::User, directive(Some("a"), ""))
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "`directive:a` extends itself: directive:a extends directive:b extends directive:a"
    );
    let mut upward = Lineage::new(item("a"), Space::User, directive(Some("b"), "")).unwrap();
    let error = upward.add(Space::Project, directive(None, "")).unwrap_err();
    assert!(error.to_string().contains("higher space"), "{error}");

    let mut high = Lineage::new(item("d0"), Space::User, directive(Some("d1"), "")).unwrap();
    for at in 2..=MOST_PARENTS {
        high.add(Space::User, directive(Some(&format!("d{at}")), ""))
            .unwrap();
    }
    let mut too_high = high.clone();
    high.add(Space::User, directive(None, "")).unwrap();
    assert_eq!(high.effective().parents.len(), MOST_PARENTS);
    let error = too_high
        .add(Space::User, directive(Some("d11"), ""))
        .unwrap_err();
    assert_eq!(error, LineageError::TooLong(item("d0")));
}
