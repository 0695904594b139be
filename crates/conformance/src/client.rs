//! A test client with one token, in whose terms the cases are written.

use std::time::Duration;

use anyhow::{Context, anyhow, bail, ensure};
use leasehold_core::rng::OsRandom;
use leasehold_core::store::{
    AcquireRequest, AcquireResponse, BusyLease, Lease, ReleaseRequest, ReleaseResponse, RenewRequest,
    RenewResponse, SharedStore, StoreError,
};
use leasehold_core::{Fence, Holder, Name, Token, Ttl};

/// Time limit of one call. Generous: the cases judge responses, not speed.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(15);

/// Allowed beside every time that a store states: stores round to milliseconds.
pub const EXPIRY_SLACK: Duration = Duration::from_millis(50);

/// Added to a lease's lifetime before it must have expired in this store.
pub fn expiry_slack(store: &SharedStore) -> Duration {
    let can = store.capabilities();
    // A renewal does not tell its rounded lifetime, so the step counts too.
    EXPIRY_SLACK + can.expiry_lag + can.ttl_step
}

/// The time in which a waiter must confirm a handover in this store.
pub fn claim_ttl(store: &SharedStore) -> Duration {
    store.capabilities().claim_ttl
}

/// A TTL that no case outlives.
pub fn long_ttl() -> Ttl {
    // Always valid: 120 s is between the bounds of `Ttl`.
    Ttl::new(Duration::from_secs(120)).unwrap_or(Ttl::MAX)
}

/// One token on one name of one store.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct TestClient {
    /// The store that receives the requests.
    pub store: SharedStore,
    /// The lock's name.
    pub name: Name,
    /// Identifies the client; one token per client.
    pub token: Token,
}

/// A grant as the cases use it.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct TestGrant {
    /// The grant's fence.
    pub fence: Fence,
    /// Lifetime of the lease: the requested one, or the one that the store gave instead.
    pub lifetime: Duration,
}

impl TestClient {
    /// Creates a client with a fresh token of the holder `who`, in the class `conformance`.
    pub fn new(store: &SharedStore, name: &str, who: &str) -> anyhow::Result<Self> {
        Ok(Self {
            store: SharedStore::clone(store),
            name: Name::new(name)?,
            token: Token::fresh(&Holder::new(who)?, "conformance", &OsRandom),
        })
    }

    /// An acquire request without options.
    pub fn acquire_request(&self, ttl: Ttl) -> AcquireRequest {
        AcquireRequest::new(self.name.clone(), self.token.clone(), ttl)
    }

    /// Sends this acquire request.
    pub async fn send_acquire(&self, request: &AcquireRequest) -> anyhow::Result<AcquireResponse> {
        self.store
            .acquire(request, CALL_TIMEOUT)
            .await
            .with_context(|| format!("acquire of {:?} by {:?}", self.name, self.token))
    }

    /// Acquires with this TTL; any response is fine.
    pub async fn acquire(&self, ttl: Ttl) -> anyhow::Result<AcquireResponse> {
        self.send_acquire(&self.acquire_request(ttl)).await
    }

    /// Acquires with this TTL; fails unless granted.
    pub async fn expect_granted(&self, ttl: Ttl) -> anyhow::Result<TestGrant> {
        self.expect_granted_with(&self.acquire_request(ttl)).await
    }

    /// Sends this acquire request; fails unless granted.
    pub async fn expect_granted_with(&self, request: &AcquireRequest) -> anyhow::Result<TestGrant> {
        match self.send_acquire(request).await? {
            AcquireResponse::Granted(grant) => Ok(TestGrant {
                fence: grant.fence,
                // The store may grant another TTL than requested, and then reports it.
                lifetime: grant.ttl.unwrap_or_else(|| request.store_ttl()),
            }),
            other => bail!("{:?} asked for {:?}, which is free, and got {other:?}", self.token, self.name),
        }
    }

    /// Acquires; fails unless the response is *busy*.
    pub async fn expect_busy(&self) -> anyhow::Result<BusyLease> {
        match self.acquire(long_ttl()).await? {
            AcquireResponse::Busy(busy) => Ok(busy),
            other => bail!(
                "I1: {:?} asked for {:?}, which another holds, and got {other:?}",
                self.token,
                self.name
            ),
        }
    }

    /// Acquires and queues as a waiter for `keep`; fails unless the response is *busy*.
    pub async fn expect_queued(&self, keep: Duration) -> anyhow::Result<BusyLease> {
        match self.send_acquire(&self.queue_request(keep)).await? {
            AcquireResponse::Busy(busy) => Ok(busy),
            other => bail!(
                "I1: {:?} queued for {:?}, which another holds, and got {other:?}",
                self.token,
                self.name
            ),
        }
    }

    /// An acquire request that queues as a waiter for `keep`.
    pub fn queue_request(&self, keep: Duration) -> AcquireRequest {
        self.acquire_request(long_ttl()).with_queue(keep)
    }

    /// Renews with this fence; any response is fine.
    pub async fn renew(&self, fence: Fence, ttl: Ttl) -> anyhow::Result<RenewResponse> {
        let renewal = self.renew_request(fence, ttl);
        single_response(self.store.renew(&[renewal], CALL_TIMEOUT).await)?
            .with_context(|| format!("renewal of {:?} by {:?}", self.name, self.token))
    }

    /// A renew request for this client's lease.
    pub fn renew_request(&self, fence: Fence, ttl: Ttl) -> RenewRequest {
        RenewRequest::new(&self.name, self.token.clone(), fence, ttl)
    }

    /// Fails unless the client still holds the lease with this fence; checked by a renewal.
    pub async fn expect_still_held(&self, fence: Fence) -> anyhow::Result<()> {
        match self.renew(fence, long_ttl()).await? {
            RenewResponse::Extended { .. } => Ok(()),
            RenewResponse::NotOwned => bail!(
                "I4: {:?} lost {:?} (fence {fence}) to something that must change nothing",
                self.token,
                self.name
            ),
        }
    }

    /// Releases; any response is fine.
    pub async fn release(&self) -> anyhow::Result<ReleaseResponse> {
        self.send_release(&ReleaseRequest::by_owner(self.name.clone(), self.token.clone())).await
    }

    /// Releases; fails unless the client held the lease.
    pub async fn expect_released(&self) -> anyhow::Result<()> {
        match self.release().await? {
            ReleaseResponse::Released => Ok(()),
            ReleaseResponse::NotOwned => bail!(
                "{:?} holds {:?} and gave it back, and the store says that it is not its own",
                self.token,
                self.name
            ),
        }
    }

    /// Releases and leaves a tombstone.
    pub async fn undo(&self) -> anyhow::Result<ReleaseResponse> {
        self.send_release(&ReleaseRequest::undo(self.name.clone(), self.token.clone())).await
    }

    /// Leaves the queue; fails if that releases a lease.
    pub async fn leave_queue(&self) -> anyhow::Result<()> {
        match self.send_release(&ReleaseRequest::leave_queue(self.name.clone(), self.token.clone())).await? {
            ReleaseResponse::NotOwned => Ok(()),
            ReleaseResponse::Released => {
                bail!("{:?} only left the queue of {:?}, and a lease was released", self.token, self.name)
            }
        }
    }

    /// Breaks the grant with this fence, as an operator.
    pub async fn break_grant(&self, fence: Fence) -> anyhow::Result<ReleaseResponse> {
        self.send_release(&ReleaseRequest::by_operator(&self.name, fence)).await
    }

    /// Sends this release request.
    pub async fn send_release(&self, request: &ReleaseRequest) -> anyhow::Result<ReleaseResponse> {
        self.store.release(request, CALL_TIMEOUT).await.with_context(|| format!("release of {:?}", self.name))
    }

    /// The exclusive lease of the name.
    pub async fn inspect(&self) -> anyhow::Result<Option<Lease>> {
        let found = self.store.inspect(&self.name, CALL_TIMEOUT).await;
        let found = found.with_context(|| format!("inspect of {:?}", self.name))?;
        ensure!(found.leases.len() < 2, "I1: an exclusive name has several leases: {found:?}");
        Ok(found.into_first())
    }
}

/// The single response to a batch of one.
pub fn single_response<T>(mut answers: Vec<Result<T, StoreError>>) -> anyhow::Result<Result<T, StoreError>> {
    match (answers.pop(), answers.len()) {
        (Some(answer), 0) => Ok(answer),
        (_, rest) => Err(anyhow!("a batch of one renewal got {} answers", rest + 1)),
    }
}
