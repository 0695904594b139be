//! The suite on what is built into the core, and the proof that it can fail.
#![allow(clippy::unwrap_used, reason = "fixtures are made outside of test functions")]

mod bare;
mod bent;
mod broken;
mod fixture;
mod memory;
mod prefixed;
mod quiet_chaos;
mod socket;
