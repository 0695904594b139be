//! What a waiter observed of the previous holder, for the `acquired` event.

use std::time::Duration;

use crate::clock::Moment;
use crate::event::EventKind;
use crate::store::BusyLease;
use crate::types::Holder;

#[derive(Debug, Default)]
pub(super) struct WaitObservation {
    busy: bool,
    // Expiry of the lease that the last busy response showed.
    expires_at: Option<Moment>,
    // The lease belongs to this process, but the gate is passed: its work has finished, so it is a
    // debt.
    debt_since: Option<Moment>,
}

impl WaitObservation {
    pub(super) fn observe(&mut self, busy: &BusyLease, me: &Holder, now: Moment) {
        self.busy = true;
        self.expires_at = busy.remaining.map(|left| now + left);
        if busy.holder == me.as_str() {
            self.debt_since.get_or_insert(now);
        }
    }

    pub(super) fn acquired_event(&self, took: Duration, now: Moment) -> EventKind {
        EventKind::Acquired {
            took,
            waited: self.busy,
            takeover: self.expires_at.filter(|over| now >= *over).map(|over| now.since(over)),
            behind_debt: self.debt_since.map(|since| now.since(since)),
        }
    }
}
