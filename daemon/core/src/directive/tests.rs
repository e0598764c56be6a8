use serde_json::json;

use super::*;
use crate::id::ItemKind;
use crate::model::thread::ReturnStatus;

mod faults;
mod lineage;
mod prompts;

fn id() -> ItemId {
    ItemId::new("team/demo/count_files").unwrap()
}

/// A file with these contents of `metadata`, elements after it, and body.
fn file(metadata: &str, rest: &str, body: &str) -> String {
    format!(
        "# Count files\n\n```xml\n<directive name=\"count_files\" version=\"1.0.0\">\n<metadata>\
         <description>Counts</description><author>me</author><category>team/demo</category>\n\
         {metadata}</metadata>\n{rest}</directive>\n```\n{body}"
    )
}

fn read(metadata: &str, rest: &str, body: &str) -> (Directive, Vec<Finding>) {
    let text = file(metadata, rest, body);
    parse(&text, &id()).unwrap_or_else(|findings| panic!("{findings:?}\n{text}"))
}

/// The codes of the findings, errors in capitals.
fn codes(findings: &[Finding]) -> Vec<String> {
    let code = |finding: &Finding| match finding.severity {
        Severity::Error => finding.code.to_uppercase(),
        Severity::Warning => finding.code.to_owned(),
    };
    findings.iter().map(code).collect()
}

const SAMPLE: &str = r#"<!-- rye:signed:2026-01-01T00:00:00Z:aa:bb:cc -->
# Count files
```xml
<directive name="count_files" version="1.0.0" extends="team/base">
  <metadata>
    <description>Count files below a folder</description>
    <category>team/demo</category><author>me</author><tags>files, counting</tags>
    <model tier="fast" provider="anthropic" effort="low" max_output="2000" fallback="sonnet" parallel="false"/>
    <limits turns="6" tokens="20000" spend="0.05" depth="1" duration_seconds="1.5"/>
    <permissions>
      <execute effect="pure"><tool>rye.file-system.*</tool><tool>rye/bash</tool></execute>
      <fetch>*</fetch>
      <acknowledge risk="elevated">demo</acknowledge>
    </permissions>
    <context><system>team/who</system><before>team/rules</before><suppress>agent/core/Behavior</suppress></context>
    <tools mode="native" start="message" max_parallel="3"/>
    <continuation_directive>team/go-on</continuation_directive>
    <x-ours anything="goes"><deep/></x-ours>
  </metadata>
  <inputs>
    <input name="dir" required="true">Folder</input>
    <input name="deep" type="boolean" default="true"/>
    <input name="most" type="integer" enum="1, 2, 3"/>
  </inputs>
  <outputs>
    <output name="count" type="integer" required="true">Files found</output>
    <output name="names" type="array" items="string"/>
  </outputs>
  <actions><look at="{input:dir}"/></actions>
  <raw> a < b & {input:nobody} </raw>
</directive>
```

List {input:dir} and report the number of files.
"#;

#[test]
fn a_file_is_read_into_data() {
    let (directive, findings) = parse(SAMPLE, &id()).unwrap();
    assert_eq!(codes(&findings), ["no_effect"]);
    assert!(
        findings[0].message.contains("<continuation_directive>"),
        "{findings:?}"
    );
    assert_eq!(
        directive.extends.as_ref().unwrap().to_string(),
        "directive:team/base"
    );
    assert_eq!(directive.tags, ["files", "counting"]);
    assert_eq!(directive.model.tier.as_deref(), Some("fast"));
    assert_eq!(directive.model.effort.as_deref(), Some("low"));
    assert_eq!(directive.model.max_output, Some(2000));
    assert!(directive.model.one_call);
    assert_eq!(directive.limits.turns, Some(6));
    assert_eq!(directive.limits.spend, Some(Usd::from_nanos(50_000_000)));
    assert_eq!(
        directive.limits.duration(),
        Some(Duration::from_millis(1500))
    );
    let permissions = directive.permissions.as_ref().unwrap();
    assert_eq!(
        permissions.patterns,
        [
            "rye.execute.tool.rye.file-system.*",
            "rye.execute.tool.rye.bash",
            "rye.fetch.*"
        ]
    );
    assert_eq!(permissions.effects.len(), 2);
    assert_eq!(permissions.effects[1].1, Effect::Pure);
    assert!(
        permissions
            .written
            .starts_with("<permissions>\n      <execute effect")
    );
    assert_eq!(directive.acknowledged[0].reason, "demo");
    assert_eq!(directive.context.before[0].as_str(), "team/rules");
    assert_eq!(directive.tools.start, Some(CallStart::Message));
    assert_eq!(directive.tools.max_parallel, Some(3));
    assert_eq!(directive.continuation().to_string(), "directive:team/go-on");
    assert_eq!(
        directive.inputs.as_ref().unwrap()["properties"]["deep"],
        json!({"type": "boolean", "default": true})
    );
    assert_eq!(
        directive.outputs[1].schema,
        json!({"type": "array", "items": {"type": "string"}})
    );
    assert_eq!(
        directive.actions.as_deref(),
        Some("<actions><look at=\"{input:dir}\"/></actions>")
    );
    assert_eq!(
        directive.body,
        "List {input:dir} and report the number of files."
    );
}

#[test]
fn stored_directive_reads_back_and_is_small() {
    let (directive, _) = parse(SAMPLE, &id()).unwrap();
    let stored = serde_json::to_string(&directive).unwrap();
    assert_eq!(
        serde_json::from_str::<Directive>(&stored).unwrap(),
        directive
    );
    let (plain, _) = read("", "", "Hi");
    let stored = serde_json::to_string(&plain).unwrap();
    assert_eq!(serde_json::from_str::<Directive>(&stored).unwrap(), plain);
    assert!(!stored.contains("null") && stored.len() < 300, "{stored}");
    assert_eq!(plain.continuation().id.as_str(), DEFAULT_CONTINUATION);
}

#[test]
fn permissions_become_patterns() {
    for (xml, expected, found) in [
        ("<permissions/>", vec![], vec![]),
        ("<permissions>*</permissions>", vec!["rye.*"], vec![]),
        (
            "<permissions>*<acknowledge risk=\"unrestricted\">yes</acknowledge></permissions>",
            vec!["rye.*"],
            vec![],
        ),
        (
            "<permissions><sign>*</sign></permissions>",
            vec!["rye.sign.*"],
            vec![],
        ),
        (
            "<permissions><execute><tool>*</tool><directive>a/b</directive><knowledge>k</knowledge><config>agent.*</config></execute></permissions>",
            vec![
                "rye.execute.tool.*",
                "rye.execute.directive.a.b",
                "rye.execute.knowledge.k",
                "rye.execute.config.agent.*",
            ],
            vec![],
        ),
        (
            "<permissions><execute resource=\"rye\" action=\"tool.*\"/></permissions>",
            vec!["rye.execute.tool.*"],
            vec!["old_spelling"],
        ),
        (
            "<permissions><execute resource=\"rye\" action=\"search.*\"/><execute resource=\"rye\" action=\"load.knowledge.x\"/></permissions>",
            vec!["rye.fetch.*", "rye.fetch.knowledge.x"],
            vec!["old_spelling", "old_spelling"],
        ),
        (
            "<permissions><execute resource=\"rye\" action=\"tool.wait_threads\"/></permissions>",
            vec!["rye.execute.tool.rye.agent.threads.wait_threads"],
            vec!["old_spelling", "old_spelling"],
        ),
        (
            "<permissions><execute><tool>orchestrator</tool></execute></permissions>",
            vec!["rye.execute.tool.rye.agent.threads.orchestrator"],
            vec!["old_spelling"],
        ),
        (
            "<permissions><execute/></permissions>",
            vec![],
            vec!["no_effect"],
        ),
    ] {
        let (directive, findings) = read(xml, "", "");
        assert_eq!(directive.permissions.unwrap().patterns, expected, "{xml}");
        assert_eq!(codes(&findings), found, "{xml}");
    }
    let (directive, _) = read("", "", "");
    assert_eq!(directive.permissions, None);
}

#[test]
fn older_spellings_are_read_with_warning() {
    let (directive, findings) = read(
        "<model_class tier=\"low\" fallback_id=\"b\">old text</model_class>\
         <limits max_turns=\"3\" max_spend=\"1.25\" duration=\"60\" spend_currency=\"USD\"/><cost><context/></cost>",
        "<outputs><success>Done</success><output name=\"a\"/></outputs>",
        "",
    );
    assert_eq!(directive.model.tier.as_deref(), Some("low"));
    assert_eq!(directive.model.fallback.as_deref(), Some("b"));
    assert_eq!(directive.limits.turns, Some(3));
    assert_eq!(directive.limits.spend, Some(Usd::from_nanos(1_250_000_000)));
    assert_eq!(directive.limits.duration_ms, Some(60_000));
    assert_eq!(directive.outputs.len(), 1);
    assert_eq!(
        codes(&findings),
        [
            "old_spelling",
            "old_spelling",
            "no_effect",
            "old_spelling",
            "old_spelling",
            "old_spelling",
            "no_effect",
            "no_effect"
        ]
    );
}

fn object(value: &Value) -> Object {
    value.as_object().cloned().unwrap()
}

#[test]
fn inputs_apply_defaults_and_check_types() {
    let (directive, _) = parse(SAMPLE, &id()).unwrap();
    let resolved = directive
        .resolve_inputs(object(&json!({"dir": "src"})))
        .unwrap();
    assert_eq!(Value::Object(resolved), json!({"dir": "src", "deep": true}));
    for (given, told) in [
        (json!({}), "`dir`"),
        (json!({"dir": null}), "dir"),
        (json!({"dir": "a", "deep": "yes"}), "deep"),
        (json!({"dir": "a", "most": 4}), "most"),
        (
            json!({"dir": "a", "dri": 1}),
            "no input `dri` (did you mean `dir`?)",
        ),
    ] {
        let failure = directive.resolve_inputs(object(&given)).unwrap_err();
        assert_eq!(failure.code, "input_validation_failed");
        assert!(
            failure.message.contains(told),
            "{given}: {}",
            failure.message
        );
    }
    let (free, _) = read("", "", "");
    let given = object(&json!({"anything": [1]}));
    assert_eq!(free.resolve_inputs(given.clone()), Ok(given));
}

#[test]
fn output_named_status_leaves_another_name_to_status_of_thread() {
    let text = SAMPLE.replace(
        "<output name=\"count\"",
        "<output name=\"status\">how it went</output><output name=\"count\"",
    );
    let (directive, _) = parse(&text, &id()).unwrap();
    let returns = Returns::of(&directive.outputs).unwrap().unwrap();
    let given = json!({"count": 1, "status": "fine", "return_status": "success"});
    let returned = returns.check(&object(&given)).unwrap();
    assert_eq!(returned.status, ReturnStatus::Success);
    assert_eq!(
        Value::Object(returned.outputs),
        json!({"count": 1, "status": "fine"})
    );
    let blocked = json!({"return_status": "error", "error_detail": "no folder"});
    let blocked = returns.check(&object(&blocked)).unwrap();
    assert_eq!(blocked.status, ReturnStatus::Error);
}

#[test]
fn return_is_checked_against_outputs() {
    let (directive, _) = parse(SAMPLE, &id()).unwrap();
    let returns = Returns::of(&directive.outputs).unwrap().unwrap();
    assert_eq!(returns.schema()["required"], json!(["count"]));
    assert_eq!(
        returns.schema()["properties"]["count"]["description"],
        "Files found"
    );
    // Falsy values are values all the same.
    let zero = returns
        .check(&object(&json!({"count": 0, "names": []})))
        .unwrap();
    assert_eq!(zero.status, ReturnStatus::Success);
    assert_eq!(
        Value::Object(zero.outputs),
        json!({"count": 0, "names": []})
    );
    let blocked = object(&json!({"status": "error", "error_detail": "no such folder"}));
    let blocked = returns.check(&blocked).unwrap();
    assert_eq!(blocked.status, ReturnStatus::Error);
    assert_eq!(blocked.error_detail.as_deref(), Some("no such folder"));
    assert!(blocked.outputs.is_empty());
    for (given, told) in [
        (json!({}), "count"),
        (json!({"count": "3"}), "`count`"),
        (json!({"count": 1, "cuont": 2}), "cuont"),
        (json!({"count": 1, "names": [1]}), "`names/0`"),
        (json!({"count": 1, "status": "great"}), "`status`"),
        (json!({"status": "error", "count": "many"}), "`count`"),
        (
            json!({"count": 1, "names": ["x".repeat(2 << 20)]}),
            "larger than 1 MiB",
        ),
    ] {
        let problem = returns.check(&object(&given)).unwrap_err();
        assert!(problem.contains(told), "{problem}");
    }
    assert!(Returns::of(&[]).unwrap().is_none());
}
