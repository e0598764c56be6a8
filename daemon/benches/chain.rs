//! Cost of resolving a tool, compared with the bare reading and hashing of the same bytes: a chain of three elements
//! from its name to its plan, the comparison of a copy, and queries over many items. Prints medians with quartiles,
//! ratios within one run, and the targets of the project. `cargo bench -p ryed --bench chain`
#![expect(clippy::print_stdout, reason = "a benchmark prints its result")]

use std::fmt::Write as _;
use std::fs;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rye_core::capability::Layer;
use rye_core::clock::{Clock as _, Timestamp};
use rye_core::id::{ItemId, ItemKind, ItemRef, RunId};
use rye_core::model::{Budget, Object, Spec, Task};
use rye_core::seal::{SecretKey, sha256_hex, sign_text};
use rye_host::clock::HostClock;
use rye_item::{Library, Spaces, TrustStore, trust};
use ryed::chain::{self, CallOrigin, InheritedVariables};
use ryed::config::{Args, Config, Environment, load};
use ryed::index::{Caller, FetchRequest, Search};
use ryed::trees::{self, Tree};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Number of measurements of each figure.
const ROUNDS: usize = 400;
/// Number of files in the copy, and bytes of each.
const COPY: (usize, usize) = (50, 4 << 10);
/// Number of items that are searched.
const ITEMS: usize = 10_000;
/// Number of results that a query shows; each of them is verified.
const SHOWN: usize = 10;

type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Fallible<()> {
    let stage = Stage::new()?;
    stage.chains()?;
    stage.copies()?;
    stage.queries()
}

/// A project with signed items.
struct Stage {
    root: TempDir,
    key: SecretKey,
    config: Config,
}

impl Stage {
    fn new() -> Fallible<Self> {
        let root = tempfile::tempdir()?;
        let key = SecretKey::from_seed(&[1; 32]);
        let home = root.path().join("home");
        fs::create_dir_all(root.path().join("project/.ai/tools"))?;
        trust::trust(&home, key.public(), "one", &key, Timestamp::default())?;
        let variables = [
            ("HOME".into(), home.as_os_str().to_owned()),
            ("PATH".into(), "/usr/bin:/bin".into()),
            ("RYE_STATE_DIR".into(), root.path().join("state").into()),
        ];
        let loaded = load(&Args::default(), &Environment::of(variables))?;
        Ok(Self {
            root,
            key,
            config: loaded.config,
        })
    }

    fn project(&self) -> PathBuf {
        self.root.path().join("project")
    }

    /// The project with empty caches.
    fn library(&self) -> Library {
        let at = |name: &str| self.root.path().join(name);
        let spaces = Spaces::new(Some(at("project")), at("home"), at("system"));
        let trust = Arc::new(TrustStore::open(&spaces));
        Library::open(spaces, trust, Arc::new(HostClock))
    }

    fn write(&self, kind: ItemKind, name: &str, text: &str) -> Fallible<PathBuf> {
        let path = self.project().join(".ai").join(kind.folder()).join(name);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let extension = path.extension().and_then(|end| end.to_str());
        let extension = extension.unwrap_or_default();
        fs::write(
            &path,
            sign_text(kind, extension, text, &self.key, Timestamp::default())?,
        )?;
        Ok(path)
    }

    /// A tool, its runtime and the primitive: from the name to the plan.
    fn chains(&self) -> Fallible<()> {
        let tool = "version: \"1.0.0\"\ncategory: t\nname: tool\nexecutor_id: rye/core/runtimes/bash\nconfig: {script: \"cat\"}\n";
        let path = self.write(ItemKind::Tool, "t/tool.yaml", tool)?;
        let item = ItemRef::tool(ItemId::new("t/tool")?);
        let run = RunId::new("t-tool-1")?;
        let spec = Spec {
            project: self.project().display().to_string(),
            ..Spec::new(
                Task::Tool,
                item.clone(),
                run.clone(),
                Budget::open(run.clone()),
            )
        };
        let origin = CallOrigin {
            run,
            spec: Arc::new(spec),
            attempt: 1,
            key: "0".repeat(64),
        };
        let plan = |library: &Library| -> Fallible<()> {
            let chain = chain::resolve(library, &item, None)?;
            let (params, offer) = (Object::new(), InheritedVariables::default());
            let plan = chain::plan(&chain, params, &origin, &self.config, offer, None, None)?;
            let _planned = black_box(plan);
            Ok(())
        };
        let known = self.library();
        plan(&known)?;
        let (mut cached, mut cold, mut bare) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            cached.push(timed(|| plan(&known))?);
            let fresh = self.library();
            cold.push(timed(|| plan(&fresh))?);
            bare.push(timed(|| read(&path))?);
        }
        let floor = show("read and hash the file of the tool", bare);
        print_ratio(
            "name to plan, three elements, known",
            cached,
            floor,
            Duration::from_micros(80),
        );
        let cold_mark = 3 * Duration::from_millis(1);
        print_ratio("the same, read for the first time", cold, floor, cold_mark);
        Ok(())
    }

    /// Files of a tool of several files, compared with their copy.
    fn copies(&self) -> Fallible<()> {
        let state = self.root.path().join("state");
        let mut tree = Tree::default();
        let (files, bytes) = COPY;
        for number in 0..files {
            let mut content = format!("# {number}\n");
            content.extend(std::iter::repeat_n('x', bytes));
            tree.file(format!("f{number}.py").into(), content.into_bytes().into());
        }
        let copy = trees::place(&state, &tree)?;
        let (mut placed, mut bare) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            placed.push(timed(|| Ok(trees::place(&state, &tree)?))?);
            bare.push(timed(|| {
                (0..files).try_for_each(|number| read(&copy.join(format!("f{number}.py"))))
            })?);
        }
        let floor = show("read and hash 50 files of 4 KiB", bare);
        print_ratio(
            "copy of 50 files, compared",
            placed,
            floor,
            Duration::from_millis(1),
        );
        Ok(())
    }

    /// Queries over many items by a user who may fetch all of them.
    fn queries(&self) -> Fallible<()> {
        let mut paths = Vec::new();
        for number in 0..ITEMS {
            let mut text = format!(
                "```yaml\nname: k{number}\ntitle: The rule {number}\ncategory: many/c{}\nversion: \"1.0.0\"\nentry_type: note\n```\n\n",
                number / 500
            );
            for word in 0..40 {
                write!(text, "word{} ", (number * 7 + word * word * 13) % 4000)?;
            }
            let name = format!("many/c{}/k{number}.md", number / 500);
            paths.push(self.write(ItemKind::Knowledge, &name, &text)?);
        }
        let library = self.library();
        let search = Search::default();
        let layers = [Layer {
            source: "uid:0".to_owned(),
            patterns: vec!["rye.*".to_owned()],
        }];
        let ask = |query: &str| -> Fallible<usize> {
            let params = json!({"query": query, "scope": "knowledge.many"});
            let Value::Object(params) = params else {
                return Ok(0);
            };
            let caller = Caller {
                layers: &layers,
                now: HostClock.up(),
                random: 0,
            };
            let answer = search.fetch(&library, &FetchRequest::read(params)?, &caller)?;
            Ok(answer["results"].as_array().map_or(0, Vec::len))
        };
        let all = timed(|| paths.iter().try_for_each(|path| read(path)))?;
        let floor = show("read and hash 10,000 items, once", vec![all]);
        let first = timed(|| ask("word17 AND word30"))?;
        print_ratio(
            "first query over them",
            vec![first],
            floor,
            Duration::from_secs(3),
        );
        let (mut plain, mut slipped, mut bare) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..ROUNDS {
            let word = round * 7 % 4000;
            plain.push(timed(|| ask(&format!("word{word} OR rule")))?);
            slipped.push(timed(|| ask(&format!("word{word}x OR rule")))?);
            let shown = &paths[round..round + SHOWN];
            bare.push(timed(|| shown.iter().try_for_each(|path| read(path)))?);
        }
        let floor = show("read and hash the ten items that are shown", bare);
        print_ratio("query of two words", plain, floor, Duration::from_millis(5));
        print_ratio(
            "the same with a slip in one",
            slipped,
            floor,
            Duration::from_millis(20),
        );
        Ok(())
    }
}

fn read(path: &Path) -> Fallible<()> {
    let _hash = black_box(sha256_hex(fs::read(path)?));
    Ok(())
}

fn timed<T>(work: impl FnOnce() -> Fallible<T>) -> Fallible<Duration> {
    let since = Instant::now();
    let _done = black_box(work()?);
    Ok(since.elapsed())
}

/// Prints quartiles and returns the median.
fn show(name: &str, mut times: Vec<Duration>) -> Duration {
    times.sort();
    let at = |part: usize| times[times.len() * part / 4];
    let micros = |time: Duration| time.as_secs_f64() * 1e6;
    println!(
        "{name}: {:.0} {:.0} {:.0} µs (lower quartile, median, upper quartile)",
        micros(at(1)),
        micros(at(2)),
        micros(at(3))
    );
    at(2)
}

/// Prints quartiles, the ratio of the median to the bare one, and the comparison with its target.
fn print_ratio(name: &str, times: Vec<Duration>, floor: Duration, mark: Duration) {
    let median = show(name, times);
    let ratio = median.as_secs_f64() / floor.as_secs_f64();
    let reached = if median <= mark { "reached" } else { "MISSED" };
    println!("  ratio {ratio:.1}, mark {mark:?} {reached}");
}
