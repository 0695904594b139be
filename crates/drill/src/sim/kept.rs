//! A client whose holds the daemon keeps: it sends heartbeats, and works only as long as the last answer allows.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::clock::{Clock, Moment, until};
use leasehold_core::policy::{Class, Enforcement, OnError, OnFailure};
use leasehold_core::{Fence, Name};
use leasehold_http::Asked;
use serde::Deserialize;
use serde_json::{Value, json};

use super::drift::Nanos;
use super::tenant::{Held, Lost, Tenant, Told, Way, refused};
use crate::history::Answer;

/// The daemon keeps its holds.
pub(super) struct Kept {
    /// A client that is not heard of for so long is gone.
    pub(super) heartbeat: Duration,
}

/// What the daemon says of a hold.
#[derive(Debug, Deserialize)]
struct View {
    #[serde(default)]
    fence: Option<Fence>,
    standing: String,
    valid_ms: u64,
    proven_ms: u64,
}

impl View {
    /// Alone until here; in a class that continues, work may go on for longer.
    fn proven(&self, sent: Moment) -> Option<Moment> {
        (self.standing == "proven").then(|| sent + Duration::from_millis(self.proven_ms))
    }
}

impl Way for Kept {
    /// The daemon.
    const UNDOES: bool = true;

    fn usable(client: &Tenant<Self>) -> Duration {
        client.way.heartbeat
    }

    fn classes(client: &Tenant<Self>, since: Nanos) -> Vec<Arc<Class>> {
        let state = client.me.world.lock();
        let classes = state.in_force.since(&client.me.class, since).into_iter();
        classes
            .map(|class| class.unwrap_or_else(|| Arc::clone(&client.class)))
            .collect()
    }

    fn fail_open(class: &Class) -> bool {
        class.mode == Enforcement::Shadow || class.acquire.on_error == OnError::FailOpen
    }

    fn continues(class: &Class) -> bool {
        // Its client stops when its time is over all the same, but that time is not the lease's.
        class.mode == Enforcement::Shadow || class.renew.on_failure == OnFailure::Continue
    }

    async fn ask(client: &Tenant<Self>, attempt: u64, id: &str, name: &Name, by: Moment) -> Told {
        let me = &client.me;
        let ask = json!({
            "name": name.as_str(),
            "id": id,
            "class": me.class,
            "holder": me.who.as_ref(),
            "heartbeat_ms": client.way.heartbeat.as_millis(),
        });
        let sent = me.clock.now();
        let asked: Option<Asked<View>> = until(&me.clock, by, client.daemon.post(&["holds"], &ask)).await;
        let view = match refused(asked) {
            Ok(view) => view,
            Err(no) => return no,
        };
        let local = view.standing == "local_only";
        let held = Held {
            attempt,
            key: id.to_owned(),
            name: name.clone(),
            fence: view.fence,
            proven: view.proven(sent),
            deadline: sent + Duration::from_millis(view.valid_ms),
        };
        Told::Yes(if local { Answer::LocalOnly } else { Answer::Held }, held)
    }

    /// If this is not heard, the daemon misses its client and ends it.
    async fn give_up(client: &Tenant<Self>, id: &str) {
        let _ = end(client, id).await;
    }

    /// One heartbeat.
    async fn stay(client: &Tenant<Self>, held: &mut Held) -> Result<bool, Lost> {
        let me = &client.me;
        let (sent, began) = (me.clock.now(), me.now());
        let path = ["holds", &held.key, "heartbeat"];
        let nothing = json!({});
        let asked: Option<Asked<View>> =
            until(&me.clock, held.deadline, client.daemon.post(&path, &nothing)).await;
        match asked {
            Some(Ok(Ok(view))) => {
                let healed = held.fence.is_none() && view.fence.is_some();
                // Another grant under the same id: what was begun under the first is over.
                if held.fence.is_some() && view.fence != held.fence {
                    return Err(Lost);
                }
                held.fence = view.fence;
                held.proven = view.proven(sent);
                // The newest answer counts: a lease may end sooner than what it was given without one.
                held.deadline = sent + Duration::from_millis(view.valid_ms);
                let event = if healed { "healed" } else { "renewed" };
                let span = me.now() - began;
                client.tell((held.attempt, &held.name), event, held.fence, Some(span));
                Ok(true)
            }
            Some(Ok(Err(problem))) if matches!(problem.code.as_str(), "lost" | "not_found") => Err(Lost),
            _ => Ok(false),
        }
    }

    async fn let_go(client: &Tenant<Self>, held: &Held) -> Option<bool> {
        match end(client, &held.key).await {
            Some(Ok(Ok(_))) => Some(true),
            Some(Ok(Err(problem))) if matches!(problem.code.as_str(), "lost" | "not_found") => Some(false),
            _ => None,
        }
    }
}

async fn end(client: &Tenant<Kept>, id: &str) -> Option<Asked<Value>> {
    let clock = &client.me.clock;
    let by = clock.now() + Duration::from_secs(1);
    until(clock, by, client.daemon.delete(&["holds", id])).await
}
