//! A server with an eviction policy runs out of memory and throws the leases away. Two holders at once cannot be
//! prevented then; what is left is that fences grow, that stale writes are refused, and that the old holder learns it.

use super::scene::{Scene, between, secs, transition};
use super::verdict::Draft;
use super::{PATIENCE, SLACK, TTL};
use crate::fleet::Error;
use crate::history::Entry;

pub(super) async fn play(scene: &mut Scene, draft: &mut Draft) -> Result<(), Error> {
    let old = scene
        .orders("old", "scheduler", "job:1")
        .steps(80, 100)
        .rest(1000);
    let new = scene.orders("new", "scheduler", "job:1").steps(10, 50);
    scene.crew.start(old).await?;
    scene.at_work(0, "old").await?;
    scene.crew.start(new).await?;
    scene.look(0, PATIENCE, "new", "busy").await;

    let from = scene.tape.place();
    scene.tape.note(Entry::Forgot);
    scene
        .stage
        .command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-random"])
        .await?;
    let evicted = scene.fault("the server evicts every key");
    scene.stage.command(&["CONFIG", "SET", "maxmemory", "1"]).await?;
    // Eviction happens before a command that needs memory; the server refuses it afterwards.
    let refused = scene.stage.command(&["SET", "drill:filler", "x"]).await;
    scene.stage.command(&["CONFIG", "SET", "maxmemory", "0"]).await?;
    scene
        .stage
        .command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"])
        .await?;
    scene.tape.note(Entry::Forgot);
    draft.promise(
        "the fault is real: the server was out of memory",
        refused.is_err(),
        if refused.is_err() {
            "it refused a write"
        } else {
            "it took a write"
        },
    );
    let learned = scene.event(from, "old", "abandoned").await?;
    let why = transition(&learned)
        .and_then(|seen| seen.detail.clone())
        .unwrap_or_default();
    draft.promise(
        "the old holder learns it with its next renewal and stops",
        between(evicted, learned.at) <= TTL + SLACK,
        format!("after {} ({why})", secs(between(evicted, learned.at))),
    );
    let next = scene.look(from, PATIENCE, "new", "acquired").await;
    draft.promise(
        "the name is not lost with its key",
        next.is_some(),
        next.map_or_else(
            || "never granted again".to_owned(),
            |next| format!("granted again after {}", secs(between(evicted, next.at))),
        ),
    );
    Ok(())
}
