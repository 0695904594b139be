//! The server is lost with leases that its replica never heard of, and the replica takes its place.
//!
//! Two holders at once cannot be prevented then. What is left: fences grow across the fail-over, the target refuses the old
//! holder, and a class that demands more than this store can promise was never served.

use std::time::Duration;

use leasehold_core::Locks;
use leasehold_core::clock::{BootClock, Clock, ClockExt};
use leasehold_core::policy::PolicyBook;

use super::draft::Draft;
use super::scene::{Scene, transition};
use super::{PATIENCE, SLACK, TTL};
use crate::fleet::{Error, Replica};
use crate::history::{Answer, Entry};

pub(super) async fn play(scene: &mut Scene, draft: &mut Draft) -> Result<(), Error> {
    refuses_the_durable(scene, draft).await?;
    // A grant that the replica knows of: its counter is behind afterwards, not missing.
    let first = scene.orders("first", "scheduler", "job:1").turns(1);
    scene.crew.start(first).await?;
    scene.event(0, "first", "released").await?;
    let replica = scene.stage.replica().await?;
    settle(&replica, "master_link_status:up").await?;

    replica.cut().await?;
    scene.fault("the replica hears nothing from the server any more");
    let old = scene
        .orders("old", "scheduler", "job:1")
        .steps(100, 100)
        .rest(1000);
    scene.crew.start(old).await?;
    let granted = scene.event(0, "old", "acquired").await?;
    scene.at_work(0, "old").await?;

    let from = scene.tape.place();
    scene.tape.note(Entry::Forgot);
    let lost = scene.fault("the server is lost, and its address leads to the replica");
    scene.stage.fail_over(&replica).await?;
    // A replica refuses to write. That is no contention: nobody holds what it cannot grant.
    let new = scene.orders("new", "scheduler", "job:1").steps(40, 50);
    scene.crew.start(new).await?;
    let told = scene.answer(from, "new").await;
    no_contention(told, draft);
    replica.command(&["REPLICAOF", "NO", "ONE"]).await?;
    let promoted = scene.mend("the replica is promoted");
    scene.tape.note(Entry::Forgot);
    let next = scene.look(from, PATIENCE, "new", "acquired").await;
    draft.within(
        "the store is back with the promotion: the name is granted again",
        promoted,
        next.as_ref(),
        TTL + SLACK,
    );
    if let Some(next) = &next {
        let fences = (fence(&granted), fence(next));
        draft.always(
            "the fence grows across the fail-over, although the replica's counter was behind",
            fences.0.is_some() && fences.1 > fences.0,
            format!("{} then {}", shown(fences.0), shown(fences.1)),
        );
    }
    let learned = scene.look(from, PATIENCE, "old", "abandoned").await;
    draft.within(
        "the old holder stops: told by a renewal, or at its deadline at the latest",
        lost,
        learned.as_ref(),
        TTL + SLACK,
    );
    let after = scene.tape.place();
    let back = scene.look(after, PATIENCE, "old", "acquired").await;
    draft.promise(
        "both work on with the new server",
        back.is_some(),
        if back.is_some() {
            "the old holder was granted it again"
        } else {
            "the old holder was never granted it again"
        },
    );
    // The replica is the store now, and must last until everybody has ended.
    scene.keep(replica);
    Ok(())
}

/// A replica that cannot grant anything says so. It is no question of time what it is taken for.
pub(super) fn no_contention(told: Option<Answer>, draft: &mut Draft) {
    let what = "before the replica is promoted, acquires are told that the store is unavailable, not that somebody holds the name";
    match told {
        Some(told) => draft.always(
            what,
            told == Answer::Unavailable,
            format!("{told:?}").to_lowercase(),
        ),
        None => draft.promise(what, false, "never answered"),
    }
}

/// A class that says `requires = "durable"` is refused by a server that keeps nothing on its disk: it is told before, not
/// after.
async fn refuses_the_durable(scene: &Scene, draft: &mut Draft) -> Result<(), Error> {
    let wrong = |error: &dyn std::fmt::Display| Error::Store(error.to_string());
    let url = leasehold::StoreUrl::parse(scene.stage.url()).map_err(|error| wrong(&error))?;
    let store = url.open().map_err(|error| wrong(&error))?;
    let book = PolicyBook::from_file(scene.stage.policies()).map_err(|error| wrong(&error))?;
    let locks = Locks::builder(store)
        .policies(book)
        .without_log()
        .build()
        .map_err(|error| wrong(&error))?;
    let asked = locks.class("durable").acquire(scene.stage.name("job:1")).await;
    let seen = match &asked {
        Err(leasehold_core::Error::Invalid(refused)) if refused.field.ends_with("requires") => Ok(refused),
        other => Err(format!("{other:?}")),
    };
    durable(seen.map(ToString::to_string), draft);
    drop(asked);
    locks.shutdown(Duration::from_secs(1)).await;
    Ok(())
}

/// How it was refused, or what came instead.
pub(super) fn durable(seen: Result<String, String>, draft: &mut Draft) {
    draft.always(
        "a class that requires `durable` is refused, because this server keeps nothing",
        seen.is_ok(),
        seen.unwrap_or_else(|other| other),
    );
}

/// Waits until the replica says so.
async fn settle(replica: &Replica, wanted: &str) -> Result<(), Error> {
    let end = BootClock.now() + PATIENCE;
    while BootClock.now() < end {
        let info = replica.command(&["INFO", "replication"]).await?;
        let text: String = redis::from_redis_value(info).unwrap_or_default();
        if text.lines().any(|line| line == wanted) {
            return Ok(());
        }
        BootClock.sleep(Duration::from_millis(50)).await;
    }
    Err(Error::Waited("for the replica to follow".to_owned()))
}

fn fence(record: &crate::history::Record) -> Option<leasehold_core::Fence> {
    transition(record).and_then(|seen| seen.fence)
}

fn shown(fence: Option<leasehold_core::Fence>) -> String {
    fence.map_or_else(|| "none".to_owned(), |fence| fence.to_string())
}
