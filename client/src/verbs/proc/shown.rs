//! Managed processes for people.

use rye_proto::v1::Process;

use crate::render::screen::in_line;
use crate::render::{elapsed, table as columns};

/// Renders processes as a table.
pub(crate) fn table(processes: &[Process]) -> String {
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
    columns(heads, &rows)
}

fn command(process: &Process) -> String {
    let words = std::iter::once(&process.command).chain(&process.args);
    words.cloned().collect::<Vec<_>>().join(" ")
}

/// Renders the state of a process, a fact a line.
pub(crate) fn details(process: &Process) -> String {
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

/// Renders the result of a start.
pub(crate) fn started(process: &Process, exists: bool) -> String {
    if !process.running {
        let why = &process.reason;
        let why = if why.is_empty() { "it has ended" } else { why };
        return format!("{}: {why}", process.status);
    }
    let state = if process.ready {
        "ready"
    } else {
        "not ready yet"
    };
    let since = if exists {
        "was running already"
    } else {
        "is running"
    };
    format!("{} {since}, and {state}", process.name)
}
