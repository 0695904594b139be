//! The tenant whose holds must not suffer: half of them are renewed by their clients, half are kept by
//! the daemon and need heartbeats. Beside them it creates and deletes kept holds, which must be on the disk
//! before they are answered.

use std::sync::{Arc, Mutex, PoisonError};
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
// Most take less than a tenth of it beside the floods on two cores. Behind a full queue of history queries, each takes
// longer. One alone can be late: a busy machine runs other processes.
const KEPT_HOLD_DEADLINE: Duration = Duration::from_millis(500);
const KEPT_HOLD_INTERVAL: Duration = Duration::from_millis(100);

/// What became of the renewals, and of the holds that were created and deleted.
#[derive(Debug, Default)]
pub(super) struct CalmCounts {
    pub(super) done: u64,
    /// Holds that ended, or were not renewed in time.
    pub(super) missed: u64,
    pub(super) retried: u64,
    pub(super) slowest: Duration,
}

/// What became of the kept holds that were created and deleted.
#[derive(Debug, Default)]
pub(super) struct KeptHoldCounts {
    pub(super) done: u64,
    /// Those that took longer than their deadline.
    pub(super) late: u64,
    /// Those that were refused, or took longer than a client waits.
    pub(super) failed: u64,
    pub(super) slowest: Duration,
}

/// The running clients.
pub(super) struct CalmTenant {
    clients: JoinSet<CalmCounts>,
    kept_holds: Arc<Mutex<KeptHoldCounts>>,
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
        let kept_holds = Arc::default();
        clients.spawn(change_kept_holds(Arc::clone(daemon), stop.clone(), Arc::clone(&kept_holds)));
        Ok(Self { clients, kept_holds, stop })
    }

    /// The kept holds since the last call.
    pub(super) fn take_kept_holds(&self) -> KeptHoldCounts {
        std::mem::take(&mut self.kept_holds.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Ends the clients and adds up what they counted.
    pub(super) async fn stop(mut self) -> CalmCounts {
        self.stop.cancel();
        let mut all = CalmCounts::default();
        while let Some(client) = self.clients.join_next().await {
            // A client that panicked has not renewed its hold.
            let one = client.unwrap_or_else(|_| CalmCounts { missed: 1, ..CalmCounts::default() });
            all.done += one.done;
            all.missed += one.missed;
            all.retried += one.retried;
            all.slowest = all.slowest.max(one.slowest);
        }
        all
    }
}

/// Creates and deletes kept holds until `stop`, one after another.
async fn change_kept_holds(
    daemon: Arc<DaemonProcess>,
    stop: CancellationToken,
    counts: Arc<Mutex<KeptHoldCounts>>,
) -> CalmCounts {
    let mut connection = None;
    'rounds: for number in 0_u64.. {
        if stop.is_cancelled() {
            break;
        }
        // Ids of ended holds are remembered, so each hold has its own.
        let id = format!("changed-{number}");
        let body = format!(r#"{{"id":"{id}","name":"calm:changed","ttl_ms":10000,"heartbeat_ms":10000}}"#);
        let one = format!("/v1/holds/{id}");
        let steps = [("POST", "/v1/holds", body.as_str(), 201), ("DELETE", one.as_str(), "", 200)];
        for (method, path, body, expected) in steps {
            let began = BootClock.now();
            let change = async {
                let connection = match &mut connection {
                    Some(connection) => connection,
                    none => none.insert(HttpsConnection::open(&daemon).await?),
                };
                connection.request(method, path, Some(&daemon.calm_token), body).await
            };
            let changed = run_until(&BootClock, began + TRY_TIMEOUT, change).await;
            let took = BootClock.now().since(began);
            let done = matches!(changed, Some(Ok(response)) if response.status == expected);
            {
                let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
                counts.done += u64::from(done);
                counts.late += u64::from(took > KEPT_HOLD_DEADLINE);
                counts.failed += u64::from(!done);
                counts.slowest = counts.slowest.max(took);
            }
            if !done {
                // One failure is enough for the verdict. What became of the hold is not known.
                break 'rounds;
            }
        }
        run_until(&BootClock, BootClock.now() + KEPT_HOLD_INTERVAL, stop.cancelled()).await;
    }
    CalmCounts::default()
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
    async fn renew_until(mut self, stop: CancellationToken) -> CalmCounts {
        let mut counts = CalmCounts::default();
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
