//! One line of a history.

use std::collections::BTreeMap;

use leasehold_core::Fence;
use serde::{Deserialize, Serialize};

/// One line: when, who, what.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// When it was written down, in nanoseconds of the host's boot clock.
    pub at: u64,
    /// Which client of which worker, `director`, or `target`.
    pub who: String,
    /// What.
    #[serde(flatten)]
    pub what: Entry,
}

/// How an acquire was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// A lease was granted.
    Held,
    /// The store could not be asked; the work runs with a local lock.
    LocalOnly,
    /// Someone else has it.
    Busy,
    /// The store could not be asked; the work does not run.
    Unavailable,
    /// The client was shutting down.
    Closed,
    /// The caller dropped the acquire before it was answered.
    Cancelled,
    /// Nobody told the caller, who has given up: it may have been granted, and is then ended by whoever keeps it.
    Unknown,
}

/// How a write at the target was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wrote {
    /// It is in the ledger.
    Applied,
    /// A newer fence has been admitted: it is not in the ledger.
    Refused,
    /// No clear answer: it may be in the ledger.
    Unknown,
}

/// One event of the core's stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transition {
    /// Grows by one with every event of a client.
    pub seq: u64,
    /// Which hold or attempt of the client.
    pub hold: u64,
    /// The event's name, as in logs and metrics.
    pub event: String,
    /// Of which lock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Of which class.
    pub class: String,
    /// The hold's fence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<Fence>,
    /// The event's own duration (round trip, overlap, age of a debt), in nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub span: Option<u64>,
    /// The event's own word: why it was abandoned, how a debt ended; or [`UNATTENDED`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// The word of a client's `abandoned` if nobody undoes what of its asks arrives later, as the library's client and the daemon do.
pub const UNATTENDED: &str = "unattended";

/// What a line says. Moments and durations are in nanoseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum Entry {
    /// The terms of a class, as the worker that takes locks under it has them.
    Class {
        /// Its name.
        class: String,
        /// How long a lease lives.
        ttl: u64,
        /// How much of that a holder may use.
        usable: u64,
        /// Runs without a lease if the store cannot be asked.
        fail_open: bool,
        /// Goes on when a lease can no longer be proven.
        continues: bool,
    },
    /// An acquire begins. Without an [`Entry::Answered`] its outcome is unknown.
    Asked {
        /// Grows by one with every acquire of a client.
        attempt: u64,
        /// What is to be locked.
        name: String,
        /// Under which class.
        class: String,
    },
    /// An acquire has ended.
    Answered {
        /// Which.
        attempt: u64,
        /// When it began.
        sent: u64,
        /// How.
        answer: Answer,
        /// The fence that was granted.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fence: Option<Fence>,
    },
    /// The holder looks before a step of its work and believes that the name is its own.
    Claimed {
        /// Under which acquire.
        attempt: u64,
        /// Until when it may act without another renewal; never later than the client said.
        until: u64,
        /// Until when it believes that nobody else can be granted it; nothing where it knows of no lease of its own.
        /// Older histories have `proven` with a yes or no, which says less: it is read as this and refused, not passed over.
        #[serde(default, alias = "proven", skip_serializing_if = "Option::is_none")]
        proven_until: Option<u64>,
        /// With which fence.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fence: Option<Fence>,
    },
    /// A write was sent to the target and answered, or not.
    Written {
        /// Under which acquire.
        attempt: u64,
        /// Grows by one with every write of a client.
        write: u64,
        /// When it was sent.
        sent: u64,
        /// With which fence.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fence: Option<Fence>,
        /// What the target said.
        answer: Wrote,
    },
    /// The work came to its own end with this result.
    Returned {
        /// Under which acquire.
        attempt: u64,
        /// The result.
        value: u64,
    },
    /// What the caller of the work was told.
    Reported {
        /// Under which acquire.
        attempt: u64,
        /// The work's result, if it was handed on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        value: Option<u64>,
        /// The lease was lost.
        lost: bool,
    },
    /// The holder is about to give the lease back: it claims nothing from here on.
    Releasing {
        /// Under which acquire.
        attempt: u64,
    },
    /// An event of the core's stream.
    Event(Transition),
    /// A client's own counters at its orderly end.
    Tally {
        /// By name, with the label behind a slash if there is one.
        counters: BTreeMap<String, i64>,
    },
    /// How often a client asked its store for a lease, at its orderly end.
    Effort {
        /// Asks, woken ones and safety polls included.
        asks: u64,
    },
    /// The target's ledger, read at the end: this write was applied, in this place.
    Applied {
        /// The place in the order of commits.
        place: u64,
        /// What was written under which lock.
        name: String,
        /// Whose write.
        writer: String,
        /// Which of its writes.
        write: u64,
        /// The task that this write ended, if it ended one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        task: Option<u64>,
        /// With which fence.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fence: Option<Fence>,
    },
    /// A live lease that the director saw in the store.
    Lease {
        /// Of which lock.
        name: String,
        /// Whose.
        holder: String,
        /// Its fence.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fence: Option<Fence>,
    },
    /// Every client has ended, and every lease must have by now.
    Quiet,
    /// Every fault is over and what the clients still had to do is done: from here on every acquire is granted in its turn.
    Calm,
    /// What was found when everything had been given back, of a client or of the store.
    Remains {
        /// What kind of thing.
        kind: String,
        /// How many; nothing is as it should be.
        count: u64,
    },
    /// The director did something on purpose.
    Fault {
        /// In plain words.
        fault: String,
        /// It is the end of a fault, not a new one.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        mends: bool,
    },
    /// The store has lost leases that it had granted: what was granted before is nobody's promise any more.
    Forgot,
    /// An operator takes this one lease away. Its holder learns of it with its next renewal: until then two may believe.
    Broke {
        /// Of which lock.
        name: String,
        /// Its fence: no other lease can be meant.
        fence: Fence,
    },
    /// By how much later than it happens something may be noticed and written down here: nothing where time is simulated.
    /// A history that does not say allows a second, as real machines need it.
    Slack {
        /// So much.
        late: u64,
    },
    /// The director ended a client, or paused it or let it go on.
    Signal {
        /// Which client.
        client: String,
        /// `kill`, `stop`, `continue` or `end`.
        signal: String,
    },
    /// Lines are missing here: the writer's bound was reached, or a line could not be read.
    Gap {
        /// How many.
        lines: u64,
    },
}
