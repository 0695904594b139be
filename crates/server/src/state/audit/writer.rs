//! The thread that writes the audit log.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use jiff::Timestamp;
use leasehold::clock::{Moment, SharedClock};
use tokio::sync::oneshot;

use super::AuditEntry;
use super::head::HeadSaver;
use super::refusals::RefusalBudget;
use super::segments::{self, SegmentedLog};

/// How long a line that no caller waits for may be missing from the saved head.
const HEAD_SAVE_INTERVAL: Duration = Duration::from_secs(1);

/// What the daemon tells the log's thread.
pub(super) enum AuditMessage {
    /// Write a line. With a reply, it is on the disk before the reply is sent.
    Entry(AuditEntry, Option<oneshot::Sender<()>>),
    /// Make everything durable, save the head, and reply.
    Flush(oneshot::Sender<()>),
}

/// Writes lines and saves the head after them.
pub(super) struct AuditWriter {
    log: SegmentedLog,
    saver: HeadSaver,
    clock: SharedClock,
    refusals: RefusalBudget,
    /// When the oldest line was written that the saved head does not cover.
    unsaved_since: Option<Moment>,
}

impl AuditWriter {
    pub(super) fn new(log: SegmentedLog, saver: HeadSaver, clock: SharedClock) -> Self {
        saver.save_later(log.head().clone());
        Self { log, saver, clock, refusals: RefusalBudget::default(), unsaved_since: None }
    }

    /// Writes until all senders are gone.
    pub(super) fn run(mut self, queue: &Receiver<AuditMessage>) {
        loop {
            let is_idle = self.unsaved_since.is_none() && self.refusals.is_empty();
            let message = if is_idle {
                queue.recv().map_err(|_| RecvTimeoutError::Disconnected)
            } else {
                queue.recv_timeout(HEAD_SAVE_INTERVAL)
            };
            match message {
                Ok(AuditMessage::Entry(entry, reply)) => self.write(entry, reply),
                Ok(AuditMessage::Flush(reply)) => {
                    self.finish();
                    let _ = reply.send(());
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return self.finish(),
            }
            let now = self.clock.now();
            if self.unsaved_since.is_some_and(|since| now.since(since) >= HEAD_SAVE_INTERVAL) {
                self.save_head();
            }
            self.record_omitted(now, false);
        }
    }

    fn write(&mut self, entry: AuditEntry, reply: Option<oneshot::Sender<()>>) {
        if entry.is_refusal && !self.refusals.admit(&entry.actor, self.clock.now()) {
            return;
        }
        match self.append(entry, reply.is_some()) {
            Ok(()) => {
                if let Some(reply) = reply {
                    self.unsaved_since = None;
                    self.saver.save_later(self.log.head().clone());
                    let _ = reply.send(());
                }
            }
            // The dropped sender tells the caller that the line is not on the disk.
            Err(error) => tracing::error!(%error, "the audit log could not be written"),
        }
    }

    fn append(&mut self, entry: AuditEntry, synced: bool) -> io::Result<()> {
        let at = format_time(&self.clock);
        let segment = self.log.head().segment;
        self.log.append(entry, &at, synced)?;
        self.unsaved_since.get_or_insert_with(|| self.clock.now());
        if segment != self.log.head().segment {
            // Otherwise the next start would verify the segment before, too.
            self.save_head();
        }
        Ok(())
    }

    /// The head is saved after the sync: at a power loss, the log must not end before it.
    fn save_head(&mut self) {
        match self.log.sync() {
            Ok(()) => {
                self.unsaved_since = None;
                self.saver.save_later(self.log.head().clone());
            }
            Err(error) => tracing::error!(%error, "the audit log could not be synced"),
        }
    }

    fn record_omitted(&mut self, now: Moment, all: bool) {
        for (actor, omitted) in self.refusals.end_windows(now, all) {
            let entry = segments::daemon_entry("refusals-omitted").omitted(actor, omitted);
            if let Err(error) = self.append(entry, false) {
                tracing::error!(%error, "the audit log could not be written");
            }
        }
    }

    fn finish(&mut self) {
        self.record_omitted(self.clock.now(), true);
        self.save_head();
    }
}

/// The wall clock, as lines show it.
pub(super) fn format_time(clock: &SharedClock) -> String {
    format!("{:.6}", Timestamp::try_from(clock.wall()).unwrap_or_default())
}
