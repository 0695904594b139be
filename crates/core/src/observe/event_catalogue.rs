//! The list of all events.

/// All events by their name in logs, streams and history, with a description. The documentation is
/// made from this list. A test compares it with
/// [`EventKind::label`](crate::event::EventKind::label).
pub const EVENTS: &[(&str, &str)] = &[
    ("abandoned", "A hold was fenced: its work was asked to stop"),
    (
        "acquired",
        "A lease was granted, after waiting or not, perhaps as a takeover from a holder that was lost",
    ),
    ("already_lost", "The lease no longer belonged to this client when it was released"),
    ("broken", "An operator ended the lease early"),
    ("busy", "Another client held it until the wait was over"),
    ("cancelled", "The caller cancelled an acquire in progress"),
    ("clock_jump", "The store's clock jumped while the lease was held, as seen by a renewal"),
    ("debt", "A release could not be confirmed; the collector continues in the background"),
    ("debt_cleared", "A debt ended: the lease was released after all, or it expired"),
    ("duplicate", "The work reported that it was completed twice"),
    ("fell_back", "The store was unavailable and the class is fail-open: the work has a local lock only"),
    ("fence_refused", "A target refused a stale fence"),
    ("healed", "A local-only hold got its lease after all"),
    ("kept", "The work is over and the lease is left to expire, as the class demands"),
    ("not_owned", "The store refused a renewal or release, because the lease belongs to another client"),
    ("overlap_confirmed", "Another client certainly held the name while this hold worked"),
    ("overlap_ended", "The work ended while unproven or local-only"),
    ("policy_changed", "The policy of a class changed: an override, its end, a file or an escalation"),
    ("policy_refused", "A policy file was rejected; the previous one stays in force"),
    ("proven_again", "The lease of an unproven hold is confirmed again"),
    ("release_failed", "One attempt to release got no response"),
    ("released", "The lease was released"),
    ("renew_failed", "A renewal got no response"),
    ("renewed", "The lease was extended, with this share of the usable time left before"),
    ("resumed", "A hold of an earlier process was resumed"),
    ("too_late", "A grant arrived too late to be used and was released"),
    ("unavailable", "The store was unavailable and the class is fail-closed: the work does not run"),
    ("undone", "A lease that an abandoned acquire or hold might still be granted was undone"),
    ("unproven", "Work continues without a proven lease, as the class allows"),
    ("would_refuse", "A shadow policy would have refused the work here"),
    ("would_stop", "A shadow policy would have stopped the work here"),
];

#[cfg(test)]
mod tests {
    use super::EVENTS;

    // The match in `label` has no default arm, so its source lists every event.
    #[test]
    fn every_event_is_described() {
        let source = include_str!("../event.rs");
        let labels = source.split("impl EventKind").nth(1).unwrap();
        let labels = labels.split("/// One transition.").next().unwrap();
        let mut found: Vec<&str> =
            labels.split("=> \"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
        found.sort_unstable();
        let listed: Vec<&str> = EVENTS.iter().map(|(name, _)| *name).collect();
        assert_eq!(listed, found);
    }
}
