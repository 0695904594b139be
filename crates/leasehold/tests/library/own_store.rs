//! A registered store opens by its own scheme and passes the conformance suite.

use leasehold::StoreUrl;
use leasehold_conformance::{TestbedFixture, open_url};

use crate::trial_backend::TrialBackend;

leasehold_conformance::taker!(async |url: String| open_url(&TrialBackend, &url));

leasehold_conformance::suite! {
    time: Real,
    fixture: TestbedFixture::start(TrialBackend, taker_command).await.unwrap(),
    skips: [],
}

#[test]
fn a_registered_store_opens_by_its_scheme() {
    let _ = leasehold::register(TrialBackend);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("locks.db");
    StoreUrl::parse(&format!("trial:{}", path.display())).unwrap().open().unwrap();
    assert!(path.exists());
}

#[test]
fn a_registered_store_is_parsed_and_listed() {
    let _ = leasehold::register(TrialBackend);
    let url = StoreUrl::parse("trial:/a/b.db").unwrap();
    assert_eq!((url.scheme(), url.to_string().as_str()), ("trial", "trial:/a/b.db"));
    assert_eq!(url.exists(), Some(false));
    assert!(leasehold::known_urls("and").contains("trial:PATH"));
    let listed = leasehold::testbeds().iter().any(|kind| kind.info().name == "trial");
    assert!(listed && url.testbed().is_some(), "drills find it");
    let error = StoreUrl::parse("trail:/a/b.db").unwrap_err().to_string();
    assert!(error.contains("trial:PATH"), "{error}");
}

#[test]
fn a_scheme_belongs_to_one_store() {
    let _ = leasehold::register(TrialBackend);
    let error = leasehold::register(TrialBackend).unwrap_err().to_string();
    assert!(error.contains("another store has this scheme"), "{error}");
}
