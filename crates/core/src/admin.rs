//! The operator API of a running client: override a policy field, clear an override, break a lease.

use std::sync::Arc;
use std::time::Duration;

use crate::client::Locks;
use crate::event::{EventKind, EventSubject};
use crate::keeper::KeeperCommand;
use crate::policy::Change;
use crate::policy_task;
use crate::store::{ReleaseRequest, ReleaseResponse, StoreError, bounded_call};
use crate::types::{Fence, InvalidInput, Name};

// An operator waits for this call.
const BREAK_LEASE_TIMEOUT: Duration = Duration::from_secs(5);

impl Locks {
    /// Overrides one field of a class at runtime, e.g. `acquire.on_error` to `fail-closed`, with a
    /// reason and for a limited time. Afterwards it reverts by itself. Existing holds of the class
    /// follow the change at once.
    ///
    /// # Errors
    /// Unknown class or field, empty reason, or a class that could not work. Nothing has changed
    /// then.
    pub fn set_policy(
        &self,
        class: &str,
        field: &str,
        value: &str,
        reason: &str,
        lasting: Duration,
    ) -> Result<Change, InvalidInput> {
        let now = self.inner.context.clock.now();
        let change = self.inner.policies.set_override(class, field, value, reason, lasting, now)?;
        self.announce_change(&change);
        Ok(change)
    }

    /// Clears an override before its end.
    ///
    /// # Errors
    /// The field is not overridden.
    pub fn clear_policy(&self, class: &str, field: &str) -> Result<Change, InvalidInput> {
        let now = self.inner.context.clock.now();
        let change = self.inner.policies.clear_override(class, field, now)?;
        self.announce_change(&change);
        Ok(change)
    }

    /// Breaks the lease of another holder: exactly the grant with the fence `seen`, not a later
    /// one. The name is free at once, or granted to the next waiter, with a greater fence. The
    /// broken holder notices at its next renewal and follows its class. Targets that check fences
    /// refuse its writes.
    ///
    /// # Errors
    /// The reason is empty, or the store did not answer.
    pub async fn break_lease(
        &self,
        name: &Name,
        seen: Fence,
        by: &str,
    ) -> Result<ReleaseResponse, BreakError> {
        if by.trim().is_empty() {
            return Err(InvalidInput::new("reason", by, "must say who breaks the lease, and why").into());
        }
        let request = ReleaseRequest::by_operator(name, seen);
        let context = &self.inner.context;
        let given = bounded_call(
            &*context.clock,
            BREAK_LEASE_TIMEOUT,
            context.store.release(&request, BREAK_LEASE_TIMEOUT),
        )
        .await?;
        if given == ReleaseResponse::Released {
            let class = Arc::from("operator");
            let subject =
                EventSubject { name: Some(name), class: &class, fence: Some(seen), hold: 0, holder: None };
            context.events.emit(&subject, EventKind::Broken { by: by.to_owned() });
        }
        Ok(given)
    }

    fn announce_change(&self, change: &Change) {
        policy_task::emit_change(&self.inner, change);
        self.inner.keeper.send(KeeperCommand::PoliciesChanged);
    }
}

/// The lease was not broken, or the outcome is unknown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BreakError {
    /// The arguments are invalid.
    #[error(transparent)]
    Invalid(#[from] InvalidInput),
    /// The store did not answer. Inspect the lock before a retry.
    #[error(transparent)]
    Store(#[from] StoreError),
}
