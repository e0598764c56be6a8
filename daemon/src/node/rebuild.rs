//! `ryed rebuild`: compares the files of a project's runs with the records, writes missing ones and replaces those that
//! differ.
//!
//! **Order**: a running daemon on the state directory does the work, because it is the only writer there. Without one,
//! this process takes the directory; no run is resumed meanwhile. **Failure**: a run that cannot be compared is
//! counted, and the exit code reports it.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use nix::unistd::getppid;
use rye_core::clock::Clock;
use rye_core::error::with_sources;
use rye_core::id::Name;
use rye_proto::v1;
use rye_proto::v1::node_client::NodeClient;
use tonic::transport::Endpoint;

use super::directory::{self, Directory};
use super::identity::{self, NodeKey};
use super::{Error, exports_of, journal_of};
use crate::config::Config;
use crate::exit::ExitStatus;
use crate::exports::Rebuilt;
use crate::projects::Projects;
use rye_host::clock::HostClock;
use rye_host::task;
use rye_journal::Journal;

/// Rebuilds the files of the runs of each of `projects`, and prints the result. Ends with the first project that cannot
/// be rebuilt.
pub fn rebuild(config: &Config, projects: &[PathBuf]) -> ExitStatus {
    let mut worst = ExitStatus::Done;
    for project in projects {
        let status = rebuild_one(config.clone(), project);
        if status == ExitStatus::Precondition {
            worst = status;
        } else if status != ExitStatus::Done {
            return status;
        }
    }
    worst
}

fn rebuild_one(config: Config, project: &Path) -> ExitStatus {
    let rebuilt = std::path::absolute(project).map_err(|source| Error::Io {
        operation: "find",
        path: project.to_owned(),
        source,
    });
    match rebuilt.and_then(|project| run(config, &project)) {
        Ok(rebuilt) => print(&rebuilt),
        Err(error) => {
            tracing::error!("{}", with_sources(&error));
            error.exit()
        }
    }
}

fn run(config: Config, project: &Path) -> Result<Rebuilt, Error> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(Error::Runtime)?;
    let rebuilt = match Directory::claim(&config.state_dir, &config.socket, getppid()) {
        Ok(directory) => runtime.block_on(alone(Arc::new(config), &directory, project)),
        Err(Error::InUse { path, pid }) => match directory::socket_in_use(&path) {
            Some(socket) => runtime.block_on(request_rebuild(socket, project)),
            None => Err(Error::InUse { path, pid }),
        },
        Err(error) => Err(error),
    };
    runtime.shutdown_timeout(Duration::from_secs(1));
    rebuilt
}

/// Sends the request to the daemon that listens on `socket`.
async fn request_rebuild(socket: PathBuf, project: &Path) -> Result<Rebuilt, Error> {
    let unreachable = |source| Error::Reach {
        socket: socket.clone(),
        source,
    };
    let endpoint = Endpoint::from_shared(format!("unix://{}", socket.display()));
    let channel = endpoint
        .map_err(unreachable)?
        .connect()
        .await
        .map_err(unreachable)?;
    let project = project.to_string_lossy().into_owned();
    let request = v1::RebuildRequest { project };
    let answer = NodeClient::new(channel).rebuild(request).await;
    let answer = answer.map_err(|status| Error::Refused(Box::new(status)))?;
    let v1::RebuildResponse {
        runs,
        written,
        replaced,
        failed,
        failure,
    } = answer.into_inner();
    Ok(Rebuilt {
        runs,
        written,
        replaced,
        failed,
        failure: Some(failure).filter(|failure| !failure.is_empty()),
    })
}

/// Rebuilds in this process, which has the state directory.
async fn alone(
    config: Arc<Config>,
    directory: &Directory,
    project: &Path,
) -> Result<Rebuilt, Error> {
    let origin = directory.check(false)?;
    let signers = identity::signers(&config.state_dir, &origin, HostClock.now());
    let signers = signers.map_err(Error::Identity)?;
    directory.record(&signers, origin.is_copy())?;
    let key = NodeKey::open(&config, &signers, &HostClock).map_err(Error::Identity)?;
    let clock: Arc<dyn Clock> = Arc::new(HostClock);
    let projects = Arc::new(Projects::new(Arc::clone(&config), Arc::clone(&clock)));
    let files = projects.open(project).await?.files.clone();
    let (journal, _live) = Journal::open(journal_of(&config, key, &clock)).await?;
    let exports = exports_of(&config, &journal, &clock, signers.adopted());
    let rebuilt = exports.rebuild(&Name::from(files.to_string_lossy())).await;
    task::blocking("stop exports", move || exports.stop(Duration::MAX)).await;
    journal.close().await?;
    rebuilt.ok_or(Error::Stopped)
}

fn print(rebuilt: &Rebuilt) -> ExitStatus {
    let Rebuilt {
        runs,
        written,
        replaced,
        failed,
        failure,
    } = rebuilt;
    let same = runs - written - replaced - failed;
    let text = format!(
        "{runs} runs: {same} as on record, {written} written, {replaced} replaced, {failed} failed\n"
    );
    if let Some(failure) = failure {
        tracing::error!("{failure}");
    }
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => ExitStatus::Internal,
        Ok(()) | Err(_) if *failed > 0 => ExitStatus::Precondition,
        Ok(()) | Err(_) => ExitStatus::Done,
    }
}
