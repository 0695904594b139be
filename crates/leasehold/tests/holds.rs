//! Holds on a real store with real time: what nobody renews is lost, and says so.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use leasehold::{Hold, Locks, Loss, Standing};

const TTL: Duration = Duration::from_millis(500);

async fn hold(folder: &std::path::Path) -> (Locks, Hold) {
    // Short enough for a test, with time-outs that leave room for a retry.
    let class = folder.join("leasehold.toml");
    std::fs::write(
        &class,
        "[class.scheduler]\nttl = \"500ms\"\nrenew = { every = \"150ms\", timeout = \"100ms\" }\n",
    )
    .unwrap();
    let url = format!("sqlite:{}", folder.join("locks.db").display());
    let locks = leasehold::open(url).policies(class).build().await.unwrap();
    let hold = locks
        .class("scheduler")
        .acquire("job:1")
        .await
        .unwrap()
        .held()
        .unwrap();
    (locks, hold)
}

/// The process stands still past its deadline, as it does when it is stopped or swapped out: the very next look says so,
/// before the keeper has run.
#[tokio::test]
async fn trap_05_the_first_look_after_a_standstill_finds_the_hold_lost() {
    let folder = tempfile::tempdir().unwrap();
    let (_locks, hold) = hold(folder.path()).await;
    hold.check().unwrap();
    #[allow(clippy::disallowed_methods, reason = "the whole runtime must stand still")]
    std::thread::sleep(TTL + Duration::from_millis(50));
    assert!(hold.check().is_err(), "{:?}", hold.standing());
    assert!(hold.fence().is_err());
}

/// The runtime that renews is gone: the hold is lost at once and tells whoever waits for it.
#[test]
fn a_hold_whose_runtime_is_gone_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let (locks, hold) = runtime.block_on(hold(folder.path()));
    assert_eq!(hold.standing(), Standing::Proven);
    drop(runtime);
    assert_eq!(hold.standing(), Standing::Lost(Loss::KeeperGone));
    assert!(hold.cancellation().is_cancelled());
    assert!(hold.check().is_err());
    drop(locks);
}
