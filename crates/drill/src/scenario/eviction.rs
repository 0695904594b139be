//! A server with an eviction policy runs out of memory and throws the leases away. Two holders at once cannot be
//! prevented then; what is left is that fences grow, that stale writes are refused, and that the old holder learns it.

use super::draft::Draft;
use super::scene::Scene;
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
    let learned = scene.look(from, PATIENCE, "old", "abandoned").await;
    draft.within(
        "the old holder learns it with its next renewal and stops",
        evicted,
        learned.as_ref(),
        TTL + SLACK,
    );
    let next = scene.look(from, PATIENCE, "new", "acquired").await;
    draft.within(
        "the name is not lost with its key: it is granted again",
        evicted,
        next.as_ref(),
        PATIENCE,
    );
    Ok(())
}
