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
    /// When the oldest line was written that no queued save covers.
    unsaved_since: Option<Moment>,
    /// When the oldest line was written that a queued save covers. It may still fail.
    saving_since: Option<Moment>,
}

impl AuditWriter {
    pub(super) fn new(log: SegmentedLog, saver: HeadSaver, clock: SharedClock) -> Self {
        let refusals = RefusalBudget::default();
        let mut writer = Self { log, saver, clock, refusals, unsaved_since: None, saving_since: None };
        writer.queue_save();
        writer
    }

    /// Writes until all senders are gone.
    pub(super) fn run(mut self, queue: &Receiver<AuditMessage>) {
        loop {
            let is_saved = self.unsaved_since.is_none() && self.saving_since.is_none();
            let is_idle = is_saved && self.refusals.is_empty();
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
            self.check_save();
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
                    self.queue_save();
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
            Ok(()) => self.queue_save(),
            Err(error) => tracing::error!(%error, "the audit log could not be synced"),
        }
    }

    /// Saves the head of a log that is on the disk.
    fn queue_save(&mut self) {
        // The save replaces one that is not committed yet, and covers its lines too.
        let oldest = self.saving_since.into_iter().chain(self.unsaved_since.take()).min();
        let queued = self.saver.save_later(self.log.head().clone());
        self.saving_since = queued.then(|| oldest.unwrap_or_else(|| self.clock.now()));
    }

    /// A save that has failed is tried again as if its lines were new.
    fn check_save(&mut self) {
        match self.saver.take_result() {
            None => {}
            Some(Ok(())) => self.saving_since = None,
            Some(Err(error)) => {
                tracing::error!(%error, "the head of the audit log could not be saved");
                let saving_since = self.saving_since.take();
                self.unsaved_since = saving_since.into_iter().chain(self.unsaved_since).min();
            }
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
