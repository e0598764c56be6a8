//! One function per verb: take the arguments, make the calls, print.

mod approvals;
mod attach;
mod budget;
mod capability;
mod daemon;
mod events;
mod execute;
mod fetch;
mod find;
mod graph;
mod init;
mod items;
mod keys;
mod local;
mod lock;
mod logs;
mod man;
mod mcp;
mod models;
mod new;
mod objects;
mod removal;
mod run;
mod runs;
mod schema;
mod sign;
mod test;
mod transcript;
mod verify;

use std::path::PathBuf;

use rye_client::Client;
use rye_client::client::{Revival, Reviver};
use rye_client::endpoint::{Autostart, Choice, Endpoint};
use rye_client::environment::Environment;
use rye_client::error::NotStarted;
use rye_client::exit::Exit;

use crate::cli::{
    BudgetVerb, CacheVerb, Global, GraphVerb, LockVerb, McpVerb, ObjectsVerb, ThreadVerb, Verb,
};
use crate::failure::Failure;
use crate::output::Output;
use crate::project;

pub(crate) use self::test::Error as TestError;
use self::test::schema as test_schema;

/// What every verb works with.
#[derive(Debug)]
pub(crate) struct Session {
    global: Global,
    environment: Environment,
    output: Output,
}

impl Session {
    pub(crate) const fn new(global: Global, environment: Environment, output: Output) -> Self {
        Self {
            global,
            environment,
            output,
        }
    }

    pub(crate) fn into_output(self) -> Output {
        self.output
    }

    /// The project, or the directory the user stands in.
    fn project(&self) -> Result<PathBuf, Failure> {
        match project::find(self.global.project.as_deref(), &self.environment)? {
            Some(project) => Ok(project),
            None => Ok(self.environment.here()?.to_owned()),
        }
    }

    fn choice(&self) -> Choice {
        Choice {
            socket: self.global.socket.clone(),
            state_dir: self.global.state_dir.clone(),
        }
    }

    fn endpoint(&self) -> Result<Endpoint, Failure> {
        Ok(Endpoint::find(&self.choice(), &self.environment)?)
    }

    /// A daemon to talk to; started if none runs and nothing forbids it.
    async fn client(&mut self) -> Result<Client, Failure> {
        let autostart = if self.global.no_autostart {
            Autostart::Off(NotStarted::SwitchedOff)
        } else {
            Autostart::On
        };
        self.connect(autostart).await
    }

    async fn connect(&mut self, autostart: Autostart) -> Result<Client, Failure> {
        let autostart = match autostart {
            Autostart::On if self.environment.inside_run => Autostart::Off(NotStarted::InsideRun),
            Autostart::On | Autostart::Off(_) => autostart,
        };
        let endpoint = self.endpoint()?;
        let output = &mut self.output;
        let mut notify = |text: &str| output.note(text);
        let (client, started) = endpoint.connect(autostart, &mut notify).await?;
        if let Some(started) = started {
            self.output.note(&format!(
                "started ryed in the background; its state is in {}",
                started.state_dir.display()
            ));
        }
        let (Autostart::On, Some(endpoint)) = (autostart, endpoint.again(&client)) else {
            return Ok(client);
        };
        let revive = move || -> Revival {
            let endpoint = endpoint.clone();
            Box::pin(async move {
                let connected = endpoint.connect(Autostart::On, &mut |_| {}).await;
                connected.map(drop)
            })
        };
        Ok(client.reviving(Reviver::new(revive)))
    }
}

/// One of several things a verb does has failed or not: prints it and continues with the next. The first failure names
/// the exit code.
fn go_on(exit: Exit, done: Result<(), Failure>, output: &mut Output) -> Exit {
    match done {
        Ok(()) => exit,
        Err(failure) => {
            output.failure(&failure);
            if exit == Exit::Done {
                failure.exit()
            } else {
                exit
            }
        }
    }
}

/// Does what the user asked for.
pub(crate) async fn run(mut verb: Verb, session: &mut Session) -> Result<Exit, Failure> {
    find::items(&mut verb, session)?;
    find::runs(&mut verb, session).await?;
    match verb {
        Verb::Init => init::init(session),
        Verb::Key(verb) => keys::key(verb, session),
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
        Verb::Schema { kind } => schema::schema(kind, session),
        Verb::Thread(ThreadVerb::Say(say)) => runs::say(&say, session).await,
        Verb::Graph(GraphVerb::Show(show)) => graph::show(&show, session).await,
        Verb::Test(asked) => Box::pin(test::test(asked, session)).await,
        Verb::Mcp(McpVerb::Import(asked)) => mcp::import(asked, session).await,
        Verb::Execute(execute) => execute::execute(execute, session).await,
        Verb::Ls(asked) => items::list(asked, session).await,
        Verb::Show(show) => items::show(&show.item, session).await,
        Verb::Fetch(fetch) => fetch::fetch(fetch, session).await,
        Verb::Ps(ps) => runs::ps(&ps, session).await,
        Verb::Get(get) if get.capabilities => capability::show(&get.run, session).await,
        Verb::Get(get) => runs::get(&get.run, session).await,
        Verb::Can(can) => capability::can(&can, session).await,
        Verb::Steps(one) => runs::steps(&one.run, session).await,
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
        Verb::Suspend(one) => runs::suspend(&one.run, session).await,
        Verb::Resume(resume) => Box::pin(run::resume(resume, session)).await,
        Verb::Approvals(asked) => approvals::list(&asked, session).await,
        Verb::Approve(given) => approvals::approve(given, session).await,
        Verb::Deny(given) => approvals::deny(given, session).await,
        Verb::Tree(one) => runs::tree(&one.run, session).await,
        Verb::Chain(one) => runs::chain(&one.run, session).await,
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
