//! One acquire without a keeper: the lease is the caller's to renew.
//!
//! The protocol is the library's own machine ([`Acquiring`]); here are only the calls and the sleeps. Whatever does not
//! end in a grant is undone.

use std::sync::Arc;

use leasehold::clock::{BootClock, Clock, ClockExt, Moment, until};
use leasehold::leasehold_core::acquire::{Acquiring, End, Next};
use leasehold::leasehold_core::rng::{OsRandom, Random};
use leasehold::policy::Class;
use leasehold::store::{Ask, Busy, Cause, Failure, Giving, Grant, Listener, SharedStore};

/// How it went.
#[derive(Debug)]
pub(crate) enum Taken {
    /// Ours.
    Granted {
        /// Fence and, if it differs, time to live.
        grant: Grant,
        /// From here the time counts.
        sent_at: Moment,
    },
    /// Someone else's.
    Busy(Busy),
    /// Nobody knows.
    Unavailable {
        /// Why.
        cause: Cause,
        /// What the store said last.
        message: String,
    },
}

/// An acquire under way.
#[derive(Debug)]
pub(crate) struct Taking {
    store: SharedStore,
    class: Arc<Class>,
    ask: Ask,
    listener: Option<Listener>,
}

impl Taking {
    /// Not begun.
    pub(crate) fn new(store: &SharedStore, class: &Arc<Class>, ask: Ask) -> Self {
        Self {
            store: Arc::clone(store),
            class: Arc::clone(class),
            ask,
            listener: None,
        }
    }

    /// Asks, waits and asks again as the class says.
    pub(crate) async fn take(&mut self) -> Taken {
        let can_queue = self.store.capabilities().queue;
        let (class, wait) = (Arc::clone(&self.class), self.class.acquire.wait);
        let mut acquiring = Acquiring::new(class, wait, can_queue, BootClock.now());
        let mut next = acquiring.ask(BootClock.now());
        let end = loop {
            next = match next {
                Next::Ask { within, queue } => {
                    self.ask.queue = queue;
                    if queue.is_some() && self.listener.is_none() {
                        self.listener = Some(self.store.listen(&self.ask.name, &self.ask.token));
                    }
                    let sent_at = BootClock.now();
                    let asking = self.store.acquire(&self.ask, within);
                    let answer = until(&BootClock, sent_at + within, asking).await;
                    let (now, random) = (BootClock.now(), OsRandom.bits());
                    match answer {
                        Some(Ok(answer)) => acquiring.answered(answer, sent_at, now, random),
                        Some(Err(failure)) => acquiring.failed(&failure, sent_at, now, random),
                        None => {
                            let silence =
                                Failure::unknown(Cause::TimedOut, format!("no answer within {within:?}"));
                            acquiring.failed(&silence, sent_at, now, random)
                        }
                    }
                }
                Next::Rest { until } => {
                    self.rest(until).await;
                    acquiring.rested(BootClock.now())
                }
                Next::End(end) => break end,
            };
        };
        if !matches!(end, End::Held { .. }) && acquiring.owes_undo() {
            self.undo().await;
        }
        match end {
            End::Held { sent_at, grant } => Taken::Granted { grant, sent_at },
            End::Busy(busy) => Taken::Busy(busy),
            // A local lock needs a process that holds it, and this one ends.
            End::Unavailable { cause, message } | End::FallBack { cause, message } => {
                Taken::Unavailable { cause, message }
            }
            End::TooLate => Taken::Unavailable {
                cause: Cause::TimedOut,
                message: "the grant came too late to be used".into(),
            },
        }
    }

    async fn rest(&self, until: Moment) {
        let sleep = BootClock.sleep_until(until);
        match &self.listener {
            Some(listener) => tokio::select! {
                () = listener.woken() => {}
                () = sleep => {}
            },
            None => sleep.await,
        }
    }

    /// Takes back what the store may have granted, or may still grant, without our knowing.
    pub(crate) async fn undo(&self) {
        let giving = Giving::undo(self.ask.name.clone(), self.ask.token.clone());
        let timeout = self.class.release.timeout;
        for _ in 0..self.class.release.attempts.max(1) {
            let given = self.store.release(&giving, timeout);
            if let Some(Ok(_)) = until(&BootClock, BootClock.now() + timeout, given).await {
                return;
            }
            BootClock.sleep(self.class.acquire.retry).await;
        }
    }
}
