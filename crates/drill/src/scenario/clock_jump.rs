//! Wall clocks jump: the client's by an hour either way, then the server's.
//!
//! Leasehold never asks a wall clock, so the client's must change nothing. A SQLite store's leases follow the boot clock, so
//! there is nothing else to set there. Redis expires by its wall clock: set back, leases live longer, and that is
//! told; set ahead, they are gone at once and no client can prevent it, so the fence has to hold.

use std::time::Duration;

use super::draft::Draft;
use super::scene::{Scene, secs, transition};
use super::{PATIENCE, SLACK, TTL};
use crate::fleet::{Error, HOUR, Skew, StoreKind};
use crate::history::Entry;

/// How far the server's clock is set: far beyond a TTL of the drills, near what a bad NTP server does.
const JUMP: i64 = 60;

pub(super) async fn play(scene: &mut Scene, draft: &mut Draft) -> Result<(), Error> {
    let clock = Skew::new(scene.stage.folder(), "client-clock")?;
    let holder = scene.orders("holder", "scheduler", "job:1").steps(120, 50);
    scene.crew.start_under(&clock.words(), holder).await?;
    scene.event(0, "holder", "renewed").await?;
    clients(scene, draft, &clock).await?;
    if scene.stage.kind() == StoreKind::Redis {
        back(scene, draft).await?;
        ahead(scene, draft).await?;
    }
    Ok(())
}

/// The holder's own wall clock is set an hour ahead, then an hour behind.
async fn clients(scene: &Scene, draft: &mut Draft, clock: &Skew) -> Result<(), Error> {
    for (hours, words) in [(1, "an hour ahead"), (-1, "an hour behind")] {
        let from = scene.tape.place();
        clock.set(hours * HOUR)?;
        scene.fault(&format!("the holder's wall clock is set {words}"));
        let real = (clock.seen().await? - hours * HOUR).abs() <= 2;
        let mut renewed = 0;
        let went_on = scene
            .tape
            .wait(from, PATIENCE, |record| {
                renewed += u32::from(event(record, "holder", "renewed"));
                renewed == 2
            })
            .await;
        let harm = scene
            .tape
            .history()
            .records
            .get(from..)
            .unwrap_or_default()
            .iter()
            .any(|record| event(record, "holder", "abandoned") || event(record, "holder", "clock_jump"));
        draft.promise(
            &format!("the client's wall clock {words} changes nothing"),
            real && went_on.is_some() && !harm,
            match (real, harm) {
                (false, _) => "the clock was not set: this shows nothing".to_owned(),
                (true, true) => "the hold was lost".to_owned(),
                (true, false) => format!("renewed {renewed} times more, as before"),
            },
        );
    }
    clock.set(0)?;
    scene.mend("the holder's wall clock is right again");
    Ok(())
}

/// The server's clock is set back: its leases live longer than their holders count.
async fn back(scene: &Scene, draft: &mut Draft) -> Result<(), Error> {
    let from = scene.tape.place();
    scene.stage.skew()?.set(-JUMP)?;
    scene.fault(&format!("the server's clock is set back by {JUMP} s"));
    let told = scene.look(from, PATIENCE, "holder", "clock_jump").await;
    let seen = told.as_ref().and_then(transition);
    draft.promise(
        "set back: the jump is told with the next renewal",
        seen.is_some_and(|seen| seen.detail.as_deref() == Some("behind")),
        seen.and_then(|seen| seen.span).map_or_else(
            || "never told".to_owned(),
            |by| format!("the store is {} behind", secs(Duration::from_nanos(by))),
        ),
    );
    let after = scene.tape.place();
    let renewed = scene.look(after, PATIENCE, "holder", "renewed").await;
    let lost = scene.look(from, Duration::ZERO, "holder", "abandoned").await;
    draft.promise(
        "set back: the holder counts on its own clock only and goes on",
        renewed.is_some() && lost.is_none(),
        if lost.is_none() {
            "renewed as before"
        } else {
            "lost"
        },
    );
    Ok(())
}

/// The server's clock jumps ahead: the lease is gone with most of its time left.
async fn ahead(scene: &mut Scene, draft: &mut Draft) -> Result<(), Error> {
    // A task of its own, so that it is in the middle of it whatever the others took.
    let in_order = scene.crew.finish("holder").await.in_order();
    draft.promise(
        "set back: the holder ends in order",
        in_order,
        if in_order { "it did" } else { "it did not" },
    );
    let before = scene.tape.place();
    let old = scene
        .orders("old", "scheduler", "job:1")
        .steps(120, 50)
        .rest(2000);
    let rival = scene.orders("rival", "scheduler", "job:1").steps(40, 50);
    scene.crew.start(old).await?;
    scene.event(before, "old", "renewed").await?;
    scene.crew.start(rival).await?;
    scene.look(before, PATIENCE, "rival", "busy").await;
    let from = scene.tape.place();
    scene.tape.note(Entry::Forgot);
    scene.stage.skew()?.set(0)?;
    let jumped = scene.fault(&format!("the server's clock jumps ahead by {JUMP} s"));
    let learned = scene.look(from, PATIENCE, "old", "abandoned").await;
    scene.tape.note(Entry::Forgot);
    draft.within(
        "set ahead: the holder whose lease is gone learns it with its next renewal",
        jumped,
        learned.as_ref(),
        TTL + SLACK,
    );
    let next = scene.look(from, PATIENCE, "rival", "acquired").await;
    draft.within(
        "set ahead: the name is granted to the next one, with a greater fence",
        jumped,
        next.as_ref(),
        PATIENCE,
    );
    Ok(())
}

fn event(record: &crate::history::Record, who: &str, wanted: &str) -> bool {
    record.who == who && transition(record).is_some_and(|seen| seen.event == wanted)
}
