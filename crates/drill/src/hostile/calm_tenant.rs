//! The tenant whose holds must not suffer: half of them are renewed by their clients, half are kept by
//! the daemon and need heartbeats.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use leasehold_core::clock::{BootClock, Clock, ClockExt, run_until};
use serde_json::Value;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::daemon::DaemonProcess;
use super::https::{HttpsConnection, HttpsResponse};

// A renewal must succeed within this time after the one before it.
const HOLD_TTL: Duration = Duration::from_secs(10);
const RENEW_INTERVAL: Duration = Duration::from_secs(2);
// A response that takes longer is given up, and the request is sent again on a new connection.
const TRY_TIMEOUT: Duration = Duration::from_secs(3);
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// What became of the renewals.
#[derive(Debug, Default)]
pub(super) struct RenewalCounts {
    pub(super) done: u64,
    /// Holds that ended, or were not renewed in time.
    pub(super) missed: u64,
    pub(super) retried: u64,
    pub(super) slowest: Duration,
}

/// The running clients.
pub(super) struct CalmTenant {
    clients: JoinSet<RenewalCounts>,
    stop: CancellationToken,
}

impl CalmTenant {
    /// Acquires the holds and begins to renew them.
    pub(super) async fn start(daemon: &Arc<DaemonProcess>, holds: usize) -> anyhow::Result<Self> {
        let (mut clients, stop) = (JoinSet::new(), CancellationToken::new());
        for number in 0..holds {
            let hold = CalmHold::acquire(Arc::clone(daemon), number).await?;
            clients.spawn(hold.renew_until(stop.clone()));
        }
        Ok(Self { clients, stop })
    }

    /// Ends the clients and adds up what they counted.
    pub(super) async fn stop(mut self) -> RenewalCounts {
        self.stop.cancel();
        let mut all = RenewalCounts::default();
        while let Some(client) = self.clients.join_next().await {
            // A client that panicked has not renewed its hold.
            let one = client.unwrap_or_else(|_| RenewalCounts { missed: 1, ..RenewalCounts::default() });
            all.done += one.done;
            all.missed += one.missed;
            all.retried += one.retried;
            all.slowest = all.slowest.max(one.slowest);
        }
        all
    }
}

/// One hold with its own connection.
struct CalmHold {
    daemon: Arc<DaemonProcess>,
    connection: Option<HttpsConnection>,
    path: String,
    body: String,
}

impl CalmHold {
    async fn acquire(daemon: Arc<DaemonProcess>, number: usize) -> anyhow::Result<Self> {
        let mut connection = HttpsConnection::open(&daemon).await?;
        let (name, ttl) = (format!("calm:{number}"), HOLD_TTL.as_millis());
        let kept = number.is_multiple_of(2);
        let (path, body) = if kept {
            let body = format!(r#"{{"id":"h{number}","name":"{name}","ttl_ms":{ttl},"heartbeat_ms":{ttl}}}"#);
            ("/v1/holds".to_owned(), body)
        } else {
            (format!("/v1/locks/{name}/acquire"), format!(r#"{{"ttl_ms":{ttl}}}"#))
        };
        let granted = connection.request("POST", &path, Some(&daemon.calm_token), &body).await?;
        if !matches!(granted.status, 200 | 201) {
            bail!("{name} was not granted: {}", String::from_utf8_lossy(&granted.body));
        }
        let grant: Value = serde_json::from_slice(&granted.body).context("a grant is no JSON")?;
        let (path, body) = if kept {
            (format!("/v1/holds/h{number}/heartbeat"), String::new())
        } else {
            let body = format!(r#"{{"token":{},"fence":{},"ttl_ms":{ttl}}}"#, grant["token"], grant["fence"]);
            (format!("/v1/locks/{name}/renew"), body)
        };
        Ok(Self { daemon, connection: Some(connection), path, body })
    }

    /// Renews at an interval until `stop`, or until the hold is lost.
    async fn renew_until(mut self, stop: CancellationToken) -> RenewalCounts {
        let mut counts = RenewalCounts::default();
        let mut renewed_at = BootClock.now();
        while !stop.is_cancelled() {
            run_until(&BootClock, renewed_at + RENEW_INTERVAL, stop.cancelled()).await;
            let began = BootClock.now();
            loop {
                let sent = BootClock.now();
                let tried = run_until(&BootClock, sent + TRY_TIMEOUT, self.renew()).await;
                match tried {
                    Some(Ok(response)) if response.status == 200 => {
                        counts.done += 1;
                        // The lease counts from when the request was sent.
                        renewed_at = sent;
                        break;
                    }
                    Some(Ok(response)) if response.status == 410 || response.status == 404 => {
                        counts.missed += 1;
                        return counts;
                    }
                    _ => {
                        counts.retried += 1;
                        self.connection = None;
                    }
                }
                if BootClock.now().since(renewed_at) >= HOLD_TTL {
                    counts.missed += 1;
                    return counts;
                }
                BootClock.sleep(RETRY_PAUSE).await;
            }
            counts.slowest = counts.slowest.max(BootClock.now().since(began));
        }
        counts
    }

    async fn renew(&mut self) -> std::io::Result<HttpsResponse> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none => none.insert(HttpsConnection::open(&self.daemon).await?),
        };
        connection.request("POST", &self.path, Some(&self.daemon.calm_token), &self.body).await
    }
}
