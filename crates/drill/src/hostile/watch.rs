//! Watches the daemon during an attack: its probe, its memory and its connections.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::clock::{BootClock, Clock, run_until};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::daemon::DaemonProcess;
use super::https::HttpsConnection;

// As long as the probes of `ops/kubernetes` may wait.
const PROBE_TIMEOUT: Duration = Duration::from_secs(3);
// Not the attackers' address: an orchestrator has its own, and so its own budget of probes.
const PROBER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const SAMPLE_INTERVAL: Duration = Duration::from_millis(250);

/// What was seen during one attack.
#[derive(Debug, Default)]
pub(super) struct WatchCounts {
    pub(super) probes: u32,
    /// Probes without a 200 within their timeout.
    pub(super) failed_probes: u32,
    pub(super) slowest_probe: Duration,
    /// The sockets that the daemon had open at the end: those that it displaces close a little later.
    pub(super) sockets: usize,
}

/// A task that asks `/healthz` again and again, each time on a new connection as an orchestrator does.
pub(super) struct DaemonWatch {
    task: JoinHandle<WatchCounts>,
    stop: CancellationToken,
}

impl DaemonWatch {
    pub(super) fn start(daemon: &Arc<DaemonProcess>) -> Self {
        let (daemon, stop) = (Arc::clone(daemon), CancellationToken::new());
        let stopped = stop.clone();
        Self { task: tokio::spawn(async move { watch(&daemon, &stopped).await }), stop }
    }

    /// Ends the task after a last probe.
    pub(super) async fn stop(self) -> WatchCounts {
        self.stop.cancel();
        let panicked = |_| WatchCounts { failed_probes: 1, ..WatchCounts::default() };
        self.task.await.unwrap_or_else(panicked)
    }
}

async fn watch(daemon: &DaemonProcess, stop: &CancellationToken) -> WatchCounts {
    let mut counts = WatchCounts::default();
    loop {
        let is_last = stop.is_cancelled();
        let began = BootClock.now();
        let alive = run_until(&BootClock, began + PROBE_TIMEOUT, probe(daemon)).await;
        counts.probes += 1;
        counts.failed_probes += u32::from(!matches!(alive, Some(Ok(200))));
        counts.slowest_probe = counts.slowest_probe.max(BootClock.now().since(began));
        if is_last {
            counts.sockets = daemon.open_sockets();
            return counts;
        }
        run_until(&BootClock, began + SAMPLE_INTERVAL, stop.cancelled()).await;
    }
}

async fn probe(daemon: &DaemonProcess) -> std::io::Result<u16> {
    let mut connection = HttpsConnection::open_from(daemon, PROBER).await?;
    connection.request("GET", "/healthz", None, "").await.map(|response| response.status)
}
