//! The named drills. Each injects one fault and compares what the lock classes promise with what
//! happened.
//!
//! A drill starts workers on a store, injects the fault and ends the workers. Then it judges twice.
//! The [`oracle`](crate::oracle) checks the whole history against the invariants. The scenario
//! checks what the class promises in this situation: work stopped, continued, was taken over, or
//! the lease was released.
//!
//! One file per drill; `context` holds what they share, `verdict_builder` collects the promises,
//! and `measure` counts.

mod clock_jump;
mod contention_storm;
pub(crate) mod context;
mod control;
mod eviction;
mod expired_and_stale;
mod failover;
mod flood;
mod forced_kill;
mod measure;
mod options;
mod pause_and_delay;
mod release_fails;
mod renewals_fail;
mod rolling_restart;
mod split_network;
mod store_outage;
#[cfg(test)]
pub(crate) mod test_history;
mod verdict;
mod verdict_builder;

use std::time::Duration;

use leasehold_core::testbed::{TestbedAbility, TestbedInfo};

use crate::fleet::{DrillError, DrillStore, DrillTestbed, WorkerProgram};

pub use control::CONTROL_RUN_NOTE;
pub use measure::{Measures, measure};
pub use options::DrillOptions;
pub use verdict::{Outcome, PromiseCheck, Verdict};

use context::ScenarioContext;
use verdict_builder::VerdictBuilder;

/// The policies of the drills: the rules of the built-in classes with short times, so that a drill
/// takes seconds.
pub const POLICIES: &str = include_str!("policies.toml");

// The `ttl` of every class in `POLICIES` except `storm`.
pub(crate) const DRILL_TTL: Duration = Duration::from_secs(3);
// Time that a loaded host may add before a recovery counts as late.
pub(crate) const HOST_SLACK: Duration = Duration::from_secs(2);
// How long a drill waits for a required event. Only a failing run waits this long.
pub(crate) const EVENT_TIMEOUT: Duration = Duration::from_secs(20);

/// A named drill.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Scenario {
    /// Its name on the command line.
    pub name: &'static str,
    /// The fault and the promise, for help and reports.
    pub about: &'static str,
    /// The lock classes it tests.
    pub classes: &'static [&'static str],
    /// What the store's testbed must be able to do.
    pub needs: &'static [TestbedAbility],
    /// Whether it changes wall clocks, which needs libfaketime.
    pub needs_fake_clock: bool,
    /// Whether it deletes data of the server, so that it needs a server of its own.
    pub needs_own_server: bool,
    /// Whether it is a control run, which must show violations to prove that the checker finds
    /// them.
    pub control: bool,
}

// `admission` comes last: it is never renewed, so its hold must still be young when the fault
// comes.
const ALL_CLASSES: &[&str] =
    &["scheduler", "workflow", "workflow-critical", "approval", "reconciler", "admission"];

const fn scenario(name: &'static str, about: &'static str) -> Scenario {
    Scenario {
        name,
        about,
        classes: &["scheduler"],
        needs: &[],
        needs_fake_clock: false,
        needs_own_server: false,
        control: false,
    }
}

/// Every drill, in the order of `drill all`.
pub const ALL: &[Scenario] = &[
    Scenario {
        classes: ALL_CLASSES,
        ..scenario(
            "store-outage",
            "the store answers no client for a while (--outage): fail-closed work pauses, fail-open work goes on and is counted, both return",
        )
    },
    Scenario {
        classes: ALL_CLASSES,
        ..scenario(
            "renewals-fail",
            "renewals fail under long tasks: fence classes stop before their lease can end, the continue class measures its overlap",
        )
    },
    Scenario {
        classes: &["scheduler", "workflow", "approval"],
        ..scenario(
            "release-fails",
            "one answer to a release is lost, then the store is gone when work ends: the second try gives it back; the result stays, the debt is reported and collected before the lease ends",
        )
    },
    Scenario {
        classes: ALL_CLASSES,
        ..scenario(
            "forced-kill",
            "the holder is killed with -9: another client takes over within the TTL, no task ends twice",
        )
    },
    scenario(
        "pause-and-delay",
        "the holder is stopped with a write on its slow way: it wakes up past its lease, and its late write is refused",
    ),
    scenario(
        "expired-and-stale",
        "renewals fail, the holder sleeps through its expiry and wakes up to release: the new holder is not disturbed",
    ),
    Scenario {
        needs: &[TestbedAbility::FailOver],
        needs_own_server: true,
        ..scenario(
            "failover",
            "the server is lost with a lease that its replica never heard of: fences still grow, late writes are refused, who demanded more was refused",
        )
    },
    Scenario {
        classes: &["storm"],
        ..scenario(
            "contention-storm",
            "hundreds of clients want one name (--waiters): each gets it in turn, a release wakes one and not all, the line is kept",
        )
    },
    scenario(
        "flood-while-renewing",
        "dozens of clients acquire without pause: the long holder beside them never loses its lock",
    ),
    Scenario {
        needs: &[TestbedAbility::Evict],
        needs_own_server: true,
        ..scenario(
            "eviction",
            "the server evicts every key: the old holder learns it, fences still grow, late writes are refused",
        )
    },
    Scenario {
        needs_own_server: true,
        needs_fake_clock: true,
        ..scenario(
            "clock-jump",
            "wall clocks jump: the client's changes nothing; the server's, set back, is reported; set ahead, the fence holds",
        )
    },
    Scenario {
        needs: &[TestbedAbility::Network],
        ..scenario(
            "split-network",
            "one of two replicas loses the store: it stops before the other one takes over, and comes back later",
        )
    },
    scenario(
        "rolling-restart",
        "each of three workers is stopped and restarted under load: nothing is lost, owed or left behind",
    ),
    Scenario {
        control: true,
        ..scenario(
            "unfenced-control",
            "as pause-and-delay, but the workers neither look nor send a fence: the checker must see stale writes",
        )
    },
];

impl Scenario {
    /// Whether this kind of store has what the drill needs.
    #[must_use]
    pub fn runs_on(&self, store: &TestbedInfo) -> bool {
        self.needs.iter().all(|ability| store.can(*ability))
    }
}

/// Finds a drill by its name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Scenario> {
    ALL.iter().find(|scenario| scenario.name == name)
}

// A busy host may disturb a run. After three disturbed runs the drill counts as not run.
const MAX_RUNS_PER_SCENARIO: u32 = 3;

/// Runs a drill. If the host was too slow, calls `again` with the reason and retries. Dropping the
/// future ends every process and server of the drill.
///
/// # Errors
/// The drill could not be run. That is no verdict on the store.
pub async fn run(
    scenario: &Scenario,
    store: &DrillStore,
    program: &WorkerProgram,
    options: DrillOptions,
    mut again: impl FnMut(&DrillError),
) -> Result<Verdict, DrillError> {
    let mut tries = 1;
    loop {
        match run_once(scenario, store, program, options).await {
            Err(error @ (DrillError::HostTooSlow { .. } | DrillError::WaitTimedOut(_)))
                if tries < MAX_RUNS_PER_SCENARIO =>
            {
                tries += 1;
                again(&error);
            }
            ran => return ran,
        }
    }
}

async fn run_once(
    scenario: &Scenario,
    store: &DrillStore,
    program: &WorkerProgram,
    options: DrillOptions,
) -> Result<Verdict, DrillError> {
    let skipped = |why| Ok(Verdict::skipped(scenario, store.info().name, why));
    if !scenario.runs_on(&store.info()) {
        return skipped("this store has no such fault");
    }
    if scenario.needs_own_server && matches!(store, DrillStore::External(_)) {
        return skipped("it robs a server of its memory, so it runs on a throw-away server only");
    }
    let testbed = DrillTestbed::build(store, POLICIES, program, scenario.needs_fake_clock).await?;
    let mut context = ScenarioContext::new(testbed, program, options)?;
    let mut draft = VerdictBuilder::default();
    let played = run_scenario(scenario.name, &mut context, &mut draft).await;
    context.close(scenario, draft, played).await
}

async fn run_scenario(
    name: &str,
    context: &mut ScenarioContext,
    draft: &mut VerdictBuilder,
) -> Result<(), DrillError> {
    match name {
        "store-outage" => store_outage::run(context, draft).await,
        "renewals-fail" => renewals_fail::run(context, draft).await,
        "release-fails" => release_fails::run(context, draft).await,
        "forced-kill" => forced_kill::run(context, draft).await,
        "pause-and-delay" => pause_and_delay::run(context, draft).await,
        "expired-and-stale" => expired_and_stale::run(context, draft).await,
        "failover" => failover::run(context, draft).await,
        "contention-storm" => contention_storm::run(context, draft).await,
        "flood-while-renewing" => flood::run(context, draft).await,
        "eviction" => eviction::run(context, draft).await,
        "clock-jump" => clock_jump::run(context, draft).await,
        "split-network" => split_network::run(context, draft).await,
        "rolling-restart" => rolling_restart::run(context, draft).await,
        "unfenced-control" => control::run(context, draft).await,
        other => Err(DrillError::Store(format!("there is no drill {other}"))),
    }
}
