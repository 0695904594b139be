//! A registered store opens by its own scheme and passes the conformance suite.

use leasehold::StoreUrl;
use leasehold::store::SharedStore;
use leasehold_conformance::{Fixture, TakerCommand};

use crate::trial_backend::TrialBackend;

/// Opens a URL of the trial store. Tests share a process or do not, so the store may be registered already.
fn open(url: &str) -> anyhow::Result<SharedStore> {
    let _ = leasehold::register(TrialBackend);
    Ok(StoreUrl::parse(url)?.open()?)
}

struct TrialFile {
    folder: tempfile::TempDir,
}

impl TrialFile {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn url(&self) -> String {
        format!("trial:{}", self.folder.path().join("locks.db").display())
    }
}

#[async_trait::async_trait]
impl Fixture for TrialFile {
    async fn open(&self) -> anyhow::Result<SharedStore> {
        open(&self.url())
    }

    fn taker(&self) -> Option<TakerCommand> {
        taker_command(&self.url()).ok()
    }
}

leasehold_conformance::taker!(async |url: String| open(&url));

leasehold_conformance::suite! {
    time: Real,
    fixture: TrialFile::new(),
    skips: [],
}

#[test]
fn a_registered_store_is_parsed_and_listed() {
    let _ = leasehold::register(TrialBackend);
    let url = StoreUrl::parse("trial:/a/b.db").unwrap();
    assert_eq!((url.scheme(), url.to_string().as_str()), ("trial", "trial:/a/b.db"));
    assert_eq!(url.exists(), Some(false));
    assert!(leasehold::known_urls("and").contains("trial:PATH"));
    let error = StoreUrl::parse("trail:/a/b.db").unwrap_err().to_string();
    assert!(error.contains("trial:PATH"), "{error}");
}

#[test]
fn a_scheme_belongs_to_one_store() {
    let _ = leasehold::register(TrialBackend);
    let error = leasehold::register(TrialBackend).unwrap_err().to_string();
    assert!(error.contains("another store has this scheme"), "{error}");
}
