//! Acquire over HTTP.

use std::time::Duration;

use leasehold_core::Holder;
use leasehold_core::policy::check_name;
use leasehold_core::store::{AcquireRequest, AcquireResponse, BusyLease, Grant, StoreError};

use crate::connection::Connections;
use crate::error;
use crate::store::{CAPABILITIES, lock_path};
use crate::wire::{Acquire, ErrorCode, GrantView, Secret, millis};

pub(crate) async fn acquire(
    connections: &Connections,
    request: &AcquireRequest,
    within: Duration,
) -> Result<AcquireResponse, StoreError> {
    CAPABILITIES.check_acquire(request)?;
    let document = Acquire {
        token: Some(Secret::new(request.token.expose())),
        ttl_ms: Some(request.ttl.as_millis()),
        lock_delay_ms: Some(millis(request.lock_delay)),
        floor: request.floor,
        // `max(1)`: the daemon refuses zero, to which shorter times round down.
        queue_ms: request.queue.map(|keep| millis(keep).max(1)),
        // The daemon's own default may be longer than the caller is going to wait.
        within_ms: Some(millis(within).max(1)),
        ..Acquire::default()
    };
    let answer = connections.post(&lock_path(request.names.first(), "/acquire"), &document).await?;
    if answer.status == 200 {
        let granted: GrantView = answer.parse_document("acquire")?;
        let kept = granted.kept_ms.map(Duration::from_millis);
        return Ok(AcquireResponse::Granted(Grant::new(granted.fence).with_ttl(kept)));
    }
    match answer.error_code() {
        Some(ErrorCode::Busy) => Ok(AcquireResponse::Busy(busy(answer.problem().unwrap_or_default()))),
        Some(ErrorCode::Void) => Ok(AcquireResponse::Void),
        _ => Err(error::error_from_response(&answer)),
    }
}

fn busy(problem: crate::wire::Problem) -> BusyLease {
    // The answer is clear without them, so a text that is no holder or class is left out.
    let holder = problem.holder.filter(|holder| Holder::new(holder).is_ok());
    BusyLease::new(holder.unwrap_or_default())
        .with_class(problem.class.filter(|class| check_name(class).is_ok()))
        .with_fence(problem.fence)
        .with_remaining(problem.remaining_ms.map(Duration::from_millis))
        .with_queued(problem.queued.unwrap_or(false))
}
