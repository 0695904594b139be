//! What an operator does to a running client: change a policy for a while, take that back, break a lease.

use std::sync::Arc;
use std::time::Duration;

use crate::call::bounded;
use crate::client::Locks;
use crate::event::{Subject, What};
use crate::keeper::Command;
use crate::policy::Change;
use crate::steward;
use crate::store::{Claim, Failure, Given, Giving};
use crate::word::{Fence, Invalid, Name};

/// What an operator waits for a store.
const PATIENCE: Duration = Duration::from_secs(5);

impl Locks {
    /// Changes one field of a class while running, e.g. `acquire.on_error` to `fail-closed`: with a reason, and for
    /// this long, after which it reverts by itself. Holds of the class live by it at once.
    ///
    /// # Errors
    /// No such class or field, no reason, or a class that could not work. Nothing has changed then.
    pub fn set_policy(
        &self,
        class: &str,
        field: &str,
        value: &str,
        reason: &str,
        lasting: Duration,
    ) -> Result<Change, Invalid> {
        let now = self.inner.tools.clock.now();
        let change = self.inner.book.set(class, field, value, reason, lasting, now)?;
        self.in_force(&change);
        Ok(change)
    }

    /// Takes an override back before its time.
    ///
    /// # Errors
    /// There is no such override.
    pub fn clear_policy(&self, class: &str, field: &str) -> Result<Change, Invalid> {
        let now = self.inner.tools.clock.now();
        let change = self.inner.book.clear(class, field, now)?;
        self.in_force(&change);
        Ok(change)
    }

    /// Ends someone else's lease: exactly the grant with the fence that was seen, not a later one. The name is free (or the
    /// next waiter's) at once, with a greater fence; the broken holder learns of it at its next renewal and is fenced or
    /// goes on as its class says. Its writes are refused where fences are checked.
    ///
    /// # Errors
    /// No reason was given, or the store did not answer.
    pub async fn break_lease(&self, name: &Name, seen: Fence, by: &str) -> Result<Given, BreakError> {
        if by.trim().is_empty() {
            return Err(Invalid::new("reason", by, "must say who breaks the lease, and why").into());
        }
        let giving = Giving {
            name: name.clone(),
            claim: Claim::Seen(seen),
            tombstone: None,
        };
        let tools = &self.inner.tools;
        let given = bounded(tools, PATIENCE, tools.store.release(&giving, PATIENCE)).await?;
        if given == Given::Released {
            let class = Arc::from("operator");
            let subject = Subject {
                name: Some(name),
                class: &class,
                fence: Some(seen),
                hold: 0,
                holder: None,
            };
            tools.events.emit(&subject, What::Broken { by: by.to_owned() });
        }
        Ok(given)
    }

    fn in_force(&self, change: &Change) {
        steward::tell(&self.inner, change);
        self.inner.keeper.send(Command::Policies);
    }
}

/// A lease was not broken, or nobody knows.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BreakError {
    /// The call cannot be used.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// The store did not answer. Look at the lock before trying again.
    #[error(transparent)]
    Store(#[from] Failure),
}
