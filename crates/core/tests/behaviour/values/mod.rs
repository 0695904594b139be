//! Value types: what they accept, refuse and print.

mod capability;
mod escalation_rule;
mod fence;
mod fence_floors;
mod holder;
mod name;
mod name_set;
mod redact;
mod token;
mod ttl;
