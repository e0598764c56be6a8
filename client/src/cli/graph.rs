//! Arguments of verbs about graphs.

use clap::builder::{FalseyValueParser, NonEmptyStringValueParser};
use clap::{Args, Subcommand, ValueEnum};

use super::item_name::{ItemName, only_tool, tool_name, tools};
use super::run_name::RunName;
use super::values::{Answer, Durability, Limit, capability};
use crate::input::{Input, Source};

/// Verbs about graphs.
#[derive(Debug, Subcommand)]
pub(crate) enum GraphVerb {
    /// Run a graph; the same as `ryectl run`
    #[command(
        after_help = "Example:\n  ryectl graph run rye/examples/project-stats -i directory=."
    )]
    Run(Run),
    /// Run one node of a graph, and show what it did and which node would follow
    ///
    /// The node begins with the graph's own state, or with that of a run. It is a run of its own, whose id ends in `-step`.
    #[command(
        after_help = "Examples:\n  ryectl graph step rye/examples/project-stats --node count -i directory=.\n  ryectl graph step app/deploy --node notify --resume-from app-deploy-1767225600-abcdefghij --state '{\"tries\": 0}'"
    )]
    Step(Step),
    /// Check graphs without running them
    ///
    /// Prints a line per finding. Ends with 1 if there are errors. With --json one graph is a document; of several each is a line.
    #[command(
        after_help = "Examples:\n  ryectl graph validate rye/examples/project-stats\n  ryectl graph validate --strict 'app/*'"
    )]
    Validate(Graphs),
    /// Draw a graph
    #[command(
        after_help = "Examples:\n  ryectl graph show rye/examples/project-stats\n  ryectl graph show app/deploy --format dot --run app-deploy-1767225600-abcdefghij | dot -Tsvg"
    )]
    Show(Show),
}

/// A run to start.
#[derive(Debug, Args)]
pub(crate) struct Run {
    /// The graph or tool, by its id or path; `directive:ID` is a directive.
    #[arg(value_name = "ITEM", value_parser = tool_name)]
    pub(crate) item: ItemName,
    #[command(flatten)]
    pub(crate) given: Given,
    /// Resume this run instead of starting a fresh one; it keeps its inputs.
    #[arg(long, value_name = "RUN", conflicts_with_all = ["inputs", "input", "capabilities", "durability", "idempotency_key", "model", "provider"])]
    pub(crate) resume: Option<RunName>,
    #[command(flatten)]
    pub(crate) attach: Attach,
}

/// What a run is given.
#[derive(Debug, Args)]
pub(crate) struct Given {
    #[command(flatten)]
    pub(crate) asked: RunOptions,
    /// When a step counts as done.
    #[arg(long, value_name = "HOW")]
    pub(crate) durability: Option<Durability>,
    /// Start at most one run with this key: a second start finds the first.
    #[arg(long, value_name = "KEY", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) idempotency_key: Option<String>,
}

/// What decides what a run begins with.
#[derive(Debug, Args)]
pub(crate) struct RunOptions {
    /// An input: text takes the type the item declares, `:=` gives JSON.
    #[arg(short = 'i', value_name = "KEY=VALUE | KEY:=JSON")]
    pub(crate) inputs: Vec<Input>,
    /// All inputs as a JSON object; `-` reads stdin.
    #[arg(long, value_name = "JSON|@FILE|-")]
    pub(crate) input: Option<Source>,
    /// Let the run do only what matches this capability; may be given several times.
    #[arg(long = "cap", value_name = "CAP", value_parser = capability)]
    pub(crate) capabilities: Vec<String>,
    /// Limit the run: `steps=N`, `depth=N`, `spawns=N`, `spend=USD`; a thread `turns=N`, `tokens=N`, `duration=1m30s`.
    #[arg(long = "limit", value_name = "KEY=VALUE")]
    pub(crate) limits: Vec<Limit>,
    /// The model of a thread: an id, an alias, `provider/model` or a tier.
    #[arg(long, value_name = "MODEL", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) model: Option<String>,
    /// The provider that the model of a thread comes from.
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) provider: Option<String>,
}

/// How to stay with a run, or not to.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Attach {
    /// Print the run's id and leave it to itself.
    #[arg(long, visible_alias = "async", conflicts_with = "cancel_on_interrupt")]
    pub(crate) detach: bool,
    #[command(flatten)]
    pub(crate) staying: Staying,
}

/// A run to watch.
#[derive(Debug, Args)]
pub(crate) struct Watch {
    /// The run.
    #[arg(value_name = "RUN")]
    pub(crate) run: RunName,
    #[command(flatten)]
    pub(crate) staying: Staying,
}

/// How to stay with a run.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Staying {
    /// Ctrl-C cancels the run instead of leaving it.
    #[arg(long)]
    pub(crate) cancel_on_interrupt: bool,
    /// Show no line per step, and nothing that a model says.
    #[arg(long, env = "RYE_GRAPH_QUIET", hide_env_values = true, value_parser = FalseyValueParser::new())]
    pub(crate) quiet: bool,
}

/// A node to run.
#[derive(Debug, Args)]
pub(crate) struct Step {
    /// The graph.
    #[arg(value_name = "ITEM", value_parser = only_tool)]
    pub(crate) item: ItemName,
    /// The node.
    #[arg(long, value_name = "NODE")]
    pub(crate) node: String,
    /// An input: text takes the type the graph declares, `:=` gives JSON.
    #[arg(short = 'i', value_name = "KEY=VALUE | KEY:=JSON")]
    pub(crate) inputs: Vec<Input>,
    /// All inputs as a JSON object; `-` reads stdin.
    #[arg(long, value_name = "JSON|@FILE|-")]
    pub(crate) input: Option<Source>,
    /// State keys laid over the state the node begins with, as a JSON object; `-` reads stdin.
    #[arg(long, value_name = "JSON|@FILE|-")]
    pub(crate) state: Option<Source>,
    /// Begin with the state and the inputs of this run.
    #[arg(long, value_name = "RUN", conflicts_with_all = ["inputs", "input"])]
    pub(crate) resume_from: Option<RunName>,
    /// The node is at-most-once and that run has executed it, or may have: it may execute again.
    #[arg(
        long = "uncertain",
        value_name = "NODE=retry",
        requires = "resume_from"
    )]
    pub(crate) answers: Vec<Answer>,
    /// Let the node do only what matches this capability; may be given several times.
    #[arg(long = "cap", value_name = "CAP", value_parser = capability)]
    pub(crate) capabilities: Vec<String>,
}

/// Graphs to check.
#[derive(Debug, Args)]
pub(crate) struct Graphs {
    /// The graphs: ids, paths, or patterns of ids such as `app/*`.
    #[arg(value_name = "ITEM|GLOB", value_parser = tools, required = true)]
    pub(crate) items: Vec<ItemName>,
    /// End with 1 if there are warnings, too, and require a default edge wherever edges have conditions.
    #[arg(long)]
    pub(crate) strict: bool,
}

/// A graph to draw.
#[derive(Debug, Args)]
pub(crate) struct Show {
    /// The graph.
    #[arg(value_name = "ITEM", value_parser = only_tool)]
    pub(crate) item: ItemName,
    /// In what form.
    #[arg(long, value_name = "FORM", default_value = "text")]
    pub(crate) format: Diagram,
    /// Draw the graph as this run walks it, with what the run did.
    #[arg(long, value_name = "RUN")]
    pub(crate) run: Option<RunName>,
}

/// The form of a drawing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Diagram {
    /// A Mermaid flowchart.
    Mermaid,
    /// A Graphviz digraph.
    Dot,
    /// Indented text.
    Text,
}
