//! Projects of `docs/write-a-tool.md`: each is copied from the page and run as shown, with the real programs.
//!
//! A block after `<!-- example: PROJECT PATH -->` is a file. A block after `<!-- example: PROJECT -->` has commands
//! after `$ `, each followed by its output. A command without shown output may print anything. `# exit code N` after a
//! command is its exit code.

use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;

use rye_tests::binaries::clone_root;
use rye_tests::{World, skipped};
use serde_json::Value;

/// Port of the server on the page; each test replaces it by a free one.
const PORT: &str = "8731";

/// Projects of the page in its order, with their requirements.
const PROJECTS: [(&str, &[Need]); 11] = [
    ("bash", &[]),
    ("function", &[]),
    ("script", &[]),
    ("uv", &[Need::File("RYE_UV"), Need::File("RYE_UV_WHEELS")]),
    ("several", &[]),
    ("node", &[Need::Program("node")]),
    (
        "typescript",
        &[Need::Program("npm"), Need::File("RYE_NPM_CACHE")],
    ),
    ("compiled", &[Need::Program("cc"), Need::Program("strip")]),
    ("http", &[]),
    ("runtime", &[]),
    ("upon", &[]),
];

/// A requirement of a project that not every machine has.
enum Need {
    /// A program on the `PATH`.
    Program(&'static str),
    /// The file or directory that a variable names. `RYE_UV` is a `uv` with a `pip` in its directory. `RYE_UV_WHEELS`
    /// has the packages of the page, and `RYE_NPM_CACHE` is an npm cache with its packages, so the tests use no index.
    File(&'static str),
}

impl Need {
    /// Returns what is missing, in words.
    fn missing(&self, world: &World) -> Option<String> {
        match self {
            Self::Program(name) => {
                let found = world.shell(&[], &format!("command -v {name}")).output();
                let is_there = found.unwrap().status.success();
                (!is_there).then(|| format!("there is no `{name}`"))
            }
            Self::File(variable) => named(variable)
                .is_none()
                .then(|| format!("{variable} is not set")),
        }
    }
}

fn named(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).map(PathBuf::from)
}

#[derive(Default)]
struct Project {
    files: Vec<(String, String)>,
    steps: Vec<Step>,
}

struct Step {
    command: String,
    code: i32,
    /// The output that the page shows, if it shows any.
    printed: Option<String>,
}

impl Step {
    fn new(command: &str) -> Self {
        let code = command.split_once("# exit code ").map(|(_, told)| {
            let digits = told.split(|c: char| !c.is_ascii_digit()).next();
            digits.unwrap().parse().unwrap()
        });
        Self {
            command: command.to_owned(),
            code: code.unwrap_or(0),
            printed: None,
        }
    }

    /// Asserts that `printed` is the output on the page. JSON is compared by value, because people see it on several
    /// lines.
    fn check(&self, printed: &str) {
        let Some(expected) = &self.printed else {
            return;
        };
        let json = |text: &str| serde_json::from_str::<Value>(text).ok();
        let is_same = match json(expected) {
            Some(expected) => json(printed) == Some(expected),
            None => printed == expected,
        };
        let command = &self.command;
        assert!(is_same, "`{command}` prints {printed}, not {expected}");
    }
}

/// Returns the projects of `page` in its order.
fn projects(page: &str) -> Vec<(&str, Project)> {
    let mut found: Vec<(&str, Project)> = Vec::new();
    for part in page.split("<!-- example: ").skip(1) {
        let (mark, rest) = part.split_once(" -->\n```").unwrap();
        let (_language, rest) = rest.split_once('\n').unwrap();
        let (block, _) = rest.split_once("\n```\n").unwrap();
        let (name, path) = mark.split_once(' ').unwrap_or((mark, ""));
        if found.iter().all(|(known, _)| *known != name) {
            found.push((name, Project::default()));
        }
        let (_, project) = found.iter_mut().find(|(known, _)| *known == name).unwrap();
        if !path.is_empty() {
            project.files.push((path.to_owned(), format!("{block}\n")));
            continue;
        }
        for line in block.lines() {
            if let Some(command) = line.strip_prefix("$ ") {
                project.steps.push(Step::new(command));
            } else {
                let step = project.steps.last_mut().unwrap();
                let printed = step.printed.get_or_insert_default();
                printed.push_str(line);
                printed.push('\n');
            }
        }
    }
    found
}

/// Runs all commands of `project` in one shell, and asserts that each has the result on the page.
fn follow(name: &str, project: &Project, world: &World) {
    for (path, text) in &project.files {
        world.write(path, text);
    }
    // Each command is followed by its exit code between two characters that no command prints.
    let commands = project.steps.iter();
    let script: String = commands
        .flat_map(|step| [step.command.as_str(), "\nprintf '\\036%d\\037' $?\n"])
        .collect();
    let uv = named("RYE_UV");
    let front = uv.as_deref().and_then(|uv| uv.parent());
    let front = front.filter(|_| name == "uv");
    let mut shell = world.shell(&Vec::from_iter(front), &script);
    if let Some(wheels) = named("RYE_UV_WHEELS") {
        shell.env("PIP_FIND_LINKS", wheels).env("PIP_NO_INDEX", "1");
    }
    if let Some(cache) = named("RYE_NPM_CACHE") {
        shell
            .env("npm_config_cache", cache)
            .env("npm_config_offline", "true");
    }
    let out = shell.output().unwrap();
    let told = String::from_utf8_lossy(&out.stderr);
    let printed = String::from_utf8(out.stdout).unwrap();
    let mut ends = printed.split_terminator('\u{1f}');
    for step in &project.steps {
        let command = &step.command;
        let end = ends.next();
        let end = end.unwrap_or_else(|| panic!("{name}: `{command}` was not done: {told}"));
        let (printed, code) = end.rsplit_once('\u{1e}').unwrap();
        assert_eq!(
            code,
            step.code.to_string(),
            "{name}: `{command}`: {printed} {told}"
        );
        step.check(printed);
    }
}

#[test]
fn documented_tool_projects_work_as_shown() {
    let page = fs::read_to_string(clone_root().join("docs/write-a-tool.md")).unwrap();
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port().to_string();
    drop(free);
    let page = page.replace(PORT, &port);
    let projects = projects(&page);
    let names: Vec<_> = projects.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, PROJECTS.map(|(name, _)| name));
    for ((name, project), (_, needs)) in projects.iter().zip(PROJECTS) {
        let shows = project.steps.iter().any(|step| step.printed.is_some());
        assert!(shows, "{name} shows no result");
        let world = World::new();
        let lacking = needs.iter().find_map(|need| need.missing(&world));
        match lacking {
            Some(lacking) => skipped(&format!("{name} is not tried: {lacking}")),
            None => follow(name, project, &world),
        }
    }
}
