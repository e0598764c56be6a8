//! Format of `*.test.yaml`: cases of one tool. Pure.
//!
//! **Owns** the keys of such a file, and their JSON Schema for editors. The schema may accept more than the reader, but
//! never less.
//! **Failure.** All faults of a file are reported at once, each with its position, its field and the fix.

use std::cell::RefCell;
use std::collections::HashSet;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use rye_core::clock;
use rye_core::declared::types::{any, object, optional_text, switch, text, time};
use rye_core::declared::{Fields, Key, Keys, is_variable, unknown_keys};
use rye_core::expr::nearest;
use rye_core::id::{ItemKind, ItemRef};
use rye_core::model::Object;
use rye_core::yaml::{self, Document, YamlFault, push_segment};
use serde_json::{Value, json};

#[rustfmt::skip]
const FILE: Keys = Keys {
    required: &[
        ("tool", "name the tool that is tested, such as `sample/greet`"),
        ("cases", "write a list of cases, each with `name`, `params` and `expect`"),
    ],
    ..Keys::new("a file of tests", &[
        Key(&["tool"], text, "The tool or graph that is tested: `shop/price`."),
        Key(&["env"], || map_of(&["string", "number", "boolean"]), "Variables; they become the `.env` of the project that a case runs in."),
        Key(&["files"], || map_of(&["string"]), "Files of that project: path and text. One at the place of an item takes its place."),
        Key(&["cases"], || json!({"type": "array", "minItems": 1, "items": CASE.schema()}), "What the tool is called with, and what is to come of it."),
    ])
};

#[rustfmt::skip]
const CASE: Keys = Keys {
    required: &[
        ("name", "say in a few words what the case shows"),
        ("expect", "write what is to come of it, such as `expect: {success: true}`"),
    ],
    ..Keys::new("a case", &[
        Key(&["name"], text, "What the case shows; no other case has this name."),
        Key(&["params"], object, "The parameters of the tool."),
        Key(&["expect"], || EXPECT.schema(), "What is to come of the call."),
        Key(&["timeout"], time, "How long the case may take: 5, 5s or 1m30s; a minute unless set."),
    ])
};

#[rustfmt::skip]
const EXPECT: Keys = Keys::new("what is expected", &[
    Key(&["success"], switch, "Whether it succeeds; true unless `code` or `error_contains` says how it fails."),
    Key(&["result"], any, "The result has at least this: an object of it may have more keys."),
    Key(&["result_is"], any, "The result is this and nothing else."),
    Key(&["code"], optional_text, "The code of the failure."),
    Key(&["error_contains"], optional_text, "Words of the error."),
]);

/// Returns the schema of a map whose values have one of `types`. It also accepts null.
fn map_of(types: &[&str]) -> Value {
    json!({"type": ["object", "null"], "additionalProperties": {"type": types}})
}

/// Returns the JSON Schema of a file, for editors.
pub(crate) fn schema() -> Value {
    FILE.schema_of_file("Cases that test a tool or a graph of Rye")
}

/// Time limit of a case that sets none.
const TIMEOUT: Duration = Duration::from_mins(1);

#[derive(Debug, Clone, PartialEq)]
pub(super) struct TestFile {
    pub(super) tool: ItemRef,
    /// Variables of the project's `.env`.
    pub(super) env: Vec<(String, String)>,
    /// Files of the project, by path, with their texts.
    pub(super) files: Vec<(PathBuf, String)>,
    pub(super) cases: Vec<Case>,
}

/// One call of the tool, and its expected outcome.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Case {
    pub(super) name: String,
    pub(super) params: Object,
    pub(super) expect: Expect,
    pub(super) timeout: Duration,
}

/// The expected outcome of a call.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Expect {
    pub(super) success: bool,
    pub(super) result: Option<Expected>,
    pub(super) code: Option<String>,
    pub(super) error_contains: Option<String>,
}

/// The expected result of a call.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Expected {
    /// At least this: every object may have more keys.
    Part(Value),
    /// This and nothing else.
    Whole(Value),
}

impl TestFile {
    /// Reads the text of a file. Returns all faults if there are any.
    pub(super) fn read(text: &str) -> Result<Self, Vec<YamlFault>> {
        let document = yaml::parse(text).map_err(|fault| vec![fault])?;
        let faults = Faults {
            document: &document,
            found: RefCell::default(),
        };
        let file = Section::new(&document.value, String::new(), &FILE, &faults);
        let file = file.and_then(|section| read(&section));
        let found = faults.found.into_inner();
        match file {
            Ok(file) if found.is_empty() => Ok(file),
            Ok(_) | Err(Noted) => Err(found),
        }
    }
}

/// Collector of the faults of a file.
struct Faults<'d> {
    document: &'d Document,
    found: RefCell<Vec<YamlFault>>,
}

/// A part of the file has no value, and its fault is recorded.
#[derive(Debug)]
struct Noted;

impl Faults<'_> {
    /// Records a fault at the key that the JSON pointer refers to.
    fn add(&self, pointer: &str, message: String) -> Noted {
        let position = self.document.key_position(pointer);
        self.found.borrow_mut().push(YamlFault {
            message,
            line: position.line,
            column: position.column,
        });
        Noted
    }
}

/// A map of the file, and the JSON pointer to it.
struct Section<'d> {
    map: &'d Object,
    pointer: String,
    faults: &'d Faults<'d>,
}

impl<'d> Fields<'d> for Section<'d> {
    type Error = Noted;

    fn find(&self, key: &str) -> Option<&'d Value> {
        self.map.get(key)
    }

    fn misfit(&self, key: &str, expected: &str, _given: &Value) -> Noted {
        self.wrong(&[key], &format!("must be {expected}"))
    }
}

impl<'d> Section<'d> {
    /// Returns the map `value`. Records a fault for each unknown or missing key.
    fn new(
        value: &'d Value,
        pointer: String,
        keys: &Keys,
        faults: &'d Faults<'d>,
    ) -> Result<Self, Noted> {
        let known = keys.known().collect::<Vec<_>>().join(", ");
        let Some(map) = value.as_object() else {
            let message = format!("{} must be a map of {known}", name(&pointer));
            return Err(faults.add(&pointer, message.trim_start().to_owned()));
        };
        let section = Self {
            map,
            pointer,
            faults,
        };
        for key in unknown_keys(map, keys.known()) {
            let fix = match nearest(key, keys.known()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("there are {known}"),
            };
            section.wrong(&[key], &format!("is no key here; {fix}"));
        }
        for (key, fix) in keys.required {
            if section.given(key).is_none() {
                let of = match name(&section.pointer) {
                    name if name.is_empty() => name,
                    name => format!(" of {name}"),
                };
                faults.add(&section.pointer, format!("`{key}`{of} is missing: {fix}"));
            }
        }
        Ok(section)
    }

    /// Returns the JSON pointer to the value at `path` below the map.
    fn below(&self, path: &[&str]) -> String {
        let mut pointer = self.pointer.clone();
        for segment in path {
            push_segment(&mut pointer, segment);
        }
        pointer
    }

    /// Records a fault of the value at `path` below the map.
    fn wrong(&self, path: &[&str], problem: &str) -> Noted {
        let pointer = self.below(path);
        self.faults
            .add(&pointer, format!("{} {problem}", name(&pointer)))
    }

    /// Returns the text at `key`. An empty text is a fault.
    fn filled(&self, key: &str) -> Result<Option<&'d str>, Noted> {
        match self.text(key)? {
            Some("") => Err(self.wrong(&[key], "is empty: write a text, or leave it out")),
            text => Ok(text),
        }
    }
}

/// Renders a JSON pointer for people, as `cases[0].expect` in backticks; empty for the whole file.
fn name(pointer: &str) -> String {
    let mut name = String::new();
    for segment in pointer.split('/').skip(1) {
        let segment = segment.replace("~1", "/").replace("~0", "~");
        if segment.bytes().all(|byte| byte.is_ascii_digit()) {
            name = format!("{name}[{segment}]");
        } else if name.is_empty() {
            name = segment;
        } else {
            name = format!("{name}.{segment}");
        }
    }
    if name.is_empty() {
        name
    } else {
        format!("`{name}`")
    }
}

/// Returns all values, or `Noted` if one has a fault. All are read first, so that every fault is recorded.
fn all<T>(values: impl Iterator<Item = Result<T, Noted>>) -> Result<Vec<T>, Noted> {
    values.collect::<Vec<_>>().into_iter().collect()
}

fn read(file: &Section<'_>) -> Result<TestFile, Noted> {
    let (tool, env, files, cases) = (tool(file), env(file), files(file), cases(file));
    Ok(TestFile {
        tool: tool?,
        env: env?,
        files: files?,
        cases: cases?,
    })
}

fn tool(file: &Section<'_>) -> Result<ItemRef, Noted> {
    let name = file.filled("tool")?.ok_or(Noted)?;
    let problem = match ItemRef::parse(name, ItemKind::Tool) {
        Ok(item) if item.kind == ItemKind::Tool => return Ok(item),
        Ok(item) => format!("names a {}; tests are for tools and graphs", item.kind),
        Err(error) => format!("names no tool: {error}"),
    };
    Err(file.wrong(&["tool"], &problem))
}

fn env(file: &Section<'_>) -> Result<Vec<(String, String)>, Noted> {
    let entries = file.map("env", "a map of variables and their values")?;
    all(entries.into_iter().flatten().map(|(name, value)| {
        let wrong = |problem| Err(file.wrong(&["env", name], problem));
        if !is_variable(name) {
            return wrong("is no name of a variable: write letters, digits and `_`");
        }
        match value {
            Value::String(text) if text.contains(['\n', '\r', '\0']) => {
                wrong("must be one line, as in a `.env`")
            }
            Value::String(text) => Ok((name.clone(), text.clone())),
            Value::Number(_) | Value::Bool(_) => Ok((name.clone(), value.to_string())),
            Value::Null | Value::Array(_) | Value::Object(_) => {
                wrong("must be a text, such as \"1\"")
            }
        }
    }))
}

fn files(file: &Section<'_>) -> Result<Vec<(PathBuf, String)>, Noted> {
    let entries = file.map("files", "a map of paths and texts")?;
    let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_));
    all(entries.into_iter().flatten().map(|(name, text)| {
        let path = Path::new(name);
        let problem = if name.is_empty() || name.ends_with('/') || !path.components().all(is_plain)
        {
            "is no path in the project: write one without `..` that does not begin with `/`"
        } else if path.starts_with(".ai/state") {
            "is where only the daemon writes: put it elsewhere"
        } else if path == Path::new(".env") && file.given("env").is_some() {
            "is what `env` writes: put its variables there"
        } else if let Some(text) = text.as_str() {
            return Ok((path.components().collect(), text.to_owned()));
        } else {
            "must be the text of the file; write JSON as a text"
        };
        Err(file.wrong(&["files", name], problem))
    }))
}

fn cases(file: &Section<'_>) -> Result<Vec<Case>, Noted> {
    let list = file.read("cases", "a list of cases", Value::as_array)?;
    let list = list.ok_or(Noted)?;
    if list.is_empty() {
        return Err(file.wrong(&["cases"], "is empty: write a case, or remove the file"));
    }
    let mut names = HashSet::new();
    all(list.iter().enumerate().map(|(at, value)| {
        let pointer = file.below(&["cases", &at.to_string()]);
        let section = Section::new(value, pointer, &CASE, file.faults)?;
        let case = case(&section)?;
        if names.insert(case.name.clone()) {
            Ok(case)
        } else {
            Err(section.wrong(
                &["name"],
                "is the name of another case, too: choose another one",
            ))
        }
    }))
}

fn case(case: &Section<'_>) -> Result<Case, Noted> {
    let name = case.filled("name");
    let params = case.map("params", "a map of the tool's parameters");
    let timeout = case.read(
        "timeout",
        "a time over 0, such as 5, 5s or 1m30s",
        |given| {
            let text = given
                .as_str()
                .map_or_else(|| given.to_string(), str::to_owned);
            clock::duration(&text).filter(|timeout| !timeout.is_zero())
        },
    );
    let expect = case.given("expect").ok_or(Noted).and_then(|value| {
        let section = Section::new(value, case.below(&["expect"]), &EXPECT, case.faults)?;
        expect(&section)
    });
    Ok(Case {
        name: name?.ok_or(Noted)?.to_owned(),
        params: params?.cloned().unwrap_or_default(),
        expect: expect?,
        timeout: timeout?.unwrap_or(TIMEOUT),
    })
}

fn expect(expect: &Section<'_>) -> Result<Expect, Noted> {
    let (success, code) = (expect.switch("success"), expect.filled("code"));
    let error_contains = expect.filled("error_contains")?;
    let (success, code) = (success?, code?);
    let fails = code.is_some() || error_contains.is_some();
    if success == Some(true) && fails {
        let problem = "says that the tool succeeds and how it fails: leave one out";
        return Err(expect.wrong(&[], problem));
    }
    // Here null is a value, not an absent key.
    let result = match (expect.find("result"), expect.find("result_is")) {
        (Some(_), Some(_)) => {
            let problem = "compares the whole result, and `result` a part of it: leave one out";
            return Err(expect.wrong(&["result_is"], problem));
        }
        (_, Some(whole)) => Some(Expected::Whole(whole.clone())),
        (Some(part), None) => Some(Expected::Part(part.clone())),
        (None, None) => None,
    };
    Ok(Expect {
        success: success.unwrap_or(!fails),
        result,
        code: code.map(str::to_owned),
        error_contains: error_contains.map(str::to_owned),
    })
}

#[cfg(test)]
mod tests {
    use rye_schema::Schema;

    use super::*;

    #[test]
    fn test_file_defines_calls_and_expected_results() {
        let file = TestFile::read(
            "tool: sample/greet\nenv: {NAME: Ada, N: 3}\nfiles:\n  data/a.txt: |\n    one\n\
             cases:\n- name: greets\n  params: {n: 1}\n  timeout: 1m30s\n  expect: {result: {a: 1}}\n\
             - name: fails\n  expect: {code: tool_failed}\n- name: nothing\n  timeout: 2\n  expect: {result_is: null}\n",
        )
        .unwrap();
        assert_eq!(file.tool.to_string(), "tool:sample/greet");
        let env = [("NAME", "Ada"), ("N", "3")].map(|(k, v)| (k.to_owned(), v.to_owned()));
        assert_eq!(file.env, env);
        assert_eq!(file.files, [("data/a.txt".into(), "one\n".to_owned())]);
        let [greets, fails, nothing] = file.cases.as_slice() else {
            panic!("three cases: {file:?}");
        };
        assert_eq!(greets.timeout, Duration::from_secs(90));
        assert_eq!(greets.expect.result, Some(Expected::Part(json!({"a": 1}))));
        assert!(greets.expect.success);
        assert_eq!((fails.expect.success, fails.timeout), (false, TIMEOUT));
        assert_eq!(nothing.expect.result, Some(Expected::Whole(Value::Null)));
        assert_eq!(nothing.timeout, Duration::from_secs(2));
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "a table, one row for each fault")]
    fn each_fault_names_its_line_its_field_and_the_fix() {
        let case = |text: &str| format!("tool: a/b\ncases:\n- name: x\n  {text}\n");
        let table = [
            (
                "cases: []".to_owned(),
                1,
                "`tool` is missing: name the tool",
            ),
            ("tool: 3\ncases: []".to_owned(), 1, "`tool` must be a text"),
            ("tool: directive:a/b\n".to_owned(), 1, "names a directive"),
            ("tool: a//b\n".to_owned(), 1, "`tool` names no tool"),
            ("tool: a/b".to_owned(), 1, "`cases` is missing"),
            (
                "tool: a/b\ncases: {}".to_owned(),
                2,
                "`cases` must be a list",
            ),
            ("tool: a/b\ncases: []".to_owned(), 2, "`cases` is empty"),
            (
                "tool: a/b\nmocks: {}\n".to_owned(),
                2,
                "`mocks` is no key here; there are tool, env",
            ),
            (
                "tool: a/b\ncase: []\n".to_owned(),
                2,
                "did you mean `cases`?",
            ),
            ("[]".to_owned(), 1, "must be a map of tool"),
            ("tool: a/b\nenv: [A]\n".to_owned(), 2, "`env` must be a map"),
            (
                "tool: a/b\nenv:\n  A-B: x\n".to_owned(),
                3,
                "`env.A-B` is no name",
            ),
            (
                "tool: a/b\nenv:\n  A: [1]\n".to_owned(),
                3,
                "`env.A` must be a text",
            ),
            (
                "tool: a/b\nenv:\n  A: \"x\\ny\"\n".to_owned(),
                3,
                "must be one line",
            ),
            (
                "tool: a/b\nfiles:\n  ../x: y\n".to_owned(),
                3,
                "`files.../x` is no path in the project",
            ),
            (
                "tool: a/b\nfiles:\n  /x: y\n".to_owned(),
                3,
                "is no path in the project",
            ),
            (
                "tool: a/b\nfiles:\n  .ai/state/x: y\n".to_owned(),
                3,
                "only the daemon writes",
            ),
            (
                "tool: a/b\nfiles:\n  x.json: {a: 1}\n".to_owned(),
                3,
                "must be the text of the file",
            ),
            (
                "tool: a/b\nenv: {A: x}\nfiles:\n  .env: A=y\n".to_owned(),
                4,
                "is what `env` writes",
            ),
            (
                "tool: a/b\ncases:\n- params: {}\n  expect: {}".to_owned(),
                3,
                "`name` of `cases[0]` is missing",
            ),
            (case("params: {}"), 3, "`expect` of `cases[0]` is missing"),
            (
                case("expect: {}\n  params: []"),
                5,
                "`cases[0].params` must be a map",
            ),
            (
                case("expect: {}\n  timeout: soon"),
                5,
                "`cases[0].timeout` must be a time",
            ),
            (case("expect: {}\n  timeout: 0"), 5, "must be a time over 0"),
            (
                case("expect:\n    results: {}"),
                5,
                "`cases[0].expect.results` is no key here; did you mean `result`?",
            ),
            (case("expect: {success: 1}"), 4, "must be true or false"),
            (
                case("expect: {code: 1}"),
                4,
                "`cases[0].expect.code` must be a text",
            ),
            (case("expect: {error_contains: \"\"}"), 4, "is empty"),
            (case("expect: {success: true, code: x}"), 4, "leave one out"),
            (
                case("expect:\n    result: 1\n    result_is: 1"),
                6,
                "leave one out",
            ),
            (
                case("expect: {}\n- name: x\n  expect: {}"),
                5,
                "another case",
            ),
            ("tool: [".to_owned(), 1, ""),
        ];
        for (text, line, words) in table {
            let faults = TestFile::read(&text).unwrap_err();
            let found = faults.iter().any(|fault| fault.message.contains(words));
            assert!(found, "{text}: {faults:?} lack {words}");
            if !words.is_empty() {
                let fault = faults.iter().find(|fault| fault.message.contains(words));
                assert_eq!(fault.unwrap().line, line, "{text}: {fault:?}");
            }
        }
    }

    #[test]
    fn test_file_reports_all_faults_together() {
        let faults = TestFile::read("tol: a/b\ncases:\n- expect: {}\n- name: x\n").unwrap_err();
        assert_eq!(faults.len(), 4, "{faults:?}");
    }

    fn fits(text: &str) -> bool {
        let value = yaml::parse(text).unwrap().value;
        let schema = Schema::new(&schema()).unwrap();
        schema.problems(&value, 1).unwrap().is_empty()
    }

    #[test]
    fn each_key_of_test_schema_has_description() {
        for keys in [FILE, CASE, EXPECT] {
            assert!(keys.keys.iter().all(|Key(_, _, about)| !about.is_empty()));
        }
    }

    #[test]
    fn test_schema_and_reader_refuse_same_files() {
        let head = "tool: a/b\ncases:\n- name: x\n";
        for text in [
            format!("{head}  expect: {{}}\n"),
            format!("x-note: 1\n{head}  x-why: 2\n  expect: {{x-more: 3}}\n"),
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
