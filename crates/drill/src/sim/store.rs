//! The store as a process sees it: every verb is a message over the simulated network.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::store::{
    Answer, Ask, Capabilities, Cause, Failure, Given, Giving, Lease, Listener, Promise, Renewal, Renewed,
    Store, Wakers,
};
use leasehold_core::{Name, Token};
use tokio::sync::oneshot;

use super::engine::{Kind, Reply, Verb};
use super::world::World;

/// One process's way to the store.
#[derive(Debug)]
pub(super) struct SimStore {
    pub(super) world: Arc<World>,
    pub(super) slot: usize,
    pub(super) life: u32,
    pub(super) kind: Kind,
    pub(super) queue: bool,
    pub(super) wakers: Arc<Wakers>,
}

impl SimStore {
    async fn call(&self, verb: Verb, within: Duration) -> Result<Reply, Failure> {
        let (to, answer) = oneshot::channel();
        self.world.lock().send(self.slot, self.life, verb, within, to);
        match answer.await {
            Ok(Reply::Failed { cause, unknown: true }) => Err(Failure::unknown(cause, "cut off")),
            Ok(Reply::Failed {
                cause,
                unknown: false,
            }) => Err(Failure::not_done(cause, "turned away")),
            Ok(reply) => Ok(reply),
            // Silence ends only by the caller's patience.
            Err(_) => pending().await,
        }
    }
}

/// A bell that the daemon listens to, for as long as it does.
struct Heard {
    world: Arc<World>,
    key: String,
}

impl Drop for Heard {
    fn drop(&mut self) {
        let mut state = self.world.lock();
        if let Some(listening) = state.bells.get_mut(&self.key) {
            *listening -= 1;
            if *listening == 0 {
                state.bells.remove(&self.key);
            }
        }
    }
}

fn nonsense() -> Failure {
    Failure::unknown(Cause::Corrupt, "an answer to another question")
}

#[async_trait]
impl Store for SimStore {
    fn capabilities(&self) -> Capabilities {
        let (kind, promise) = match self.kind {
            Kind::Redis => ("redis", Promise::Volatile),
            Kind::Sqlite => ("sqlite", Promise::Durable),
        };
        let able = Capabilities::new(kind, promise)
            .with_cross_process()
            .with_fence_survives_loss();
        if self.queue { able.with_queue() } else { able }
    }

    fn describe(&self) -> String {
        "sim:".to_owned()
    }

    async fn acquire(&self, ask: &Ask, within: Duration) -> Result<Answer, Failure> {
        match self.call(Verb::Ask(ask.clone()), within).await? {
            Reply::Asked(answer) => Ok(answer),
            _ => Err(nonsense()),
        }
    }

    async fn renew(&self, batch: &[Renewal], within: Duration) -> Vec<Result<Renewed, Failure>> {
        match self.call(Verb::Renew(batch.to_vec()), within).await {
            Ok(Reply::Renewed(renewed)) => renewed.into_iter().map(Ok).collect(),
            Ok(_) => Vec::new(),
            Err(failure) => batch
                .iter()
                .map(|_| {
                    Err(if failure.unknown {
                        Failure::unknown(failure.cause, failure.message())
                    } else {
                        Failure::not_done(failure.cause, failure.message())
                    })
                })
                .collect(),
        }
    }

    async fn release(&self, giving: &Giving, within: Duration) -> Result<Given, Failure> {
        match self.call(Verb::Release(giving.clone()), within).await? {
            Reply::Given(given) => Ok(given),
            _ => Err(nonsense()),
        }
    }

    async fn inspect(&self, name: &Name, _within: Duration) -> Result<Option<Lease>, Failure> {
        let state = self.world.lock();
        Ok(state.engine.lease(name, state.now))
    }

    fn listen(&self, _name: &Name, token: &Token) -> Listener {
        let listener = self.wakers.listen(token.random());
        let mut state = self.world.lock();
        if state.plan.daemon.is_none() {
            return listener;
        }
        let key = token.random().to_owned();
        *state.bells.entry(key.clone()).or_default() += 1;
        drop(state);
        let world = Arc::clone(&self.world);
        listener.with(Heard { world, key })
    }
}
