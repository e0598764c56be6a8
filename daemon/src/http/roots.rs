//! Trusted certificate authorities.

use std::path::{Path, PathBuf};

use rustls::RootCertStore;

use crate::config::Environment;

/// Names a file with certificates to trust instead of the host's.
const FILE: &str = "SSL_CERT_FILE";

/// The file that `SSL_CERT_FILE` names holds no certificate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{FILE} names `{}`, which holds no certificate: {reason}; name a file in PEM or unset it", .file.display())]
pub struct BadRoots {
    file: PathBuf,
    reason: String,
}

/// Authorities of the file that the environment names, else those of the host, else those built into the daemon.
pub(super) fn trusted(environment: &Environment) -> Result<RootCertStore, BadRoots> {
    if let Some(file) = environment.get(FILE) {
        return of_file(Path::new(file));
    }
    let found = rustls_native_certs::load_native_certs();
    for error in &found.errors {
        tracing::warn!(%error, "certificates of this host cannot be read");
    }
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(found.certs);
    if store.is_empty() {
        tracing::info!(
            "this host has no certificates of authorities; those of the daemon are used"
        );
        store.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    Ok(store)
}

fn of_file(file: &Path) -> Result<RootCertStore, BadRoots> {
    let found = rustls_native_certs::load_certs_from_paths(Some(file), None);
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(found.certs);
    if !store.is_empty() {
        return Ok(store);
    }
    let reason = found.errors.first();
    Err(BadRoots {
        file: file.to_owned(),
        reason: reason.map_or_else(|| "it is empty".to_owned(), ToString::to_string),
    })
}
