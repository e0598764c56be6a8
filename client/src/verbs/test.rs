//! `test`: runs the cases of `*.test.yaml` files, each in a project of its own.
//!
//! **Order.** All files are read before anything runs: one that is wrong runs nothing. Cases run side by side, and are told in the order of
//! their files. **Failure.** What a case comes to is its own matter; where the daemon cannot be asked, all ends. Interrupted, the runs
//! of the cases under way are ended; interrupted again, they are left to the daemon.

mod call;
mod compare;
mod file;
mod place;
mod report;
mod schema;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use rye_client::Client;
use rye_client::exit::Exit;
use rye_item::spaces::{FOLDER, SKIPPED, is_test};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::time::Instant;

use self::call::Ended;
use self::compare::Problem;
use self::file::{Case, TestFile};
use self::place::{Directory, Items, Stage};
use self::report::Report;
pub(super) use self::schema::schema;
use super::Session;
use super::local::Local;
use crate::cli;
use crate::failure::Failure;
use crate::output::{Format, Output};
use crate::project;

/// Most cases that run at once, unless somebody says more.
const MOST_JOBS: usize = 4;
/// How files of tests end.
const SUFFIX: &str = ".test.yaml";
/// Largest file of tests, in bytes.
const MOST_BYTES: u64 = 8 << 20;

/// Why no tests run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// There is no project.
    #[error(
        "there is no project here: no `.ai` in this directory or above; `ryectl init` makes one, `--project` names one"
    )]
    NoProject,
    /// There are no such files.
    #[error("there is no `{}`: name a folder or a file of tests, or a tool that has one", path.display())]
    NotThere {
        /// As it was named.
        path: PathBuf,
    },
    /// Something that holds no tests.
    #[error("`{}` is no file of tests: these are called `NAME{SUFFIX}`", path.display())]
    NoTests {
        /// The file.
        path: PathBuf,
    },
    /// Files that belong to no tool of the project.
    #[error("`{}` lies elsewhere than below `{}`, where the tools of the project are", path.display(), tools.display())]
    Elsewhere {
        /// The file or folder.
        path: PathBuf,
        /// Where they are.
        tools: PathBuf,
    },
    /// Nothing is left.
    #[error(
        "there are no tests {place}: a tool is tested by the cases in a file `NAME{SUFFIX}` beside it"
    )]
    Nothing {
        /// Where, or which.
        place: String,
    },
    /// Files that say what cannot be.
    #[error("{}", faults.join("\n"))]
    Faulty {
        /// Each with file, line, field and fix.
        faults: Vec<String>,
    },
    /// A file or a folder that cannot be read.
    #[error("cannot read `{}`", path.display())]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The items are more than is copied.
    #[error(
        "the items of `{}` are more than the {most} MiB, or the {entries} files, that are copied for each case; the largest is `{}`: keep data \
         outside of `.ai`", project.display(), largest.display()
    )]
    TooMuch {
        /// The project.
        project: PathBuf,
        /// The bound, in MiB.
        most: u64,
        /// The bound on files.
        entries: usize,
        /// The largest file.
        largest: PathBuf,
    },
    /// There is no place for copies.
    #[error("no temporary directory can be made; `TMPDIR` names where")]
    NoDirectory(#[source] io::Error),
    /// The results cannot be written.
    #[error("cannot write `{}`", path.display())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl Error {
    /// The exit code.
    pub(crate) const fn exit(&self) -> Exit {
        match self {
            Self::NoProject | Self::NotThere { .. } | Self::Nothing { .. } => Exit::NotFound,
            Self::NoTests { .. }
            | Self::Elsewhere { .. }
            | Self::Faulty { .. }
            | Self::Unreadable { .. } => Exit::Usage,
            // Not 1: that says how tests ended.
            Self::TooMuch { .. } | Self::NoDirectory(_) | Self::Unwritable { .. } => {
                Exit::Precondition
            }
        }
    }
}

/// A file of tests, and where it lies in the project.
struct Source {
    path: PathBuf,
    file: TestFile,
}

/// What all cases work with.
struct Rig<'a> {
    client: &'a Client,
    items: &'a Items,
    local: &'a Local,
    stage: &'a Stage,
    keep: bool,
}

pub(super) async fn test(asked: cli::Test, session: &mut Session) -> Result<Exit, Failure> {
    let project = project::find(session.global.project.as_deref(), &session.environment)?;
    let project = project.ok_or(Error::NoProject)?;
    let begin = beginning(asked.path.as_deref(), &project, session.environment.here()?)?;
    let sources = read(&project, &begin)?;
    let filter = asked.filter.as_deref().unwrap_or_default();
    let is_meant = |source: &Source, case: &Case| {
        source.file.tool.id.as_str().contains(filter) || case.name.contains(filter)
    };
    let cases = sources.iter().flat_map(|source| {
        let cases = source.file.cases.iter().map(move |case| (source, case));
        cases.filter(|(source, case)| is_meant(source, case))
    });
    let cases: Vec<(&Source, &Case)> = cases.collect();
    if cases.is_empty() {
        let place = match &asked.filter {
            Some(filter) => format!("whose tool or name holds `{filter}`"),
            None => format!("below `{}`", begin.display()),
        };
        return Err(Error::Nothing { place }.into());
    }
    let items = Items::of(&project)?;
    let local = Local::of(session)?;
    let client = session.client().await?;
    let room = Stage::new()?;
    let started = Instant::now();
    let rig = Rig {
        client: &client,
        items: &items,
        local: &local,
        stage: &room,
        keep: asked.keep,
    };
    let jobs = asked.jobs.map_or_else(processors, usize::from);
    let output = &mut session.output;
    let (reports, ended) = run_all(&rig, &cases, jobs, output).await;
    if let Some(path) = &asked.junit {
        let path = session.environment.absolute(path)?;
        write_junit(&path, &reports, started.elapsed())?;
    }
    if asked.keep {
        let kept = room.keep();
        output.note(&format!("the directories are kept in {}", kept.display()));
    }
    tell(&reports, output)?;
    let exit = ended?;
    let has_failed = report::count(&reports).1 > 0;
    Ok(if exit == Exit::Done && has_failed {
        Exit::Failed
    } else {
        exit
    })
}

/// Where tests are looked for.
fn beginning(named: Option<&Path>, project: &Path, here: &Path) -> Result<PathBuf, Error> {
    let tools = project.join(FOLDER).join("tools");
    let Some(named) = named else {
        return Ok(tools);
    };
    let tool = named.to_string_lossy();
    let tool = tool.strip_prefix("tool:").unwrap_or(&tool);
    let meant = [
        here.join(named),
        tools.join(tool),
        tools.join(format!("{tool}{SUFFIX}")),
    ];
    let Some(path) = meant.into_iter().find(|path| path.exists()) else {
        let path = named.to_owned();
        return Err(Error::NotThere { path });
    };
    let real = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let Ok(below) = real(&path).strip_prefix(real(&tools)).map(Path::to_owned) else {
        return Err(Error::Elsewhere { path, tools });
    };
    if path.is_file() && !is_test(&path) {
        return Err(Error::NoTests { path });
    }
    Ok(if below.as_os_str().is_empty() {
        tools
    } else {
        tools.join(below)
    })
}

/// The files of tests at or below `begin`.
fn read(project: &Path, begin: &Path) -> Result<Vec<Source>, Error> {
    let mut paths = Vec::new();
    let mut ahead = vec![begin.to_owned()];
    while let Some(path) = ahead.pop() {
        if path.is_file() {
            paths.push(path);
            continue;
        }
        let Ok(entries) = fs::read_dir(&path) else {
            continue;
        };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            match entry.file_type() {
                Ok(kind) if kind.is_file() && is_test(&entry.path()) => paths.push(entry.path()),
                Ok(kind)
                    if kind.is_dir()
                        && !name.starts_with(['.', '_'])
                        && !SKIPPED.contains(&&*name) =>
                {
                    ahead.push(entry.path());
                }
                // A link leads to what is looked at in its own place, or elsewhere.
                Ok(_) | Err(_) => {}
            }
        }
    }
    paths.sort();
    let (mut sources, mut faults) = (Vec::new(), Vec::new());
    for path in paths {
        let unreadable = |source| Error::Unreadable {
            path: path.clone(),
            source,
        };
        let below = path.strip_prefix(project).unwrap_or(&path).to_owned();
        if fs::metadata(&path).map_err(unreadable)?.len() > MOST_BYTES {
            faults.push(format!("{}: it is longer than 8 MiB", below.display()));
            continue;
        }
        match TestFile::read(&fs::read_to_string(&path).map_err(unreadable)?) {
            Ok(file) => sources.push(Source { path: below, file }),
            Err(found) => faults.extend(found.into_iter().map(|fault| {
                let place = below.display();
                format!("{place}:{}:{}: {}", fault.line, fault.column, fault.message)
            })),
        }
    }
    if faults.is_empty() {
        Ok(sources)
    } else {
        Err(Error::Faulty { faults })
    }
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, |most| most.get().min(MOST_JOBS))
}

/// Runs `cases`, and tells of each when it and those before it are done. Answers also how all ended.
async fn run_all(
    rig: &Rig<'_>,
    cases: &[(&Source, &Case)],
    jobs: usize,
    output: &mut Output,
) -> (Vec<Report>, Result<Exit, Failure>) {
    let mut reports = Vec::new();
    let mut signals = match Signals::listen() {
        Ok(signals) => signals,
        Err(failure) => return (reports, Err(failure)),
    };
    let (stop, stopped) = watch::channel(false);
    let begun = cases.iter().enumerate();
    let begun = begun.map(|(at, &(source, case))| run(rig, at + 1, source, case, stopped.clone()));
    let mut results = stream::iter(begun).buffered(jobs);
    let mut ended = Ok(Exit::Done);
    loop {
        let done = tokio::select! {
            done = results.next() => done,
            () = signals.next() => {
                if matches!(ended, Ok(Exit::Interrupted)) {
                    break;
                }
                output.note("interrupted; ending the runs of the tests (Ctrl-C again leaves them)");
                ended = Ok(Exit::Interrupted);
                stop.send_replace(true);
                continue;
            }
        };
        let told = match done {
            None => break,
            Some(Ok(None)) => continue,
            Some(Ok(Some(report))) => {
                let told = if output.format() == Format::Text {
                    output.line(&report.text(output.style()))
                } else {
                    Ok(())
                };
                reports.push(report);
                told
            }
            Some(Err(failure)) => Err(failure),
        };
        if let Err(failure) = told
            && ended.is_ok()
        {
            ended = Err(failure);
            stop.send_replace(true);
        }
    }
    (reports, ended)
}

/// Runs one case; none if it was not run to its end.
async fn run(
    rig: &Rig<'_>,
    number: usize,
    source: &Source,
    case: &Case,
    mut stopped: watch::Receiver<bool>,
) -> Result<Option<Report>, Failure> {
    if *stopped.borrow() {
        return Ok(None);
    }
    let mut report = Report {
        file: source.path.clone(),
        tool: source.file.tool.id.to_string(),
        case: case.name.clone(),
        problems: Vec::new(),
        elapsed: Duration::ZERO,
        run_id: String::new(),
        directory: None,
    };
    let made = rig
        .stage
        .directory(number, rig.items, &source.file, rig.local);
    let directory = match made {
        Ok(directory) => directory,
        Err(problem) => {
            report.problems.push(problem.into());
            return Ok(Some(report));
        }
    };
    let what = (&source.file.tool, case);
    let ended = call::call(rig.client, &directory.root, what, &mut stopped).await;
    if rig.keep {
        report.directory = Some(directory.root.clone());
    } else {
        directory.remove();
    }
    let (ended, elapsed) = ended?;
    report.elapsed = elapsed;
    match ended {
        Ended::Interrupted => return Ok(None),
        Ended::Late => {
            let most = case.timeout.as_secs_f64();
            let problem = format!("it took more than {most} s (more with `timeout` of the case)");
            report.problems.push(problem.into());
        }
        Ended::Answered(outcome, run_id) => {
            report.run_id = run_id;
            let problems = compare::problems(&case.expect, &outcome).into_iter();
            report.problems = problems
                .map(|found| in_project(found, &directory))
                .collect();
        }
    }
    Ok(Some(report))
}

/// `problem` as if the case had run in the project.
fn in_project(problem: Problem, directory: &Directory) -> Problem {
    Problem {
        message: directory.without_its_path(&problem.message),
        ..problem
    }
}

fn write_junit(path: &Path, reports: &[Report], elapsed: Duration) -> Result<(), Error> {
    let unwritable = |source| Error::Unwritable {
        path: path.to_owned(),
        source,
    };
    let xml = report::junit(reports, elapsed);
    let xml = xml.map_err(|error| unwritable(io::Error::other(error)))?;
    fs::write(path, xml).map_err(unwritable)
}

/// The end of it: a sentence, or the document.
fn tell(reports: &[Report], output: &mut Output) -> Result<(), Failure> {
    if output.format() == Format::Json {
        return output.json(&report::document(reports));
    }
    let (passed, failed) = report::count(reports);
    let style = output.style();
    let text = if failed == 0 {
        style.green(&format!("{passed} passed"))
    } else {
        format!(
            "{passed} passed, {}",
            style.red(&format!("{failed} failed"))
        )
    };
    output.line(&text)
}

/// The signals by which somebody stops the tests.
struct Signals([Signal; 3]);

impl Signals {
    fn listen() -> Result<Self, Failure> {
        let listen = |kind| signal(kind).map_err(Failure::Interrupts);
        Ok(Self([
            listen(SignalKind::interrupt())?,
            listen(SignalKind::terminate())?,
            listen(SignalKind::hangup())?,
        ]))
    }

    async fn next(&mut self) {
        let [interrupt, terminate, hangup] = &mut self.0;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    }
}
