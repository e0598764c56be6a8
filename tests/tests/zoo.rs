//! Processes of many shapes (`tests/zoo`) that try to outlive the attempt that started them, at each end of it.

mod kills;
mod recycler;
mod trees;

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;

use nix::sys::signal::Signal;
use rye_tests::command::program;
use rye_tests::user::{Subtree, User};
use rye_tests::{Daemon, Ryectl, World, processes, skipped, until};
use serde_json::{Value, json};

use recycler::Recycler;

/// The program.
const PROGRAM: &str = env!("CARGO_BIN_EXE_zoo");
/// Time limit of the commands that end by it, in seconds. Their processes take their form before.
const TIMEOUT: f64 = 4.0;
/// Time between TERM and KILL of a kill, in seconds.
const GRACE: &str = "0.3";

/// What a host without cgroups finds of a shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// All of it, at each end: it has the tag of the attempt, or its session.
    Always,
    /// All of it if the leader is stopped, because it is below the leader then.
    WhenStopped,
    /// Only what is left when the daemon ends.
    WithDaemon,
}

const SHAPES: [(&str, Reach); 18] = [
    ("bare-session", Reach::WhenStopped),
    ("double-fork", Reach::Always),
    ("no-descriptors", Reach::Always),
    ("ignores-signals", Reach::Always),
    ("own-group", Reach::Always),
    ("stopped", Reach::Always),
    ("fatal-signals", Reach::Always),
    ("zombies", Reach::Always),
    ("grandchildren", Reach::Always),
    ("storm", Reach::Always),
    // Each of its processes is gone before it can be signalled.
    ("storm-of-sessions", Reach::WithDaemon),
    ("holds-output", Reach::Always),
    ("bare-holds-output", Reach::WhenStopped),
    ("bare-crowd", Reach::WhenStopped),
    ("bare-runner", Reach::WithDaemon),
    ("subreaper", Reach::WhenStopped),
    ("pid-namespace", Reach::Always),
    ("daemonised", Reach::WithDaemon),
];

/// Shapes whose processes change all the time.
const STORMS: [&str; 3] = ["storm", "storm-of-sessions", "bare-runner"];

/// End of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Exit,
    Timeout,
    Cancel,
    Kill,
}

const ENDS: [End; 4] = [End::Exit, End::Timeout, End::Cancel, End::Kill];

/// One daemon, and the way to call it.
struct Host<'w> {
    world: &'w World,
    /// The user of the daemon, if it is another one.
    user: Option<User<'w>>,
    has_cgroups: bool,
    recycler: Recycler,
}

/// A shape whose processes are there.
#[derive(Debug)]
struct Formed {
    run: String,
    marker: PathBuf,
    /// False if this host refuses the shape.
    is_there: bool,
}

impl<'w> Host<'w> {
    fn new(world: &'w World, has_cgroups: bool) -> Self {
        fs::create_dir(world.root().join("zoo")).unwrap();
        Self {
            world,
            user: None,
            has_cgroups,
            recycler: Recycler::start(),
        }
    }

    fn ryectl(&self, words: &str) -> Ryectl {
        match &self.user {
            Some(user) => user.ryectl(words),
            None => self.world.ryectl(words),
        }
    }

    /// Starts the program with a shape, and waits until its processes are there, or a timeout has ended them.
    fn form(&self, shape: &str, end: End, rest: &str) -> Formed {
        let marker = self.world.root().join(format!("zoo/{shape}-{end:?}"));
        let leader = if end == End::Exit { "ends" } else { "stays" };
        let program = match &self.user {
            Some(_) => self.world.root().join("zoo-program"),
            None => PathBuf::from(PROGRAM),
        };
        let command = format!(
            "command=exec {} {shape} {} {leader} {rest}",
            program.display(),
            marker.display()
        );
        let timeout = if end == End::Timeout { TIMEOUT } else { 300.0 };
        let call = self.ryectl("run --detach rye/bash -i").arg(command);
        let run = call.arg("-i").arg(format!("timeout={timeout}")).ok().line();
        let ready = marker.with_added_extension("ready");
        let refusal = until(&format!("the shape {shape}"), || {
            fs::read_to_string(&ready).ok()
        });
        if !refusal.is_empty() {
            skipped(&format!("{shape}: {refusal}"));
        }
        Formed {
            run,
            marker,
            is_there: refusal.is_empty(),
        }
    }

    /// Ends a formed shape. Returns the receipt of a kill.
    fn end(&self, formed: &Formed, end: End) -> Option<Value> {
        let mut receipt = None;
        match end {
            End::Exit | End::Timeout => {}
            End::Cancel => drop(self.ryectl("cancel").arg(&formed.run).ok()),
            End::Kill => {
                let killed = self.ryectl("kill --json --grace").arg(GRACE);
                receipt = Some(killed.arg(&formed.run).ok().json());
            }
        }
        let _ended = self.ryectl("wait --timeout 120").arg(&formed.run).run();
        receipt
    }

    /// Forms the shape, ends it, and checks that the processes that should be gone are gone.
    fn check(&self, shape: &str, reach: Reach, end: End) {
        let formed = self.form(shape, end, "");
        let before = processes::with_argument(&formed.marker);
        self.recycler.watch(&before);
        let receipt = self.end(&formed, end);
        if !formed.is_there {
            return;
        }
        let left = processes::with_argument(&formed.marker);
        let is_found = self.has_cgroups
            || reach == Reach::Always
            || (reach == Reach::WhenStopped && end != End::Exit);
        assert!(left.is_empty() || !is_found, "{shape} {end:?}: {left:?}");
        // They would slow the other shapes down.
        end_survivors(&formed.marker, &self.recycler);
        if let Some(receipt) = receipt {
            let what = format!("{shape} {end:?}: {receipt}");
            assert_eq!(receipt["complete"], self.has_cgroups, "{what}");
            if is_found {
                assert_eq!(receipt["survivors"], json!([]), "{what}");
            }
            if self.has_cgroups && !STORMS.contains(&shape) {
                let ended = receipt["processes"].as_array().unwrap();
                let names = |pid: &i32| ended.iter().any(|process| process["pid"] == *pid);
                let unnamed: Vec<_> = before.iter().filter(|pid| !names(pid)).collect();
                assert!(unnamed.is_empty(), "{unnamed:?} of {what}");
            }
        }
    }

    /// Checks shapes at this end, all at the same time: all shapes if `RYE_ZOO` is `all`, else every second one.
    fn check_all(&self, end: End) {
        let checks_all = std::env::var_os("RYE_ZOO").is_some_and(|shapes| shapes == "all");
        let first = usize::from(matches!(end, End::Timeout | End::Kill));
        let step = if checks_all { 1 } else { 2 };
        let first = if checks_all { 0 } else { first };
        thread::scope(|scope| {
            for (shape, reach) in SHAPES.into_iter().skip(first).step_by(step) {
                let named = thread::Builder::new().name(format!("{shape} {end:?}"));
                let check = move || self.check(shape, reach, end);
                named.spawn_scoped(scope, check).unwrap();
            }
        });
    }

    /// Forms all shapes.
    fn form_all(&self) -> Vec<(&'static str, Reach, Formed)> {
        let formed = thread::scope(|scope| {
            let forming = SHAPES.map(|(shape, reach)| {
                scope.spawn(move || (shape, reach, self.form(shape, End::Kill, "")))
            });
            forming.map(|forming| forming.join().unwrap())
        });
        formed.into()
    }
}

/// Ends the processes that a test without cgroups leaves.
fn end_survivors(marker: &Path, recycler: &Recycler) {
    fs::write(marker.with_added_extension("end"), "").unwrap();
    until("the survivors to end", || {
        recycler.pause(|| {
            let left = processes::with_argument(marker);
            for pid in &left {
                processes::send(*pid, Signal::SIGKILL);
            }
            left.is_empty().then_some(())
        })
    });
}

/// Starts a daemon with or without cgroups. `None` if the host has none.
fn start(world: &World, has_cgroups: bool) -> Option<Daemon> {
    let setting = if has_cgroups { "auto" } else { "off" };
    let daemon = world.start(&format!("containment: {{cgroup: {setting}}}"));
    let info = world.info();
    if has_cgroups && info["containment"][0] != "cgroup of the attempt" {
        skipped(&format!(
            "no cgroups for attempts: {}",
            info["containment_missing"]
        ));
        return None;
    }
    Some(daemon)
}

#[test]
fn every_shape_of_the_program_is_in_the_table() {
    let printed = program(PROGRAM).output().unwrap();
    let printed = String::from_utf8(printed.stdout).unwrap();
    let names: Vec<&str> = printed.lines().collect();
    assert_eq!(names, SHAPES.map(|(name, _)| name));
}

fn nothing_outlives_its_attempt(has_cgroups: bool) {
    let world = World::new();
    let Some(_daemon) = start(&world, has_cgroups) else {
        return;
    };
    let host = Host::new(&world, has_cgroups);
    for end in ENDS {
        host.check_all(end);
    }
}

#[test]
fn no_shape_outlives_its_attempt() {
    nothing_outlives_its_attempt(true);
}

#[test]
fn without_cgroups_no_tagged_shape_outlives_its_attempt() {
    nothing_outlives_its_attempt(false);
}

fn nothing_outlives_the_daemon(has_cgroups: bool) {
    let world = World::new();
    let Some(daemon) = start(&world, has_cgroups) else {
        return;
    };
    let host = Host::new(&world, has_cgroups);
    let formed = host.form_all();
    daemon.kill();
    let _status = daemon.ended();
    for (shape, _, formed) in formed {
        let left = processes::with_argument(&formed.marker);
        assert!(left.is_empty(), "{shape}: {left:?}");
    }
}

#[test]
fn no_shape_outlives_a_killed_daemon() {
    nothing_outlives_the_daemon(true);
}

#[test]
fn without_cgroups_no_shape_outlives_a_killed_daemon() {
    nothing_outlives_the_daemon(false);
}

fn nothing_outlives_the_next_start(has_cgroups: bool) {
    let world = World::new();
    let Some(daemon) = start(&world, has_cgroups) else {
        return;
    };
    let host = Host::new(&world, has_cgroups);
    let formed = host.form_all();
    daemon.kill_both();
    let _status = daemon.ended();
    let _daemon = start(&world, has_cgroups);
    for (shape, reach, formed) in formed {
        let left = processes::with_argument(&formed.marker);
        // Without its leader a group is not signalled as a whole, so a storm is faster than the sweep.
        let is_storm = STORMS.contains(&shape);
        let is_found = has_cgroups || (reach == Reach::Always && !is_storm);
        assert!(left.is_empty() || !is_found, "{shape}: {left:?}");
        end_survivors(&formed.marker, &host.recycler);
    }
}

#[test]
fn no_shape_outlives_the_start_after_the_death_of_daemon_and_parent() {
    nothing_outlives_the_next_start(true);
}

#[test]
fn without_cgroups_no_tagged_shape_outlives_the_start_after_the_death_of_daemon_and_parent() {
    nothing_outlives_the_next_start(false);
}

fn nothing_of_an_ordinary_user_outlives_its_attempt(cgroup: Option<&Subtree>) {
    let world = World::new();
    let mut host = Host::new(&world, cgroup.is_some());
    rye_tests::binaries::copy(Path::new(PROGRAM), &world.root().join("zoo-program"));
    let user = User::of(&world);
    let _started = user.run(cgroup, "ryectl daemon start 2>/dev/null");
    host.user = Some(user);
    host.check_all(End::Exit);
    host.check_all(End::Kill);
    let _stopped = host.ryectl("daemon stop").ok();
}

#[test]
fn no_shape_of_an_ordinary_user_outlives_its_attempt() {
    if !nix::unistd::geteuid().is_root() {
        skipped("only root can act as another user");
        return;
    }
    nothing_of_an_ordinary_user_outlives_its_attempt(None);
    match Subtree::new() {
        Some(subtree) => nothing_of_an_ordinary_user_outlives_its_attempt(Some(&subtree)),
        None => skipped("this host takes no cgroups"),
    }
}
