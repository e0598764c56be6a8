//! `ryectl`: the command line of Rye.

mod local_error;
mod project;
mod python_stub;
mod render;

mod input;
mod testing;

mod cli;
mod failure;

mod output;

mod session;

mod verbs;

use std::io::Write as _;
use std::process::ExitCode;

use clap::FromArgMatches as _;
use clap::error::{ContextKind, ContextValue};
use nix::sys::signal::{self, SigHandler, Signal};
use rye_client::environment::Environment;
use rye_client::exit::{Exit, Interruption};

use crate::cli::Cli;
use crate::output::{Format, Output};
use crate::session::Session;

fn main() -> ExitCode {
    let environment = Environment::read();
    let parsed = cli::command().try_get_matches();
    let cli = match parsed.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(usage) => return explain(usage),
    };
    let mut output = Output::new(Format::of(cli.global.json), &environment);
    let checked = environment.check();
    let exit = match tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => {
            let mut session = Session::new(cli.global, environment, output);
            let ended = match checked {
                Ok(()) => runtime.block_on(verbs::run(cli.verb, &mut session)),
                Err(error) => Err(error.into()),
            };
            output = session.into_output();
            match ended {
                Ok(exit) => exit,
                Err(failure) => {
                    output.failure(&failure);
                    failure.exit()
                }
            }
        }
        Err(error) => {
            output.error(&format!("cannot start the runtime: {error}"));
            Exit::Internal
        }
    };
    if let Exit::Interrupted(why) = exit {
        die_of(why);
    }
    exit.into()
}

/// Ends this process by the signal of `why`, so that a calling shell or program sees that it was interrupted. Returns
/// only if the signal is blocked.
#[expect(
    unsafe_code,
    reason = "a disposition is set by a call that may install a handler; this one installs none"
)]
fn die_of(why: Interruption) {
    let Ok(signal) = Signal::try_from(i32::from(why.signal())) else {
        return;
    };
    // SAFETY: no handler is installed, and no other thread of this process sets dispositions any more.
    let reset = unsafe { signal::signal(signal, SigHandler::SigDfl) };
    if reset.is_ok() {
        // If it fails, the exit code says the same.
        let _unless_blocked = signal::raise(signal);
    }
}

/// Returns the help of `ryectl`, or of a group of its verbs, if the arguments name nothing else.
fn bare(usage: &clap::Error) -> Option<String> {
    use clap::error::ErrorKind::{DisplayHelpOnMissingArgumentOrSubcommand, MissingSubcommand};

    if usage.kind() == DisplayHelpOnMissingArgumentOrSubcommand {
        return Some(usage.render().to_string());
    }
    // Clap counts an option that the environment has set as given, so the arguments themselves are inspected.
    let mut given = std::env::args_os().skip(1);
    let names_option = given.any(|arg| arg.as_encoded_bytes().starts_with(b"-"));
    if usage.kind() != MissingSubcommand || names_option {
        return None;
    }
    let text = usage.get(ContextKind::Usage)?.to_string();
    Some(cli::help(&text)?.to_string())
}

/// Prints help, the version, or the error in the arguments.
fn explain(mut usage: clap::Error) -> ExitCode {
    if let Some(help) = bare(&usage) {
        // Nothing was requested, so nothing is wrong.
        drop(writeln!(std::io::stdout(), "{}", help.trim_end()));
        return Exit::Done.into();
    }
    let exit = if usage.use_stderr() {
        Exit::Usage
    } else {
        Exit::Done
    };
    suggest(&mut usage);
    if let Some(ContextValue::StyledStr(text)) = usage.get(ContextKind::Usage)
        && let Some(text) = cli::usage(&text.to_string())
    {
        usage.insert(ContextKind::Usage, ContextValue::StyledStr(text));
    }
    // Escape sequences in an argument that is printed back must not control the terminal.
    let text = usage.render().to_string();
    let shown = render::screen::shown(&text, render::Style::Plain);
    let wants_json = std::env::args_os().any(|arg| arg == "--json");
    if exit == Exit::Usage && wants_json {
        let error = serde_json::json!({"error": {"reason": "invalid", "message": text.trim_end()}});
        // If the reader is gone, the exit code still reports the error.
        drop(writeln!(std::io::stdout(), "{error}"));
    }
    let printed = if shown == text {
        usage.print()
    } else {
        std::io::stderr().write_all(shown.as_bytes())
    };
    match printed {
        // A reader that closes the stream early is no failure.
        Ok(()) | Err(_) => exit.into(),
    }
}

/// Suggests the verb nearest to a mistyped one, where clap suggests none.
fn suggest(usage: &mut clap::Error) {
    let known = usage.get(ContextKind::SuggestedSubcommand).is_some();
    let (false, Some(ContextValue::String(word))) =
        (known, usage.get(ContextKind::InvalidSubcommand))
    else {
        return;
    };
    let command = cli::command();
    let verbs = command.get_subcommands().map(clap::Command::get_name);
    if let Some(near) = rye_core::expr::nearest(word, verbs) {
        let near = ContextValue::Strings(vec![near.to_owned()]);
        usage.insert(ContextKind::SuggestedSubcommand, near);
    }
}
