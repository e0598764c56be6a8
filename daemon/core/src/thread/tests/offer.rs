//! The tools that are offered to a model, and their names.

use super::*;
use crate::conversation::TokenSize;
use crate::thread::tool_offer::NamedTools;

fn layer(patterns: &[&str]) -> Layer {
    Layer {
        source: "test".to_owned(),
        patterns: patterns.iter().map(ToString::to_string).collect(),
    }
}

fn tool(id: &str, is_named: bool) -> ItemTool {
    ItemTool {
        item: ItemRef::tool(ItemId::new(id).unwrap()),
        is_named,
        description: Some(format!("What {id} is for")),
        schema: Some(json!({"type": "object", "properties": {"n": {"type": "integer"}}})),
    }
}

/// Returns the offer from `tools` within that number of tokens.
fn offered(tools: Vec<ItemTool>, most_tokens: u64, layers: &[Layer]) -> ToolOffer {
    offered_to(&directive("", ""), tools, most_tokens, layers)
}

/// Returns the same for the directive `text`.
fn offered_to(text: &str, tools: Vec<ItemTool>, most_tokens: u64, layers: &[Layer]) -> ToolOffer {
    let id = ItemId::new("t/d").unwrap();
    let (parsed, _) = directive::parse(text, &id).unwrap();
    let item = ItemRef::parse("directive:t/d", crate::id::ItemKind::Directive).unwrap();
    let effective = Lineage::new(item, 0, parsed).unwrap().effective();
    let items = ItemTools {
        tools,
        most_tokens,
        token_size: TokenSize::from_thousandths(1000).unwrap(),
    };
    offer(&effective, layers, &items).unwrap()
}

fn names(offer: &ToolOffer) -> Vec<&str> {
    let names = offer.tools.iter().map(|offered| &*offered.tool.name);
    let ours = ["read_artifact", "rye_execute", "rye_fetch", "rye_sign"];
    names.filter(|name| !ours.contains(name)).collect()
}

#[test]
fn permissions_name_items_and_folders() {
    let table = [
        ("rye.execute.tool.t.a", vec!["tool:t/a"], vec![]),
        ("rye.execute.tool.t.*", vec![], vec!["t"]),
        ("rye.execute.tool.t.u.*", vec![], vec!["t/u"]),
        ("rye.execute.tool.t.internal.a", vec![], vec![]),
        ("rye.execute.directive.t.a", vec![], vec![]),
        ("rye.execute.directive.t.*", vec![], vec![]),
        ("rye.fetch.tool.t.a", vec![], vec![]),
        ("rye.execute.tool.*", vec![], vec![]),
        ("rye.*", vec![], vec![]),
    ];
    for (pattern, items, folders) in table {
        let wanted = NamedTools::of(&[pattern.to_owned()]);
        let found: Vec<String> = wanted.items.iter().map(ToString::to_string).collect();
        assert_eq!(found, items, "{pattern}");
        let found: Vec<&str> = wanted.folders.iter().map(ItemId::as_str).collect();
        assert_eq!(found, folders, "{pattern}");
    }
}

#[test]
fn a_tool_has_a_name_of_its_own_that_no_other_has() {
    let all = [layer(&["rye.*"])];
    let long = format!("t/{}", "x".repeat(80));
    let ids = ["t/a", "t/b.c", "t/b/c", "rye/execute", "t/ä", &long];
    let tools = ids.into_iter().map(|id| tool(id, true)).collect();
    let offer = offered(tools, 0, &all);
    let told = names(&offer);
    let mut sorted = told.clone();
    sorted.sort_unstable();
    sorted.dedup();
    assert_eq!(told, sorted, "sorted, and each once");
    assert_eq!(told.len(), ids.len());
    assert!(told.contains(&"t_a") && told.contains(&"t__"), "{told:?}");
    let of = |start: &str| {
        let found = told.iter().filter(|name| name.starts_with(start));
        found.map(|name| name.len()).collect::<Vec<_>>()
    };
    assert_eq!(of("t_b_c_"), [14, 14], "two ids that would be one name");
    assert_eq!(of("rye_execute_"), [20], "the name of our own tool");
    assert_eq!(of("t_xxx"), [64]);
    let is_letter = |c: char| c.is_ascii_alphanumeric() || c == '_';
    assert!(told.iter().all(|name| name.chars().all(is_letter)));
}

#[test]
fn named_tools_are_always_offered() {
    let all = [layer(&["rye.*"])];
    let size = |tool: &ItemTool| {
        let offer = offered(vec![tool.clone()], u64::MAX, &all);
        let told = offer.tools.iter().find(|o| matches!(o.does, Does::Item(_)));
        u64::try_from(json!(told.unwrap().tool).to_string().len()).unwrap()
    };
    let one = size(&tool("t/a", false));
    let tools = || vec![tool("t/c", false), tool("t/b", false), tool("t/a", true)];
    for (room, expected) in [
        (0, vec!["t_a"]),
        (one, vec!["t_a"]),
        (2 * one - 1, vec!["t_a"]),
        (2 * one, vec!["t_a", "t_b"]),
        (3 * one, vec!["t_a", "t_b", "t_c"]),
    ] {
        let offer = offered(tools(), room, &all);
        assert_eq!(names(&offer), expected, "{room}");
        assert_eq!(offer.left_out.len(), 3 - expected.len());
    }
}

#[test]
fn scarce_room_prefers_mentioned_tools_and_permission_order() {
    let all = [layer(&["rye.*"])];
    let permissions = "<execute><tool>z/*</tool><tool>a/*</tool></execute>";
    let text = directive(permissions, "") + "\nUse a/used.\n";
    let tools = ["a/a", "a/used", "z/b", "z/a"]
        .map(|id| tool(id, false))
        .to_vec();
    let offer = offered_to(&text, tools.clone(), u64::MAX, &all);
    assert_eq!(offer.left_out, []);
    let told = offer.tools.iter().find(|one| one.tool.name == "a_used");
    let one = u64::try_from(json!(told.unwrap().tool).to_string().len()).unwrap();
    let order = ["a_used", "z_a", "z_b", "a_a"];
    for count in 1..=order.len() {
        let room = one * u64::try_from(count).unwrap();
        let offer = offered_to(&text, tools.clone(), room, &all);
        let mut expected = order[..count].to_vec();
        expected.sort_unstable();
        assert_eq!(names(&offer), expected, "{room}");
    }
}

#[test]
fn offer_is_limited_to_100_tools_plus_named() {
    let all = [layer(&["rye.*"])];
    let many = |is_named: bool, count: u32| -> Vec<ItemTool> {
        (0..count)
            .map(|number| tool(&format!("t/n{number}"), is_named))
            .collect()
    };
    let offer = offered(many(false, 103), u64::MAX, &all);
    assert_eq!((names(&offer).len(), offer.left_out.len()), (100, 3));
    assert_eq!(names(&offered(many(true, 103), 0, &all)).len(), 103);
}

#[test]
fn fetch_and_sign_tools_follow_permissions() {
    for (patterns, expected) in [
        (
            vec!["rye.fetch.knowledge.t.*"],
            vec!["read_artifact", "rye_fetch"],
        ),
        (vec!["rye.sign.tool.t.*"], vec!["read_artifact", "rye_sign"]),
        (
            vec!["rye.execute.tool.t.a"],
            vec!["read_artifact", "rye_execute"],
        ),
        (vec![], vec![]),
    ] {
        let offer = offered(Vec::new(), 0, &[layer(&["rye.*"]), layer(&patterns)]);
        let told: Vec<&str> = offer.tools.iter().map(|one| &*one.tool.name).collect();
        assert_eq!(told, expected, "{patterns:?}");
        let kinds = |tool: &crate::conversation::Tool| {
            tool.schema["properties"]["item_type"]["enum"].to_string()
        };
        let fetch = offer.tools.iter().find(|one| one.does == Does::Fetch);
        assert!(fetch.is_none_or(|one| kinds(&one.tool) == "[\"knowledge\"]"));
    }
}

#[test]
fn each_layer_must_allow_what_is_offered() {
    let tools = || vec![tool("t/a", true), tool("t/b", true)];
    for (layers, expected) in [
        (vec![layer(&["rye.*"])], vec!["t_a", "t_b"]),
        (
            vec![layer(&["rye.*"]), layer(&["rye.execute.tool.t.b"])],
            vec!["t_b"],
        ),
        (vec![layer(&["rye.*"]), layer(&[])], vec![]),
        (vec![], vec![]),
    ] {
        let offer = offered(tools(), 0, &layers);
        assert_eq!(names(&offer), expected);
        assert_eq!(offer.left_out, []);
    }
}

#[test]
fn unsupported_schema_is_omitted() {
    let all = [layer(&["rye.*"])];
    for (schema, told) in [
        (None, Some(json!({"type": "object"}))),
        (
            Some(json!({"required": ["a"]})),
            Some(json!({"required": ["a"], "type": "object"})),
        ),
        (Some(json!({"type": "array"})), None),
        (Some(json!({"type": ["object", "null"]})), None),
        (Some(json!({"anyOf": []})), None),
        (Some(json!(true)), None),
    ] {
        let tool = ItemTool {
            schema: schema.clone(),
            ..tool("t/a", true)
        };
        let offer = offered(vec![tool], 0, &all);
        let found = offer.tools.iter().find(|o| matches!(o.does, Does::Item(_)));
        let found = found.map(|offered| offered.tool.schema.clone());
        assert_eq!(found, told, "{schema:?}");
        assert_eq!(offer.left_out.len(), usize::from(told.is_none()));
    }
}

#[test]
fn ungranted_permission_names_refusing_layer() {
    let layers = [
        layer(&["rye.*"]),
        Layer {
            source: "--cap".to_owned(),
            ..layer(&["rye.execute.tool.t.*"])
        },
    ];
    let declared = [
        "rye.execute.tool.t.a",
        "rye.execute.tool.u.a",
        "rye.fetch.*",
        "rye.*",
    ];
    let declared = declared.map(str::to_owned);
    let told: Vec<(&str, &str)> = ungranted(&declared, &layers)
        .into_iter()
        .map(|(pattern, layer)| (pattern, &*layer.source))
        .collect();
    assert_eq!(
        told,
        [("rye.execute.tool.u.a", "--cap"), ("rye.fetch.*", "--cap")]
    );
}

#[test]
fn named_call_executes_item_with_arguments() {
    let terms = terms(&directive("<execute><tool>t/*</tool></execute>", ""));
    let mut terms = Arc::into_inner(terms).unwrap();
    let all = [layer(&["rye.*"])];
    terms.contract.offered = offered(vec![tool("t/a", true)], 0, &all).tools;
    let mut stage = Stage::new(Arc::new(terms), |_| {});
    stage.play();
    stage.say(message_signals("", &[("c1", "t_a", json!({"n": 7}))]));
    stage.play();
    let call = &stage.begun[0];
    assert_eq!(call.item.to_string(), "tool:t/a");
    assert_eq!(json!(call.params), json!({"n": 7}));
    stage.assert_replay();
}
