//! The real client in a simulated world, many times over: `Locks`, keeper, gate, breaker, debt collector and steward, each
//! process on a runtime and a drifting clock of its own, against stores with Redis's and SQLite's semantics.
//!
//! Or with the real daemon in front of the store: the same clients go through the real HTTP store over a simulated network, some
//! have the daemon keep their holds, some keep their leases with nothing but HTTP, and the daemon is paused, killed and restarted too.
//!
//! The seed is the history. A [`Plan`] is made from it: who takes part, under which classes, and what goes wrong (messages
//! lost, late, repeated or refused; processes paused, killed and ended; stores that are away, full, flushed or fail over
//! with loss; clocks stepped; leases broken; policies overridden). Then faults end, and everything must be as if nothing had
//! been. What happened is a [history](crate::history) in true time, and the same [oracle](crate::oracle) judges it that
//! judges the drills. A plan that breaks a promise is [shrunk](shrink) to a short one; a [`Mistake`] put back on purpose must be
//! found.

mod books;
mod campaign;
mod class;
mod clock;
mod daemon;
mod dice;
mod director;
mod drift;
mod engine;
mod healing;
mod kept;
mod mistake;
mod network;
mod operator;
mod orphans;
mod panics;
mod places;
mod plain;
mod plan;
mod process;
mod shrink;
mod store;
mod stream;
mod strike;
mod striking;
mod tape;
mod target;
mod tenant;
mod turns;
mod ways;
mod weather;
mod wire;
mod worker;
mod world;

pub use campaign::{Campaign, Failure, Progress, campaign, replay};
pub use class::ClassPlan;
pub use director::{Run, live};
pub use engine::Kind;
pub use mistake::Mistake;
pub use orphans::Orphans;
pub use plan::{DaemonPlan, Odds, Plan, Route, World};
pub use shrink::{Shrunk, shrink};
pub use strike::{Strike, What};
