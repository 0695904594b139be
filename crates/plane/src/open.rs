//! From a URL to a plane's store.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use leasehold::{OpenError, StoreUrl};
use leasehold_core::clock::BootClock;
use leasehold_redis::RedisOptions;

use crate::store::SharedPlaneStore;
use crate::store::memory::MemoryPlane;
use crate::store::redis::RedisPlane;
use crate::store::sqlite::SqlitePlane;

/// Opens the plane's store that belongs to a store of locks: the same Redis server, or the file beside the locks' file.
///
/// # Errors
/// It cannot be used.
pub fn open_store(url: &StoreUrl) -> Result<SharedPlaneStore, OpenError> {
    let failed = |failure| OpenError::Store {
        url: url.to_string(),
        failure,
    };
    Ok(match url {
        StoreUrl::Memory => Arc::new(MemoryPlane::new(BootClock::shared())),
        StoreUrl::Sqlite { path, .. } => Arc::new(SqlitePlane::open(beside(path)).map_err(failed)?),
        StoreUrl::Redis { url } => {
            let options = RedisOptions::parse(url).map_err(failed)?;
            Arc::new(RedisPlane::open(options).map_err(failed)?)
        }
        other => {
            return Err(OpenError::Url {
                url: other.to_string(),
                why: "the plane cannot be kept there yet; SQLite and Redis can keep it".into(),
            });
        }
    })
}

/// `leasehold.db` has `leasehold.plane.db` beside it.
fn beside(path: &Path) -> PathBuf {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some(extension) => path.with_extension(format!("plane.{extension}")),
        None => path.with_extension("plane"),
    }
}
