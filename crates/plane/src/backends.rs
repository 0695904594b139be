//! The stores that can keep a plane, each behind its feature: the only list of them.
//!
//! Lock stores do not know the plane, so this list is by URL scheme and not part of their registry.

#[cfg(feature = "sqlite")]
use std::path::{Path, PathBuf};
use std::sync::Arc;

use leasehold::{OpenError, StoreUrl};
use leasehold_core::clock::BootClock;
use leasehold_core::memory::MemoryBackend;
use leasehold_core::store::{Backend, BackendInfo, StoreError};

use crate::store::SharedPlaneStore;
use crate::store::memory::MemoryPlane;

type OpenPlane = fn(&StoreUrl) -> Result<SharedPlaneStore, StoreError>;

// Names and schemes are those of the lock stores, so that an alias such as `valkey` is in one place.
fn backends() -> Vec<(BackendInfo, OpenPlane)> {
    vec![
        #[cfg(feature = "sqlite")]
        (leasehold_sqlite::SqliteBackend.info(), open_sqlite),
        #[cfg(feature = "redis")]
        (leasehold_redis::RedisBackend.info(), open_redis),
        (MemoryBackend.info(), open_memory),
    ]
}

/// Opens the plane's store that belongs to a lock store: the same Redis server, or a second SQLite
/// file next to the lock file.
///
/// # Errors
/// The store cannot be opened, or this kind of store cannot hold a plane.
pub fn open_store(url: &StoreUrl) -> Result<SharedPlaneStore, OpenError> {
    let backends = backends();
    let Some((_, open)) = backends.iter().find(|(info, _)| info.schemes.contains(&url.scheme())) else {
        let titles: Vec<_> = backends.iter().map(|(info, _)| info.title).collect();
        return Err(OpenError::Url {
            url: url.to_string(),
            why: format!("a plane cannot be kept there; it can be kept in: {}", titles.join(", ")),
        });
    };
    open(url).map_err(|failure| OpenError::Store { url: url.to_string(), failure })
}

fn open_memory(_: &StoreUrl) -> Result<SharedPlaneStore, StoreError> {
    Ok(Arc::new(MemoryPlane::new(BootClock::shared())))
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

/// The plane's file that belongs to a file of locks: `leasehold.plane.db` beside `leasehold.db`.
///
/// A separate file, because SQLite has one writer per file and lock renewals must not wait for job
/// writes.
#[cfg(feature = "sqlite")]
#[must_use]
pub fn plane_file_path(path: &Path) -> PathBuf {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some(extension) => path.with_extension(format!("plane.{extension}")),
        None => path.with_extension("plane"),
    }
}

#[cfg(all(test, feature = "sqlite", feature = "redis"))]
mod tests {
    use super::*;

    #[test]
    fn aliases_of_a_store_open_its_plane() {
        // A server is connected to at the first request, so none has to run.
        for url in ["memory:", "redis://127.0.0.1:1", "valkey://127.0.0.1:1"] {
            open_store(&StoreUrl::parse(url).unwrap()).expect(url);
        }
    }

    #[test]
    fn a_store_that_cannot_keep_a_plane_is_refused_with_those_that_can() {
        let registered = leasehold::register(PlainBackend);
        registered.expect("no other store has the scheme");
        let refused = open_store(&StoreUrl::parse("plain:").unwrap()).unwrap_err().to_string();
        assert!(refused.contains("it can be kept in: SQLite, Redis, memory"), "{refused}");
    }

    /// Locks in memory under another scheme.
    #[derive(Debug)]
    struct PlainBackend;

    impl Backend for PlainBackend {
        fn info(&self) -> BackendInfo {
            BackendInfo::new("plain", &["plain"], &["plain:"])
        }

        fn parse(&self, _: &str) -> Result<Box<dyn leasehold_core::store::StoreLocation>, StoreError> {
            MemoryBackend.parse("memory:")
        }
    }
}
