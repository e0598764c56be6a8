//! The process of an attempt of a managed process.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use rye_core::model::{ProcessSpec, Readiness};

use super::confinement::confinement;
use super::environment::{Environment, InheritedVariables};
use super::origin::CallOrigin;
use super::process_plan::tag;
use super::shell::{path_in_project, shell};
use crate::config::Config;
use rye_process::{self as process, MAX_ARGUMENT_BYTES};

/// The process of one attempt, and the sign by which it is ready.
#[derive(Debug)]
pub struct ManagedPlan {
    pub process: process::Plan,
    /// Tag of the attempt, by which its processes are found.
    pub tag: String,
    /// Name of the managed process, for people.
    pub name: String,
    pub ready: Readiness,
}

/// Reason why an attempt cannot be planned.
#[derive(Debug, thiserror::Error)]
pub enum ManagedError {
    #[error("{0}")]
    Params(String),
    #[error("{0}")]
    Isolation(String),
}

/// Plans an attempt of `spec`. The error names the key of the request that is wrong, or the missing isolation.
pub fn managed(
    spec: &ProcessSpec,
    origin: &CallOrigin,
    config: &Config,
    offer: InheritedVariables,
) -> Result<ManagedPlan, ManagedError> {
    let confinement = confinement(spec.isolation, origin, config);
    let confinement = confinement.map_err(|(level, cause)| {
        let level = level.as_str();
        ManagedError::Isolation(format!("the isolation `{level}` is not available: {cause}"))
    })?;
    let (program, args): (_, Vec<OsString>) = if let Some(args) = &spec.args {
        let args = args.iter().map(OsString::from);
        (Path::new(&spec.command), args.collect())
    } else {
        let (shell, mut args) = shell();
        args.extend(["-c".into(), (&spec.command).into()]);
        (shell, args)
    };
    if args.iter().any(|arg| arg.len() > MAX_ARGUMENT_BYTES) {
        let text = format!("`command` and each of `args` have at most {MAX_ARGUMENT_BYTES} bytes");
        return Err(ManagedError::Params(text));
    }
    let mut environment = Environment::of(origin, offer);
    for (name, value) in &spec.env {
        environment
            .set_by_caller(name, value)
            .map_err(|problem| ManagedError::Params(format!("`env`: {problem}")))?;
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
            program: program.to_owned(),
            args,
            env: environment.into_vec(),
            cwd,
            confinement,
            stdin: process::Input::Bytes(Vec::new()),
            files: Vec::new(),
            timeout: Duration::MAX,
            grace: spec.grace(),
            output_limit: 0,
        },
        tag: tag(&origin.run, &origin.key, origin.attempt),
        name: spec.name.clone(),
        ready: spec.ready.clone(),
    })
}
