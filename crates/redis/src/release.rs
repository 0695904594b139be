//! Giving a lease back, to the next waiter if there is one.

use std::time::Duration;

use leasehold_core::store::{CLAIM, Cause, Claim, Failure, Given, Giving};
use redis::Value;

use crate::connection::Limit;
use crate::error;
use crate::script::Call;
use crate::store::Shared;
use crate::wake::channel_prefix;

/// The longest that a token is refused: whatever is on its way for longer is not on its way.
const TOMBSTONE_MAX: Duration = Duration::from_secs(24 * 60 * 60);

pub(crate) async fn release(store: &Shared, giving: &Giving, within: Duration) -> Result<Given, Failure> {
    let limit = Limit::new(store.clock(), within);
    let keys = store.keys().of(&giving.name);
    let (kind, claim, tombstone) = match &giving.claim {
        Claim::Owner(token) => ("owner", token.expose().to_owned(), keys.tombstone(token)),
        // There is no token to bury; the script does not touch this key then, but every key must be named.
        Claim::Seen(fence) => ("seen", fence.to_string(), keys.flag.clone()),
        Claim::Place(token) => ("place", token.expose().to_owned(), keys.flag.clone()),
        _ => {
            return Err(Failure::not_done(
                Cause::Unsupported,
                "the Redis store does not know this kind of claim",
            ));
        }
    };
    let buried = match (&giving.claim, giving.tombstone) {
        (Claim::Owner(_), Some(time)) => time
            .clamp(Duration::from_millis(1), TOMBSTONE_MAX)
            .as_millis()
            .to_string(),
        _ => String::new(),
    };
    let (claimed, channels) = (CLAIM.as_millis().to_string(), channel_prefix());
    let call = Call::release(
        vec![
            &keys.lock,
            &keys.fence,
            &tombstone,
            &keys.flag,
            &keys.queue,
            &keys.places,
        ],
        vec![kind, &claim, &buried, &claimed, &channels],
    );
    let wire = store.keeping.wire(&limit).await?;
    match call.run(&store.keeping, &wire, &limit).await? {
        Value::Int(1) => Ok(Given::Released),
        Value::Int(0) => Ok(Given::NotOwned),
        _ => Err(error::nonsense("a release")),
    }
}
