//! A shim of version 1 of the protocol, as an earlier build of the daemon left it running. **Frozen**: what it writes
//! and answers never changes. A later version of the protocol gets a program of its own beside it.
//!
//! `shim-v1 DIRECTORY ATTEMPT TAG COMMAND` keeps the shell command as the shim of a managed process.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Read, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde_json::{Value, json};

/// The log, and those who follow it.
struct Output {
    file: File,
    position: u64,
    attempt: String,
    followers: Vec<UnixStream>,
}

fn main() -> io::Result<()> {
    let mut args = std::env::args().skip(1);
    let mut next = || {
        args.next()
            .ok_or_else(|| io::Error::other("four arguments"))
    };
    let (directory, attempt) = (PathBuf::from(next()?), next()?);
    let (tag, command) = (next()?, next()?);
    let lock = File::create(directory.join("lock"))?;
    lock.lock()?;
    for old in ["status.json", "ctl"] {
        drop(fs::remove_file(directory.join(old)));
    }
    std::env::set_current_dir(&directory)?;
    let socket = UnixListener::bind("ctl")?;
    let number: u32 = attempt.parse().map_err(io::Error::other)?;
    let mut record = json!({
        "v": 1, "attempt": number, "tag": tag, "pid": std::process::id(), "start_time": start_time(std::process::id())?,
        "boot_id": boot_id()?,
    });
    replace(&directory, "shim.json", &record)?;
    let begun = Instant::now();
    #[expect(
        clippy::disallowed_methods,
        reason = "this program stands for one that starts processes"
    )]
    let mut child = Command::new("/bin/bash")
        .args(["-c", &command])
        .env("RYE_ATTEMPT", &tag)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()?;
    record["child"] =
        json!({"pid": child.id(), "start_time": start_time(child.id())?, "boot_id": boot_id()?});
    replace(&directory, "shim.json", &record)?;
    let output = Arc::new(Mutex::new(Output {
        file: OpenOptions::new()
            .append(true)
            .create(true)
            .open("out.log")?,
        position: last_position(&directory),
        attempt,
        followers: Vec::new(),
    }));
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let readers = [
        stdout.map(|pipe| copy(pipe, "o", &output)),
        stderr.map(|pipe| copy(pipe, "e", &output)),
    ];
    let group = Pid::from_raw(i32::try_from(child.id()).map_err(io::Error::other)?);
    let stopped = Arc::new(Mutex::new(None));
    let (kept, asked) = (Arc::clone(&output), Arc::clone(&stopped));
    detach(move || {
        for stream in socket.incoming().flatten() {
            let (kept, asked) = (Arc::clone(&kept), Arc::clone(&asked));
            detach(move || drop(converse(stream, group, &kept, &asked)));
        }
    });
    let status = child.wait()?;
    for reader in readers.into_iter().flatten() {
        drop(reader.join());
    }
    let stopped: Option<u64> = *stopped.lock().expect("no thread panics");
    let mut end = json!({
        "v": 1, "attempt": number, "pid": child.id(), "wall_ms": begun.elapsed().as_millis(), "cpu_ms": 0,
        "stdout_bytes": 0, "stderr_bytes": 0, "receipt": {"processes": [], "survivors": [], "complete": false},
    });
    match (status.code(), status.signal()) {
        (Some(code), _) => end["exit_code"] = json!(code),
        (None, signal) => end["signal"] = json!(signal),
    }
    if let Some(grace) = stopped {
        let grace = Duration::from_millis(grace);
        end["stopped"] =
            json!({"kill": {"grace": {"secs": grace.as_secs(), "nanos": grace.subsec_nanos()}}});
    }
    replace(&directory, "status.json", &end)
}

fn detach(work: impl FnOnce() + Send + 'static) {
    drop(thread::Builder::new().spawn(work));
}

/// Signals a group that may have ended.
fn end(group: Pid, signal: Signal) {
    let _gone = killpg(group, signal);
}

fn copy(
    pipe: impl Read + Send + 'static,
    letter: &'static str,
    output: &Arc<Mutex<Output>>,
) -> thread::JoinHandle<()> {
    let output = Arc::clone(output);
    let work = move || {
        for line in BufReader::new(pipe).split(b'\n').map_while(Result::ok) {
            let mut output = output.lock().expect("no thread panics");
            output.position += u64::try_from(line.len()).unwrap_or_default() + 1;
            #[expect(
                clippy::disallowed_methods,
                reason = "the program has no clock of the daemon"
            )]
            let now = SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default();
            let head = format!(
                "{} {} {} {letter} ",
                output.position,
                now.as_millis(),
                output.attempt
            );
            let text = [head.as_bytes(), &line, b"\n"].concat();
            drop(output.file.write_all(&text));
            output.followers.retain_mut(|follower| {
                follower
                    .write_all(b"{\"v\":1,\"output\":\"more\"}\n")
                    .is_ok()
            });
        }
    };
    thread::Builder::new().spawn(work).expect("a thread starts")
}

fn converse(
    stream: UnixStream,
    group: Pid,
    output: &Mutex<Output>,
    stopped: &Mutex<Option<u64>>,
) -> io::Result<()> {
    let mut writer = stream.try_clone()?;
    for line in BufReader::new(stream).lines() {
        let request: Value = serde_json::from_str(&line?).unwrap_or_default();
        let answer: &[u8] = match request["request"].as_str() {
            Some("stop") => {
                let grace = request["grace_ms"].as_u64().unwrap_or_default();
                *stopped.lock().expect("no thread panics") = Some(grace);
                end(group, Signal::SIGTERM);
                detach(move || {
                    thread::sleep(Duration::from_millis(grace));
                    end(group, Signal::SIGKILL);
                });
                b"{\"v\":1,\"state\":\"stopping\"}\n"
            }
            Some("kill") => {
                *stopped.lock().expect("no thread panics") = Some(0);
                end(group, Signal::SIGKILL);
                b"{\"v\":1,\"state\":\"stopping\"}\n"
            }
            Some("follow") => {
                let follower = writer.try_clone()?;
                output
                    .lock()
                    .expect("no thread panics")
                    .followers
                    .push(follower);
                b"{\"v\":1,\"state\":\"running\"}\n"
            }
            Some("status") => b"{\"v\":1,\"state\":\"running\"}\n",
            _ => b"{\"v\":1,\"error\":\"unknown_request\"}\n",
        };
        writer.write_all(answer)?;
    }
    Ok(())
}

fn replace(directory: &Path, name: &str, content: &Value) -> io::Result<()> {
    let draft = directory.join(format!("{name}.tmp"));
    let mut file = File::create(&draft)?;
    file.write_all(content.to_string().as_bytes())?;
    file.sync_all()?;
    fs::rename(draft, directory.join(name))
}

fn last_position(directory: &Path) -> u64 {
    let log = fs::read_to_string(directory.join("out.log")).unwrap_or_default();
    let last = log.lines().last().and_then(|line| line.split(' ').next());
    last.and_then(|position| position.parse().ok())
        .unwrap_or_default()
}

fn boot_id() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?
        .trim()
        .to_owned())
}

fn start_time(pid: u32) -> io::Result<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields = stat.rsplit_once(')').map(|(_, fields)| fields);
    let time = fields.and_then(|fields| fields.split_ascii_whitespace().nth(19)?.parse().ok());
    time.ok_or_else(|| io::Error::other("/proc/PID/stat has no start time"))
}
