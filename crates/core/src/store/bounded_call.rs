//! The time limit that every caller puts around a store call.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt;

use super::{StoreError, StoreErrorKind};
use crate::clock::{Clock, run_until};
use crate::policy::duration::human;

/// Runs one store call for at most `within`. A store gets the same limit as an argument, but one
/// that hangs would ignore it.
///
/// # Errors
/// The call failed. A timeout and a panic are unknown outcomes, never a refusal.
pub async fn bounded_call<T>(
    clock: &dyn Clock,
    within: Duration,
    call: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let end = clock.now() + within;
    match run_until(clock, end, AssertUnwindSafe(call).catch_unwind()).await {
        Some(Ok(result)) => result,
        // The panic may have come after the request was sent.
        Some(Err(_)) => Err(StoreError::unknown(StoreErrorKind::Corrupt, "the store's code panicked")),
        None => {
            Err(StoreError::unknown(StoreErrorKind::TimedOut, format!("no answer within {}", human(within))))
        }
    }
}
