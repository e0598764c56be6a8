//! Managed processes for people.

use rye_proto::v1::{Process, ProcessUnready};

use crate::render::screen::in_line;
use crate::render::{self, elapsed};

/// Renders processes as a table.
pub(super) fn table(processes: &[Process]) -> String {
    let heads = [
        "HANDLE", "STATUS", "READY", "PID", "UPTIME", "RESTARTS", "COMMAND",
    ];
    let row = |process: &Process| {
        [
            process.handle.clone(),
            process.status.clone(),
            if process.ready { "yes" } else { "no" }.to_owned(),
            process
                .pid
                .map_or_else(|| "-".to_owned(), |pid| pid.to_string()),
            process.uptime_ms.map_or_else(|| "-".to_owned(), elapsed),
            process.restarts.to_string(),
            in_line(&command(process)),
        ]
    };
    let rows: Vec<_> = processes.iter().map(row).collect();
    render::table(heads, &rows)
}

fn command(process: &Process) -> String {
    let words = std::iter::once(&process.command).chain(&process.args);
    words.cloned().collect::<Vec<_>>().join(" ")
}

/// Renders the state of a process, a fact a line.
pub(super) fn details(process: &Process) -> String {
    let mut lines = vec![
        format!("handle    {}", process.handle),
        format!("status    {}", process.status),
    ];
    let mut fact = |name: &str, value: Option<String>| {
        lines.extend(value.map(|value| format!("{name:<10}{}", in_line(&value))));
    };
    fact(
        "ready",
        process
            .running
            .then(|| if process.ready { "yes" } else { "no" }.to_owned()),
    );
    fact("not ready", process.why.as_ref().map(why));
    let mut ports: Vec<_> = process.ports.iter().collect();
    ports.sort_unstable();
    let ports = ports
        .into_iter()
        .map(|(name, port)| format!("{name} {port}"));
    let ports = ports.collect::<Vec<_>>().join(", ");
    fact("ports", Some(ports).filter(|ports| !ports.is_empty()));
    let listening = process.listening.iter();
    let listening = listening.map(|one| format!("{}:{}", one.addr, one.port));
    let listening = listening.collect::<Vec<_>>().join(", ");
    fact(
        "listens",
        Some(listening).filter(|listening| !listening.is_empty()),
    );
    fact(
        "healthy",
        process
            .healthy
            .map(|healthy| if healthy { "yes" } else { "no" }.to_owned()),
    );
    fact(
        "memory",
        process
            .memory_bytes
            .map(|bytes| format!("{} MiB", bytes.div_ceil(1 << 20))),
    );
    fact("cpu", process.cpu_ms.map(elapsed));
    fact("pid", process.pid.map(|pid| pid.to_string()));
    fact("uptime", process.uptime_ms.map(elapsed));
    fact("exit code", process.exit_code.map(|code| code.to_string()));
    fact("signal", process.signal.map(|signal| signal.to_string()));
    fact(
        "restarts",
        (process.restarts > 0).then(|| process.restarts.to_string()),
    );
    fact(
        "owner",
        Some(process.owner_id.clone()).filter(|owner| !owner.is_empty()),
    );
    fact(
        "reason",
        Some(process.reason.clone()).filter(|reason| !reason.is_empty()),
    );
    fact("command", Some(command(process)));
    lines.join("\n")
}

/// Renders the reason for which a process is not ready.
fn why(why: &ProcessUnready) -> String {
    let port = why.port.map(|port| format!(" {port}"));
    let owner = why.pid.map(|pid| format!(": {} (pid {pid})", why.comm));
    let status = why.status.map(|status| format!(": {status}"));
    let error = Some(&why.error).filter(|error| !error.is_empty());
    let error = error.map(|error| format!(": {error}"));
    let more = [port, owner, status, error].into_iter().flatten();
    std::iter::once(why.code.replace('_', " "))
        .chain(more)
        .collect()
}

/// Renders the result of a start.
pub(super) fn started(process: &Process, exists: bool) -> String {
    if !process.running {
        let why = &process.reason;
        let why = if why.is_empty() { "it has ended" } else { why };
        return format!("{}: {why}", process.status);
    }
    let state = match &process.why {
        _ if process.ready => "ready".to_owned(),
        None => "not ready yet".to_owned(),
        Some(reason) => format!("not ready: {}", why(reason)),
    };
    let since = if exists {
        "was running already"
    } else {
        "is running"
    };
    format!("{} {since}, and {state}", process.name)
}
