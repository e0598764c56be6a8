//! Arguments of verbs about managed processes.

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use super::run_name::RunName;
use super::values::duration;

/// Verbs about managed processes.
#[derive(Debug, Subcommand)]
pub(crate) enum ProcVerb {
    /// Start a process that keeps running, and print its handle
    ///
    /// Returns when it is ready, has ended, or is not ready in time. A process of the same name that is running is left as it is. Ends with 1
    /// if the process has failed.
    #[command(
        after_help = "Examples:\n  ryectl proc start --name web --ready-port 8137 -- python3 -m http.server 8137\n  ryectl proc start --ready-pattern 'compiled' --restart on-failure -- npm run dev\n  ryectl proc start --port http --ready-http http/health -- python3 -m http.server '{port.http}'"
    )]
    Start(Box<StartProcess>),
    /// List processes that are running: those of the project, or all
    #[command(after_help = "Example:\n  ryectl proc ls --all")]
    Ls {
        /// Those that have ended, too.
        #[arg(long)]
        all: bool,
    },
    /// Show how a process stands
    #[command(after_help = "Example:\n  ryectl proc status web-1767225600-abcdefghij")]
    Status(OneProcess),
    /// Stop a process: TERM, its grace, KILL
    ///
    /// Returns when it is over.
    #[command(after_help = "Example:\n  ryectl proc stop web-1767225600-abcdefghij")]
    Stop(OneProcess),
    /// Stop a process and start it again under its handle
    ///
    /// Returns when it is ready, has failed, or is not ready in time.
    #[command(after_help = "Example:\n  ryectl proc restart web-1767225600-abcdefghij")]
    Restart(OneProcess),
    /// Freeze a process and all that it started: they stand still until `proc thaw`
    ///
    /// Returns when they stand still. Tests of readiness and health pause. Ends with 5 on a host without cgroups for attempts.
    #[command(after_help = "Example:\n  ryectl proc freeze web-1767225600-abcdefghij")]
    Freeze(OneProcess),
    /// Let a frozen process go on
    #[command(after_help = "Example:\n  ryectl proc thaw web-1767225600-abcdefghij")]
    Thaw(OneProcess),
    /// Print what a process has printed
    ///
    /// The last eight to sixteen megabytes are kept. With --json each line has a `cursor`; `--since CURSOR` continues after it, at any later time.
    #[command(
        after_help = "Examples:\n  ryectl proc logs web-1767225600-abcdefghij --tail 50 --follow\n  ryectl proc logs web-1767225600-abcdefghij --grep 'error|warning'"
    )]
    Logs(ProcessLogs),
    /// Wait until a process is ready, has ended, or has printed a line
    ///
    /// Ends with 0 if so, 1 if it has ended without it, 124 if the time is over.
    #[command(
        after_help = "Examples:\n  ryectl proc wait web-1767225600-abcdefghij --for ready --timeout 30\n  ryectl proc wait web-1767225600-abcdefghij --for line 'compiled in [0-9]+'"
    )]
    Wait(WaitProcess),
}

/// One process.
#[derive(Debug, Args)]
pub(crate) struct OneProcess {
    /// The process.
    #[arg(value_name = "HANDLE")]
    pub(crate) handle: RunName,
}

/// A process to start.
#[derive(Debug, Args)]
pub(crate) struct StartProcess {
    /// Its name; by default made of the command.
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// It is ready when a line of its output matches this regular expression.
    #[arg(long, value_name = "RE", allow_hyphen_values = true)]
    pub(crate) ready_pattern: Option<String>,
    /// It is ready when it listens on this TCP port: a number, or the name of a `--port`.
    #[arg(long, value_name = "PORT", conflicts_with = "ready_pattern")]
    pub(crate) ready_port: Option<String>,
    /// It is ready when it answers this request with status 200.
    #[arg(long, value_name = "PORT/PATH", conflicts_with_all = ["ready_pattern", "ready_port"])]
    pub(crate) ready_http: Option<String>,
    /// Give it a port: a free one, or this number. It is `$PORT_NAME` there, and `{port.NAME}` in the command.
    #[arg(long = "port", value_name = "NAME[=NUMBER]")]
    pub(crate) ports: Vec<String>,
    /// Stop it as unhealthy when it does not listen on this port, three times in a row.
    #[arg(long, value_name = "PORT")]
    pub(crate) healthy_port: Option<String>,
    /// Stop it as unhealthy when it does not answer this request with status 200, three times in a row.
    #[arg(long, value_name = "PORT/PATH", conflicts_with = "healthy_port")]
    pub(crate) healthy_http: Option<String>,
    /// Time between two such tests; 10 seconds by default.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) healthy_every: Option<Duration>,
    /// How long to wait until it is ready; 30 seconds by default.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) ready_timeout: Option<Duration>,
    /// Start it again after a failure: `no` or `on-failure`.
    #[arg(long, value_name = "WHEN", default_value = "no")]
    pub(crate) restart: String,
    /// Failures in a row after which it starts again; 5 by default.
    #[arg(long, value_name = "N")]
    pub(crate) max_restarts: Option<u32>,
    /// Time between TERM and KILL when it is stopped; 5 seconds by default.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) grace: Option<Duration>,
    /// What it may reach: `none`, `scoped` or `sandbox`; `scoped` by default.
    #[arg(long, value_name = "LEVEL")]
    pub(crate) isolation: Option<String>,
    /// Most memory of the process and all that it starts, such as 512MiB or 2GiB.
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory: Option<String>,
    /// Most processes and threads.
    #[arg(long, value_name = "N")]
    pub(crate) pids: Option<u64>,
    /// Most processors that it uses at once, such as 1.5.
    #[arg(long, value_name = "N")]
    pub(crate) cpu: Option<f64>,
    /// Keep it running while the daemon is away.
    #[arg(long)]
    pub(crate) survive: bool,
    /// Set a variable.
    #[arg(long = "env", value_name = "NAME=VALUE", allow_hyphen_values = true)]
    pub(crate) env: Vec<String>,
    /// The working directory, in the project.
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<String>,
    /// The program and its arguments.
    #[arg(required = true, last = true, value_name = "CMD")]
    pub(crate) command: Vec<String>,
}

/// What of the output of a process to print.
#[derive(Debug, Args)]
pub(crate) struct ProcessLogs {
    /// The process.
    #[arg(value_name = "HANDLE")]
    pub(crate) handle: RunName,
    /// Only so many of the last lines.
    #[arg(long, value_name = "N", conflicts_with = "since")]
    pub(crate) tail: Option<u32>,
    /// Stay until the process is over.
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// Only what was printed after this position.
    #[arg(long, value_name = "CURSOR")]
    pub(crate) since: Option<String>,
    /// Only lines that match this regular expression, at most 1,000.
    #[arg(long, value_name = "RE", allow_hyphen_values = true)]
    pub(crate) grep: Option<String>,
}

/// A process to wait for.
#[derive(Debug, Args)]
pub(crate) struct WaitProcess {
    /// The process.
    #[arg(value_name = "HANDLE")]
    pub(crate) handle: RunName,
    /// What to wait for.
    #[arg(long = "for", value_name = "WHAT")]
    pub(crate) condition: Condition,
    /// For a line: a regular expression.
    #[arg(value_name = "RE", required_if_eq("condition", "line"))]
    pub(crate) pattern: Option<String>,
    /// For a line: the position after which it counts; by default from now on.
    #[arg(long, value_name = "CURSOR")]
    pub(crate) since: Option<String>,
    /// Longest wait: `90`, `90s`, `1h30m`; 0 or no timeout waits without end.
    #[arg(long, value_name = "TIME", value_parser = duration, allow_negative_numbers = true)]
    pub(crate) timeout: Option<Duration>,
}

/// What to wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Condition {
    /// It is ready.
    Ready,
    /// It has ended.
    Exit,
    /// It has printed a line that matches.
    Line,
}
