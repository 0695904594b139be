//! Checks of the fence counters on our own server. A counter must never expire: its value is
//! stored nowhere else, and a new counter would issue old fences again.

use std::time::Duration;

use leasehold_core::rng::OsRandom;
use leasehold_core::store::{AcquireRequest, AcquireResponse, ReleaseRequest, StoreError};
use leasehold_core::{Fence, Holder, InvalidInput, Name, Token, Ttl};

use super::{DrillError, DrillTestbed};

const DIRECTOR_CALL_TIMEOUT: Duration = Duration::from_secs(5);

impl DrillTestbed {
    /// Counts the fence counters of our own server that have a time to live; there must be none.
    /// `None` for other stores.
    ///
    /// # Errors
    /// The server does not answer, or does not grant a free name.
    pub async fn expiring_fence_counters(&self) -> Result<Option<u64>, DrillError> {
        if !self.lists_fence_counters() {
            return Ok(None);
        }
        // A hand-over to a waiter rewrites the counter, which removes a time to live. On the
        // drill's names the defect may thus be hidden. A grant without waiters on a new name always
        // shows it.
        self.acquire_and_release("counters").await?;
        Ok(Some(self.server().expiring_fence_counters().await?))
    }

    /// Acquires and releases a free name of this run, bypassing the proxy, as a client that knows
    /// no earlier fence of it.
    ///
    /// # Errors
    /// The store does not answer, or does not grant the name.
    pub async fn acquire_and_release(&self, name: &str) -> Result<Fence, DrillError> {
        let wrong = |invalid: InvalidInput| DrillError::Store(invalid.to_string());
        let failed = |failure: StoreError| DrillError::Store(failure.to_string());
        let name = Name::new(&self.lock_name(name)).map_err(wrong)?;
        let holder = Holder::new("director").map_err(wrong)?;
        let token = Token::fresh(&holder, "scheduler", &OsRandom);
        let request = AcquireRequest::new(
            name.clone(),
            token.clone(),
            Ttl::new(Duration::from_secs(60)).map_err(wrong)?,
        );
        let answer = self.store().acquire(&request, DIRECTOR_CALL_TIMEOUT).await.map_err(failed)?;
        let AcquireResponse::Granted(grant) = answer else {
            return Err(DrillError::Store(format!("{name} is free but was not granted: {answer:?}")));
        };
        let request = ReleaseRequest::by_owner(name, token);
        self.store().release(&request, DIRECTOR_CALL_TIMEOUT).await.map_err(failed)?;
        Ok(grant.fence)
    }
}
