//! The history as it is made, and the reader of a client's event stream that writes into it in true time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use leasehold_core::clock::Moment;
use leasehold_core::event::{Event, Observer};

use super::clock::ProcessClock;
use super::drift::Nanos;
use super::world::World;
use crate::history::{Entry, Record, transition};

/// The lines so far.
#[derive(Debug, Default)]
pub(super) struct Tape {
    pub(super) records: Vec<Record>,
}

impl Tape {
    pub(super) fn note(&mut self, at: Nanos, who: &str, what: Entry) {
        self.records.push(Record {
            at,
            who: who.to_owned(),
            what,
        });
    }
}

/// Writes a client's events down. Their times and spans are the client's; a history has the true ones.
#[derive(Debug)]
pub(super) struct Tap {
    pub(super) world: Arc<World>,
    pub(super) clock: ProcessClock,
    pub(super) who: String,
    /// A killed process says nothing more.
    pub(super) silent: Arc<AtomicBool>,
}

impl Observer for Tap {
    fn on(&self, event: &Event) {
        if self.silent.load(Ordering::Relaxed) {
            return;
        }
        let mut line = transition(event);
        if line.event == "resumed" {
            self.world.lock().count("daemon: took up a hold of its last life");
        }
        let now = self.world.lock().now;
        line.span = line.span.map(|span| {
            let began = event.at.as_nanos().saturating_sub(span);
            now.saturating_sub(self.clock.when(Moment::from_nanos(began)))
        });
        self.world.lock().tape.note(now, &self.who, Entry::Event(line));
    }
}
