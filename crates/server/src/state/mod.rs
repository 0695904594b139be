//! What handlers share, and what outlives a request: database, audit log, records, waiters, undos.

pub(crate) mod app;
pub(crate) mod audit;
pub(crate) mod holds;
pub(crate) mod metrics_registry;
pub(crate) mod record;
pub(crate) mod served_plane;
pub(crate) mod shares;
pub(crate) mod state_db;
pub(crate) mod state_folder;
pub(crate) mod token_on_name;
pub(crate) mod tombstones;
pub(crate) mod undo;
pub(crate) mod waiters;
