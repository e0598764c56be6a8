//! Modules use each other in one direction.
//!
//! A crate or a module with more than ten files lists its modules in rows: groups of `mod` lines that blank lines
//! separate, the lowest first. Its children use only those of earlier rows, and nothing that their parent defines or
//! re-exports.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use regex::Regex;
use rye_tests::binaries::clone_root;

use super::{is_tests, rust_files, without_tests};

/// Most files of a module without rows.
const MAX_FILES: usize = 10;

/// A module by its path from the root of the crate.
type Module = Vec<String>;

/// The production files of one crate.
struct Crate {
    /// `lib.rs` and `main.rs`, where they exist.
    roots: Vec<PathBuf>,
    files: BTreeMap<Module, PathBuf>,
    /// Paths in the own crate that each module names, with their lines.
    uses: Vec<(Module, usize, Module)>,
}

#[test]
fn modules_use_earlier_rows_only() {
    let mut wrong = Vec::new();
    for root in crates() {
        let found = Crate::read(&root);
        for module in found.large_modules() {
            found.check(&module, &mut wrong);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Returns the source directories of all crates except those for tests.
fn crates() -> Vec<PathBuf> {
    let manifests = [
        "client",
        "daemon",
        "daemon/core",
        "daemon/host",
        "daemon/item",
        "daemon/journal",
        "daemon/process",
        "daemon/schema",
    ];
    manifests.map(|at| clone_root().join(at).join("src")).into()
}

impl Crate {
    fn read(root: &Path) -> Self {
        let roots = ["lib.rs", "main.rs"].map(|name| root.join(name));
        let roots = roots.into_iter().filter(|path| path.exists()).collect();
        let mut files = BTreeMap::new();
        for path in rust_files(root) {
            let inner = path.strip_prefix(root).expect("it is below the root");
            if is_tests(inner) || inner.ends_with("testing.rs") {
                continue;
            }
            let mut module: Module = inner
                .with_extension("")
                .iter()
                .map(|part| part.to_str().expect("names are plain").to_owned())
                .collect();
            if matches!(module.as_slice(), [only] if only == "lib" || only == "main") {
                module.clear();
            }
            files.insert(module, path);
        }
        let mut uses = Vec::new();
        for (module, path) in &files {
            let text = fs::read_to_string(path).expect("it was found");
            for (line, named) in paths_in(&code_of(&text)) {
                uses.push((module.clone(), line, resolve(module, named)));
            }
        }
        Self { roots, files, uses }
    }

    fn large_modules(&self) -> Vec<Module> {
        let mut sizes: BTreeMap<Module, usize> = BTreeMap::new();
        for module in self.files.keys() {
            for depth in 0..=module.len() {
                *sizes.entry(module[..depth].to_vec()).or_default() += 1;
            }
        }
        let large = sizes.into_iter().filter(|(_, files)| *files > MAX_FILES);
        large.map(|(module, _)| module).collect()
    }

    fn check(&self, module: &Module, wrong: &mut Vec<String>) {
        let declaring = match self.files.get(module) {
            _ if module.is_empty() => self.roots.clone(),
            Some(file) => vec![file.clone()],
            None => Vec::new(),
        };
        let texts = declaring.iter().map(fs::read_to_string);
        let texts: Vec<String> = texts.map(|text| text.expect("it was found")).collect();
        let rows = rows_of(&texts.join("\n\n"));
        let depth = module.len();
        let children: BTreeSet<&String> = self
            .files
            .keys()
            .filter(|file| file.starts_with(module))
            .filter_map(|file| file.get(depth))
            .collect();
        for child in &children {
            if !rows.contains_key(*child) {
                wrong.push(format!("{}: `{child}` is in no row", module.join("/")));
            }
        }
        for (user, line, used) in &self.uses {
            let inside = user.starts_with(module) && used.starts_with(module);
            let Some(child) = user.get(depth).filter(|_| inside) else {
                continue;
            };
            let used = used.get(depth);
            if used == Some(child) {
                continue;
            }
            let place = format!("{}:{line}: `{child}`", self.files[user].display());
            match used.filter(|used| children.contains(used)) {
                None => {
                    let name = used.map_or("itself", String::as_str);
                    wrong.push(format!(
                        "{place} uses its parent ({name}): name the module that defines it"
                    ));
                }
                Some(used) if rows.get(used) >= rows.get(child) => {
                    wrong.push(format!("{place} uses `{used}`, which is in no earlier row"));
                }
                Some(_) => {}
            }
        }
    }
}

/// Returns the row of each child module that a file declares.
fn rows_of(text: &str) -> BTreeMap<String, usize> {
    let declaration = Regex::new(r"^(?:pub(?:\([a-z]+\))? )?mod (\w+);").expect("it is valid");
    let mut rows = BTreeMap::new();
    let (mut row, mut is_new) = (0, true);
    for line in text.lines() {
        if let Some(found) = declaration.captures(line) {
            row += usize::from(is_new);
            is_new = false;
            rows.insert(found[1].to_owned(), row);
        } else if line.trim().is_empty() {
            is_new = true;
        }
    }
    rows
}

/// Returns `text` without comments, literals and tests.
fn code_of(text: &str) -> String {
    let skipped = Regex::new(
        r##"(?s)//[^\n]*|/\*.*?\*/|b?r#".*?"#|b?"(?:\\.|[^"\\])*"|b?'(?:\\[^\n]*?|[^'\\\n])'"##,
    )
    .expect("it is valid");
    let blank = |found: &regex::Captures<'_>| "\n".repeat(found[0].matches('\n').count());
    let code = skipped.replace_all(without_tests(text), blank);
    let tested =
        Regex::new(r"#\[cfg\((?:test|any\(test, [^\n]*)\)\][^\n]*\n[^\n]*").expect("it is valid");
    tested.replace_all(&code, "\n").into_owned()
}

/// Returns the paths in `code` that begin with `crate`, `super` or `self`, with their lines.
fn paths_in(code: &str) -> Vec<(usize, Module)> {
    let begin = Regex::new(r"\b(?:crate|super|self)\s*::").expect("it is valid");
    let mut found = Vec::new();
    for at in begin.find_iter(code).map(|found| found.start()) {
        if code[..at].trim_end().ends_with("::") {
            continue;
        }
        let line = code[..at].matches('\n').count() + 1;
        let (paths, _) = tree(&code[at..]);
        found.extend(paths.into_iter().map(|path| (line, path)));
    }
    found
}

/// Parses the paths of the use tree at the beginning of `code`. Returns the rest as well.
fn tree(code: &str) -> (Vec<Module>, &str) {
    let mut segments = Vec::new();
    let mut rest = code;
    loop {
        rest = rest.trim_start();
        if let Some(list) = rest.strip_prefix('{') {
            let mut paths = Vec::new();
            rest = list.trim_start();
            while !rest.is_empty() && !rest.starts_with('}') {
                let (inner, after) = tree(rest);
                paths.extend(
                    inner
                        .into_iter()
                        .map(|path| [segments.clone(), path].concat()),
                );
                let next = after.find([',', '}']).unwrap_or(after.len());
                rest = after[next..].trim_start_matches(',').trim_start();
            }
            return (paths, rest.strip_prefix('}').unwrap_or(rest));
        }
        let is_name = |character: char| {
            character.is_ascii_alphanumeric() || character == '_' || character == '*'
        };
        let end = rest
            .find(|character| !is_name(character))
            .unwrap_or(rest.len());
        if end == 0 {
            return (vec![segments], rest);
        }
        segments.push(rest[..end].to_owned());
        rest = &rest[end..];
        match rest.trim_start().strip_prefix("::") {
            Some(more) if !more.trim_start().starts_with('<') => rest = more,
            Some(_) | None => return (vec![segments], rest),
        }
    }
}

/// Resolves `path` of `module` from the root of the crate.
fn resolve(module: &Module, path: Module) -> Module {
    let mut base = module.clone();
    let mut path = path.into_iter().peekable();
    if path.next_if(|first| first == "crate").is_some() {
        base.clear();
    }
    while let Some(step) = path.next_if(|step| step == "super" || step == "self") {
        if step == "super" {
            base.pop();
        }
    }
    base.extend(path.filter(|name| name != "self"));
    base
}

#[test]
fn rows_are_groups_of_declarations_and_paths_are_found_in_trees() {
    let rows =
        rows_of("mod a;\npub mod b;\n\n/// Doc.\npub(crate) mod c;\n#[cfg(test)]\nmod tests;\n");
    let rows: Vec<_> = rows
        .iter()
        .map(|(name, row)| (name.as_str(), *row))
        .collect();
    assert_eq!(rows, [("a", 1), ("b", 1), ("c", 2), ("tests", 2)]);
    let code =
        code_of("use super::{a::{self, X}, b};\n// crate::no\nlet x = crate::c::f(\"super::no\");");
    let module = vec!["m".to_owned(), "n".to_owned()];
    let found = paths_in(&code).into_iter();
    let found: Vec<_> = found
        .map(|(line, path)| (line, resolve(&module, path).join("::")))
        .collect();
    let found: Vec<_> = found
        .iter()
        .map(|(line, path)| (*line, path.as_str()))
        .collect();
    assert_eq!(
        found,
        [(1, "m::a"), (1, "m::a::X"), (1, "m::b"), (3, "c::f")]
    );
}
