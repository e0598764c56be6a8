//! The verbs of `ryectl`.

use clap::{Parser, Subcommand, ValueEnum};

use super::approvals::{Approvals, Approve, Deny};
use super::budget::BudgetVerb;
use super::capability::{Can, Get};
use super::daemon::DaemonVerb;
use super::ending::{Kill, Prune, Rm};
use super::events::Events;
use super::global::Global;
use super::graph::{GraphVerb, Run, Watch};
use super::items::{Completions, Execute, Fetch, Ls, Man, ShowItem};
use super::keys::{Directory, KeyVerb, Targets};
use super::lock::LockVerb;
use super::logs::Logs;
use super::mcp::McpVerb;
use super::new::NewVerb;
use super::objects::{CacheVerb, ObjectsVerb};
use super::proc::ProcVerb;
use super::ps::Ps;
use super::runs::{OneRun, Resume, Runs, Wait};
use super::stub::StubVerb;
use super::test::Test;
use super::thread::ThreadVerb;
use super::transcript::Transcript;

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
    /// Trust a project whose directory others can change
    ///
    /// A project that belongs to another user, or that everybody may write to, is refused: its `.env`, `.venv` and `node_modules` take
    /// effect without a signature. Trust it if you trust those who can change it.
    #[command(after_help = "Example:\n  ryectl trust /srv/team/app")]
    Trust(Directory),
    /// Take a directory out of those that `trust` trusts
    #[command(after_help = "Example:\n  ryectl untrust /srv/team/app")]
    Untrust(Directory),
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
    /// Print typed functions that call items, for programs of tools
    ///
    /// They are made from the descriptions and the input schemas of the items. The same items give the same text.
    #[command(
        subcommand,
        after_help = "Example:\n  ryectl stub python rye/bash team/greet > items.py"
    )]
    Stub(StubVerb),
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
    /// Call items for a program of a run, one JSON object a line
    #[command(
        long_about = "Call items for a program of a run, one JSON object a line\n\nFor programs that a run started, which have a token in RYE_TOKEN. Each line of stdin is a call, such as {\"id\": 1, \"call\": \"execute\", \"item_id\": \"team/lint\", \"params\": {}}, {\"call\": \"fetch\", \"item_id\": \"team/rules\"} or {\"call\": \"progress\", \"fraction\": 0.5, \"message\": \"half\"}. Each call is answered by a line with its id and `result` or `error`, in the order in which the calls end.",
        after_help = "Example:\n  echo '{\"id\": 1, \"call\": \"execute\", \"item_id\": \"rye/core/echo\", \"params\": {\"text\": \"hi\"}}' | ryectl call"
    )]
    Call,
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
    /// A suspended run keeps its id. One that ended without success is continued by a new run with its state and inputs:
    /// where it failed; if it ended at a `fail` node after items had failed, it repeats these items and walks on from there.
    #[command(
        after_help = "Examples:\n  ryectl resume app-deploy-1767225600-abcdefghij --raise steps=200\n  ryectl resume app-deploy-1767225600-abcdefghij --uncertain charge=done\n  ryectl resume @last --failed"
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
    /// Start servers and other processes that keep running, watch and stop them
    #[command(
        subcommand,
        after_help = "Example:\n  ryectl proc start --name web --ready-port 8137 -- python3 -m http.server 8137"
    )]
    Proc(ProcVerb),
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
