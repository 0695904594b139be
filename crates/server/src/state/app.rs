//! The state that all handlers share.

use std::sync::Arc;
use std::time::Duration;

use hmac::{Hmac, KeyInit, Mac};
use leasehold::clock::SharedClock;
use leasehold::policy::Class;
use leasehold::store::{
    AcquireRequest, RenewRequest, RenewResponse, SharedStore, StoreError, StoreErrorKind, bounded_call,
};
use leasehold::{Holder, InvalidInput, Locks, Name};
use leasehold_core::Token;
use leasehold_core::acquire::DriverIo;
use leasehold_core::rng::{RandomExt, SharedRandom};
use leasehold_wire::ErrorCode;
use sha2::{Digest, Sha256};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::api::health::Readiness;
use crate::auth::dashboard_code::DashboardCodes;
use crate::auth::{Principal, RateLimits, Right, Target, Tokens};
use crate::config::{Config, Quotas};
use crate::environment::ConnectionTimer;
use crate::problem::Refusal;
use crate::state::audit::Audit;
use crate::state::holds::Holds;
use crate::state::record::{ClientLeases, Recorder};
use crate::state::served_plane::ServedPlane;
use crate::state::shares::{Share, Shares};
use crate::state::state_db::{MAX_QUEUED_READS, StateDb};
use crate::state::token_on_name::TokenOnName;
use crate::state::tombstones::Tombstones;
use crate::state::undo::UndoQueue;
use crate::state::waiters::Waiters;

// One identity may use half of the wait slots, so that others find one too.
const WAIT_SLOT_PARTS: usize = 2;
// Half of the ordinary connections, for the same reason.
const CONNECTION_PARTS: usize = 2;
// Room for 140 of the largest bodies at once, however slowly they arrive.
const MAX_BODY_BYTES_IN_FLIGHT: usize = 64 * 1024 * 1024;
const BODY_BYTES_PARTS: usize = 8;
// Some of the largest pages at once, however slowly their readers take them.
const MAX_RESPONSE_BYTES_IN_FLIGHT: usize = 64 * 1024 * 1024;
const RESPONSE_BYTES_PARTS: usize = 4;
// Callers that disconnect leave their store calls behind, each until its timeout. Beyond this number
// a call ends with its caller.
const MAX_DETACHED_STORE_CALLS: usize = 16_384;
// One identity's queries leave most of the reader's time to others.
const HISTORY_READ_PARTS: usize = 4;
// A list scans the store and keeps what it finds in memory.
const MAX_LISTS: usize = 64;
const LIST_PARTS: usize = 4;

/// The state of one daemon.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) config: Config,
    /// The daemon's own lock client: policies, and the holds it keeps for clients.
    pub(crate) locks: Locks,
    pub(crate) clock: SharedClock,
    pub(crate) random: SharedRandom,
    pub(crate) timer: ConnectionTimer,
    /// `None`: callers are not identified, and have all rights.
    pub(crate) tokens: Option<Tokens>,
    pub(crate) dashboard_codes: DashboardCodes,
    pub(crate) limits: RateLimits,
    pub(crate) waiters: Waiters,
    pub(crate) tombstones: Tombstones,
    pub(crate) recorder: Arc<Recorder>,
    /// Leases that clients renew themselves, followed for events and metrics.
    pub(crate) client_leases: ClientLeases,
    /// Holds that the daemon renews for its clients.
    pub(crate) holds: Holds,
    pub(crate) audit: Audit,
    pub(crate) state_db: Arc<StateDb>,
    /// The control plane, if this daemon serves it.
    pub(crate) plane: Option<ServedPlane>,
    pub(crate) readiness: Readiness,
    /// Limits the requests that wait.
    wait_slots: Arc<Shares>,
    /// Limits the connections of each identity.
    pub(crate) identified_connections: Arc<Shares>,
    /// Limits the history queries that wait for their turn.
    pub(crate) history_reads: Arc<Shares>,
    /// Limits the lists of locks, jobs, runs and approvals that are being made.
    lists: Arc<Shares>,
    /// Limits the bytes of bodies that are being read.
    pub(crate) body_bytes: Arc<Shares>,
    /// Limits the bytes of large responses that their peers have not taken yet.
    pub(crate) response_bytes: Arc<Shares>,
    /// Limits the bytes of responses to changes for which `response_bytes` has no room.
    pub(crate) excess_response_bytes: Arc<Shares>,
    /// Undoes acquires whose callers disconnected.
    pub(crate) undo_queue: UndoQueue,
    /// Acquires and releases that run to their end even if their callers disconnect.
    pub(crate) store_calls: TaskTracker,
    /// Cancelled when the daemon begins to stop: waiting requests then return.
    pub(crate) stopping: CancellationToken,
    /// Derives tokens from client-chosen ids.
    token_key: TokenKey,
}

impl App {
    pub(crate) fn new(config: Config, locks: Locks, tokens: Option<Tokens>, setup: ServerSetup) -> Self {
        let ServerSetup { token_key: key, random, timer: timing, recorder, audit, state_db: ledger, plane } =
            setup;
        // Without identities all callers are one principal, and a share would only cost capacity.
        let parts = |parts| if config.identifies_callers() { parts } else { 1 };
        Self {
            client_leases: ClientLeases::new(Arc::clone(&recorder)),
            holds: Holds::new(Arc::clone(&ledger)),
            recorder,
            audit,
            state_db: ledger,
            plane,
            clock: SharedClock::clone(locks.clock()),
            random,
            timer: timing,
            limits: RateLimits::new(config.request_rate, config.renewal_rate),
            waiters: Waiters::default(),
            tombstones: Tombstones::default(),
            readiness: Readiness::default(),
            wait_slots: Shares::new(config.max_waiters(), parts(WAIT_SLOT_PARTS)),
            identified_connections: Shares::new(config.max_waiters(), parts(CONNECTION_PARTS)),
            history_reads: Shares::new(MAX_QUEUED_READS, parts(HISTORY_READ_PARTS)),
            lists: Shares::new(MAX_LISTS, parts(LIST_PARTS)),
            body_bytes: Shares::new(MAX_BODY_BYTES_IN_FLIGHT, parts(BODY_BYTES_PARTS)),
            response_bytes: Shares::new(MAX_RESPONSE_BYTES_IN_FLIGHT, parts(RESPONSE_BYTES_PARTS)),
            excess_response_bytes: Shares::new(MAX_RESPONSE_BYTES_IN_FLIGHT, parts(RESPONSE_BYTES_PARTS)),
            undo_queue: UndoQueue::new(),
            store_calls: TaskTracker::new(),
            stopping: CancellationToken::new(),
            tokens,
            dashboard_codes: DashboardCodes::default(),
            locks,
            token_key: key,
            config,
        }
    }

    pub(crate) fn store(&self) -> &SharedStore {
        self.locks.store()
    }

    /// The wall clock in microseconds, for timestamps shown to people.
    pub(crate) fn wall_micros(&self) -> i64 {
        jiff::Timestamp::try_from(self.clock.wall()).map_or(0, jiff::Timestamp::as_microsecond)
    }

    /// The class of this name, with overrides applied.
    pub(crate) fn class(&self, name: &str) -> Result<Arc<Class>, InvalidInput> {
        self.locks.policies().class(name, self.clock.now())
    }

    /// Runs one store call with a timeout, by the daemon's clock.
    pub(crate) async fn with_timeout<T>(
        &self,
        within: Duration,
        acquire: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        bounded_call(&*self.clock, within, acquire).await
    }

    /// Runs work to its end, also if the caller disconnects meanwhile.
    ///
    /// # Errors
    /// The daemon stops before the end.
    pub(crate) async fn run_to_end<T: Send + 'static>(
        self: Arc<Self>,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Refusal> {
        if self.store_calls.len() >= MAX_DETACHED_STORE_CALLS {
            return Ok(work.await);
        }
        match self.store_calls.spawn(work).await {
            Ok(done) => Ok(done),
            // The middleware answers a panic of a handler, and this is one.
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => Err(Refusal::stopping()),
        }
    }

    /// What core's drivers need: the store, time and randomness.
    pub(crate) fn driver_io(&self) -> DriverIo {
        DriverIo::new(Arc::clone(self.store()), Arc::clone(&self.clock), Arc::clone(&self.random))
    }

    /// Renews a batch. Each result carries the reason if an operator asks that holder to release.
    pub(crate) async fn renew(
        &self,
        who: &Principal,
        batch: &[RenewRequest],
        within: Duration,
    ) -> Vec<Result<(RenewResponse, Option<String>), StoreError>> {
        let sent = self.clock.now();
        let call = async { Ok(self.store().renew(batch, within).await) };
        let mut results = self.with_timeout(within, call).await.unwrap_or_else(|error| {
            let unanswered = || Err(StoreError::unknown(error.kind, error.message()));
            batch.iter().map(|_| unanswered()).collect()
        });
        // A store that returns too few results leaves the rest unknown.
        results.resize_with(batch.len(), || {
            Err(StoreError::unknown(StoreErrorKind::Corrupt, "the store did not answer this renewal"))
        });
        let now = self.clock.now();
        let told = batch.iter().zip(results).map(|(renewal, result)| {
            let asked = self.client_leases.renewed(who.id(), renewal, &result, now.since(sent), now);
            result.map(|renewed| (renewed, asked))
        });
        told.collect()
    }

    /// The caller's limit of one quota.
    pub(crate) fn quota(&self, who: &Principal, quota: impl Fn(&Quotas) -> usize) -> usize {
        if who.may(Right::Admin, &Target::Daemon) { usize::MAX } else { quota(&self.config.quotas) }
    }

    /// Refuses an acquire of a caller that has as many locks or waiters as it may have.
    pub(crate) fn check_acquire_quotas(
        &self,
        who: &Principal,
        request: &AcquireRequest,
        waits: bool,
    ) -> Result<(), Refusal> {
        let key = TokenOnName::new(request.names.first(), &request.token);
        self.client_leases.check_quota(who.id(), &key, self.quota(who, |quotas| quotas.locks))?;
        if waits || request.queue.is_some() {
            let quota = self.quota(who, |quotas| quotas.waiters);
            self.waiters.check_quota(who.id(), &key, quota, self.clock.now())?;
        }
        Ok(())
    }

    /// Takes a wait slot of the caller's share. None on a reserved connection: silent clients may
    /// have taken all others, and renewals must still get through.
    pub(crate) fn take_wait_slot(&self, who: &Principal) -> Result<Share, Refusal> {
        let place = who.may_wait().then(|| self.wait_slots.take(who.id())).flatten();
        place.ok_or_else(too_many_waiters)
    }

    /// Takes one of the caller's share of lists.
    pub(crate) fn take_list_share(&self, who: &Principal) -> Result<Share, Refusal> {
        self.lists.take(who.id()).ok_or_else(|| {
            let why = "too many lists are being made at this moment, or too many for you; retry later";
            Refusal::new(ErrorCode::Overloaded, why).retry_after(Duration::from_secs(1))
        })
    }

    /// The token that a caller's id stands for on this name. It is stable across restarts, and
    /// cannot be computed without the daemon's key.
    pub(crate) fn derive_token(
        &self,
        who: &Principal,
        name: &Name,
        id: &str,
        holder: &Holder,
        class: &str,
    ) -> Result<Token, Refusal> {
        let random = self.token_key.derive(&[who.id(), name.as_str(), id]);
        Ok(Token::parse(&format!("{holder}|{class}|{random}"))?)
    }

    /// A new random token.
    pub(crate) fn fresh_token(&self, holder: &Holder, class: &str) -> Token {
        Token::fresh(holder, class, &*self.random)
    }
}

fn too_many_waiters() -> Refusal {
    Refusal::new(
        ErrorCode::TooManyWaiters,
        "too many requests wait in this daemon already, or too many of yours, or its last connections are in use, over \
         which nothing waits; retry later",
    )
    .retry_after(Duration::from_secs(1))
    // Close the connection: another client may need it.
    .close()
}

/// What a daemon has opened before it is bound to an address.
pub(crate) struct ServerSetup {
    pub(crate) token_key: TokenKey,
    pub(crate) random: SharedRandom,
    pub(crate) timer: ConnectionTimer,
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) audit: Audit,
    pub(crate) state_db: Arc<StateDb>,
    pub(crate) plane: Option<ServedPlane>,
}

/// The secret from which tokens are derived.
pub(crate) enum TokenKey {
    Hmac(Hmac<Sha256>),
    /// The key of a database that an earlier version made. It keeps that version's derivation: with
    /// another one, the daemon would lose every kept hold at the upgrade.
    NestedSha256([u8; 32]),
}

impl TokenKey {
    /// Reads the key from the daemon's database, or creates and stores one. Ids stand for the same
    /// tokens after a restart and after an upgrade.
    pub(crate) async fn load_or_create(ledger: &StateDb, random: &SharedRandom) -> Result<Self, String> {
        let fresh = [random.wide().to_be_bytes(), random.wide().to_be_bytes()].concat();
        let (key, is_old): ([u8; 32], bool) = ledger
            .write_confirmed(move |db| {
                // Insert or ignore, then read: an existing key wins over the fresh one, an old one over both.
                db.execute(
                    "INSERT OR IGNORE INTO token_key (id, key) VALUES (1, ?1)",
                    rusqlite::params![fresh],
                )?;
                let keys = "SELECT key, 1 AS old FROM secret UNION ALL SELECT key, 0 FROM token_key ORDER BY old DESC";
                db.query_row(keys, [], |row| Ok((row.get(0)?, row.get(1)?)))
            })
            .await?;
        if is_old { Ok(Self::NestedSha256(key)) } else { Self::hmac(&key) }
    }

    fn hmac(key: &[u8; 32]) -> Result<Self, String> {
        let mac = Hmac::new_from_slice(key).map_err(|error| error.to_string())?;
        Ok(Self::Hmac(mac))
    }

    /// A 128-bit MAC of the parts as 32 hex digits.
    fn derive(&self, parts: &[&str]) -> String {
        let mut message = Vec::new();
        for part in parts {
            // Prefix each part with its length, so that no two lists of parts have the same
            // encoding.
            message.extend(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
            message.extend(part.as_bytes());
        }
        let digest: [u8; 32] = match self {
            Self::Hmac(mac) => mac.clone().chain_update(&message).finalize().into_bytes().into(),
            Self::NestedSha256(key) => {
                let inner = Sha256::new_with_prefix(key).chain_update(&message).finalize();
                Sha256::new_with_prefix(key).chain_update(inner).finalize().into()
            }
        };
        digest[..16].iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl std::fmt::Debug for TokenKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TokenKey((hidden))")
    }
}

#[cfg(test)]
mod tests {
    use super::{StateDb, TokenKey};

    /// The expected text is Python's `sha256(key + sha256(key + message).digest()).hexdigest()[:32]`.
    #[test]
    fn keys_of_earlier_versions_keep_their_derivation() {
        let key = TokenKey::NestedSha256(std::array::from_fn(|i| i as u8));
        assert_eq!(key.derive(&["w1", "job:1", "hold h1 a"]), "bee0ded7d10272a3d7507dd97ae8900d");
    }

    #[tokio::test]
    async fn a_key_of_an_earlier_version_is_found_and_a_new_one_is_hmac() {
        let random = leasehold_core::rng::SeededRandom::shared(7);
        let db = StateDb::open(None).unwrap();
        assert!(matches!(TokenKey::load_or_create(&db, &random).await, Ok(TokenKey::Hmac(_))));
        let first = TokenKey::load_or_create(&db, &random).await.unwrap().derive(&["a"]);
        assert_eq!(TokenKey::load_or_create(&db, &random).await.unwrap().derive(&["a"]), first);
        let old = |db: &rusqlite::Connection| {
            db.execute("INSERT INTO secret (id, key) VALUES (1, ?1)", rusqlite::params![[9_u8; 32]])
        };
        db.write_confirmed(old).await.unwrap();
        let found = TokenKey::load_or_create(&db, &random).await;
        assert!(matches!(found, Ok(TokenKey::NestedSha256(key)) if key == [9; 32]));
    }

    /// Another value would end every kept hold at the next restart: its token is derived again.
    /// The expected text is Python's `hmac.new(key, message, "sha256").hexdigest()[:32]`.
    #[test]
    fn derived_tokens_are_hmac_sha256() {
        let key = TokenKey::hmac(&std::array::from_fn(|i| i as u8)).unwrap();
        assert_eq!(key.derive(&["w1", "job:1", "hold h1 a"]), "6f80d82a49d4408f7ab5e20e82b86a97");
        // The same text, cut into parts elsewhere.
        assert_ne!(key.derive(&["w1j", "ob:1", "hold h1 a"]), key.derive(&["w1", "job:1", "hold h1 a"]));
        assert_ne!(key.derive(&[]), TokenKey::hmac(&[7; 32]).unwrap().derive(&[]));
    }
}
