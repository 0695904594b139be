//! Holds on a real store in real time: a hold that is not renewed is lost, and reports it.

use std::time::Duration;

use leasehold::{Hold, HoldStatus, Locks, Loss};

const TTL: Duration = Duration::from_millis(500);

async fn hold(folder: &std::path::Path) -> (Locks, Hold) {
    // Short enough for a test, with timeouts that leave room for a retry.
    let class = folder.join("leasehold.toml");
    std::fs::write(
        &class,
        "[class.scheduler]\nttl = \"500ms\"\nrenew = { every = \"150ms\", timeout = \"100ms\" }\n",
    )
    .unwrap();
    let url = format!("sqlite:{}", folder.join("locks.db").display());
    let locks = leasehold::open(url).policies(class).build().await.unwrap();
    let hold = locks.class("scheduler").acquire("job:1").await.unwrap().held().unwrap();
    (locks, hold)
}

/// The process stalls past its deadline, as when it is paused or swapped out. The next check
/// reports the loss, even before the keeper has run.
#[tokio::test]
async fn trap_05_the_first_check_after_a_stall_finds_the_hold_lost() {
    let folder = tempfile::tempdir().unwrap();
    let (_locks, hold) = hold(folder.path()).await;
    hold.check().unwrap();
    #[allow(clippy::disallowed_methods, reason = "the whole runtime must stand still")]
    std::thread::sleep(TTL + Duration::from_millis(50));
    assert!(hold.check().is_err(), "{:?}", hold.status());
    assert!(hold.fence().is_err());
}

/// When the runtime of the keeper ends, the hold is lost at once, and its cancellation token fires.
#[test]
fn a_hold_is_lost_when_its_runtime_ends() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (locks, hold) = runtime.block_on(hold(folder.path()));
    assert_eq!(hold.status(), HoldStatus::Proven);
    drop(runtime);
    assert_eq!(hold.status(), HoldStatus::Lost(Loss::KeeperGone));
    assert!(hold.cancellation().is_cancelled());
    assert!(hold.check().is_err());
    drop(locks);
}
