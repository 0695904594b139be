use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::store::Promise;
use crate::word::Ttl;

/// A workload risk class as it is in force: every value present, checked and resolved to numbers.
///
/// The caller names a class with each acquire. It decides what happens when acquire errs, when renewal fails
/// and when release fails; it is not part of the lock's name, so two classes exclude each other on one name.
#[derive(Debug, Clone, PartialEq)]
pub struct Class {
    /// Lower-case letters, digits and dashes.
    pub name: Arc<str>,
    /// How long a lease lives without renewal.
    pub ttl: Ttl,
    /// Refuse stores that promise less.
    pub requires: Promise,
    /// What the work needs to stop after its cancellation; taken off the deadline.
    pub stop_grace: Duration,
    /// What two clocks may drift apart over one TTL, with the resolution of both; taken off the deadline.
    pub drift: Duration,
    /// The hold is fenced after this time even if every renewal succeeds.
    pub max_hold: Option<Duration>,
    /// Act, or only count what would have been stopped.
    pub mode: Enforcement,
    /// When acquiring.
    pub acquire: AcquirePolicy,
    /// While holding.
    pub renew: RenewPolicy,
    /// When giving back.
    pub release: ReleasePolicy,
}

impl Class {
    /// How long a holder may act on one confirmed lease, counted from before the request was sent.
    #[must_use]
    pub fn usable(&self) -> Duration {
        self.ttl
            .get()
            .saturating_sub(self.drift)
            .saturating_sub(self.stop_grace)
    }

    /// What a holder may count of a grant: the TTL asked for, or what the store gave instead, without the lock delay.
    #[must_use]
    pub fn counted(&self, given: Option<Duration>) -> Duration {
        given.map_or(self.ttl.get(), |kept| {
            kept.saturating_sub(self.release.lock_delay)
        })
    }

    /// The default drift for a TTL: the clocks' resolution twice, and one per cent.
    #[must_use]
    pub fn default_drift(ttl: Duration) -> Duration {
        Duration::from_millis(20) + ttl / 100
    }

    /// What a process is given to stop if nobody says: the smaller of five seconds and a sixth of the TTL.
    #[must_use]
    pub fn process_grace(ttl: Duration) -> Duration {
        Duration::from_secs(5).min(ttl / 6)
    }
}

/// Does a policy act?
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Enforcement {
    /// It acts.
    #[default]
    Enforce,
    /// It counts what it would have stopped and lets it pass.
    Shadow,
}

/// What happens when the store cannot be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnError {
    /// The work does not run.
    FailClosed,
    /// The work runs with a local lock only; counted and loud.
    FailOpen,
}

/// What happens when a lease can no longer be proven.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnFailure {
    /// The work is stopped before anyone else can be granted.
    Fence,
    /// The work goes on; the overlap is measured.
    Continue,
}

/// When a finished hold's lease is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReleaseWhen {
    /// As soon as the work is done.
    #[default]
    Finished,
    /// Never: the lease runs out by itself, so that a loop ticks once per TTL across all replicas.
    Expired,
}

/// The acquire leg.
#[derive(Debug, Clone, PartialEq)]
pub struct AcquirePolicy {
    /// How long to wait for a busy name; zero is one try.
    pub wait: Duration,
    /// The first delay between two asks; grows to two thirds of a second, always jittered. A longer one counts as that.
    pub retry: Duration,
    /// The whole budget for a store that does not answer.
    pub timeout: Duration,
    /// What then.
    pub on_error: OnError,
    /// What a fail-closed caller is told to wait before it comes again.
    pub retry_after: Duration,
    /// A local-only hold that heals and finds someone else there.
    pub on_heal_conflict: OnFailure,
}

/// The renewal leg.
#[derive(Debug, Clone, PartialEq)]
pub struct RenewPolicy {
    /// How often; `None` for classes whose work always fits one TTL.
    pub every: Option<Duration>,
    /// The budget of one attempt.
    pub timeout: Duration,
    /// The hold counts as failed at this many consecutive failures, or at the deadline, whichever comes first.
    pub max_failures: u32,
    /// What then.
    pub on_failure: OnFailure,
}

/// The release leg.
#[derive(Debug, Clone, PartialEq)]
pub struct ReleasePolicy {
    /// Attempts in the foreground; then the debt collector goes on in the background.
    pub attempts: u32,
    /// The budget of one attempt.
    pub timeout: Duration,
    /// After an unclean loss, how long nobody may take the name beyond the TTL.
    pub lock_delay: Duration,
    /// At the end of the work, or not at all.
    pub when: ReleaseWhen,
}
