//! The oracle reports each promise that a history breaks, and accepts similar histories that are
//! allowed.

mod broken;
mod clean_histories;
mod completeness;
mod excuses;
mod long_histories;
mod reacquired;
mod script;
mod store;
