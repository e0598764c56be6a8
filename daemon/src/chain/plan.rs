//! A verified chain and parameters as plain data about what its primitive will do.
//!
//! Templates of a runtime are typed: an argument is a literal, or exactly one slot (`{tool_path}`, `{project_path}`,
//! `{params_json}`, `{name}` of a key of the merged `config`, `${VAR}` of the interpreter). Nothing is replaced inside a text, and nothing
//! that came from a caller is ever looked into.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rye_core::id::{ItemRef, RunId};
use rye_core::model::Object;
use rye_core::thread::ThreadOrder;
use rye_item::Space;
use serde_json::Value;

use super::environment::{self, Environment, Offer};
use super::{Chain, Error, Origin, Terminal};
use crate::config::Config;
use crate::native;
use crate::process::{self, file_path};

/// Keys of `config` that this version carries out; any other key of a runtime is refused.
const RUNTIME_KEYS: [&str; 5] = ["command", "args", "input_data", "timeout", "env"];

/// How the output of the process becomes a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// Its stdout is one JSON document; anything else is handed on as text.
    Json,
    /// The result of `rye/bash`.
    Shell,
}

/// What the primitive will do.
#[derive(Debug)]
pub enum Plan {
    /// A call of a tool inside the daemon.
    Native(NativeCall),
    /// A process.
    Process(Box<ProcessPlan>),
    /// A graph run, which is not carried out as a call.
    Graph,
    /// A thread, which is not carried out as a call either.
    Thread(Box<ThreadOrder>),
}

/// A call of a tool inside the daemon.
#[derive(Debug)]
pub struct NativeCall {
    /// The tool.
    pub tool: native::Tool,
    /// With which parameters.
    pub params: Object,
    /// Longest time it may take, if it is limited.
    pub timeout: Option<Duration>,
}

/// A process, and how its end is read.
#[derive(Debug)]
pub struct ProcessPlan {
    /// The process.
    pub process: process::Plan,
    /// The tag of the attempt, for finding its processes.
    pub tag: String,
    /// How to read what it prints.
    pub answer: Answer,
    /// What sets its time, for whoever needs more of it.
    pub time_set_by: &'static str,
}

/// The plan of `chain` with `params`, which have been checked against the tool's schema. It may take no longer than
/// `timeout`, nor than the tool itself allows. A process finds what is on `offer` in its environment. Looks for what is to be started.
pub fn plan(
    chain: &Chain,
    params: Object,
    origin: &Origin,
    config: &Config,
    offer: Offer,
    timeout: Option<Duration>,
) -> Result<Plan, Error> {
    match chain.terminal {
        Terminal::Native(tool) => Ok(Plan::Native(NativeCall {
            tool,
            params,
            timeout,
        })),
        Terminal::Graph => Ok(Plan::Graph),
        Terminal::Thread(tool) => {
            let order = ThreadOrder::of_tool(tool, params).map_err(|failure| Error::Params {
                item: chain.item.clone(),
                failure: Box::new(failure),
            })?;
            Ok(Plan::Thread(Box::new(order)))
        }
        Terminal::Process => {
            let mut plan = process(chain, &params, origin, config, offer)?;
            if let Some(timeout) = timeout.filter(|timeout| *timeout < plan.process.timeout) {
                plan.process.timeout = timeout;
                plan.time_set_by = "`timeout` of the node";
            }
            Ok(Plan::Process(Box::new(plan)))
        }
    }
}

fn process(
    chain: &Chain,
    params: &Object,
    origin: &Origin,
    config: &Config,
    offer: Offer,
) -> Result<ProcessPlan, Error> {
    let mut environment = Environment::of(origin, offer);
    for element in chain.elements.iter().rev() {
        environment.overlay(element)?;
    }
    if chain.item.id.as_str() == "rye/bash" && chain.tool().space == Space::System {
        return shell(chain, params, origin, config, environment);
    }
    let settings = Settings::merge(chain)?;
    let project = Path::new(&origin.spec.project);
    let interpreter = environment::interpreter(chain, project, &environment)?;
    let slots = Slots {
        settings: &settings,
        project,
        interpreter: interpreter.as_ref(),
    };
    let command = settings
        .text("command")?
        .ok_or_else(|| settings.malformed("config.command", "is missing"))?;
    let args = settings.list("args")?;
    let stdin = match settings.text("input_data")? {
        None => Vec::new(),
        Some("{params_json}") => Value::Object(params.clone()).to_string().into_bytes(),
        Some(_) => {
            return Err(settings.malformed(
                "config.input_data",
                "must be `{params_json}`: parameters travel as JSON",
            ));
        }
    };
    let timeout = settings
        .seconds("timeout")?
        .unwrap_or(config.limits.tool_timeout);
    Ok(ProcessPlan {
        process: process::Plan {
            program: PathBuf::from(slots.fill("config.command", command)?),
            args: args
                .iter()
                .map(|arg| slots.fill("config.args", arg))
                .collect::<Result<_, _>>()?,
            env: environment.into_vec(),
            cwd: project.to_owned(),
            stdin,
            files: vec![chain.tool().text.as_bytes().to_vec()],
            timeout,
            grace: process::DEFAULT_GRACE,
            output_limit: config.limits.output_bytes.get(),
        },
        tag: tag(&origin.run, &origin.key, origin.attempt),
        answer: Answer::Json,
        time_set_by: "`config.timeout` of the tool, else the setting `limits.tool_timeout_seconds`",
    })
}

/// Names one attempt: found in the environment of all its processes.
pub fn tag(run: &RunId, key: &str, attempt: u32) -> String {
    format!("{run}.{}.{attempt}", &key[..16.min(key.len())])
}

/// `rye/bash`: an argv, built from typed parameters.
fn shell(
    chain: &Chain,
    params: &Object,
    origin: &Origin,
    config: &Config,
    mut environment: Environment,
) -> Result<ProcessPlan, Error> {
    let path = &chain.tool().path;
    let malformed = |field: &str, problem: String| Error::Malformed {
        path: path.clone(),
        field: format!("`{field}`"),
        problem,
    };
    let project = Path::new(&origin.spec.project);
    let command = params
        .get("command")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let bash = Path::new("/bin/bash");
    let (program, mut args): (_, Vec<OsString>) = if bash.exists() {
        // `-p`: bash reads no start-up file and takes no options from its environment.
        (bash, vec!["-p".into()])
    } else {
        (Path::new("/bin/sh"), Vec::new())
    };
    args.extend(["-c".into(), command.into(), "bash".into()]);
    args.extend(
        params
            .get("args")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .map(|arg| plain(arg).into()),
    );
    for (name, value) in params
        .get("env")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        environment
            .set_by_caller(name, &plain(value))
            .map_err(|problem| malformed("env", problem))?;
    }
    let cwd = match params.get("working_dir").and_then(Value::as_str) {
        None => project.to_owned(),
        Some(wanted) => {
            inside(project, wanted).map_err(|problem| malformed("working_dir", problem))?
        }
    };
    let timeout = params
        .get("timeout")
        .and_then(Value::as_f64)
        .and_then(seconds)
        .unwrap_or(config.limits.bash_timeout);
    Ok(ProcessPlan {
        process: process::Plan {
            program: program.to_owned(),
            args,
            env: environment.into_vec(),
            cwd,
            stdin: Vec::new(),
            files: Vec::new(),
            timeout,
            grace: process::DEFAULT_GRACE,
            output_limit: config.limits.output_bytes.get(),
        },
        tag: tag(&origin.run, &origin.key, origin.attempt),
        answer: Answer::Shell,
        time_set_by: "`timeout` in the params of `rye/bash`",
    })
}

/// A scalar as the text a shell sees.
fn plain(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

fn seconds(number: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(number)
        .ok()
        .filter(|time| !time.is_zero())
}

/// `wanted` below `project`, symlinks followed.
fn inside(project: &Path, wanted: &str) -> Result<PathBuf, String> {
    let real = project
        .join(wanted)
        .canonicalize()
        .map_err(|error| format!("`{wanted}` cannot be used: {error}"))?;
    let root = project
        .canonicalize()
        .map_err(|error| format!("the project cannot be used: {error}"))?;
    if real.starts_with(&root) {
        Ok(real)
    } else {
        Err(format!("`{wanted}` lies outside the project"))
    }
}

/// The `config` of all elements, the tool's word over its runtime's.
struct Settings {
    item: ItemRef,
    path: PathBuf,
    merged: Object,
}

impl Settings {
    fn merge(chain: &Chain) -> Result<Self, Error> {
        let mut merged = Object::new();
        for (place, element) in chain.elements.iter().enumerate().rev() {
            let Some(config) = &element.metadata.config else {
                continue;
            };
            for (key, value) in config {
                // A tool's own keys fill slots its runtime names; a runtime's keys must be ones that are carried out.
                if place > 0 && !RUNTIME_KEYS.contains(&key.as_str()) {
                    return Err(Error::Unsupported {
                        path: element.path.clone(),
                        key: format!("config.{key}"),
                    });
                }
                merged.insert(key.clone(), value.clone());
            }
        }
        Ok(Self {
            item: chain.item.clone(),
            path: chain.tool().path.clone(),
            merged,
        })
    }

    fn malformed(&self, field: &str, problem: &str) -> Error {
        Error::Malformed {
            path: self.path.clone(),
            field: format!("`{field}` of the chain of `{}`", self.item),
            problem: problem.to_owned(),
        }
    }

    fn text(&self, key: &str) -> Result<Option<&str>, Error> {
        match self.merged.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(self.malformed(&format!("config.{key}"), "must be a text")),
        }
    }

    fn list(&self, key: &str) -> Result<Vec<&str>, Error> {
        let wrong = || self.malformed(&format!("config.{key}"), "must be a list of texts");
        match self.merged.get(key) {
            None | Some(Value::Null) => Ok(Vec::new()),
            Some(Value::Array(list)) => list
                .iter()
                .map(|item| item.as_str().ok_or_else(wrong))
                .collect(),
            Some(_) => Err(wrong()),
        }
    }

    fn seconds(&self, key: &str) -> Result<Option<Duration>, Error> {
        match self.merged.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => match value.as_f64().and_then(seconds) {
                Some(time) => Ok(Some(time)),
                None => Err(self.malformed(
                    &format!("config.{key}"),
                    "must be a number of seconds above 0",
                )),
            },
        }
    }
}

/// What a template may name.
struct Slots<'a> {
    settings: &'a Settings,
    project: &'a Path,
    interpreter: Option<&'a (String, PathBuf)>,
}

impl Slots<'_> {
    /// The value of one argument.
    fn fill(&self, field: &str, template: &str) -> Result<OsString, Error> {
        if let Some(name) = template
            .strip_prefix("${")
            .and_then(|rest| rest.strip_suffix('}'))
        {
            return match self.interpreter {
                Some((variable, path)) if variable == name => Ok(path.as_os_str().to_owned()),
                Some(_) | None => Err(self.settings.malformed(
                    field,
                    &format!("names `${{{name}}}`, which no `env_config.interpreter` sets"),
                )),
            };
        }
        let Some(name) = slot_name(template) else {
            return Ok(template.into());
        };
        match name {
            "tool_path" => Ok(file_path(0).into_os_string()),
            "project_path" => Ok(self.project.as_os_str().to_owned()),
            "params_json" => Err(self.settings.malformed(
                field,
                "may not hold `{params_json}`: parameters travel on stdin",
            )),
            _ => match self.settings.text(name)? {
                Some(value) => Ok(value.into()),
                None => Err(self.settings.malformed(
                    field,
                    &format!("names `{{{name}}}`; set `config.{name}` in the tool"),
                )),
            },
        }
    }
}

/// The name of a template that is exactly one slot.
fn slot_name(template: &str) -> Option<&str> {
    let name = template.strip_prefix('{')?.strip_suffix('}')?;
    let word = !name.is_empty()
        && name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    word.then_some(name)
}
