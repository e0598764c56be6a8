//! Which runs a verb names, and whether it does something to them.

use super::{BudgetVerb, GraphVerb, RunName, ThreadVerb, Verb};

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
            Self::Events(events) => vec![&mut events.run],
            Self::Transcript(asked) => vec![&mut asked.run],
            Self::Wait(wait) => wait.runs.runs.iter_mut().collect(),
            Self::Cancel(runs) => runs.runs.iter_mut().collect(),
            Self::Kill(kill) => kill.runs.runs.iter_mut().collect(),
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
            | Self::Models
            | Self::Thread(_)
            | Self::Graph(GraphVerb::Validate(_))
            | Self::Execute(_)
            | Self::Fetch(_)
            | Self::Ps(_)
            | Self::Cache(_)
            | Self::Objects(_)
            | Self::Daemon(_) => Vec::new(),
        }
    }
}
