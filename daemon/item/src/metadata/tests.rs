use serde_json::json;

use super::*;

fn tool(extension: &str, text: &str) -> Result<Metadata, Error> {
    Metadata::parse(ItemKind::Tool, extension, text)
}

#[test]
fn python_is_read_without_being_run() {
    let metadata = tool(
        "py",
        "#!/usr/bin/env python3\n\"\"\"Doc.\"\"\"\nimport os\n__version__ = \"1.0.0\"\n__version__ = '1.' '2.3'\n\
         __executor_id__ = None\n__category__ = \"a/b\"\nversion = os.getcwd()\nanchor = 3\n\
         CONFIG_SCHEMA: dict = {\"n\": [1, -2.5, True, None, (\"x\",)], \"big\": 18446744073709551615}\n\
         CONFIG = {\"timeout\": 5}\n\ndef execute(params, project_path):\n    __category__ = \"no\"\n",
    )
    .unwrap();
    assert_eq!(metadata.version.as_deref(), Some("1.2.3"));
    assert_eq!(metadata.executor_id, None);
    assert_eq!(metadata.category.as_deref(), Some("a/b"));
    assert_eq!(
        metadata.config_schema,
        Some(json!({"n": [1, -2.5, true, null, ["x"]], "big": 18_446_744_073_709_551_615_u64}))
    );
    assert_eq!(metadata.config.unwrap()["timeout"], 5);
    assert_eq!(metadata.unread, Vec::<String>::new());
}

#[test]
fn python_that_would_have_to_be_run_is_an_error_with_its_line() {
    for value in [
        "make()", "{'a': b}", "{1: 2}", "f'{x}'", "b'x'", "{**y}", "1 + 1",
    ] {
        let error = tool("py", &format!("x = 1\n\nCONFIG = {value}\n")).unwrap_err();
        let expected = Error::NotLiteral {
            line: 3,
            name: "CONFIG".to_owned(),
        };
        assert_eq!(error, expected, "{value}");
    }
    assert!(matches!(
        tool("py", "x = 1\ndef f(:\n    pass\n"),
        Err(Error::Syntax { line: 2, .. })
    ));
}

#[test]
fn what_this_release_does_not_read_is_listed() {
    let metadata = tool("py", "CONFIG_RESOLVE = {}\n__native_async__ = True\n").unwrap();
    assert_eq!(metadata.unread, ["config_resolve", "native_async"]);
    let metadata = tool(
        "yaml",
        "anchor: {}\nverify_deps: {}\nauthor: me\nx-note: 1\n",
    )
    .unwrap();
    assert_eq!(metadata.unread, ["anchor", "verify_deps"]);
    let graph = tool("yaml", "tool_type: graph\npermissions: []\n").unwrap();
    assert_eq!(graph.unread, Vec::<String>::new());
    let script = tool("ts", "export const CONFIG: Config = {\n};\n").unwrap();
    assert_eq!(script.unread.len(), 1);
}

#[test]
fn yaml_that_is_wrong_is_an_error() {
    assert!(matches!(
        tool("yaml", "a: 1\nb: [\n"),
        Err(Error::Syntax { line: 3, .. })
    ));
    assert!(matches!(
        tool("yaml", "- a\n"),
        Err(Error::WrongShape { .. })
    ));
    assert!(matches!(
        tool("yaml", "version: 1.0\n"),
        Err(Error::WrongType {
            field: "version",
            ..
        })
    ));
    assert!(matches!(
        tool("yaml", "config: 1\n"),
        Err(Error::WrongType {
            field: "config",
            ..
        })
    ));
    assert!(matches!(
        tool("sh", "echo\n"),
        Err(Error::NoMetadata { .. })
    ));
}

#[test]
fn scripts_declare_constants() {
    let text = "// comment\nexport const __version__ = \"1.0.0\";\nconst __category__: string = 'a';\n\
                export const __executor_id__ = null;\n";
    let metadata = tool("ts", text).unwrap();
    assert_eq!(metadata.version.as_deref(), Some("1.0.0"));
    assert_eq!(metadata.category.as_deref(), Some("a"));
    assert_eq!(metadata.executor_id, None);
    assert!(matches!(
        tool("js", "\nconst __version__ = make();\n"),
        Err(Error::NotLiteral { line: 2, .. })
    ));
}

#[test]
fn what_a_knowledge_file_says_is_its_text_without_signature_and_metadata() {
    let signed = "<!-- rye:signed:x -->\n";
    let table = [
        ("```yaml\nname: a\n```\n\nText.\n", "Text."),
        ("# T\n\n```yaml\nname: a\n```\nText.\n", "# T\n\nText."),
        ("---\nname: a\n---\n# T\n\nText.\n", "# T\n\nText."),
        ("---\nname: a\n---", ""),
        ("```yaml\nname: a\n```", ""),
        (
            "```yaml\nname: a\n```\nText.\n\n```yaml\nb: 1\n```\n",
            "Text.\n\n```yaml\nb: 1\n```",
        ),
    ];
    for (text, expected) in table {
        for text in [text.to_owned(), format!("{signed}{text}")] {
            assert_eq!(knowledge("md", &text), expected, "{text:?}");
        }
    }
    let yaml = "name: a\nbody: text\n";
    assert_eq!(knowledge("yaml", &format!("{signed}{yaml}")), yaml.trim());
}

#[test]
fn markdown_has_fenced_metadata() {
    let knowledge = |text| Metadata::parse(ItemKind::Knowledge, "md", text);
    let text = "# T\n````markdown\n```yaml\nname: no\n```\n````\n```yaml\nname: yes\nversion: \"1.0.0\"\n```\n";
    assert_eq!(knowledge(text).unwrap().name.as_deref(), Some("yes"));
    let front = "<!-- rye:signed:x -->\n---\nname: front\n---\nText\n";
    assert_eq!(knowledge(front).unwrap().name.as_deref(), Some("front"));
    assert!(matches!(
        knowledge("# T\n\n```yaml\na: [\n```\n"),
        Err(Error::Syntax { line: 5, .. })
    ));
    assert!(matches!(knowledge("# T\n"), Err(Error::WrongShape { .. })));
    let directive = Metadata::parse(
        ItemKind::Directive,
        "md",
        "# Hi\n```xml\n<directive name=\"hi\" version=\"1.0.0\">\n  <metadata>\n    <category>demo</category>\n\
         </metadata>\n</directive>\n```\nSay hi.\n",
    )
    .unwrap();
    assert_eq!(directive.name.as_deref(), Some("hi"));
    assert_eq!(directive.category.as_deref(), Some("demo"));
    let config = Metadata::parse(
        ItemKind::Config,
        "toml",
        "version = \"1.0.0\"\ncategory = \"x\"\n",
    )
    .unwrap();
    assert_eq!(config.category.as_deref(), Some("x"));
}

#[test]
fn what_a_second_execution_means_is_one_of_three_words() {
    let yaml = |word: &str| tool("yaml", &format!("effect: {word}\n"));
    for (read, effect) in [
        (yaml("pure"), Some(Effect::Pure)),
        (yaml("idempotent"), Some(Effect::Idempotent)),
        (yaml("at_most_once"), Some(Effect::AtMostOnce)),
        (yaml("null"), None),
        (tool("py", "__effect__ = 'pure'\n"), Some(Effect::Pure)),
        (
            tool("js", "export const __effect__ = \"pure\";\n"),
            Some(Effect::Pure),
        ),
        (tool("py", "x = 1\n"), None),
    ] {
        let metadata = read.unwrap();
        assert_eq!(metadata.effect, effect);
        assert_eq!(metadata.unread, Vec::<String>::new());
    }
    for word in ["none", "7", "[pure]"] {
        let error = yaml(word).unwrap_err();
        assert!(error.to_string().contains("`at_most_once`"), "{error}");
    }
}
