//! The oracle reports each promise that a history breaks, and accepts similar histories that are
//! allowed. Histories are read back as they were written.

// Clippy's exception for tests covers test functions only, not the helpers they share.
#![allow(clippy::unwrap_used)]

mod broken;
mod clean_histories;
mod completeness;
mod excuses;
mod history;
mod long_histories;
mod reacquired;
mod script;
mod store;
