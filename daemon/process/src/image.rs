//! A plan in the form the kernel takes, and the child's steps before its exec.
//!
//! A child starts as with `posix_spawn`: `clone` with a shared address space and a stack of its own, with the caller
//! stopped until the child executes. No memory is copied, however much the daemon holds, and the child reports a
//! failure by writing to shared memory. Until its exec it makes only a few system calls: no allocation, no lock, no
//! log.
#![expect(unsafe_code, reason = "the child half of a clone")]

use std::convert::Infallible;
use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr;
use std::time::Instant;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, SealFlag, fcntl};
use nix::sched::{CloneFlags, clone};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::prctl;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill, sigprocmask};
use nix::sys::wait::waitpid;
use nix::unistd::{AccessFlags, Pid, access, chdir, getpid, getppid, pipe2, setsid};

use super::cgroup::AttemptCgroup;
use super::clone::{Body, into_cgroup};
use super::ending::number;
use super::error::Error;
use super::host::OpenFiles;
use super::plan::{ATTEMPT_VARIABLE, MAX_ARGUMENT_BYTES, Plan};
use super::signal_scope::SignalScope;
use super::{pidfd, reap};

/// Stack of a child until its exec, in bytes. It calls a dozen thin wrappers; a debug build needs the most.
pub(super) const STACK_BYTES: usize = 256 * 1024;

/// The first descriptor after the three standard streams.
const FIRST_FILE: usize = 3;

/// Highest signal number, real-time signals included.
const LAST_SIGNAL: libc::c_int = 64;

/// Path at which a process finds the `index`-th content of [`Plan::files`].
pub fn file_path(index: usize) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", FIRST_FILE + index))
}

/// Arguments of a child's exec.
#[derive(Debug)]
pub(super) struct Image {
    program: CString,
    args: Vec<CString>,
    env: Vec<CString>,
    cwd: CString,
    /// The n-th becomes descriptor n. All have numbers above the targets, so that none is overwritten before its use.
    descriptors: Vec<OwnedFd>,
}

/// The daemon's ends of the child's pipes; stdin only if there is input.
#[derive(Debug)]
pub(super) struct OurEnds {
    pub(super) stdin: Option<OwnedFd>,
    pub(super) stdout: OwnedFd,
    pub(super) stderr: OwnedFd,
}

/// Failed step of a child.
#[derive(Debug, Clone, Copy)]
enum SetupStep {
    Settle,
    WorkingDirectory,
    Descriptors,
    Execute,
}

impl Image {
    /// Finds the program, opens pipes and files, and prepares all that the child needs.
    pub(super) fn prepare(plan: &Plan, tag: &str) -> Result<(Self, OurEnds), Error> {
        let name = plan.program.display().to_string();
        let program = find_program(plan)?;
        let text = |what: &str, text: &OsStr| {
            let (what, program) = (what.to_owned(), name.clone());
            let bytes = text.len();
            if bytes > MAX_ARGUMENT_BYTES {
                return Err(Error::TooLong {
                    what,
                    program,
                    bytes,
                    most: MAX_ARGUMENT_BYTES,
                });
            }
            // The name of the part is more useful than the byte position in the source error.
            CString::new(text.as_bytes()).map_err(|_position| Error::NulByte { what, program })
        };
        let mut args = vec![text("the name", plan.program.as_os_str())?];
        for (index, arg) in (1..).zip(&plan.args) {
            args.push(text(&format!("argument {index}"), arg)?);
        }
        let mut env = Vec::with_capacity(plan.env.len() + 1);
        for (variable, value) in &plan.env {
            if variable != ATTEMPT_VARIABLE {
                let mut entry = variable.clone();
                entry.push("=");
                entry.push(value);
                let what = format!("the variable `{}`", variable.display());
                env.push(text(&what, &entry)?);
            }
        }
        env.push(text(
            "the tag",
            OsStr::new(&format!("{ATTEMPT_VARIABLE}={tag}")),
        )?);
        let cwd = text("the working directory", plan.cwd.as_os_str())?;
        let program = text("the path", program.as_os_str())?;
        let (descriptors, ends) = open_descriptors(plan).map_err(|source| Error::Prepare {
            step: "open pipes and files",
            program: name.clone(),
            source,
        })?;
        let image = Self {
            program,
            args,
            env,
            cwd,
            descriptors,
        };
        Ok((image, ends))
    }

    /// Starts the child and returns once it executes the program. Must be called with all signals blocked, and by a
    /// thread that outlives the child.
    pub(super) fn start(
        self,
        stack: &mut [u8],
        (open_files, scope): (OpenFiles, Option<&SignalScope>),
        cgroup: Option<&AttemptCgroup>,
    ) -> Result<(Pid, OwnedFd, Instant), Error> {
        let child = Child {
            daemon: getpid(),
            args: pointers(&self.args),
            env: pointers(&self.env),
            image: &self,
            open_files,
            scope,
        };
        let mut failure = None;
        let mut run = || {
            let Err(failed) = child.run();
            failure = Some(failed);
            127
        };
        let directory = cgroup.map(AttemptCgroup::open).transpose();
        let directory = directory.map_err(|source| self.refused("open a cgroup", source))?;
        let started = Instant::now();
        let (pid, pidfd) = match directory {
            // SAFETY: as in `outside_cgroups`.
            Some(directory) => unsafe { into_cgroup(&mut run, stack, directory.as_fd()) }
                .map_err(|errno| self.failed("start a process in its cgroup", errno))?,
            None => self.outside_cgroups(&mut run, stack)?,
        };
        let Some((stage, errno)) = failure else {
            return Ok((pid, pidfd, started));
        };
        if let Err(error) = reap::child(pidfd.as_fd(), reap::Wait::UntilEnd) {
            tracing::warn!(%pid, %error, "a process that did not start could not be reaped");
        }
        Err(match stage {
            SetupStep::Settle => self.failed("settle a process", errno),
            SetupStep::Descriptors => self.failed("hand over descriptors", errno),
            SetupStep::WorkingDirectory => Error::WorkingDirectory {
                cwd: self.cwd.to_string_lossy().into_owned(),
                source: errno.into(),
            },
            SetupStep::Execute if errno == Errno::E2BIG => Error::TooLongTogether {
                program: self.name(),
                bytes: self
                    .args
                    .iter()
                    .chain(&self.env)
                    .map(|text| text.as_bytes_with_nul().len())
                    .sum(),
            },
            SetupStep::Execute => Error::Execute {
                program: self.name(),
                source: errno.into(),
            },
        })
    }

    /// Starts the child `run` in the cgroup of the daemon.
    fn outside_cgroups(
        &self,
        run: &mut Body<'_>,
        stack: &mut [u8],
    ) -> Result<(Pid, OwnedFd), Error> {
        let flags = CloneFlags::CLONE_VM | CloneFlags::CLONE_VFORK;
        let run = Box::new(|| isize::try_from(run()).expect("it is an exit code"));
        // SAFETY: the child has a stack of its own and runs while this thread is stopped. It allocates nothing, takes
        // no lock and runs no handler (all signals are blocked until all handlers are reset). It therefore changes no
        // memory but its stack, `errno` of this thread, and the failure, which is read only after the child is gone.
        let pid = unsafe { clone(run, stack, flags, Some(number(Signal::SIGCHLD))) };
        let pid = pid.map_err(|errno| self.failed("start a process", errno))?;
        // Only this code reaps the child: the pid is its own, even if it has ended by now.
        pidfd::open(pid.as_raw())
            .map(|pidfd| (pid, pidfd))
            .map_err(|errno| {
                let ended = kill(pid, Signal::SIGKILL).and_then(|()| waitpid(pid, None));
                if let Err(error) = ended {
                    tracing::warn!(%pid, %error, "a process without a handle could not be ended");
                }
                self.failed("open a handle on a process", errno)
            })
    }

    fn name(&self) -> String {
        self.program.to_string_lossy().into_owned()
    }

    fn failed(&self, step: &'static str, errno: Errno) -> Error {
        self.refused(step, errno.into())
    }

    pub(super) fn refused(&self, step: &'static str, source: io::Error) -> Error {
        Error::Prepare {
            step,
            program: self.name(),
            source,
        }
    }
}

/// Data of the child, prepared before it starts.
struct Child<'a> {
    daemon: Pid,
    args: Vec<*const libc::c_char>,
    env: Vec<*const libc::c_char>,
    image: &'a Image,
    open_files: OpenFiles,
    scope: Option<&'a SignalScope>,
}

impl Child<'_> {
    /// Executes the program; returns only on failure.
    fn run(&self) -> Result<Infallible, (SetupStep, Errno)> {
        let at = |stage| move |errno| (stage, errno);
        self.settle().map_err(at(SetupStep::Settle))?;
        chdir(self.image.cwd.as_c_str()).map_err(at(SetupStep::WorkingDirectory))?;
        self.take_descriptors()
            .map_err(at(SetupStep::Descriptors))?;
        reset_signals().map_err(at(SetupStep::Settle))?;
        // SAFETY: the path is NUL-terminated; both lists are NULL-terminated lists of NUL-terminated strings. The
        // caller owns all of them, and is stopped.
        unsafe {
            libc::execve(
                self.image.program.as_ptr(),
                self.args.as_ptr(),
                self.env.as_ptr(),
            )
        };
        Err((SetupStep::Execute, Errno::last()))
    }

    /// Creates a session and group, binds the child's life to the daemon's, and disables new privileges, signals to others and core dumps.
    fn settle(&self) -> Result<(), Errno> {
        setsid()?;
        prctl::set_pdeathsig(Signal::SIGKILL)?;
        if getppid() != self.daemon {
            // The daemon died before the signal was set.
            return Err(Errno::ESRCH);
        }
        prctl::set_no_new_privs()?;
        if let Some(scope) = self.scope {
            scope.restrict_self()?;
        }
        setrlimit(Resource::RLIMIT_CORE, 0, 0)?;
        let OpenFiles { soft, hard } = self.open_files;
        setrlimit(Resource::RLIMIT_NOFILE, soft, hard)
    }

    /// Moves each descriptor to its number and closes all others.
    fn take_descriptors(&self) -> Result<(), Errno> {
        let mut next: RawFd = 0;
        for descriptor in &self.image.descriptors {
            // SAFETY: the source is open. The target is a number in the child's own table, which has no owner yet.
            Errno::result(unsafe { libc::dup2(descriptor.as_raw_fd(), next) })?;
            next += 1;
        }
        let first = libc::c_uint::try_from(next).unwrap_or(libc::c_uint::MAX);
        // SAFETY: the table of descriptors is a copy: this closes nothing of the daemon's.
        let closed = unsafe { libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, 0) };
        match Errno::result(closed) {
            // Before Linux 5.9. All of the daemon's descriptors are close-on-exec anyway.
            Ok(_) | Err(Errno::ENOSYS) => Ok(()),
            Err(errno) => Err(errno),
        }
    }
}

/// Resets dispositions first, then the mask: a pending signal must not meet a handler of the daemon.
///
/// The C library refuses to touch the two signals it reserves, but an ignored one would still be inherited. So this
/// calls the kernel directly; a zeroed action is the default one with no flags.
fn reset_signals() -> Result<(), Errno> {
    const DEFAULT: [u64; 4] = [0; 4];
    const SET_BYTES: usize = 8;
    for signal in 1..=LAST_SIGNAL {
        let old = ptr::null_mut::<libc::c_void>();
        // SAFETY: the action is as large as the kernel's largest; the old action is not requested. The default action
        // runs no code of this program. The kernel refuses KILL and STOP, which is harmless.
        unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, &DEFAULT, old, SET_BYTES) };
    }
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)
}

/// Pointers for `execve`; valid as long as `texts`.
fn pointers(texts: &[CString]) -> Vec<*const libc::c_char> {
    texts
        .iter()
        .map(|text| text.as_ptr())
        .chain([ptr::null()])
        .collect()
}

/// Descriptors of the child in order, and the daemon's ends of its pipes.
fn open_descriptors(plan: &Plan) -> io::Result<(Vec<OwnedFd>, OurEnds)> {
    let (stdin, our_stdin) = if plan.stdin.is_empty() {
        (OwnedFd::from(File::open("/dev/null")?), None)
    } else {
        let (theirs, ours) = pipe2(OFlag::O_CLOEXEC)?;
        (theirs, Some(ours))
    };
    let (our_stdout, stdout) = pipe2(OFlag::O_CLOEXEC)?;
    let (our_stderr, stderr) = pipe2(OFlag::O_CLOEXEC)?;
    let mut descriptors = vec![stdin, stdout, stderr];
    for content in &plan.files {
        descriptors.push(sealed(content)?);
    }
    let floor = RawFd::try_from(descriptors.len()).unwrap_or(RawFd::MAX);
    let descriptors = descriptors
        .into_iter()
        .map(|descriptor| above(descriptor, floor))
        .collect::<Result<_, _>>()?;
    let ends = OurEnds {
        stdin: our_stdin,
        stdout: our_stdout,
        stderr: our_stderr,
    };
    Ok((descriptors, ends))
}

/// A sealed memory file with `content`.
pub(super) fn sealed(content: &[u8]) -> io::Result<OwnedFd> {
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    let mut file = File::from(memfd_create(c"rye-verified", flags)?);
    file.write_all(content)?;
    file.rewind()?;
    fcntl(&file, FcntlArg::F_ADD_SEALS(SealFlag::all()))?;
    Ok(file.into())
}

/// `descriptor`, or a copy of it, with a number of at least `floor`; close-on-exec.
fn above(descriptor: OwnedFd, floor: RawFd) -> io::Result<OwnedFd> {
    if descriptor.as_raw_fd() >= floor {
        return Ok(descriptor);
    }
    let copy = fcntl(&descriptor, FcntlArg::F_DUPFD_CLOEXEC(floor))?;
    // SAFETY: the kernel has just returned this descriptor; it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

/// Path of the program: one of the plan's own files; or a path with a slash, relative to the plan's directory; else the
/// first executable file of that name in the plan's `PATH`.
fn find_program(plan: &Plan) -> Result<PathBuf, Error> {
    let not_found = |looked_for: &[PathBuf]| {
        let paths: Vec<String> = looked_for
            .iter()
            .map(|path| format!("`{}`", path.display()))
            .collect();
        Error::ProgramNotFound {
            program: plan.program.display().to_string(),
            looked_for: if paths.is_empty() {
                "it nowhere: its environment has no PATH".to_owned()
            } else {
                paths.join(", ")
            },
        }
    };
    if (0..plan.files.len()).any(|index| plan.program == file_path(index)) {
        return Ok(plan.program.clone());
    }
    if plan.program.as_os_str().as_bytes().contains(&b'/') {
        let path = plan.cwd.join(&plan.program);
        return if path.exists() {
            Ok(path)
        } else {
            Err(not_found(&[path]))
        };
    }
    let search = plan
        .env
        .iter()
        .find(|(variable, _)| variable == "PATH")
        .map_or_else(Vec::new, |(_, path)| {
            std::env::split_paths(path)
                .map(|directory| plan.cwd.join(directory).join(&plan.program))
                .collect()
        });
    search
        .iter()
        .find(|path| is_executable(path))
        .cloned()
        .ok_or_else(|| not_found(&search))
}

fn is_executable(path: &Path) -> bool {
    path.is_file() && access(path, AccessFlags::X_OK).is_ok()
}
