//! What the daemon's store, as it is configured right now, promises about a lease it has acknowledged.

use leasehold_core::store::{Failure, Promised};

use crate::connection::Connections;
use crate::error;
use crate::inspect::read;
use crate::wire::StoreView;

pub(crate) async fn promise(connections: &Connections) -> Result<Promised, Failure> {
    let look = async {
        let store: StoreView = read(connections.get("/v1/store").await?, "what it promises")?;
        Ok(Promised {
            promise: store.promise,
            because: store.because,
        })
    };
    look.await.map_err(error::read_only)
}
