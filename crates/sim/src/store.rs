//! The store as a process sees it: every call is a message over the simulated network.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::store::{
    AcquireRequest, AcquireResponse, Capabilities, LeaseList, ReleaseRequest, ReleaseResponse, RenewRequest,
    RenewResponse, Store, StoreError, StoreErrorKind, WakeListener, WakeRegistry,
};
use leasehold_core::testbed::SimProfile;
use leasehold_core::{Name, Token};
use tokio::sync::oneshot;

use super::engine::{StoreReply, StoreRequest};
use super::mistake::Mistake;
use super::world::SimWorld;
use leasehold_drill::history::HistoryEntry;

/// One process's connection to the store.
#[derive(Debug)]
pub(super) struct SimStore {
    pub(super) world: Arc<SimWorld>,
    pub(super) slot: usize,
    pub(super) life: u32,
    pub(super) profile: SimProfile,
    pub(super) queue: bool,
    pub(super) wakers: Arc<WakeRegistry>,
}

impl SimStore {
    pub(super) fn new(world: &Arc<SimWorld>, slot: usize, life: u32, wakers: &Arc<WakeRegistry>) -> Self {
        let plan = Arc::clone(&world.lock().plan);
        let (world, wakers) = (Arc::clone(world), Arc::clone(wakers));
        Self { world, slot, life, profile: plan.profile, queue: plan.queue, wakers }
    }

    async fn call(&self, verb: StoreRequest, within: Duration) -> Result<StoreReply, StoreError> {
        let (to, answer) = oneshot::channel();
        self.world.lock().send_to_store(self.slot, self.life, verb, within, to);
        match answer.await {
            Ok(StoreReply::Failed { cause, unknown: true }) => Err(StoreError::unknown(cause, "cut off")),
            Ok(StoreReply::Failed { cause, unknown: false }) => {
                Err(StoreError::not_done(cause, "turned away"))
            }
            Ok(reply) => Ok(reply),
            // The reply is lost. Only the caller's timeout ends the call.
            Err(_) => pending().await,
        }
    }
}

impl SimStore {
    /// The client receives the response to a renewal.
    fn receive_renewal(
        &self,
        renewal: &RenewRequest,
        answer: RenewResponse,
    ) -> Result<RenewResponse, StoreError> {
        if answer == RenewResponse::NotOwned {
            let mut state = self.world.lock();
            let who =
                state.hosts.get(self.slot).map_or_else(String::new, |host| host.process_name(self.slot));
            let (now, name) = (state.now, renewal.names.first().to_string());
            state.history.record(now, &who, HistoryEntry::NotOwned { name, fence: renewal.fence });
            if state.plan.mistake == Mistake::NotOwnedIsAnError {
                return Err(StoreError::not_done(StoreErrorKind::Overloaded, "a mistake, on purpose"));
            }
        }
        Ok(answer)
    }
}

/// Counts a listener of the daemon, as long as it exists.
struct WakeRegistration {
    world: Arc<SimWorld>,
    key: String,
}

impl Drop for WakeRegistration {
    fn drop(&mut self) {
        let mut state = self.world.lock();
        if let Some(listening) = state.wake_keys.get_mut(&self.key) {
            *listening -= 1;
            if *listening == 0 {
                state.wake_keys.remove(&self.key);
            }
        }
    }
}

fn unexpected_reply() -> StoreError {
    StoreError::unknown(StoreErrorKind::Corrupt, "an answer to another question")
}

#[async_trait]
impl Store for SimStore {
    fn capabilities(&self) -> Capabilities {
        let SimProfile { name, promise, .. } = self.profile;
        let able = Capabilities::new(name, promise).with_cross_process().with_fence_survives_loss();
        if self.queue { able.with_queue() } else { able }
    }

    fn describe(&self) -> String {
        "sim:".to_owned()
    }

    async fn acquire(
        &self,
        request: &AcquireRequest,
        within: Duration,
    ) -> Result<AcquireResponse, StoreError> {
        match self.call(StoreRequest::Acquire(request.clone()), within).await? {
            StoreReply::Acquire(answer) => Ok(answer),
            _ => Err(unexpected_reply()),
        }
    }

    async fn renew(
        &self,
        batch: &[RenewRequest],
        within: Duration,
    ) -> Vec<Result<RenewResponse, StoreError>> {
        match self.call(StoreRequest::Renew(batch.to_vec()), within).await {
            Ok(StoreReply::Renew(renewed)) => {
                let renewed = batch.iter().zip(renewed);
                renewed.map(|(renewal, answer)| self.receive_renewal(renewal, answer)).collect()
            }
            Ok(_) => Vec::new(),
            Err(failure) => batch
                .iter()
                .map(|_| {
                    Err(if failure.unknown {
                        StoreError::unknown(failure.kind, failure.message())
                    } else {
                        StoreError::not_done(failure.kind, failure.message())
                    })
                })
                .collect(),
        }
    }

    async fn release(
        &self,
        request: &ReleaseRequest,
        within: Duration,
    ) -> Result<ReleaseResponse, StoreError> {
        match self.call(StoreRequest::Release(request.clone()), within).await? {
            StoreReply::Release(given) => Ok(given),
            _ => Err(unexpected_reply()),
        }
    }

    async fn inspect(&self, name: &Name, _within: Duration) -> Result<LeaseList, StoreError> {
        let state = self.world.lock();
        Ok(LeaseList::new(state.engine.lease(name, state.now)))
    }

    fn listen(&self, _name: &Name, token: &Token) -> WakeListener {
        let listener = self.wakers.listen(token.random());
        let mut state = self.world.lock();
        // Without a daemon the holder's name already tells which process waits.
        if state.plan.daemon.is_none() {
            return listener;
        }
        let key = token.random().to_owned();
        *state.wake_keys.entry(key.clone()).or_default() += 1;
        drop(state);
        let world = Arc::clone(&self.world);
        listener.with_source(WakeRegistration { world, key })
    }
}
