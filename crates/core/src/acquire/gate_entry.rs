//! The steps before the first request: check the store's promise, then enter the process-local
//! gate.

use std::sync::Arc;

use crate::client::ClientInner;
use crate::clock::Moment;
use crate::error::{Busy, Error};
use crate::event::{EventKind, EventSubject};
use crate::gate::{CallSite, Permit};
use crate::policy::{Class, check_store};
use crate::store::{Promise, StoreErrorKind, bounded_call};
use crate::types::{Holder, Name};

/// One acquire before it has passed the gate. Dropping it unfinished reports a cancelled acquire.
pub(super) struct GateEntry<'a> {
    pub(super) inner: &'a ClientInner,
    pub(super) id: u64,
    pub(super) started: Moment,
    pub(super) name: &'a Name,
    pub(super) class: &'a Arc<Class>,
    // The requesting holder, if it is not the client itself.
    pub(super) holder: Option<&'a Holder>,
    pub(super) ended: bool,
}

impl GateEntry<'_> {
    /// Checks the promise and waits for the permit of this process.
    ///
    /// # Errors
    /// The store promises less than the class requires, or does not answer.
    pub(super) async fn enter(mut self, place: CallSite) -> Result<Result<Permit, Busy>, Error> {
        // Every store promises at least `Volatile`, so most classes need no call here.
        if self.class.requires > Promise::Volatile {
            self.check_promise().await.inspect_err(|_| self.ended = true)?;
        }
        let (gate, clock) = (&self.inner.gate, &*self.inner.context.clock);
        let until = self.started + self.class.acquire.wait;
        let entered = gate.enter(self.name, place, until, clock).await;
        self.ended = true;
        Ok(entered.map_err(|here| self.busy_locally(here.at)))
    }

    // A class that requires more than the store promises is refused even if it is fail-open: this
    // is a configuration problem, not an outage.
    async fn check_promise(&self) -> Result<(), Error> {
        let (context, within) = (&self.inner.context, self.class.acquire.timeout);
        match bounded_call(&*context.clock, within, context.store.promise(within)).await {
            Ok(promised) => Ok(check_store(self.class, &promised)?),
            Err(failure) => {
                let took = context.clock.now().since(self.started);
                let cause = failure.kind;
                self.emit(EventKind::Unavailable { took, cause });
                let message = failure.message().to_owned();
                Err(unavailable_error(self.name, self.class, cause, message))
            }
        }
    }

    fn busy_locally(&self, at: CallSite) -> Busy {
        let took = self.inner.context.clock.now().since(self.started);
        let holder = self.inner.context.holder.to_string();
        self.emit(EventKind::Busy { took, holder: holder.clone(), held_here: true });
        let store_says = crate::store::BusyLease::new(holder);
        let me = self.inner.context.holder.as_str();
        let mut busy = Busy::from_store(self.name.clone(), store_says, took, me);
        busy.held_at = Some(at);
        busy
    }

    fn emit(&self, what: EventKind) {
        let subject = EventSubject {
            name: Some(self.name),
            class: &self.class.name,
            fence: None,
            hold: self.id,
            holder: self.holder,
        };
        self.inner.context.events.emit(&subject, what);
    }
}

impl Drop for GateEntry<'_> {
    fn drop(&mut self) {
        if !self.ended {
            let took = self.inner.context.clock.now().since(self.started);
            self.emit(EventKind::Cancelled { took });
        }
    }
}

/// The error of a fail-closed class.
pub(super) fn unavailable_error(name: &Name, class: &Class, cause: StoreErrorKind, message: String) -> Error {
    Error::Unavailable {
        name: name.clone(),
        class: class.name.to_string(),
        cause,
        message,
        retry_after: class.acquire.retry_after,
    }
}
