//! Wake-up listeners of the tokens that wait through this daemon.
//!
//! A hint that arrives between an acquire and the client's next long poll is kept for that poll.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold::Name;
use leasehold::clock::Moment;
use leasehold::store::{Store, WakeListener};
use leasehold_core::Token;

use crate::problem::Refusal;

// A client needs this long to come back with its next poll; a hint must not be lost meanwhile.
const LISTENER_GRACE: Duration = Duration::from_secs(5);
// Expired listeners are removed at most this often, so that each call stays cheap.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// One listener per waiting token, shared by all requests that wait for it.
#[derive(Default)]
pub(crate) struct Waiters {
    table: Mutex<WaiterTable>,
}

#[derive(Default)]
struct WaiterTable {
    listeners: HashMap<String, WaiterListener>,
    swept: Moment,
}

struct WaiterListener {
    listener: Arc<WakeListener>,
    /// The identity that waits.
    owner: Arc<str>,
    until: Moment,
}

impl Waiters {
    /// Refuses a new waiter of an identity that has as many as it may have.
    pub(crate) fn check_quota(&self, who: &str, token: &Token, quota: usize) -> Result<(), Refusal> {
        let table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        // Few daemons have as many waiters as one identity may have, so most calls end here.
        if table.listeners.len() < quota || table.listeners.contains_key(token.expose()) {
            return Ok(());
        }
        if table.listeners.values().filter(|waiter| *waiter.owner == *who).count() >= quota {
            return Err(Refusal::quota_reached("waiters", quota));
        }
        Ok(())
    }

    /// Whether this token waits, or waited a moment ago.
    pub(crate) fn knows(&self, token: &Token) -> bool {
        self.table.lock().unwrap_or_else(PoisonError::into_inner).listeners.contains_key(token.expose())
    }

    /// The listener of this token, kept for at least `keep`.
    pub(crate) fn listen(
        &self,
        who: &str,
        store: &dyn Store,
        name: &Name,
        token: &Token,
        keep: Duration,
        now: Moment,
    ) -> Arc<WakeListener> {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        if now.since(table.swept) >= SWEEP_INTERVAL {
            table.swept = now;
            table
                .listeners
                // A listener with another owner is still awaited by a request, whatever its age.
                .retain(|_, notifier| now < notifier.until || Arc::strong_count(&notifier.listener) > 1);
        }
        let until = now + keep + LISTENER_GRACE;
        if let Some(notifier) = table.listeners.get_mut(token.expose()) {
            notifier.until = notifier.until.max(until);
            return Arc::clone(&notifier.listener);
        }
        let listener = Arc::new(store.listen(name, token));
        let notifier = WaiterListener { listener: Arc::clone(&listener), owner: who.into(), until };
        table.listeners.insert(token.expose().to_owned(), notifier);
        listener
    }

    /// Removes the listener of a token that no longer waits.
    pub(crate) fn forget(&self, token: &Token) {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        table.listeners.remove(token.expose());
    }

    pub(crate) fn len(&self) -> usize {
        let table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        table.listeners.len()
    }
}

impl fmt::Debug for Waiters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The keys are tokens, so they must not be printed.
        f.debug_struct("Waiters").field("waiting", &self.len()).finish()
    }
}
