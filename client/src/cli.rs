//! The arguments of `ryectl`. Parses and does nothing else; the doc comments are the manual.

mod approvals;
mod budget;
mod capability;
mod daemon;
mod ending;
mod events;
mod graph;
mod help;
mod item_name;
mod items;
mod lock;
mod logs;
mod mcp;
mod named;
mod new;
mod ps;
mod run_name;
mod test;
mod thread;
mod transcript;
mod values;

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::FalseyValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum};
use rye_core::id::ItemKind;

pub(crate) use self::approvals::{Approvals, Approve, Deny};
pub(crate) use self::budget::{BudgetVerb, RaiseBudget};
pub(crate) use self::capability::{Can, Get};
pub(crate) use self::daemon::{DaemonLogs, DaemonVerb};
pub(crate) use self::ending::{Kill, Prune, Rm};
pub(crate) use self::events::Events;
pub(crate) use self::graph::{Attach, Diagram, GraphVerb, Run, Show, Staying, Step, Watch};
pub(crate) use self::help::{command, help, usage};
pub(crate) use self::item_name::ItemName;
use self::item_name::any_name;
pub(crate) use self::items::{Completions, Ls, Man, ShowItem};
pub(crate) use self::lock::LockVerb;
pub(crate) use self::logs::Logs;
pub(crate) use self::mcp::{Import, McpVerb};
pub(crate) use self::new::NewVerb;
pub(crate) use self::ps::Ps;
pub(crate) use self::run_name::RunName;
pub(crate) use self::test::Test;
pub(crate) use self::thread::{Say, ThreadShow, ThreadVerb};
pub(crate) use self::transcript::{Transcript, TranscriptSource};
pub(crate) use self::values::{Answer, Limit};
use self::values::{duration, executable};
use crate::input::Source;
use crate::output::Format;

/// Runs signed tools and state graphs under the Rye daemon.
///
/// The daemon is started in the background when it is needed. Data goes to stdout, everything else to stderr.
#[derive(Debug, Parser)]
#[command(
    name = "ryectl",
    version,
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
    /// A target is an item (`a/b`, `tool:a/b`), a pattern of items (`tool:a/*`), or a file.
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
    /// Lock tools as they are: a tool that has a lock runs only as long as all of it is the same
    #[command(subcommand, after_help = "Example:\n  ryectl lock create team/report")]
    Lock(LockVerb),
    /// Test tools: run the cases in `*.test.yaml` files, each in a project of its own
    ///
    /// A case calls the tool of its file and says what is to come of it. It runs in a temporary directory with a copy of the project's items,
    /// so that neither the project nor another case is touched. Ends with 1 if a case failed. Tests are not signed: running them is running
    /// what they say.
    #[command(
        after_help = "Examples:\n  ryectl test\n  ryectl test sample/greet --filter 'by name'\n  ryectl test .ai/tools/team --jobs 8 --junit results.xml"
    )]
    Test(Test),
    /// Take over the tools of a server of the Model Context Protocol
    #[command(
        subcommand,
        after_help = "Example:\n  ryectl mcp import mcp/servers/docs --yes"
    )]
    Mcp(McpVerb),
    /// Run a graph or a tool, and stay with it until it ends
    ///
    /// Shows a line per step on stderr and ends with the result. On a terminal the result is made for reading;
    /// piped, stdout holds only the result as JSON. Ctrl-C leaves; the run continues.
    #[command(
        after_help = "Examples:\n  ryectl run rye/examples/project-stats -i directory=.\n  ryectl run app/deploy -i replicas:=3 --input @base.json --detach\n  ryectl run app/deploy --resume app-deploy-1767225600-abcdefghij"
    )]
    Run(Run),
    /// Run, check and draw graphs
    #[command(
        subcommand,
        after_help = "Example:\n  ryectl graph validate rye/examples/project-stats"
    )]
    Graph(GraphVerb),
    /// Run and check directives, and talk to their threads
    #[command(
        subcommand,
        after_help = "Example:\n  ryectl thread run rye/examples/summarize_file -i path=README.md"
    )]
    Thread(ThreadVerb),
    /// List the models that threads may have, with what they cost and what is missing to use them
    ///
    /// Prices are US dollars for a million tokens. A provider whose prices were looked up more than 90 days ago gets a warning.
    #[command(after_help = "Example:\n  ryectl models --json")]
    Models,
    /// Write an item to begin with: commented, valid, not signed yet
    ///
    /// Never writes over a file.
    #[command(
        subcommand,
        after_help = "Example:\n  ryectl new directive team/review"
    )]
    New(NewVerb),
    /// Print the JSON Schema of a type of file, for editors
    ///
    /// An editor that knows it completes keys, shows what they are for, and marks what is wrong. `graph validate` looks further.
    #[command(
        after_help = "Example:\n  ryectl schema graph > .ai/graph.schema.json    # and in a graph below .ai/tools/team:\n  # yaml-language-server: $schema=../../graph.schema.json"
    )]
    Schema {
        /// What files: graphs, tools that are written as YAML, or cases that test them.
        #[arg(value_name = "FILES", value_enum)]
        kind: FileKind,
    },
    /// Run one item and print what it answers
    ///
    /// With --json the whole envelope is printed. Ends with 1 if the item failed.
    #[command(
        after_help = "Example:\n  ryectl execute tool rye/core/echo --params '{\"text\": \"hi\"}'"
    )]
    Execute(Execute),
    /// List items: what there is to run, where it comes from, and whether it may be used
    ///
    /// Without a type tools and directives are listed, as this project sees them.
    #[command(
        after_help = "Examples:\n  ryectl ls\n  ryectl ls tool 'app/*'\n  ryectl ls knowledge --space project"
    )]
    Ls(Ls),
    /// Show an item: what it does and takes, what it may do, who signed it, and what it shadows
    #[command(
        after_help = "Examples:\n  ryectl show sample/hello\n  ryectl show .ai/tools/sample/hello.yaml --json"
    )]
    Show(ShowItem),
    /// Print an item, verified, or look for items
    ///
    /// An item is printed as its file is. With --query items are listed, the best first; each is verified when it is listed.
    #[command(
        after_help = "Examples:\n  ryectl fetch rye/bash\n  ryectl fetch knowledge:team/rules --json\n  ryectl fetch --query 'rate limit* NOT test' --scope tool.team"
    )]
    Fetch(Fetch),
    /// List runs, newest first
    #[command(
        after_help = "Examples:\n  ryectl ps\n  ryectl ps --all --tree\n  ryectl ps --status error --status killed --json"
    )]
    Ps(Ps),
    /// Show the record of a run, or what it may do
    #[command(
        after_help = "Examples:\n  ryectl get app-deploy-1767225600-abcdefghij --json\n  ryectl get app-deploy-1767225600-abcdefghij --capabilities"
    )]
    Get(Get),
    /// Tell whether a run may do something
    ///
    /// An action is allowed if every layer of capabilities of the run has a pattern for it. Ends with 4 if one has none, and names
    /// that one. Whether the item exists is not asked.
    #[command(
        after_help = "Examples:\n  ryectl can app-deploy-1767225600-abcdefghij tool:rye/bash\n  ryectl can app-deploy-1767225600-abcdefghij rye.fetch.knowledge.app.notes --json"
    )]
    Can(Can),
    /// List the steps a graph run has taken
    #[command(after_help = "Example:\n  ryectl steps app-deploy-1767225600-abcdefghij")]
    Steps(OneRun),
    /// Print the current or final state of a graph run, as JSON
    #[command(
        after_help = "Example:\n  ryectl state app-deploy-1767225600-abcdefghij | jq .inputs"
    )]
    State(OneRun),
    /// Watch a run, from its beginning, until it ends
    ///
    /// Shows what `run` shows: a line per step, or what the model of a thread says; then the result. Ctrl-C leaves; the run continues.
    #[command(after_help = "Example:\n  ryectl attach app-deploy-1767225600-abcdefghij")]
    Attach(Watch),
    /// Print what the tools of a run print, as it comes
    ///
    /// Both streams, in the order in which they were read. The last eight to sixteen megabytes are kept.
    #[command(
        after_help = "Examples:\n  ryectl logs app-deploy-1767225600-abcdefghij -f\n  ryectl logs app-deploy-1767225600-abcdefghij --node build --item 3 --tail 50"
    )]
    Logs(Logs),
    /// Print what has happened in a run, or what happens in several
    ///
    /// Of several runs each line begins with the run. The `cursor` of an event continues after it, at any later time.
    #[command(
        after_help = "Examples:\n  ryectl events app-deploy-1767225600-abcdefghij --follow\n  ryectl events app-review-1767225600-abcdefghij --follow --deltas\n  ryectl events app-deploy-1767225600-abcdefghij --json --from CURSOR\n  ryectl events app-deploy-1767225600-abcdefghij --tree --follow\n  ryectl events --all --project ~/code/app --follow --json"
    )]
    Events(Events),
    /// Print or check the transcript of a run: all that happened in it, whole
    ///
    /// Of a thread that is what its model was told, thought and said, and its calls of tools with what they answered. With --json
    /// its lines are printed as they were written to the file. They come from the daemon, so the file may be gone. With --verify the file is
    /// compared as far as it goes.
    ///
    /// `--verify FILE` checks a file without a daemon: each byte of it, its signatures, and that its last event ends the run. It ends with 0
    /// if all is what was written, else with 1: a file of a run that has not ended, too.
    #[command(
        after_help = "Examples:\n  ryectl transcript app-review-1767225600-abcdefghij --tail 20\n  ryectl transcript app-review-1767225600-abcdefghij --verify --tail 0\n  ryectl transcript --verify ./transcript.jsonl --key node.pem"
    )]
    Transcript(Transcript),
    /// Wait until runs have ended or are suspended
    ///
    /// Ends with 0 if all are completed, 1 if one ended in another way, 75 if one is suspended, 124 if the time is over.
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
    /// Remove runs that have ended, with all runs below them and all that continue them
    ///
    /// Prints what was removed: their records, events and files. Ends with 5 if one of them has not ended, or is needed by a run that has not.
    /// A file of history is written again once it is mostly removed runs; with --purge that is done at once.
    #[command(after_help = "Example:\n  ryectl rm app-deploy-1767225600-abcdefghij")]
    Rm(Rm),
    /// Remove trees of runs that have ended: those of the project, or all
    ///
    /// A tree is a run with all runs below it and all that continue them. Prints what was removed, or with --dry-run what would be.
    #[command(
        after_help = "Examples:\n  ryectl prune --older-than 30d --keep 100\n  ryectl prune --status error --dry-run"
    )]
    Prune(Prune),
    /// Suspend a run before its next attempt
    ///
    /// Returns when it is suspended: a step in flight is done first. Ends with 5 if the run has ended meanwhile.
    #[command(after_help = "Example:\n  ryectl suspend app-deploy-1767225600-abcdefghij")]
    Suspend(OneRun),
    /// Resume a suspended run, or continue one that failed, and stay with it until it ends
    ///
    /// A suspended run keeps its id. One that ended without success is continued by a new run with its state and inputs.
    #[command(
        after_help = "Examples:\n  ryectl resume app-deploy-1767225600-abcdefghij --raise steps=200\n  ryectl resume app-deploy-1767225600-abcdefghij --uncertain charge=done"
    )]
    Resume(Resume),
    /// List what runs ask people and nobody has answered
    #[command(after_help = "Example:\n  ryectl approvals --json")]
    Approvals(Approvals),
    /// Approve what a run asks: it continues
    ///
    /// Whoever may act on a run may answer it; a run never may. The answer is checked by the schema of the question.
    #[command(
        after_help = "Examples:\n  ryectl approve app-deploy-1767225600-abcdefghij --comment 'looks good'\n  ryectl approve app-deploy-1767225600-abcdefghij a12 --answer '{\"replicas\": 3}'"
    )]
    Approve(Approve),
    /// Deny what a run asks: its node fails
    #[command(
        after_help = "Example:\n  ryectl deny app-deploy-1767225600-abcdefghij --comment 'not on a Friday'"
    )]
    Deny(Deny),
    /// Show a run and all its child runs
    #[command(after_help = "Example:\n  ryectl tree app-deploy-1767225600-abcdefghij")]
    Tree(OneRun),
    /// Show the runs that a run continues and is continued by, oldest first
    #[command(after_help = "Example:\n  ryectl chain app-deploy-1767225600-abcdefghij --json")]
    Chain(OneRun),
    /// Show and raise what runs may spend
    #[command(
        subcommand,
        after_help = "Example:\n  ryectl budget show app-deploy-1767225600-abcdefghij"
    )]
    Budget(BudgetVerb),
    /// Look into the cache of node results
    #[command(subcommand, after_help = "Example:\n  ryectl cache ls")]
    Cache(CacheVerb),
    /// Look at what runs leave behind in a project
    #[command(
        subcommand,
        after_help = "Example:\n  ryectl objects get 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
    )]
    Objects(ObjectsVerb),
    /// Print completions of a shell
    #[command(
        after_help = "Example:\n  ryectl completions bash > ~/.local/share/bash-completion/completions/ryectl"
    )]
    Completions(Completions),
    /// Write the manual pages, one for each verb
    #[command(
        after_help = "Example:\n  ryectl man ~/.local/share/man/man1    # then: man ryectl-run"
    )]
    Man(Man),
    /// Look after the daemon
    #[command(subcommand, after_help = "Example:\n  ryectl daemon status")]
    Daemon(DaemonVerb),
}

/// Files that have a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum FileKind {
    /// State graphs.
    Graph,
    /// Tools that are written as YAML.
    Tool,
    /// Cases of tools and graphs, `*.test.yaml`.
    Test,
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
    #[command(after_help = "Example:\n  ryectl key trust colleague.pem --owner ana")]
    Trust {
        /// A public key as PEM, or a trusted-key TOML.
        file: PathBuf,
        /// Whose key it is; without it what the file says, else `local`.
        #[arg(long, value_name = "NAME")]
        owner: Option<String>,
        /// Let its signatures count also where they leave out parts of a file.
        #[arg(long)]
        accept_partial: bool,
    },
    /// Take a key out of your trusted keys
    #[command(after_help = "Example:\n  ryectl key untrust 0123456789abcdef")]
    Untrust {
        /// Fingerprint of the key.
        fingerprint: String,
    },
}

/// What to fetch.
#[derive(Debug, Args)]
pub(crate) struct Fetch {
    /// The item; without a type it is looked for as a tool, a directive and knowledge.
    #[arg(
        value_name = "ITEM",
        value_parser = any_name,
        required_unless_present = "query",
        conflicts_with = "query"
    )]
    pub(crate) item: Option<ItemName>,
    /// Words, joined by AND, OR and NOT, with parentheses, "phrases" and beginnings like `auth*`.
    #[arg(long, value_name = "WORDS")]
    pub(crate) query: Option<String>,
    /// A type and a folder to look in, such as `tool.team`.
    #[arg(long, requires = "query")]
    pub(crate) scope: Option<String>,
    /// Most results.
    #[arg(long, value_name = "N", requires = "query")]
    pub(crate) limit: Option<u32>,
    /// How many results to pass over.
    #[arg(long, value_name = "N", requires = "query")]
    pub(crate) offset: Option<u32>,
    /// The space to look in: project, user or system.
    #[arg(long, value_name = "SPACE")]
    pub(crate) source: Option<String>,
    /// Copy the item to this space, project or user, signature and all.
    #[arg(long, value_name = "SPACE", requires = "item")]
    pub(crate) copy_to: Option<String>,
    /// Let the copy take the place of what is there.
    #[arg(long, requires = "copy_to")]
    pub(crate) replace: bool,
}

/// Verbs about the cache of node results of the project.
#[derive(Debug, Subcommand)]
pub(crate) enum CacheVerb {
    /// List what it holds
    #[command(after_help = "Example:\n  ryectl cache ls --json")]
    Ls,
    /// Drop entries, so that their nodes run again
    #[command(after_help = "Examples:\n  ryectl cache drop 9f86d081\n  ryectl cache drop --all")]
    Drop(Drop),
}

/// Entries to drop.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Drop {
    /// Keys as `cache ls` shows them, or beginnings that no other key has.
    #[arg(value_name = "KEY")]
    pub(crate) keys: Vec<String>,
    /// Every entry.
    #[arg(long)]
    pub(crate) all: bool,
}

/// Verbs about the objects of the project.
#[derive(Debug, Subcommand)]
pub(crate) enum ObjectsVerb {
    /// Print an object by its hash, as JSON
    #[command(
        after_help = "Example:\n  ryectl objects get 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08 | jq .kind"
    )]
    Get {
        /// SHA-256 in hex, as receipts, references and other objects name it.
        #[arg(value_name = "HASH")]
        hash: String,
    },
    /// Write all objects as single files, `ab/cd/HASH.json`, without the daemon
    #[command(after_help = "Example:\n  ryectl objects export ./objects")]
    Export {
        /// Directory of the files; it is made if it is missing.
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },
}

/// Items to sign or verify.
#[derive(Debug, Args)]
pub(crate) struct Targets {
    /// An item (`ID`, `TYPE:ID` or its path), or a pattern of items.
    #[arg(required = true, value_name = "TARGET")]
    pub(crate) targets: Vec<String>,
}

/// An item to execute.
#[derive(Debug, Args)]
pub(crate) struct Execute {
    /// tool, directive or knowledge.
    #[arg(value_name = "TYPE", value_parser = executable)]
    pub(crate) kind: ItemKind,
    /// The item.
    #[arg(value_name = "ID", value_parser = any_name)]
    pub(crate) item: ItemName,
    /// Parameters as a JSON object; `-` reads stdin.
    #[arg(long, value_name = "JSON|@FILE|-")]
    pub(crate) params: Option<Source>,
    /// Also tell which files were resolved, what they shadow, and who signed them.
    #[arg(long)]
    pub(crate) trace: bool,
    /// Run nothing: tell how the item would be resolved, and what would be started.
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// One run.
#[derive(Debug, Args)]
pub(crate) struct OneRun {
    /// The run.
    #[arg(value_name = "RUN")]
    pub(crate) run: RunName,
}

/// Several runs.
#[derive(Debug, Args)]
pub(crate) struct Runs {
    /// The runs.
    #[arg(required = true, value_name = "RUN")]
    pub(crate) runs: Vec<RunName>,
}

/// A run to resume.
#[derive(Debug, Args)]
pub(crate) struct Resume {
    /// The run.
    #[arg(value_name = "RUN")]
    pub(crate) run: RunName,
    /// Give it a new limit: `steps=N`, `turns=N`, `tokens=N`, `duration=TIME`, `spawns=N`, `depth=N`, `spend=USD`.
    #[arg(long = "raise", value_name = "KEY=VALUE")]
    pub(crate) raises: Vec<Limit>,
    /// Tell the model of a suspended thread something when it resumes.
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) message: Option<String>,
    /// Say what became of an attempt whose outcome nobody knows: retry it, it is done, or it failed.
    #[arg(long = "uncertain", value_name = "ITEM=retry|done|fail")]
    pub(crate) answers: Vec<Answer>,
    /// What the one attempt came to that `--uncertain ITEM=done` says is done; `-` reads stdin.
    #[arg(long, value_name = "JSON|@FILE|-", requires = "answers")]
    pub(crate) result: Option<Source>,
    /// Continue a graph that has ended with the text it started with, whatever its file says by now.
    #[arg(long)]
    pub(crate) same_text: bool,
    /// Why, for those who read about the run.
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) reason: Option<String>,
    #[command(flatten)]
    pub(crate) attach: Attach,
}

/// Runs to wait for.
#[derive(Debug, Args)]
pub(crate) struct Wait {
    #[command(flatten)]
    pub(crate) runs: Runs,
    /// Longest wait: `90`, `90s`, `1h30m`; 0 or no timeout waits without end.
    #[arg(long, value_name = "TIME", value_parser = duration, allow_negative_numbers = true)]
    pub(crate) timeout: Option<Duration>,
}

#[cfg(test)]
mod tests;
