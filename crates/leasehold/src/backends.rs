//! The built-in stores, each behind its feature: the only list of them.

use std::sync::Arc;

use leasehold_core::memory::MemoryBackend;
use leasehold_core::store::Backend;

/// The backends of this build, in the order of help texts.
pub(crate) fn builtin() -> Vec<Arc<dyn Backend>> {
    vec![
        #[cfg(feature = "sqlite")]
        Arc::new(leasehold_sqlite::SqliteBackend),
        #[cfg(feature = "redis")]
        Arc::new(leasehold_redis::RedisBackend),
        #[cfg(feature = "http")]
        Arc::new(leasehold_http::HttpBackend),
        Arc::new(MemoryBackend),
    ]
}

/// Schemes of backends that this build leaves out, with their features: an error can then name the
/// feature.
pub(crate) const LEFT_OUT: &[(&[&str], &str)] = &[
    #[cfg(not(feature = "sqlite"))]
    (&["sqlite"], "sqlite"),
    #[cfg(not(feature = "redis"))]
    (&["redis", "rediss", "valkey", "valkeys"], "redis"),
    #[cfg(not(feature = "http"))]
    (&["http", "https"], "http"),
];
