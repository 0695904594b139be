//! How each fault is done and undone.

use std::time::Duration;

use leasehold_core::clock::{BootClock, Clock, ClockExt};
use leasehold_core::rng::{RandomExt, SeededRandom};
use rusqlite::Connection;

use super::fault::Fault;
use super::fleet::Fleet;
use super::{TTL, fault};
use crate::fleet::{Error, HOUR};
use crate::history::Entry;
use crate::scenario::scene::Scene;

/// How long a toxic may take to hit somebody.
const HIT: Duration = Duration::from_secs(5);

/// Nothing passes, in either direction.
const BLACK_HOLE: [&str; 2] = [
    "timeout timeout=0 stream=upstream",
    "timeout timeout=0 stream=downstream",
];

/// Does it, for as long as the seed says, and undoes it.
pub(super) async fn strike(
    fault: Fault,
    scene: &mut Scene,
    fleet: &mut Fleet,
    random: &SeededRandom,
) -> Result<(), Error> {
    let victim = fleet.at_work(scene).await?;
    // Any moment of a lease's life.
    scene.rest(share(TTL, random, 0, 100)).await;
    if fault.forgets() {
        scene.tape.note(Entry::Forgot);
    }
    scene.fault(fault.about());
    let done = strike_at(fault, scene, fleet, &victim, random).await;
    if fault.forgets() {
        scene.tape.note(Entry::Forgot);
    }
    scene.mend("over");
    // Told apart from a store that cannot be used afterwards.
    done.map_err(|error| match error {
        Error::Store(why) => Error::Fault(why),
        other => other,
    })
}

async fn strike_at(
    fault: Fault,
    scene: &mut Scene,
    fleet: &mut Fleet,
    victim: &str,
    random: &SeededRandom,
) -> Result<(), Error> {
    use fault::Fault as F;
    match fault {
        F::Kill => {
            fleet.kill(scene, &[victim.to_owned()]).await;
            fleet.fill(scene).await
        }
        F::KillAll => {
            fleet.kill(scene, &fleet.all()).await;
            fleet.fill(scene).await
        }
        F::Pause => {
            scene.crew.stop(victim);
            scene.rest(share(TTL, random, 110, 250)).await;
            scene.crew.go_on(victim);
            Ok(())
        }
        F::PauseAll => {
            for who in fleet.all() {
                scene.crew.stop(&who);
            }
            scene.rest(share(TTL, random, 110, 200)).await;
            for who in fleet.all() {
                scene.crew.go_on(&who);
            }
            Ok(())
        }
        F::Outage => {
            scene.stage.cut().await?;
            scene.rest(share(TTL, random, 30, 200)).await;
            scene.stage.heal().await
        }
        F::ClientClock => {
            let clock = fleet.clock.as_ref();
            let clock =
                clock.ok_or_else(|| Error::Store("these workers' clocks cannot be set".to_owned()))?;
            clock.set(if random.below(2) == 0 { HOUR } else { -HOUR })?;
            scene.rest(share(TTL, random, 50, 200)).await;
            clock.set(0)
        }
        F::Reset => toxic(scene, "reset_peer timeout=0", "reset_peer", random).await,
        F::BlackHole => {
            let [requests, answers] = BLACK_HOLE;
            scene.stage.toxic(requests)?;
            toxic(scene, answers, "timeout", random).await
        }
        F::LateRequests => toxic(scene, "timeout timeout=0 stream=upstream", "timeout", random).await,
        F::LostReplies => {
            let (times, reset) = (1 + random.below(4), random.below(2) == 0);
            let words = format!("cut_after_forward command=EVALSHA times={times} reset={reset}");
            toxic(scene, &words, "cut_after_forward", random).await
        }
        F::Repeat => {
            let words = format!("repeat command=EVALSHA times={}", 1 + random.below(8));
            toxic(scene, &words, "repeat", random).await
        }
        F::Latency => {
            let words = format!("latency latency={} jitter=30", 30 + random.below(300));
            toxic(scene, &words, "latency", random).await
        }
        F::Slices => {
            toxic(
                scene,
                "slicer average_size=7 size_variation=3 delay=2000",
                "slicer",
                random,
            )
            .await
        }
        F::LimitData => {
            let words = format!("limit_data bytes={} stream=downstream", random.below(200));
            toxic(scene, &words, "limit_data", random).await
        }
        F::ScriptFlush => {
            for _ in 0..=random.below(10) {
                scene.stage.command(&["SCRIPT", "FLUSH"]).await?;
                scene.rest(share(TTL, random, 0, 15)).await;
            }
            Ok(())
        }
        F::Flush => scene.stage.command(&["FLUSHALL"]).await.map(drop),
        F::Restart => scene.stage.restart().await,
        F::Freeze => {
            scene.stage.freeze(true)?;
            scene.rest(share(TTL, random, 20, 200)).await;
            scene.stage.freeze(false)
        }
        F::ConnectionLimit => starve(scene, random).await,
        F::ClientKill => {
            scene.stage.command(&["CLIENT", "KILL", "TYPE", "normal"]).await?;
            let pubsub = ["CLIENT", "KILL", "TYPE", "pubsub"];
            scene.stage.command(&pubsub).await.map(drop)
        }
        F::ServerAhead => scene.stage.skew()?.shift(60),
        F::ServerBack => scene.stage.skew()?.shift(-1),
        F::Vacuum | F::Checkpoint | F::Reader => file(fault, scene, random).await,
    }
}

/// A part of a span, from and to so many per cent.
fn share(of: Duration, random: &SeededRandom, from: u64, to: u64) -> Duration {
    let per_cent = from + random.below(to.saturating_sub(from) + 1);
    of * u32::try_from(per_cent).unwrap_or(100) / 100
}

/// Puts a toxic in force until it has hit somebody and a while longer.
async fn toxic(scene: &Scene, words: &str, kind: &'static str, random: &SeededRandom) -> Result<(), Error> {
    let hits = || scene.stage.stats().faults.get(kind).copied().unwrap_or(0);
    let before = hits();
    scene.stage.toxic(words)?;
    let end = BootClock.now() + HIT;
    while hits() == before && BootClock.now() < end {
        BootClock.sleep(Duration::from_millis(10)).await;
    }
    let hit = hits() > before;
    scene.rest(share(TTL, random, 10, 150)).await;
    scene.stage.heal().await?;
    if hit {
        Ok(())
    } else {
        Err(Error::Waited(format!("for {kind} to hit somebody")))
    }
}

/// One connection is ours, and there is room for no other.
async fn starve(scene: &Scene, random: &SeededRandom) -> Result<(), Error> {
    let mut session = scene.stage.session().await?;
    session.command(&["CONFIG", "SET", "maxclients", "1"]).await?;
    let kill = ["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"];
    session.command(&kill).await?;
    scene.rest(share(TTL, random, 30, 200)).await;
    let back = ["CONFIG", "SET", "maxclients", "10000"];
    session.command(&back).await.map(drop)
}

/// Somebody else uses the SQLite file.
async fn file(fault: Fault, scene: &Scene, random: &SeededRandom) -> Result<(), Error> {
    let path = scene
        .stage
        .file()
        .map(std::path::Path::to_owned)
        .unwrap_or_default();
    let lasts = share(TTL, random, 30, 200);
    let pause = share(TTL, random, 1, 10);
    #[allow(
        clippy::disallowed_methods,
        reason = "a blocking thread of its own holds the file"
    )]
    let work = move || -> rusqlite::Result<()> {
        let db = Connection::open(path)?;
        db.busy_timeout(Duration::from_secs(5))?;
        match fault {
            Fault::Vacuum => db.execute_batch("VACUUM"),
            Fault::Reader => {
                db.execute_batch("BEGIN; SELECT count(*) FROM sqlite_schema;")?;
                std::thread::sleep(lasts);
                db.execute_batch("COMMIT")
            }
            _ => {
                for _ in 0..5 {
                    db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
                    std::thread::sleep(pause);
                }
                Ok(())
            }
        }
    };
    match tokio::task::spawn_blocking(work).await {
        // The file may be too busy to be rewritten: then somebody was in the way of the workers all the same.
        Ok(Ok(()) | Err(rusqlite::Error::SqliteFailure(_, _))) => Ok(()),
        Ok(Err(error)) => Err(Error::Store(error.to_string())),
        Err(error) => Err(Error::Store(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::{Stream, Toxic};

    #[test]
    fn a_black_hole_has_no_way_through() {
        let toxics = BLACK_HOLE.map(|words| words.parse::<Toxic>().unwrap());
        for stream in [Stream::Upstream, Stream::Downstream] {
            let there = toxics
                .iter()
                .any(|toxic| toxic.to_string().contains(stream.word()));
            assert!(there, "{stream:?}");
        }
    }
}
