//! The history as it arrives from the workers.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold_core::clock::{BootClock, Clock, run_until};
use tokio::sync::watch;

use crate::history::{DamagedLine, History, HistoryEntry, HistoryRecord};

/// Collects the records of all workers and of the director. Clones share one history.
#[derive(Debug, Clone)]
pub struct HistoryBuffer {
    history: Arc<Mutex<History>>,
    length: watch::Sender<usize>,
}

impl Default for HistoryBuffer {
    fn default() -> Self {
        Self { history: Arc::default(), length: watch::Sender::new(0) }
    }
}

impl HistoryBuffer {
    /// Records what the director did or observed. Returns the time of the record.
    pub fn record(&self, what: HistoryEntry) -> u64 {
        let at = BootClock.now().as_nanos();
        self.push(HistoryRecord { at, who: "director".to_owned(), what });
        at
    }

    /// Appends a record and wakes all waits.
    pub fn push(&self, record: HistoryRecord) {
        let length = {
            let mut history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
            history.records.push(record);
            history.records.len()
        };
        self.length.send_replace(length);
    }

    /// Appends a line of a worker's output. An unreadable line is recorded as damage.
    pub(super) fn push_line(&self, who: &str, text: &str) {
        match serde_json::from_str(text) {
            Ok(record) => self.push(record),
            Err(error) => {
                // A killed worker may leave half a line. The checker decides whether the history is
                // still complete.
                let mut history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
                let line = history.records.len() + 1;
                history.damage.push(DamagedLine { line, why: format!("from {who}: {error}") });
            }
        }
    }

    /// Number of records so far. Pass it to [`wait_for`](Self::wait_for) to skip older records.
    #[must_use]
    pub fn position(&self) -> usize {
        *self.length.borrow()
    }

    /// Returns a copy of the history so far.
    #[must_use]
    pub fn snapshot(&self) -> History {
        self.history.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes the history so far and starts an empty one. Positions start again at 0.
    #[must_use]
    pub fn take(&self) -> History {
        let taken = std::mem::take(&mut *self.history.lock().unwrap_or_else(PoisonError::into_inner));
        self.length.send_replace(0);
        taken
    }

    /// Waits for the first matching record from this position on. Returns `None` after the timeout.
    /// Calls `fits` once for each record, so that it may count.
    pub async fn wait_for(
        &self,
        from: usize,
        within: Duration,
        mut fits: impl FnMut(&HistoryRecord) -> bool,
    ) -> Option<HistoryRecord> {
        let mut grown = self.length.subscribe();
        let mut next = from;
        let looking = async {
            loop {
                // Marked as seen before the scan: a record that arrives during the scan wakes
                // `changed` below.
                grown.borrow_and_update();
                {
                    let history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
                    let new = history.records.get(next..).unwrap_or_default();
                    if let Some(found) = new.iter().find(|record| fits(record)) {
                        return Some(found.clone());
                    }
                    next = history.records.len().max(next);
                }
                if grown.changed().await.is_err() {
                    return None;
                }
            }
        };
        run_until(&BootClock, BootClock.now() + within, looking).await.flatten()
    }
}
