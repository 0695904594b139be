//! What happens to the hold meanwhile, told in one line each.

use std::sync::Arc;
use std::time::Duration;

use leasehold::event::{Event, Observer, What};
use leasehold::policy::duration::human;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;

use crate::say::say;

/// Takes events off the keeper's hands: it must never wait for a terminal.
#[derive(Debug)]
pub(crate) struct Ear {
    events: UnboundedSender<Event>,
    count: watch::Sender<u64>,
}

impl Observer for Ear {
    fn on(&self, event: &Event) {
        let _ = self.events.send(event.clone());
        self.count.send_modify(|count| *count += 1);
    }
}

/// Tells them.
#[derive(Debug)]
pub(crate) struct Talk {
    events: UnboundedReceiver<Event>,
    /// How long the command ran without a lease that could be proven, so far.
    overlap: Duration,
}

impl Talk {
    /// The two ends, and a counter that changes with every event.
    pub(crate) fn new() -> (Arc<Ear>, Self, watch::Receiver<u64>) {
        let (sender, events) = unbounded_channel();
        let (count, counted) = watch::channel(0);
        let ear = Arc::new(Ear {
            events: sender,
            count,
        });
        let talk = Self {
            events,
            overlap: Duration::ZERO,
        };
        (ear, talk, counted)
    }

    /// Waits for the next event and tells it.
    pub(crate) async fn next(&mut self) {
        match self.events.recv().await {
            Some(event) => self.tell(&event),
            None => std::future::pending().await,
        }
    }

    /// Tells what has come by now.
    pub(crate) fn rest(&mut self) {
        while let Ok(event) = self.events.try_recv() {
            self.tell(&event);
        }
    }

    /// What continuity has cost, if it has cost anything.
    pub(crate) fn overlap(&self) -> Option<Duration> {
        Some(self.overlap).filter(|overlap| !overlap.is_zero())
    }

    fn tell(&mut self, event: &Event) {
        let name = event.name.as_ref().map_or("", |name| name.as_str());
        let class = &event.class;
        match &event.what {
            What::FellBack { cause, .. } => say(&format!(
                "the store could not be asked for {name} ({cause}); class {class} is fail-open, so the command runs\n\
                 with a LOCAL LOCK ONLY and without a fence: others may run it at the same time"
            )),
            What::Healed { after } => {
                self.overlap += *after;
                let fence = event
                    .fence
                    .map_or_else(String::new, |fence| format!(" with fence {fence}"));
                say(&format!(
                    "the store is back: {name} is held{fence}; it was local only for {}",
                    human(*after)
                ));
            }
            What::RenewFailed { failures: 1, .. } => {
                say(&format!(
                    "could not renew {name}: the store did not answer; trying again"
                ));
            }
            What::Unproven => say(&format!(
                "the lease on {name} cannot be proven any more; class {class} lets the command go on,\n\
                 but others may be granted the lock from now on"
            )),
            What::ProvenAgain { overlap, retaken } => {
                self.overlap += *overlap;
                let how = if *retaken {
                    "taken again, with a new fence"
                } else {
                    "confirmed again"
                };
                say(&format!("the lease on {name} is {how} after {}", human(*overlap)));
            }
            What::OverlapEnded { overlap } => self.overlap += *overlap,
            What::OverlapConfirmed => say(&format!(
                "someone else held {name} while the command ran: expect its work to be done twice"
            )),
            What::ClockJump { by, ahead } => {
                let way = if *ahead { "ahead" } else { "back" };
                say(&format!(
                    "the store's clock jumped {way} by about {}: leases may end early; check its time service",
                    human(*by)
                ));
            }
            What::PolicyChanged { change } => say(&format!("policy changed: {change}")),
            What::PolicyRefused { problem } => say(&format!("policy file not taken: {problem}")),
            _ => {}
        }
    }
}
