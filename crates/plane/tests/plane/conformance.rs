//! Runs the conformance suite on every plane store.

// A failed set-up is a failed test.
mod memory {
    use std::sync::Arc;

    use leasehold_core::clock::BootClock;
    use leasehold_plane::store::{SharedPlaneStore, memory::MemoryPlane};

    async fn fresh() -> (SharedPlaneStore, ()) {
        (Arc::new(MemoryPlane::new(BootClock::shared())), ())
    }

    leasehold_plane::plane_store_suite!(fresh);
}

mod sqlite {
    use std::sync::Arc;

    use leasehold_plane::store::{SharedPlaneStore, sqlite::SqlitePlane};
    use tempfile::TempDir;

    async fn fresh() -> (SharedPlaneStore, TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let store = SqlitePlane::open(folder.path().join("plane.db")).unwrap();
        (Arc::new(store), folder)
    }

    leasehold_plane::plane_store_suite!(fresh);
}

mod redis {
    use std::sync::Arc;

    use leasehold_plane::store::{SharedPlaneStore, redis::RedisPlane};
    use leasehold_redis::RedisOptions;
    use leasehold_redis::testkit::RedisServer;

    async fn fresh() -> (SharedPlaneStore, RedisServer) {
        let server = RedisServer::start().await.unwrap();
        let options = RedisOptions::parse(&server.url()).unwrap();
        (Arc::new(RedisPlane::open(options).unwrap()), server)
    }

    leasehold_plane::plane_store_suite!(fresh);
}
