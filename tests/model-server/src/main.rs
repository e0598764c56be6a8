//! `model-server`: tries out a directive without a vendor, with answers from a script.

use std::env;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use rye_model_server::ModelServer;
use tokio::signal::unix::{SignalKind, signal};

const HELP: &str = "\
Plays a model: answers calls of the apis of Anthropic and OpenAI as a script says.

Usage: model-server SCRIPT.yaml [-- COMMAND ARG...]

With a command, runs it with ANTHROPIC_BASE_URL, ANTHROPIC_API_KEY, OPENAI_BASE_URL and OPENAI_API_KEY set so that
its calls come here, and exits as it does. Without one, prints these variables as lines for a shell, and serves until
it is interrupted.

A daemon that runs already keeps the variables it was started with: stop it first, so that the command starts one.

A script is a list of rules. The first that matches a request answers it:

  - when: {directive: NAME, turn: 1}        also tool_result: PART, contains: PART
    reply:
      text: I count the words.
      calls: [{name: TOOL, input: {path: README.md}}]
  - when: {turn: 2}
    reply: {text: There are 17.}

Requests that break a rule of the api, and those that no rule of the script matches, get the status 400.

Exit status: that of the command (128 and its signal if it was killed, 127 if it does not start);
1 if a request broke a rule; 2 if the arguments or the script are wrong.
";

struct Options {
    script: PathBuf,
    /// A command with its arguments, or empty.
    command: Vec<OsString>,
}

fn main() -> ExitCode {
    let arguments: Vec<OsString> = env::args_os().skip(1).collect();
    if arguments
        .first()
        .is_some_and(|first| first == "--help" || first == "-h")
    {
        print(&mut io::stdout(), HELP);
        return ExitCode::SUCCESS;
    }
    let started = read(arguments).and_then(|asked| {
        let server = start(&asked.script)?;
        Ok((server, asked.command))
    });
    let (server, command) = match started {
        Ok(started) => started,
        Err(problem) => {
            complain(&problem);
            return ExitCode::from(2);
        }
    };
    let exit = if command.is_empty() {
        serve(&server)
    } else {
        run(&server, &command)
    };
    let breaches = server.finish();
    if breaches.is_empty() {
        return exit.unwrap_or_else(|problem| {
            complain(&problem);
            ExitCode::from(127)
        });
    }
    if let Err(problem) = exit {
        complain(&problem);
    }
    complain(&format!(
        "requests broke the rules of the wire:\n  {}",
        breaches.join("\n  ")
    ));
    ExitCode::FAILURE
}

fn read(arguments: Vec<OsString>) -> Result<Options, String> {
    let mut arguments = arguments.into_iter();
    let script = arguments.next().filter(|first| first != "--");
    let script =
        script.ok_or("a script is missing: model-server SCRIPT.yaml [-- COMMAND ARG...]")?;
    if script.as_encoded_bytes().starts_with(b"-") {
        let script = script.display();
        return Err(format!(
            "there is no option `{script}`: see `model-server --help`"
        ));
    }
    let mark = arguments.next();
    if let Some(other) = mark.as_ref().filter(|mark| *mark != "--") {
        let other = other.display();
        return Err(format!(
            "`{other}` is not expected: a command stands behind `--`"
        ));
    }
    let command: Vec<OsString> = arguments.collect();
    if mark.is_some() && command.is_empty() {
        return Err("there is no command behind `--`".to_owned());
    }
    Ok(Options {
        script: script.into(),
        command,
    })
}

fn start(script: &Path) -> Result<ModelServer, String> {
    let of = |error: &dyn std::error::Error| format!("{}: {error}", script.display());
    let text = fs::read_to_string(script).map_err(|error| of(&error))?;
    ModelServer::try_start(&text).map_err(|error| of(&error))
}

/// Runs a command. The error explains why it did not start.
#[expect(clippy::disallowed_methods, reason = "it is there to start one")]
fn run(server: &ModelServer, command: &[OsString]) -> Result<ExitCode, String> {
    let [name, arguments @ ..] = command else {
        return Ok(ExitCode::SUCCESS);
    };
    let status = Command::new(name)
        .args(arguments)
        .envs(server.environment())
        .status();
    let status = status.map_err(|error| format!("{} does not start: {error}", name.display()))?;
    let killed = status.signal().map(|signal| signal.saturating_add(128));
    let code = status.code().or(killed).unwrap_or(1);
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
}

/// Serves until it is interrupted or terminated.
fn serve(server: &ModelServer) -> Result<ExitCode, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let waited = runtime.and_then(|runtime| {
        runtime.block_on(async {
            let mut interrupt = signal(SignalKind::interrupt())?;
            let mut terminate = signal(SignalKind::terminate())?;
            // A reader of these lines may send the signal immediately.
            print(&mut io::stdout(), &exports(server));
            tokio::select! {
                _interrupted = interrupt.recv() => {}
                _terminated = terminate.recv() => {}
            }
            Ok(())
        })
    });
    waited.map_err(|error| format!("cannot wait for a signal: {error}"))?;
    Ok(ExitCode::SUCCESS)
}

/// Renders the variables as lines for a shell. Their values contain no special characters.
fn exports(server: &ModelServer) -> String {
    let mut lines = String::new();
    for (name, value) in server.environment() {
        writeln!(lines, "export {name}={value}").expect("writing to a String cannot fail");
    }
    lines
}

fn complain(problem: &str) {
    print(&mut io::stderr(), &format!("model-server: {problem}\n"));
}

/// Prints a text. A failed write is ignored.
fn print(to: &mut dyn io::Write, text: &str) {
    drop(to.write_all(text.as_bytes()).and_then(|()| to.flush()));
}
