//! Bells of tokens that wait through this daemon: a hint that comes between an ask and the next poll is kept.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold::Name;
use leasehold::clock::Moment;
use leasehold::leasehold_core::Token;
use leasehold::store::{Listener, Store};

/// How long a bell outlives the registration it belongs to.
const GRACE: Duration = Duration::from_secs(5);
/// How often those that nobody hears any more are looked for.
const SWEEP: Duration = Duration::from_secs(1);

/// One bell per waiting token, however many requests wait for it.
#[derive(Default)]
pub(crate) struct Waiters {
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    bells: HashMap<String, Bell>,
    swept: Moment,
}

struct Bell {
    listener: Arc<Listener>,
    until: Moment,
}

impl Waiters {
    /// The bell of this token, kept for at least so long.
    pub(crate) fn listen(
        &self,
        store: &dyn Store,
        name: &Name,
        token: &Token,
        keep: Duration,
        now: Moment,
    ) -> Arc<Listener> {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        if now.since(table.swept) >= SWEEP {
            table.swept = now;
            table
                .bells
                .retain(|_, bell| now < bell.until || Arc::strong_count(&bell.listener) > 1);
        }
        let until = now + keep + GRACE;
        if let Some(bell) = table.bells.get_mut(token.expose()) {
            bell.until = bell.until.max(until);
            return Arc::clone(&bell.listener);
        }
        let listener = Arc::new(store.listen(name, token));
        let bell = Bell {
            listener: Arc::clone(&listener),
            until,
        };
        table.bells.insert(token.expose().to_owned(), bell);
        listener
    }

    /// This token waits no more.
    pub(crate) fn forget(&self, token: &Token) {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        table.bells.remove(token.expose());
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        let table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        table.bells.len()
    }
}

impl fmt::Debug for Waiters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The keys are secrets.
        f.debug_struct("Waiters").field("waiting", &self.len()).finish()
    }
}
