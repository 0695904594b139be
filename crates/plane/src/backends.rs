//! The stores that can keep a plane, each behind its feature: the only list of them.
//!
//! Lock stores do not know the plane, so this list is by URL scheme and not part of their registry.

#[cfg(feature = "sqlite")]
use std::path::{Path, PathBuf};
use std::sync::Arc;

use leasehold::{OpenError, StoreUrl};
use leasehold_core::clock::BootClock;
use leasehold_core::store::StoreError;

use crate::store::SharedPlaneStore;
use crate::store::memory::MemoryPlane;

type OpenPlane = fn(&StoreUrl) -> Result<SharedPlaneStore, StoreError>;

const BACKENDS: &[(&[&str], OpenPlane)] = &[
    (&["memory"], |_| Ok(Arc::new(MemoryPlane::new(BootClock::shared())))),
    #[cfg(feature = "sqlite")]
    (&["sqlite"], open_sqlite),
    #[cfg(feature = "redis")]
    (&["redis", "rediss", "valkey", "valkeys"], open_redis),
];

/// Opens the plane's store that belongs to a lock store: the same Redis server, or a second SQLite
/// file next to the lock file.
///
/// # Errors
/// The store cannot be opened, or this kind of store cannot hold a plane.
pub fn open_store(url: &StoreUrl) -> Result<SharedPlaneStore, OpenError> {
    let found = BACKENDS.iter().find(|(schemes, _)| schemes.contains(&url.scheme()));
    let Some((_, open)) = found else {
        return Err(OpenError::Url {
            url: url.to_string(),
            why: "the plane cannot be kept there yet; SQLite and Redis can keep it".into(),
        });
    };
    open(url).map_err(|failure| OpenError::Store { url: url.to_string(), failure })
}

#[cfg(feature = "sqlite")]
fn open_sqlite(url: &StoreUrl) -> Result<SharedPlaneStore, StoreError> {
    let locks = leasehold_sqlite::SqliteOptions::parse(&url.expose())?;
    let plane = crate::store::sqlite::SqlitePlane::open(plane_file_path(locks.path()))?;
    Ok(Arc::new(plane))
}

#[cfg(feature = "redis")]
fn open_redis(url: &StoreUrl) -> Result<SharedPlaneStore, StoreError> {
    let options = leasehold_redis::RedisOptions::parse(&url.expose())?;
    Ok(Arc::new(crate::store::redis::RedisPlane::open(options)?))
}

// `leasehold.db` becomes `leasehold.plane.db`. A separate file, because SQLite has one writer per
// file and lock renewals must not wait for job writes.
#[cfg(feature = "sqlite")]
fn plane_file_path(path: &Path) -> PathBuf {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some(extension) => path.with_extension(format!("plane.{extension}")),
        None => path.with_extension("plane"),
    }
}
