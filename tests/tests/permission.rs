//! Other users of the machine have no access.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;

use rye_tests::{World, binaries, skipped};

/// A user without any rights here. Only root can change to it, so without root these tests check nothing.
const NOBODY: u32 = 65534;

fn may_become_nobody() -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        skipped("only root can act as another user");
    }
    root
}

/// Makes a copy of `ryectl` that other users can execute.
fn reachable_ryectl(world: &World) -> std::path::PathBuf {
    let copy = world.root().join("ryectl");
    binaries::copy(&binaries::ryectl(), &copy);
    copy
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn state_socket_and_keys_are_for_the_owner_alone() {
    let world = World::new();
    let _daemon = world.start("");
    assert_eq!(mode(&world.state()), 0o700);
    assert_eq!(mode(&world.socket()), 0o600);
    let mut open = vec![world.state()];
    let mut keys = 0;
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let entry = entry.unwrap();
            let path = entry.path();
            if entry.file_type().unwrap().is_dir() {
                open.push(path);
            } else if fs::read_to_string(&path).is_ok_and(|text| text.contains("PRIVATE KEY")) {
                keys += 1;
                assert_eq!(mode(&path), 0o600, "{}", path.display());
            }
        }
    }
    assert_eq!(keys, 1, "the node key");
}

#[test]
fn a_state_directory_that_others_can_enter_is_closed() {
    let world = World::new();
    fs::create_dir_all(world.state()).unwrap();
    fs::set_permissions(world.state(), fs::Permissions::from_mode(0o755)).unwrap();
    let _started = world.ryectl("daemon start").ok();
    assert_eq!(mode(&world.state()), 0o700);
}

#[test]
fn another_user_does_not_reach_the_socket() {
    if !may_become_nobody() {
        return;
    }
    let world = World::open_to_others();
    let _daemon = world.start("");
    let ryectl = reachable_ryectl(&world);
    let call = |socket: &Path| {
        rye_tests::command::Ryectl::at(&ryectl, world.root(), world.root())
            .words("ps --no-autostart --socket")
            .arg(socket)
            .as_user(NOBODY)
            .run()
    };
    let _refused = call(&world.socket())
        .code(4)
        .prints_nothing()
        .stderr_contains(&["another user"]);
}

#[test]
fn another_user_who_reaches_the_socket_is_refused_by_uid() {
    if !may_become_nobody() {
        return;
    }
    let world = World::open_to_others();
    let socket = world.root().join("open.sock");
    let _started = world.ryectl("daemon start --socket").arg(&socket).ok();
    assert_eq!(mode(&socket), 0o600);
    // No administrator should do this; the daemon does not rely on it.
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o666)).unwrap();
    let ryectl = reachable_ryectl(&world);
    let _refused = rye_tests::command::Ryectl::at(&ryectl, world.root(), world.root())
        .words("ps --no-autostart --socket")
        .arg(&socket)
        .as_user(NOBODY)
        .run()
        .code(4)
        .prints_nothing()
        .stderr_contains(&["uid 65534"]);
}

#[test]
fn a_private_key_that_others_can_read_is_refused() {
    let world = World::new();
    world.python("t/value", "return 1");
    let key = private_key(&world);
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    let _refused = world
        .ryectl("sign tool:t/value")
        .run()
        .code(4)
        .stderr_contains(&["chmod 600"]);
}

#[test]
fn a_daemon_of_an_ordinary_user_needs_no_rights() {
    if !may_become_nobody() {
        return;
    }
    let world = World::open_to_others();
    let home = world.root().join("nobody");
    fs::create_dir(&home).unwrap();
    std::os::unix::fs::chown(&home, Some(NOBODY), Some(NOBODY)).unwrap();
    let bin = world.root().join("bin");
    fs::create_dir(&bin).unwrap();
    for program in [binaries::ryectl(), binaries::ryed()] {
        binaries::copy(&program, &bin.join(program.file_name().unwrap()));
    }
    let project = home.join("project");
    fs::create_dir(&project).unwrap();
    std::os::unix::fs::chown(&project, Some(NOBODY), Some(NOBODY)).unwrap();
    let call = |words: &str| {
        rye_tests::command::Ryectl::at(&bin.join("ryectl"), &home, &project)
            .env("RYE_STATE_DIR", home.join("state"))
            .words(words)
            .as_user(NOBODY)
    };
    let _made = call("init").ok();
    let out = call("run --json rye/examples/project-stats -i directory=.").ok();
    assert_eq!(out.json()["status"], "completed");

    // Processes of the same user, such as tools of runs, cannot inspect either of its processes.
    let info = call("daemon info --json").ok().json();
    let environment = |pid: &str| {
        let mut look = rye_tests::command::program("cat");
        let look = look.arg(format!("/proc/{pid}/environ"));
        look.uid(NOBODY).gid(NOBODY).output().unwrap()
    };
    assert!(environment("self").status.success());
    for process in ["pid", "parent_pid"] {
        let looked = environment(&info[process].to_string());
        assert!(!looked.status.success(), "{process}: {looked:?}");
    }
    let mut sleeper = rye_tests::command::program("sleep");
    let mut sleeper = sleeper.arg("1000").uid(NOBODY).gid(NOBODY).spawn().unwrap();
    let of_anyone = reached(&sleeper.id().to_string());
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    if of_anyone != "memory ptrace" {
        println!("the kernel lets nobody do more here than: {of_anyone}");
    }
    for process in ["pid", "parent_pid"] {
        assert_eq!(reached(&info[process].to_string()), "", "{process}");
    }
    let _stopped = call("daemon stop").ok();
    assert_eq!(mode(&home.join("state")), 0o700);
}

/// Returns the parts of the process `pid` that another process of the user [`NOBODY`] can access: its memory, its
/// control.
fn reached(pid: &str) -> String {
    const REACH: &str = "
import ctypes, sys
pid, got = int(sys.argv[1]), []
try:
    open(f'/proc/{pid}/mem', 'rb').close()
    got.append('memory')
except OSError:
    pass
if ctypes.CDLL(None).ptrace(16, pid, None, None) == 0:
    got.append('ptrace')
print(*got)
";
    let mut python = rye_tests::command::program("python3");
    let python = python.args(["-c", REACH, pid]).uid(NOBODY).gid(NOBODY);
    let out = python.output().unwrap();
    assert!(out.status.success(), "{out:?}");
    String::from_utf8(out.stdout).unwrap().trim().to_owned()
}

fn private_key(world: &World) -> std::path::PathBuf {
    let mut open = vec![world.home().join(".ai")];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else if fs::read_to_string(&path).is_ok_and(|text| text.contains("PRIVATE KEY")) {
                return path;
            }
        }
    }
    panic!("the user has no key");
}
