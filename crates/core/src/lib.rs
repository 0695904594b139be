//! Leases with explicit failure policy: for every workload risk class it is data what happens when acquire errs, when
//! renewal fails and when release fails.
//!
//! The modules in the order a lock lives: [`request`] is what a caller asks for; [`gate`] lets one contender per process
//! and name through; [`breaker`] knows whether the store is worth asking; [`acquire`] asks, waits and undoes;
//! [`deadline`] judges time; [`life`] is a hold's life as a pure state machine; [`hold`] is the guard; the keeper drives
//! the machines; [`policy`] holds the classes; [`store`] is the trait that engines implement, [`memory`] the reference;
//! [`event`] is the one stream that [`observe`] reads.
//!
//! ```
//! use std::sync::Arc;
//! use leasehold_core::{Acquired, Locks, clock::BootClock, memory::MemoryStore};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let locks = Locks::builder(Arc::new(MemoryStore::new(BootClock::shared()))).build()?;
//!
//! // The short way: acquire, hold, renew, fence, release.
//! let fence = locks.class("scheduler").run("job:42", async |hold| hold.fence()).await??;
//!
//! // The long way.
//! match locks.class("approval").acquire("job:42").await? {
//!     Acquired::Held(hold) => {
//!         hold.check()?;
//!         assert!(hold.fence()? > fence);
//!         hold.release().await;
//!     }
//!     Acquired::Busy(busy) => println!("{busy}"),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! **Promised**: at most one distributed hold of a name is within its deadline (I1); fences of a name only grow (I2); no
//! work of a `fence` class runs past its deadline (I5). **Not promised**: that a store which forgets (a flush, a
//! fail-over that loses writes, a clock that jumps) keeps two holders apart. A lock for correctness needs its
//! [`Fence`] checked where the data lives.

pub mod acquire;
pub mod adapter;
pub mod breaker;
mod call;
mod client;
pub mod clock;
pub mod deadline;
mod error;
pub mod event;
mod floor;
pub mod gate;
pub mod hold;
mod keeper;
pub mod life;
pub mod memory;
pub mod observe;
mod operate;
pub mod policy;
pub mod request;
mod resume;
pub mod rng;
mod shutdown;
mod steward;
pub mod store;
mod tools;
pub mod word;

pub use client::{Acquired, Builder, ClassLocks, Locks};
pub use error::{Busy, Error, Lost, NoFence, RunError};
pub use event::Loss;
pub use hold::{Exclusivity, Hold, Standing};
pub use keeper::Left;
pub use life::Outcome;
pub use operate::BreakError;
pub use request::{Heirs, Request, Tweaks};
pub use resume::Resumed;
pub use shutdown::Shutdown;
pub use word::{Fence, Holder, Invalid, Name, Token, Ttl};
