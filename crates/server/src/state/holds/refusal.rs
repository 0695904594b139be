//! The error responses of the routes of daemon-kept holds.

use std::time::Duration;

use leasehold::Name;
use leasehold_wire::ErrorCode;

use crate::problem::Refusal;

/// The hold has ended.
pub(super) fn hold_over(name: &Name, reason: &str) -> Refusal {
    Refusal::new(
        ErrorCode::Lost,
        format!("the hold on {name} is over ({reason}): stop what was done under it"),
    )
    .with(|problem| problem.reason = Some(reason.to_owned()))
}

/// The id belongs to a hold of another name.
pub(super) fn id_taken() -> Refusal {
    Refusal::new(ErrorCode::IdTaken, "this id stands for another hold; choose one of your own")
}

/// The hold is still being acquired or resumed.
pub(super) fn outcome_pending() -> Refusal {
    Refusal::new(
        ErrorCode::Overloaded,
        "the daemon waits for the store to say what became of this hold; retry in a moment",
    )
    .retry_after(Duration::from_secs(1))
}

/// The text for a hold that does not exist, and for one that the caller may not see.
pub(crate) const NO_SUCH_HOLD: &str = "there is no such hold, or it has been over for a while";

/// The id is unknown, or its end is no longer remembered.
pub(crate) fn no_such_hold() -> Refusal {
    Refusal::not_found(NO_SUCH_HOLD)
}
