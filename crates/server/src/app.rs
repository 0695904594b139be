//! What all handlers share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold::clock::{SharedClock, until};
use leasehold::leasehold_core::Token;
use leasehold::leasehold_core::rng::{RandomExt, SharedRandom};
use leasehold::policy::Class;
use leasehold::store::{Answer, Cause, Failure, Renewal, Renewed, SharedStore};
use leasehold::{Holder, Invalid, Locks, Name};
use sha2::{Digest, Sha256};
use tokio_util::sync::CancellationToken;

use crate::audit::Audit;
use crate::auth::{Limits, Principal, Tokens};
use crate::config::Config;
use crate::holds::Holds;
use crate::ledger::Ledger;
use crate::locks::Leavings;
use crate::parts::Timing;
use crate::places::{Place, Places};
use crate::plane::Served;
use crate::problem::Refusal;
use crate::record::{Kept, Recorder};
use crate::waiters::Waiters;

/// Everything that belongs to one daemon.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) config: Config,
    /// The daemon's own client: policies, and the holds it keeps for others.
    pub(crate) locks: Locks,
    pub(crate) clock: SharedClock,
    pub(crate) random: SharedRandom,
    /// The timer of connections.
    pub(crate) timing: Timing,
    /// None: everybody on this machine may do everything.
    pub(crate) tokens: Option<Tokens>,
    pub(crate) limits: Limits,
    pub(crate) waiters: Waiters,
    pub(crate) recorder: Arc<Recorder>,
    /// Leases that clients keep.
    pub(crate) kept: Kept,
    /// Holds that the daemon keeps.
    pub(crate) holds: Holds,
    pub(crate) audit: Audit,
    pub(crate) ledger: Arc<Ledger>,
    /// The control plane, if it is served.
    pub(crate) plane: Option<Served>,
    /// The greatest fence that the store has shown.
    seen: AtomicU64,
    /// For requests that wait.
    places: Arc<Places>,
    /// What callers have left behind.
    pub(crate) leavings: Leavings,
    /// Fires when the daemon begins to stop: those who wait are told.
    pub(crate) stopping: CancellationToken,
    /// Makes tokens from ids.
    key: Key,
}

impl App {
    pub(crate) fn new(config: Config, locks: Locks, tokens: Option<Tokens>, desk: Desk) -> Self {
        let Desk {
            key,
            random,
            timing,
            recorder,
            audit,
            ledger,
            plane,
        } = desk;
        Self {
            kept: Kept::new(Arc::clone(&recorder)),
            holds: Holds::new(Arc::clone(&ledger)),
            recorder,
            audit,
            ledger,
            plane,
            clock: SharedClock::clone(locks.clock()),
            random,
            timing,
            limits: Limits::new(config.asking, config.keeping),
            waiters: Waiters::default(),
            seen: AtomicU64::new(0),
            places: Places::new(config.waiters(), config.tokens.is_some() || config.mutual()),
            leavings: Leavings::new(),
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

    /// The wall clock in microseconds, for people and files.
    pub(crate) fn wall_micros(&self) -> i64 {
        jiff::Timestamp::try_from(self.clock.wall()).map_or(0, jiff::Timestamp::as_microsecond)
    }

    /// The greatest fence that the store has shown here, granted or someone else's.
    pub(crate) fn seen(&self) -> u64 {
        self.seen.load(Ordering::Relaxed)
    }

    /// What the store has shown.
    pub(crate) fn saw(&self, answer: &Result<Answer, Failure>) {
        let fence = match answer {
            Ok(Answer::Granted(grant)) => Some(grant.fence),
            Ok(Answer::Busy(busy)) => busy.fence,
            _ => None,
        };
        if let Some(fence) = fence {
            self.seen.fetch_max(fence.get(), Ordering::Relaxed);
        }
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

    /// Renewals, one result each, and why the holder is asked to let go, if it is.
    pub(crate) async fn renew(
        &self,
        batch: &[Renewal],
        within: Duration,
    ) -> Vec<Result<(Renewed, Option<String>), Failure>> {
        let (asking, sent) = (self.store().renew(batch, within), self.clock.now());
        let mut results = match until(&*self.clock, sent + within, asking).await {
            Some(results) => results,
            None => batch.iter().map(|_| Err(silent(within))).collect(),
        };
        // A store that answers fewer than it was asked leaves the rest unknown.
        results.resize_with(batch.len(), || {
            Err(Failure::unknown(
                Cause::Corrupt,
                "the store did not answer this renewal",
            ))
        });
        let now = self.clock.now();
        let told = batch.iter().zip(results).map(|(renewal, result)| {
            let asked = self.kept.renewed(renewal, &result, now.since(sent), now);
            result.map(|renewed| (renewed, asked))
        });
        told.collect()
    }

    /// A place among those who wait, of this caller's share. None over the last connections: those who say nothing can have
    /// taken the others, and whoever must renew finds one all the same.
    pub(crate) fn wait(&self, who: &Principal) -> Result<Place, Refusal> {
        let place = who.may_wait().then(|| self.places.take(who.id())).flatten();
        place.ok_or_else(crowded)
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

fn crowded() -> Refusal {
    Refusal::new(
        http::StatusCode::TOO_MANY_REQUESTS,
        "too_many_waiters",
        "too many requests wait in this daemon already, or too many of yours, or its last connections are in use, over \
         which nothing waits; come again later",
    )
    .retry_after(Duration::from_secs(1))
    // Its connection is one that somebody else may need.
    .close()
}

fn silent(within: Duration) -> Failure {
    Failure::unknown(Cause::TimedOut, format!("no answer within {within:?}"))
}

/// What a daemon works with before it is bound.
pub(crate) struct Desk {
    pub(crate) key: Key,
    pub(crate) random: SharedRandom,
    pub(crate) timing: Timing,
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) audit: Audit,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) plane: Option<Served>,
}

/// The daemon's secret.
pub(crate) struct Key([u8; 32]);

impl Key {
    /// The key in the daemon's file, or one that is made and kept there: ids stand for the same tokens after a restart.
    pub(crate) async fn kept(ledger: &Ledger, random: &SharedRandom) -> Result<Self, String> {
        let fresh = Self::fresh(random);
        ledger
            .ask(move |db| {
                db.execute(
                    "INSERT OR IGNORE INTO secret (id, key) VALUES (1, ?1)",
                    rusqlite::params![fresh.0],
                )?;
                db.query_row("SELECT key FROM secret", [], |row| row.get(0))
            })
            .await
            .map(Self)
    }

    fn fresh(random: &SharedRandom) -> Self {
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
