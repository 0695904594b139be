//! What all handlers share.

use std::sync::Arc;
use std::time::Duration;

use leasehold::clock::{SharedClock, until};
use leasehold::leasehold_core::Token;
use leasehold::leasehold_core::rng::{OsRandom, RandomExt, SharedRandom};
use leasehold::policy::Class;
use leasehold::store::{Cause, Failure, Renewal, Renewed, SharedStore};
use leasehold::{Holder, Invalid, Locks, Name};
use sha2::{Digest, Sha256};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::auth::{Limits, Principal, Tokens};
use crate::config::Config;
use crate::problem::Refusal;
use crate::waiters::Waiters;

/// The daemon's parts.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) config: Config,
    /// The daemon's own client: policies, and the holds it keeps for others.
    pub(crate) locks: Locks,
    pub(crate) clock: SharedClock,
    pub(crate) random: SharedRandom,
    /// None: everybody on this machine may do everything.
    pub(crate) tokens: Option<Tokens>,
    pub(crate) limits: Limits,
    pub(crate) waiters: Waiters,
    /// How many requests may wait at once.
    waiting: Arc<Semaphore>,
    /// Fires when the daemon begins to stop: those who wait are told.
    pub(crate) stopping: CancellationToken,
    /// Makes tokens from ids.
    key: Key,
}

impl App {
    pub(crate) fn new(config: Config, locks: Locks, tokens: Option<Tokens>, key: Key) -> Self {
        Self {
            clock: SharedClock::clone(locks.clock()),
            random: OsRandom::shared(),
            limits: Limits::new(config.asking, config.keeping),
            waiters: Waiters::default(),
            waiting: Arc::new(Semaphore::new(config.waiters)),
            stopping: CancellationToken::new(),
            tokens,
            locks,
            key,
            config,
        }
    }

    pub(crate) fn store(&self) -> &SharedStore {
        self.locks.store()
    }

    /// A class in force.
    pub(crate) fn class(&self, name: &str) -> Result<Arc<Class>, Invalid> {
        self.locks.policies().class(name, self.clock.now())
    }

    /// One question to the store, for no longer than this. Silence is an unknown outcome, never a no.
    pub(crate) async fn within<T>(
        &self,
        within: Duration,
        asking: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        match until(&*self.clock, self.clock.now() + within, asking).await {
            Some(answer) => answer,
            None => Err(silent(within)),
        }
    }

    /// Renewals, one result each unless the store answers fewer.
    pub(crate) async fn renew(&self, batch: &[Renewal], within: Duration) -> Vec<Result<Renewed, Failure>> {
        let asking = self.store().renew(batch, within);
        match until(&*self.clock, self.clock.now() + within, asking).await {
            Some(results) => results,
            None => batch.iter().map(|_| Err(silent(within))).collect(),
        }
    }

    /// A place among those who wait.
    pub(crate) fn wait(&self) -> Result<OwnedSemaphorePermit, Refusal> {
        Arc::clone(&self.waiting).try_acquire_owned().map_err(|_| {
            Refusal::new(
                http::StatusCode::TOO_MANY_REQUESTS,
                "too_many_waiters",
                "too many requests wait in this daemon already; come again later",
            )
            .retry_after(Duration::from_secs(1))
        })
    }

    /// The token that this caller's id stands for on this name. The same every time, also after a restart; nobody without
    /// the daemon's key can work it out.
    pub(crate) fn token_of(
        &self,
        who: &Principal,
        name: &Name,
        id: &str,
        holder: &Holder,
        class: &str,
    ) -> Result<Token, Refusal> {
        let random = self.key.derive(&[who.id(), name.as_str(), id]);
        Ok(Token::parse(&format!("{holder}|{class}|{random}"))?)
    }

    /// A token that nobody has had.
    pub(crate) fn fresh_token(&self, holder: &Holder, class: &str) -> Token {
        Token::fresh(holder, class, &*self.random)
    }
}

fn silent(within: Duration) -> Failure {
    Failure::unknown(Cause::TimedOut, format!("no answer within {within:?}"))
}

/// The daemon's secret.
pub(crate) struct Key([u8; 32]);

impl Key {
    /// For a daemon that keeps nothing.
    pub(crate) fn fresh(random: &SharedRandom) -> Self {
        let mut bytes = [0; 32];
        bytes[..16].copy_from_slice(&random.wide().to_be_bytes());
        bytes[16..].copy_from_slice(&random.wide().to_be_bytes());
        Self(bytes)
    }

    /// 128 bits as 32 hex digits that depend on every part and on the key.
    fn derive(&self, parts: &[&str]) -> String {
        let mut inner = Sha256::new_with_prefix(self.0);
        for part in parts {
            // With its length, so that no two lists of parts are one text.
            inner.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
            inner.update(part.as_bytes());
        }
        // Hashed twice under the key: a plain keyed hash could be extended.
        let outer = Sha256::new_with_prefix(self.0).chain_update(inner.finalize());
        outer.finalize()[..16]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key((hidden))")
    }
}
