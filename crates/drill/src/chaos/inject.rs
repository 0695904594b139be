//! Injects and repairs each fault.

use std::time::Duration;

use leasehold_core::clock::{BootClock, Clock, ClockExt};
use leasehold_core::rng::{RandomExt, SeededRandom};
use rusqlite::Connection;

use super::fault::Fault;
use super::worker_pool::WorkerPool;
use super::{CHAOS_TTL, fault};
use crate::fleet::{Error, HOUR_SECONDS};
use crate::history::HistoryEntry;
use crate::scenario::context::ScenarioContext;

// Longer than any interval between two requests of the workers, on a loaded host.
const TOXIC_HIT_TIMEOUT: Duration = Duration::from_secs(5);

const BLACK_HOLE_TOXICS: [&str; 2] =
    ["timeout timeout=0 stream=upstream", "timeout timeout=0 stream=downstream"];

/// Injects the fault for a time that the seed chooses, and repairs it.
pub(super) async fn inject_fault(
    fault: Fault,
    scene: &mut ScenarioContext,
    fleet: &mut WorkerPool,
    random: &SeededRandom,
) -> Result<(), Error> {
    let victim = fleet.wait_for_working_worker(scene).await?;
    // Up to one TTL, so that the fault may occur at any point of a lease.
    scene.sleep(random_share(CHAOS_TTL, random, 0, 100)).await;
    if fault.loses_leases() {
        // Noted before and after the fault: a lease granted while the fault lasts may be lost too.
        scene.history.record(HistoryEntry::Forgot);
    }
    scene.record_fault(fault.description());
    let done = apply_fault(fault, scene, fleet, &victim, random).await;
    if fault.loses_leases() {
        scene.history.record(HistoryEntry::Forgot);
    }
    scene.record_repair("over");
    // A fault that cannot be injected may be retried. A store that fails afterwards is a result, so
    // the errors differ.
    done.map_err(|error| match error {
        Error::Store(why) => Error::Fault(why),
        other => other,
    })
}

async fn apply_fault(
    fault: Fault,
    scene: &mut ScenarioContext,
    fleet: &mut WorkerPool,
    victim: &str,
    random: &SeededRandom,
) -> Result<(), Error> {
    use fault::Fault as F;
    match fault {
        F::Kill => {
            fleet.kill(scene, &[victim.to_owned()]).await;
            fleet.start_missing(scene).await
        }
        F::KillAll => {
            fleet.kill(scene, &fleet.running_names()).await;
            fleet.start_missing(scene).await
        }
        F::Pause => {
            scene.workers.pause(victim);
            // Longer than the TTL, so that the lease expires while its holder cannot run.
            scene.sleep(random_share(CHAOS_TTL, random, 110, 250)).await;
            scene.workers.resume(victim);
            Ok(())
        }
        F::PauseAll => {
            for who in fleet.running_names() {
                scene.workers.pause(&who);
            }
            scene.sleep(random_share(CHAOS_TTL, random, 110, 200)).await;
            for who in fleet.running_names() {
                scene.workers.resume(&who);
            }
            Ok(())
        }
        F::Outage => {
            scene.testbed.cut_off().await?;
            scene.sleep(random_share(CHAOS_TTL, random, 30, 200)).await;
            scene.testbed.heal().await
        }
        F::ClientClock => {
            let clock = fleet.clock.as_ref();
            let clock =
                clock.ok_or_else(|| Error::Store("these workers' clocks cannot be set".to_owned()))?;
            clock.set_offset(if random.below(2) == 0 { HOUR_SECONDS } else { -HOUR_SECONDS })?;
            scene.sleep(random_share(CHAOS_TTL, random, 50, 200)).await;
            clock.set_offset(0)
        }
        F::Reset => inject_toxic(scene, "reset_peer timeout=0", "reset_peer", random).await,
        F::BlackHole => {
            let [requests, answers] = BLACK_HOLE_TOXICS;
            scene.testbed.add_toxic(requests)?;
            inject_toxic(scene, answers, "timeout", random).await
        }
        F::LateRequests => inject_toxic(scene, "timeout timeout=0 stream=upstream", "timeout", random).await,
        F::LostReplies => {
            let (times, reset) = (1 + random.below(4), random.below(2) == 0);
            // Every lock operation is an EVALSHA call. Other commands, such as subscriptions, stay
            // intact.
            let words = format!("cut_after_forward command=EVALSHA times={times} reset={reset}");
            inject_toxic(scene, &words, "cut_after_forward", random).await
        }
        F::Repeat => {
            let words = format!("repeat command=EVALSHA times={}", 1 + random.below(8));
            inject_toxic(scene, &words, "repeat", random).await
        }
        F::Latency => {
            let words = format!("latency latency={} jitter=30", 30 + random.below(300));
            inject_toxic(scene, &words, "latency", random).await
        }
        F::Slices => {
            inject_toxic(scene, "slicer average_size=7 size_variation=3 delay=2000", "slicer", random).await
        }
        F::LimitData => {
            let words = format!("limit_data bytes={} stream=downstream", random.below(200));
            inject_toxic(scene, &words, "limit_data", random).await
        }
        F::ScriptFlush => {
            for _ in 0..=random.below(10) {
                scene.testbed.send_command(&["SCRIPT", "FLUSH"]).await?;
                scene.sleep(random_share(CHAOS_TTL, random, 0, 15)).await;
            }
            Ok(())
        }
        F::Flush => scene.testbed.send_command(&["FLUSHALL"]).await.map(drop),
        F::Restart => scene.testbed.restart_server().await,
        F::Freeze => {
            scene.testbed.set_server_frozen(true)?;
            scene.sleep(random_share(CHAOS_TTL, random, 20, 200)).await;
            scene.testbed.set_server_frozen(false)
        }
        F::ConnectionLimit => exhaust_connections(scene, random).await,
        F::ClientKill => {
            // Two commands: wake-up subscriptions are of type pubsub, which `normal` does not
            // include.
            scene.testbed.send_command(&["CLIENT", "KILL", "TYPE", "normal"]).await?;
            let pubsub = ["CLIENT", "KILL", "TYPE", "pubsub"];
            scene.testbed.send_command(&pubsub).await.map(drop)
        }
        F::ServerAhead => scene.testbed.server_clock()?.shift_offset(60),
        F::ServerBack => scene.testbed.server_clock()?.shift_offset(-1),
        F::Vacuum | F::Checkpoint | F::Reader => disturb_sqlite_file(fault, scene, random).await,
    }
}

/// A random share of a duration, between `from` and `to` per cent.
fn random_share(of: Duration, random: &SeededRandom, from: u64, to: u64) -> Duration {
    let per_cent = from + random.below(to.saturating_sub(from) + 1);
    of * u32::try_from(per_cent).unwrap_or(100) / 100
}

/// Adds a toxic until it has affected a connection, and for a random time after that.
async fn inject_toxic(
    scene: &ScenarioContext,
    words: &str,
    kind: &'static str,
    random: &SeededRandom,
) -> Result<(), Error> {
    let hits = || scene.testbed.proxy_stats().faults.get(kind).copied().unwrap_or(0);
    let before = hits();
    scene.testbed.add_toxic(words)?;
    let end = BootClock.now() + TOXIC_HIT_TIMEOUT;
    while hits() == before && BootClock.now() < end {
        BootClock.sleep(Duration::from_millis(10)).await;
    }
    let hit = hits() > before;
    scene.sleep(random_share(CHAOS_TTL, random, 10, 150)).await;
    scene.testbed.heal().await?;
    if hit { Ok(()) } else { Err(Error::WaitTimedOut(format!("for {kind} to hit a client"))) }
}

/// Lets the server accept one connection only, which is our own.
async fn exhaust_connections(scene: &ScenarioContext, random: &SeededRandom) -> Result<(), Error> {
    // Opened before the limit is set: the command that lifts the limit needs a connection.
    let mut session = scene.testbed.open_session().await?;
    session.command(&["CONFIG", "SET", "maxclients", "1"]).await?;
    let kill = ["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"];
    session.command(&kill).await?;
    scene.sleep(random_share(CHAOS_TTL, random, 30, 200)).await;
    let back = ["CONFIG", "SET", "maxclients", "10000"];
    session.command(&back).await.map(drop)
}

/// Disturbs the SQLite file from another connection: a rewrite, checkpoints, or a long read.
async fn disturb_sqlite_file(
    fault: Fault,
    scene: &ScenarioContext,
    random: &SeededRandom,
) -> Result<(), Error> {
    let path = scene.testbed.sqlite_file().map(std::path::Path::to_owned).unwrap_or_default();
    let lasts = random_share(CHAOS_TTL, random, 30, 200);
    let pause = random_share(CHAOS_TTL, random, 1, 10);
    #[allow(clippy::disallowed_methods, reason = "a blocking thread of its own holds the file")]
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
        // SQLITE_BUSY is fine: the attempt has competed with the workers for the file, which is the
        // fault.
        Ok(Ok(()) | Err(rusqlite::Error::SqliteFailure(_, _))) => Ok(()),
        Ok(Err(error)) => Err(Error::Store(error.to_string())),
        Err(error) => Err(Error::Store(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::{StreamDirection, Toxic};

    #[test]
    fn a_black_hole_blocks_both_directions() {
        let toxics = BLACK_HOLE_TOXICS.map(|words| words.parse::<Toxic>().unwrap());
        for stream in [StreamDirection::Upstream, StreamDirection::Downstream] {
            let there = toxics.iter().any(|toxic| toxic.to_string().contains(stream.as_str()));
            assert!(there, "{stream:?}");
        }
    }
}
