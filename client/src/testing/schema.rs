//! The JSON Schema of `*.test.yaml`, for editors. It is looser than what reads such a file, and never stricter.

use serde_json::{Map, Value, json};

use super::file::{CASE_KEYS, EXPECT_KEYS, FILE_KEYS};

/// The schema.
pub(crate) fn schema() -> Value {
    let mut schema = map(&FILE_KEYS, &["tool", "cases"]);
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!("Cases that test a tool or a graph of Rye");
    schema
}

/// That of a map which has none but these keys.
fn map(keys: &[&str], required: &[&str]) -> Value {
    let property = |key: &&str| ((*key).to_owned(), property(key));
    json!({
        "type": "object",
        "properties": keys.iter().map(property).collect::<Map<_, _>>(),
        "additionalProperties": false,
        "required": required,
    })
}

/// The schema of a key: each name means one thing in all of the file.
fn property(key: &str) -> Value {
    let (mut schema, about) = match key {
        "tool" => (
            json!({"type": "string"}),
            "The tool or graph that is tested: `shop/price`.",
        ),
        "env" => (
            json!({"type": ["object", "null"], "additionalProperties": {"type": ["string", "number", "boolean"]}}),
            "Variables; they become the `.env` of the project that a case runs in.",
        ),
        "files" => (
            json!({"type": ["object", "null"], "additionalProperties": {"type": "string"}}),
            "Files of that project: path and text. One at the place of an item takes its place.",
        ),
        "cases" => (
            json!({"type": "array", "minItems": 1, "items": map(&CASE_KEYS, &["name", "expect"])}),
            "What the tool is called with, and what is to come of it.",
        ),
        "name" => (
            json!({"type": "string"}),
            "What the case shows; no other case has this name.",
        ),
        "params" => (
            json!({"type": ["object", "null"]}),
            "The parameters of the tool.",
        ),
        "timeout" => (
            json!({"type": ["number", "string", "null"]}),
            "How long the case may take: 5, 5s or 1m30s; a minute unless set.",
        ),
        "expect" => (map(&EXPECT_KEYS, &[]), "What is to come of the call."),
        "success" => (
            json!({"type": ["boolean", "null"]}),
            "Whether it succeeds; true unless `code` or `error_contains` says how it fails.",
        ),
        "result" => (
            json!({}),
            "The result has at least this: an object of it may have more keys.",
        ),
        "result_is" => (json!({}), "The result is this and nothing else."),
        "code" => (
            json!({"type": ["string", "null"]}),
            "The code of the failure.",
        ),
        "error_contains" => (json!({"type": ["string", "null"]}), "Words of the error."),
        _ => (json!({}), ""),
    };
    schema["description"] = json!(about);
    schema
}

#[cfg(test)]
mod tests {
    use rye_core::yaml;
    use rye_schema::Schema;

    use super::super::file::TestFile;
    use super::*;

    fn fits(text: &str) -> bool {
        let value = yaml::parse(text).unwrap().value;
        let schema = Schema::new(&schema()).unwrap();
        schema.problems(&value, 1).unwrap().is_empty()
    }

    #[test]
    fn each_key_of_a_test_says_what_it_is_for() {
        for key in FILE_KEYS.into_iter().chain(CASE_KEYS).chain(EXPECT_KEYS) {
            assert_ne!(property(key)["description"], "", "{key}");
        }
    }

    #[test]
    fn what_the_schema_refuses_is_refused_when_it_is_read() {
        let head = "tool: a/b\ncases:\n- name: x\n";
        for text in [
            format!("{head}  expect: {{}}\n"),
            format!(
                "{head}  params: null\n  timeout: 1m30s\n  expect: {{success: null, result_is: null}}\n"
            ),
            format!(
                "env: {{N: 3, B: true}}\nfiles: {{a.txt: one}}\n{head}  timeout: 2.5\n  expect: {{result: {{a: [1]}}}}\n"
            ),
            format!(
                "env: null\nfiles: null\n{head}  expect: {{code: tool_failed, error_contains: no}}\n"
            ),
        ] {
            assert!(TestFile::read(&text).is_ok() && fits(&text), "{text}");
        }
        for text in [
            "cases: []\ntool: a/b\n".to_owned(),
            "tool: a/b\n".to_owned(),
            format!("tols: x\n{head}  expect: {{}}\n"),
            format!("files: {{a.txt: [1]}}\n{head}  expect: {{}}\n"),
            head.to_owned(),
            format!("{head}  expct: {{}}\n  expect: {{}}\n"),
            format!("{head}  params: 1\n  expect: {{}}\n"),
            format!("{head}  timeout: true\n  expect: {{}}\n"),
            format!("{head}  expect: {{succes: true}}\n"),
            format!("{head}  expect: {{success: 1}}\n"),
        ] {
            assert!(TestFile::read(&text).is_err(), "it is read: {text}");
            assert!(!fits(&text), "it fits: {text}");
        }
    }
}
