//! Worker processes that take locks on a store under test, and the tools to start, stop, kill and
//! observe them.
//!
//! The *director* is the process that runs the drill. It starts the store and the workers, injects
//! faults, and collects the history that the workers write to their standard output.
//!
//! | file | contents |
//! |---|---|
//! | `worker_spec` | the configuration of one worker |
//! | `worker` | the worker process: reads its spec, runs its clients, ends on request or with its director |
//! | `client` | one client: acquire, check the hold, write, release, and record each step |
//! | `fenced_target` | the protected target: a SQLite file that refuses stale fences (in the control run it does not) |
//! | `workers` | the director's side: starts workers, signals them, and leaves no process behind |
//! | `history_buffer` | the history as it arrives, with waits for a record |
//! | `testbed` | the store under test, its proxy and the files of a run; faults of its own are in the store's crate |
//! | `fence_counters` | checks that the fence counters of our own server never expire |
//! | `bound_process` | starts a server that dies with the director, even after `kill -9` |
//! | `fake_wall_clock` | an adjustable wall clock for one process |
//! | `load_probe` | measures whether the host kept up |
//! | `request_count` | counts the acquire requests of a client |
//! | `external_store` | which store to drill: a throw-away one, or one that its operator has marked as drillable |

mod bound_process;
mod client;
mod external_store;
mod fake_wall_clock;
mod fence_counters;
mod fenced_target;
mod history_buffer;
mod load_probe;
mod request_count;
mod testbed;
mod worker;
mod worker_spec;
mod workers;

pub use bound_process::{BOUND_ARG, main as bound_main};
pub use external_store::{DrillStore, ExternalStore};
pub use fake_wall_clock::{FakeWallClock, HOUR_SECONDS};
pub use fenced_target::FencedTarget;
pub use history_buffer::HistoryBuffer;
pub use load_probe::LoadProbe;
pub use testbed::{DrillTestbed, Replica};
pub use worker::{WORKER_ARG, main as worker_main};
pub use worker_spec::WorkerSpec;
pub use workers::{WorkerExit, WorkerProgram, Workers};

use leasehold_core::testbed::TestbedError;

/// Why a drill could not be run. Such an error is no verdict on the store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DrillError {
    /// An operation on a process, file or server failed.
    #[error("{what}: {source}")]
    Io {
        /// The operation that failed.
        what: String,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The director could not use the store or the target.
    #[error("{0}")]
    Store(String),
    /// The fault could not be injected.
    #[error("the fault could not be made: {0}")]
    Fault(String),
    /// An event that occurs in every run did not occur within the timeout.
    #[error("timed out waiting {0}; the machine may be too busy, or the drill's own code is broken")]
    WaitTimedOut(String),
    /// The host was too slow, so broken time limits prove nothing.
    #[error(
        "the machine was stalled for {} ms, so time limits prove nothing: run it on a less busy machine ({why})",
        stood_still.as_millis()
    )]
    HostTooSlow {
        /// The longest delay that [`LoadProbe`] measured.
        stood_still: std::time::Duration,
        /// The time limits that were broken.
        why: String,
    },
    /// The first run broke time limits only, and the second run to confirm that failed.
    #[error("{error}; when it was run before: {before}")]
    RerunFailed {
        /// Why the second run failed.
        error: Box<Self>,
        /// The time limits that the first run broke.
        before: String,
    },
    /// A tool that the drill needs is not installed on this host.
    #[error("{0}")]
    MissingTool(String),
    /// The store is external, and its operator has not marked it as drillable.
    #[error("{0}")]
    NotDrillable(String),
}

impl DrillError {
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}

impl From<crate::proxy::Error> for DrillError {
    fn from(error: crate::proxy::Error) -> Self {
        Self::Store(format!("the fault proxy: {error}"))
    }
}

impl From<TestbedError> for DrillError {
    fn from(error: TestbedError) -> Self {
        match error {
            TestbedError::Io { what, source } => Self::Io { what, source },
            TestbedError::NotDrillable(why) => Self::NotDrillable(why),
            other => Self::Store(other.to_string()),
        }
    }
}
