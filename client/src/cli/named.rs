//! Which runs and items a verb names, and whether it does something to the runs.

use super::budget::BudgetVerb;
use super::graph::GraphVerb;
use super::item_name::ItemName;
use super::lock::LockVerb;
use super::run_name::RunName;
use super::thread::ThreadVerb;
use super::verb::Verb;

impl Verb {
    /// Whether something becomes of the runs that it names: such a name means none of another project by chance.
    pub(crate) const fn acts(&self) -> bool {
        matches!(
            self,
            Self::Run(_)
                | Self::Graph(GraphVerb::Run(_))
                | Self::Thread(ThreadVerb::Say(_))
                | Self::Suspend(_)
                | Self::Cancel(_)
                | Self::Kill(_)
                | Self::Rm(_)
                | Self::Resume(_)
                | Self::Approve(_)
                | Self::Deny(_)
                | Self::Budget(BudgetVerb::Raise(_))
        )
    }

    /// The runs that it names.
    pub(crate) fn runs(&mut self) -> Vec<&mut RunName> {
        match self {
            Self::Run(run) | Self::Graph(GraphVerb::Run(run)) => run.resume.iter_mut().collect(),
            Self::Graph(GraphVerb::Step(step)) => step.resume_from.iter_mut().collect(),
            Self::Graph(GraphVerb::Show(show)) => show.run.iter_mut().collect(),
            Self::Thread(ThreadVerb::Say(say)) => vec![&mut say.run],
            Self::Get(get) => vec![&mut get.run],
            Self::Can(can) => vec![&mut can.run],
            Self::Steps(one)
            | Self::State(one)
            | Self::Suspend(one)
            | Self::Tree(one)
            | Self::Chain(one)
            | Self::Budget(BudgetVerb::Show(one) | BudgetVerb::Tree(one)) => vec![&mut one.run],
            Self::Attach(watch) => vec![&mut watch.run],
            Self::Logs(asked) => vec![&mut asked.run],
            Self::Events(events) => events.run.iter_mut().collect(),
            Self::Transcript(asked) => asked.source.run_mut().into_iter().collect(),
            Self::Wait(wait) => wait.runs.runs.iter_mut().collect(),
            Self::Cancel(runs) => runs.runs.iter_mut().collect(),
            Self::Kill(kill) => kill.runs.runs.iter_mut().collect(),
            Self::Rm(rm) => rm.runs.runs.iter_mut().collect(),
            Self::Resume(resume) => vec![&mut resume.run],
            Self::Approvals(asked) => asked.run.iter_mut().collect(),
            Self::Approve(given) => vec![&mut given.run],
            Self::Deny(given) => vec![&mut given.run],
            Self::Budget(BudgetVerb::Raise(raise)) => vec![&mut raise.run],
            Self::Init
            | Self::Key(_)
            | Self::Sign(_)
            | Self::Verify(_)
            | Self::Lock(_)
            | Self::New(_)
            | Self::Schema { .. }
            | Self::Mcp(_)
            | Self::Models
            | Self::Thread(_)
            | Self::Graph(GraphVerb::Validate(_))
            | Self::Execute(_)
            | Self::Fetch(_)
            | Self::Ls(_)
            | Self::Show(_)
            | Self::Test(_)
            | Self::Completions(_)
            | Self::Ps(_)
            | Self::Prune(_)
            | Self::Cache(_)
            | Self::Objects(_)
            | Self::Man(_)
            | Self::Daemon(_) => Vec::new(),
        }
    }

    /// The items that it names, but for those that may be patterns.
    pub(crate) fn items(&mut self) -> Vec<&mut ItemName> {
        match self {
            Self::Run(run) | Self::Graph(GraphVerb::Run(run)) => vec![&mut run.item],
            Self::Graph(GraphVerb::Step(step)) => vec![&mut step.item],
            Self::Graph(GraphVerb::Validate(graphs)) => graphs.items.iter_mut().collect(),
            Self::Graph(GraphVerb::Show(show)) => vec![&mut show.item],
            Self::Thread(ThreadVerb::Run(run)) => vec![&mut run.directive.item],
            Self::Thread(ThreadVerb::Validate(directives)) => directives.items.iter_mut().collect(),
            Self::Thread(ThreadVerb::Show(show)) => vec![&mut show.directive.item],
            Self::Execute(execute) => vec![&mut execute.item],
            Self::Fetch(fetch) => fetch.item.iter_mut().collect(),
            Self::Show(show) => vec![&mut show.item],
            Self::Lock(LockVerb::Create(tools)) => tools.tools.iter_mut().collect(),
            Self::Lock(LockVerb::Verify { tools }) => tools.iter_mut().collect(),
            Self::Init
            | Self::Key(_)
            | Self::Sign(_)
            | Self::Verify(_)
            | Self::Lock(LockVerb::Ls)
            | Self::Thread(ThreadVerb::Say(_))
            | Self::Models
            | Self::New(_)
            | Self::Schema { .. }
            | Self::Mcp(_)
            | Self::Ls(_)
            | Self::Ps(_)
            | Self::Get(_)
            | Self::Can(_)
            | Self::Steps(_)
            | Self::State(_)
            | Self::Attach(_)
            | Self::Logs(_)
            | Self::Events(_)
            | Self::Transcript(_)
            | Self::Wait(_)
            | Self::Cancel(_)
            | Self::Kill(_)
            | Self::Rm(_)
            | Self::Prune(_)
            | Self::Suspend(_)
            | Self::Resume(_)
            | Self::Approvals(_)
            | Self::Approve(_)
            | Self::Deny(_)
            | Self::Tree(_)
            | Self::Chain(_)
            | Self::Budget(_)
            | Self::Cache(_)
            | Self::Objects(_)
            | Self::Test(_)
            | Self::Completions(_)
            | Self::Man(_)
            | Self::Daemon(_) => Vec::new(),
        }
    }
}
