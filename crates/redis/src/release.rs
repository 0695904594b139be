//! The release operation, which hands the lease over to the next waiter.

use std::time::Duration;

use leasehold_core::store::{ReleaseAuthority, ReleaseRequest, ReleaseResponse, StoreError, StoreErrorKind};
use redis::Value;

use crate::backend::{CAPABILITIES, Context};
use crate::connection::CallDeadline;
use crate::error;
use crate::script::ScriptCall;
use crate::wake::channel_prefix;

/// Limit of a tombstone's life. No request is in transit for longer than a day.
const MAX_TOMBSTONE_TTL: Duration = Duration::from_secs(24 * 60 * 60);

pub(crate) async fn release(
    store: &Context,
    request: &ReleaseRequest,
    within: Duration,
) -> Result<ReleaseResponse, StoreError> {
    CAPABILITIES.check_names(&request.names)?;
    let limit = CallDeadline::new(store.clock(), within);
    let keys = store.keys().lock_keys(request.names.first());
    let (kind, claim, tombstone) = match &request.authority {
        ReleaseAuthority::Owner(token) => ("owner", token.expose().to_owned(), keys.tombstone(token)),
        // These have no tombstone. The script does not touch the key then, but Redis requires
        // every `KEYS` entry to be named.
        ReleaseAuthority::Operator(fence) => ("seen", fence.to_string(), keys.waiters_flag.clone()),
        ReleaseAuthority::Waiter(token) => ("place", token.expose().to_owned(), keys.waiters_flag.clone()),
        _ => {
            return Err(StoreError::not_done(
                StoreErrorKind::Unsupported,
                "the Redis store does not know this kind of claim",
            ));
        }
    };
    let buried = match (&request.authority, request.tombstone) {
        (ReleaseAuthority::Owner(_), Some(time)) => {
            time.clamp(Duration::from_millis(1), MAX_TOMBSTONE_TTL).as_millis().to_string()
        }
        _ => String::new(),
    };
    let (claimed, channels) = (CAPABILITIES.claim_ttl.as_millis().to_string(), channel_prefix());
    let call = ScriptCall::release(
        vec![&keys.lock, &keys.fence, &tombstone, &keys.waiters_flag, &keys.queue, &keys.entries],
        vec![kind, &claim, &buried, &claimed, &channels],
    );
    let connection = store.renewal_slot.get_or_connect(&limit).await?;
    match call.run(&store.renewal_slot, &connection, &limit).await? {
        Value::Int(1) => Ok(ReleaseResponse::Released),
        Value::Int(0) => Ok(ReleaseResponse::NotOwned),
        _ => Err(error::unexpected_response("a release")),
    }
}
