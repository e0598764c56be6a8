//! The system space: items of this repository's `.ai`, below `rye` and `agent`, embedded in the program.
//!
//! They are used from the program, whose integrity covers them. [`install`] writes signed copies below the state
//! directory for people to read and tools to verify; the copies are never run.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use include_dir::{Dir, File, include_dir};
use rye_core::clock::Timestamp;
use rye_core::error::{ErrorKind, Kinded};
use rye_core::id::{ItemId, ItemKind, ItemRef};
use rye_core::seal::{self, Coverage, SecretKey};

use crate::file;
use crate::spaces::{ItemLocation, Space};
use crate::trust;

static TOOLS: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../.ai/tools/rye");
static DIRECTIVES: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../.ai/directives/rye");
static AGENT_DIRECTIVES: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../.ai/directives/agent");
static KNOWLEDGE: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../.ai/knowledge/rye");
// Only `core` of `agent`: its other folders hold the pages that threads write when they run in this repository.
static AGENT_KNOWLEDGE: Dir<'_> =
    include_dir!("$CARGO_MANIFEST_DIR/../../.ai/knowledge/agent/core");
static CONFIG: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../.ai/config/agent");

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("failed to write the system item `{path}`")]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The node key cannot be added to the trusted keys of the system space.
    #[error("failed to trust the node key")]
    Trust {
        #[source]
        source: trust::Error,
    },
}

impl Kinded for Error {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Write { .. } => ErrorKind::Unavailable,
            Self::Trust { source } => source.kind(),
        }
    }
}

/// Folder that holds the system space's `.ai`, given the state directory.
pub fn root(state_dir: &Path) -> PathBuf {
    state_dir.join("system")
}

/// Text of the Python module by which tools call the daemon.
pub fn python_client() -> &'static str {
    let file = TOOLS.get_file("core/lib/rye_client.py");
    let text = file.and_then(File::contents_utf8);
    text.expect("the module is part of the program")
}

/// An item that is part of the program.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Embedded {
    kind: ItemKind,
    /// Prefix of its id above the embedded folder.
    above: &'static str,
    file: &'static File<'static>,
}

impl Embedded {
    pub(crate) fn all() -> Vec<Self> {
        let mut folders = vec![
            (ItemKind::Tool, "rye", &TOOLS),
            (ItemKind::Directive, "rye", &DIRECTIVES),
            (ItemKind::Directive, "agent", &AGENT_DIRECTIVES),
            (ItemKind::Knowledge, "rye", &KNOWLEDGE),
            (ItemKind::Knowledge, "agent/core", &AGENT_KNOWLEDGE),
            (ItemKind::Config, "agent", &CONFIG),
        ];
        let mut items = Vec::new();
        while let Some((kind, above, folder)) = folders.pop() {
            folders.extend(folder.dirs().map(|inner| (kind, above, inner)));
            items.extend(folder.files().map(|file| Self { kind, above, file }));
        }
        items
    }

    pub(crate) fn text(self) -> &'static str {
        self.file
            .contents_utf8()
            .expect("a test reads every system item as text")
    }

    /// Place of its copy below `root`.
    pub(crate) fn place(self, root: &Path) -> ItemLocation {
        let path = self.file.path();
        let extension = path.extension().and_then(|extension| extension.to_str());
        let stem = path.with_extension("");
        ItemLocation {
            item: ItemRef {
                kind: self.kind,
                id: ItemId::new(format!("{}/{}", self.above, stem.display()))
                    .expect("a test makes an id of every system item"),
            },
            space: Space::System,
            root: root.to_owned(),
            extension: self
                .kind
                .extensions()
                .iter()
                .copied()
                .find(|known| Some(*known) == extension)
                .expect("a test checks the extension of every system item"),
        }
    }
}

/// Writes the system items below `state_dir`, signed with the node's key, and adds that key to the system space's
/// trusted keys. Correct files are not changed; each write is atomic.
pub fn install(state_dir: &Path, key: &SecretKey, at: Timestamp) -> Result<(), Error> {
    let root = root(state_dir);
    for item in Embedded::all() {
        let place = item.place(&root);
        let path = place.path();
        if fs::read_to_string(&path).is_ok_and(|text| is_copy(&place, &text, item, key)) {
            continue;
        }
        let signed = seal::sign_text(place.item.kind, place.extension, item.text(), key, at)
            .expect("a test signs every system item");
        let folder = path.parent().unwrap_or(&root);
        fs::create_dir_all(folder)
            .and_then(|()| file::replace(&path, signed.as_bytes(), 0o644))
            .map_err(|source| Error::Write { path, source })?;
    }
    let entry = trust::folder(&root).join(format!("{}.toml", key.public().fingerprint()));
    if !fs::exists(&entry).unwrap_or(false) {
        trust::trust(&root, key.public(), "node", key, at)
            .map_err(|source| Error::Trust { source })?;
    }
    Ok(())
}

fn is_copy(place: &ItemLocation, text: &str, item: Embedded, key: &SecretKey) -> bool {
    let kind = place.item.kind;
    let same = seal::strip(kind, place.extension, text).is_ok_and(|text| text == item.text());
    same && seal::inspect(kind, place.extension, text).is_ok_and(|seal| {
        seal.coverage == Coverage::Full && seal.token.verify(key.public()).is_ok()
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rye_core::provider::{self, Agent, ModelRequest, Owner, Provider};

    use super::*;
    use crate::metadata;

    #[test]
    fn shipped_graphs_have_no_findings() {
        let hello = include_str!("init/hello.yaml");
        let mut graphs: Vec<&str> = Embedded::all().into_iter().map(Embedded::text).collect();
        graphs.retain(|text| text.contains("tool_type: graph"));
        assert_eq!(graphs.len(), 4);
        for text in graphs.into_iter().chain([hello]) {
            let (_, findings) = rye_core::definition::parse(text).unwrap();
            assert_eq!(findings, []);
        }
    }

    #[test]
    fn shipped_directives_have_no_findings() {
        let root = Path::new("");
        let mut items = Embedded::all();
        items.retain(|item| item.kind == ItemKind::Directive);
        assert!(!items.is_empty());
        for item in items {
            let id = item.place(root).item.id;
            let read = rye_core::directive::parse(item.text(), &id);
            let (_, findings) = read.unwrap_or_else(|found| panic!("{id}: {found:?}"));
            assert_eq!(findings, [], "{id}");
        }
    }

    #[test]
    fn shipped_providers_have_no_findings_and_cover_tiers() {
        let root = Path::new("");
        let config = |id: &str| {
            let mut items = Embedded::all().into_iter();
            let found = items.find(|item| item.place(root).item.to_string() == id);
            found
                .unwrap_or_else(|| panic!("{id} is not shipped"))
                .text()
        };
        let mut providers = BTreeMap::new();
        for item in Embedded::all() {
            let id = item.place(root).item.id;
            if id.category() == "agent/providers" {
                let read = Provider::parse(item.text(), &id, Owner::User);
                let (provider, findings) = read.unwrap_or_else(|found| panic!("{id}: {found:?}"));
                assert_eq!(findings, [], "{id}");
                providers.insert(provider.name.clone(), provider);
            }
        }
        let agent = metadata::configuration("yaml", config("config:agent/agent")).unwrap();
        let (agent, findings) = Agent::from_config(&agent.into()).unwrap();
        assert_eq!(findings, []);
        for tier in agent.tiers.keys().chain(agent.aliases.keys()) {
            let asked = ModelRequest {
                model: Some(tier),
                ..ModelRequest::default()
            };
            let (model, _) = provider::resolve(&asked, &agent, &providers, &|_, _| true).unwrap();
            assert!(model.max_output <= agent.max_output, "{tier}: {model:?}");
        }
    }

    #[test]
    fn reinstall_changes_only_differing_files() {
        let state = tempfile::tempdir().unwrap();
        let key = SecretKey::from_seed(&[3; 32]);
        install(state.path(), &key, Timestamp::from_ms(1_000)).unwrap();
        let echo = root(state.path()).join(".ai/tools/rye/core/echo.yaml");
        let bash = root(state.path()).join(".ai/tools/rye/bash.yaml");
        let (first_echo, first_bash) = (fs::read(&echo).unwrap(), fs::read(&bash).unwrap());
        fs::write(&bash, "version: 9\n").unwrap();
        install(state.path(), &key, Timestamp::from_ms(9_000)).unwrap();
        assert_eq!(fs::read(&echo).unwrap(), first_echo);
        let bash = fs::read(&bash).unwrap();
        assert_ne!(bash, first_bash, "it is signed anew, at another time");
        assert_eq!(bash.len(), first_bash.len());
    }
}
