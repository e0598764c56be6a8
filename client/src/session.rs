//! Context of every verb: global options, environment, output, and the connection to the daemon.

use std::path::PathBuf;

use rye_client::Client;
use rye_client::client::{Revival, Reviver};
use rye_client::endpoint::{Autostart, Choice, Endpoint};
use rye_client::environment::Environment;
use rye_client::error::NotStarted;

use crate::cli::Global;
use crate::failure::Failure;
use crate::output::Output;
use crate::project;

/// Context of one invocation.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) global: Global,
    pub(crate) environment: Environment,
    pub(crate) output: Output,
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

    /// Returns the project, or the current directory outside of any project.
    pub(crate) fn project(&self) -> Result<PathBuf, Failure> {
        match self.found_project()? {
            Some(project) => Ok(project),
            None => Ok(project::as_text(self.environment.here()?.to_owned())?),
        }
    }

    /// Returns the project, or `None` outside of any project.
    pub(crate) fn found_project(&self) -> Result<Option<PathBuf>, Failure> {
        let named = self.global.project.as_deref();
        Ok(project::find(named, &self.environment)?)
    }

    pub(crate) fn choice(&self) -> Choice {
        Choice {
            socket: self.global.socket.clone(),
            state_dir: self.global.state_dir.clone(),
        }
    }

    pub(crate) fn endpoint(&self) -> Result<Endpoint, Failure> {
        Ok(Endpoint::find(&self.choice(), &self.environment)?)
    }

    /// Connects to the daemon. Starts one if none runs, unless `--no-autostart` or a surrounding run forbids it.
    pub(crate) async fn client(&mut self) -> Result<Client, Failure> {
        let autostart = if self.global.no_autostart {
            Autostart::Off(NotStarted::SwitchedOff)
        } else {
            Autostart::On
        };
        self.connect(autostart).await
    }

    pub(crate) async fn connect(&mut self, autostart: Autostart) -> Result<Client, Failure> {
        let autostart = match autostart {
            Autostart::On if self.environment.inside_run => Autostart::Off(NotStarted::InsideRun),
            Autostart::On | Autostart::Off(_) => autostart,
        };
        let endpoint = self.endpoint()?;
        let output = &mut self.output;
        let mut notify = |text: &str| output.note(text);
        let (client, started) = endpoint.connect(autostart, &mut notify).await?;
        let client = client.with_token(self.environment.token.clone());
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
