//! Programs that try to outlive the attempt that started them, one per shape.
//!
//! ```text
//! zoo                              prints the names of the shapes
//! zoo SHAPE MARKER ends|stays      makes the processes of the shape; then the leader ends, or waits
//! zoo tree MARKER ends|stays SEED  makes a random tree of processes
//! ```
//!
//! `MARKER` is an absolute path. It is an argument of each process, so a test finds the processes by
//! `/proc/<pid>/cmdline`. Each process adds a byte to that file once it has its final form. When all have, the leader
//! creates `<MARKER>.ready`; its text is the reason if this host refuses the shape. Every process ends by itself after
//! [`LIFE`]. Lines of processes that fork and end, which no test can signal, end once `<MARKER>.end` exists.
#![expect(
    unsafe_code,
    clippy::exit,
    clippy::panic,
    clippy::print_stdout,
    reason = "a program of one thread that forks; its children end without a return to `main`"
)]

mod tree;

use std::ffi::CString;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::path::Path;
use std::process::exit;
use std::thread;
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl;
use nix::sys::signal::{SigHandler, Signal, kill, raise, signal};
use nix::unistd::{ForkResult, Pid, close, execve, fork, getpid, setpgid, setsid};

/// Longest life of a process, so that a failed test leaves nothing for long.
const LIFE: Duration = Duration::from_mins(2);
/// Longest wait for the processes of a shape to take their form.
const FORMATION: Duration = Duration::from_mins(1);
/// Size of the shapes that have many processes.
const MANY: usize = 200;
/// Size of the farm of zombies.
const ZOMBIES: usize = 50;
/// Life of one process of a storm.
const GUST: Duration = Duration::from_millis(8);
/// Highest descriptor that the shape without descriptors closes.
const MOST_DESCRIPTORS: i32 = 1024;

/// Signals that end a process by default.
const FATAL: [Signal; 20] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGILL,
    Signal::SIGTRAP,
    Signal::SIGABRT,
    Signal::SIGBUS,
    Signal::SIGFPE,
    Signal::SIGKILL,
    Signal::SIGUSR1,
    Signal::SIGSEGV,
    Signal::SIGUSR2,
    Signal::SIGPIPE,
    Signal::SIGALRM,
    Signal::SIGTERM,
    Signal::SIGXCPU,
    Signal::SIGXFSZ,
    Signal::SIGVTALRM,
    Signal::SIGIO,
    Signal::SIGSYS,
];

/// Makes the processes of a shape. Returns the number of bytes that they add to the file of the marker.
type Form = fn(&Zoo) -> usize;

/// Work of a process that [`Zoo::bare`] started.
type Role = fn(&Zoo);

const SHAPES: [(&str, Form); 18] = [
    ("bare-session", bare_session),
    ("double-fork", double_fork),
    ("no-descriptors", no_descriptors),
    ("ignores-signals", ignores_signals),
    ("own-group", own_group),
    ("stopped", stopped),
    ("fatal-signals", fatal_signals),
    ("zombies", zombies),
    ("grandchildren", grandchildren),
    ("storm", storm),
    ("storm-of-sessions", storm_of_sessions),
    ("holds-output", holds_output),
    ("bare-holds-output", bare_holds_output),
    ("bare-crowd", bare_crowd),
    ("bare-runner", bare_runner),
    ("subreaper", subreaper),
    ("pid-namespace", pid_namespace),
    ("daemonised", daemonised),
];

const ROLES: [(&str, Role); 5] = [
    ("rest", |zoo| zoo.rest()),
    ("orphan", |zoo| {
        zoo.child(|| zoo.rest());
    }),
    ("crowd", |zoo| {
        for _ in 0..MANY {
            zoo.child(|| zoo.rest());
        }
        zoo.rest()
    }),
    ("runner", |zoo| {
        zoo.ready();
        while zoo.is_young() {
            let between = zoo.child(|| {
                zoo.child_apart(|| zoo.bare("gust", &[]));
            });
            wait_for(between);
            thread::sleep(GUST * 4);
        }
    }),
    ("gust", |_| thread::sleep(GUST * 16)),
];

/// One process: its marker, and the mode of the leader.
#[derive(Debug, Clone)]
struct Zoo {
    marker: String,
    mode: String,
    began: Instant,
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let zoo = |marker: &str, mode: &str| Zoo {
        marker: marker.to_owned(),
        mode: mode.to_owned(),
        began: Instant::now(),
    };
    match words[1..] {
        [] => {
            for (name, _) in SHAPES {
                println!("{name}");
            }
        }
        ["tree", marker, mode, seed] => tree::grow(&zoo(marker, mode), seed),
        ["node", marker, mode, seed, node] => tree::become_node(&zoo(marker, mode), seed, node),
        [name, marker, mode] => {
            let zoo = zoo(marker, mode);
            if let Some((_, role)) = ROLES.iter().find(|(role, _)| *role == name) {
                return role(&zoo);
            }
            let shape = SHAPES.iter().find(|(shape, _)| *shape == name);
            let (_, form) = shape.expect("the argument names a shape");
            zoo.lead(form(&zoo));
            if name == "fatal-signals" {
                die_by(Signal::SIGSEGV);
            }
        }
        _ => panic!("usage: zoo [SHAPE MARKER ends|stays]"),
    }
}

impl Zoo {
    /// Waits until the `expected` bytes are there, and reports that. Then the leader ends or waits.
    fn lead(&self, expected: usize) {
        self.wait_until_ready(expected);
        self.report("");
        if self.mode == "stays" {
            self.sleep();
        }
    }

    /// Ends the wait of the test, with the reason if the shape was refused.
    fn report(&self, refusal: &str) {
        let draft = format!("{}.draft", self.marker);
        fs::write(&draft, refusal).expect("the directory of the marker exists");
        fs::rename(draft, format!("{}.ready", self.marker)).expect("the draft was just written");
    }

    fn wait_until_ready(&self, expected: usize) {
        let expected = u64::try_from(expected).expect("a shape is small");
        let deadline = Instant::now() + FORMATION;
        while fs::metadata(&self.marker).map_or(0, |found| found.len()) < expected {
            assert!(Instant::now() < deadline, "the shape is not formed in time");
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Reports that this process has its final form.
    fn ready(&self) {
        let file = File::options().create(true).append(true).open(&self.marker);
        let written = file.and_then(|mut file| file.write_all(b"x"));
        written.expect("the file of the marker takes a byte");
    }

    /// True until the end of its life, or until the test creates `<MARKER>.end`.
    fn is_young(&self) -> bool {
        let is_ended = || Path::new(&format!("{}.end", self.marker)).exists();
        self.began.elapsed() < LIFE && !is_ended()
    }

    /// Waits for the end of its life.
    fn wait(&self) {
        while self.is_young() {
            thread::sleep(LIFE.saturating_sub(self.began.elapsed()));
        }
    }

    /// Does nothing for the rest of its life.
    fn sleep(&self) -> ! {
        self.wait();
        exit(0)
    }

    fn rest(&self) -> ! {
        self.ready();
        self.sleep()
    }

    /// Starts a process that runs `body`.
    #[expect(clippy::unused_self, reason = "a child belongs to the shape")]
    fn child(&self, body: impl FnOnce()) -> Pid {
        // SAFETY: the process has one thread, so the child may do whatever it may do.
        match unsafe { fork() }.expect("the system takes a process") {
            ForkResult::Parent { child } => child,
            ForkResult::Child => {
                body();
                exit(0)
            }
        }
    }

    /// Starts a process in a session of its own.
    fn child_apart(&self, body: impl FnOnce()) -> Pid {
        self.child(|| {
            let _session = setsid().expect("a child leads no group");
            body();
        })
    }

    /// Executes this program again, without an environment.
    fn bare(&self, role: &str, more: &[&str]) -> ! {
        let words = ["zoo", role, &self.marker, &self.mode];
        let words = words.iter().chain(more);
        let args: Vec<CString> = words
            .map(|word| CString::new(*word).expect("an argument has no NUL"))
            .collect();
        let nothing: [CString; 0] = [];
        let failed = execve(c"/proc/self/exe", &args, &nothing);
        panic!("this program cannot be executed again: {failed:?}")
    }
}

fn wait_for(child: Pid) {
    let _ended = nix::sys::wait::waitpid(child, None);
}

/// Closes the standard streams, which the daemon may wait for.
fn close_streams() {
    close_below(3);
}

/// Closes all descriptors below `end`.
fn close_below(end: i32) {
    for fd in 0..end {
        let _or_was_not_open = close(fd);
    }
}

/// Ignores all signals that can be ignored.
fn ignore_signals() {
    for ignored in FATAL {
        // SAFETY: no code of this program runs at the signal.
        let _or_cannot = unsafe { signal(ignored, SigHandler::SigIgn) };
    }
}

/// Ends this process by `fatal`, whatever its disposition was.
fn die_by(fatal: Signal) -> ! {
    // SAFETY: the default action runs no code of this program.
    let _or_cannot = unsafe { signal(fatal, SigHandler::SigDfl) };
    raise(fatal).expect("a process may signal itself");
    unreachable!("{fatal} ends a process")
}

fn bare_session(zoo: &Zoo) -> usize {
    zoo.child_apart(|| {
        close_streams();
        zoo.bare("rest", &[])
    });
    1
}

fn double_fork(zoo: &Zoo) -> usize {
    let between = zoo.child_apart(|| {
        close_streams();
        zoo.child(|| zoo.rest());
    });
    wait_for(between);
    1
}

fn no_descriptors(zoo: &Zoo) -> usize {
    zoo.child_apart(|| {
        zoo.ready();
        close_below(MOST_DESCRIPTORS);
        zoo.sleep()
    });
    1
}

fn ignores_signals(zoo: &Zoo) -> usize {
    ignore_signals();
    zoo.child(|| zoo.rest());
    zoo.child_apart(|| {
        close_streams();
        zoo.rest()
    });
    2
}

fn own_group(zoo: &Zoo) -> usize {
    zoo.child(|| {
        setpgid(Pid::from_raw(0), Pid::from_raw(0)).expect("a child may lead a group");
        close_streams();
        zoo.rest()
    });
    1
}

/// A process that stopped itself gets no signal but KILL and CONT, so another one ends it after its life.
fn stopped(zoo: &Zoo) -> usize {
    ignore_signals();
    let stopped = zoo.child_apart(|| {
        close_streams();
        zoo.ready();
        raise(Signal::SIGSTOP).expect("a process may signal itself");
    });
    zoo.child(|| {
        close_streams();
        zoo.ready();
        zoo.wait();
        let _or_is_gone = kill(stopped, Signal::SIGKILL);
    });
    2
}

/// Each process that dies leaves a child.
fn fatal_signals(zoo: &Zoo) -> usize {
    for fatal in FATAL {
        let dead = zoo.child(|| {
            close_streams();
            zoo.child(|| zoo.rest());
            die_by(fatal)
        });
        wait_for(dead);
    }
    FATAL.len()
}

/// Two processes with children that they never wait for; one of them is in another session.
fn zombies(zoo: &Zoo) -> usize {
    let sow = || {
        for _ in 0..ZOMBIES {
            zoo.child(|| zoo.ready());
        }
    };
    sow();
    zoo.child_apart(|| {
        close_streams();
        sow();
        zoo.rest()
    });
    2 * ZOMBIES + 1
}

fn grandchildren(zoo: &Zoo) -> usize {
    let children = MANY / 10;
    for _ in 0..children {
        zoo.child(|| {
            close_streams();
            for _ in 0..MANY / children {
                zoo.child(|| zoo.rest());
            }
            zoo.rest()
        });
    }
    MANY + children
}

/// Lines of processes, each of which forks the next one and ends.
fn storm(zoo: &Zoo) -> usize {
    zoo.child(|| blow(zoo, &|| {}));
    zoo.child(|| blow(zoo, &|| {}));
    2
}

fn storm_of_sessions(zoo: &Zoo) -> usize {
    let apart = || {
        let _session = setsid().expect("a child leads no group");
    };
    zoo.child(|| blow(zoo, &apart));
    zoo.child(|| blow(zoo, &apart));
    2
}

fn blow(zoo: &Zoo, settle: &dyn Fn()) {
    close_streams();
    zoo.ready();
    while zoo.is_young() {
        settle();
        thread::sleep(GUST);
        // SAFETY: the process has one thread.
        match unsafe { fork() } {
            Ok(ForkResult::Parent { .. }) => exit(0),
            Ok(ForkResult::Child) | Err(_) => {}
        }
    }
}

fn holds_output(zoo: &Zoo) -> usize {
    zoo.child_apart(|| zoo.rest());
    1
}

fn bare_holds_output(zoo: &Zoo) -> usize {
    zoo.child_apart(|| zoo.bare("rest", &[]));
    1
}

/// Its processes are orphans of one that has no environment, and have none either.
fn bare_crowd(zoo: &Zoo) -> usize {
    zoo.child_apart(|| {
        close_streams();
        zoo.bare("crowd", &[])
    });
    MANY + 1
}

/// A process that starts others until it ends, all of them without an environment and each in a session of its own.
fn bare_runner(zoo: &Zoo) -> usize {
    zoo.child_apart(|| {
        close_streams();
        zoo.bare("runner", &[])
    });
    1
}

/// It adopts the orphans below it in place of the daemon's parent.
fn subreaper(zoo: &Zoo) -> usize {
    zoo.child_apart(|| {
        close_streams();
        prctl::set_child_subreaper(true).expect("a process may adopt orphans");
        zoo.child_apart(|| zoo.bare("orphan", &[]));
        zoo.rest()
    });
    2
}

/// The first process of a namespace, and one below it.
fn pid_namespace(zoo: &Zoo) -> usize {
    let spaces = if nix::unistd::geteuid().is_root() {
        CloneFlags::CLONE_NEWPID
    } else {
        CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWPID
    };
    if let Err(refused) = unshare(spaces) {
        zoo.report(&format!("no pid namespace: {refused}"));
        exit(0);
    }
    zoo.child_apart(|| {
        assert_eq!(getpid(), Pid::from_raw(1));
        close_streams();
        zoo.child_apart(|| zoo.bare("rest", &[]));
        zoo.rest()
    });
    2
}

/// As a service makes itself independent of its terminal.
fn daemonised(zoo: &Zoo) -> usize {
    let first = zoo.child_apart(|| {
        zoo.child(|| {
            std::env::set_current_dir("/").expect("there is a root");
            close_below(MOST_DESCRIPTORS);
            let null = File::options().read(true).write(true).open("/dev/null");
            let null = null.expect("there is a null device");
            // SAFETY: the descriptor is open as long as `null`.
            let null = unsafe { BorrowedFd::borrow_raw(null.as_raw_fd()) };
            for _ in 0..2 {
                let copy = null.try_clone_to_owned().expect("two more descriptors");
                std::mem::forget(copy);
            }
            zoo.bare("rest", &[])
        });
    });
    wait_for(first);
    1
}
