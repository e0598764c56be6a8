//! The process of an attempt of a managed process.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use rye_core::model::{HealthCheck, McpSession, PortRef, Ports, ProcessSpec, Readiness};
use rye_core::process::{AttemptPorts, fill_port_slots, port_variable};

use super::confinement::{confinement, requested};
use super::environment::{Environment, InheritedVariables};
use super::origin::CallOrigin;
use super::process_plan::tag;
use super::shell::{path_in_project, shell};
use crate::config::Config;
use rye_process::{self as process, MAX_ARGUMENT_BYTES};

/// The process of one attempt.
#[derive(Debug)]
pub struct ManagedPlan {
    pub process: process::Plan,
    /// Tag of the attempt, by which its processes are found.
    pub tag: String,
    /// Name of the managed process, for people.
    pub name: String,
    /// Ports on which nothing may listen before.
    pub fixed_ports: Vec<u16>,
    pub probes: ProbePlan,
}

/// Reason why an attempt cannot be planned.
#[derive(Debug, thiserror::Error)]
pub enum ManagedError {
    #[error("{0}")]
    Params(String),
    #[error("{0}")]
    Isolation(String),
}

impl From<String> for ManagedError {
    fn from(problem: String) -> Self {
        Self::Params(problem)
    }
}

/// An attempt that was started.
#[derive(Debug)]
pub struct KeptPlan {
    /// Name of the managed process, for people.
    pub name: String,
    /// Time between TERM and KILL when it is stopped.
    pub grace: Duration,
    pub probes: ProbePlan,
}

/// An attempt of an MCP server, whose process its session plans.
#[derive(Debug)]
pub struct ServerPlan {
    /// Identifies the session.
    pub session: String,
    /// Tag of the attempt, by which its processes are found.
    pub tag: String,
    /// Name of the managed process, for people.
    pub name: String,
    pub probes: ProbePlan,
}

/// What the probes of an attempt test.
#[derive(Debug)]
pub struct ProbePlan {
    pub ready: Readiness,
    pub ready_timeout: Duration,
    pub healthy: Option<HealthCheck>,
    pub ports: Ports,
    /// Names of ports that are given up if another process has them.
    pub movable: Vec<String>,
}

/// Plans an attempt of `spec` that has these ports. The error names the key of the
/// request that is wrong, or the missing isolation.
pub fn managed(
    spec: &ProcessSpec,
    AttemptPorts { numbers, can_move }: AttemptPorts,
    origin: &CallOrigin,
    config: &Config,
    offer: InheritedVariables,
) -> Result<ManagedPlan, ManagedError> {
    let confinement = confinement(spec.isolation, origin, config);
    let confinement = confinement.map_err(|(level, cause)| {
        let level = level.as_str();
        ManagedError::Isolation(format!("the isolation `{level}` is not available: {cause}"))
    })?;
    let filled = |text: &str| fill_port_slots(text, &numbers).map(|text| OsString::from(&*text));
    let command = filled(&spec.command)?;
    let (program, args) = if let Some(args) = &spec.args {
        let args: Result<Vec<OsString>, String> = args.iter().map(|arg| filled(arg)).collect();
        (command.into(), args?)
    } else {
        let (shell, mut args) = shell();
        args.extend(["-c".into(), command]);
        (shell.to_owned(), args)
    };
    if args.iter().any(|arg| arg.len() > MAX_ARGUMENT_BYTES) {
        let text = format!("`command` and each of `args` have at most {MAX_ARGUMENT_BYTES} bytes");
        return Err(ManagedError::Params(text));
    }
    let mut environment = Environment::of(origin, offer);
    for (name, value) in &spec.env {
        let value = fill_port_slots(value, &numbers)?;
        environment
            .set_by_caller(name, &value)
            .map_err(|problem| format!("`env`: {problem}"))?;
    }
    for (name, port) in &numbers {
        environment
            .set_by_caller(&port_variable(name), &port.to_string())
            .map_err(|problem| format!("`ports.{name}`: {problem}"))?;
    }
    let project = Path::new(&origin.spec.project);
    let cwd = match &spec.cwd {
        None => project.to_owned(),
        Some(wanted) => {
            let path = path_in_project(project, wanted);
            path.map_err(|problem| ManagedError::Params(format!("`cwd`: {problem}")))?
        }
    };
    Ok(ManagedPlan {
        process: process::Plan {
            program,
            args,
            env: environment.into_vec(),
            cwd,
            confinement,
            resources: requested(Some(spec.resources), config),
            stdin: process::Input::Bytes(Vec::new()),
            files: Vec::new(),
            timeout: Duration::MAX,
            grace: spec.grace(),
            output_limit: 0,
        },
        tag: tag(&origin.run, &origin.key, origin.attempt),
        name: spec.name.clone(),
        fixed_ports: fixed_ports(spec),
        probes: ProbePlan::new(spec, AttemptPorts { numbers, can_move }),
    })
}

/// Plans the rest of an attempt of `spec` that was started with these ports.
pub fn kept(spec: &ProcessSpec, ports: AttemptPorts) -> KeptPlan {
    KeptPlan {
        name: spec.name.clone(),
        grace: spec.grace(),
        probes: ProbePlan::new(spec, ports),
    }
}

/// Plans an attempt of `spec`, which is the server of `mcp`.
pub fn mcp_server(spec: &ProcessSpec, mcp: &McpSession, origin: &CallOrigin) -> ServerPlan {
    ServerPlan {
        session: mcp.session.clone(),
        tag: tag(&origin.run, &origin.key, origin.attempt),
        name: spec.name.clone(),
        probes: ProbePlan::new(spec, AttemptPorts::default()),
    }
}

impl ProbePlan {
    fn new(spec: &ProcessSpec, AttemptPorts { numbers, can_move }: AttemptPorts) -> Self {
        Self {
            ready: spec.ready.clone(),
            ready_timeout: spec.ready_timeout(),
            healthy: spec.healthy.clone(),
            ports: numbers,
            movable: if can_move {
                spec.auto_ports()
            } else {
                Vec::new()
            },
        }
    }
}

/// The ports of `spec` whose numbers the request has.
fn fixed_ports(spec: &ProcessSpec) -> Vec<u16> {
    let probed = match &spec.ready {
        Readiness::Port(PortRef::Number(port)) => Some(*port),
        Readiness::Http(http) => match http.port {
            PortRef::Number(port) => Some(port),
            PortRef::Named(_) => None,
        },
        Readiness::Port(PortRef::Named(_)) | Readiness::Alive | Readiness::Pattern(_) => None,
    };
    spec.fixed_ports().into_values().chain(probed).collect()
}
