//! The service `Node`: the daemon itself.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use nix::unistd::Pid;
use rye_core::clock::Timestamp;
use rye_core::id::{Epoch, Name};
use rye_core::model::Resource;
use rye_process::{AttemptCgroups, CGROUP, CONTAINMENT, Inheritance, SIGNALS};
use rye_proto::v1;
use rye_proto::v1::node_server::Node;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

use super::encode;
use super::listener::Listeners;
use crate::access::Access;
use crate::config::ChildEnv;
use crate::exports::Exports;
use rye_journal::Storage;

/// Identity and state of this daemon.
#[derive(Debug, Clone)]
pub struct Facts {
    /// The user that the daemon serves.
    pub uid: u32,
    /// The process that adopts orphans. Descendants of it or of the daemon are runs.
    pub parent: Pid,
    /// Cgroups of attempts, or the reason why there are none.
    pub cgroups: Result<Arc<AttemptCgroups>, String>,
    /// Reason why attempts have no signal scope.
    pub no_scope: Option<String>,
    pub epoch: Epoch,
    pub started_at: Timestamp,
    pub state_dir: PathBuf,
    pub listener: Listeners,
    pub node_fingerprint: String,
    /// Cancelled once the daemon stops.
    pub stopping: CancellationToken,
    pub exports: Arc<Exports>,
    /// Environment of tools.
    pub tools: v1::ToolEnvironment,
}

impl Facts {
    /// The containment mechanisms that are there, strongest first.
    fn containment(&self) -> Vec<String> {
        let cgroup = self.cgroups.is_ok().then_some(CGROUP);
        let signals = self.no_scope.is_none().then_some(SIGNALS);
        let all = cgroup.into_iter().chain(CONTAINMENT).chain(signals);
        all.map(str::to_owned).collect()
    }

    /// Resources whose limits the host enforces.
    fn limits_enforced(&self) -> Vec<String> {
        let cgroups = self.cgroups.as_ref();
        let enforced = cgroups.map_or_else(|_| Vec::new(), |cgroups| cgroups.enforced());
        let names = enforced.into_iter().map(Resource::as_str);
        names.map(str::to_owned).collect()
    }

    /// The reason why it does not enforce the others.
    fn limits_missing(&self) -> String {
        match &self.cgroups {
            Ok(cgroups) => cgroups.unenforced().map(ToString::to_string),
            Err(why) => Some(why.clone()),
        }
        .unwrap_or_default()
    }

    /// The mechanisms that are not there, and why.
    fn containment_missing(&self) -> String {
        let cgroup = self.cgroups.as_ref().err();
        let missing = [(CGROUP, cgroup), (SIGNALS, self.no_scope.as_ref())];
        let missing = missing
            .into_iter()
            .filter_map(|(name, why)| Some(format!("{name}: {}", why?)));
        missing.collect::<Vec<_>>().join("; ")
    }
}

/// Environment of tools for people. Of the variables in `env.pass` it has only the names, because values may be secrets.
pub fn tool_environment(env: &ChildEnv, inherited: io::Result<Inheritance>) -> v1::ToolEnvironment {
    let variables = env.base.iter().map(|(name, value)| {
        let name = name.to_string_lossy().into_owned();
        if env.pass.contains(&name) {
            name
        } else {
            format!("{name}={}", value.display())
        }
    });
    let variables = variables.collect();
    match inherited {
        Ok(inherited) => {
            let limits = inherited.limits.iter().map(|(name, most)| match most {
                Some(most) => format!("{most} {name}"),
                None => format!("{name} unlimited"),
            });
            v1::ToolEnvironment {
                variables,
                limits: limits.collect(),
                umask: inherited.umask,
                nice: inherited.nice,
            }
        }
        Err(error) => {
            tracing::warn!(%error, "umask and niceness of tools cannot be read");
            v1::ToolEnvironment {
                variables,
                ..v1::ToolEnvironment::default()
            }
        }
    }
}

#[derive(Debug)]
pub(super) struct NodeService {
    access: Access,
    facts: Arc<Facts>,
}

impl NodeService {
    pub(super) fn new(access: Access, facts: Arc<Facts>) -> Self {
        Self { access, facts }
    }
}

#[tonic::async_trait]
impl Node for NodeService {
    async fn info(
        &self,
        _request: Request<v1::InfoRequest>,
    ) -> Result<Response<v1::InfoResponse>, Status> {
        let facts = &self.facts;
        Ok(Response::new(v1::InfoResponse {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            epoch: facts.epoch.0,
            pid: nix::unistd::getpid().as_raw(),
            parent_pid: facts.parent.as_raw(),
            started_at: Some(encode::timestamp(facts.started_at)),
            state_dir: facts.state_dir.to_string_lossy().into_owned(),
            socket: facts.listener.borrow().path.to_string_lossy().into_owned(),
            node_fingerprint: facts.node_fingerprint.clone(),
            isolation: v1::Isolation::Scoped.into(),
            containment: facts.containment(),
            containment_missing: facts.containment_missing(),
            live_runs: u32::try_from(self.access.live_count()).unwrap_or(u32::MAX),
            storage: match self.access.storage() {
                Storage::Ok => "ok",
                Storage::Full => "full",
            }
            .to_owned(),
            history_notes: self.access.history_notes().to_vec(),
            tools: Some(facts.tools.clone()),
            limits_enforced: facts.limits_enforced(),
            limits_missing: facts.limits_missing(),
        }))
    }

    async fn keys(
        &self,
        request: Request<v1::KeysRequest>,
    ) -> Result<Response<v1::KeysResponse>, Status> {
        let project = PathBuf::from(request.into_inner().project);
        let keys = self.access.keys(&project).await?;
        let node = &self.facts.node_fingerprint;
        Ok(Response::new(v1::KeysResponse {
            keys: keys
                .iter()
                .map(|key| encode::items::key(key, node))
                .collect(),
        }))
    }

    async fn rebuild(
        &self,
        request: Request<v1::RebuildRequest>,
    ) -> Result<Response<v1::RebuildResponse>, Status> {
        let project = PathBuf::from(request.into_inner().project);
        let project = self.access.project(&project).await?;
        let files = Name::from(project.files.to_string_lossy());
        let rebuilt = self.facts.exports.rebuild(&files).await;
        let rebuilt = rebuilt.ok_or_else(|| Status::unavailable("the daemon stops"))?;
        Ok(Response::new(v1::RebuildResponse {
            runs: rebuilt.runs,
            written: rebuilt.written,
            replaced: rebuilt.replaced,
            failed: rebuilt.failed,
            failure: rebuilt.failure.unwrap_or_default(),
        }))
    }

    async fn drain(
        &self,
        _request: Request<v1::DrainRequest>,
    ) -> Result<Response<v1::DrainResponse>, Status> {
        tracing::info!("asked to drain");
        self.access.stop();
        Ok(Response::new(v1::DrainResponse {}))
    }
}
