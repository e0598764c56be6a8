//! One function per verb: it takes the arguments, makes the calls and prints the result.

mod local;
mod signals;

mod attach;

mod items;
mod keys;
mod run;

mod approvals;
mod budget;
mod call;
mod capability;
mod daemon;
mod events;
mod execute;
mod fetch;
mod find;
mod graph;
mod init;
mod lock;
mod logs;
mod man;
mod mcp;
mod models;
mod new;
mod objects;
mod proc;
mod removal;
mod runs;
mod schema;
mod sign;
mod steps;
mod stub;
mod test;
mod transcript;
mod trust;
mod verify;

use rye_client::exit::Exit;

use crate::cli::{
    BudgetVerb, CacheVerb, GraphVerb, LockVerb, McpVerb, ObjectsVerb, StubVerb, ThreadVerb, Verb,
};
use crate::failure::Failure;
use crate::session::Session;

/// Carries out the verb.
pub(crate) async fn run(mut verb: Verb, session: &mut Session) -> Result<Exit, Failure> {
    find::items(&mut verb, session)?;
    find::runs(&mut verb, session).await?;
    match verb {
        Verb::Init => init::init(session),
        Verb::Key(verb) => keys::key(verb, session),
        Verb::Trust(asked) => trust::trust(&asked.directory, session),
        Verb::Untrust(asked) => trust::untrust(&asked.directory, session),
        Verb::Sign(targets) => sign::sign(&targets, session),
        Verb::Verify(targets) => verify::verify(&targets, session),
        Verb::Lock(LockVerb::Create(tools)) => lock::create(&tools.tools, session).await,
        Verb::Lock(LockVerb::Verify { tools }) => lock::verify(&tools, session).await,
        Verb::Lock(LockVerb::Ls) => lock::list(session),
        Verb::Run(run) | Verb::Graph(GraphVerb::Run(run)) => Box::pin(run::run(run, session)).await,
        Verb::Graph(GraphVerb::Step(step)) => graph::step(step, session).await,
        Verb::Graph(GraphVerb::Validate(graphs)) => {
            graph::validate(&graphs.items, graphs.strict, session).await
        }
        Verb::Thread(ThreadVerb::Run(run)) => Box::pin(run::run(run.into(), session)).await,
        Verb::Thread(ThreadVerb::Validate(directives)) => {
            graph::validate(&directives.items, directives.strict, session).await
        }
        Verb::Thread(ThreadVerb::Show(show)) => models::show(show, session).await,
        Verb::Models => models::list(session).await,
        Verb::New(draft) => new::new(draft, session),
        Verb::Stub(StubVerb::Python { items }) => stub::python(&items, session).await,
        Verb::Schema { kind } => schema::schema(kind, session),
        Verb::Thread(ThreadVerb::Say(say)) => runs::say(&say, session).await,
        Verb::Graph(GraphVerb::Show(show)) => graph::show(&show, session).await,
        Verb::Test(asked) => Box::pin(test::test(asked, session)).await,
        Verb::Mcp(McpVerb::Import(asked)) => mcp::import(asked, session).await,
        Verb::Execute(execute) => execute::execute(execute, session).await,
        Verb::Call => Box::pin(call::call(session)).await,
        Verb::Ls(asked) => items::list(asked, session).await,
        Verb::Show(show) => items::show(&show.item, session).await,
        Verb::Fetch(fetch) => fetch::fetch(fetch, session).await,
        Verb::Ps(ps) => runs::ps(&ps, session).await,
        Verb::Get(get) if get.capabilities => capability::show(&get.run, session).await,
        Verb::Get(get) => runs::get(&get.run, session).await,
        Verb::Can(can) => capability::can(&can, session).await,
        Verb::Steps(one) => steps::steps(&one.run, session).await,
        Verb::State(one) => runs::state(&one.run, session).await,
        Verb::Attach(watch) => Box::pin(run::watch(&watch, session)).await,
        Verb::Logs(asked) => logs::logs(asked, session).await,
        Verb::Events(asked) => events::events(&asked, session).await,
        Verb::Transcript(asked) => transcript::transcript(&asked, session).await,
        Verb::Wait(wait) => runs::wait(&wait, session).await,
        Verb::Cancel(runs) => runs::cancel(&runs.runs, session).await,
        Verb::Kill(kill) => runs::kill(&kill, session).await,
        Verb::Rm(rm) => removal::rm(&rm, session).await,
        Verb::Prune(prune) => removal::prune(&prune, session).await,
        Verb::Suspend(one) => Box::pin(runs::suspend(&one.run, session)).await,
        Verb::Resume(resume) => Box::pin(run::resume(resume, session)).await,
        Verb::Approvals(asked) => approvals::list(&asked, session).await,
        Verb::Approve(given) => approvals::approve(given, session).await,
        Verb::Deny(given) => approvals::deny(given, session).await,
        Verb::Tree(one) => runs::tree(&one.run, session).await,
        Verb::Chain(one) => runs::chain(&one.run, session).await,
        Verb::Proc(verb) => Box::pin(proc::proc(verb, session)).await,
        Verb::Budget(BudgetVerb::Show(one)) => budget::show(&one.run, session).await,
        Verb::Budget(BudgetVerb::Tree(one)) => budget::tree(&one.run, session).await,
        Verb::Budget(BudgetVerb::Raise(raise)) => budget::raise(&raise, session).await,
        Verb::Cache(CacheVerb::Ls) => objects::list_cache(session).await,
        Verb::Cache(CacheVerb::Drop(drop)) => objects::drop_cache(drop, session).await,
        Verb::Objects(ObjectsVerb::Get { hash }) => objects::get(&hash, session).await,
        Verb::Objects(ObjectsVerb::Export { directory }) => objects::export(&directory, session),
        Verb::Completions(asked) => items::completions(&asked, session),
        Verb::Man(asked) => man::man(&asked.directory, session),
        Verb::Daemon(verb) => daemon::daemon(verb, session).await,
    }
}
