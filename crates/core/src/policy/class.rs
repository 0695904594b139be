//! The class: all policy values of one workload.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::deadline::usable_time;
use crate::store::Promise;
use crate::types::Ttl;

/// A workload risk class in force: every value present, checked and resolved to numbers.
///
/// The caller names a class with each acquire. It decides what happens when an acquire, a renewal
/// or a release fails. It is not part of the lock's name, so two classes exclude each other on one
/// name.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Class {
    /// The name: lower-case letters, digits and dashes.
    pub name: Arc<str>,
    /// Lifetime of a lease without renewal.
    pub ttl: Ttl,
    /// The weakest promise of a store that this class accepts.
    pub requires: Promise,
    /// Time that the work needs to stop after its cancellation; subtracted from the deadline.
    pub stop_grace: Duration,
    /// Possible drift between two clocks over one TTL, with the resolution of both; subtracted from
    /// the deadline.
    pub drift: Duration,
    /// The hold is fenced after this time even if every renewal succeeds.
    pub max_hold: Option<Duration>,
    /// Whether the policy acts or only reports what it would have stopped.
    pub mode: Enforcement,
    /// The policy of acquires.
    pub acquire: AcquirePolicy,
    /// The policy of renewals.
    pub renew: RenewPolicy,
    /// The policy of releases.
    pub release: ReleasePolicy,
}

impl Class {
    /// How long a holder may act on one confirmed lease, counted from the send time of its request.
    #[must_use]
    pub fn usable(&self) -> Duration {
        usable_time(self.ttl.get(), self.drift, self.stop_grace)
    }

    /// The TTL that a holder may count: the requested one, or what the store granted instead, less
    /// the lock delay.
    #[must_use]
    pub fn granted_ttl(&self, given: Option<Duration>) -> Duration {
        given.map_or(self.ttl.get(), |kept| kept.saturating_sub(self.release.lock_delay))
    }

    /// The default drift for a TTL: 20 ms for the resolution of two clocks, and one per cent.
    #[must_use]
    pub fn default_drift(ttl: Duration) -> Duration {
        Duration::from_millis(20) + ttl / 100
    }

    /// The default stop grace of a process: five seconds, or a sixth of the TTL if that is less.
    #[must_use]
    pub fn process_grace(ttl: Duration) -> Duration {
        Duration::from_secs(5).min(ttl / 6)
    }
}

/// Whether a policy acts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Enforcement {
    /// The policy acts.
    #[default]
    Enforce,
    /// The policy only reports what it would have stopped.
    Shadow,
}

/// The reaction of an acquire to a store that does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnError {
    /// The work does not run.
    FailClosed,
    /// The work runs with a local lock only; an event and a log error report it.
    FailOpen,
}

/// The reaction to a lease that can no longer be proven.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnFailure {
    /// The work is stopped before another client can be granted the lease.
    Fence,
    /// The work continues; the overlap is measured.
    Continue,
}

/// When the lease of a finished hold ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReleaseWhen {
    /// It is released as soon as the work is done.
    #[default]
    Finished,
    /// It is never released but expires, so that a loop runs once per TTL across all replicas.
    Expired,
}

/// The policy of acquires.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct AcquirePolicy {
    /// How long to wait for a busy name; zero is one try.
    pub wait: Duration,
    /// The first delay between two requests; it grows to two thirds of a second, always with
    /// jitter. A longer value counts as that.
    pub retry: Duration,
    /// The time limit for a store that does not answer, retries included.
    pub timeout: Duration,
    /// The reaction when that limit is reached.
    pub on_error: OnError,
    /// The advice to a fail-closed caller: wait this long before a retry.
    pub retry_after: Duration,
    /// The reaction of a local-only hold that heals and finds another holder.
    pub on_heal_conflict: OnFailure,
}

/// The policy of renewals.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct RenewPolicy {
    /// The renewal interval; `None` for work that always fits one TTL.
    pub every: Option<Duration>,
    /// The timeout of one attempt.
    pub timeout: Duration,
    /// The renewal counts as failed after this many consecutive failures, or at the deadline,
    /// whichever comes first.
    pub max_failures: u32,
    /// The reaction when renewal has failed.
    pub on_failure: OnFailure,
}

/// The policy of releases.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ReleasePolicy {
    /// Attempts in the foreground; further attempts run in the background.
    pub attempts: u32,
    /// The timeout of one attempt.
    pub timeout: Duration,
    /// How long the name stays locked beyond the TTL after a hold that was not released.
    pub lock_delay: Duration,
    /// Whether a finished hold is released or left to expire.
    pub when: ReleaseWhen,
}
