//! Prints events of the hold while the command runs, one message each.

use std::sync::Arc;
use std::time::Duration;

use leasehold::event::{Event, EventKind, Observer};
use leasehold::policy::duration::human;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::message::print_message;

/// Forwards events to the printer. The keeper calls it and must never wait for a terminal.
#[derive(Debug)]
pub(crate) struct EventSender {
    events: UnboundedSender<Event>,
}

impl Observer for EventSender {
    fn on_event(&self, event: &Event) {
        let _ = self.events.send(event.clone());
    }
}

/// Prints events and sums up overlap times.
#[derive(Debug)]
pub(crate) struct EventPrinter {
    events: UnboundedReceiver<Event>,
    /// How long the command has run without a proven lease so far.
    overlap: Duration,
}

impl EventPrinter {
    /// The observer and the printer.
    pub(crate) fn new() -> (Arc<EventSender>, Self) {
        // Unbounded: the keeper must not block, and events are rare.
        let (sender, events) = unbounded_channel();
        let printer = Self { events, overlap: Duration::ZERO };
        (Arc::new(EventSender { events: sender }), printer)
    }

    /// Waits for the next event and prints it.
    pub(crate) async fn next(&mut self) {
        match self.events.recv().await {
            Some(event) => self.print_event(&event),
            None => std::future::pending().await,
        }
    }

    /// Prints all queued events.
    pub(crate) fn print_pending(&mut self) {
        while let Ok(event) = self.events.try_recv() {
            self.print_event(&event);
        }
    }

    /// The total time without a proven lease; `None` if there was none.
    pub(crate) fn overlap(&self) -> Option<Duration> {
        Some(self.overlap).filter(|overlap| !overlap.is_zero())
    }

    fn print_event(&mut self, event: &Event) {
        let name = event.name.as_ref().map_or("", |name| name.as_str());
        let class = &event.class;
        match &event.what {
            EventKind::FellBack { cause, .. } => print_message(&format!(
                "the store could not be asked for {name} ({cause}); class {class} is fail-open, so the command runs\n\
                 with a LOCAL LOCK ONLY and without a fence: others may run it at the same time"
            )),
            EventKind::Healed { after } => {
                self.overlap += *after;
                let fence = event.fence.map_or_else(String::new, |fence| format!(" with fence {fence}"));
                print_message(&format!(
                    "the store is back: {name} is held{fence}; it was local only for {}",
                    human(*after)
                ));
            }
            // Only the first failure of a series: later ones would repeat the same line.
            EventKind::RenewFailed { failures: 1, .. } => {
                print_message(&format!("could not renew {name}: the store did not answer; trying again"));
            }
            EventKind::Unproven => print_message(&format!(
                "the lease on {name} cannot be proven any more; class {class} lets the command go on,\n\
                 but others may be granted the lock from now on"
            )),
            EventKind::ProvenAgain { overlap, retaken } => {
                self.overlap += *overlap;
                let how = if *retaken { "taken again, with a new fence" } else { "confirmed again" };
                print_message(&format!("the lease on {name} is {how} after {}", human(*overlap)));
            }
            EventKind::OverlapEnded { overlap } => self.overlap += *overlap,
            EventKind::OverlapConfirmed => print_message(&format!(
                "another client held {name} while the command ran: expect its work to be done twice"
            )),
            EventKind::ClockJump { by, ahead } => {
                let way = if *ahead { "ahead" } else { "back" };
                print_message(&format!(
                    "the store's clock jumped {way} by about {}: leases may end early; check its time service",
                    human(*by)
                ));
            }
            EventKind::PolicyChanged { change } => print_message(&format!("policy changed: {change}")),
            EventKind::PolicyRefused { problem } => {
                print_message(&format!("policy file not taken: {problem}"))
            }
            _ => {}
        }
    }
}
