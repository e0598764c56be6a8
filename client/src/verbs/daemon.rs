//! `daemon status|start|stop|restart|info|logs`.

mod log;

use std::path::Path;
use std::time::Duration;

use rye_client::endpoint::{Autostart, Stopped};
use rye_client::error::NotStarted;
use rye_client::exit::Exit;
use rye_client::{Client, Error};
use rye_proto::{convert, v1};
use serde::Serialize;
use serde_json::json;

use crate::cli::{self, DaemonVerb};
use crate::failure::Failure;
use crate::output::Format;
use crate::render;
use crate::session::Session;

/// Time limit of the list of processes before a stop.
const LIST_TIME: Duration = Duration::from_secs(5);

pub(super) async fn daemon(verb: DaemonVerb, session: &mut Session) -> Result<Exit, Failure> {
    match verb {
        DaemonVerb::Status => status(session).await,
        DaemonVerb::Start => start(session).await,
        DaemonVerb::Stop { all } => stop(all, session).await,
        DaemonVerb::Restart => restart(session).await,
        DaemonVerb::Logs(asked) => logs(&asked, session).await,
        DaemonVerb::Info => info(session).await,
    }
}

/// Connects to the running daemon and starts none.
async fn running(session: &mut Session) -> Result<Option<Client>, Failure> {
    match session
        .connect(Autostart::Off(NotStarted::NotRequested))
        .await
    {
        Ok(client) => Ok(Some(client)),
        Err(Failure::Client(Error::NotRunning { .. })) => Ok(None),
        Err(failure) => Err(failure),
    }
}

async fn status(session: &mut Session) -> Result<Exit, Failure> {
    let socket = session.endpoint()?.socket().display().to_string();
    let Some(client) = running(session).await? else {
        match session.output.format() {
            Format::Json => session
                .output
                .json(&json!({"running": false, "socket": socket}))?,
            Format::Text => session
                .output
                .line(&format!("ryed is not running ({socket})"))?,
        }
        return Ok(Exit::Unreachable);
    };
    let daemon = client.info().await?;
    print_running(&daemon, session)?;
    Ok(Exit::Done)
}

async fn start(session: &mut Session) -> Result<Exit, Failure> {
    // The verb overrides `--no-autostart`, which is about other verbs.
    let client = session.connect(Autostart::On).await?;
    let daemon = client.info().await?;
    print_running(&daemon, session)?;
    Ok(Exit::Done)
}

fn print_running(daemon: &v1::InfoResponse, session: &mut Session) -> Result<(), Failure> {
    #[derive(Serialize)]
    struct Running<'a> {
        running: bool,
        #[serde(flatten)]
        daemon: &'a v1::InfoResponse,
    }

    match session.output.format() {
        Format::Json => session.output.json(&Running {
            running: true,
            daemon,
        }),
        Format::Text => session.output.line(&format!(
            "ryed {} is running: pid {}, {} live runs, {}",
            daemon.version, daemon.pid, daemon.live_runs, daemon.socket
        )),
    }
}

async fn stop(all: bool, session: &mut Session) -> Result<Exit, Failure> {
    let survivors = if all {
        stop_survivors(session).await?;
        Vec::new()
    } else {
        // A daemon that does not answer is stopped nevertheless.
        let listed = tokio::time::timeout(LIST_TIME, survivors(session)).await;
        listed.unwrap_or(Ok(Vec::new())).unwrap_or_default()
    };
    let stopped = end(session).await?;
    let forced = matches!(stopped, Stopped::Forced { .. });
    for process in &survivors {
        let (handle, command) = (&process.handle, &process.command);
        session.output.note(&format!(
            "{handle} keeps running (`{command}`); `ryectl daemon stop --all` stops such processes, too"
        ));
    }
    let survivors: Vec<&str> = survivors.iter().map(|process| &*process.handle).collect();
    match (session.output.format(), stopped) {
        (Format::Json, _) => session.output.json(&json!({
            "running": false,
            "stopped": stopped != Stopped::NotRunning,
            "forced": forced,
            "survivors": survivors,
        }))?,
        (Format::Text, Stopped::OnRequest | Stopped::Forced { .. }) => {
            session.output.line("ryed has stopped")?;
        }
        (Format::Text, Stopped::NotRunning) => session.output.line("ryed was not running")?,
    }
    Ok(Exit::Done)
}

/// Returns the running processes that survive the daemon.
async fn survivors(session: &mut Session) -> Result<Vec<v1::Process>, Failure> {
    let Some(client) = running(session).await? else {
        return Ok(Vec::new());
    };
    let mut processes = client.list_processes(String::new(), false).await?;
    processes.retain(|process| process.survive);
    Ok(processes)
}

async fn stop_survivors(session: &mut Session) -> Result<(), Failure> {
    for process in survivors(session).await? {
        let client = session.client().await?;
        client.stop_process(&process.handle).await?;
    }
    Ok(())
}

async fn end(session: &mut Session) -> Result<Stopped, Failure> {
    let endpoint = session.endpoint()?;
    let output = &mut session.output;
    let stopped = endpoint.stop(&mut |text| output.note(text)).await?;
    if let Stopped::Forced { pid } = stopped {
        output.note(&format!(
            "ryed (pid {pid}) did not answer and was ended; its runs are recovered at the next start"
        ));
    }
    Ok(stopped)
}

/// Stops the daemon, if one runs, and starts it as `start` does.
async fn restart(session: &mut Session) -> Result<Exit, Failure> {
    let _stopped = end(session).await?;
    start(session).await
}

/// Prints the log of the daemon, whether or not one runs.
async fn logs(asked: &cli::DaemonLogs, session: &mut Session) -> Result<Exit, Failure> {
    let endpoint = session.endpoint()?;
    let state_dir = match endpoint.state_dir_in_use() {
        // A daemon that does not answer has a log as well.
        Some(state_dir) => state_dir.to_owned(),
        None => match running(session).await? {
            Some(client) => client.info().await?.state_dir.into(),
            None => session.choice().state_dir(&session.environment)?,
        },
    };
    log::print(&state_dir.join("ryed.log"), asked, &mut session.output).await?;
    Ok(Exit::Done)
}

/// Prints the settings of the running daemon. If none runs, that is an error, and none is started.
async fn info(session: &mut Session) -> Result<Exit, Failure> {
    let client = session
        .connect(Autostart::Off(NotStarted::NotRequested))
        .await?;
    let daemon = client.info().await?;
    let now = session.environment.now;
    let started = daemon.started_at.as_ref().map(convert::timestamp);
    let log = Path::new(&daemon.state_dir).join("ryed.log");
    let tools = daemon.tools.clone().unwrap_or_default();
    let isolation = daemon.isolation().word().map(str::to_owned);
    match session.output.format() {
        Format::Json => session.output.json(&daemon)?,
        Format::Text => session.output.line(&render::fields(&[
            ("version", Some(daemon.version)),
            ("pid", Some(daemon.pid.to_string())),
            ("parent", Some(daemon.parent_pid.to_string())),
            ("epoch", Some(daemon.epoch.to_string())),
            ("started", started.map(|at| at.to_string())),
            ("up", started.map(|at| render::age(now.ms_since(at)))),
            ("state", Some(daemon.state_dir)),
            // A daemon of a service manager logs elsewhere.
            ("log", log.exists().then(|| log.display().to_string())),
            ("socket", Some(daemon.socket)),
            ("node key", Some(daemon.node_fingerprint)),
            ("isolation", isolation),
            ("containment", Some(daemon.containment.join(", "))),
            ("missing", render::some(&daemon.containment_missing)),
            (
                "can limit",
                render::some(&daemon.limits_enforced.join(", ")),
            ),
            ("cannot limit", render::some(&daemon.limits_missing)),
            ("live runs", Some(daemon.live_runs.to_string())),
            ("storage", Some(daemon.storage)),
            ("history", render::some(&daemon.history_notes.join("; "))),
            ("tools get", render::some(&tools.variables.join("\n"))),
            (
                "umask, nice",
                render::some(&tools.umask).map(|umask| format!("{umask}, {}", tools.nice)),
            ),
            ("limits", render::some(&tools.limits.join(", "))),
        ]))?,
    }
    Ok(Exit::Done)
}
