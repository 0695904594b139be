//! Before the store is asked for a lease: what the class demands of it, and the process-local gate.

use std::sync::Arc;

use crate::call::bounded;
use crate::client::Inner;
use crate::clock::Moment;
use crate::error::{Busy, Error};
use crate::event::{Subject, What};
use crate::gate::{Permit, Place};
use crate::policy::{Class, check_store};
use crate::store::{Cause, Promise};
use crate::word::{Holder, Name};

/// One acquire on its way to the gate. Dropping it half way is an acquire cancelled, and told as such.
pub(super) struct Entering<'a> {
    pub(super) inner: &'a Inner,
    pub(super) id: u64,
    pub(super) started: Moment,
    pub(super) name: &'a Name,
    pub(super) class: &'a Arc<Class>,
    /// Who asks, if it is not the client itself.
    pub(super) holder: Option<&'a Holder>,
    pub(super) over: bool,
}

impl Entering<'_> {
    /// Waits for its turn in this process.
    ///
    /// # Errors
    /// The store does not promise what the class demands, or cannot be asked about it.
    pub(super) async fn enter(mut self, place: Place) -> Result<Result<Permit, Busy>, Error> {
        if self.class.requires > Promise::Volatile {
            self.demand().await.inspect_err(|_| self.over = true)?;
        }
        let (gate, clock) = (&self.inner.gate, &*self.inner.tools.clock);
        let until = self.started + self.class.acquire.wait;
        let entered = gate.enter(self.name, place, until, clock).await;
        self.over = true;
        Ok(entered.map_err(|here| self.held_here(here.at)))
    }

    /// A class that demands more than the store promises is not served, whatever its policy on errors: it is not an
    /// outage.
    async fn demand(&self) -> Result<(), Error> {
        let (tools, within) = (&self.inner.tools, self.class.acquire.timeout);
        match bounded(tools, within, tools.store.promise(within)).await {
            Ok(promised) => Ok(check_store(self.class, &promised)?),
            Err(failure) => {
                let took = tools.clock.now().since(self.started);
                let cause = failure.cause;
                self.emit(What::Unavailable { took, cause });
                let message = failure.message().to_owned();
                Err(unavailable(self.name, self.class, cause, message))
            }
        }
    }

    fn held_here(&self, at: Place) -> Busy {
        let took = self.inner.tools.clock.now().since(self.started);
        let holder = self.inner.tools.holder.to_string();
        self.emit(What::Busy {
            took,
            holder: holder.clone(),
            held_here: true,
        });
        let store_says = crate::store::Busy {
            holder,
            ..Default::default()
        };
        let me = self.inner.tools.holder.as_str();
        let mut busy = Busy::from_store(self.name.clone(), store_says, took, me);
        busy.held_at = Some(at);
        busy
    }

    fn emit(&self, what: What) {
        let subject = Subject {
            name: Some(self.name),
            class: &self.class.name,
            fence: None,
            hold: self.id,
            holder: self.holder,
        };
        self.inner.tools.events.emit(&subject, what);
    }
}

impl Drop for Entering<'_> {
    fn drop(&mut self) {
        if !self.over {
            let took = self.inner.tools.clock.now().since(self.started);
            self.emit(What::Cancelled { took });
        }
    }
}

/// The answer of a fail-closed class.
pub(super) fn unavailable(name: &Name, class: &Class, cause: Cause, message: String) -> Error {
    Error::Unavailable {
        name: name.clone(),
        class: class.name.to_string(),
        cause,
        message,
        retry_after: class.acquire.retry_after,
    }
}
