//! Prompts of directives.

use super::*;
use crate::directive::fill::fill;

fn nothing(_: &str) -> Option<String> {
    None
}

fn filled(text: &str) -> (String, usize) {
    let inputs = object(&json!({
        "a": "x", "n": 3, "list": [1, "b"], "none": null, "evil": "{input:a} ${inputs.a} {env:HOME}",
    }));
    let env = |name: &str| (name == "HOME").then(|| "/h {input:a}".to_owned());
    let values = Values {
        inputs: &inputs,
        env: &env,
    };
    let mut notes = Vec::new();
    let text = fill(text, &values, &mut notes);
    (text, notes.len())
}

#[test]
fn placeholders_are_filled_in_one_pass() {
    for (text, expected, notes) in [
        ("plain", "plain", 0),
        ("{input:a}{input:n} ${inputs.a}", "x3 x", 0),
        ("{input:list}", "[1,\"b\"]", 0),
        ("{input:evil}", "{input:a} ${inputs.a} {env:HOME}", 0),
        ("{env:HOME}", "/h {input:a}", 0),
        ("{input:no}", "{input:no}", 1),
        ("${inputs.no}", "${inputs.no}", 1),
        ("{env:NO}", "{env:NO}", 1),
        ("{input:none}", "{input:none}", 1),
        ("{input:no?}|{input:none?}", "|", 0),
        ("{input:no:a: b}{input:no|c}{env:NO:d}", "a: bcd", 0),
        ("{input:a:else}", "x", 0),
        ("{input:no:}", "", 0),
        // No placeholders of Rye.
        (
            "${a} {input} {input:} {input:a b} ${inputs.a.b} ${inputs.a|b} {env:A|b} {env:A?}",
            "${a} {input} {input:} {input:a b} ${inputs.a.b} ${inputs.a|b} {env:A|b} {env:A?}",
            0,
        ),
        ("{{input:a}} $${inputs.a} {é{input:a}", "{x} $x {éx", 0),
        ("{input:a", "{input:a", 0),
        ("${inputs.a", "${inputs.a", 0),
    ] {
        assert_eq!(filled(text), (expected.to_owned(), notes), "{text}");
    }
    let hostile = "{input:".repeat(100_000);
    assert_eq!(filled(&hostile).0, hostile);
}

#[test]
fn prompt_is_assembled() {
    let (directive, _) = parse(SAMPLE, &id()).unwrap();
    let lineage = Lineage::new(
        ItemRef::parse("team/demo/count_files", ItemKind::Directive).unwrap(),
        0,
        Directive {
            extends: None,
            ..directive
        },
    );
    let effective = lineage.unwrap().effective();
    let inputs = object(&json!({"dir": "src"}));
    let prompt = effective.compose(
        &Knowledge {
            system: vec!["Who\n".to_owned(), "  ".to_owned()],
            before: vec!["Rules".to_owned()],
            after: vec!["Last".to_owned()],
        },
        &Values {
            inputs: &inputs,
            env: &nothing,
        },
    );
    assert!(prompt.warnings.is_empty(), "{:?}", prompt.warnings);
    assert_eq!(prompt.system.as_deref(), Some("Who"));
    assert_eq!(
        prompt.message,
        "Rules\n\n\
         <directive name=\"count_files\">\n\
         <description>Count files below a folder</description>\n\
         <permissions>\n      \
         <execute effect=\"pure\"><tool>rye.file-system.*</tool><tool>rye/bash</tool></execute>\n      \
         <fetch>*</fetch>\n      \
         <acknowledge risk=\"elevated\">demo</acknowledge>\n    \
         </permissions>\n\
         List src and report the number of files.\n\
         <actions><look at=\"src\"/></actions>\n\
         When you are done, call the tool `directive_return` with:\n\
         - count (integer): Files found [required]\n\
         - names (array)\n\
         If something keeps you from it, call it with status=\"error\", and say what in error_detail.\n\
         </directive>\n\nLast"
    );
    let bare = effective.compose(
        &Knowledge::default(),
        &Values {
            inputs: &Object::new(),
            env: &nothing,
        },
    );
    assert_eq!(bare.system, None);
    assert_eq!(bare.warnings.len(), 2);
}

#[test]
fn unknown_placeholders_are_found_with_position() {
    let inputs = "<inputs><input name=\"dir\"/></inputs>";
    let (_, findings) = read("", inputs, "One\ntwo {input:dri} {input:dir} {env:X}\n");
    assert_eq!(codes(&findings), ["unknown_input"]);
    assert_eq!((findings[0].line, findings[0].column), (10, 5));
    assert!(
        findings[0].message.contains("did you mean `dir`?"),
        "{}",
        findings[0]
    );
    let actions = "<inputs><input name=\"dir\"/></inputs><actions><a b=\"${inputs.c}\"/></actions>";
    let (_, findings) = read("", actions, "");
    assert_eq!(codes(&findings), ["unknown_input"]);
    assert_eq!(findings[0].line, 7);
    let (_, findings) = read("", "", "{input:any}");
    assert_eq!(findings, []);
}
