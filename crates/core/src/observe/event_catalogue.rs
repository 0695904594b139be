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
    ("already_lost", "The lease no longer belonged to this client when it was to be released"),
    ("broken", "An operator broke the lease"),
    ("busy", "Another client held it until the wait was over"),
    ("cancelled", "The caller gave up an acquire that was under way"),
    ("clock_jump", "The store's clock jumped while the lease was held, as a renewal shows"),
    ("debt", "A release could not be confirmed: the collector goes on in the background"),
    ("debt_cleared", "A debt is over: released after all, or the lease has run out"),
    ("duplicate", "The same end was reached twice downstream"),
    ("fell_back", "The store could not be asked and the class is fail-open: the work has a local lock only"),
    ("fence_refused", "A target refused a stale fence"),
    ("healed", "A local-only hold got its lease after all"),
    ("kept", "The work is over and the lease is left to run out, as the class wants"),
    ("not_owned", "The store answers a renewal or release that the lease belongs to another client"),
    ("overlap_confirmed", "Another client certainly held the name while this hold worked"),
    ("overlap_ended", "The work ended while unproven or local-only"),
    ("policy_changed", "A class changed: an override, its end, a file, an escalation"),
    ("policy_refused", "A policy file was not taken: the old one stays in force"),
    ("proven_again", "The lease of an unproven hold is confirmed again"),
    ("release_failed", "One attempt to release was not answered"),
    ("released", "The lease was released"),
    ("renew_failed", "A renewal was not answered"),
    ("renewed", "The lease was extended, with this share of the usable time left"),
    ("resumed", "A hold of an earlier process was taken up again"),
    ("too_late", "A grant arrived too late to be used and was released"),
    ("unavailable", "The store could not be asked and the class is fail-closed: the work does not run"),
    (
        "undone",
        "What an acquire without a hold, or a hold that left its lease alone, may still be granted was undone",
    ),
    ("unproven", "Work goes on without a lease that can be proven, as the class wants"),
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
