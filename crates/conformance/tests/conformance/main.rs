//! The suite on the core's own stores and adapters, and the proof that every case can fail.
#![allow(clippy::unwrap_used, reason = "fixtures are made outside of test functions")]

mod coarse_store;
mod defects;
mod fixture;
mod memory;
mod minimal_store;
mod mutant_documents;
mod mutant_store;
mod prefixed;
mod quiet_chaos;
mod socket;
