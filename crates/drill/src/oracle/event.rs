//! What the names of events mean to the checker: written down again on purpose, not shared with the code that emits them.

use leasehold_core::Fence;

use crate::history::Transition;

/// The event ends an acquire, one way or another.
pub(super) fn begins(event: &str) -> bool {
    matches!(
        event,
        "acquired" | "fell_back" | "busy" | "unavailable" | "cancelled"
    )
}

/// The fence that this event says was granted.
pub(crate) fn granted(event: &Transition) -> Option<Fence> {
    match event.event.as_str() {
        "acquired" | "healed" => event.fence,
        "proven_again" if event.detail.as_deref() == Some("retaken") => event.fence,
        _ => None,
    }
}
