//! What a waiter saw of the holder before it: what its grant tells beside the grant itself.

use std::time::Duration;

use crate::clock::Moment;
use crate::event::What;
use crate::store::Busy;
use crate::word::Holder;

#[derive(Debug, Default)]
pub(super) struct Seen {
    busy: bool,
    /// When the lease it waits for is over if nobody renews it.
    over_at: Option<Moment>,
    /// Since when it waits behind a lease of this very process whose work is done: a debt.
    debt_since: Option<Moment>,
}

impl Seen {
    pub(super) fn look(&mut self, busy: &Busy, me: &Holder, now: Moment) {
        self.busy = true;
        self.over_at = busy.remaining.map(|left| now + left);
        if busy.holder == me.as_str() {
            self.debt_since.get_or_insert(now);
        }
    }

    pub(super) fn acquired(&self, took: Duration, now: Moment) -> What {
        What::Acquired {
            took,
            waited: self.busy,
            takeover: self
                .over_at
                .filter(|over| now >= *over)
                .map(|over| now.since(over)),
            behind_debt: self.debt_since.map(|since| now.since(since)),
        }
    }
}
