//! Real processes that take real locks: workers that can be killed, stopped and continued, and what they work on.
//!
//! | file | what is in it |
//! |---|---|
//! | `orders` | what a worker is told to do |
//! | `worker` | the worker process: reads its orders, runs its clients, ends when told or when its director is gone |
//! | `client` | one client's life: acquire, look, write, give back, and write everything down |
//! | `ledger` | the protected target: a SQLite file that refuses stale fences (or, in the control run, does not) |
//! | `crew` | the director's side: starts workers, signals them, and leaves none behind |
//! | `tape` | the history as it comes in, and waiting for what is in it |
//! | `stage` | the store under test and its faults |
//! | `counters` | the fence counters of a Redis server of ours: none may be forgotten |
//! | `server` | servers of our own, and copies of them |
//! | `bound` | a server that dies with the director, even if that is killed |
//! | `skew` | a wall clock that can be set for one process |
//! | `pulse` | whether the machine kept up |
//! | `effort` | how often a client asks its store |
//! | `given` | a store that is not ours: only if its operator marked it as drillable |

mod bound;
mod client;
mod counters;
mod crew;
mod effort;
mod given;
mod ledger;
mod orders;
mod pulse;
mod server;
mod skew;
mod stage;
mod tape;
mod worker;

pub use bound::{BOUND, main as bound_main};
pub use crew::{Crew, Ended, Program};
pub use given::{Given, MARK};
pub use ledger::Ledger;
pub use orders::Orders;
pub use pulse::Pulse;
pub use server::{Replica, Session};
pub use skew::{HOUR, Skew};
pub use stage::{Stage, StoreKind};
pub use tape::Tape;
pub use worker::{WORD, main as worker_main};

/// A drill that could not be run. It says nothing about the store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A process, a file or a server is not as it should be.
    #[error("{what}: {source}")]
    Io {
        /// What was attempted.
        what: String,
        /// Why it failed.
        source: std::io::Error,
    },
    /// The store or the target could not be used by the director.
    #[error("{0}")]
    Store(String),
    /// The fault itself could not be made.
    #[error("the fault could not be made: {0}")]
    Fault(String),
    /// Something that every run shows did not happen within the time given.
    #[error("waited {0} in vain; the machine may be too busy, or the drill's own code is broken")]
    Waited(String),
    /// The machine did not keep up, so nothing can be said about time.
    #[error(
        "the machine stood still for {} ms, so this says nothing about time: run it where there is less to do ({why})",
        stood_still.as_millis()
    )]
    Busy {
        /// For how long.
        stood_still: std::time::Duration,
        /// What was late.
        why: String,
    },
    /// Only time was broken when it was run before, and then it could not be run again.
    #[error("{error}; when it was run before: {before}")]
    Again {
        /// Why not.
        error: Box<Self>,
        /// What was late.
        before: String,
    },
    /// Something that the drill needs is not installed here.
    #[error("{0}")]
    Missing(String),
    /// The store is not ours, and nobody has allowed drills on it.
    #[error("{0}")]
    NotDrillable(String),
}

impl Error {
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}

impl From<crate::proxy::Error> for Error {
    fn from(error: crate::proxy::Error) -> Self {
        Self::Store(format!("the fault proxy: {error}"))
    }
}
