//! Faults that strike processes and the store at a moment of their own, and end at another.

use std::fmt;

use super::class::ClassPlan;
use super::dice::Dice;
use super::drift::{MS, Nanos, SEC};
use super::engine::{Kind, Service};

/// A fault and when it strikes.
#[derive(Debug, Clone)]
pub struct Strike {
    /// In nanoseconds since the history began.
    pub at: u64,
    /// What happens.
    pub what: What,
}

/// What happens. Times are in nanoseconds; nothing lasts beyond the end of all faults.
#[derive(Debug, Clone)]
pub enum What {
    /// A process stands still; its clock does not.
    Pause {
        /// Which.
        client: usize,
        /// For how long.
        lasts: u64,
    },
    /// A process dies at once, and another takes its place later.
    Kill {
        /// Which.
        client: usize,
        /// How much later.
        lasts: u64,
    },
    /// A process ends in order, and another takes its place later.
    Leave {
        /// Which.
        client: usize,
        /// How much later.
        lasts: u64,
    },
    /// The store does not serve.
    Outage {
        /// What it does instead.
        how: &'static str,
        /// For how long.
        lasts: u64,
    },
    /// A process cannot reach the store.
    Cut {
        /// Which.
        client: usize,
        /// It hears nothing, instead of being refused.
        silent: bool,
        /// For how long.
        lasts: u64,
    },
    /// The store loses everything.
    Flush,
    /// The store's replica stops following, and later takes over.
    FailOver {
        /// How much later.
        lag: u64,
        /// For how long nobody serves.
        away: u64,
    },
    /// The store's wall clock is stepped.
    Step {
        /// By how much.
        by: i64,
    },
    /// The host of everything boots anew.
    Reboot {
        /// For how long it is away.
        away: u64,
    },
    /// Waiters are not told.
    Deaf {
        /// For how long.
        lasts: u64,
    },
    /// An operator changes a field of a class for a while.
    Override {
        /// In which process.
        client: usize,
        /// Of which task's class.
        class: usize,
        /// Which field.
        field: &'static str,
        /// To what.
        value: String,
        /// For how long.
        lasts: u64,
    },
    /// An operator breaks the lease of a name.
    Break {
        /// From which process.
        client: usize,
        /// Which name.
        name: usize,
    },
}

/// How a store can fail to serve, by name.
pub(super) const OUTAGES: [(&str, Service); 5] = [
    ("refuses connections", Service::Refusing),
    ("is silent", Service::Silent),
    ("is read-only", Service::ReadOnly),
    ("is loading", Service::Loading),
    ("is full", Service::Full),
];

impl What {
    /// Anything that can happen to this store.
    pub(super) fn draw(dice: &Dice, kind: Kind, clients: usize, names: usize, classes: &[ClassPlan]) -> Self {
        let longest = classes.iter().map(|class| class.ttl).max().unwrap_or(0) * MS;
        let lasts = dice.between(MS, longest * 2);
        let client = dice.index(clients);
        match (dice.below(12), kind) {
            (0 | 1, _) => Self::Pause { client, lasts },
            (2, _) => Self::Kill { client, lasts },
            (3, _) => Self::Leave { client, lasts },
            (4 | 5, _) => Self::Outage {
                how: dice.pick(&OUTAGES, ("is silent", Service::Silent)).0,
                lasts,
            },
            (6, _) => Self::Cut {
                client,
                silent: dice.chance(500),
                lasts,
            },
            (7, Kind::Redis) if dice.chance(400) => Self::Flush,
            (7, Kind::Redis) => Self::FailOver {
                lag: dice.between(MS, longest),
                away: dice.between(MS, 2 * SEC),
            },
            (7, Kind::Sqlite) => Self::Reboot {
                away: dice.between(MS, 2 * SEC),
            },
            (8, Kind::Redis) => {
                let by = i64::try_from(dice.between(50 * MS, 8 * SEC)).unwrap_or(0);
                Self::Step {
                    by: if dice.chance(500) { by } else { -by / 4 },
                }
            }
            (8, Kind::Sqlite) => Self::Deaf { lasts },
            (9, _) => Self::Break {
                client,
                name: dice.index(names),
            },
            _ => Self::change(dice, client, classes, lasts),
        }
    }

    fn change(dice: &Dice, client: usize, classes: &[ClassPlan], lasts: Nanos) -> Self {
        let class = dice.index(classes.len());
        let ttl = classes.get(class).map_or(1_000, |class| class.ttl);
        let span = |millis: u64| format!("{millis}ms");
        let (field, value) = match dice.below(14) {
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
        Self::Override {
            client,
            class,
            field,
            value,
            lasts,
        }
    }

    /// By how many milliseconds it can lengthen what a lease is kept for.
    pub(super) fn lengthens(&self) -> u64 {
        match self {
            Self::Override { field, value, .. } if matches!(*field, "ttl" | "release.lock_delay") => {
                value.trim_end_matches("ms").parse().unwrap_or(0)
            }
            // A clock that was stepped back makes every lease of its server longer.
            Self::Step { by } if *by < 0 => by.unsigned_abs() / MS,
            _ => 0,
        }
    }

    /// Strikes another process instead, if it strikes one.
    pub(super) fn aim(&mut self, at: impl FnOnce(usize) -> usize) {
        match self {
            Self::Pause { client, .. }
            | Self::Kill { client, .. }
            | Self::Leave { client, .. }
            | Self::Cut { client, .. }
            | Self::Override { client, .. }
            | Self::Break { client, .. } => *client = at(*client),
            _ => {}
        }
    }

    /// The process that it strikes, if it strikes one.
    pub(super) fn client(&self) -> Option<usize> {
        match self {
            Self::Pause { client, .. }
            | Self::Kill { client, .. }
            | Self::Leave { client, .. }
            | Self::Cut { client, .. }
            | Self::Override { client, .. }
            | Self::Break { client, .. } => Some(*client),
            _ => None,
        }
    }
}

impl What {
    /// Its kind, to be counted by; whether it strikes the daemon is another kind.
    pub(super) fn kind(&self, daemon: Option<usize>) -> &'static str {
        let there = daemon.is_some() && self.client() == daemon;
        match self {
            Self::Pause { .. } if there => "daemon: stands still",
            Self::Kill { .. } if there => "daemon: is killed",
            Self::Leave { .. } if there => "daemon: is restarted in order",
            Self::Cut { silent: true, .. } if there => "daemon: hears nothing from its store",
            Self::Cut { .. } if there => "daemon: cannot reach its store",
            Self::Pause { .. } => "client: stands still",
            Self::Kill { .. } => "client: is killed",
            Self::Leave { .. } => "client: ends in order",
            Self::Cut { silent: true, .. } => "client: is cut off silently",
            Self::Cut { .. } => "client: is cut off",
            Self::Outage { .. } => "store: does not serve",
            Self::Flush => "store: loses everything",
            Self::FailOver { .. } => "store: fails over",
            Self::Step { .. } => "store: its clock is stepped",
            Self::Reboot { .. } => "store: its host boots anew",
            Self::Deaf { .. } => "store: tells no waiter",
            Self::Override { .. } if there => "operator: overrides the daemon's policy",
            Self::Break { .. } if there => "operator: breaks a lease through the daemon",
            Self::Override { .. } => "operator: overrides a policy",
            Self::Break { .. } => "operator: breaks a lease",
        }
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = |nanos: &u64| format!("{:.3} s", *nanos as f64 / 1e9);
        match self {
            Self::Pause { client, lasts } => write!(f, "c{client} stands still for {}", s(lasts)),
            Self::Kill { client, lasts } => write!(f, "c{client} is killed, back after {}", s(lasts)),
            Self::Leave { client, lasts } => write!(f, "c{client} shuts down, back after {}", s(lasts)),
            Self::Outage { how, lasts } => write!(f, "the store {how} for {}", s(lasts)),
            Self::Cut {
                client,
                silent,
                lasts,
            } => {
                let how = if *silent {
                    "hears nothing from"
                } else {
                    "cannot reach"
                };
                write!(f, "c{client} {how} what it asks for {}", s(lasts))
            }
            Self::Flush => f.write_str("the store loses everything"),
            Self::FailOver { lag, away } => {
                write!(
                    f,
                    "the replica lags for {} and takes over after {}",
                    s(lag),
                    s(away)
                )
            }
            Self::Step { by } => write!(f, "the store's clock steps by {:.3} s", *by as f64 / 1e9),
            Self::Reboot { away } => write!(f, "the host boots anew, away for {}", s(away)),
            Self::Deaf { lasts } => write!(f, "waiters are not told for {}", s(lasts)),
            Self::Override {
                client,
                class,
                field,
                value,
                lasts,
            } => {
                write!(f, "c{client} sets c{class}.{field} to {value} for {}", s(lasts))
            }
            Self::Break { client, name } => write!(f, "c{client} breaks the lease of sim:{name}"),
        }
    }
}
