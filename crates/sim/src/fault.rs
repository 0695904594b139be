//! Faults of processes and the store, each with a start time and often a duration.

use std::fmt;

use leasehold_core::store::Promise;
use leasehold_core::testbed::{ExpiryClock, SimProfile};

use super::class::ClassPlan;
use super::drift::{MS, Nanos, SEC};
use super::engine::StoreHealth;
use super::random::SimRandom;

/// A fault and when it begins.
#[derive(Debug, Clone)]
pub struct SimScheduledFault {
    /// In nanoseconds since the history began.
    pub at: u64,
    /// The fault to inject.
    pub fault: SimFault,
}

/// A fault. Times are in nanoseconds; no fault lasts beyond the plan's horizon.
#[derive(Debug, Clone)]
pub enum SimFault {
    /// A process is paused; its clock runs on.
    Pause {
        /// The process to pause.
        client: usize,
        /// Length of the pause.
        lasts: u64,
    },
    /// A process is killed, and a new one starts on its host later.
    Kill {
        /// The process to kill.
        client: usize,
        /// Time until the restart.
        lasts: u64,
    },
    /// A process shuts down in order, and a new one starts on its host later.
    ShutDown {
        /// The process to shut down.
        client: usize,
        /// Time until the restart.
        lasts: u64,
    },
    /// The store does not serve.
    Outage {
        /// The kind of outage: a name from `OUTAGES`.
        how: &'static str,
        /// Length of the outage.
        lasts: u64,
    },
    /// A process cannot reach the store, or the daemon where there is one.
    Partition {
        /// The process to cut off.
        client: usize,
        /// Messages get no response, instead of being refused.
        silent: bool,
        /// Length of the partition.
        lasts: u64,
    },
    /// The store loses all data.
    Flush,
    /// The store's replica stops following, and takes over later.
    FailOver {
        /// Time until the takeover.
        lag: u64,
        /// How long the new primary is read-only.
        away: u64,
    },
    /// The store's wall clock steps.
    StepClock {
        /// Positive is ahead, negative back.
        by: i64,
    },
    /// The store's host reboots, with every process on it.
    Reboot {
        /// Time until those processes start again.
        away: u64,
    },
    /// Waiters get no wake-up hints.
    DropHints {
        /// Length of the loss of hints.
        lasts: u64,
    },
    /// An operator overrides a field of a class.
    OverridePolicy {
        /// The process in which the policy is overridden.
        client: usize,
        /// The task whose class is overridden.
        class: usize,
        /// The policy field.
        field: &'static str,
        /// The value of the field during the override.
        value: String,
        /// Length of the override.
        lasts: u64,
    },
    /// An operator breaks the lease of a name.
    BreakLease {
        /// The process through which the operator acts.
        client: usize,
        /// Index of the lock name.
        name: usize,
    },
}

/// The ways in which a store can fail to serve, by name.
pub(super) const OUTAGES: [(&str, StoreHealth); 5] = [
    ("refuses connections", StoreHealth::Refusing),
    ("is silent", StoreHealth::Silent),
    ("is read-only", StoreHealth::ReadOnly),
    ("is loading", StoreHealth::Loading),
    ("is full", StoreHealth::Full),
];

impl SimFault {
    /// Draws a fault that can happen to such a store.
    pub(super) fn draw(
        random: &SimRandom,
        store: &SimProfile,
        clients: usize,
        names: usize,
        classes: &[ClassPlan],
    ) -> Self {
        let longest = classes.iter().map(|class| class.ttl).max().unwrap_or(0) * MS;
        // Up to twice the longest TTL: some faults outlast every lease, most do not.
        let lasts = random.between(MS, longest * 2);
        let client = random.index(clients);
        let volatile = store.promise == Promise::Volatile;
        match (random.below(12), store.expiry_clock) {
            (0 | 1, _) => Self::Pause { client, lasts },
            (2, _) => Self::Kill { client, lasts },
            (3, _) => Self::ShutDown { client, lasts },
            (4 | 5, _) => {
                Self::Outage { how: random.pick(&OUTAGES, ("is silent", StoreHealth::Silent)).0, lasts }
            }
            (6, _) => Self::Partition { client, silent: random.chance(500), lasts },
            (7, _) if volatile && random.chance(400) => Self::Flush,
            (7, _) if volatile => {
                Self::FailOver { lag: random.between(MS, longest), away: random.between(MS, 2 * SEC) }
            }
            // A durable store loses leases only with the boot of its host.
            (7, _) => Self::Reboot { away: random.between(MS, 2 * SEC) },
            (8, ExpiryClock::ServerWall) => {
                // Steps back are smaller: they lengthen every lease, and with it the rest of the history.
                let by = i64::try_from(random.between(50 * MS, 8 * SEC)).unwrap_or(0);
                Self::StepClock { by: if random.chance(500) { by } else { -by / 4 } }
            }
            (8, ExpiryClock::HostBoot) => Self::DropHints { lasts },
            (9, _) => Self::BreakLease { client, name: random.index(names) },
            _ => Self::draw_override(random, client, classes, lasts),
        }
    }

    fn draw_override(random: &SimRandom, client: usize, classes: &[ClassPlan], lasts: Nanos) -> Self {
        let class = random.index(classes.len());
        let ttl = classes.get(class).map_or(1_000, |class| class.ttl);
        let span = |millis: u64| format!("{millis}ms");
        let (field, value) = match random.below(14) {
            0 => ("acquire.on_error", "fail-open".to_owned()),
            1 => ("acquire.on_error", "fail-closed".to_owned()),
            2 => ("renew.on_failure", "fence".to_owned()),
            3 => ("renew.on_failure", "continue".to_owned()),
            4 => ("mode", "shadow".to_owned()),
            5 => ("mode", "enforce".to_owned()),
            6 => ("ttl", span(ttl * 2)),
            7 => ("ttl", span(ttl * 3 / 4)),
            8 => ("max_hold", span(ttl * 3 / 2)),
            9 => ("release.lock_delay", span(ttl)),
            10 => ("stop_grace", span(ttl / 5)),
            11 => ("release.when", "expired".to_owned()),
            12 => ("renew.every", span(ttl / 4)),
            _ => ("acquire.wait", span(ttl * 2)),
        };
        Self::OverridePolicy { client, class, field, value, lasts }
    }

    /// By how many milliseconds the fault can lengthen the time that a lease is kept.
    pub(super) fn lengthens_lease_by_ms(&self) -> u64 {
        match self {
            Self::OverridePolicy { field, value, .. } if matches!(*field, "ttl" | "release.lock_delay") => {
                value.trim_end_matches("ms").parse().unwrap_or(0)
            }
            // A clock that was stepped back makes every lease of its server last longer.
            Self::StepClock { by } if *by < 0 => by.unsigned_abs() / MS,
            _ => 0,
        }
    }

    /// Redirects the fault to another process, if it has a target process.
    pub(super) fn retarget(&mut self, at: impl FnOnce(usize) -> usize) {
        if let Some(client) = self.target_client_mut() {
            *client = at(*client);
        }
    }

    /// The process that the fault hits, if it hits one.
    pub(super) fn target_client(&self) -> Option<usize> {
        self.clone().target_client_mut().copied()
    }

    fn target_client_mut(&mut self) -> Option<&mut usize> {
        match self {
            Self::Pause { client, .. }
            | Self::Kill { client, .. }
            | Self::ShutDown { client, .. }
            | Self::Partition { client, .. }
            | Self::OverridePolicy { client, .. }
            | Self::BreakLease { client, .. } => Some(client),
            _ => None,
        }
    }
}

impl SimFault {
    /// The key under which the fault is counted; faults of the daemon have keys of their own.
    pub(super) fn fault_key(&self, daemon: Option<usize>) -> &'static str {
        let there = daemon.is_some() && self.target_client() == daemon;
        match self {
            Self::Pause { .. } if there => "daemon: stands still",
            Self::Kill { .. } if there => "daemon: is killed",
            Self::ShutDown { .. } if there => "daemon: is restarted in order",
            Self::Partition { silent: true, .. } if there => "daemon: hears nothing from its store",
            Self::Partition { .. } if there => "daemon: cannot reach its store",
            Self::Pause { .. } => "client: stands still",
            Self::Kill { .. } => "client: is killed",
            Self::ShutDown { .. } => "client: ends in order",
            Self::Partition { silent: true, .. } => "client: is cut off silently",
            Self::Partition { .. } => "client: is cut off",
            Self::Outage { .. } => "store: does not serve",
            Self::Flush => "store: loses everything",
            Self::FailOver { .. } => "store: fails over",
            Self::StepClock { .. } => "store: its clock is stepped",
            Self::Reboot { .. } => "store: its host boots anew",
            Self::DropHints { .. } => "store: tells no waiter",
            Self::OverridePolicy { .. } if there => "operator: overrides the daemon's policy",
            Self::BreakLease { .. } if there => "operator: breaks a lease through the daemon",
            Self::OverridePolicy { .. } => "operator: overrides a policy",
            Self::BreakLease { .. } => "operator: breaks a lease",
        }
    }
}

impl fmt::Display for SimFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = |nanos: &u64| format!("{:.3} s", *nanos as f64 / 1e9);
        match self {
            Self::Pause { client, lasts } => write!(f, "c{client} stands still for {}", s(lasts)),
            Self::Kill { client, lasts } => write!(f, "c{client} is killed, back after {}", s(lasts)),
            Self::ShutDown { client, lasts } => write!(f, "c{client} shuts down, back after {}", s(lasts)),
            Self::Outage { how, lasts } => write!(f, "the store {how} for {}", s(lasts)),
            Self::Partition { client, silent, lasts } => {
                let how = if *silent { "hears nothing from" } else { "cannot reach" };
                write!(f, "c{client} {how} what it asks for {}", s(lasts))
            }
            Self::Flush => f.write_str("the store loses everything"),
            Self::FailOver { lag, away } => {
                write!(f, "the replica lags for {} and takes over after {}", s(lag), s(away))
            }
            Self::StepClock { by } => write!(f, "the store's clock steps by {:.3} s", *by as f64 / 1e9),
            Self::Reboot { away } => write!(f, "the host boots anew, away for {}", s(away)),
            Self::DropHints { lasts } => write!(f, "waiters are not told for {}", s(lasts)),
            Self::OverridePolicy { client, class, field, value, lasts } => {
                write!(f, "c{client} sets c{class}.{field} to {value} for {}", s(lasts))
            }
            Self::BreakLease { client, name } => write!(f, "c{client} breaks the lease of sim:{name}"),
        }
    }
}
