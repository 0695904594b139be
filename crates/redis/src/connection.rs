//! Connections: opened on first use, replaced when broken, and never retried implicitly.
//!
//! The client library's reconnect and retry are not used: a command sent twice runs twice (hazard
//! R6). A call without a response in time is *unknown*. Its connection takes no new calls, since a
//! black-holed TCP connection would swallow those too. Calls already in flight on it finish there.
//!
//! `SO_LINGER` is 0: an abandoned connection is reset, and bytes still in the send
//! buffer are discarded. The server may still execute what its machine has received
//! (hazard R3), so unknown stays unknown.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::clock::{Clock, Moment, run_until};
use leasehold_core::store::{StoreError, StoreErrorKind};
use redis::aio::{AsyncPushSender, MultiplexedConnection};
use redis::io::tcp::{TcpSettings, socket2};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, IntoConnectionInfo, Pipeline, ProtocolVersion,
    PushInfo, PushKind, RedisConnectionInfo, TlsCertificates, Value,
};

use crate::error;
use crate::options::RedisOptions;
use crate::slot::SLOT_COUNT;

/// A dead peer is noticed after about three of these, even on an idle connection.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);

/// The deadline of one call, on the caller's clock.
pub(crate) struct CallDeadline<'a> {
    clock: &'a dyn Clock,
    start: Moment,
    end: Moment,
}

impl<'a> CallDeadline<'a> {
    pub(crate) fn new(clock: &'a dyn Clock, within: Duration) -> Self {
        let start = clock.now();
        Self { clock, start, end: start + within }
    }

    /// The current time on the caller's clock.
    pub(crate) fn now(&self) -> Moment {
        self.clock.now()
    }

    /// Time until the deadline.
    pub(crate) fn remaining(&self) -> Duration {
        self.end.since(self.clock.now())
    }

    /// A deadline after half of the remaining time; the other half is left for a fallback.
    pub(crate) fn half_remaining(&self) -> Self {
        Self { clock: self.clock, start: self.start, end: self.clock.now() + self.remaining() / 2 }
    }

    pub(crate) async fn run<F: Future>(&self, work: F) -> Option<F::Output> {
        run_until(self.clock, self.end, work).await
    }

    /// Whether nine tenths of the time have passed. A caller that drops its call now has timed out,
    /// rather than changed its mind.
    fn is_nearly_over(&self) -> bool {
        let whole = self.end.since(self.start);
        self.clock.now().since(self.start) >= whole - whole / 10
    }
}

/// One open connection.
pub(crate) struct Connection {
    connection: MultiplexedConnection,
    /// Set by the library's driver when the peer closes, so that no call is
    /// sent on a dead connection.
    dead: Arc<AtomicBool>,
    /// One bit per slot: whether its fence counter was compared with the
    /// server's clock on this connection.
    fence_checked: Vec<AtomicU64>,
}

impl Connection {
    pub(crate) fn is_fence_checked(&self, slot: u16) -> bool {
        self.fence_checked_bit(slot).is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
    }

    pub(crate) fn mark_fence_checked(&self, slot: u16) {
        if let Some((word, bit)) = self.fence_checked_bit(slot) {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    fn fence_checked_bit(&self, slot: u16) -> Option<(&AtomicU64, u64)> {
        let word = self.fence_checked.get(usize::from(slot / 64))?;
        Some((word, 1 << (slot % 64)))
    }
}

#[derive(Debug)]
pub(crate) struct Connector {
    pub(crate) options: RedisOptions,
}

impl Connector {
    /// Connects, authenticates, sets the client name and refuses replicas.
    pub(crate) async fn connect_to_primary(
        &self,
        purpose: &str,
        push: impl AsyncPushSender,
    ) -> Result<MultiplexedConnection, StoreError> {
        let place = self.options.describe();
        let mut connection = self.connect_any_role(push).await?;
        let mut hello = Pipeline::new();
        hello.cmd("CLIENT").arg("SETNAME").arg(format!("leasehold-{purpose}"));
        hello.cmd("INFO").arg("replication");
        let answers = connection
            .send_packed_commands(&hello, 0, 2)
            .await
            .map_err(|err| error::from_connect(err, &place))?;
        // Neither reply is essential, so a user without these rights continues. Each call
        // reports its own missing rights.
        let role = answers.into_iter().nth(1).and_then(|answer| as_text(&answer).map(str::to_owned));
        if role.is_some_and(|info| info.contains("role:slave")) {
            // A replica returns stale data (hazard R20): not even *busy* could be trusted.
            return Err(StoreError::not_done(
                StoreErrorKind::ReadOnly,
                format!("{place} is a replica; connect to the primary"),
            ));
        }
        Ok(connection)
    }

    /// Connects and authenticates, whatever the server's role.
    pub(crate) async fn connect_any_role(
        &self,
        push: impl AsyncPushSender,
    ) -> Result<MultiplexedConnection, StoreError> {
        let config = AsyncConnectionConfig::new()
            // No timeouts of the library: `CallDeadline` covers connecting and
            // responses on the injected clock.
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_push_sender(push);
        self.client()?
            .get_multiplexed_async_connection_with_config(&config)
            .await
            .map_err(|err| error::from_connect(err, &self.options.describe()))
    }

    fn client(&self) -> Result<Client, StoreError> {
        let options = &self.options;
        let mut server = RedisConnectionInfo::default()
            .set_db(options.db)
            // RESP3 reports a closed connection by a push message, so a dead
            // one is noticed without sending.
            .set_protocol(ProtocolVersion::RESP3)
            .set_skip_set_lib_name();
        if let Some(user) = &options.user {
            server = server.set_username(user);
        }
        if let Some(password) = options.password()? {
            server = server.set_password(password);
        }
        let (host, port) = (options.host.clone(), options.port);
        let address = if options.tls {
            ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None }
        } else {
            ConnectionAddr::Tcp(host, port)
        };
        let keepalive =
            socket2::TcpKeepalive::new().with_time(KEEPALIVE_INTERVAL).with_interval(KEEPALIVE_INTERVAL);
        // Nagle's algorithm stays on: hundreds of tasks share a connection, and it
        // gathers their small commands while a response is on its way. A command on an
        // idle connection is sent at once.
        let tcp = TcpSettings::default().set_linger_time(Duration::ZERO).set_keepalive(keepalive);
        let place = options.describe();
        let refuse = |err| error::from_connect(err, &place);
        let info =
            address.into_connection_info().map_err(refuse)?.set_tcp_settings(tcp).set_redis_settings(server);
        if options.tls {
            // Fails if the program has already chosen a provider, which is fine.
            let _ = rustls::crypto::ring::default_provider().install_default();
            let root_cert = options.ca_certificates()?;
            let trust = TlsCertificates { client_tls: None, root_cert };
            return Client::build_with_tls(info, trust).map_err(refuse);
        }
        Client::open(info).map_err(refuse)
    }
}

/// A slot for one connection with one purpose. Reconnects on demand.
pub(crate) struct ConnectionSlot {
    connector: Arc<Connector>,
    purpose: &'static str,
    current: Mutex<Option<Arc<Connection>>>,
    /// Held while connecting, so that concurrent callers open one connection.
    connecting: tokio::sync::Mutex<()>,
}

impl ConnectionSlot {
    pub(crate) fn new(connector: &Arc<Connector>, purpose: &'static str) -> Self {
        Self {
            connector: Arc::clone(connector),
            purpose,
            current: Mutex::new(None),
            connecting: tokio::sync::Mutex::new(()),
        }
    }

    /// The connection, opened now if there is none. No command has been sent
    /// yet, so every error is definite.
    pub(crate) async fn get_or_connect(
        &self,
        limit: &CallDeadline<'_>,
    ) -> Result<Arc<Connection>, StoreError> {
        if let Some(connection) = self.live_connection() {
            return Ok(connection);
        }
        let dialled = limit.run(async {
            let _turn = self.connecting.lock().await;
            match self.live_connection() {
                // Another caller connected while this one waited for its turn.
                Some(connection) => Ok(connection),
                None => self.connect().await,
            }
        });
        dialled.await.unwrap_or_else(|| {
            Err(StoreError::not_done(
                StoreErrorKind::Unreachable,
                format!(
                    "no connection to {} in the time given; is it running, and is the way open?",
                    self.connector.options.describe()
                ),
            ))
        })
    }

    async fn connect(&self) -> Result<Arc<Connection>, StoreError> {
        let dead = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&dead);
        let watch = move |info: PushInfo| {
            if info.kind == PushKind::Disconnection {
                flag.store(true, Ordering::Release);
            }
            Ok::<(), redis::aio::SendError>(())
        };
        let connection = self.connector.connect_to_primary(self.purpose, watch).await?;
        let words = usize::from(SLOT_COUNT / 64);
        let connection = Arc::new(Connection {
            connection,
            dead,
            fence_checked: (0..words).map(|_| AtomicU64::new(0)).collect(),
        });
        *self.lock_current() = Some(Arc::clone(&connection));
        Ok(connection)
    }

    /// Sends one command and waits for its response, which may be a server error.
    pub(crate) async fn send(
        &self,
        connection: &Connection,
        cmd: &Cmd,
        limit: &CallDeadline<'_>,
    ) -> Result<Value, StoreError> {
        let mut multiplexed = connection.connection.clone();
        let answer = self.await_response(connection, limit, multiplexed.send_packed_command(cmd)).await?;
        if is_demoted(&answer) {
            self.abandon(connection);
        }
        Ok(answer)
    }

    /// Sends a pipeline of commands and waits for all responses.
    pub(crate) async fn send_batch(
        &self,
        connection: &Connection,
        pipe: &Pipeline,
        limit: &CallDeadline<'_>,
    ) -> Result<Vec<Value>, StoreError> {
        let mut multiplexed = connection.connection.clone();
        let sending = multiplexed.send_packed_commands(pipe, 0, pipe.len());
        let answers = self.await_response(connection, limit, sending).await?;
        if answers.iter().any(is_demoted) {
            self.abandon(connection);
        }
        // Responses can no longer be matched to their commands.
        if answers.len() != pipe.len() {
            self.abandon(connection);
            return Err(error::unexpected_response("a batch"));
        }
        Ok(answers)
    }

    async fn await_response<T>(
        &self,
        connection: &Connection,
        limit: &CallDeadline<'_>,
        sending: impl Future<Output = redis::RedisResult<T>>,
    ) -> Result<T, StoreError> {
        let mut flight = CallInFlight { slot: self, connection, deadline: limit, finished: false };
        let answer = limit.run(sending).await;
        // From here on the outcome is known, so dropping the guard must not abandon the connection.
        flight.finished = true;
        match answer {
            Some(Ok(value)) => Ok(value),
            Some(Err(err)) => {
                self.abandon(connection);
                Err(error::from_transport(err))
            }
            None => {
                self.abandon(connection);
                Err(StoreError::unknown(
                    StoreErrorKind::TimedOut,
                    format!("no answer from {} in the time given", self.connector.options.describe()),
                ))
            }
        }
    }

    /// Takes the connection out of use. It closes when the last call on it has ended.
    fn abandon(&self, connection: &Connection) {
        connection.dead.store(true, Ordering::Release);
        drop(self.live_connection());
    }

    fn live_connection(&self) -> Option<Arc<Connection>> {
        let mut slot = self.lock_current();
        // Dropping the last handle of a dead connection closes its socket.
        slot.take_if(|connection| connection.dead.load(Ordering::Acquire));
        slot.as_ref().map(Arc::clone)
    }

    fn lock_current(&self) -> MutexGuard<'_, Option<Arc<Connection>>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for ConnectionSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionSlot")
            .field("purpose", &self.purpose)
            .field("connected", &self.live_connection().is_some())
            .finish_non_exhaustive()
    }
}

/// A call in flight. Callers may also enforce the time limit by dropping the call. That must
/// abandon the connection as the deadline does, or a black-holed connection would stay in use.
struct CallInFlight<'a, 'b> {
    slot: &'a ConnectionSlot,
    connection: &'a Connection,
    deadline: &'a CallDeadline<'b>,
    finished: bool,
}

impl Drop for CallInFlight<'_, '_> {
    fn drop(&mut self) {
        if !self.finished && self.deadline.is_nearly_over() {
            self.slot.abandon(self.connection);
        }
    }
}

/// Whether the server has become a replica. A new connection may reach the new primary.
/// If this server becomes primary again, its fence counters must be checked again,
/// which a new connection does.
fn is_demoted(answer: &Value) -> bool {
    matches!(answer, Value::ServerError(err) if err.code() == "READONLY")
}

/// The text of a reply, in any of the protocol's string types.
pub(crate) fn as_text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => Some(text),
        _ => None,
    }
}
