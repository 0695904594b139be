//! A client that keeps its own lease with nothing but HTTP, as a script with curl does: an id of its own, the token that the
//! daemon made for it, renewals, and often a request that waits.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::Name;
use leasehold_core::clock::{Clock, Moment, until};
use leasehold_core::policy::Class;
use leasehold_http::Asked;
use leasehold_http::wire::{Granted, millis};
use serde_json::{Value, json};

use super::drift::Nanos;
use super::tenant::{Held, Lost, Tenant, Told, Way, refused};
use crate::history::Answer;

/// It keeps its lease itself.
pub(super) struct Plain;

impl Way for Plain {
    const UNDOES: bool = false;

    /// "Count `ttl_ms` from before you sent the request, and stop a little earlier."
    fn usable(client: &Tenant<Self>) -> Duration {
        let ttl = client.class.ttl.get();
        ttl - ttl / 100 - Duration::from_millis(20)
    }

    /// Every request says for itself what it wants: what an operator makes of the daemon's class is not for it.
    fn classes(client: &Tenant<Self>, _: Nanos) -> Vec<Arc<Class>> {
        vec![Arc::clone(&client.class)]
    }

    fn fail_open(_: &Class) -> bool {
        false
    }

    fn continues(_: &Class) -> bool {
        false
    }

    async fn ask(client: &Tenant<Self>, attempt: u64, id: &str, name: &Name, by: Moment) -> Told {
        let (me, class) = (&client.me, &client.class);
        let mut ask = json!({
            "id": id,
            "class": me.class,
            "holder": me.who.as_ref(),
            "ttl_ms": class.ttl.as_millis(),
            "lock_delay_ms": millis(class.release.lock_delay),
        });
        if !class.acquire.wait.is_zero()
            && let Some(ask) = ask.as_object_mut()
        {
            ask.insert("wait_ms".to_owned(), millis(class.acquire.wait).into());
        }
        let sent = me.clock.now();
        let path = ["locks", name.as_str(), "acquire"];
        let asked: Option<Asked<Granted>> = until(&me.clock, by, client.daemon.post(&path, &ask)).await;
        let granted = match refused(asked) {
            Ok(granted) => granted,
            Err(no) => return no,
        };
        let Some(token) = granted.token else {
            return Told::Unknown;
        };
        let mut held = Held {
            attempt,
            key: token.expose().to_owned(),
            name: name.clone(),
            fence: Some(granted.fence),
            proven: Some(sent + Self::usable(client)),
            deadline: sent + Self::usable(client),
        };
        // Whoever has waited long for it renews before it works.
        let now = me.clock.now();
        if held.deadline.since(now) < Self::usable(client) / 2
            && renew(client, &mut held, now + Duration::from_secs(1))
                .await
                .is_err()
        {
            return Told::Unknown;
        }
        Told::Yes(Answer::Held, held)
    }

    /// Nothing can be given back without the token; what it may have been granted runs out.
    async fn give_up(_: &Tenant<Self>, _: &str) {}

    async fn stay(client: &Tenant<Self>, held: &mut Held) -> Result<bool, Lost> {
        let by = held.deadline;
        renew(client, held, by).await
    }

    async fn let_go(client: &Tenant<Self>, held: &Held) -> Option<bool> {
        let clock = &client.me.clock;
        let by = clock.now() + Duration::from_secs(1);
        let path = ["locks", held.name.as_str(), "release"];
        let ask = json!({ "token": held.key });
        let given: Option<Asked<Value>> = until(clock, by, client.daemon.post(&path, &ask)).await;
        match given {
            Some(Ok(Ok(_))) => Some(true),
            Some(Ok(Err(problem))) if problem.code == "not_owned" => Some(false),
            _ => None,
        }
    }
}

/// One renewal; false if nobody knows.
async fn renew(client: &Tenant<Plain>, held: &mut Held, by: Moment) -> Result<bool, Lost> {
    let (me, class) = (&client.me, &client.class);
    let (sent, began) = (me.clock.now(), me.now());
    let path = ["locks", held.name.as_str(), "renew"];
    let ask = json!({
        "token": held.key,
        "fence": held.fence,
        "ttl_ms": class.ttl.as_millis(),
        "lock_delay_ms": millis(class.release.lock_delay),
    });
    let renewed: Option<Asked<Value>> = until(&me.clock, by, client.daemon.post(&path, &ask)).await;
    match renewed {
        Some(Ok(Ok(_))) => {
            held.deadline = held.deadline.max(sent + Plain::usable(client));
            held.proven = Some(held.deadline);
            let span = me.now() - began;
            client.tell((held.attempt, &held.name), "renewed", held.fence, Some(span));
            Ok(true)
        }
        Some(Ok(Err(problem))) if problem.code == "not_owned" => Err(Lost),
        _ => Ok(false),
    }
}
