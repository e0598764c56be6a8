//! The format of `*.test.yaml`: cases of one tool. Pure.
//!
//! **Owns** the keys that such a file may have; the list is closed. **Failure.** All faults of a file are told at once, each with its
//! place, its field and the fix.

use std::collections::HashSet;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use rye_core::clock;
use rye_core::expr::nearest;
use rye_core::id::{ItemKind, ItemRef};
use rye_core::model::Object;
use rye_core::yaml::{self, Document, Fault, push_segment};
use serde_json::Value;

pub(super) const FILE_KEYS: [&str; 4] = ["tool", "env", "files", "cases"];
pub(super) const CASE_KEYS: [&str; 4] = ["name", "params", "expect", "timeout"];
pub(super) const EXPECT_KEYS: [&str; 5] =
    ["success", "result", "result_is", "code", "error_contains"];

/// How long a case may take that does not say it.
const TIMEOUT: Duration = Duration::from_mins(1);

/// A file of tests.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TestFile {
    /// The tool that is tested.
    pub(super) tool: ItemRef,
    /// Variables of the project.
    pub(super) env: Vec<(String, String)>,
    /// Files of the project: path and text.
    pub(super) files: Vec<(PathBuf, String)>,
    /// What is tested.
    pub(super) cases: Vec<Case>,
}

/// One call of the tool, and what is to come of it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Case {
    pub(super) name: String,
    pub(super) params: Object,
    pub(super) expect: Expect,
    pub(super) timeout: Duration,
}

/// What is to come of a call.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Expect {
    pub(super) success: bool,
    pub(super) result: Option<Expected>,
    pub(super) code: Option<String>,
    pub(super) error_contains: Option<String>,
}

/// What the result of a call is to be.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Expected {
    /// It has at least this: in every object of it there may be more keys.
    Part(Value),
    /// It is this and nothing else.
    Whole(Value),
}

impl TestFile {
    /// Reads the text of a file.
    pub(super) fn read(text: &str) -> Result<Self, Vec<Fault>> {
        let document = yaml::parse(text).map_err(|fault| vec![fault])?;
        let mut reader = Reader {
            document: &document,
            faults: Vec::new(),
        };
        let root = Node {
            value: &document.value,
            at: String::new(),
        };
        let file = reader.file(&root);
        match file {
            Some(file) if reader.faults.is_empty() => Ok(file),
            Some(_) | None => Err(reader.faults),
        }
    }
}

/// A value, and the JSON pointer to it.
struct Node<'a> {
    value: &'a Value,
    at: String,
}

impl<'a> Node<'a> {
    fn below(&self, segment: &str, value: &'a Value) -> Self {
        let mut at = self.at.clone();
        push_segment(&mut at, segment);
        Self { value, at }
    }

    /// The value of `key`; none if it is not there, or null.
    fn child(&self, key: &str) -> Option<Self> {
        self.given(key).filter(|child| !child.value.is_null())
    }

    /// The value of `key`, also if that is null.
    fn given(&self, key: &str) -> Option<Self> {
        Some(self.below(key, self.value.get(key)?))
    }

    /// How people write it: `cases[0].expect`.
    fn name(&self) -> String {
        let mut name = String::new();
        for segment in self.at.split('/').skip(1) {
            let segment = segment.replace("~1", "/").replace("~0", "~");
            if segment.bytes().all(|byte| byte.is_ascii_digit()) {
                name = format!("{name}[{segment}]");
            } else if name.is_empty() {
                name = segment;
            } else {
                name = format!("{name}.{segment}");
            }
        }
        name
    }
}

struct Reader<'d> {
    document: &'d Document,
    faults: Vec<Fault>,
}

impl<'d> Reader<'d> {
    /// Notes a fault of the value at `node`.
    fn wrong(&mut self, node: &Node<'_>, problem: &str) {
        let position = self.document.key_position(&node.at);
        let message = match node.name() {
            name if name.is_empty() => problem.to_owned(),
            name => format!("`{name}` {problem}"),
        };
        self.faults.push(Fault {
            message,
            line: position.line,
            column: position.column,
        });
    }

    /// Notes that `key` of the map at `node` is missing.
    fn missing(&mut self, node: &Node<'_>, key: &str, fix: &str) {
        let of = match node.name() {
            name if name.is_empty() => String::new(),
            name => format!(" of `{name}`"),
        };
        let position = self.document.key_position(&node.at);
        self.faults.push(Fault {
            message: format!("`{key}`{of} is missing: {fix}"),
            line: position.line,
            column: position.column,
        });
    }

    /// The map at `node`, which has none but these keys.
    fn map(&mut self, node: &Node<'d>, keys: &[&str]) -> Option<&'d Object> {
        let Value::Object(map) = node.value else {
            self.wrong(node, &format!("must be a map of {}", keys.join(", ")));
            return None;
        };
        for (key, value) in map {
            if keys.contains(&key.as_str()) {
                continue;
            }
            let near = nearest(key, keys.iter().copied());
            let fix = match near {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("there are {}", keys.join(", ")),
            };
            self.wrong(&node.below(key, value), &format!("is no key here; {fix}"));
        }
        Some(map)
    }

    /// The entries of the map `key`, which may be missing.
    fn entries(&mut self, node: &Node<'d>, key: &str, of: &str) -> Vec<(&'d String, Node<'d>)> {
        let Some(child) = node.child(key) else {
            return Vec::new();
        };
        let Value::Object(map) = child.value else {
            self.wrong(&child, &format!("must be a map of {of}"));
            return Vec::new();
        };
        let entries = map.iter();
        entries
            .map(|(name, value)| (name, child.below(name, value)))
            .collect()
    }

    /// The text at `key`, if it is there and not empty.
    fn text(&mut self, node: &Node<'d>, key: &str) -> Option<String> {
        let child = node.child(key)?;
        match child.value.as_str() {
            Some("") => self.wrong(&child, "is empty: write a text, or leave it out"),
            Some(text) => return Some(text.to_owned()),
            None => self.wrong(&child, "must be a text"),
        }
        None
    }

    fn file(&mut self, root: &Node<'d>) -> Option<TestFile> {
        let _closed = self.map(root, &FILE_KEYS)?;
        let tool = self.tool(root);
        let env = self.env(root);
        let files = self.files(root);
        if let Some((_, node)) = files.iter().find(|(path, _)| path == Path::new(".env"))
            && root.child("env").is_some()
        {
            self.wrong(node, "is what `env` writes: put its variables there");
        }
        let files = files.into_iter();
        let files = files.filter_map(|(path, node)| Some((path, node.value.as_str()?.to_owned())));
        Some(TestFile {
            files: files.collect(),
            env,
            cases: self.cases(root),
            tool: tool?,
        })
    }

    fn tool(&mut self, root: &Node<'d>) -> Option<ItemRef> {
        if root.child("tool").is_none() {
            self.missing(
                root,
                "tool",
                "name the tool that is tested, such as `sample/greet`",
            );
            return None;
        }
        let name = self.text(root, "tool")?;
        let node = root.child("tool")?;
        match ItemRef::parse(&name, ItemKind::Tool) {
            Ok(item) if item.kind == ItemKind::Tool => return Some(item),
            Ok(item) => {
                let problem = format!("names a {}; tests are for tools and graphs", item.kind);
                self.wrong(&node, &problem);
            }
            Err(error) => self.wrong(&node, &format!("names no tool: {error}")),
        }
        None
    }

    fn env(&mut self, root: &Node<'d>) -> Vec<(String, String)> {
        let mut env = Vec::new();
        for (name, node) in self.entries(root, "env", "variables and their values") {
            let is_name = !name.is_empty()
                && !name.starts_with(|first: char| first.is_ascii_digit())
                && name
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
            if !is_name {
                let problem = "is no name of a variable: write letters, digits and `_`";
                self.wrong(&node, problem);
            }
            match node.value {
                Value::String(text) if text.contains(['\n', '\r', '\0']) => {
                    self.wrong(&node, "must be one line, as in a `.env`");
                }
                Value::String(text) => env.push((name.clone(), text.clone())),
                Value::Number(_) | Value::Bool(_) => {
                    env.push((name.clone(), node.value.to_string()));
                }
                Value::Null | Value::Array(_) | Value::Object(_) => {
                    self.wrong(&node, "must be a text, such as \"1\"");
                }
            }
        }
        env
    }

    fn files(&mut self, root: &Node<'d>) -> Vec<(PathBuf, Node<'d>)> {
        let mut files = Vec::new();
        for (name, node) in self.entries(root, "files", "paths and texts") {
            let path = Path::new(name);
            let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_));
            if name.is_empty() || name.ends_with('/') || !path.components().all(is_plain) {
                let problem = "is no path in the project: write one without `..` that does not begin with `/`";
                self.wrong(&node, problem);
            } else if path.starts_with(".ai/state") {
                self.wrong(&node, "lies where only the daemon writes: put it elsewhere");
            } else if node.value.is_string() {
                files.push((path.components().collect(), node));
            } else {
                self.wrong(&node, "must be the text of the file; write JSON as a text");
            }
        }
        files
    }

    fn cases(&mut self, root: &Node<'d>) -> Vec<Case> {
        let Some(list) = root.child("cases") else {
            let fix = "write a list of cases, each with `name`, `params` and `expect`";
            self.missing(root, "cases", fix);
            return Vec::new();
        };
        let Value::Array(cases) = list.value else {
            self.wrong(&list, "must be a list of cases");
            return Vec::new();
        };
        if cases.is_empty() {
            self.wrong(&list, "is empty: write a case, or remove the file");
        }
        let mut names = HashSet::new();
        let mut read = Vec::new();
        for (at, case) in cases.iter().enumerate() {
            let node = list.below(&at.to_string(), case);
            let Some(case) = self.case(&node) else {
                continue;
            };
            if !names.insert(case.name.clone())
                && let Some(name) = node.child("name")
            {
                self.wrong(
                    &name,
                    "is the name of another case, too: choose another one",
                );
            }
            read.push(case);
        }
        read
    }

    fn case(&mut self, node: &Node<'d>) -> Option<Case> {
        let _closed = self.map(node, &CASE_KEYS)?;
        if node.child("name").is_none() {
            self.missing(node, "name", "say in a few words what the case shows");
        }
        let name = self.text(node, "name");
        let mut params = Object::new();
        if let Some(child) = node.child("params") {
            match child.value.as_object() {
                Some(given) => params.clone_from(given),
                None => self.wrong(&child, "must be a map of the tool's parameters"),
            }
        }
        let timeout = self.timeout(node);
        let expect = self.expect(node);
        Some(Case {
            name: name?,
            params,
            expect: expect?,
            timeout,
        })
    }

    fn timeout(&mut self, node: &Node<'d>) -> Duration {
        let Some(child) = node.child("timeout") else {
            return TIMEOUT;
        };
        let text = match child.value.as_str() {
            Some(text) => text.to_owned(),
            None => child.value.to_string(),
        };
        let given = clock::duration(&text);
        given
            .filter(|timeout| !timeout.is_zero())
            .unwrap_or_else(|| {
                self.wrong(&child, "must be a time over 0, such as 5, 5s or 1m30s");
                TIMEOUT
            })
    }

    fn expect(&mut self, case: &Node<'d>) -> Option<Expect> {
        let Some(node) = case.child("expect") else {
            let fix = "write what is to come of it, such as `expect: {success: true}`";
            self.missing(case, "expect", fix);
            return None;
        };
        let _closed = self.map(&node, &EXPECT_KEYS)?;
        let mut success = None;
        if let Some(child) = node.child("success") {
            success = child.value.as_bool();
            if success.is_none() {
                self.wrong(&child, "must be true or false");
            }
        }
        let (code, error_contains) = (self.text(&node, "code"), self.text(&node, "error_contains"));
        let fails = code.is_some() || error_contains.is_some();
        if success == Some(true) && fails {
            let problem = "says that the tool succeeds and how it fails: leave one out";
            self.wrong(&node, problem);
        }
        let part = node.given("result");
        let whole = node.given("result_is");
        if let (Some(_), Some(whole)) = (&part, &whole) {
            self.wrong(whole, "says more than `result` beside it: leave one out");
        }
        let result = match (part, whole) {
            (_, Some(whole)) => Some(Expected::Whole(whole.value.clone())),
            (Some(part), None) => Some(Expected::Part(part.value.clone())),
            (None, None) => None,
        };
        Some(Expect {
            success: success.unwrap_or(!fails),
            result,
            code,
            error_contains,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_file_says_what_a_tool_is_called_with_and_what_is_to_come_of_it() {
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
    fn all_faults_of_a_file_are_told_at_once() {
        let faults = TestFile::read("tol: a/b\ncases:\n- expect: {}\n- name: x\n").unwrap_err();
        assert_eq!(faults.len(), 4, "{faults:?}");
    }
}
