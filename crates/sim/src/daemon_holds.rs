//! A client whose holds the daemon keeps. It sends heartbeats and works only until the deadline of
//! the last response.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::clock::{Clock, Moment, run_until};
use leasehold_core::policy::{Class, Enforcement, OnError, OnFailure};
use leasehold_core::{Fence, Name};
use leasehold_http::DaemonResult;
use leasehold_http::wire::{ErrorCode, Problem};
use serde::Deserialize;
use serde_json::{Value, json};

use super::client_protocol::{AcquireReply, ClientProtocol, HoldLost, HttpHold, parse_reply};
use super::drift::Nanos;
use super::http_client::SimHttpClient;
use leasehold_drill::history::RecordedOutcome;

/// Protocol of a client that lets the daemon keep its holds.
pub(super) struct DaemonHolds {
    // The daemon ends a hold when no heartbeat arrived for this long.
    pub(super) heartbeat: Duration,
}

/// The daemon's description of a hold.
#[derive(Debug, Deserialize)]
struct DaemonHoldView {
    #[serde(default)]
    fence: Option<Fence>,
    standing: String,
    valid_ms: u64,
    proven_ms: u64,
}

impl DaemonHoldView {
    /// Until when the lease is proven. A class that continues may work past this.
    fn proven(&self, sent: Moment) -> Option<Moment> {
        (self.standing == "proven").then(|| sent + Duration::from_millis(self.proven_ms))
    }
}

impl ClientProtocol for DaemonHolds {
    // The daemon undoes late grants for its clients.
    const UNDOES_LATE_GRANTS: bool = true;

    fn usable_time(client: &SimHttpClient<Self>) -> Duration {
        client.protocol.heartbeat
    }

    fn class_versions(client: &SimHttpClient<Self>, since: Nanos) -> Vec<Arc<Class>> {
        let state = client.worker.world.lock();
        let classes = state.class_versions.since(&client.worker.class, since).into_iter();
        classes.map(|class| class.unwrap_or_else(|| Arc::clone(&client.class))).collect()
    }

    fn fail_open(class: &Class) -> bool {
        class.mode == Enforcement::Shadow || class.acquire.on_error == OnError::FailOpen
    }

    fn continues(class: &Class) -> bool {
        // The client stops at its own deadline anyway, but that deadline is not the lease's.
        class.mode == Enforcement::Shadow || class.renew.on_failure == OnFailure::Continue
    }

    async fn acquire(
        client: &SimHttpClient<Self>,
        attempt: u64,
        id: &str,
        name: &Name,
        by: Moment,
    ) -> AcquireReply {
        let me = &client.worker;
        let request = json!({
            "name": name.as_str(),
            "id": id,
            "class": me.class,
            "holder": me.who.as_ref(),
            "heartbeat_ms": client.protocol.heartbeat.as_millis(),
        });
        let sent = me.clock.now();
        let reply: Option<DaemonResult<DaemonHoldView>> =
            run_until(&me.clock, by, client.daemon.post(&["holds"], &request)).await;
        let view = match parse_reply(reply) {
            Ok(view) => view,
            Err(no) => return no,
        };
        let local = view.standing == "local_only";
        let held = HttpHold {
            attempt,
            key: id.to_owned(),
            name: name.clone(),
            fence: view.fence,
            proven: view.proven(sent),
            deadline: sent + Duration::from_millis(view.valid_ms),
        };
        AcquireReply::Granted(if local { RecordedOutcome::LocalOnly } else { RecordedOutcome::Held }, held)
    }

    // If this request is lost, the daemon misses the heartbeats and ends the hold itself.
    async fn cancel(client: &SimHttpClient<Self>, id: &str) {
        let _ = delete_hold(client, id).await;
    }

    /// Sends one heartbeat.
    async fn renew(client: &SimHttpClient<Self>, held: &mut HttpHold) -> Result<bool, HoldLost> {
        let me = &client.worker;
        let (sent, began) = (me.clock.now(), me.now());
        let path = ["holds", &held.key, "heartbeat"];
        let nothing = json!({});
        let reply: Option<DaemonResult<DaemonHoldView>> =
            run_until(&me.clock, held.deadline, client.daemon.post(&path, &nothing)).await;
        match reply {
            Some(Ok(Ok(view))) => {
                let healed = held.fence.is_none() && view.fence.is_some();
                // Another fence under the same id is another grant. Work begun under the first one is over.
                if held.fence.is_some() && view.fence != held.fence {
                    return Err(HoldLost);
                }
                held.fence = view.fence;
                held.proven = view.proven(sent);
                // The newest response counts, even if it is shorter than the last one.
                held.deadline = sent + Duration::from_millis(view.valid_ms);
                let event = if healed { "healed" } else { "renewed" };
                let span = me.now() - began;
                client.record_event((held.attempt, &held.name), event, held.fence, Some(span));
                Ok(true)
            }
            // The daemon forgets a hold some time after it ended, so `not_found` is a loss too.
            Some(Ok(Err(problem))) if is_gone(&problem) => Err(HoldLost),
            _ => Ok(false),
        }
    }

    async fn release(client: &SimHttpClient<Self>, held: &HttpHold) -> Option<bool> {
        match delete_hold(client, &held.key).await {
            Some(Ok(Ok(_))) => Some(true),
            Some(Ok(Err(problem))) if is_gone(&problem) => Some(false),
            _ => None,
        }
    }
}

fn is_gone(problem: &Problem) -> bool {
    matches!(problem.error_code(), Some(ErrorCode::Lost | ErrorCode::NotFound))
}

async fn delete_hold(client: &SimHttpClient<DaemonHolds>, id: &str) -> Option<DaemonResult<Value>> {
    let clock = &client.worker.clock;
    let by = clock.now() + Duration::from_secs(1);
    run_until(clock, by, client.daemon.delete(&["holds", id])).await
}
