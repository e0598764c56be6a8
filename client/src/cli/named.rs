//! Runs and items that a verb names, and whether the verb acts on the runs.

use super::budget::BudgetVerb;
use super::graph::GraphVerb;
use super::item_name::ItemName;
use super::lock::LockVerb;
use super::proc::ProcVerb;
use super::run_name::RunName;
use super::stub::StubVerb;
use super::thread::ThreadVerb;
use super::verb::Verb;

impl Verb {
    /// True if the verb acts on the runs that it names. Then a name that is no whole id means only runs of this
    /// project.
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
                | Self::Proc(
                    ProcVerb::Stop(_)
                        | ProcVerb::Restart(_)
                        | ProcVerb::Freeze(_)
                        | ProcVerb::Thaw(_)
                )
        )
    }

    /// Returns the runs that the verb names.
    pub(crate) fn runs(&mut self) -> Vec<&mut RunName> {
        self.names().0
    }

    /// Returns the items that the verb names, except those that may be patterns.
    pub(crate) fn items(&mut self) -> Vec<&mut ItemName> {
        self.names().1
    }

    fn names(&mut self) -> (Vec<&mut RunName>, Vec<&mut ItemName>) {
        match self {
            Self::Run(run) | Self::Graph(GraphVerb::Run(run)) => {
                (run.resume.iter_mut().collect(), vec![&mut run.item])
            }
            Self::Graph(GraphVerb::Step(step)) => {
                (step.resume_from.iter_mut().collect(), vec![&mut step.item])
            }
            Self::Graph(GraphVerb::Show(show)) => {
                (show.run.iter_mut().collect(), vec![&mut show.item])
            }
            Self::Graph(GraphVerb::Validate(graphs)) => {
                (Vec::new(), graphs.items.iter_mut().collect())
            }
            Self::Thread(ThreadVerb::Run(run)) => (Vec::new(), vec![&mut run.directive.item]),
            Self::Thread(ThreadVerb::Validate(directives)) => {
                (Vec::new(), directives.items.iter_mut().collect())
            }
            Self::Thread(ThreadVerb::Show(show)) => (Vec::new(), vec![&mut show.directive.item]),
            Self::Execute(execute) => (Vec::new(), vec![&mut execute.item]),
            Self::Fetch(fetch) => (Vec::new(), fetch.item.iter_mut().collect()),
            Self::Show(show) => (Vec::new(), vec![&mut show.item]),
            Self::Stub(StubVerb::Python { items }) => (Vec::new(), items.iter_mut().collect()),
            Self::Lock(LockVerb::Create(tools)) => (Vec::new(), tools.tools.iter_mut().collect()),
            Self::Lock(LockVerb::Verify { tools }) => (Vec::new(), tools.iter_mut().collect()),
            Self::Thread(ThreadVerb::Say(say)) => (vec![&mut say.run], Vec::new()),
            Self::Get(get) => (vec![&mut get.run], Vec::new()),
            Self::Can(can) => (vec![&mut can.run], Vec::new()),
            Self::Steps(one)
            | Self::State(one)
            | Self::Suspend(one)
            | Self::Tree(one)
            | Self::Chain(one)
            | Self::Budget(BudgetVerb::Show(one) | BudgetVerb::Tree(one)) => {
                (vec![&mut one.run], Vec::new())
            }
            Self::Attach(watch) => (vec![&mut watch.run], Vec::new()),
            Self::Logs(asked) => (vec![&mut asked.run], Vec::new()),
            Self::Events(events) => (events.run.iter_mut().collect(), Vec::new()),
            Self::Transcript(asked) => (asked.source.run_mut().into_iter().collect(), Vec::new()),
            Self::Wait(wait) => (wait.runs.runs.iter_mut().collect(), Vec::new()),
            Self::Cancel(runs) => (runs.runs.iter_mut().collect(), Vec::new()),
            Self::Kill(kill) => (kill.runs.runs.iter_mut().collect(), Vec::new()),
            Self::Rm(rm) => (rm.runs.runs.iter_mut().collect(), Vec::new()),
            Self::Resume(resume) => (vec![&mut resume.run], Vec::new()),
            Self::Approvals(asked) => (asked.run.iter_mut().collect(), Vec::new()),
            Self::Approve(given) => (vec![&mut given.run], Vec::new()),
            Self::Deny(given) => (vec![&mut given.run], Vec::new()),
            Self::Budget(BudgetVerb::Raise(raise)) => (vec![&mut raise.run], Vec::new()),
            Self::Proc(
                ProcVerb::Status(one)
                | ProcVerb::Stop(one)
                | ProcVerb::Restart(one)
                | ProcVerb::Freeze(one)
                | ProcVerb::Thaw(one),
            ) => (vec![&mut one.handle], Vec::new()),
            Self::Proc(ProcVerb::Logs(asked)) => (vec![&mut asked.handle], Vec::new()),
            Self::Proc(ProcVerb::Wait(asked)) => (vec![&mut asked.handle], Vec::new()),
            Self::Init
            | Self::Call
            | Self::Key(_)
            | Self::Sign(_)
            | Self::Verify(_)
            | Self::Lock(LockVerb::Ls)
            | Self::New(_)
            | Self::Schema { .. }
            | Self::Mcp(_)
            | Self::Models
            | Self::Ls(_)
            | Self::Test(_)
            | Self::Completions(_)
            | Self::Ps(_)
            | Self::Prune(_)
            | Self::Proc(ProcVerb::Start(_) | ProcVerb::Ls { .. })
            | Self::Cache(_)
            | Self::Objects(_)
            | Self::Man(_)
            | Self::Trust(_)
            | Self::Untrust(_)
            | Self::Daemon(_) => (Vec::new(), Vec::new()),
        }
    }
}
