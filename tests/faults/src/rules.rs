//! Rules of the faults. They are read when their file changes, and applied to every call.

use std::cell::Cell;
use std::env;
use std::ffi::{CString, c_int};
use std::fmt::Write as _;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// Effect of a rule on a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The call fails with this error.
    Error(c_int),
    /// Half of the bytes are written.
    Short,
    /// The wall clock is off by this number of seconds.
    Seconds(i64),
    /// The call has waited for other rules and is made now.
    Hang,
}

#[derive(Debug)]
struct Rule {
    text: String,
    call: String,
    /// A part of the path; empty for any path.
    part: String,
    fault: Fault,
    left: u64,
    has_fired: bool,
}

/// Inode, size and modification time, which identify a version of the file.
type Version = (u64, i64, i64, i64);

#[derive(Debug, Default)]
struct Rules {
    version: Version,
    rules: Vec<Rule>,
}

/// Returns the path of the file of rules, if there is one.
fn file() -> Option<&'static str> {
    static FILE: OnceLock<Option<String>> = OnceLock::new();
    #[expect(
        clippy::disallowed_methods,
        reason = "it is loaded into a program, and this is how that tells it anything"
    )]
    let named = FILE.get_or_init(|| env::var("RYE_FAULTS").ok());
    named.as_deref()
}

thread_local! {
    /// True while this thread evaluates the rules: calls that this makes are not subject to them.
    static IS_EVALUATING: Cell<bool> = const { Cell::new(false) };
}

/// Returns the fault of a call on the descriptor `fd`, whose path is read from `/proc`.
pub(crate) fn fault_of_descriptor(call: &str, fd: c_int) -> Option<Fault> {
    find(call, || {
        let link = std::fs::read_link(format!("/proc/self/fd/{fd}"));
        link.map_or_else(
            |_| String::new(),
            |path| path.to_string_lossy().into_owned(),
        )
    })
}

/// Returns the fault of a call that names `path`.
pub(crate) fn fault_of_path(call: &str, path: &str) -> Option<Fault> {
    find(call, || path.to_owned())
}

fn find(call: &str, path: impl FnOnce() -> String) -> Option<Fault> {
    static RULES: Mutex<Option<Rules>> = Mutex::new(None);
    let file = file()?;
    if IS_EVALUATING.replace(true) {
        return None;
    }
    let (fault, asked) = {
        let mut rules = RULES.lock().unwrap_or_else(PoisonError::into_inner);
        let rules = rules.get_or_insert_default();
        rules.read_again(file);
        (rules.apply(file, call, path), rules.version)
    };
    if fault == Some(Fault::Hang) {
        while version(file) == asked {
            std::thread::sleep(LOOK_AGAIN);
        }
    }
    IS_EVALUATING.set(false);
    fault
}

/// Interval at which a call that hangs checks for other rules.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

impl Rules {
    fn read_again(&mut self, file: &str) {
        let version = version(file);
        if version == self.version {
            return;
        }
        self.version = version;
        let text = std::fs::read_to_string(file).unwrap_or_default();
        self.rules = text.lines().filter_map(Rule::parse).collect();
    }

    fn apply(&mut self, file: &str, call: &str, path: impl FnOnce() -> String) -> Option<Fault> {
        if !self
            .rules
            .iter()
            .any(|rule| rule.call == call && rule.left > 0)
        {
            return None;
        }
        let path = path();
        let rule = self
            .rules
            .iter_mut()
            .find(|rule| rule.call == call && rule.left > 0 && path.contains(&rule.part))?;
        rule.left -= 1;
        // A program reads the clock all the time, so only the first reading is noted.
        if !(rule.has_fired && matches!(rule.fault, Fault::Seconds(_))) {
            rule.has_fired = true;
            note(file, &rule.text, &path);
        }
        Some(rule.fault)
    }
}

impl Rule {
    /// Returns `None` for an empty line. Aborts the program at an invalid rule, so that no test passes because of it.
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace();
        let (call, part, fault) = (words.next()?, words.next(), words.next());
        let times = words
            .next()
            .map_or(Some(u64::MAX), |times| times.parse().ok());
        match (part, fault.and_then(Fault::parse), times) {
            (Some(part), Some(fault), Some(left)) => Some(Self {
                text: line.trim().to_owned(),
                call: call.to_owned(),
                part: part.trim_matches('*').to_owned(),
                fault,
                left,
                has_fired: false,
            }),
            _ => std::process::abort(),
        }
    }
}

impl Fault {
    fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "EIO" => Self::Error(libc::EIO),
            "ENOSPC" => Self::Error(libc::ENOSPC),
            "EMFILE" => Self::Error(libc::EMFILE),
            "ENFILE" => Self::Error(libc::ENFILE),
            "ENOMEM" => Self::Error(libc::ENOMEM),
            "short" => Self::Short,
            "hang" => Self::Hang,
            seconds => Self::Seconds(seconds.parse().ok()?),
        })
    }
}

#[expect(
    unsafe_code,
    reason = "what the C library is asked directly cannot come back here"
)]
fn version(file: &str) -> Version {
    let Ok(path) = CString::new(file) else {
        return Version::default();
    };
    let mut found = std::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: the path is NUL-terminated, and there is room for the answer.
    let result = unsafe { libc::stat(path.as_ptr(), found.as_mut_ptr()) };
    if result != 0 {
        return Version::default();
    }
    // SAFETY: all zeros is a valid `stat`, and the kernel has filled it.
    let found = unsafe { found.assume_init() };
    (
        found.st_ino,
        found.st_size,
        found.st_mtime,
        found.st_mtime_nsec,
    )
}

/// Appends a rule that fired to `<file>.fired`.
fn note(file: &str, rule: &str, path: &str) {
    use std::io::Write as _;
    let mut line = String::new();
    let written = writeln!(line, "{rule} : {path}");
    let opened = std::fs::File::options()
        .create(true)
        .append(true)
        .open(format!("{file}.fired"));
    if let (Ok(()), Ok(mut file)) = (written, opened) {
        drop(file.write_all(line.as_bytes()));
    }
}
