//! What event names mean to the oracle. Repeated here on purpose: sharing the emitting code would
//! share its mistakes.

use leasehold_core::Fence;

use crate::history::ClientEvent;

/// The event ends an acquire, and is the first one of its hold.
pub(super) fn begins_hold(event: &str) -> bool {
    matches!(event, "acquired" | "fell_back" | "busy" | "unavailable" | "cancelled")
}

/// The fence that was granted, if the event reports a grant.
pub(crate) fn granted_fence(event: &ClientEvent) -> Option<Fence> {
    match event.event.as_str() {
        "acquired" | "healed" => event.fence,
        "proven_again" if event.detail.as_deref() == Some("retaken") => event.fence,
        _ => None,
    }
}
