//! The history as it comes in.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold_core::clock::{BootClock, Clock, until};
use tokio::sync::watch;

use crate::history::{Damage, Entry, History, Record};

/// Collects the lines of all workers and of the director. Clones share it.
#[derive(Debug, Clone)]
pub struct Tape {
    history: Arc<Mutex<History>>,
    grown: watch::Sender<usize>,
}

impl Default for Tape {
    fn default() -> Self {
        Self {
            history: Arc::default(),
            grown: watch::Sender::new(0),
        }
    }
}

impl Tape {
    /// Writes down what the director did or saw, and when.
    pub fn note(&self, what: Entry) -> u64 {
        let at = BootClock.now().as_nanos();
        self.push(Record {
            at,
            who: "director".to_owned(),
            what,
        });
        at
    }

    /// One more record.
    pub fn push(&self, record: Record) {
        let length = {
            let mut history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
            history.records.push(record);
            history.records.len()
        };
        self.grown.send_replace(length);
    }

    /// A worker's line, as it came.
    pub(super) fn line(&self, who: &str, text: &str) {
        match serde_json::from_str(text) {
            Ok(record) => self.push(record),
            Err(error) => {
                let mut history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
                let line = history.records.len() + 1;
                history.damage.push(Damage {
                    line,
                    why: format!("from {who}: {error}"),
                });
            }
        }
    }

    /// How many records there are: a place to wait from.
    #[must_use]
    pub fn place(&self) -> usize {
        *self.grown.borrow()
    }

    /// A copy of everything so far.
    #[must_use]
    pub fn history(&self) -> History {
        self.history
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Everything so far, and nothing of it is kept: places begin anew.
    #[must_use]
    pub fn take(&self) -> History {
        let taken = std::mem::take(&mut *self.history.lock().unwrap_or_else(PoisonError::into_inner));
        self.grown.send_replace(0);
        taken
    }

    /// Waits for the first record from this place on that fits; `None` if none comes in time. Looks at each record once.
    pub async fn wait(
        &self,
        from: usize,
        within: Duration,
        mut fits: impl FnMut(&Record) -> bool,
    ) -> Option<Record> {
        let mut grown = self.grown.subscribe();
        let mut next = from;
        let looking = async {
            loop {
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
        until(&BootClock, BootClock.now() + within, looking)
            .await
            .flatten()
    }
}
