//! The arguments of `ryectl`. Parses and does nothing else; the doc comments are the manual.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::FalseyValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum};
use rye_core::id::{ItemId, ItemKind, ItemRef, RunId};
use rye_core::model::{self, Status};

use crate::input::{Input, Source};
use crate::output::Format;

/// Runs signed tools and state graphs under the Rye daemon.
///
/// The daemon is started in the background when it is needed. Data goes to stdout, everything else to stderr.
#[derive(Debug, Parser)]
#[command(
    name = "ryectl",
    version,
    disable_help_subcommand = true,
    after_help = "Example:\n  ryectl init && ryectl run sample/hello -i name=Ada"
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// Options of every verb.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Options of every verb")]
pub(crate) struct Global {
    /// Use only the daemon on this socket.
    #[arg(
        long,
        global = true,
        value_name = "PATH",
        env = "RYE_SOCKET",
        hide_env_values = true
    )]
    pub(crate) socket: Option<PathBuf>,
    /// Use the daemon with this state directory (default: ~/.local/state/rye).
    #[arg(
        long,
        global = true,
        value_name = "DIR",
        env = "RYE_STATE_DIR",
        hide_env_values = true
    )]
    pub(crate) state_dir: Option<PathBuf>,
    /// The project (default: the nearest parent directory with a `.ai`, else the current directory).
    #[arg(
        long,
        global = true,
        value_name = "DIR",
        env = "RYE_PROJECT",
        hide_env_values = true
    )]
    pub(crate) project: Option<PathBuf>,
    /// Fail instead of starting a daemon when none runs.
    #[arg(long, global = true, env = "RYE_NO_AUTOSTART", hide_env_values = true, value_parser = FalseyValueParser::new())]
    pub(crate) no_autostart: bool,
    /// Print JSON: one document, or one object a line for streams.
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

impl Global {
    /// In what form data is printed.
    pub(crate) const fn format(&self) -> Format {
        if self.json {
            Format::Json
        } else {
            Format::Text
        }
    }
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Make a `.ai` with a sample graph and tools, signed with your key
    ///
    /// Makes your key first if you have none. Files that are there already are left alone.
    #[command(after_help = "Example:\n  ryectl init --project ~/code/app")]
    Init,
    /// Make, show and trust signing keys
    #[command(subcommand, after_help = "Example:\n  ryectl key trust colleague.pem")]
    Key(KeyVerb),
    /// Sign items with your key
    ///
    /// A target is an item (`tool:a/b`), a pattern of items (`tool:a/*`), or a file.
    #[command(
        after_help = "Examples:\n  ryectl sign tool:sample/hello\n  ryectl sign 'tool:sample/*' .ai/knowledge/notes.md"
    )]
    Sign(Targets),
    /// Tell whether items may run: who signed them, and whether anything was changed since
    ///
    /// Ends with 1 if any item is unsigned, modified, untrusted or signed only in part.
    #[command(
        after_help = "Examples:\n  ryectl verify tool:sample/hello\n  ryectl verify .ai/tools/sample/*.py --json"
    )]
    Verify(Targets),
    /// Run a graph or a tool, and stay with it until it ends
    ///
    /// Shows a line per step on stderr and ends with the result. On a terminal the result is made for reading;
    /// piped, stdout holds only the result as JSON. Ctrl-C leaves; the run goes on.
    #[command(
        after_help = "Examples:\n  ryectl run rye/examples/project-stats -i directory=.\n  ryectl run app/deploy -i replicas:=3 --input @base.json --detach"
    )]
    Run(Run),
    /// Verbs about graphs
    #[command(
        subcommand,
        after_help = "Example:\n  ryectl graph run rye/examples/project-stats -i directory=."
    )]
    Graph(GraphVerb),
    /// Run one item and print what it answers
    ///
    /// With --json the whole envelope is printed. Ends with 1 if the item failed.
    #[command(
        after_help = "Example:\n  ryectl execute tool rye/core/echo --params '{\"text\": \"hi\"}'"
    )]
    Execute(Execute),
    /// List runs, newest first
    #[command(
        after_help = "Examples:\n  ryectl ps\n  ryectl ps --status error --status killed --json"
    )]
    Ps(Ps),
    /// Show the record of a run
    #[command(after_help = "Example:\n  ryectl get app-deploy-1767225600-abcdefghij --json")]
    Get(OneRun),
    /// List the steps a graph run has taken
    #[command(after_help = "Example:\n  ryectl steps app-deploy-1767225600-abcdefghij")]
    Steps(OneRun),
    /// Print the current or final state of a graph run, as JSON
    #[command(
        after_help = "Example:\n  ryectl state app-deploy-1767225600-abcdefghij | jq .inputs"
    )]
    State(OneRun),
    /// Print what has happened in a run
    #[command(
        after_help = "Examples:\n  ryectl events app-deploy-1767225600-abcdefghij --follow\n  ryectl events app-deploy-1767225600-abcdefghij --json --from CURSOR"
    )]
    Events(Events),
    /// Wait until runs have ended or parked
    ///
    /// Ends with 0 if all are completed, 1 if one ended in another way, 75 if one is parked, 124 if the time is over.
    #[command(after_help = "Example:\n  ryectl wait app-deploy-1767225600-abcdefghij --timeout 60")]
    Wait(Wait),
    /// Ask runs to stop
    ///
    /// Returns when the request is accepted. A step in flight gets a grace to finish.
    #[command(after_help = "Example:\n  ryectl cancel app-deploy-1767225600-abcdefghij")]
    Cancel(Runs),
    /// End runs by force
    ///
    /// Returns when they are over. With --json, prints one receipt a line.
    #[command(after_help = "Example:\n  ryectl kill app-deploy-1767225600-abcdefghij --grace 0.5")]
    Kill(Kill),
    /// Look after the daemon
    #[command(subcommand, after_help = "Example:\n  ryectl daemon status")]
    Daemon(DaemonVerb),
}

/// Verbs about keys.
#[derive(Debug, Subcommand)]
pub(crate) enum KeyVerb {
    /// Make your signing key
    #[command(after_help = "Example:\n  ryectl key generate")]
    Generate,
    /// Show your signing key's public half
    #[command(after_help = "Example:\n  ryectl key show > me.pem")]
    Show,
    /// List the keys that are trusted
    #[command(after_help = "Example:\n  ryectl key list --json")]
    List,
    /// Trust a key: items signed with it may run
    ///
    /// Your word counts more than the file's own signature.
    #[command(after_help = "Example:\n  ryectl key trust colleague.pem")]
    Trust {
        /// A public key as PEM, or a trusted-key TOML.
        file: PathBuf,
    },
    /// Take a key out of your trusted keys
    #[command(after_help = "Example:\n  ryectl key untrust 0123456789abcdef")]
    Untrust {
        /// Fingerprint of the key.
        fingerprint: String,
    },
}

/// Verbs about graphs.
#[derive(Debug, Subcommand)]
pub(crate) enum GraphVerb {
    /// Run a graph; the same as `ryectl run`
    #[command(
        after_help = "Example:\n  ryectl graph run rye/examples/project-stats -i directory=."
    )]
    Run(Run),
}

/// Verbs about the daemon.
#[derive(Debug, Subcommand)]
pub(crate) enum DaemonVerb {
    /// Tell whether the daemon runs; ends with 69 if not
    #[command(after_help = "Example:\n  ryectl daemon status --json")]
    Status,
    /// Start the daemon in the background if it does not run
    #[command(after_help = "Example:\n  ryectl daemon start --state-dir /var/tmp/rye")]
    Start,
    /// Stop the daemon: it parks or ends what runs, then exits
    #[command(after_help = "Example:\n  ryectl daemon stop")]
    Stop,
    /// Show what the daemon is and what is in force
    #[command(after_help = "Example:\n  ryectl daemon info --json")]
    Info,
}

/// Items to sign or verify.
#[derive(Debug, Args)]
pub(crate) struct Targets {
    /// An item as TYPE:ID, a pattern of items, or a path.
    #[arg(required = true, value_name = "TARGET")]
    pub(crate) targets: Vec<String>,
}

/// A run to start.
#[derive(Debug, Args)]
pub(crate) struct Run {
    /// The graph or tool.
    #[arg(value_name = "ID", value_parser = tool)]
    pub(crate) item: ItemRef,
    /// An input: text takes the type the graph declares, `:=` gives JSON.
    #[arg(short = 'i', value_name = "KEY=VALUE | KEY:=JSON")]
    pub(crate) inputs: Vec<Input>,
    /// All inputs as a JSON object; `-` reads stdin.
    #[arg(long, value_name = "JSON|@FILE|-")]
    pub(crate) input: Option<Source>,
    /// Let the run do only what matches this capability; may be given several times.
    #[arg(long = "cap", value_name = "CAP")]
    pub(crate) capabilities: Vec<String>,
    /// Limit the run: `steps=N`.
    #[arg(long = "limit", value_name = "KEY=N", value_parser = limit)]
    pub(crate) limits: Vec<Limit>,
    /// When a step counts as done.
    #[arg(long, value_name = "HOW")]
    pub(crate) durability: Option<Durability>,
    /// Print the run's id and leave it to itself.
    #[arg(long, visible_alias = "async", conflicts_with = "cancel_on_interrupt")]
    pub(crate) detach: bool,
    /// Start at most one run with this key: a second start finds the first.
    #[arg(long, value_name = "KEY")]
    pub(crate) idempotency_key: Option<String>,
    /// Ctrl-C cancels the run instead of leaving it.
    #[arg(long)]
    pub(crate) cancel_on_interrupt: bool,
    /// Show no line per step.
    #[arg(long, env = "RYE_GRAPH_QUIET", hide_env_values = true, value_parser = FalseyValueParser::new())]
    pub(crate) quiet: bool,
}

/// An item to execute.
#[derive(Debug, Args)]
pub(crate) struct Execute {
    /// tool, directive or knowledge.
    #[arg(value_name = "TYPE", value_parser = executable)]
    pub(crate) kind: ItemKind,
    /// The item.
    #[arg(value_name = "ID", value_parser = item_id)]
    pub(crate) id: ItemId,
    /// Parameters as a JSON object; `-` reads stdin.
    #[arg(long, value_name = "JSON|@FILE|-")]
    pub(crate) params: Option<Source>,
    /// Also tell which files were resolved, what they shadow, and who signed them.
    #[arg(long)]
    pub(crate) trace: bool,
}

/// Which runs to list.
#[derive(Debug, Args)]
pub(crate) struct Ps {
    /// Also runs that have ended.
    #[arg(long)]
    pub(crate) all: bool,
    /// Only runs with this status; may be given several times.
    #[arg(long = "status", value_name = "STATUS", value_parser = status, conflicts_with = "all")]
    pub(crate) statuses: Vec<Status>,
}

/// One run.
#[derive(Debug, Args)]
pub(crate) struct OneRun {
    /// The run.
    #[arg(value_name = "RUN")]
    pub(crate) run: RunId,
}

/// Several runs.
#[derive(Debug, Args)]
pub(crate) struct Runs {
    /// The runs.
    #[arg(required = true, value_name = "RUN")]
    pub(crate) runs: Vec<RunId>,
}

/// Events of a run.
#[derive(Debug, Args)]
pub(crate) struct Events {
    /// The run.
    #[arg(value_name = "RUN")]
    pub(crate) run: RunId,
    /// Stay until the run has ended.
    #[arg(long)]
    pub(crate) follow: bool,
    /// Begin behind this position: the `cursor` of an event.
    #[arg(
        long,
        value_name = "CURSOR",
        default_value = "",
        hide_default_value = true
    )]
    pub(crate) from: String,
}

/// Runs to wait for.
#[derive(Debug, Args)]
pub(crate) struct Wait {
    #[command(flatten)]
    pub(crate) runs: Runs,
    /// Longest wait in seconds; 0 or no timeout waits without end.
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub(crate) timeout: Option<Duration>,
}

/// Runs to end.
#[derive(Debug, Args)]
pub(crate) struct Kill {
    #[command(flatten)]
    pub(crate) runs: Runs,
    /// Seconds between TERM and KILL.
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub(crate) grace: Option<Duration>,
}

/// A limit of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limit {
    /// Most steps a graph run may take.
    Steps(u32),
}

/// When a step counts as done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Durability {
    /// When it is on disk.
    Strict,
    /// When it is written; a power cut may take back the last ones.
    Relaxed,
}

impl From<Durability> for model::Durability {
    fn from(durability: Durability) -> Self {
        match durability {
            Durability::Strict => Self::Strict,
            Durability::Relaxed => Self::Relaxed,
        }
    }
}

fn tool(text: &str) -> Result<ItemRef, String> {
    ItemRef::parse(text, ItemKind::Tool).map_err(|error| error.to_string())
}

fn item_id(text: &str) -> Result<ItemId, String> {
    ItemId::new(text).map_err(|error| error.to_string())
}

fn executable(text: &str) -> Result<ItemKind, String> {
    match text.parse() {
        Ok(kind @ (ItemKind::Tool | ItemKind::Directive | ItemKind::Knowledge)) => Ok(kind),
        Ok(ItemKind::Config) => Err("config is not executed".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

fn status(text: &str) -> Result<Status, String> {
    Status::ALL
        .into_iter()
        .find(|status| status.as_str() == text)
        .ok_or_else(|| format!("use one of {}", Status::ALL.map(Status::as_str).join(", ")))
}

fn limit(text: &str) -> Result<Limit, String> {
    match text.split_once('=') {
        Some(("steps", number)) => match number.parse() {
            Ok(steps) if steps > 0 => Ok(Limit::Steps(steps)),
            Ok(_) | Err(_) => Err(format!("`{number}` is not a number of steps")),
        },
        Some((key, _)) => Err(format!("there is no limit `{key}`; use steps=N")),
        None => Err("expected steps=N".to_owned()),
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    text.parse()
        .ok()
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| "expected a number of seconds, such as 30 or 0.5".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    fn parse(arguments: &[&str]) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(std::iter::once("ryectl").chain(arguments.iter().copied()))
    }

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_verb_has_help_with_an_example() {
        fn visit(command: &clap::Command, path: &str) {
            let path = format!("{path} {}", command.get_name());
            let help = command
                .get_after_help()
                .map(ToString::to_string)
                .unwrap_or_default();
            assert!(help.contains("ryectl "), "no example in the help of{path}");
            assert!(command.get_about().is_some(), "nothing about{path}");
            for verb in command.get_subcommands() {
                visit(verb, &path);
            }
        }
        visit(&Cli::command(), "");
    }

    #[test]
    fn run_takes_everything_that_is_promised() {
        let line = "graph run tool:a/b -i k=v -i j:=[1] --input - --cap rye.execute.tool.* --limit steps=5 \
                    --durability relaxed --async --idempotency-key K --quiet --json --socket /s --state-dir d \
                    --project p --no-autostart";
        let cli = parse(&line.split_whitespace().collect::<Vec<_>>()).unwrap();
        let Verb::Graph(GraphVerb::Run(run)) = cli.verb else {
            panic!("not a run");
        };
        assert_eq!(run.item.to_string(), "tool:a/b");
        assert_eq!((run.inputs.len(), run.input), (2, Some(Source::Stdin)));
        assert_eq!(run.limits, [Limit::Steps(5)]);
        assert_eq!(run.durability, Some(Durability::Relaxed));
        assert!(run.detach && run.quiet && !run.cancel_on_interrupt);
        assert!(cli.global.json && cli.global.no_autostart);
    }

    #[test]
    fn malformed_arguments_are_usage_errors() {
        for line in [
            "",
            "fly",
            "run",
            "run ../x",
            "run a --limit turns=3",
            "run a --limit steps=0",
            "run a -i novalue",
            "run a --durability maybe",
            "execute config a",
            "ps --status done",
            "ps --all --status error",
            "wait",
            "wait r --timeout soon",
            "wait r --timeout -1",
            "kill r --grace NaN",
            "get ../r",
        ] {
            let error = parse(&line.split_whitespace().collect::<Vec<_>>()).unwrap_err();
            assert!(error.use_stderr(), "{line}");
        }
    }
}
