//! Writing a history: whole lines, bounded, from several threads.

use std::fmt;
use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};

use leasehold_core::clock::SharedClock;

use super::record::{Entry, Record};

/// Where lines go. Shared by the clients of one process.
#[derive(Clone)]
pub struct Sink {
    inner: Arc<Mutex<Inner>>,
    clock: SharedClock,
}

struct Inner {
    out: Box<dyn Write + Send>,
    left: usize,
    lost: u64,
}

impl fmt::Debug for Sink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sink").finish_non_exhaustive()
    }
}

impl Sink {
    /// Writes at most this many lines; what comes after is counted, and [`Sink::close`] writes how much it was.
    #[must_use]
    pub fn new(out: impl Write + Send + 'static, limit: usize, clock: SharedClock) -> Self {
        Self {
            inner: Arc::new(Mutex::new(Inner {
                out: Box::new(out),
                left: limit,
                lost: 0,
            })),
            clock,
        }
    }

    /// A pen for one client.
    #[must_use]
    pub fn pen(&self, who: impl Into<String>) -> Pen {
        Pen {
            sink: self.clone(),
            who: who.into().into(),
        }
    }

    /// Writes a line. A reader that is gone is nobody to tell: the worker goes on to its end.
    pub fn write(&self, record: &Record) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(left) = inner.left.checked_sub(1) else {
            inner.lost += 1;
            return;
        };
        inner.left = left;
        if inner.put(record).is_err() {
            inner.lost += 1;
        }
    }

    /// Says whether lines are missing. Nothing is written afterwards.
    pub fn close(&self) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.left = 0;
        if inner.lost > 0 {
            let record = Record {
                at: self.clock.now().as_nanos(),
                who: "writer".to_owned(),
                what: Entry::Gap { lines: inner.lost },
            };
            let _ = inner.put(&record);
        }
    }
}

impl Inner {
    /// One write call per line: a process that is killed leaves whole lines behind, as far as the pipe lets it.
    fn put(&mut self, record: &Record) -> std::io::Result<()> {
        let mut line = serde_json::to_vec(record)?;
        line.push(b'\n');
        self.out.write_all(&line)?;
        self.out.flush()
    }
}

/// Writes under one name.
#[derive(Debug, Clone)]
pub struct Pen {
    sink: Sink,
    who: Arc<str>,
}

impl Pen {
    /// Writes down what is so now.
    pub fn note(&self, what: Entry) {
        self.note_at(self.now(), what);
    }

    /// Writes down what was so then.
    pub fn note_at(&self, at: u64, what: Entry) {
        self.sink.write(&Record {
            at,
            who: self.who.as_ref().to_owned(),
            what,
        });
    }

    /// The moment now, as histories have it.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.sink.clock.now().as_nanos()
    }

    /// Who writes.
    #[must_use]
    pub fn who(&self) -> &str {
        &self.who
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_core::clock::BootClock;

    #[derive(Clone, Default)]
    struct Paper(Arc<Mutex<Vec<u8>>>);

    impl Write for Paper {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn beyond_the_bound_lines_are_counted_and_the_gap_is_told() {
        let paper = Paper::default();
        let sink = Sink::new(paper.clone(), 2, BootClock::shared());
        let pen = sink.pen("w1");
        for _ in 0..5 {
            pen.note(Entry::Quiet);
        }
        sink.close();
        pen.note(Entry::Quiet);
        let text = String::from_utf8(paper.0.lock().unwrap().clone()).unwrap();
        let history = super::super::read(text.as_bytes()).unwrap();
        assert_eq!(history.records.len(), 3, "two lines and the gap: {text}");
        assert_eq!(history.records[2].what, Entry::Gap { lines: 3 });
    }
}
