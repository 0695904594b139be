//! How the routes of daemon-kept holds refuse.

use std::time::Duration;

use leasehold::Name;

use crate::problem::Refusal;

/// It was held, and is not any more.
pub(super) fn over(name: &Name, reason: &str) -> Refusal {
    Refusal::new(
        http::StatusCode::GONE,
        "lost",
        format!("the hold on {name} is over ({reason}): stop what was done under it"),
    )
    .with(|problem| problem.reason = Some(reason.to_owned()))
}

/// Someone else's, or about something else.
pub(super) fn taken() -> Refusal {
    Refusal::new(
        http::StatusCode::CONFLICT,
        "id_taken",
        "this id stands for another hold; choose one of your own",
    )
}

/// Being acquired, or taken up again.
pub(super) fn not_yet() -> Refusal {
    Refusal::new(
        http::StatusCode::SERVICE_UNAVAILABLE,
        "overloaded",
        "the daemon waits for the store to say what became of this hold; ask again in a moment",
    )
    .retry_after(Duration::from_secs(1))
}

/// Not known, or not any more.
pub(super) fn nothing() -> Refusal {
    Refusal::not_found("there is no such hold, or it has been over for a while")
}
