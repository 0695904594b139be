//! Inspect one lock, or list many.

use std::time::Duration;

use leasehold_core::policy::check_name;
use leasehold_core::store::{Lease, LeaseList, StoreError};
use leasehold_core::{Holder, Name};

use crate::connection::{Connections, HttpResponse};
use crate::error;
use crate::store::{escape_segment, lock_path};
use crate::wire::{LockList, LockView};

// The daemon refuses a larger limit.
const MAX_LIST_LIMIT: usize = 10_000;

pub(crate) async fn inspect(connections: &Connections, name: &Name) -> Result<LeaseList, StoreError> {
    let look = async {
        let view: LockView = read_document(connections.get(&lock_path(name, "")).await?, "show")?;
        Ok(LeaseList::new(view.held.then(|| lease(view)).transpose()?))
    };
    look.await.map_err(error::mark_read_only)
}

pub(crate) async fn list(
    connections: &Connections,
    prefix: &str,
    limit: usize,
) -> Result<LeaseList, StoreError> {
    let limit = limit.min(MAX_LIST_LIMIT);
    let path = format!("/v1/locks?prefix={}&limit={limit}", escape_segment(prefix));
    let look = async {
        let list: LockList = read_document(connections.get(&path).await?, "list")?;
        let leases = list.locks.into_iter().map(lease).collect::<Result<Vec<_>, _>>()?;
        Ok(LeaseList::new(leases).with_truncated(list.truncated))
    };
    look.await.map_err(error::mark_read_only)
}

pub(crate) fn read_document<T: serde::de::DeserializeOwned>(
    answer: HttpResponse,
    what: &str,
) -> Result<T, StoreError> {
    if answer.status == 200 { answer.parse_document(what) } else { Err(error::error_from_response(&answer)) }
}

fn lease(view: LockView) -> Result<Lease, StoreError> {
    let malformed = || error::malformed_response("a look at locks");
    let name = Name::new(&view.name).map_err(|_| malformed())?;
    // As in a token: an arbitrary text could carry escape sequences to the terminal of an operator.
    let holder = Holder::new(&view.holder.unwrap_or_default()).map_err(|_| malformed())?;
    if view.class.as_deref().is_some_and(|class| check_name(class).is_err()) {
        return Err(malformed());
    }
    Ok(Lease::new(name, holder.as_str())
        .with_class(view.class)
        .with_fence(view.fence)
        .with_remaining(view.remaining_ms.map(Duration::from_millis))
        .with_age(view.age_ms.map(Duration::from_millis))
        .with_waiters(view.waiters))
}
