//! A store with other times than the defaults: it rounds lifetimes up to whole seconds, lets go of
//! expired leases late, and waits longer for a claim. The cases must judge it by its capabilities.

use std::sync::Arc;
use std::time::Duration;

use leasehold_conformance::Fixture;
use leasehold_core::clock::SharedClock;
use leasehold_core::store::{
    AcquireRequest, AcquireResponse, Capabilities, Documents, LeaseList, ReleaseRequest, ReleaseResponse,
    RenewRequest, RenewResponse, SharedStore, Store, StoreError, WakeListener,
};
use leasehold_core::{Error, Locks, Name, Request, RequestOptions, Token, Ttl};

use crate::fixture::Memory;

leasehold_conformance::suite! {
    time: Virtual,
    fixture: CoarseFixture::new(),
    skips: ["crossprocess::*"],
}

const TTL_STEP: Duration = Duration::from_secs(1);
const EXPIRY_LAG: Duration = Duration::from_millis(700);
const CLAIM_TTL: Duration = Duration::from_millis(1_500);

struct CoarseFixture(Memory);

impl CoarseFixture {
    fn new() -> Self {
        let memory = Memory::behind(|store, _| Arc::new(CoarseStore(store)));
        memory.memory_store().table().set_claim_ttl(CLAIM_TTL);
        Self(memory)
    }
}

#[async_trait::async_trait]
impl Fixture for CoarseFixture {
    async fn open(&self) -> anyhow::Result<SharedStore> {
        self.0.open().await
    }

    fn clock(&self) -> SharedClock {
        self.0.clock()
    }

    fn short_ttl(&self) -> Ttl {
        min_ttl()
    }
}

fn min_ttl() -> Ttl {
    Ttl::new(Duration::from_secs(2)).unwrap()
}

#[derive(Debug)]
struct CoarseStore(SharedStore);

/// The lifetime that this store keeps, and the lock delay with which the inner store does so.
fn rounded(ttl: Ttl, store_ttl: Duration) -> (Duration, Duration) {
    let kept = TTL_STEP * u32::try_from(store_ttl.as_millis().div_ceil(TTL_STEP.as_millis())).unwrap();
    (kept, kept - ttl.get() + EXPIRY_LAG)
}

/// What the inner store keeps beyond the lease's own time is not shown.
fn without_lag(remaining: Option<Duration>) -> Option<Duration> {
    remaining.map(|left| left.saturating_sub(EXPIRY_LAG))
}

#[async_trait::async_trait]
impl Store for CoarseStore {
    fn capabilities(&self) -> Capabilities {
        self.0
            .capabilities()
            .with_claim_ttl(CLAIM_TTL)
            .with_ttl_limits(min_ttl(), TTL_STEP)
            .with_expiry_lag(EXPIRY_LAG)
    }

    fn documents(&self) -> Option<&dyn Documents> {
        self.0.documents()
    }

    fn describe(&self) -> String {
        "coarse:".to_owned()
    }

    async fn acquire(
        &self,
        request: &AcquireRequest,
        within: Duration,
    ) -> Result<AcquireResponse, StoreError> {
        self.capabilities().check_acquire(request)?;
        let (kept, delay) = rounded(request.ttl, request.store_ttl());
        let request =
            request.clone().with_lock_delay(delay).with_queue(request.queue.map(|keep| keep + EXPIRY_LAG));
        Ok(match self.0.acquire(&request, within).await? {
            AcquireResponse::Granted(grant) => AcquireResponse::Granted(grant.with_ttl(kept)),
            AcquireResponse::Busy(mut busy) => {
                busy.remaining = without_lag(busy.remaining);
                AcquireResponse::Busy(busy)
            }
            other => other,
        })
    }

    async fn renew(
        &self,
        batch: &[RenewRequest],
        within: Duration,
    ) -> Vec<Result<RenewResponse, StoreError>> {
        let rounded = |item: &RenewRequest| {
            let (_, delay) = rounded(item.ttl, item.store_ttl());
            item.clone().with_lock_delay(delay)
        };
        let batch: Vec<_> = batch.iter().map(rounded).collect();
        let answers = self.0.renew(&batch, within).await;
        let shown = |answer| match answer {
            RenewResponse::Extended { remaining_before, .. } => {
                RenewResponse::extended(without_lag(remaining_before))
            }
            RenewResponse::NotOwned => RenewResponse::NotOwned,
        };
        answers.into_iter().map(|answer| answer.map(shown)).collect()
    }

    async fn release(
        &self,
        request: &ReleaseRequest,
        within: Duration,
    ) -> Result<ReleaseResponse, StoreError> {
        self.0.release(request, within).await
    }

    async fn inspect(&self, name: &Name, within: Duration) -> Result<LeaseList, StoreError> {
        let mut found = self.0.inspect(name, within).await?;
        found.leases.iter_mut().for_each(|lease| lease.remaining = without_lag(lease.remaining));
        Ok(found)
    }

    async fn list(&self, prefix: &str, limit: usize, within: Duration) -> Result<LeaseList, StoreError> {
        self.0.list(prefix, limit, within).await
    }

    fn listen(&self, name: &Name, token: &Token) -> WakeListener {
        self.0.listen(name, token)
    }
}

/// A TTL below the shortest is refused with both times, and nothing is locked.
#[tokio::test(start_paused = true)]
async fn a_ttl_below_the_shortest_is_refused() {
    let store = CoarseFixture::new().open().await.unwrap();
    let a = leasehold_conformance::client::TestClient::new(&store, "job:1", "a").unwrap();
    let short = a.acquire_request(Ttl::new(Duration::from_millis(1_999)).unwrap());
    let refused = store.acquire(&short, Duration::from_secs(1)).await.unwrap_err();
    assert!(!refused.unknown && refused.message().contains("the shortest is 2s"), "{refused}");
    assert!(a.inspect().await.unwrap().is_none());
}

/// The client refuses such a class before it asks the store, even if the class is fail-open.
#[tokio::test(start_paused = true)]
async fn a_class_below_the_shortest_ttl_is_refused() {
    let fixture = CoarseFixture::new();
    let locks = Locks::builder(fixture.open().await.unwrap()).clock(fixture.clock()).build().unwrap();
    for (ttl, fits) in [(1_999, false), (2_000, true)] {
        let options = RequestOptions::default().ttl(Some(Duration::from_millis(ttl)));
        let request = Request::new("workflow", format!("job:{ttl}")).unwrap().options(options);
        match locks.acquire(request).await {
            Ok(_) if fits => {}
            Err(Error::Invalid(invalid)) if !fits => {
                assert_eq!(invalid.field, "class.workflow.ttl");
                assert!(invalid.allowed.contains("2s"), "{invalid}");
            }
            other => panic!("{ttl} ms: {other:?}"),
        }
    }
}
