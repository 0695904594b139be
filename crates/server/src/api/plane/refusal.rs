//! Converts the plane's errors into error responses.

use leasehold_plane::PlaneError;
use leasehold_wire::{ErrorCode, millis};

use crate::api::problem::Refusal;
use crate::auth::{Principal, Right, Target};

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

/// Passes on the response to a submit or start if the caller may read what its id or key has found. To a
/// caller that may not, a foreign document that does the same work gives the same conflict as another one.
pub(super) fn refuse_foreign<T>(
    who: &Principal,
    kind: &str,
    response: Result<T, PlaneError>,
    reads: impl Fn(&T) -> bool,
) -> Result<T, Refusal> {
    let conflict = if kind == "job" { ErrorCode::DifferentJob } else { ErrorCode::DifferentRun };
    let own = match &response {
        Ok(found) => reads(found),
        // The text names the document, so it is for callers that may read all of them.
        Err(error) => error.code() != conflict || who.may(Right::Read, &Target::Namespace(kind.to_owned())),
    };
    if own {
        return Ok(response?);
    }
    Err(Refusal::new(conflict, "the id or the key is in use for something else; choose another one"))
}
