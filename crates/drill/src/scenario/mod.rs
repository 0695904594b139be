//! The drills: each a fault on purpose, with a verdict on what the classes promised and what was seen.
//!
//! A drill starts real workers on a real store, does something to them, lets everything end, and then judges twice: the
//! [`oracle`](crate::oracle) judges the whole history against the invariants, and the scenario itself checks what the
//! class promises in this situation (stopped, went on, taken over, given back).

mod clock_jump;
mod contention_storm;
mod control;
mod draft;
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
pub(crate) mod scene;
#[cfg(test)]
pub(crate) mod script;
mod split_network;
mod store_outage;
mod verdict;

use std::time::Duration;

use crate::fleet::{Error, Given, Program, StoreKind};

pub use control::CONTROL;
pub use measure::{Measures, measure};
pub use options::Options;
pub use verdict::{Outcome, Promise, Verdict};

use draft::Draft;
use scene::Scene;

/// The classes of the drills: the built-in ones' rules with short times, so that a drill takes seconds.
pub const POLICIES: &str = r#"
[class.scheduler]
ttl = "3s"
acquire = { wait = "1s", timeout = "500ms", retry_after = "200ms" }
renew = { every = "ttl/3", timeout = "400ms", max_failures = 3 }
release = { attempts = 2, timeout = "300ms" }
[class.workflow]
ttl = "3s"
acquire = { timeout = "500ms", retry_after = "200ms" }
renew = { every = "ttl/3", timeout = "400ms", max_failures = 3 }
release = { attempts = 2, timeout = "300ms" }
[class.workflow-critical]
ttl = "3s"
acquire = { timeout = "500ms", retry_after = "200ms" }
renew = { every = "ttl/3", timeout = "400ms", max_failures = 3 }
release = { attempts = 2, timeout = "300ms" }
[class.approval]
ttl = "3s"
acquire = { wait = "1s", timeout = "500ms", retry_after = "200ms" }
renew = { every = "ttl/3", timeout = "400ms", max_failures = 3 }
release = { attempts = 1, timeout = "300ms" }
# Held until it has run out: a tick in each window. `replayer` has the same rule.
[class.reconciler]
poll = "1500ms"
ttl = "2*poll"
acquire = { timeout = "500ms", retry_after = "200ms" }
renew = { every = "ttl/3", timeout = "400ms", max_failures = 3 }
release = { attempts = 1, timeout = "300ms", when = "expired" }
# Never renewed: shorter than one TTL, or over.
[class.admission]
ttl = "3s"
acquire = { wait = "1s", timeout = "500ms", retry_after = "200ms" }
renew = { every = "never" }
release = { attempts = 1, timeout = "300ms" }
# A line of hundreds: the wait is as long as the line, and the time-outs as long as a busy host needs.
[class.storm]
ttl = "20s"
acquire = { wait = "10m", timeout = "20s" }
renew = { every = "ttl/3", timeout = "5s" }
release = { attempts = 2, timeout = "10s" }
# For being refused.
[class.durable]
ttl = "3s"
requires = "durable"
acquire = { wait = "1s", timeout = "500ms" }
renew = { every = "ttl/3", timeout = "400ms" }
release = { attempts = 1, timeout = "300ms" }
"#;

/// The time to live of the drills' classes.
pub(crate) const TTL: Duration = Duration::from_secs(3);
/// What a loaded machine may add before a drill calls a return to normal late.
pub(crate) const SLACK: Duration = Duration::from_secs(2);
/// How long a drill waits for what must come: only a broken run waits so long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// One drill.
#[derive(Debug, Clone, Copy)]
pub struct Scenario {
    /// What people type.
    pub name: &'static str,
    /// What is done, and what is promised.
    pub about: &'static str,
    /// Which classes it concerns.
    pub classes: &'static [&'static str],
    /// On which stores it can be run.
    pub stores: &'static [StoreKind],
    /// It sets clocks: it needs libfaketime.
    pub skews: bool,
    /// It needs a server of its own: it robs it of its memory.
    pub robs: bool,
    /// A control run: it must show violations, or the checker is blind.
    pub control: bool,
}

/// The last one is never renewed, so its hold is short: it is begun last and broken with the others.
const ALL_CLASSES: &[&str] = &[
    "scheduler",
    "workflow",
    "workflow-critical",
    "approval",
    "reconciler",
    "admission",
];
const BOTH: &[StoreKind] = &[StoreKind::Sqlite, StoreKind::Redis];
const REDIS: &[StoreKind] = &[StoreKind::Redis];

const fn drill(name: &'static str, about: &'static str, stores: &'static [StoreKind]) -> Scenario {
    Scenario {
        name,
        about,
        classes: &["scheduler"],
        stores,
        skews: false,
        robs: false,
        control: false,
    }
}

/// Every drill, in the order in which `all` runs them.
pub const ALL: &[Scenario] = &[
    Scenario {
        classes: ALL_CLASSES,
        ..drill(
            "store-outage",
            "the store answers nobody for a while (--outage): fail-closed work pauses, fail-open work goes on and is counted, both return",
            BOTH,
        )
    },
    Scenario {
        classes: ALL_CLASSES,
        ..drill(
            "renewals-fail",
            "renewals fail under long tasks: fence classes stop before their lease can end, the continue class measures its overlap",
            BOTH,
        )
    },
    Scenario {
        classes: &["scheduler", "workflow", "approval"],
        ..drill(
            "release-fails",
            "one answer to a release is lost, then the store is gone when work ends: the second try gives it back; the result stays, the debt is told and collected before the lease ends",
            BOTH,
        )
    },
    Scenario {
        classes: ALL_CLASSES,
        ..drill(
            "forced-kill",
            "the holder is killed with -9: somebody takes over within the TTL, no task ends twice",
            BOTH,
        )
    },
    drill(
        "pause-and-delay",
        "the holder is stopped with a write on its slow way: it wakes up past its lease, and its late write is refused",
        BOTH,
    ),
    drill(
        "expired-and-stale",
        "renewals fail, the holder sleeps through its expiry and wakes up to release: the new holder is not disturbed",
        BOTH,
    ),
    Scenario {
        robs: true,
        ..drill(
            "failover",
            "the server is lost with a lease that its replica never heard of: fences still grow, late writes are refused, who demanded more was refused",
            REDIS,
        )
    },
    Scenario {
        classes: &["storm"],
        ..drill(
            "contention-storm",
            "hundreds of clients want one name (--waiters): each gets it in turn, a release wakes one and not all, the line is kept",
            BOTH,
        )
    },
    drill(
        "flood-while-renewing",
        "dozens of clients acquire without pause: the long holder beside them never loses its lock",
        BOTH,
    ),
    Scenario {
        robs: true,
        ..drill(
            "eviction",
            "the server evicts every key: the old holder learns it, fences still grow, late writes are refused",
            REDIS,
        )
    },
    Scenario {
        robs: true,
        skews: true,
        ..drill(
            "clock-jump",
            "wall clocks jump: the client's changes nothing; the server's, set back, is told; set ahead, the fence holds",
            BOTH,
        )
    },
    drill(
        "split-network",
        "one of two replicas loses the store: it stops before the other one takes over, and comes back later",
        REDIS,
    ),
    drill(
        "rolling-restart",
        "each of three workers is ended and started anew under load: nothing is lost, owed or left behind",
        BOTH,
    ),
    Scenario {
        control: true,
        ..drill(
            "unfenced-control",
            "as pause-and-delay, but the workers neither look nor send a fence: the checker must see stale writes",
            BOTH,
        )
    },
];

/// The drill of this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Scenario> {
    ALL.iter().find(|scenario| scenario.name == name)
}

/// How often a drill is run before it counts as one that could not be run.
const TRIES: u32 = 3;

/// Runs a drill; again, where the machine did not keep up, and `again` hears why. Dropping the future ends every process
/// and server of it.
///
/// # Errors
/// It could not be run: this says nothing about the store.
pub async fn run(
    scenario: &Scenario,
    store: StoreKind,
    given: Option<&Given>,
    program: &Program,
    options: Options,
    mut again: impl FnMut(&Error),
) -> Result<Verdict, Error> {
    let mut tries = 1;
    loop {
        match once(scenario, store, given, program, options).await {
            Err(error @ (Error::Busy { .. } | Error::Waited(_))) if tries < TRIES => {
                tries += 1;
                again(&error);
            }
            ran => return ran,
        }
    }
}

async fn once(
    scenario: &Scenario,
    store: StoreKind,
    given: Option<&Given>,
    program: &Program,
    options: Options,
) -> Result<Verdict, Error> {
    if !scenario.stores.contains(&store) {
        return Ok(Verdict::skipped(scenario, store, "this store has no such fault"));
    }
    if scenario.robs && given.is_some() {
        let why = "it robs a server of its memory, so it runs on a throw-away server only";
        return Ok(Verdict::skipped(scenario, store, why));
    }
    let mut scene = Scene::open(store, given, program, scenario, options).await?;
    let mut draft = Draft::default();
    let played = play(scenario.name, &mut scene, &mut draft).await;
    scene.close(scenario, draft, played).await
}

async fn play(name: &str, scene: &mut Scene, draft: &mut Draft) -> Result<(), Error> {
    match name {
        "store-outage" => store_outage::play(scene, draft).await,
        "renewals-fail" => renewals_fail::play(scene, draft).await,
        "release-fails" => release_fails::play(scene, draft).await,
        "forced-kill" => forced_kill::play(scene, draft).await,
        "pause-and-delay" => pause_and_delay::play(scene, draft).await,
        "expired-and-stale" => expired_and_stale::play(scene, draft).await,
        "failover" => failover::play(scene, draft).await,
        "contention-storm" => contention_storm::play(scene, draft).await,
        "flood-while-renewing" => flood::play(scene, draft).await,
        "eviction" => eviction::play(scene, draft).await,
        "clock-jump" => clock_jump::play(scene, draft).await,
        "split-network" => split_network::play(scene, draft).await,
        "rolling-restart" => rolling_restart::play(scene, draft).await,
        "unfenced-control" => control::play(scene, draft).await,
        other => Err(Error::Store(format!("there is no drill {other}"))),
    }
}
