//! The cases, one file for each part of the contract. Each case gets its own fixture.

pub mod ambiguity;
pub mod crossprocess;
pub mod documents;
pub mod exclusion;
pub mod expiry;
pub mod fencing;
pub mod listing;
pub mod names;
pub mod release;
pub mod renewal;
pub mod waiting;
pub mod waking;
