//! The plane's errors as the daemon's refusals.

use http::StatusCode;
use leasehold_http::wire::millis;
use leasehold_plane::PlaneError;

use crate::problem::Refusal;

impl From<PlaneError> for Refusal {
    fn from(error: PlaneError) -> Self {
        if let PlaneError::Invalid(invalid) = error {
            return invalid.into();
        }
        let status = StatusCode::from_u16(error.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut refusal = Self::new(status, error.code(), error.to_string());
        if let Some(after) = error.retry_after() {
            refusal = refusal.retry_after(after);
        }
        refusal.with(|problem| match error {
            PlaneError::Busy { busy, .. } => {
                problem.holder = Some(busy.holder);
                problem.class = busy.class;
                problem.fence = busy.fence;
                problem.remaining_ms = busy.remaining.map(millis);
            }
            PlaneError::Decided { by, reason, .. } => {
                problem.by = Some(by);
                problem.reason = Some(reason);
            }
            PlaneError::Store(failure) => {
                problem.cause = Some(failure.cause.to_string());
                problem.unknown = Some(failure.unknown);
            }
            _ => {}
        })
    }
}
