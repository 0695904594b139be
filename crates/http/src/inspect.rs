//! Looking: one lock, or many.

use std::time::Duration;

use leasehold_core::Name;
use leasehold_core::store::{Failure, Lease, Listing};

use crate::connection::{Answer, Connections};
use crate::error;
use crate::store::{route, segment};
use crate::wire::{LockList, LockView};

/// A daemon lists no more at once.
const LONGEST: usize = 10_000;

pub(crate) async fn inspect(connections: &Connections, name: &Name) -> Result<Option<Lease>, Failure> {
    let look = async {
        let view: LockView = read(connections.get(&route(name, "")).await?, "show")?;
        view.held.then(|| lease(view)).transpose()
    };
    look.await.map_err(error::read_only)
}

pub(crate) async fn list(connections: &Connections, prefix: &str, limit: usize) -> Result<Listing, Failure> {
    let limit = limit.min(LONGEST);
    let path = format!("/v1/locks?prefix={}&limit={limit}", segment(prefix));
    let look = async {
        let list: LockList = read(connections.get(&path).await?, "list")?;
        let leases = list.locks.into_iter().map(lease).collect::<Result<_, _>>()?;
        Ok(Listing {
            leases,
            truncated: list.truncated,
        })
    };
    look.await.map_err(error::read_only)
}

pub(crate) fn read<T: serde::de::DeserializeOwned>(answer: Answer, what: &str) -> Result<T, Failure> {
    if answer.status == 200 {
        answer.document(what)
    } else {
        Err(error::refused(&answer))
    }
}

fn lease(view: LockView) -> Result<Lease, Failure> {
    Ok(Lease {
        name: Name::new(&view.name).map_err(|_| error::nonsense("a look at locks"))?,
        holder: view.holder.unwrap_or_default(),
        class: view.class,
        fence: view.fence,
        remaining: view.remaining_ms.map(Duration::from_millis),
        age: view.age_ms.map(Duration::from_millis),
        waiters: view.waiters,
    })
}
