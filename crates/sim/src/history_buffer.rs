//! Collects the history of a run, including the events of every client, in true time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use leasehold_core::clock::Moment;
use leasehold_core::event::{Event, Observer};

use super::clock::ProcessClock;
use super::drift::Nanos;
use super::world::SimWorld;
use leasehold_drill::history::{HistoryEntry, HistoryRecord, to_client_event};

/// The records so far.
#[derive(Debug, Default)]
pub(super) struct SimHistoryBuffer {
    pub(super) records: Vec<HistoryRecord>,
}

impl SimHistoryBuffer {
    pub(super) fn record(&mut self, at: Nanos, who: &str, what: HistoryEntry) {
        self.records.push(HistoryRecord { at, who: who.to_owned(), what });
    }
}

/// Records a client's events.
#[derive(Debug)]
pub(super) struct SimObserver {
    pub(super) world: Arc<SimWorld>,
    pub(super) clock: ProcessClock,
    pub(super) who: String,
    // Set when the process is killed: its dropped tasks must not record anything.
    pub(super) silent: Arc<AtomicBool>,
}

impl Observer for SimObserver {
    fn on_event(&self, event: &Event) {
        if self.silent.load(Ordering::Relaxed) {
            return;
        }
        let mut line = to_client_event(event);
        if line.event == "resumed" {
            self.world.lock().count_fault("daemon: took up a hold of its last life");
        }
        let now = self.world.lock().now;
        // The span is measured by the client's drifting clock. The history needs it in true time.
        line.span = line.span.map(|span| {
            let began = event.at.as_nanos().saturating_sub(span);
            now.saturating_sub(self.clock.true_time_of(Moment::from_nanos(began)))
        });
        self.world.lock().history.record(now, &self.who, HistoryEntry::Event(line));
    }
}
