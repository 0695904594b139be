//! One line of a history. Field and variant names are the file format.

use std::collections::BTreeMap;

use leasehold_core::Fence;
use serde::{Deserialize, Serialize};

/// One line: time, author and content.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HistoryRecord {
    /// When it was recorded, in nanoseconds of the host's boot clock.
    pub at: u64,
    /// The client's name, or the part of the drill that records: `director`, `target`, `store`, `writer`.
    pub who: String,
    /// The content; its kind is the JSON field `what`.
    #[serde(flatten)]
    pub what: HistoryEntry,
}

/// How an acquire ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RecordedOutcome {
    /// A lease was granted.
    Held,
    /// The store was unavailable; the work runs under a local lock.
    LocalOnly,
    /// Another holder has the name.
    Busy,
    /// The store was unavailable; the work does not run.
    Unavailable,
    /// The client was shutting down.
    Closed,
    /// The caller cancelled the acquire.
    Cancelled,
    /// The caller gave up without an answer. A lease may have been granted; its keeper must end it.
    Unknown,
}

/// How a write to the target ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WriteOutcome {
    /// The target applied it.
    Applied,
    /// The target has admitted a newer fence and refused it.
    Refused,
    /// No clear response: the target may have applied it.
    Unknown,
}

/// What a caller was told about the release of its hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RecordedRelease {
    /// No lease of this hold is left.
    Released,
    /// The lease was already over, and not by this hold's own release.
    AlreadyLost,
    /// The hold was abandoned before.
    Skipped,
    /// The release was not confirmed.
    Debt,
    /// The class leaves the lease to expire.
    Kept,
}

/// A lease as the store has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredLease {
    /// Fence of the lease.
    pub fence: Fence,
    /// When it ends by the store's clock, in true time.
    pub expires: u64,
}

/// The kind of a request to the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StoreVerb {
    /// Of an acquire, or of a hold that takes its lease again.
    Acquire,
    /// Extends a lease.
    Renew,
    /// Ends a lease that its hold needs no more.
    Release,
    /// A release that leaves a tombstone.
    Undo,
    /// A waiter leaves the queue; no lease may change.
    LeaveQueue,
    /// An operator ends the lease with a certain fence.
    Break,
}

/// A request that the store executed, with the name's live lease before and after it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreExecution {
    /// The kind of request.
    pub request: StoreVerb,
    /// The lock's name.
    pub name: String,
    /// The client that sent it.
    pub client: String,
    /// When it was sent.
    pub sent: u64,
    /// The lease before it belonged to the token of the request.
    pub own: bool,
    /// The store's response: granted, extended or released.
    pub done: bool,
    /// Its sender does not wait for a response any more, or the network repeated it. Behind a daemon:
    /// some request of this token arrived there after its client had given up on it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stale: bool,
    /// A request of this token reached the daemon twice, so the sender may wait for the other one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub repeated: bool,
    /// The fence that a renewal or an operator named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<Fence>,
    /// The live lease before the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<StoredLease>,
    /// The live lease after the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<StoredLease>,
}

/// One event of a client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientEvent {
    /// Grows by one with every event of a client.
    pub seq: u64,
    /// The client's number of the hold or attempt.
    pub hold: u64,
    /// The event's name, as in logs and metrics.
    pub event: String,
    /// The lock's name, if the event is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The class of the hold or attempt.
    pub class: String,
    /// The hold's fence, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<Fence>,
    /// The event's own duration (round trip, overlap, age of a debt), in nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub span: Option<u64>,
    /// The event's own label: why it was abandoned, how a debt ended; or [`UNATTENDED`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// Detail of an `abandoned` event of a client whose late requests are not undone. The library's
/// client and the daemon do undo them.
pub const UNATTENDED: &str = "unattended";

/// The content of a record. Moments and durations are in nanoseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum HistoryEntry {
    /// The terms of a class, as its worker has them.
    Class {
        /// Name of the class.
        class: String,
        /// How long the store keeps a lease.
        ttl: u64,
        /// How much of that the holder may use.
        usable: u64,
        /// Works without a lease if the store is unavailable.
        fail_open: bool,
        /// Works on when its lease is no longer proven.
        continues: bool,
    },
    /// An acquire begins. Without an `Answered` its outcome is unknown.
    Asked {
        /// Grows by one with every acquire of a client.
        attempt: u64,
        /// The lock's name.
        name: String,
        /// The class it is acquired under.
        class: String,
    },
    /// An acquire has ended.
    Answered {
        /// Number of the acquire.
        attempt: u64,
        /// When it began.
        sent: u64,
        /// How it ended, as its caller saw it.
        answer: RecordedOutcome,
        /// The granted fence.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fence: Option<Fence>,
    },
    /// The holder checked its hold before a step of its work and believes that it holds the name.
    Claimed {
        /// Number of the acquire.
        attempt: u64,
        /// Until when it may work without another renewal. Never later than the client allowed.
        until: u64,
        /// Until when it believes that no other client can be granted the name. `None` without a lease of
        /// its own. Older histories have a boolean `proven`: it is read as this field and fails to parse,
        /// so that it is not silently ignored.
        #[serde(default, alias = "proven", skip_serializing_if = "Option::is_none")]
        proven_until: Option<u64>,
        /// Fence of the hold.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fence: Option<Fence>,
    },
    /// A write to the target has ended.
    Written {
        /// Number of the acquire it belongs to.
        attempt: u64,
        /// Grows by one with every write of a client.
        write: u64,
        /// When it was sent.
        sent: u64,
        /// Fence of the write.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fence: Option<Fence>,
        /// The target's response.
        answer: WriteOutcome,
    },
    /// The work finished with this result.
    Returned {
        /// Number of the acquire.
        attempt: u64,
        /// The result, for comparison with `Reported`.
        value: u64,
    },
    /// What the caller of the work received.
    Reported {
        /// Number of the acquire.
        attempt: u64,
        /// The work's result, if the caller received it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        value: Option<u64>,
        /// The caller was told that the lease was lost.
        lost: bool,
    },
    /// The holder is about to release the lease. It claims nothing from here on.
    Releasing {
        /// Number of the acquire.
        attempt: u64,
    },
    /// What the caller was told about its release.
    ReleaseAnswered {
        /// Number of the acquire.
        attempt: u64,
        /// How the release ended.
        outcome: RecordedRelease,
        /// By when the lease is over, if it may still be there.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<u64>,
    },
    /// A client received the response that a lease is not its own.
    NotOwned {
        /// The lock's name.
        name: String,
        /// Fence of the lease that it tried to renew.
        fence: Fence,
    },
    /// The store executed a request. Only a simulated store can record that.
    Executed(StoreExecution),
    /// An event of a client.
    Event(ClientEvent),
    /// A client's counters at its orderly end.
    Tally {
        /// By event name.
        counters: BTreeMap<String, i64>,
    },
    /// How often a client asked its store for a lease, recorded at its orderly end.
    Effort {
        /// Acquire requests, including those after a wake-up and safety polls.
        asks: u64,
    },
    /// A write that the target has applied, read from it at the end.
    Applied {
        /// Position in the order of commits.
        place: u64,
        /// Name of the lock it was written under.
        name: String,
        /// The client that sent it.
        writer: String,
        /// Number of the client's write.
        write: u64,
        /// The task that this write finished, if it finished one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        task: Option<u64>,
        /// Fence of the write.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fence: Option<Fence>,
    },
    /// A live lease that the director found in the store.
    Lease {
        /// The lock's name.
        name: String,
        /// Name of the holder in the store.
        holder: String,
        /// Fence of the lease.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fence: Option<Fence>,
    },
    /// Every client has ended, and every lease must have expired by now.
    Quiet,
    /// All faults are over and clients have no pending work. From here on every acquire must be granted.
    Calm,
    /// Something that was left when everything had been released.
    Remains {
        /// What was left, such as `holds` or `undos`.
        kind: String,
        /// How many; zero is as it should be.
        count: u64,
    },
    /// A fault begins or ends.
    Fault {
        /// Description for people.
        fault: String,
        /// The fault ends here.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        mends: bool,
    },
    /// The store has lost leases. Earlier grants promise nothing any more.
    Forgot,
    /// An operator breaks one lease. Its holder learns of it at its next renewal; until then two clients
    /// may believe that they hold the name.
    Broke {
        /// The lock's name.
        name: String,
        /// Fence of the broken lease; no other lease is excused.
        fence: Fence,
    },
    /// How much later than it happens something may be recorded: zero in simulated time. Without this
    /// record the oracle allows one second, which real machines need.
    Slack {
        /// The allowed delay.
        late: u64,
    },
    /// The director killed, paused, continued or ended a client.
    Signal {
        /// The client's name.
        client: String,
        /// `kill`, `stop`, `continue` or `end`.
        signal: String,
    },
    /// Records are missing: the writer's limit was reached, or a line could not be read.
    Gap {
        /// Number of missing records.
        lines: u64,
    },
}
