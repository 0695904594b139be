//! Value types: what they accept, refuse and print.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod capability;
mod clock;
mod escalation_rule;
mod fence;
mod fence_floors;
mod holder;
mod lease_table;
mod name;
mod name_set;
mod redact;
mod text;
mod token;
mod ttl;
mod url_options;
