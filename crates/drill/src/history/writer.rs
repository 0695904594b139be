//! Writes a history: whole lines, a bounded number, from several threads.

use std::fmt;
use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};

use leasehold_core::clock::SharedClock;

use super::record::{HistoryEntry, HistoryRecord};

/// The output of a history, shared by the clients of one process.
#[derive(Clone)]
pub struct HistorySink {
    state: Arc<Mutex<SinkState>>,
    clock: SharedClock,
}

struct SinkState {
    out: Box<dyn Write + Send>,
    lines_left: usize,
    lines_lost: u64,
}

impl fmt::Debug for HistorySink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HistorySink").finish_non_exhaustive()
    }
}

impl HistorySink {
    /// Writes at most `limit` lines. Further ones are counted, and [`HistorySink::close`] records how many.
    #[must_use]
    pub fn new(out: impl Write + Send + 'static, limit: usize, clock: SharedClock) -> Self {
        Self {
            state: Arc::new(Mutex::new(SinkState { out: Box::new(out), lines_left: limit, lines_lost: 0 })),
            clock,
        }
    }

    /// A writer for one client.
    #[must_use]
    pub fn writer(&self, who: impl Into<String>) -> HistoryWriter {
        HistoryWriter { sink: self.clone(), who: who.into().into() }
    }

    /// Writes a line. Errors are only counted: the worker must finish even if the reader is gone.
    pub fn write(&self, record: &HistoryRecord) {
        let mut inner = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(left) = inner.lines_left.checked_sub(1) else {
            inner.lines_lost += 1;
            return;
        };
        inner.lines_left = left;
        if inner.write_line(record).is_err() {
            inner.lines_lost += 1;
        }
    }

    /// Records how many lines are missing, if any. Nothing is written afterwards.
    pub fn close(&self) {
        let mut inner = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // Late records of other threads must not follow the gap.
        inner.lines_left = 0;
        if inner.lines_lost > 0 {
            let record = HistoryRecord {
                at: self.clock.now().as_nanos(),
                who: "writer".to_owned(),
                what: HistoryEntry::Gap { lines: inner.lines_lost },
            };
            let _ = inner.write_line(&record);
        }
    }
}

impl SinkState {
    // One write call per line, so that a killed process leaves whole lines, as far as the pipe allows.
    fn write_line(&mut self, record: &HistoryRecord) -> std::io::Result<()> {
        let mut line = serde_json::to_vec(record)?;
        line.push(b'\n');
        self.out.write_all(&line)?;
        self.out.flush()
    }
}

/// Writes records under one client's name.
#[derive(Debug, Clone)]
pub struct HistoryWriter {
    sink: HistorySink,
    who: Arc<str>,
}

impl HistoryWriter {
    /// Records something that happens now.
    pub fn record(&self, what: HistoryEntry) {
        self.record_at(self.now(), what);
    }

    /// Records something that happened at `at`.
    pub fn record_at(&self, at: u64, what: HistoryEntry) {
        self.sink.write(&HistoryRecord { at, who: self.who.as_ref().to_owned(), what });
    }

    /// The current time of the history's clock.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.sink.clock.now().as_nanos()
    }

    /// The client's name.
    #[must_use]
    pub fn who(&self) -> &str {
        &self.who
    }
}
