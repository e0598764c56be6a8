use std::fs;
use std::path::{Path, PathBuf};

use rye_core::callers::Caller;
use rye_schema::Schema;
use serde_json::json;

use super::*;

fn tool(extension: &str, text: &str) -> Result<Metadata, Error> {
    Metadata::parse(ItemKind::Tool, extension, text)
}

#[test]
fn python_metadata_is_read_without_execution() {
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
    assert_eq!(metadata.unread, []);
}

#[test]
fn python_literal_may_name_literal_above_it() {
    let schema = "CONFIG_SCHEMA = {'enum': KINDS, 'default': FIRST}\n";
    let constants = "import json\nKINDS: list = ['a', 'b']\nFIRST = 'a'\n";
    let read = |between: &str| {
        let text = format!("{constants}{between}\n{schema}");
        tool("py", &text).map(|metadata| metadata.config_schema.unwrap())
    };
    let expected = json!({"enum": ["a", "b"], "default": "a"});
    for between in [
        "",
        "def change():\n    KINDS.append('c')",
        "import os\nROOT = os.getcwd()",
        "'''KINDS'''",
    ] {
        assert_eq!(read(between), Ok(expected.clone()), "{between}");
    }
    // The value may have changed.
    for between in [
        "KINDS.append('c')",
        "KINDS += ['c']",
        "KINDS[0] = 'c'",
        "last = KINDS.pop()",
        "KINDS = make()",
        "OTHER = [KINDS]",
        "del KINDS",
        "for kind in json.loads('[]'):\n    KINDS.append(kind)",
        "from kinds import KINDS",
        "import kinds as KINDS",
        "def KINDS():\n    pass",
    ] {
        assert!(
            matches!(read(between), Err(Error::NotLiteral { .. })),
            "{between}"
        );
    }
    let again = json!({"enum": [1], "default": 1});
    assert_eq!(read("KINDS = [1]\nFIRST = 1"), Ok(again));
    // Names do not multiply what a file holds.
    let (text, names) = ("x".repeat(1000), "K,".repeat(2000));
    let long = format!("K = '{text}'\nCONFIG = {{'a': [{names}]}}\n");
    assert!(matches!(
        tool("py", &long),
        Err(Error::NotLiteral { line: 2, .. })
    ));
}

#[test]
fn computed_python_metadata_is_error_with_line() {
    for value in [
        "make()",
        "{'a': b}",
        "{1: 2}",
        "f'{x}'",
        "b'x'",
        "{**y}",
        "1 + 1",
        "{'n': 18446744073709551616}",
        "{'n': -9223372036854775809}",
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
fn ignored_key_is_listed_with_line_and_suggestion() {
    let metadata = tool(
        "py",
        "CONFIG_RESOLVE = {}\n__native_async__ = True\nCHILD_CONSTRAINTS = {}\n",
    )
    .unwrap();
    assert_eq!(metadata.unread, []);
    assert_eq!(metadata.ignored, ["native_async"]);
    let text =
        "# a comment\nauthor: me\nx-note: 1\nconfg: {}\nresources: {}\nqqqqqq: 1\ntool_id: a/b\n";
    let metadata = tool("yaml", text).unwrap();
    let told = |unread: &Unread| (unread.key.clone(), unread.line, unread.suggestion);
    let found: Vec<_> = metadata.unread.iter().map(told).collect();
    let expected = [
        ("confg".to_owned(), Some(4), Some("config")),
        ("qqqqqq".to_owned(), Some(6), None),
    ];
    assert_eq!(found, expected);
    assert_eq!(metadata.ignored, ["tool_id"]);
    let graph = tool("yaml", "tool_type: graph\npermissions: []\n").unwrap();
    assert_eq!(graph.unread, []);
}

#[test]
fn invalid_yaml_is_error() {
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
        Err(Error::WrongType { field, .. }) if field == "version"
    ));
    assert!(matches!(
        tool("yaml", "config: 1\n"),
        Err(Error::WrongType { field, .. }) if field == "config"
    ));
    assert!(matches!(
        tool("json", "{}\n"),
        Err(Error::NoMetadata { .. })
    ));
}

#[test]
fn script_constants_are_read() {
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
fn script_constant_is_json5_literal_in_any_context() {
    let text = r#"#!/usr/bin/env node
/* export const VERSION = "9.9.9"; */
const odd = /["'`{]/g, text = `export const NAME = "no" ${ { a: "}`" } } {`;
export const VERSION = "1.2.3"
export const CATEGORY: string = 'a/b' as const;
export const CONFIG_SCHEMA: { [key: string]: unknown } = {
  // A URL is no comment, and a brace in a text no end.
  type: "object", properties: {url: {type: 'string', default: "http://x/{id}//y"}, n: {minimum: -1.5}},
} satisfies Schema;
function inner() { const CONFIG = compute(); }
const NAME = compute();
export const ENV_REQUIRES = ["A", "B",];
"#;
    let metadata = tool("ts", text).unwrap();
    assert_eq!(metadata.version.as_deref(), Some("1.2.3"));
    assert_eq!(metadata.category.as_deref(), Some("a/b"));
    let properties =
        json!({"url": {"type": "string", "default": "http://x/{id}//y"}, "n": {"minimum": -1.5}});
    assert_eq!(
        metadata.config_schema,
        Some(json!({"type": "object", "properties": properties}))
    );
    assert_eq!(metadata.env_requires, ["A", "B"]);
    assert_eq!((metadata.name, metadata.config), (None, None));
    assert_eq!(line_of_field("ts", text, "/config_schema/type"), Some(6));
    let deep = format!(
        "export const CONFIG = {}{};\n",
        "[".repeat(9999),
        "]".repeat(9999)
    );
    for value in [
        "make()",
        "{a: b}",
        "1 + 1",
        "{...x}",
        "`x`",
        "\"a\" + b",
        "{",
        "",
    ] {
        let error = tool("js", &format!("\n\nexport const CONFIG = {value};\n"));
        assert!(
            matches!(error, Err(Error::NotLiteral { line: 3, .. })),
            "{value}"
        );
    }
    assert!(matches!(tool("js", &deep), Err(Error::NotLiteral { .. })));
}

/// Reads a script of one MiB that starts with `begins` and repeats `part`, on a thread with a small stack.
fn of_a_long_script(begins: &str, part: &str) -> Result<Metadata, Error> {
    let text = format!("{begins}{}", part.repeat((1 << 20) / part.len()));
    let reader = std::thread::Builder::new().stack_size(256 * 1024);
    let reader = reader.spawn(move || tool("js", &text)).unwrap();
    reader.join().unwrap()
}

#[test]
fn script_scan_is_linear_in_length() {
    let templates = of_a_long_script("", "`${");
    assert_eq!(templates, Ok(Metadata::default()));
    for line_end in ["\r", "\u{2028}", "\u{2029}"] {
        let begins = format!("\nexport const CONFIG = {{// {line_end}");
        let lists = of_a_long_script(&begins, "[");
        assert!(
            matches!(lists, Err(Error::NotLiteral { line: 2, .. })),
            "{line_end:?}"
        );
    }
    for slashes in ["/[", "`${/[}` ", "/[\n"] {
        let expressions = of_a_long_script("", slashes);
        assert_eq!(expressions, Ok(Metadata::default()), "{slashes}");
    }
    for ends in [";", "\n", " as X "] {
        let part = format!("export const VERSION = '1.0.0'{ends}");
        let versions = of_a_long_script("", &part).unwrap();
        assert_eq!(versions.version.as_deref(), Some("1.0.0"), "{ends}");
    }
}

#[test]
fn literal_with_ambiguous_end_hides_no_brackets() {
    let deep = "[".repeat(5000);
    for hidden in [
        // A string that continues in the next line; misread, it would swap the inside and outside of all later quotes.
        format!("{{a: \"x\\\r\n\", b: {deep}\n\"}}"),
        format!("{{a: 'x\r', b: {deep}\n'}}"),
        format!("{{a: 'x\n', b: {deep}\n'}}"),
        format!("{{a: /'/, b: {deep}, c: /'/}}"),
        format!("{{a: `\"`, b: {deep}, c: `\"`}}"),
        format!("{{a: 1 /*/ * / */, b: {deep} }}"),
    ] {
        let text = format!("export const CONFIG = {hidden};\n");
        let found = tool("js", &text);
        let start = &text[..40];
        assert!(matches!(found, Err(Error::NotLiteral { .. })), "{start:?}");
    }
    let text =
        "export const CONFIG = {// one\u{2028}a: /* , */ -1.5, 'b': \"x\\\r\ny\"\u{2029}};\n";
    let config = tool("js", text).unwrap().config.map(Value::Object);
    assert_eq!(config, Some(json!({"a": -1.5, "b": "xy"})));
}

#[test]
fn shell_metadata_is_in_leading_comment() {
    let text = "#!/bin/bash\n# rye:signed:x\n# Counts.\n# ---\n# version: \"1.0.0\"\n# category: a\n# config:\n#   timeout: 5\n# ---\necho\n";
    let metadata = tool("sh", text).unwrap();
    assert_eq!(metadata.version.as_deref(), Some("1.0.0"));
    assert_eq!(metadata.config.unwrap()["timeout"], 5);
    assert_eq!(line_of_field("sh", text, "/config/timeout"), Some(8));
    for without in [
        "echo\n",
        "# ---\n# version: \"1.0.0\"\necho\n# ---\n",
        "\n# ---\n# a: 1\n# ---\n",
    ] {
        assert!(
            matches!(tool("sh", without), Err(Error::NoBlock)),
            "{without}"
        );
    }
    let wrong = "# ---\n# a: 1\n# b: [\n# ---\n";
    assert!(matches!(
        tool("sh", wrong),
        Err(Error::Syntax { line: 4, .. })
    ));
}

#[test]
fn knowledge_text_excludes_signature_and_metadata() {
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
fn markdown_metadata_is_fenced() {
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
fn tool_declares_result_length_for_models() {
    let limit = |given: &str| {
        let metadata = tool("yaml", &format!("result_limit: {given}\n"));
        metadata.map(|metadata| (metadata.result_limit, metadata.unread))
    };
    assert_eq!(limit("65536").unwrap(), (Some(65_536), vec![]));
    assert_eq!(limit("1").unwrap().0, Some(1));
    assert_eq!(limit("null").unwrap().0, None);
    for given in ["0", "65537", "-1", "1.5", "many"] {
        let error = limit(given).unwrap_err().to_string();
        assert!(error.contains("from 1 to 65536"), "{given}: {error}");
    }
}

#[test]
fn callers_are_read_in_every_notation() {
    let directive = |callers: &str| {
        let text = format!(
            "```xml\n<directive name=\"d\" version=\"1.0.0\">\n<metadata>{callers}</metadata>\n</directive>\n```\n"
        );
        Metadata::parse(ItemKind::Directive, "md", &text)
    };
    let graph = "tool_type: graph\ncallers: [graph, person]\n";
    for metadata in [
        tool("yaml", "callers: [graph, person]\n"),
        tool("yaml", graph),
        tool("py", "__callers__ = [\"graph\", \"person\"]\n"),
        tool("js", "export const CALLERS = [\"graph\", \"person\"];\n"),
        directive("<callers>graph, person</callers>"),
    ] {
        let callers = metadata.unwrap().callers;
        let accepted = [Caller::Model, Caller::Code, Caller::Graph, Caller::Person];
        let accepted = accepted.map(|caller| callers.accept(caller));
        assert_eq!(accepted, [false, false, true, true]);
    }
    for refused in [
        tool("yaml", "callers: [robot]\n"),
        tool("yaml", "callers: []\n"),
        tool("py", "__callers__ = \"graph\"\n"),
        directive("<callers>robot</callers>"),
    ] {
        let error = refused.unwrap_err().to_string();
        assert!(error.contains("`callers`"), "{error}");
        assert!(error.contains("`model`, `code`"), "{error}");
    }
    let open = directive("").unwrap().callers;
    assert_eq!(open, Callers::default());
}

#[test]
fn effect_is_one_of_three_values() {
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
        assert_eq!(metadata.unread, []);
    }
    for word in ["none", "7", "[pure]"] {
        let error = yaml(word).unwrap_err();
        assert!(error.to_string().contains("`at_most_once`"), "{error}");
    }
}

#[test]
fn output_is_one_of_three_values() {
    let yaml = |word: &str| tool("yaml", &format!("output: {word}\n"));
    for (read, output) in [
        (yaml("text"), Some(OutputFormat::Text)),
        (yaml("json"), Some(OutputFormat::Json)),
        (yaml("auto"), Some(OutputFormat::Auto)),
        (
            tool("py", "__output__ = 'json'\n"),
            Some(OutputFormat::Json),
        ),
        (
            tool("js", "export const OUTPUT = \"text\";\n"),
            Some(OutputFormat::Text),
        ),
        (tool("py", "x = 1\n"), None),
    ] {
        let metadata = read.unwrap();
        assert_eq!((metadata.output, metadata.unread), (output, vec![]));
    }
    let error = yaml("JSON").unwrap_err().to_string();
    assert!(error.contains("`text`, `json` and `auto`"), "{error}");
}

#[test]
fn replay_is_one_word_and_excludes_at_most_once() {
    let yaml = |text: &str| tool("yaml", text);
    for (read, replays) in [
        (yaml("replay: ordered\n"), true),
        (yaml("replay: ordered\neffect: pure\n"), true),
        (tool("py", "__replay__ = 'ordered'\n"), true),
        (tool("js", "export const REPLAY = 'ordered';\n"), true),
        (yaml("effect: at_most_once\n"), false),
    ] {
        let metadata = read.unwrap();
        assert_eq!((metadata.replays, metadata.unread), (replays, vec![]));
    }
    for (text, words) in [
        ("replay: all\n", "`replay` must be the word `ordered`"),
        ("replay: true\n", "`replay` must be the word `ordered`"),
        (
            "replay: ordered\neffect: at_most_once\n",
            "`replay` must be left out of a tool with `effect: at_most_once`",
        ),
    ] {
        let error = yaml(text).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}

fn yaml_files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let files = entries.flat_map(|path| {
        if path.is_dir() {
            yaml_files(&path)
        } else {
            vec![path]
        }
    });
    files
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "yaml")
        })
        .collect()
}

#[test]
fn shipped_items_match_editor_schemas() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (graph, tool) = (rye_core::definition::schema(), tool_schema());
    let (graph, tool) = (Schema::new(&graph).unwrap(), Schema::new(&tool).unwrap());
    let folders = ["../../.ai/tools", "src/draft", "src/init"];
    let files: Vec<PathBuf> = folders
        .iter()
        .flat_map(|folder| yaml_files(&here.join(folder)))
        .collect();
    assert!(files.len() > 30, "{files:?}");
    let is_item = |file: &&PathBuf| !crate::spaces::is_test(file);
    for file in files.iter().filter(is_item) {
        let value = yaml::parse(&fs::read_to_string(file).unwrap())
            .unwrap()
            .value;
        let schema = if value["tool_type"] == "graph" {
            &graph
        } else {
            &tool
        };
        let problems = schema.problems(&value, 5).unwrap();
        assert!(problems.is_empty(), "{}: {problems:#?}", file.display());
    }
}

#[test]
fn tool_schema_describes_every_key() {
    let schema = tool_schema();
    for key in keys::TOOL.known() {
        let about = &schema["properties"][key]["description"];
        assert!(about.is_string(), "{key}");
    }
    let fits = |text: &str| {
        let value = yaml::parse(text).unwrap().value;
        let schema = Schema::new(&schema).unwrap();
        schema.problems(&value, 1).unwrap().is_empty()
    };
    let head = "version: \"1.0.0\"\ntool_type: bash\ncategory: t\n";
    assert!(fits(&format!("{head}x-note: 1\nresult_limit: 65536\n")));
    for wrong in [
        "confg: {}",
        "config: 1",
        "effect: twice",
        "callers: [robot]",
        "output: yaml",
        "result_limit: 65537",
        "permissions: {}",
    ] {
        assert!(!fits(&format!("{head}{wrong}\n")), "{wrong}");
    }
    assert!(!fits("tool_type: bash\n"));
}
