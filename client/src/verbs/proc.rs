//! `proc start|ls|status|stop|restart|freeze|thaw|logs|wait`: managed processes.

mod text;

use rye_client::exit::Exit;
use rye_proto::{convert, v1};

use crate::cli::{self, Condition, ProcVerb};
use crate::failure::Failure;
use crate::local_error::LocalError;
use crate::output::{Format, Reader};
use crate::session::Session;

pub(super) async fn proc(verb: ProcVerb, session: &mut Session) -> Result<Exit, Failure> {
    match verb {
        ProcVerb::Start(asked) => start(*asked, session).await,
        ProcVerb::Ls { all } => list(all, session).await,
        ProcVerb::Status(one) => {
            let process = session.client().await?.process(one.handle.as_str()).await?;
            show(&process, session)
        }
        ProcVerb::Stop(one) => {
            let client = session.client().await?;
            let process = client.stop_process(one.handle.as_str()).await?;
            show(&process, session)
        }
        ProcVerb::Restart(one) => {
            let client = session.client().await?;
            let process = client.restart_process(one.handle.as_str()).await?;
            let exit = of_live(&process);
            show(&process, session)?;
            Ok(exit)
        }
        ProcVerb::Freeze(one) => {
            let client = session.client().await?;
            let process = client.freeze_process(one.handle.as_str()).await?;
            show(&process, session)
        }
        ProcVerb::Thaw(one) => {
            let client = session.client().await?;
            let process = client.thaw_process(one.handle.as_str()).await?;
            show(&process, session)
        }
        ProcVerb::Logs(asked) => logs(asked, session).await,
        ProcVerb::Wait(asked) => wait(asked, session).await,
    }
}

/// The exit code of a verb after which the process should be running.
fn of_live(process: &v1::Process) -> Exit {
    if process.running || process.exit_code == Some(0) {
        Exit::Done
    } else {
        Exit::Failed
    }
}

fn show(process: &v1::Process, session: &mut Session) -> Result<Exit, Failure> {
    let output = &mut session.output;
    match output.format() {
        Format::Json => output.json(process)?,
        Format::Text => output.line(&text::details(process))?,
    }
    Ok(Exit::Done)
}

async fn start(asked: cli::StartProcess, session: &mut Session) -> Result<Exit, Failure> {
    let mut command = asked.command.into_iter();
    let mut env = std::collections::HashMap::new();
    for variable in asked.env {
        let Some((name, value)) = variable.split_once('=') else {
            let message = format!("`--env` is NAME=VALUE, not `{variable}`");
            return Err(LocalError::usage(message).into());
        };
        env.insert(name.to_owned(), value.to_owned());
    }
    let is_limited = asked.memory.is_some() || asked.pids.is_some() || asked.cpu.is_some();
    let resources = is_limited.then(|| v1::ProcessResources {
        memory: asked.memory.unwrap_or_default(),
        pids: asked.pids,
        cpu: asked.cpu,
    });
    let request = v1::StartProcessRequest {
        project: session.project()?.display().to_string(),
        command: command.next().unwrap_or_default(),
        args: command.collect(),
        shell: false,
        cwd: asked.cwd.unwrap_or_default(),
        env,
        name: asked.name.unwrap_or_default(),
        ready_pattern: asked.ready_pattern.unwrap_or_default(),
        ready_port: None,
        ready: probe(asked.ready_port, asked.ready_http.as_deref()),
        ports: asked.ports.iter().map(|port| named_port(port)).collect(),
        healthy: probe(asked.healthy_port, asked.healthy_http.as_deref()).map(|probe| {
            v1::ProcessHealth {
                probe: Some(probe),
                every_ms: asked.healthy_every.map(convert::milliseconds),
                ..v1::ProcessHealth::default()
            }
        }),
        ready_timeout_ms: asked.ready_timeout.map(convert::milliseconds),
        restart: asked.restart,
        max_restarts: asked.max_restarts,
        grace_ms: asked.grace.map(convert::milliseconds),
        isolation: asked.isolation.unwrap_or_default(),
        resources,
        survive: asked.survive,
    };
    let started = session.client().await?.start_process(request).await?;
    let process = started.process.unwrap_or_default();
    let output = &mut session.output;
    match output.format() {
        Format::Json => output.json(&process)?,
        Format::Text => {
            output.line(&process.handle)?;
            output.note(&text::started(&process, started.exists));
            let exit = of_live(&process);
            for line in started.tail.iter().filter(|_| exit != Exit::Done) {
                output.note(&format!("  {}", line.text));
            }
        }
    }
    Ok(of_live(&process))
}

/// Reads `NAME` or `NAME=NUMBER`.
fn named_port(text: &str) -> (String, String) {
    let (name, number) = text.split_once('=').unwrap_or((text, "auto"));
    (name.to_owned(), number.to_owned())
}

/// Makes a probe of a port, or of a request `PORT/PATH`.
fn probe(port: Option<String>, http: Option<&str>) -> Option<v1::ProcessProbe> {
    let http = http.map(|text| {
        let (port, path) = text.split_once('/').unwrap_or((text, ""));
        v1::ProcessHttpProbe {
            path: format!("/{path}"),
            port: port.to_owned(),
            status: Vec::new(),
        }
    });
    (port.is_some() || http.is_some()).then(|| v1::ProcessProbe {
        port: port.unwrap_or_default(),
        http,
    })
}

async fn list(all: bool, session: &mut Session) -> Result<Exit, Failure> {
    let here = session.found_project()?;
    let project = here.map(|found| found.display().to_string());
    let client = session.client().await?;
    let processes = client
        .list_processes(project.unwrap_or_default(), all)
        .await?;
    let output = &mut session.output;
    match output.format() {
        Format::Json => output.json(&processes)?,
        Format::Text if processes.is_empty() => output.note("no process is running"),
        Format::Text => output.line(&text::table(&processes))?,
    }
    Ok(Exit::Done)
}

async fn logs(asked: cli::ProcessLogs, session: &mut Session) -> Result<Exit, Failure> {
    let request = v1::ProcessLogsRequest {
        handle: asked.handle.to_string(),
        tail: asked.tail,
        since: asked.since.unwrap_or_default(),
        follow: asked.follow,
        grep: asked.grep.unwrap_or_default(),
    };
    let mut logs = session.client().await?.process_logs(request).await?;
    let output = &mut session.output;
    let mut reader = output.watch_reader();
    loop {
        let next = tokio::select! {
            next = logs.next() => next?,
            () = reader.gone() => None,
        };
        let Some(page) = next else {
            break;
        };
        if page.gap_bytes > 0 {
            match output.format() {
                Format::Json => {
                    let gap = serde_json::json!({"gap": {"bytes": page.gap_bytes}});
                    output.json_line(&gap)?;
                }
                Format::Text => {
                    output.line(&format!(
                        "[{} bytes before this are no longer kept]",
                        page.gap_bytes
                    ))?;
                }
            }
        }
        for line in &page.lines {
            match output.format() {
                Format::Json => output.json_line(line)?,
                Format::Text => output.line(&line.text)?,
            }
        }
        if output.reader() == Reader::Gone {
            break;
        }
    }
    Ok(Exit::Done)
}

async fn wait(asked: cli::WaitProcess, session: &mut Session) -> Result<Exit, Failure> {
    let condition = match asked.condition {
        Condition::Ready => v1::ProcessCondition::Ready,
        Condition::Exit => v1::ProcessCondition::Exit,
        Condition::Line => v1::ProcessCondition::Line,
    };
    let request = v1::WaitProcessRequest {
        handle: asked.handle.to_string(),
        condition: condition.into(),
        pattern: asked.pattern.unwrap_or_default(),
        since: asked.since.unwrap_or_default(),
        timeout_ms: 0,
    };
    let timeout = asked.timeout.filter(|timeout| !timeout.is_zero());
    let answer = session
        .client()
        .await?
        .wait_process(request, timeout)
        .await?;
    let output = &mut session.output;
    match (output.format(), &answer.line) {
        (Format::Json, Some(line)) => output.json(line)?,
        (Format::Json, None) => output.json(&answer.process)?,
        (Format::Text, Some(line)) => output.line(&line.text)?,
        (Format::Text, None) => {
            let process = answer.process.as_ref();
            output.line(&process.map_or_else(String::new, text::details))?;
        }
    }
    Ok(match (answer.fulfilled, answer.timed_out) {
        (true, _) => Exit::Done,
        (false, true) => Exit::TimedOut,
        (false, false) => Exit::Failed,
    })
}
