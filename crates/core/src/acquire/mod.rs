//! The acquire: a pure machine that decides, and the one async driver that runs it.

mod client_acquire;
mod driver;
mod gate_entry;
mod machine;
mod release_driver;
mod wait_observation;

pub(crate) use client_acquire::acquire;
pub use driver::{AcquireDriver, AcquireHooks, AcquireStopped, CallAdmission, DriverIo, NoHooks};
pub use machine::{AcquireMachine, AcquireOutcome, AcquireStep, MAX_POLL_INTERVAL, WAITER_REGISTRATION_TTL};
pub use release_driver::ReleaseDriver;
