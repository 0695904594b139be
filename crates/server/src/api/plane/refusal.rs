//! Converts the plane's errors into error responses.

use leasehold_plane::PlaneError;
use leasehold_wire::millis;

use crate::api::problem::Refusal;

impl From<PlaneError> for Refusal {
    fn from(error: PlaneError) -> Self {
        if let PlaneError::Invalid(invalid) = error {
            return invalid.into();
        }
        let mut refusal = Self::new(error.code(), error.to_string());
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
            PlaneError::AlreadyDecided { by, reason, .. } => {
                problem.by = Some(by);
                problem.reason = Some(reason);
            }
            PlaneError::Store(failure) => {
                problem.cause = Some(failure.kind.to_string());
                problem.unknown = Some(failure.unknown);
            }
            _ => {}
        })
    }
}
