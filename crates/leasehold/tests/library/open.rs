//! `leasehold::open`: a URL gives working locks, and errors say what to do.

use std::sync::Arc;

use leasehold::observe::Counters;
use leasehold::prelude::*;

#[tokio::test]
async fn sqlite_by_url_excludes_across_clients() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("deep/locks.db").display());
    let (one, two) =
        (leasehold::open(&url).build().await.unwrap(), leasehold::open(&url).build().await.unwrap());
    let hold = one.class("workflow").acquire("job:1").await.unwrap().held().unwrap();
    let Acquired::Busy(busy) = two.class("workflow").acquire("job:1").await.unwrap() else {
        panic!("both hold it");
    };
    assert_eq!(busy.holder, one.holder().to_string());
    let fence = hold.fence().unwrap();
    hold.release().await;
    let next = two.class("workflow").acquire("job:1").await.unwrap().held().unwrap();
    assert!(next.fence().unwrap() > fence);
}

#[tokio::test]
async fn policies_holder_and_observer_are_used() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("leasehold.toml");
    std::fs::write(&file, "[class.report]\nttl = \"45s\"\n").unwrap();
    let counters = Arc::new(Counters::default());
    let locks = leasehold::open("memory:")
        .policies(&file)
        .holder(leasehold::Holder::new("me").unwrap())
        .observer(Arc::clone(&counters) as Arc<dyn leasehold::event::Observer>)
        .build()
        .await
        .unwrap();
    assert_eq!(locks.holder().as_str(), "me");
    locks.class("report").run("r", async |_| ()).await.unwrap();
    assert!(format!("{counters:?}").contains("report"), "{counters:?}");
}

#[tokio::test]
async fn a_bad_policy_file_opens_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (file, db) = (folder.path().join("leasehold.toml"), folder.path().join("locks.db"));
    std::fs::write(&file, "[class.scheduler]\nttl = 90\n").unwrap();
    let opened = leasehold::open(db.display().to_string()).policies(&file).build().await;
    let message = opened.unwrap_err().to_string();
    assert!(message.contains("leasehold.toml:2"), "{message}");
    assert!(!db.exists());
}

#[tokio::test]
async fn the_registry_tells_what_opened_stores_can_do() {
    let folder = tempfile::tempdir().unwrap();
    let file = format!("sqlite:{}", folder.path().join("locks.db").display());
    // A server is connected to at the first request, so none has to run.
    for url in ["memory:", &file, "redis://127.0.0.1:1"] {
        let url = leasehold::StoreUrl::parse(url).unwrap();
        assert_eq!(url.info().capabilities, Some(url.open().unwrap().capabilities()), "{url}");
    }
    // A daemon's depend on the store behind it.
    let daemon = leasehold::StoreUrl::parse("http://127.0.0.1:1").unwrap();
    assert_eq!(daemon.info().capabilities, None);
}
