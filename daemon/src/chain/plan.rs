//! Plan of a call: plain data made of a verified chain and parameters.
//!
//! The templates of the chain describe a process ([`super::template`]); `rye/bash` has a command line of its caller.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rye_core::declared::Fields as _;
use rye_core::machine::TextForm;
use rye_core::model::{Object, Resources};
use rye_core::thread::ThreadOrder;
use rye_item::system;
use rye_process::{self as process, file_path};
use serde_json::{Value, json};

use super::binary;
use super::confinement::{confinement, of_item, requested};
use super::environment::{self, Environment, InheritedVariables};
use super::error::Error;
use super::fields::malformed;
use super::given;
use super::interpreter::{self, Interpreter};
use super::managed::{KeptPlan, ManagedPlan, ServerPlan};
use super::origin::CallOrigin;
use super::process_plan::{OutputForm, ProcessPlan, tag};
use super::request::{self, RequestPlan};
use super::server;
use super::shell;
use super::template::{KEYS, Settings, Slots};
use super::template_paths::{CLIENT, TemplatePaths};
use super::terminal::{EXECUTE, HTTP, STATE_GRAPH, Terminal};
use super::verified::Chain;
use crate::config::Config;
use crate::mcp;
use crate::native;
use crate::trees;

/// Plan of a call.
#[derive(Debug)]
pub enum Plan {
    /// Call of a tool inside the daemon.
    Native(NativeCall),
    Process(Box<ProcessPlan>),
    /// An attempt of a managed process.
    Managed(Box<ManagedPlan>),
    /// An attempt of a managed process that an earlier daemon started.
    Kept(Box<KeptPlan>),
    /// An attempt of the process of an MCP server.
    Server(Box<ServerPlan>),
    Http(Box<RequestPlan>),
    Mcp(Box<mcp::Plan>),
    /// A graph run, which is not carried out as a call.
    Graph,
    /// A thread, which is not carried out as a call.
    Thread(Box<ThreadOrder>),
}

impl Plan {
    /// Form in which a model reads the result.
    pub const fn text_form(&self) -> TextForm {
        match self {
            Self::Native(call) => call.tool.text_form(),
            Self::Process(plan) => match plan.output_form {
                OutputForm::Shell => TextForm::Shell,
                OutputForm::Declared(_) => TextForm::Process,
            },
            Self::Mcp(_) => TextForm::Blocks,
            Self::Managed(_)
            | Self::Kept(_)
            | Self::Server(_)
            | Self::Http(_)
            | Self::Graph
            | Self::Thread(_) => TextForm::Data,
        }
    }

    /// Description for a preview. Omits values of variables and the content of stdin.
    pub fn described(&self) -> Value {
        match self {
            Self::Native(_) => json!({"primitive": "native"}),
            Self::Managed(plan) => json!({"primitive": "managed", "name": plan.name}),
            Self::Kept(plan) => json!({"primitive": "managed", "name": plan.name}),
            Self::Server(plan) => json!({"primitive": "managed", "name": plan.name}),
            Self::Process(plan) => plan.described(),
            Self::Http(plan) => plan.described(),
            Self::Mcp(plan) => plan.described(),
            Self::Graph => json!({"primitive": STATE_GRAPH}),
            Self::Thread(order) => {
                json!({"primitive": "thread", "directive": order.directive.id.as_str()})
            }
        }
    }
}

/// Call of a tool inside the daemon.
#[derive(Debug)]
pub struct NativeCall {
    pub tool: native::Tool,
    pub params: Object,
    /// Maximum duration, if it is limited.
    pub timeout: Option<Duration>,
}

/// Plans the call of `chain` with `params`, which match the schema of the tool. The duration is limited by `timeout`
/// and by the tool itself. A process inherits the variables in `offer`. Searches for the program. Adds the decisions to
/// `trace`.
pub fn plan(
    chain: &Chain,
    params: Object,
    origin: &CallOrigin,
    config: &Config,
    offer: InheritedVariables,
    timeout: Option<Duration>,
    trace: Option<&mut Vec<Value>>,
) -> Result<Plan, Error> {
    check_program_keys(chain)?;
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
        Terminal::Http => {
            let mut plan = http(chain, &params, origin, offer, trace)?;
            plan.max_duration = timeout;
            Ok(Plan::Http(Box::new(plan)))
        }
        Terminal::Mcp(way) => {
            let mut trace = trace;
            let inherited = Environment::of(origin, offer);
            let environment = environment(chain, inherited, trace.as_deref_mut())?;
            let mut plan = server::plan(chain, way, params, origin, config, environment)?;
            plan.max_duration = timeout;
            if let Some(trace) = trace {
                trace.push(server::traced(&plan));
            }
            Ok(Plan::Mcp(Box::new(plan)))
        }
        Terminal::Process => {
            let mut plan = process(chain, params, origin, config, offer, trace)?;
            if let Some(timeout) = timeout.filter(|timeout| *timeout < plan.process.timeout) {
                plan.process.timeout = timeout;
                plan.time_set_by = "`timeout` of the node";
            }
            Ok(Plan::Process(Box::new(plan)))
        }
    }
}

/// Refuses keys of programs in a tool that is none.
fn check_program_keys(chain: &Chain) -> Result<(), Error> {
    let metadata = &chain.tool().metadata;
    let key = if metadata.replays {
        "replay"
    } else if metadata.isolation.is_some() {
        "isolation"
    } else if metadata.resources.is_some() {
        "resources"
    } else {
        return Ok(());
    };
    if chain.terminal == Terminal::Process {
        return Ok(());
    }
    let problem = "goes with a tool that runs as a program: leave it out";
    Err(malformed(chain.tool(), key, problem))
}

/// Fails if no call of `chain` can be planned, whatever its parameters are.
pub fn check_settings(chain: &Chain) -> Result<(), Error> {
    check_program_keys(chain)?;
    if chain.terminal == Terminal::Process && !shell::is(chain.tool()) {
        let _command = Settings::merge(chain, &KEYS)?.command()?;
    }
    Ok(())
}

/// Returns the variables that the elements of `chain` set together.
fn environment(
    chain: &Chain,
    mut environment: Environment,
    mut trace: Option<&mut Vec<Value>>,
) -> Result<Environment, Error> {
    for element in chain.elements.iter().rev() {
        let keys = environment.overlay(element)?;
        if let (Some(trace), false) = (trace.as_deref_mut(), keys.is_empty()) {
            let by = element.id().as_str();
            trace.push(json!({"step": "resolve_env", "contributed_by": by, "keys": keys}));
        }
    }
    let missing = environment.missing(&chain.tool().metadata.env_requires);
    if missing.is_empty() {
        return Ok(environment);
    }
    let names = missing.iter().map(|name| format!("`{name}`"));
    Err(Error::Variables {
        item: chain.item.clone(),
        names: names.collect::<Vec<_>>().join(", "),
    })
}

fn http(
    chain: &Chain,
    params: &Object,
    origin: &CallOrigin,
    offer: InheritedVariables,
    mut trace: Option<&mut Vec<Value>>,
) -> Result<RequestPlan, Error> {
    let inherited = Environment::of(origin, offer);
    let environment = environment(chain, inherited, trace.as_deref_mut())?;
    let plan = request::plan(chain, params, &environment)?;
    if let Some(trace) = trace {
        trace.push(json!({
            "step": "plan",
            "primitive": HTTP,
            "method": plan.method,
            "host": plan.url.host_str(),
            "timeout": plan.timeout.as_secs_f64(),
        }));
    }
    Ok(plan)
}

fn process(
    chain: &Chain,
    params: Object,
    origin: &CallOrigin,
    config: &Config,
    offer: InheritedVariables,
    mut trace: Option<&mut Vec<Value>>,
) -> Result<ProcessPlan, Error> {
    let confinement = confinement(chain.tool().metadata.isolation, origin, config);
    let confinement = confinement.map_err(|missing| of_item(chain, missing))?;
    let mut inherited = Environment::of(origin, offer);
    let places = searched(chain, origin, config);
    if let Some(found) = interpreter::find_for_env(chain, &places, &inherited, config)? {
        inherited.set_interpreter(found.variable, found.path);
    }
    let environment = environment(chain, inherited, trace.as_deref_mut())?;
    let mut plan = if shell::is(chain.tool()) {
        shell::plan(chain, &params, origin, config, environment)?
    } else {
        templated(
            chain,
            params,
            origin,
            config,
            environment,
            trace.as_deref_mut(),
        )?
    };
    plan.process.confinement = confinement;
    plan.process.resources = requested(chain.tool().metadata.resources, config);
    if let Some(trace) = trace {
        let process = &plan.process;
        trace.push(json!({
            "step": "plan",
            "primitive": EXECUTE,
            "command": process.program,
            "args_count": process.args.len(),
            "cwd": process.cwd,
            "timeout": process.timeout.as_secs_f64(),
            "isolation": process.confinement.level().as_str(),
            "resources": process.resources,
            "from": if chain.anchored.is_some() { "copy" } else { "memory" },
        }));
    }
    Ok(plan)
}

/// Refuses an `env` that refers to another interpreter than the one that runs, which is found on a PATH of the chain.
fn check_env(
    chain: &Chain,
    environment: &Environment,
    found: Option<&Interpreter>,
) -> Result<(), Error> {
    let Some((variable, path)) = environment.interpreter() else {
        return Ok(());
    };
    if found.is_some_and(|found| found.path == *path) {
        return Ok(());
    }
    let mut elements = chain.elements();
    let by = elements.find(|element| environment::names(element, variable));
    let problem = format!(
        "refers to `${{{variable}}}`, and another program is found on the PATH that this chain sets: leave out one of both"
    );
    Err(malformed(
        by.unwrap_or(chain.tool()),
        "env_config.env",
        &problem,
    ))
}

/// Returns the paths in which the interpreter of the chain is searched.
fn searched(chain: &Chain, origin: &CallOrigin, config: &Config) -> TemplatePaths {
    let project = Path::new(&origin.spec.project);
    let system = system::root(&config.state_dir);
    TemplatePaths::of(chain.tool(), project, &config.user_space, &system)
}

/// Plans the process that the templates of the chain describe.
fn templated(
    chain: &Chain,
    params: Object,
    origin: &CallOrigin,
    config: &Config,
    mut environment: Environment,
    trace: Option<&mut Vec<Value>>,
) -> Result<ProcessPlan, Error> {
    let settings = Settings::merge(chain, &KEYS)?;
    let project = Path::new(&origin.spec.project);
    let system = system::root(&config.state_dir);
    let mut places = TemplatePaths::of(chain.tool(), project, &config.user_space, &system);
    let mut cwd = project.to_owned();
    if let Some(anchored) = &chain.anchored {
        let copy = trees::place(&config.state_dir, &anchored.tree);
        let copy = copy.map_err(|source| Error::Copy {
            item: chain.item.clone(),
            source,
        })?;
        anchored.set_copy_paths(&copy, &mut places);
        anchored.surround(&places, &mut environment)?;
        cwd = anchored.cwd(&places)?;
    }
    let found_in = searched(chain, origin, config);
    let interpreter = interpreter::find(chain, &found_in, &environment, config)?;
    check_env(chain, &environment, interpreter.as_ref())?;
    if let Some(trace) = trace {
        trace.extend(interpreter.iter().map(Interpreter::traced));
    }
    let mut files = vec![chain.tool().text.as_bytes().to_vec()];
    let binary = if settings.uses_binary()? {
        files.push(binary::read(&settings)?);
        Some(file_path(files.len() - 1))
    } else {
        None
    };
    if settings.uses(CLIENT)? {
        files.push(system::python_client().as_bytes().to_vec());
        places.set_client(file_path(files.len() - 1));
    }
    let slots = Slots {
        settings: &settings,
        paths: &places,
        interpreter: interpreter.as_ref(),
        binary: binary.as_deref(),
        cwd,
    };
    let command = settings.command()?;
    let args = settings.texts("args")?;
    let args = args.iter().map(|arg| slots.fill("args", arg));
    let timeout = settings.seconds("timeout")?;
    Ok(ProcessPlan {
        process: process::Plan {
            program: PathBuf::from(slots.fill("command", command)?),
            args: args.collect::<Result<_, _>>()?,
            env: environment.into_vec(),
            cwd: slots.cwd()?,
            confinement: process::Confinement::default(),
            resources: Resources::default(),
            stdin: process::Input::Bytes(stdin(chain, &settings, params)?),
            files,
            timeout: timeout.unwrap_or(config.limits.tool_timeout),
            grace: process::DEFAULT_GRACE,
            output_limit: config.limits.output_bytes.get(),
        },
        tag: tag(&origin.run, &origin.key, origin.attempt),
        callbacks: None,
        output_form: OutputForm::Declared(chain.output_format()),
        time_set_by: "`config.timeout` of the tool, else the setting `limits.tool_timeout_seconds`",
    })
}

/// Returns the parameters as the tool reads them, with its fixed parameters and its configuration.
fn stdin(chain: &Chain, settings: &Settings<'_>, params: Object) -> Result<Vec<u8>, Error> {
    match settings.text("input_data")? {
        None => {
            refuse_unsent(chain, settings)?;
            return Ok(Vec::new());
        }
        Some("{params_json}") => {}
        Some(_) => {
            let problem = "must be `{params_json}`: parameters travel as JSON";
            return Err(settings.malformed("input_data", problem));
        }
    }
    if chain.given.is_some() && params.contains_key(given::MEMBER) {
        let message = format!(
            "`{}` is what the tool is given, and cannot be sent",
            given::MEMBER
        );
        return Err(chain.refuse_params(message));
    }
    let mut params = settings.with_fixed(params)?;
    if let Some(given) = &chain.given {
        params.insert(given::MEMBER.to_owned(), given.value.clone());
    }
    Ok(Value::Object(params).to_string().into_bytes())
}

/// Refuses settings that add to the parameters if the runtime sends no parameters.
fn refuse_unsent(chain: &Chain, settings: &Settings<'_>) -> Result<(), Error> {
    let problem = "goes to the tool with its parameters, which its runtime does not send: set `config.input_data: \"{params_json}\"`, or leave it out";
    for key in ["fixed_params", "params_key"] {
        if settings.given(key).is_some() {
            return Err(settings.malformed(key, problem));
        }
    }
    match chain.given {
        Some(_) => Err(malformed(chain.tool(), "config_resolve", problem)),
        None => Ok(()),
    }
}
