//! `ryed`: reads the settings, then runs as the parent process or as the daemon.

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Parser as _;
use clap::error::ErrorKind as Asked;
use rye_core::error::{Kinded, with_sources};
use rye_process::parent;
use ryed::config::{self, Args, Command, Environment};
use ryed::exit::ExitStatus;
use ryed::{keep, logging, rebuild, serve};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(answer) => return print_answer(&answer),
    };
    if let Some(Command::Shim { plan, ready, lock }) = args.command {
        return keep([plan, ready, lock]).into();
    }
    let environment = Environment::capture();
    config::hide();
    let loaded = match config::load(&args, &environment) {
        Ok(loaded) => loaded,
        Err(error) => return fail(&error),
    };
    if args.print_config {
        return print(&loaded.to_yaml());
    }
    logging::start(&loaded.config.log);
    if let Some(Command::Rebuild { projects }) = &args.command {
        return rebuild(&loaded.config, projects).into();
    }
    if let Some(parent) = parent::of_this_process(environment.claimed_parent()) {
        return serve(loaded.config, parent, args.adopt_copy).into();
    }
    let daemon = |life| Ok(parent::daemon_command(life, environment.seal_hidden()?));
    match parent::run(daemon, &loaded.config.state_dir, loaded.config.restarts) {
        Ok(exit) => exit.shell_code().into(),
        Err(error) => fail(&error),
    }
}

/// Prints help or version, or the error in the command line.
fn print_answer(answer: &clap::Error) -> ExitCode {
    let status = match (answer.print(), answer.kind()) {
        (Ok(()), Asked::DisplayHelp | Asked::DisplayVersion) => ExitStatus::Done,
        (Ok(()) | Err(_), _) => ExitStatus::Usage,
    };
    status.into()
}

fn print(text: &str) -> ExitCode {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => ExitStatus::Internal.into(),
        Ok(()) | Err(_) => ExitStatus::Done.into(),
    }
}

/// Reports the error on standard error, because the log may not be started yet.
fn fail(error: &(impl Kinded + 'static)) -> ExitCode {
    let said = writeln!(io::stderr(), "ryed: {}", with_sources(error));
    // Without standard error, only the exit code reports the failure.
    drop(said);
    ExitStatus::from(error.kind()).into()
}
