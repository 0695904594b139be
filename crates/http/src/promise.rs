//! Reads what the daemon's store, as configured right now, promises about an acknowledged lease.

use leasehold_core::store::{PromiseReport, StoreError};

use crate::connection::Connections;
use crate::error;
use crate::inspect::read_document;
use crate::wire::StoreView;

pub(crate) async fn promise(connections: &Connections) -> Result<PromiseReport, StoreError> {
    let look = async {
        let store: StoreView = read_document(connections.get("/v1/store").await?, "what it promises")?;
        Ok(PromiseReport::new(store.promise).with_limits(store.because))
    };
    look.await.map_err(error::mark_read_only)
}
