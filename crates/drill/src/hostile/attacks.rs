//! What the hostile tenant and callers without a token do.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use leasehold_core::clock::{BootClock, ClockExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::daemon::DaemonProcess;
use super::https::{HttpsConnection, HttpsResponse};

// Connections of a flood of requests. The daemon answers one request at a time on each.
const FLOOD_CONNECTIONS: usize = 16;
// Connections that are opened at the same time.
const OPENING_CONNECTIONS: usize = 64;
// Nearly as long as a head may be.
const UNFINISHED_HEAD_BYTES: usize = 15 * 1024;
// Nearly as long as a batch of renewals may be.
const UNFINISHED_BODY_BYTES: usize = 440_000;
const PIPELINED_REQUESTS: usize = 50;
// How long connections are kept that cost memory.
const OPEN_TIME: Duration = Duration::from_secs(3);

/// One kind of attack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Attack {
    /// Renewals with invented classes, which must not become metric labels.
    Labels,
    /// TLS connections without a token, each with an unfinished head.
    IdleConnections,
    /// Connections that ask for documents and do not read them.
    SlowReaders,
    /// Requests whose bodies never end.
    UnfinishedBodies,
    /// Queries of the history.
    History,
    /// Probes, which need no token.
    Probes,
}

/// What came of an attack. Keeps its connections open until dropped.
pub(super) struct AttackOutcome {
    pub(super) summary: String,
    _open: Vec<TcpStream>,
    _readers: Vec<HttpsConnection>,
}

impl Attack {
    /// Every attack with its full number of requests or connections.
    pub(super) const ALL: &[(Self, u32)] = &[
        (Self::Labels, 20_000),
        (Self::IdleConnections, 16_000),
        (Self::SlowReaders, 4000),
        (Self::UnfinishedBodies, 2000),
        (Self::History, 4000),
        (Self::Probes, 20_000),
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Labels => "invented classes",
            Self::IdleConnections => "idle connections",
            Self::SlowReaders => "slow readers",
            Self::UnfinishedBodies => "unfinished bodies",
            Self::History => "history queries",
            Self::Probes => "probes",
        }
    }

    /// Whether each of its connections stays open, so that descriptors limit their number.
    pub(super) fn keeps_connections(self) -> bool {
        matches!(self, Self::IdleConnections | Self::SlowReaders | Self::UnfinishedBodies)
    }

    pub(super) async fn run(self, daemon: &Arc<DaemonProcess>, count: usize) -> AttackOutcome {
        if !self.keeps_connections() {
            let summary = self.flood(daemon, count).await;
            return AttackOutcome { summary, _open: Vec::new(), _readers: Vec::new() };
        }
        let (mut open, mut readers, mut refused) = (Vec::new(), Vec::new(), 0);
        let (mut opening, mut started) = (JoinSet::new(), 0);
        while started < count || !opening.is_empty() {
            while started < count && opening.len() < OPENING_CONNECTIONS {
                opening.spawn(self.open_one(Arc::clone(daemon)));
                started += 1;
            }
            match opening.join_next().await {
                // The TLS state of a reader is needed to keep its receive window closed.
                Some(Ok(Ok(connection))) if self == Self::SlowReaders => readers.push(connection),
                Some(Ok(Ok(connection))) => open.push(connection.into_socket()),
                _ => refused += 1,
            }
        }
        BootClock.sleep(OPEN_TIME).await;
        let summary = format!("{} opened, {refused} refused or cut", open.len() + readers.len());
        AttackOutcome { summary, _open: open, _readers: readers }
    }

    async fn open_one(self, daemon: Arc<DaemonProcess>) -> io::Result<HttpsConnection> {
        let mut connection = HttpsConnection::open(&daemon).await?;
        match self {
            Self::SlowReaders => {
                let one = connection.head("GET", "/openapi.json", None, 0);
                connection.send(one.repeat(PIPELINED_REQUESTS).as_bytes()).await?;
            }
            Self::UnfinishedBodies => {
                let (path, token) = ("/v1/namespaces/hostile/renew", daemon.hostile_token.as_str());
                let head = connection.head("POST", path, Some(token), UNFINISHED_BODY_BYTES + 1);
                connection.send(format!("{head}{}", " ".repeat(UNFINISHED_BODY_BYTES)).as_bytes()).await?;
            }
            _ => {
                let head = format!("GET / HTTP/1.1\r\nx-fill: {}", "x".repeat(UNFINISHED_HEAD_BYTES));
                connection.send(head.as_bytes()).await?;
            }
        }
        Ok(connection)
    }

    /// Sends `count` requests over some connections, as fast as the daemon answers.
    async fn flood(self, daemon: &Arc<DaemonProcess>, count: usize) -> String {
        let next = Arc::new(AtomicUsize::new(0));
        let mut senders = JoinSet::new();
        for _ in 0..FLOOD_CONNECTIONS {
            let (daemon, next) = (Arc::clone(daemon), Arc::clone(&next));
            senders.spawn(async move {
                let (mut connection, mut answered, mut failed) = (None, 0_usize, 0_usize);
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        return (answered, failed);
                    }
                    match self.send_one(&daemon, &mut connection, number).await {
                        Ok(_) => answered += 1,
                        Err(_) => {
                            failed += 1;
                            connection = None;
                        }
                    }
                }
            });
        }
        let (mut answered, mut failed) = (0, 0);
        while let Some(sender) = senders.join_next().await {
            let (one, other) = sender.unwrap_or_default();
            answered += one;
            failed += other;
        }
        format!("{answered} answered, {failed} cut")
    }

    async fn send_one(
        self,
        daemon: &DaemonProcess,
        connection: &mut Option<HttpsConnection>,
        number: usize,
    ) -> io::Result<HttpsResponse> {
        let connection = match connection {
            Some(connection) => connection,
            none => none.insert(HttpsConnection::open(daemon).await?),
        };
        let token = Some(daemon.hostile_token.as_str());
        match self {
            Self::Labels => {
                let body = format!(r#"{{"token":"h|c{number}|{number:032x}","fence":"1","ttl_ms":1000}}"#);
                connection.request("POST", "/v1/locks/hostile:1/renew", token, &body).await
            }
            Self::History => connection.request("GET", "/v1/history?limit=1000", token, "").await,
            _ => {
                let path = if number.is_multiple_of(2) { "/healthz" } else { "/readyz" };
                connection.request("GET", path, None, "").await
            }
        }
    }
}
