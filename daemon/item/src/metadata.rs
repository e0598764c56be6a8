//! Metadata of an item: version, category, the next element of its chain, its schema.
//!
//! **Owns** the reading of these fields from Python, YAML, JavaScript and Markdown. **Never** runs or imports anything:
//! Python is parsed, and only literals count. A text that does not parse is an error with its line; the original
//! treated it as a tool without metadata.

mod keys;
mod markdown;
mod python;
mod script;
mod shell;

use rye_core::callers::Callers;
use rye_core::declared::{self, Fields as _};
use rye_core::error::{ErrorKind, Kinded};
use rye_core::id::ItemKind;
use rye_core::model::{Effect, Isolation, Resources};
use rye_core::yaml;
use serde::Deserialize;
use serde_json::{Map, Value};

use keys::Fields;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("line {line}: {message}")]
    Syntax {
        /// Line, from 1; 0 if the parser does not report one.
        line: usize,
        message: String,
    },
    /// The value of a Python or JavaScript constant is not a literal.
    #[error("line {line}: `{name}` must be a literal; items are read, not run")]
    NotLiteral {
        /// Line, from 1.
        line: usize,
        name: String,
    },
    #[error("`{field}` must be {expected}")]
    WrongType {
        field: String,
        /// Expected type, with its article.
        expected: String,
    },
    /// A value is out of its bounds.
    #[error("{problem}")]
    Value {
        /// The key, its bounds, and the value.
        problem: String,
    },
    /// The whole file does not have the form of this type of item.
    #[error("the file must hold {expected}")]
    WrongShape { expected: &'static str },
    /// A shell script has no metadata block.
    #[error(
        "a .sh tool describes itself in YAML between two lines `# ---` of the comment at its top, each line with `# ` before it"
    )]
    NoBlock,
    /// Files of this type have no metadata.
    #[error(
        "a .{extension} file cannot be a tool; write it as YAML, Python, JavaScript, TypeScript or a shell script"
    )]
    NoMetadata { extension: String },
    /// The file has none of the fields that every item of this type needs.
    #[error("the file does not say what it is: {how}")]
    Bare {
        /// The missing fields, and the fix.
        how: &'static str,
    },
}

impl Kinded for Error {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Syntax { .. }
            | Self::NotLiteral { .. }
            | Self::WrongType { .. }
            | Self::Value { .. }
            | Self::WrongShape { .. }
            | Self::NoBlock
            | Self::Bare { .. }
            | Self::NoMetadata { .. } => ErrorKind::Invalid,
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Metadata {
    /// Version, `N.N.N`.
    pub version: Option<String>,
    /// `graph`, `runtime`, `primitive`, `native`, or free text.
    pub tool_type: Option<String>,
    /// Next element of the chain; `None` if it ends here.
    pub executor_id: Option<String>,
    /// Folder below its type folder in which the item belongs.
    pub category: Option<String>,
    pub name: Option<String>,
    pub description: Option<String>,
    /// Title for people.
    pub title: Option<String>,
    pub tags: Vec<String>,
    /// Callers that a tool or a directive accepts.
    pub callers: Callers,
    /// Effect of a second execution; `None` if not declared.
    pub effect: Option<Effect>,
    /// Conversion of what its process prints to a result; `None` if not declared.
    pub output: Option<OutputFormat>,
    /// Maximum size in bytes of a result that a model gets whole; `None` if not declared.
    pub result_limit: Option<u32>,
    /// JSON schema of its parameters.
    pub config_schema: Option<Value>,
    /// Interpreter and environment.
    pub env_config: Option<Map<String, Value>>,
    /// Settings merged along the chain. In a graph it is the graph itself.
    pub config: Option<Map<String, Value>>,
    /// Configuration files passed to the tool: `{path, mode}`, or a list of these.
    pub config_resolve: Option<Value>,
    /// Inputs of an executor: each name must be among the outputs of the element it runs.
    pub inputs: Option<Vec<String>>,
    /// Outputs passed to its executor.
    pub outputs: Option<Vec<String>>,
    /// Versions of the child that an executor accepts: `{min_version, max_version}`.
    pub child_constraints: Option<Map<String, Value>>,
    /// Rule that finds the files of a tool of several files.
    pub anchor: Option<Map<String, Value>>,
    /// Files of the tool that must be verified.
    pub verify_deps: Option<Map<String, Value>>,
    /// Environment variables required for a start.
    pub env_requires: Vec<String>,
    /// Isolation of its processes; `None` if not declared.
    pub isolation: Option<Isolation>,
    /// Limits of its processes; `None` if not declared.
    pub resources: Option<Resources>,
    /// True if its program has no effects but its calls of the daemon, and repeats them in order (`replay: ordered`).
    pub replays: bool,
    /// Patterns of the capabilities that its program may use in calls of the daemon; `None` if not declared.
    pub permissions: Option<Vec<String>>,
    /// Keys that this release does not implement, or that mean nothing. An executor must refuse the item, because the
    /// requested behaviour would be missing.
    pub unread: Vec<Unread>,
    /// Keys by which the original decided how to start an item. They have no effect here.
    pub ignored: Vec<String>,
}

/// Conversion of the standard output of a tool's process to a result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputFormat {
    /// A JSON object or list is the result. Anything else is text, also a JSON scalar.
    #[default]
    Auto,
    /// Always text.
    Text,
    /// Always one JSON document.
    Json,
}

/// A key that is present but not read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unread {
    pub key: String,
    /// Line of the key, from 1, if it is known.
    pub line: Option<usize>,
    /// Suggested key.
    pub suggestion: Option<&'static str>,
}

impl Metadata {
    /// Reads the metadata of an item's text, with or without its signature line.
    pub fn parse(kind: ItemKind, extension: &str, text: &str) -> Result<Self, Error> {
        match (kind, extension) {
            (ItemKind::Tool, _) => Self::of_tool(&tool_fields(extension, text)?),
            (ItemKind::Config, _) => Self::of_any(&configuration(extension, text)?),
            (ItemKind::Knowledge, "md") => Self::of_any(&markdown::knowledge(text)?),
            (ItemKind::Knowledge, _) => {
                // The signature of a knowledge file is an HTML comment, which is not YAML.
                let (above, text) = markdown::below_signature(text);
                Self::of_any(&mapping(text, above)?)
            }
            (ItemKind::Directive, _) => {
                let fields = markdown::directive(text)?;
                Ok(Self {
                    callers: callers(&DeclaredFields(&fields))?,
                    ..Self::of_any(&fields)?
                })
            }
        }
    }

    /// Reads a file that may not be an item at all. Fails if it has none of the fields that every item of this type
    /// needs.
    pub fn of_draft(kind: ItemKind, extension: &str, text: &str) -> Result<Self, Error> {
        let metadata = Self::parse(kind, extension, text)?;
        let says_nothing = metadata.version.is_none()
            && metadata.tool_type.is_none()
            && metadata.category.is_none()
            && metadata.name.is_none();
        match needed(kind, extension) {
            Some(how) if says_nothing => Err(Error::Bare { how }),
            Some(_) | None => Ok(metadata),
        }
    }

    /// Makes metadata of a tool's fields, by their YAML names.
    fn of_tool(fields: &Fields) -> Result<Self, Error> {
        let said = DeclaredFields(&fields.values);
        let mut metadata = Self {
            callers: callers(&said)?,
            effect: effect(&said)?,
            result_limit: result_limit(&said)?,
            config_schema: schema(&said)?,
            env_config: said.mapping("env_config")?,
            config: said.mapping("config")?,
            config_resolve: said.given("config_resolve").cloned(),
            inputs: said.names("inputs")?,
            outputs: said.names("outputs")?,
            child_constraints: said.mapping("child_constraints")?,
            anchor: said.mapping("anchor")?,
            verify_deps: said.mapping("verify_deps")?,
            ..Self::of_any(&fields.values)?
        };
        // A graph has its own closed list of keys; its parser checks them with line and column.
        if metadata.tool_type.as_deref() != Some("graph") {
            metadata.output = output(&said)?;
            metadata.permissions = said.names("permissions")?;
            metadata.isolation = isolation(&said)?;
            metadata.resources = resources(&said)?;
            metadata.replays = replays(&said, metadata.effect)?;
            metadata.env_requires = said.names("env_requires")?.unwrap_or_default();
            metadata.unread = fields.unread();
            metadata.ignored = fields.ignored();
        }
        Ok(metadata)
    }

    /// Reads the fields that every type of item has.
    fn of_any(fields: &Map<String, Value>) -> Result<Self, Error> {
        let said = DeclaredFields(fields);
        Ok(Self {
            version: said.owned("version")?,
            tool_type: said.owned("tool_type")?,
            executor_id: said.owned("executor_id")?,
            category: said.owned("category")?,
            name: said.owned("name")?,
            description: said.owned("description")?,
            // These two serve only searches by people, so an invalid value is ignored.
            title: said
                .find("title")
                .and_then(Value::as_str)
                .map(str::to_owned),
            tags: tags(&said),
            ..Self::default()
        })
    }
}

/// JSON Schema of a tool written as YAML, for editors.
pub fn tool_schema() -> Value {
    keys::schema()
}

/// Describes the fields that a file without any needs; `None` for types whose reader describes them.
fn needed(kind: ItemKind, extension: &str) -> Option<&'static str> {
    match (kind, extension) {
        (ItemKind::Tool, "yaml" | "yml") => Some(
            "a tool has `version`, `tool_type`, `executor_id` and `category`; `ryectl new tool ID` writes one to begin with",
        ),
        (ItemKind::Tool, _) => Some(
            "a tool has `__version__`, `__tool_type__`, `__executor_id__` and `__category__`; `ryectl new tool ID` writes one to \
             begin with",
        ),
        (ItemKind::Config, _) => Some("a configuration file has `version`, `category` and `name`"),
        (ItemKind::Directive | ItemKind::Knowledge, _) => None,
    }
}

/// Fields of a tool by their YAML names, with their lines.
fn tool_fields(extension: &str, text: &str) -> Result<Fields, Error> {
    match extension {
        "py" => python::assignments(text),
        "yaml" | "yml" => Fields::of_yaml(text, 0),
        "js" | "ts" | "mjs" | "cjs" => script::constants(text),
        "sh" => {
            let (above, block) = shell::block(text).ok_or(Error::NoBlock)?;
            Fields::of_yaml(&block, above)
        }
        _ => Err(Error::NoMetadata {
            extension: extension.to_owned(),
        }),
    }
}

/// Line, from 1, of the field that the JSON pointer names, or of its nearest ancestor with a known position.
pub(crate) fn line_of_field(extension: &str, text: &str, pointer: &str) -> Option<usize> {
    tool_fields(extension, text).ok()?.line(pointer)
}

/// Text of a knowledge file without its signature and its metadata.
pub(crate) fn knowledge(extension: &str, text: &str) -> String {
    match extension {
        "md" => markdown::body(text),
        _ => markdown::below_signature(text).1.trim().to_owned(),
    }
}

/// Whole content of a configuration file.
pub(crate) fn configuration(extension: &str, text: &str) -> Result<Map<String, Value>, Error> {
    match extension {
        "toml" => toml_mapping(text),
        _ => mapping(text, 0),
    }
}

pub(crate) fn utf8(content: &[u8]) -> Result<&str, Error> {
    str::from_utf8(content).map_err(|error| Error::Syntax {
        line: line_of_byte(content, error.valid_up_to()),
        message: "the file is not UTF-8 text".to_owned(),
    })
}

/// Fields of an item by their YAML names.
struct DeclaredFields<'m>(&'m Map<String, Value>);

impl<'m> declared::Fields<'m> for DeclaredFields<'m> {
    type Error = Error;

    fn find(&self, key: &str) -> Option<&'m Value> {
        self.0.get(key)
    }

    fn misfit(&self, key: &str, expected: &str, _given: &Value) -> Error {
        wrong_type(key, expected)
    }
}

fn wrong_type(field: &str, expected: &str) -> Error {
    Error::WrongType {
        field: field.to_owned(),
        expected: expected.to_owned(),
    }
}

impl DeclaredFields<'_> {
    fn owned(&self, field: &str) -> Result<Option<String>, Error> {
        let expected = "a text (quote it: `version: \"1.0.0\"`)";
        self.read(field, expected, |value| value.as_str().map(str::to_owned))
    }

    fn names(&self, field: &str) -> Result<Option<Vec<String>>, Error> {
        self.read(field, "a list of names", |value| {
            let names = value.as_array()?.iter();
            names.map(|name| name.as_str().map(str::to_owned)).collect()
        })
    }

    fn mapping(&self, field: &str) -> Result<Option<Map<String, Value>>, Error> {
        Ok(self.map(field, "a mapping")?.cloned())
    }
}

/// Schema of the parameters. A tool of an MCP server may declare it as `input_schema`, the name that servers use.
fn schema(said: &DeclaredFields<'_>) -> Result<Option<Value>, Error> {
    let (own, of_server) = (said.given("config_schema"), said.given("input_schema"));
    let is_of_server = said.find("tool_type").and_then(Value::as_str) == Some("mcp");
    let expected = match (own, of_server) {
        (Some(_), Some(_)) => "left out where there is a `config_schema`",
        (None, Some(_)) if !is_of_server => {
            "called `config_schema`: only a tool of the type `mcp` has it"
        }
        _ => return Ok(own.or(of_server).cloned()),
    };
    Err(wrong_type("input_schema", expected))
}

fn tags(said: &DeclaredFields<'_>) -> Vec<String> {
    let tags = said.find("tags").and_then(Value::as_array);
    let texts = tags.into_iter().flatten().filter_map(Value::as_str);
    texts.map(str::to_owned).collect()
}

fn callers(said: &DeclaredFields<'_>) -> Result<Callers, Error> {
    let callers = said.read("callers", Callers::EXPECTED, Callers::of_json)?;
    Ok(callers.unwrap_or_default())
}

fn effect(said: &DeclaredFields<'_>) -> Result<Option<Effect>, Error> {
    let expected = "one of the words `pure`, `idempotent` and `at_most_once`";
    said.read("effect", expected, |word| {
        serde_json::from_value(word.clone()).ok()
    })
}

/// True if the tool declares `replay: ordered`. Such a tool is repeated, so it is not at-most-once.
fn replays(said: &DeclaredFields<'_>, effect: Option<Effect>) -> Result<bool, Error> {
    let is_ordered = |word: &Value| (word == "ordered").then_some(());
    let replays = said.read("replay", "the word `ordered`", is_ordered)?;
    if replays.is_some() && effect == Some(Effect::AtMostOnce) {
        let expected = "left out of a tool with `effect: at_most_once`, which is never repeated";
        return Err(wrong_type("replay", expected));
    }
    Ok(replays.is_some())
}

fn isolation(said: &DeclaredFields<'_>) -> Result<Option<Isolation>, Error> {
    let expected = "one of the words `none`, `scoped`, `sandbox` and `user`";
    said.read("isolation", expected, |word| {
        Isolation::parse(word.as_str()?)
    })
}

fn resources(said: &DeclaredFields<'_>) -> Result<Option<Resources>, Error> {
    let read = said.given("resources").map(Resources::from_json);
    read.transpose().map_err(|problem| Error::Value { problem })
}

fn output(said: &DeclaredFields<'_>) -> Result<Option<OutputFormat>, Error> {
    let expected = "one of the words `text`, `json` and `auto`";
    said.read("output", expected, |word| {
        OutputFormat::deserialize(word).ok()
    })
}

/// Upper bound of `result_limit`, in bytes.
const MOST_RESULT: u32 = 64 << 10;

fn result_limit(said: &DeclaredFields<'_>) -> Result<Option<u32>, Error> {
    said.read(
        "result_limit",
        "a whole number of bytes from 1 to 65536",
        |given| {
            let bytes = u32::try_from(given.as_u64()?).ok()?;
            (1..=MOST_RESULT).contains(&bytes).then_some(bytes)
        },
    )
}

/// Reads a YAML mapping. `above` is the number of lines above it in its file.
fn mapping(text: &str, above: usize) -> Result<Map<String, Value>, Error> {
    document(text, above).map(|(_, fields)| fields)
}

/// Reads a YAML mapping and the positions of its fields. `above` is the number of lines above it in its file.
fn document(text: &str, above: usize) -> Result<(yaml::Document, Map<String, Value>), Error> {
    let mut document = yaml::parse(text).map_err(|fault| Error::Syntax {
        line: above + fault.line,
        message: fault.message,
    })?;
    match document.value.take() {
        Value::Object(fields) => Ok((document, fields)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Err(Error::WrongShape {
                expected: "a YAML mapping",
            })
        }
    }
}

fn toml_mapping(text: &str) -> Result<Map<String, Value>, Error> {
    toml::from_str(text).map_err(|error| Error::Syntax {
        line: error.span().map_or(0, |span| line_of(text, span.start)),
        message: error.message().to_owned(),
    })
}

fn line_of(text: &str, offset: usize) -> usize {
    line_of_byte(text.as_bytes(), offset)
}

/// Line, from 1, of the byte at `offset`.
fn line_of_byte(content: &[u8], offset: usize) -> usize {
    let before = content.get(..offset).unwrap_or(content);
    before.split(|byte| *byte == b'\n').count()
}

#[cfg(test)]
mod tests;
