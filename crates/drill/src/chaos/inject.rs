//! Injects and repairs each fault.

use std::time::Duration;

use leasehold_core::clock::{BootClock, Clock, ClockExt};
use leasehold_core::rng::{RandomExt, SeededRandom};
use leasehold_core::testbed::random_share;

use super::fault::Fault;
use super::worker_pool::WorkerPool;
use super::{CHAOS_TTL, fault};
use crate::fleet::{DrillError, HOUR_SECONDS};
use crate::history::HistoryEntry;
use crate::scenario::context::ScenarioContext;

// Longer than any interval between two requests of the workers, on a loaded host.
const TOXIC_HIT_TIMEOUT: Duration = Duration::from_secs(5);

const BLACK_HOLE_TOXICS: [&str; 2] =
    ["timeout timeout=0 stream=upstream", "timeout timeout=0 stream=downstream"];

/// Injects the fault for a time that the seed chooses, and repairs it.
pub(super) async fn inject_fault(
    fault: Fault,
    context: &mut ScenarioContext,
    fleet: &mut WorkerPool,
    random: &SeededRandom,
) -> Result<(), DrillError> {
    let victim = fleet.wait_for_working_worker(context).await?;
    // Up to one TTL, so that the fault may occur at any point of a lease.
    context.sleep(random_share(CHAOS_TTL, random, 0, 100)).await;
    if fault.loses_leases() {
        // Noted before and after the fault: a lease granted while the fault lasts may be lost too.
        context.history.record(HistoryEntry::Forgot);
    }
    context.record_fault(fault.description());
    let done = apply_fault(fault, context, fleet, &victim, random).await;
    if fault.loses_leases() {
        context.history.record(HistoryEntry::Forgot);
    }
    context.record_repair("over");
    // A fault that cannot be injected may be retried. A store that fails afterwards is a result, so
    // the errors differ.
    done.map_err(|error| match error {
        DrillError::Store(why) => DrillError::Fault(why),
        other => other,
    })
}

async fn apply_fault(
    fault: Fault,
    context: &mut ScenarioContext,
    fleet: &mut WorkerPool,
    victim: &str,
    random: &SeededRandom,
) -> Result<(), DrillError> {
    use fault::Fault as F;
    match fault {
        F::Kill => {
            fleet.kill(context, &[victim.to_owned()]).await;
            fleet.start_missing(context).await
        }
        F::KillAll => {
            fleet.kill(context, &fleet.running_names()).await;
            fleet.start_missing(context).await
        }
        F::Pause => {
            context.workers.pause(victim);
            // Longer than the TTL, so that the lease expires while its holder cannot run.
            context.sleep(random_share(CHAOS_TTL, random, 110, 250)).await;
            context.workers.resume(victim);
            Ok(())
        }
        F::PauseAll => {
            for who in fleet.running_names() {
                context.workers.pause(&who);
            }
            context.sleep(random_share(CHAOS_TTL, random, 110, 200)).await;
            for who in fleet.running_names() {
                context.workers.resume(&who);
            }
            Ok(())
        }
        F::Outage => {
            context.testbed.cut_off().await?;
            context.sleep(random_share(CHAOS_TTL, random, 30, 200)).await;
            context.testbed.heal().await
        }
        F::ClientClock => {
            let clock = fleet.clock.as_ref();
            let clock =
                clock.ok_or_else(|| DrillError::Store("these workers' clocks cannot be set".to_owned()))?;
            clock.set_offset(if random.below(2) == 0 { HOUR_SECONDS } else { -HOUR_SECONDS })?;
            context.sleep(random_share(CHAOS_TTL, random, 50, 200)).await;
            clock.set_offset(0)
        }
        F::Reset => inject_toxics(context, &["reset_peer timeout=0"], random).await,
        F::BlackHole => inject_toxics(context, &BLACK_HOLE_TOXICS, random).await,
        F::LateRequests => inject_toxics(context, &["timeout timeout=0 stream=upstream"], random).await,
        F::LostReplies => {
            let (times, reset) = (1 + random.below(4), random.below(2) == 0);
            // Only lock operations are hit. Other commands, such as subscriptions, stay intact.
            let words = format!("cut_after_forward {} times={times} reset={reset}", command_filter(context)?);
            inject_toxics(context, &[&words], random).await
        }
        F::Repeat => {
            let words = format!("repeat {} times={}", command_filter(context)?, 1 + random.below(8));
            inject_toxics(context, &[&words], random).await
        }
        F::Latency => {
            let words = format!("latency latency={} jitter=30", 30 + random.below(300));
            inject_toxics(context, &[&words], random).await
        }
        F::Slices => {
            inject_toxics(context, &["slicer average_size=7 size_variation=3 delay=2000"], random).await
        }
        F::LimitData => {
            let words = format!("limit_data bytes={} stream=downstream", random.below(200));
            inject_toxics(context, &[&words], random).await
        }
        F::ServerAhead => context.testbed.server_clock()?.shift_offset(60),
        F::ServerBack => context.testbed.server_clock()?.shift_offset(-1),
        F::Store(fault) => Ok(context.testbed.server().inject(fault.name, CHAOS_TTL, random).await?),
    }
}

fn command_filter(context: &ScenarioContext) -> Result<String, DrillError> {
    let unknown = || DrillError::Store("the proxy does not understand this store's commands".to_owned());
    Ok(format!("command={}", context.testbed.lock_command().ok_or_else(unknown)?))
}

/// Adds toxics of one kind until they have affected a connection, and for a random time after that.
async fn inject_toxics(
    context: &ScenarioContext,
    toxics: &[&str],
    random: &SeededRandom,
) -> Result<(), DrillError> {
    let kind = toxics.first().and_then(|words| words.split(' ').next()).unwrap_or_default();
    let hits = || context.testbed.proxy_stats().faults.get(kind).copied().unwrap_or(0);
    let before = hits();
    for words in toxics {
        context.testbed.add_toxic(words)?;
    }
    let end = BootClock.now() + TOXIC_HIT_TIMEOUT;
    while hits() == before && BootClock.now() < end {
        BootClock.sleep(Duration::from_millis(10)).await;
    }
    let hit = hits() > before;
    context.sleep(random_share(CHAOS_TTL, random, 10, 150)).await;
    context.testbed.heal().await?;
    if hit { Ok(()) } else { Err(DrillError::WaitTimedOut(format!("for {kind} to hit a client"))) }
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
