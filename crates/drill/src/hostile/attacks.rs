//! What the hostile tenant and callers without a token do.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use leasehold::http::wire::{ErrorCode, Problem};
use leasehold_core::clock::{BootClock, ClockExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::daemon::DaemonProcess;
use super::https::{HttpsConnection, HttpsResponse};
use super::tally::{AttackTally, RequestEnd};

// Connections of a flood of requests. The daemon answers one request at a time on each.
const FLOOD_CONNECTIONS: usize = 16;
// As many as history queries may wait in the daemon, so that its queue is always full.
const HISTORY_CONNECTIONS: usize = 64;
// Connections that are opened at the same time.
const OPENING_CONNECTIONS: usize = 64;
// Nearly as long as a head may be.
const UNFINISHED_HEAD_BYTES: usize = 15 * 1024;
// Nearly as long as a batch of renewals may be.
const UNFINISHED_BODY_BYTES: usize = 440_000;
const PIPELINED_REQUESTS: usize = 50;
// How long connections are kept that cost memory.
const OPEN_TIME: Duration = Duration::from_secs(3);
// A response that refuses an unfinished body has arrived long before it is looked for.
const EARLY_STATUS_TIMEOUT: Duration = Duration::from_millis(5);
const BATCH_PATH: &str = "/v1/namespaces/hostile/renew";

/// One kind of attack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Attack {
    /// Renewals with invented classes, which must not become metric labels.
    Labels,
    /// Requests whose bodies never end.
    UnfinishedBodies,
    /// TLS connections without a token, each with an unfinished head.
    IdleConnections,
    /// Connections that ask for documents and do not read them.
    SlowReaders,
    /// Queries of the history.
    History,
    /// Probes, which need no token.
    Probes,
}

/// The connections of an attack, which stay open until dropped.
#[derive(Default)]
pub(super) struct OpenConnections {
    _sockets: Vec<TcpStream>,
    _readers: Vec<HttpsConnection>,
}

impl Attack {
    /// Every attack with its full number of requests or connections. Unfinished bodies come before the
    /// connections: memory that these have used is used again and would hide what bodies take.
    pub(super) const ALL: &[(Self, u32)] = &[
        (Self::Labels, 20_000),
        (Self::UnfinishedBodies, 2000),
        (Self::IdleConnections, 16_000),
        (Self::SlowReaders, 4000),
        (Self::History, 4000),
        (Self::Probes, 20_000),
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Labels => "invented classes",
            Self::UnfinishedBodies => "unfinished bodies",
            Self::IdleConnections => "idle connections",
            Self::SlowReaders => "slow readers",
            Self::History => "history queries",
            Self::Probes => "probes",
        }
    }

    /// Whether each of its connections stays open, so that descriptors limit their number.
    pub(super) fn keeps_connections(self) -> bool {
        matches!(self, Self::IdleConnections | Self::SlowReaders | Self::UnfinishedBodies)
    }

    /// The least part of its requests or connections, in percent, that must have had their effect:
    /// otherwise the drill has shown nothing.
    pub(super) fn least_effective_percent(self) -> usize {
        match self {
            Self::Labels => 99,
            // The others are beyond the budget of probes of one address.
            Self::Probes => 5,
            // The others are refused, by the bound of bodies or of queries in the queue.
            Self::UnfinishedBodies | Self::History => 0,
            // The others are cut before they have sent all they wanted to.
            Self::IdleConnections | Self::SlowReaders => 80,
        }
    }

    /// Sends one ordinary request of the same kind.
    ///
    /// # Errors
    /// The daemon does not answer as the attack needs it: the attack would do nothing.
    pub(super) async fn check_target(self, daemon: &DaemonProcess) -> Result<(), String> {
        let (method, path, token, body, expected, least_bytes) = match self {
            // Refused because the token holds nothing; the class in it was looked at.
            Self::Labels => ("POST", "/v1/locks/hostile:1/renew", Some(0), invented_renewal(0), 410, 0),
            Self::UnfinishedBodies => ("POST", BATCH_PATH, Some(0), r#"{"items":[]}"#.to_owned(), 200, 0),
            Self::IdleConnections | Self::Probes => ("GET", "/healthz", None, String::new(), 200, 0),
            Self::SlowReaders => ("GET", "/openapi.json", None, String::new(), 200, 50_000),
            Self::History => ("GET", "/v1/history?limit=1000", Some(0), String::new(), 200, 0),
        };
        let token = token.map(|at: usize| daemon.hostile_tokens[at].as_str());
        let request = async {
            let mut connection = HttpsConnection::open(daemon).await?;
            connection.request(method, path, token, &body).await
        };
        match request.await {
            Ok(response) if response.status == expected && response.body.len() >= least_bytes => Ok(()),
            Ok(response) => Err(format!(
                "{method} {path} is answered with {} and {} bytes instead of {expected}: {}",
                response.status,
                response.body.len(),
                String::from_utf8_lossy(&response.body[..response.body.len().min(300)])
            )),
            Err(error) => Err(format!("{method} {path} is not answered: {error}")),
        }
    }

    /// Attacks, and counts in `tally` what came of each request or connection.
    pub(super) async fn run(
        self,
        daemon: &Arc<DaemonProcess>,
        count: usize,
        tally: &Arc<AttackTally>,
    ) -> OpenConnections {
        if !self.keeps_connections() {
            self.flood(daemon, count, tally).await;
            return OpenConnections::default();
        }
        let (mut open, mut readers) = (Vec::new(), Vec::new());
        let (mut opening, mut started) = (JoinSet::new(), 0);
        while started < count || !opening.is_empty() {
            while started < count && opening.len() < OPENING_CONNECTIONS {
                opening.spawn(self.open_one(Arc::clone(daemon)));
                started += 1;
            }
            match opening.join_next().await {
                // Whether the body is held or refused shows in the response.
                Some(Ok(Ok(connection))) if self == Self::UnfinishedBodies => readers.push(connection),
                Some(Ok(Ok(connection))) => {
                    tally.count(RequestEnd::Effective);
                    match self {
                        // The TLS state of a reader is needed to keep its receive window closed.
                        Self::SlowReaders => readers.push(connection),
                        _ => open.push(connection.into_socket()),
                    }
                }
                Some(Ok(Err(error))) => tally.count(RequestEnd::of_error(&error, true)),
                Some(Err(panicked)) => tally.count(RequestEnd::Failed(panicked.to_string())),
                None => {}
            }
        }
        BootClock.sleep(OPEN_TIME).await;
        if self == Self::UnfinishedBodies {
            for reader in &mut readers {
                tally.count(match reader.early_status(EARLY_STATUS_TIMEOUT).await {
                    None => RequestEnd::Effective,
                    Some(429) => RequestEnd::Bounded,
                    Some(status) => RequestEnd::Failed(format!("status {status}")),
                });
            }
        }
        OpenConnections { _sockets: open, _readers: readers }
    }

    async fn open_one(self, daemon: Arc<DaemonProcess>) -> io::Result<HttpsConnection> {
        let mut connection = HttpsConnection::open(&daemon).await?;
        match self {
            Self::SlowReaders => {
                let one = connection.head("GET", "/openapi.json", None, 0);
                connection.send(one.repeat(PIPELINED_REQUESTS).as_bytes()).await?;
            }
            Self::UnfinishedBodies => {
                let token = daemon.hostile_tokens[0].as_str();
                let head = connection.head("POST", BATCH_PATH, Some(token), UNFINISHED_BODY_BYTES + 1);
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
    async fn flood(self, daemon: &Arc<DaemonProcess>, count: usize, tally: &Arc<AttackTally>) {
        let next = Arc::new(AtomicUsize::new(0));
        let mut senders = JoinSet::new();
        let connections = if self == Self::History { HISTORY_CONNECTIONS } else { FLOOD_CONNECTIONS };
        for sender in 0..connections {
            let (daemon, next, tally) = (Arc::clone(daemon), Arc::clone(&next), Arc::clone(tally));
            senders.spawn(async move {
                let token = daemon.hostile_tokens[sender % daemon.hostile_tokens.len()].clone();
                let mut connection = None;
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        return;
                    }
                    let end = match self.send_one(&daemon, &token, &mut connection, number).await {
                        Ok(response) => self.judge(&response),
                        Err(error) => {
                            connection = None;
                            // A probe beyond the budget is refused, and its connection closed.
                            RequestEnd::of_error(&error, self == Self::Probes)
                        }
                    };
                    tally.count(end);
                }
            });
        }
        while senders.join_next().await.is_some() {}
    }

    fn judge(self, response: &HttpsResponse) -> RequestEnd {
        let code = serde_json::from_slice::<Problem>(&response.body).ok().and_then(|body| body.error_code());
        match (self, response.status, code) {
            (Self::Labels, 410, _) | (Self::History | Self::Probes, 200, _) => RequestEnd::Effective,
            (Self::History, 503, Some(ErrorCode::Overloaded))
            | (Self::Probes, 429, Some(ErrorCode::RateLimited)) => RequestEnd::Bounded,
            (_, status, _) => RequestEnd::Failed(format!("status {status}")),
        }
    }

    async fn send_one(
        self,
        daemon: &DaemonProcess,
        token: &str,
        connection: &mut Option<HttpsConnection>,
        number: usize,
    ) -> io::Result<HttpsResponse> {
        let connection = match connection {
            Some(connection) => connection,
            none => none.insert(HttpsConnection::open(daemon).await?),
        };
        match self {
            Self::Labels => {
                let body = invented_renewal(number);
                connection.request("POST", "/v1/locks/hostile:1/renew", Some(token), &body).await
            }
            Self::History => connection.request("GET", "/v1/history?limit=1000", Some(token), "").await,
            _ => {
                let path = if number.is_multiple_of(2) { "/healthz" } else { "/readyz" };
                connection.request("GET", path, None, "").await
            }
        }
    }
}

/// A renewal whose token names a class that no policy has.
fn invented_renewal(number: usize) -> String {
    format!(r#"{{"token":"h|c{number}|{number:032x}","fence":"1","ttl_ms":1000}}"#)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_bound_that_an_attack_is_about_counts_as_bounded() {
        let response = |status: u16, code: &str| HttpsResponse {
            status,
            body: format!(r#"{{"code":"{code}","detail":"overloaded rate_limited"}}"#).into_bytes(),
        };
        let end = |attack: Attack, status, code: ErrorCode| attack.judge(&response(status, code.as_str()));
        assert_eq!(end(Attack::History, 503, ErrorCode::Overloaded), RequestEnd::Bounded);
        assert_eq!(end(Attack::Probes, 429, ErrorCode::RateLimited), RequestEnd::Bounded);
        for (attack, status, code) in [
            (Attack::History, 503, ErrorCode::Stopping),
            (Attack::Probes, 429, ErrorCode::QuotaReached),
            (Attack::Probes, 503, ErrorCode::Overloaded),
        ] {
            let ended = end(attack, status, code);
            assert!(matches!(ended, RequestEnd::Failed(_)), "{attack:?} {code:?}: {ended:?}");
        }
    }
}
