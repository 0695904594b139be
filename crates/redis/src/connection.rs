//! Connections: made when first needed, replaced when broken, never retried on behind the caller's back.
//!
//! The client library's reconnecting and retrying is not used: a command sent twice is a second command (hazard
//! R6). A call that gets no answer in time is *unknown*, and the connection it went out on is not used for anything
//! new: a black-holed TCP connection would swallow every later call too. Calls already under way on it finish there.
//!
//! `SO_LINGER` is 0: what we give up on is reset, and what has not left this machine yet never will. What the server's
//! machine has received may still be executed (hazard R3), so unknown stays unknown.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::clock::{Clock, Moment, until};
use leasehold_core::store::{Cause, Failure};
use redis::aio::{AsyncPushSender, MultiplexedConnection};
use redis::io::tcp::{TcpSettings, socket2};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, IntoConnectionInfo, Pipeline, ProtocolVersion,
    PushInfo, PushKind, RedisConnectionInfo, TlsCertificates, Value,
};

use crate::error;
use crate::options::RedisOptions;
use crate::slot::SLOTS;

/// A peer that vanished without a word is noticed after about three of these, even on an idle connection.
const KEEPALIVE: Duration = Duration::from_secs(10);

/// The time one call may take, on the caller's clock.
pub(crate) struct Limit<'a> {
    clock: &'a dyn Clock,
    start: Moment,
    end: Moment,
}

impl<'a> Limit<'a> {
    pub(crate) fn new(clock: &'a dyn Clock, within: Duration) -> Self {
        let start = clock.now();
        Self {
            clock,
            start,
            end: start + within,
        }
    }

    /// The moment now, on the caller's clock.
    pub(crate) fn now(&self) -> Moment {
        self.clock.now()
    }

    /// What is left of it.
    pub(crate) fn left(&self) -> Duration {
        self.end.since(self.clock.now())
    }

    /// The same start, half the time that is left: leaves the other half to act on what did not come.
    pub(crate) fn half(&self) -> Self {
        Self {
            clock: self.clock,
            start: self.start,
            end: self.clock.now() + self.left() / 2,
        }
    }

    pub(crate) async fn run<F: Future>(&self, work: F) -> Option<F::Output> {
        until(self.clock, self.end, work).await
    }

    /// Nine tenths have passed: a caller who stops now has not changed its mind, it has run out of time.
    fn nearly_over(&self) -> bool {
        let whole = self.end.since(self.start);
        self.clock.now().since(self.start) >= whole - whole / 10
    }
}

/// One live connection.
pub(crate) struct Wire {
    connection: MultiplexedConnection,
    /// Set by the library's driver when the peer closed, so that no call is sent into the void.
    dead: Arc<AtomicBool>,
    /// One bit per slot: its fence counter was compared with the server's clock on this connection.
    checked: Vec<AtomicU64>,
}

impl Wire {
    pub(crate) fn checked(&self, slot: u16) -> bool {
        self.word(slot)
            .is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
    }

    pub(crate) fn mark_checked(&self, slot: u16) {
        if let Some((word, bit)) = self.word(slot) {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    fn word(&self, slot: u16) -> Option<(&AtomicU64, u64)> {
        let word = self.checked.get(usize::from(slot / 64))?;
        Some((word, 1 << (slot % 64)))
    }
}

/// Makes connections.
#[derive(Debug)]
pub(crate) struct Dialer {
    pub(crate) options: RedisOptions,
}

impl Dialer {
    /// Connects, authenticates, names itself and refuses replicas.
    pub(crate) async fn dial(
        &self,
        purpose: &str,
        push: impl AsyncPushSender,
    ) -> Result<MultiplexedConnection, Failure> {
        let place = self.options.describe();
        let mut connection = self.connect(push).await?;
        let mut hello = Pipeline::new();
        hello
            .cmd("CLIENT")
            .arg("SETNAME")
            .arg(format!("leasehold-{purpose}"));
        hello.cmd("INFO").arg("replication");
        let answers = connection
            .send_packed_commands(&hello, 0, 2)
            .await
            .map_err(|err| error::from_connect(err, &place))?;
        // Neither is essential, so a user without these rights may go on; what matters comes with each call.
        let role = answers
            .into_iter()
            .nth(1)
            .and_then(|answer| text(&answer).map(str::to_owned));
        if role.is_some_and(|info| info.contains("role:slave")) {
            // A replica answers reads with the past (hazard R20): not even *busy* could be believed.
            return Err(Failure::not_done(
                Cause::ReadOnly,
                format!("{place} is a replica; connect to the primary"),
            ));
        }
        Ok(connection)
    }

    /// Connects and authenticates, whatever the server is.
    pub(crate) async fn connect(&self, push: impl AsyncPushSender) -> Result<MultiplexedConnection, Failure> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_push_sender(push);
        self.client()?
            .get_multiplexed_async_connection_with_config(&config)
            .await
            .map_err(|err| error::from_connect(err, &self.options.describe()))
    }

    fn client(&self) -> Result<Client, Failure> {
        let options = &self.options;
        let mut server = RedisConnectionInfo::default()
            .set_db(options.db)
            // RESP3 tells us that a connection has died without our having to send something into it.
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
            ConnectionAddr::TcpTls {
                host,
                port,
                insecure: false,
                tls_params: None,
            }
        } else {
            ConnectionAddr::Tcp(host, port)
        };
        let keepalive = socket2::TcpKeepalive::new()
            .with_time(KEEPALIVE)
            .with_interval(KEEPALIVE);
        // Nagle's algorithm stays on: hundreds of tasks share a connection, and it gathers their small commands while
        // an answer is on its way. A command on a silent connection goes out at once.
        let tcp = TcpSettings::default()
            .set_linger_time(Duration::ZERO)
            .set_keepalive(keepalive);
        let place = options.describe();
        let refuse = |err| error::from_connect(err, &place);
        let info = address
            .into_connection_info()
            .map_err(refuse)?
            .set_tcp_settings(tcp)
            .set_redis_settings(server);
        if options.tls {
            // Only if the program has not chosen a provider itself.
            let _ = rustls::crypto::ring::default_provider().install_default();
            let root_cert = options.authorities()?;
            let trust = TlsCertificates {
                client_tls: None,
                root_cert,
            };
            return Client::build_with_tls(info, trust).map_err(refuse);
        }
        Client::open(info).map_err(refuse)
    }
}

/// A place for one connection, for one purpose.
pub(crate) struct Line {
    dialer: Arc<Dialer>,
    purpose: &'static str,
    current: Mutex<Option<Arc<Wire>>>,
    /// Held while connecting, so that a crowd of callers makes one connection.
    dialing: tokio::sync::Mutex<()>,
}

impl Line {
    pub(crate) fn new(dialer: &Arc<Dialer>, purpose: &'static str) -> Self {
        Self {
            dialer: Arc::clone(dialer),
            purpose,
            current: Mutex::new(None),
            dialing: tokio::sync::Mutex::new(()),
        }
    }

    /// The connection, made now if there is none. Nothing was asked yet, so every failure is definite.
    pub(crate) async fn wire(&self, limit: &Limit<'_>) -> Result<Arc<Wire>, Failure> {
        if let Some(wire) = self.live() {
            return Ok(wire);
        }
        let dialled = limit.run(async {
            let _turn = self.dialing.lock().await;
            match self.live() {
                Some(wire) => Ok(wire),
                None => self.dial().await,
            }
        });
        dialled.await.unwrap_or_else(|| {
            Err(Failure::not_done(
                Cause::Unreachable,
                format!(
                    "no connection to {} in the time given; is it running, and is the way open?",
                    self.dialer.options.describe()
                ),
            ))
        })
    }

    async fn dial(&self) -> Result<Arc<Wire>, Failure> {
        let dead = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&dead);
        let watch = move |info: PushInfo| {
            if info.kind == PushKind::Disconnection {
                flag.store(true, Ordering::Release);
            }
            Ok::<(), redis::aio::SendError>(())
        };
        let connection = self.dialer.dial(self.purpose, watch).await?;
        let words = usize::from(SLOTS / 64);
        let wire = Arc::new(Wire {
            connection,
            dead,
            checked: (0..words).map(|_| AtomicU64::new(0)).collect(),
        });
        *self.slot() = Some(Arc::clone(&wire));
        Ok(wire)
    }

    /// Sends one command and waits for its answer, which may be a server error.
    pub(crate) async fn send(&self, wire: &Wire, cmd: &Cmd, limit: &Limit<'_>) -> Result<Value, Failure> {
        let mut connection = wire.connection.clone();
        let answer = self
            .flight(wire, limit, connection.send_packed_command(cmd))
            .await?;
        if demoted(&answer) {
            self.abandon(wire);
        }
        Ok(answer)
    }

    /// Sends many commands at once and waits for all their answers.
    pub(crate) async fn send_batch(
        &self,
        wire: &Wire,
        pipe: &Pipeline,
        limit: &Limit<'_>,
    ) -> Result<Vec<Value>, Failure> {
        let mut connection = wire.connection.clone();
        let sending = connection.send_packed_commands(pipe, 0, pipe.len());
        let answers = self.flight(wire, limit, sending).await?;
        if answers.iter().any(demoted) {
            self.abandon(wire);
        }
        if answers.len() != pipe.len() {
            self.abandon(wire);
            return Err(error::nonsense("a batch"));
        }
        Ok(answers)
    }

    async fn flight<T>(
        &self,
        wire: &Wire,
        limit: &Limit<'_>,
        sending: impl Future<Output = redis::RedisResult<T>>,
    ) -> Result<T, Failure> {
        let mut flight = Flight {
            line: self,
            wire,
            limit,
            landed: false,
        };
        let answer = limit.run(sending).await;
        flight.landed = true;
        match answer {
            Some(Ok(value)) => Ok(value),
            Some(Err(err)) => {
                self.abandon(wire);
                Err(error::from_transport(err))
            }
            None => {
                self.abandon(wire);
                Err(Failure::unknown(
                    Cause::TimedOut,
                    format!(
                        "no answer from {} in the time given",
                        self.dialer.options.describe()
                    ),
                ))
            }
        }
    }

    /// Nothing new goes out on this connection; it is closed when the last call on it has ended.
    fn abandon(&self, wire: &Wire) {
        wire.dead.store(true, Ordering::Release);
        drop(self.live());
    }

    fn live(&self) -> Option<Arc<Wire>> {
        let mut slot = self.slot();
        // Dropping the last handle of a dead connection closes its socket.
        slot.take_if(|wire| wire.dead.load(Ordering::Acquire));
        slot.as_ref().map(Arc::clone)
    }

    fn slot(&self) -> MutexGuard<'_, Option<Arc<Wire>>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Line")
            .field("purpose", &self.purpose)
            .field("connected", &self.live().is_some())
            .finish_non_exhaustive()
    }
}

/// A call under way. Callers enforce the time limit themselves too, by dropping the call; that must abandon the
/// connection just as our own timer does, or a black hole would be used for ever.
struct Flight<'a, 'b> {
    line: &'a Line,
    wire: &'a Wire,
    limit: &'a Limit<'b>,
    landed: bool,
}

impl Drop for Flight<'_, '_> {
    fn drop(&mut self) {
        if !self.landed && self.limit.nearly_over() {
            self.line.abandon(self.wire);
        }
    }
}

/// The server became a replica under us. A new connection may lead to the new primary; and if this one becomes it
/// again, its fence counters must be checked anew.
fn demoted(answer: &Value) -> bool {
    matches!(answer, Value::ServerError(err) if err.code() == "READONLY")
}

/// A text answer, whichever way the protocol carries it.
pub(crate) fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => Some(text),
        _ => None,
    }
}
