//! The control plane under the locks: jobs, workflow runs, approvals and the loops that repair them.
//!
//! Several replicas, one store. Each write is one conditional step that the store checks (transition, version, fence,
//! idempotency), and everything that writes, publishes or acknowledges takes the [`Hold`](leasehold_core::Hold) it acts
//! under: so each job ends exactly once, whichever replicas die, sleep or wake up too late meanwhile.
//!
//! ```
//! use std::sync::Arc;
//! use leasehold_core::{Locks, clock::BootClock, memory::MemoryStore};
//! use leasehold_plane::{JobSpec, Plane, Replica, Settings, Work, store::memory::MemoryPlane, work::Works};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let locks = Locks::builder(Arc::new(MemoryStore::new(BootClock::shared()))).build()?;
//! let plane = Plane::new(locks, Arc::new(MemoryPlane::new(BootClock::shared())), Settings::default())?;
//! let replica = Replica::start(plane.clone(), Works::default());
//!
//! let job = plane.submit(JobSpec::new(Work::Exec(vec!["true".into()]))).await?.job;
//! println!("job {} is {}", job.id, job.state);
//! replica.stop(std::time::Duration::from_secs(5)).await;
//! # Ok(())
//! # }
//! ```
//!
//! # Map
//!
//! [`state`] is the table of a job's states; [`job`] the document and every step of its life as a pure function;
//! [`workflow`] runs as graphs of steps, advanced by a pure function; [`store`] where all of it is kept; the [`Ledger`] the
//! one way to write; [`scheduler`] and [`workflow::Engine`] take jobs and runs further, [`approval`] lets people decide;
//! [`work`] is how work is done; [`loops`] repair what got stuck; a [`Replica`] is all of them in one process; [`Plane`]
//! is what clients call; [`note`] what is counted.
//!
//! **Promised**: a job and a step end once; nothing that was submitted is lost; a crashed replica's jobs are taken over
//! within the lock's TTL and one poll. **Not promised**: that work is *begun* only once. A replica that dies takes its
//! attempt with it, and the next one begins anew: what work does elsewhere should carry its fence, or be repeatable.

pub mod approval;
mod error;
pub mod job;
mod ledger;
pub mod loops;
pub mod metrics;
pub mod note;
mod open;
mod plane;
mod replica;
pub mod scheduler;
mod settings;
mod signal;
mod span;
pub mod state;
pub mod store;
#[cfg(feature = "testing")]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]
pub mod testing;
pub mod view;
pub mod work;
pub mod workflow;

pub use error::PlaneError;
pub use job::{Job, JobSpec, Work};
pub use ledger::Ledger;
pub use open::open_store;
pub use plane::{Cancelled, Plane, Submitted};
pub use replica::{Replica, Stopped};
pub use settings::{Settings, Timeouts};
pub use span::Span;
pub use state::JobState;
