//! A client that keeps its own lease with plain HTTP, as a curl script does. It uses its own id, the
//! token that the daemon made, renewals, and often an acquire that waits.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::Name;
use leasehold_core::clock::{Clock, Moment, run_until};
use leasehold_core::policy::Class;
use leasehold_http::DaemonResult;
use leasehold_http::wire::{ErrorCode, GrantView, millis};
use serde_json::{Value, json};

use super::client_protocol::{AcquireReply, ClientProtocol, HoldLost, HttpHold, parse_reply};
use super::drift::Nanos;
use super::http_client::SimHttpClient;
use leasehold_drill::history::RecordedOutcome;

/// Protocol of a client that keeps its lease itself.
pub(super) struct PlainHttp;

impl ClientProtocol for PlainHttp {
    const UNDOES_LATE_GRANTS: bool = false;

    // The HTTP documentation says: "Count `ttl_ms` from before you sent the request, and stop a
    // little earlier."
    fn usable_time(client: &SimHttpClient<Self>) -> Duration {
        let ttl = client.class.ttl.get();
        ttl - ttl / 100 - Duration::from_millis(20)
    }

    // Every request carries its own terms, so an operator's override of the daemon's class is ignored.
    fn class_versions(client: &SimHttpClient<Self>, _: Nanos) -> Vec<Arc<Class>> {
        vec![Arc::clone(&client.class)]
    }

    fn fail_open(_: &Class) -> bool {
        false
    }

    fn continues(_: &Class) -> bool {
        false
    }

    async fn acquire(
        client: &SimHttpClient<Self>,
        attempt: u64,
        id: &str,
        name: &Name,
        by: Moment,
    ) -> AcquireReply {
        let (me, class) = (&client.worker, &client.class);
        let mut request = json!({
            "id": id,
            "class": me.class,
            "holder": me.who.as_ref(),
            "ttl_ms": class.ttl.as_millis(),
            "lock_delay_ms": millis(class.release.lock_delay),
        });
        if !class.acquire.wait.is_zero()
            && let Some(request) = request.as_object_mut()
        {
            request.insert("wait_ms".to_owned(), millis(class.acquire.wait).into());
        }
        let sent = me.clock.now();
        let path = ["locks", name.as_str(), "acquire"];
        let reply: Option<DaemonResult<GrantView>> =
            run_until(&me.clock, by, client.daemon.post(&path, &request)).await;
        let granted = match parse_reply(reply) {
            Ok(granted) => granted,
            Err(no) => return no,
        };
        let Some(token) = granted.token else {
            return AcquireReply::Unknown;
        };
        let mut held = HttpHold {
            attempt,
            key: token.expose().to_owned(),
            name: name.clone(),
            fence: Some(granted.fence),
            proven: Some(sent + Self::usable_time(client)),
            deadline: sent + Self::usable_time(client),
        };
        // A grant that took long to arrive is renewed first, so that the work has time.
        let now = me.clock.now();
        if held.deadline.since(now) < Self::usable_time(client) / 2
            && send_renewal(client, &mut held, now + Duration::from_secs(1)).await.is_err()
        {
            return AcquireReply::Unknown;
        }
        AcquireReply::Granted(RecordedOutcome::Held, held)
    }

    // Without the token nothing can be released; a lease that may have been granted expires.
    async fn cancel(_: &SimHttpClient<Self>, _: &str) {}

    async fn renew(client: &SimHttpClient<Self>, held: &mut HttpHold) -> Result<bool, HoldLost> {
        let by = held.deadline;
        send_renewal(client, held, by).await
    }

    async fn release(client: &SimHttpClient<Self>, held: &HttpHold) -> Option<bool> {
        let clock = &client.worker.clock;
        let by = clock.now() + Duration::from_secs(1);
        let path = ["locks", held.name.as_str(), "release"];
        let request = json!({ "token": held.key });
        let given: Option<DaemonResult<Value>> =
            run_until(clock, by, client.daemon.post(&path, &request)).await;
        match given {
            Some(Ok(Ok(_))) => Some(true),
            Some(Ok(Err(problem))) if problem.error_code() == Some(ErrorCode::NotOwned) => Some(false),
            _ => None,
        }
    }
}

/// Sends one renewal; `false` if its outcome is unknown.
async fn send_renewal(
    client: &SimHttpClient<PlainHttp>,
    held: &mut HttpHold,
    by: Moment,
) -> Result<bool, HoldLost> {
    let (me, class) = (&client.worker, &client.class);
    let (sent, began) = (me.clock.now(), me.now());
    let path = ["locks", held.name.as_str(), "renew"];
    let request = json!({
        "token": held.key,
        "fence": held.fence,
        "ttl_ms": class.ttl.as_millis(),
        "lock_delay_ms": millis(class.release.lock_delay),
    });
    let renewed: Option<DaemonResult<Value>> =
        run_until(&me.clock, by, client.daemon.post(&path, &request)).await;
    match renewed {
        Some(Ok(Ok(_))) => {
            held.deadline = held.deadline.max(sent + PlainHttp::usable_time(client));
            held.proven = Some(held.deadline);
            let span = me.now() - began;
            client.record_event((held.attempt, &held.name), "renewed", held.fence, Some(span));
            Ok(true)
        }
        Some(Ok(Err(problem))) if problem.error_code() == Some(ErrorCode::NotOwned) => Err(HoldLost),
        _ => Ok(false),
    }
}
