use super::*;
use rye_core::seal::{SecretKey, Token, sign_json};
use rye_journal::Signed;
use std::fs;
use std::path::PathBuf;

const KEY: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const OTHER: &str = "fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210";

struct Node(SecretKey);

impl Signer for Node {
    fn sign(&self, head: &Digest) -> Signed<'_> {
        Signed {
            signature: self.0.sign_hex(&head.to_string()),
            signer: self.0.public().fingerprint(),
        }
    }

    fn sign_text(&self, body: String, _at: Timestamp) -> String {
        body
    }

    fn sign_json(&self, object: &Object, at: Timestamp) -> Object {
        let mut object = object.clone();
        sign_json(&mut object, &self.0, at);
        object
    }

    fn verifies(&self, token: &Token) -> bool {
        token.verify(self.0.public()).is_ok()
    }
}

fn store(seed: u8) -> Store {
    Store::new(Arc::new(Node(SecretKey::from_seed(&[seed; 32]))))
}

struct Project(tempfile::TempDir);

impl Project {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn files(&self) -> &str {
        self.0.path().to_str().unwrap()
    }

    fn pointer(&self, key: &str) -> PathBuf {
        let name = format!("state/objects/cache/nodes/{key}.json");
        self.0.path().join(name)
    }

    fn object(&self, hash: &str) -> PathBuf {
        let name = format!(
            "state/objects/objects/{}/{}/{hash}.json",
            &hash[..2],
            &hash[2..4]
        );
        self.0.path().join(name)
    }
}

async fn stored() -> (Project, Store) {
    let (project, store) = (Project::new(), store(1));
    let at = Timestamp::from_ms(1_771_840_801_234);
    assert_eq!(
        store.find(&FilePool::default(), project.files(), KEY).await,
        None
    );
    store
        .store(
            &FilePool::default(),
            project.files(),
            KEY,
            "a",
            &Arc::new(json!({"n": 1})),
            at,
        )
        .await;
    (project, store)
}

#[tokio::test]
async fn entry_is_found_under_its_key_only() {
    let (project, store) = stored().await;
    assert_eq!(
        store.find(&FilePool::default(), project.files(), KEY).await,
        Some(json!({"n": 1}))
    );
    assert_eq!(
        store
            .find(&FilePool::default(), project.files(), OTHER)
            .await,
        None
    );
    assert_eq!(
        store
            .find(&FilePool::default(), project.files(), "no hash")
            .await,
        None
    );
}

#[tokio::test]
async fn pointer_not_signed_for_key_is_a_miss() {
    let (project, ours) = stored().await;
    let good = fs::read(project.pointer(KEY)).unwrap();
    let mut altered: Value = serde_json::from_slice(&good).unwrap();
    altered["node_name"] = json!("b");
    let mut unsigned = altered.clone();
    unsigned.as_object_mut().unwrap().shift_remove("_signature");
    for forged in [
        altered.to_string(),
        unsigned.to_string(),
        "{".to_owned(),
        "[]".to_owned(),
    ] {
        fs::write(project.pointer(KEY), &forged).unwrap();
        assert_eq!(
            ours.find(&FilePool::default(), project.files(), KEY).await,
            None,
            "{forged}"
        );
    }
    // A valid pointer for another key.
    fs::write(project.pointer(OTHER), &good).unwrap();
    assert_eq!(
        ours.find(&FilePool::default(), project.files(), OTHER)
            .await,
        None
    );
    // A valid pointer of another node.
    fs::write(project.pointer(KEY), &good).unwrap();
    assert_eq!(
        store(2)
            .find(&FilePool::default(), project.files(), KEY)
            .await,
        None
    );
    assert_eq!(
        ours.find(&FilePool::default(), project.files(), KEY).await,
        Some(json!({"n": 1}))
    );
}

#[tokio::test]
async fn pointer_to_changed_or_missing_object_is_a_miss() {
    let (project, store) = stored().await;
    let entry = store
        .list(&FilePool::default(), project.files())
        .await
        .unwrap()
        .remove(0);
    let object = project.object(&entry.node_result_hash);
    let text = fs::read_to_string(&object).unwrap();
    fs::write(&object, text.replace('1', "2")).unwrap();
    assert_eq!(
        store.find(&FilePool::default(), project.files(), KEY).await,
        None
    );
    let error = store
        .object(
            &FilePool::default(),
            project.files(),
            &entry.node_result_hash,
        )
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DataLoss, "{error}");
    fs::remove_file(&object).unwrap();
    assert_eq!(
        store.find(&FilePool::default(), project.files(), KEY).await,
        None
    );
}

#[tokio::test]
async fn entry_is_dropped_by_unique_key_prefix() {
    let (project, store) = stored().await;
    let files = project.files();
    let at = Timestamp::from_ms(0);
    let near = format!("{}{}", &KEY[..8], "7".repeat(56));
    store
        .store(
            &FilePool::default(),
            files,
            &near,
            "b",
            &Arc::new(json!(2)),
            at,
        )
        .await;
    let drop = async |key: &str| {
        let which = Which::Key(key.to_owned());
        store.drop(&FilePool::default(), files, which).await
    };
    let vague = drop(&KEY[..8]).await.unwrap_err();
    assert!(matches!(vague, Error::Vague { .. }), "{vague}");
    assert_eq!(vague.kind(), ErrorKind::Invalid);
    for none in ["0000", "xyz", "abc", ""] {
        let dropped = drop(none).await;
        assert!(matches!(dropped, Ok(0) | Err(Error::Digest(_))), "{none}");
    }
    assert_eq!(drop(&near[..9]).await.unwrap(), 1);
    assert_eq!(drop(&KEY[..8]).await.unwrap(), 1);
    assert!(
        store
            .list(&FilePool::default(), files)
            .await
            .unwrap()
            .is_empty()
    );
}

#[tokio::test]
async fn dropping_cache_keeps_objects() {
    let (project, store) = stored().await;
    let files = project.files();
    let at = Timestamp::from_ms(0);
    store
        .store(
            &FilePool::default(),
            files,
            OTHER,
            "b",
            &Arc::new(json!(2)),
            at,
        )
        .await;
    fs::write(project.pointer(&"9".repeat(64)), "{}").unwrap();
    let entries = store.list(&FilePool::default(), files).await.unwrap();
    let told: Vec<_> = entries
        .iter()
        .map(|entry| (entry.node.as_str(), entry.trusted))
        .collect();
    assert_eq!(told, [("a", true), ("", false), ("b", true)]);
    assert_eq!(
        entries[0].cached_at,
        Some(Timestamp::from_ms(1_771_840_801_234))
    );
    assert_eq!(
        store
            .drop(&FilePool::default(), files, Which::Key(KEY.into()))
            .await
            .unwrap(),
        1
    );
    assert_eq!(
        store
            .drop(&FilePool::default(), files, Which::Key(KEY.into()))
            .await
            .unwrap(),
        0
    );
    assert_eq!(store.find(&FilePool::default(), files, KEY).await, None);
    let result = store
        .object(&FilePool::default(), files, &entries[0].node_result_hash)
        .await
        .unwrap();
    assert_eq!(result["result"], json!({"n": 1}));
    assert_eq!(
        store
            .drop(&FilePool::default(), files, Which::All)
            .await
            .unwrap(),
        2
    );
    assert_eq!(store.list(&FilePool::default(), files).await.unwrap(), []);
    assert!(
        store
            .drop(&FilePool::default(), files, Which::Key("../x".into()))
            .await
            .is_err()
    );
}

#[tokio::test]
async fn unused_project_has_empty_cache_and_no_objects() {
    let (project, store) = (Project::new(), store(1));
    let files = project.files();
    assert_eq!(store.list(&FilePool::default(), files).await.unwrap(), []);
    assert_eq!(
        store
            .drop(&FilePool::default(), files, Which::All)
            .await
            .unwrap(),
        0
    );
    assert_eq!(
        store
            .snapshot_of(&FilePool::default(), files, &RunId::new("r-1").unwrap())
            .await
            .unwrap(),
        None
    );
    let error = store
        .object(&FilePool::default(), files, KEY)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
}
