//! Faults of files, and their positions.

use std::cell::Cell;

use super::*;

/// The content of `metadata`, the text after it, the code of a finding, and a part of its message.
type Case = (&'static str, &'static str, &'static str, &'static str);

const CASES: &[Case] = &[
    (
        "<modle id=\"a\"/>",
        "",
        "UNKNOWN_ELEMENT",
        "did you mean `model`?",
    ),
    (
        "<model idd=\"a\"/>",
        "",
        "UNKNOWN_ATTRIBUTE",
        "there are id, tier",
    ),
    (
        "<model provder=\"a\"/>",
        "",
        "UNKNOWN_ATTRIBUTE",
        "did you mean `provider`?",
    ),
    (
        "<model id=\"a\"/><model id=\"b\"/>",
        "",
        "DUPLICATE_ELEMENT",
        "occurs twice",
    ),
    ("<model id=\" \"/>", "", "EMPTY", "`id` is empty"),
    (
        "<model temperature=\"3\"/>",
        "",
        "WRONG_TYPE",
        "from 0 to 2",
    ),
    (
        "<model temperature=\"NaN\"/>",
        "",
        "WRONG_TYPE",
        "from 0 to 2",
    ),
    (
        "<model parallel=\"no\"/>",
        "",
        "UNKNOWN_VALUE",
        "true, false",
    ),
    (
        "<model max_output=\"-1\"/>",
        "",
        "WRONG_TYPE",
        "whole number",
    ),
    ("<limits turns=\"1.5\"/>", "", "WRONG_TYPE", "`turns`"),
    (
        "<limits spend=\"-0.1\"/>",
        "",
        "WRONG_TYPE",
        "less than zero",
    ),
    (
        "<limits spend=\"0.0000000001\"/>",
        "",
        "WRONG_TYPE",
        "nine decimals",
    ),
    ("<limits spend=\"1e30\"/>", "", "WRONG_TYPE", "more than"),
    (
        "<limits duration_seconds=\"-1\"/>",
        "",
        "WRONG_TYPE",
        "0 to 31536000",
    ),
    (
        "<limits duration_seconds=\"inf\"/>",
        "",
        "WRONG_TYPE",
        "0 to 31536000",
    ),
    (
        "<limits spend_currency=\"EUR\"/>",
        "",
        "UNKNOWN_VALUE",
        "is USD",
    ),
    (
        "<limits turns=\"1\" max_turns=\"2\"/>",
        "",
        "CONFLICT",
        "`turns`",
    ),
    ("<limits>5</limits>", "", "UNEXPECTED_TEXT", "holds no text"),
    (
        "<hooks><hook id=\"a\" event=\"error\"/></hooks>",
        "",
        "NOT_SUPPORTED",
        "<hooks>",
    ),
    (
        "<permissions><approve on_expiry=\"deny\"><tool>a</tool></approve></permissions>",
        "",
        "MISSING_ATTRIBUTE",
        "never expires",
    ),
    ("<tools mode=\"text\"/>", "", "NOT_SUPPORTED", "mode="),
    ("<tools mode=\"txt\"/>", "", "UNKNOWN_VALUE", "native, text"),
    ("<tools max_parallel=\"0\"/>", "", "WRONG_TYPE", "from 1 on"),
    (
        "<permissions>rye.execute.*</permissions>",
        "",
        "UNEXPECTED_TEXT",
        "`*` or nothing",
    ),
    (
        "<permissions><execute>rye/bash</execute></permissions>",
        "",
        "UNEXPECTED_TEXT",
        "<tool>rye/bash</tool>",
    ),
    (
        "<permissions><execute><tools>a</tools></execute></permissions>",
        "",
        "UNKNOWN_ELEMENT",
        "did you mean `tool`?",
    ),
    (
        "<permissions><execute><tool>../a</tool></execute></permissions>",
        "",
        "BAD_NAME",
        "is not",
    ),
    (
        "<permissions><execute><tool/></execute></permissions>",
        "",
        "EMPTY",
        "* for all",
    ),
    (
        "<permissions><execute resource=\"fs\" action=\"tool.a\"/></permissions>",
        "",
        "UNKNOWN_VALUE",
        "is `rye`",
    ),
    (
        "<permissions><execute resource=\"rye\" action=\"eat.a\"/></permissions>",
        "",
        "UNKNOWN_VALUE",
        "`eat.a`",
    ),
    (
        "<permissions><execute resource=\"rye\"/></permissions>",
        "",
        "MISSING_ATTRIBUTE",
        "`action`",
    ),
    (
        "<permissions><acknowledge>x</acknowledge></permissions>",
        "",
        "MISSING_ATTRIBUTE",
        "`risk`",
    ),
    (
        "<permissions><acknowledge risk=\"elevatd\"/></permissions>",
        "",
        "UNKNOWN_VALUE",
        "did you mean `elevated`?",
    ),
    (
        "<permissions><execute effect=\"once\"><tool>a</tool></execute></permissions>",
        "",
        "UNKNOWN_VALUE",
        "at_most_once",
    ),
    (
        "<context><before>tool:a</before></context>",
        "",
        "BAD_NAME",
        "not of type knowledge",
    ),
    ("<context><before/></context>", "", "BAD_NAME", "is empty"),
    (
        "<context><suppress/></context>",
        "",
        "EMPTY",
        "names a hook",
    ),
    (
        "<continuation_directive>a b/../c</continuation_directive>",
        "",
        "BAD_NAME",
        "leave their space",
    ),
    ("", "<permissions/>", "MISPLACED", "belongs into <metadata>"),
    (
        "",
        "<inputs><input type=\"string\"/></inputs>",
        "MISSING_ATTRIBUTE",
        "`name`",
    ),
    (
        "",
        "<inputs><input name=\"a b\"/></inputs>",
        "BAD_NAME",
        "is no name",
    ),
    (
        "",
        "<inputs><input name=\"a\"/><input name=\"a\"/></inputs>",
        "DUPLICATE_NAME",
        "occurs twice",
    ),
    (
        "",
        "<inputs><input name=\"a\" type=\"int\"/></inputs>",
        "UNKNOWN_VALUE",
        "integer",
    ),
    (
        "",
        "<inputs><input name=\"a\" type=\"integer\" default=\"x\"/></inputs>",
        "BAD_DEFAULT",
        "not of its type",
    ),
    (
        "",
        "<inputs><input name=\"a\" enum=\"x,y\" default=\"z\"/></inputs>",
        "BAD_DEFAULT",
        "not of its type",
    ),
    (
        "",
        "<inputs><input name=\"a\" type=\"integer\" enum=\"1,two\"/></inputs>",
        "BAD_ENUM",
        "type integer",
    ),
    (
        "",
        "<outputs><output name=\"error_detail\"/></outputs>",
        "BAD_NAME",
        "another name",
    ),
    (
        "",
        "<outputs><output name=\"a\" items=\"string\"/></outputs>",
        "CONFLICT",
        "type=\"array\"",
    ),
    (
        "",
        "<outputs><output name=\"a\" required=\"yes\"/></outputs>",
        "UNKNOWN_VALUE",
        "true, false",
    ),
    (
        "<callers>robot</callers>",
        "",
        "UNKNOWN_VALUE",
        "model, code, graph and person",
    ),
    ("", "<a:b xmlns:a=\"urn:x\"/>", "UNKNOWN_ELEMENT", "<b>"),
];

#[test]
fn each_fault_has_a_code_and_a_hint() {
    for (metadata, rest, code, told) in CASES {
        let text = file(metadata, rest, "");
        let findings = parse(&text, &id()).expect_err(&text);
        let found = findings.iter().zip(codes(&findings));
        let hit = found
            .clone()
            .any(|(finding, found)| found == *code && finding.message.contains(told));
        assert!(
            hit,
            "{code} `{told}` in {:?}\n{text}",
            found.collect::<Vec<_>>()
        );
    }
}

#[test]
fn findings_have_positions() {
    let text = "é intro\n```xml\n<directive name=\"count_files\" version=\"1.0\">\n  <metadata>\n    \
                <é/><modle/>\n    <description>D</description><author>a</author>\n    \
                <category>team</category>\n  </metadata>\n</directive>\n```\n";
    let findings = parse(text, &id()).unwrap_err();
    let places: Vec<_> = findings
        .iter()
        .map(|finding| (finding.code, finding.line, finding.column))
        .collect();
    assert_eq!(
        places,
        [
            ("wrong_type", 3, 40),
            ("unknown_element", 5, 5),
            ("unknown_element", 5, 9),
            ("wrong_name", 7, 15),
        ]
    );
}

#[test]
fn broken_files_are_reported_with_position() {
    for (text, code, line, told) in [
        ("", "missing_directive", 1, "```xml"),
        (
            "```xml\n<metadata/>\n```",
            "missing_directive",
            2,
            "<metadata>",
        ),
        (
            "a\n```xml\n<directive>\n<a></b>\n</directive>\n```",
            "xml",
            4,
            "expected 'a' tag",
        ),
        ("```xml\n<directive>\n```", "xml", 2, "never closed"),
        ("```xml\n\n```", "xml", 2, "root node"),
        (
            "```xml\n<!DOCTYPE a [<!ENTITY b \"c\">]>\n<directive>&b;</directive>\n```",
            "xml",
            2,
            "DTD",
        ),
        (
            "```xml\n<directive a=\"1\" a=\"2\"/>\n```",
            "xml",
            2,
            "already defined",
        ),
        (
            "```xml\n<directive>&unknown;</directive>\n```",
            "xml",
            2,
            "unknown entity",
        ),
    ] {
        let findings = parse(text, &id()).unwrap_err();
        let finding = &findings[0];
        assert_eq!(
            (finding.code, finding.line),
            (code, line),
            "{text}: {finding}"
        );
        assert!(finding.message.contains(told), "{text}: {finding}");
        assert!(!finding.message.contains(" at 1:"), "{finding}");
    }
}

#[test]
fn missing_parts_are_reported() {
    let findings = parse("```xml\n<directive/>\n```", &id()).unwrap_err();
    assert_eq!(
        codes(&findings),
        ["MISSING_ATTRIBUTE", "MISSING_ATTRIBUTE", "MISSING_ELEMENT"]
    );
    let text = "```xml\n<directive name=\"other\" version=\"1.0.0\"><metadata/></directive>\n```";
    let findings = parse(text, &id()).unwrap_err();
    assert_eq!(
        codes(&findings),
        [
            "WRONG_NAME",
            "MISSING_ELEMENT",
            "MISSING_ELEMENT",
            "MISSING_ELEMENT"
        ]
    );
}

#[test]
fn hostile_files_are_bounded() {
    let crowd = "<x-a/>".repeat(11_000);
    let findings = parse(&file(&crowd, "", ""), &id()).unwrap_err();
    assert!(
        findings[0].message.contains("nodes limit"),
        "{}",
        findings[0]
    );
    let large = "x".repeat(MOST_BYTES + 1);
    assert_eq!(parse(&large, &id()).unwrap_err()[0].code, "too_large");
    let attributes: Vec<String> = (0..6000).map(|at| format!("a{at}=\"\"")).collect();
    let attributes = attributes.join(" ");
    let findings = parse(&file(&format!("<model {attributes}/>"), "", ""), &id()).unwrap_err();
    assert_eq!(findings[0].code, "too_large");
    let unknown = "<nope/>".repeat(5000);
    let findings = parse(&file(&unknown, "", ""), &id()).unwrap_err();
    assert!(findings.len() <= 200, "{}", findings.len());
    let warned = "<failure/>".repeat(300);
    let rest = format!("<outputs>{warned}</outputs>");
    let findings = parse(&file("<modle/>", &rest, ""), &id()).unwrap_err();
    assert!(codes(&findings).contains(&"UNKNOWN_ELEMENT".to_owned()));
    let deep = format!("{}{}", "<x-a>".repeat(4000), "</x-a>".repeat(4000));
    assert!(parse(&file(&deep, "", ""), &id()).is_ok());
}

#[test]
fn versions_have_three_numbers() {
    for (version, fine) in [
        ("1.0.0", true),
        ("0.10.2-beta.1+5", true),
        ("1.0", false),
        ("v1.0.0", false),
        ("1..0", false),
        ("1.0.0 ", false),
        ("9999999999.0.0", false),
    ] {
        let text = file("", "", "").replace("1.0.0", version);
        assert_eq!(parse(&text, &id()).is_ok(), fine, "{version}");
    }
}

/// A directive with that many inputs and a prompt.
fn wide(inputs: usize, body: &str) -> String {
    let inputs: Vec<String> = (0..inputs)
        .map(|n| format!("<input name=\"i{n}\" default=\"x\"/>"))
        .collect();
    let inputs = inputs.concat();
    file("", &format!("<inputs>{inputs}</inputs>"), body)
}

#[test]
fn slow_file_is_abandoned_at_deadline() {
    let text = wide(300, "Go.");
    for patience in [0, 3, 20, 200] {
        let asked = Cell::new(0);
        let is_late = || asked.replace(asked.get() + 1) >= patience;
        let findings = parse_until(&text, &id(), &is_late).unwrap_err();
        let given_up = codes(&findings)
            .iter()
            .filter(|code| *code == "TOO_COMPLEX")
            .count();
        assert_eq!(given_up, 1, "{patience}: {findings:?}");
        assert!(asked.get() <= patience + 1, "nothing more is looked at");
    }
}

#[test]
fn unknown_inputs_are_searched_at_most_as_reported() {
    let text = wide(300, &"{input:nobody}".repeat(20_000));
    let asked = Cell::new(0_usize);
    let is_late = || {
        asked.set(asked.get() + 1);
        false
    };
    let (_, findings) = parse_until(&text, &id(), &is_late).unwrap();
    assert_eq!(findings.len(), 100);
    assert!(asked.get() < 1_000, "{}", asked.get());
}
