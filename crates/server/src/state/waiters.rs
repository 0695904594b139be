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
use crate::state::token_on_name::TokenOnName;

// A client needs this long to come back with its next poll; a hint must not be lost meanwhile.
const LISTENER_GRACE: Duration = Duration::from_secs(5);
// Expired listeners are removed at most this often, so that each call stays cheap.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// One listener per waiting token and name, shared by all requests that wait for it.
#[derive(Default)]
pub(crate) struct Waiters {
    table: Mutex<WaiterTable>,
}

#[derive(Default)]
struct WaiterTable {
    listeners: HashMap<TokenOnName, WaiterListener>,
    swept: Moment,
}

struct WaiterListener {
    listener: Arc<WakeListener>,
    /// The identity that waits.
    owner: Arc<str>,
    until: Moment,
}

impl WaiterListener {
    /// A listener with another owner is still awaited by a request, whatever its age.
    fn is_live(&self, now: Moment) -> bool {
        now < self.until || Arc::strong_count(&self.listener) > 1
    }
}

impl Waiters {
    /// Refuses a new waiter of an identity that has as many as it may have.
    pub(crate) fn check_quota(
        &self,
        who: &str,
        key: &TokenOnName,
        quota: usize,
        now: Moment,
    ) -> Result<(), Refusal> {
        let table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        // Few daemons have as many waiters as one identity may have, so most calls end here.
        if table.listeners.len() < quota || table.listeners.contains_key(key) {
            return Ok(());
        }
        // Listeners that have expired are still in the table until the next sweep.
        let counts = |waiter: &&WaiterListener| *waiter.owner == *who && waiter.is_live(now);
        if table.listeners.values().filter(counts).count() >= quota {
            return Err(Refusal::quota_reached("waiters", quota));
        }
        Ok(())
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
            table.listeners.retain(|_, notifier| notifier.is_live(now));
        }
        let until = now + keep + LISTENER_GRACE;
        let key = TokenOnName::new(name, token);
        if let Some(notifier) = table.listeners.get_mut(&key) {
            notifier.until = notifier.until.max(until);
            return Arc::clone(&notifier.listener);
        }
        let listener = Arc::new(store.listen(name, token));
        let notifier = WaiterListener { listener: Arc::clone(&listener), owner: who.into(), until };
        table.listeners.insert(key, notifier);
        listener
    }

    /// Removes the listener of a token that no longer waits for this name.
    pub(crate) fn forget(&self, name: &Name, token: &Token) {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        table.listeners.remove(&TokenOnName::new(name, token));
    }

    pub(crate) fn len(&self) -> usize {
        let table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        table.listeners.len()
    }
}

impl fmt::Debug for Waiters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiters").field("waiting", &self.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use leasehold::clock::BootClock;
    use leasehold_core::memory::MemoryStore;

    use super::*;

    /// Finding 21 of the security review: one token counted once, and one that had expired counted too.
    #[test]
    fn finding_21_waiters_are_counted_by_token_and_name_while_they_wait() {
        let (waiters, store) = (Waiters::default(), MemoryStore::new(BootClock::shared()));
        let token = Token::parse(&format!("h|scheduler|{:032x}", 1)).unwrap();
        let names: Vec<_> = (0..3).map(|number| Name::new(&format!("a:{number}")).unwrap()).collect();
        let now = Moment::from_nanos(1);
        let listen = |name, now| drop(waiters.listen("a", &store, name, &token, Duration::ZERO, now));
        let check = |now| waiters.check_quota("a", &TokenOnName::new(&names[2], &token), 2, now).is_ok();
        listen(&names[0], now);
        assert!(check(now));
        listen(&names[1], now);
        assert!(!check(now));
        // It waits for the first name still, and gives up another one.
        waiters.forget(&names[2], &token);
        assert!(!check(now));
        assert!(check(now + LISTENER_GRACE), "expired waiters do not count");
    }
}
