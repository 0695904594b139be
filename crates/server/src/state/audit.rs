//! The audit log: one JSON line per change, chained by MACs.
//!
//! `mac` is the HMAC-SHA-256 of the line without that field, under a key that is not in the log;
//! `prev` is the MAC of the previous line. A line that is changed, removed or inserted breaks the
//! chain there, and the end of the chain is kept in the daemon's database. An admin action is on
//! the disk before it takes effect. Other lines are written asynchronously.

mod carry;
mod chain;
mod head;
mod key;
mod line;
mod line_file;
mod open;
mod refusals;
mod segments;
#[cfg(test)]
mod tampering_tests;
#[cfg(test)]
mod tests;
mod verify;
mod writer;

use std::borrow::Cow;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use head::HeadSaver;
use leasehold::clock::SharedClock;
use leasehold::{Fence, Name};
use leasehold_core::rng::SharedRandom;
pub(crate) use segments::SegmentLimits;
use tokio::sync::oneshot;
pub use verify::{AuditError, VerifiedAudit, verify};
use writer::{AuditMessage, AuditWriter};

use crate::auth::Principal;
use crate::state::state_db::StateDb;

// Bounds memory when the disk stalls; a line beyond it is dropped and logged as lost.
const MAX_QUEUED_LINES: usize = 65_536;

/// The audit log: a queue to the thread that writes the file.
pub(crate) struct Audit {
    /// `None` without a state directory: nothing is recorded.
    lines: Option<SyncSender<AuditMessage>>,
    /// Damaged files, and notes about missing ones, that are still in the state directory.
    pub(crate) set_aside: usize,
}

/// One audited change.
#[derive(Debug, Clone)]
pub(crate) struct AuditEntry {
    action: Cow<'static, str>,
    actor: String,
    name: Option<String>,
    fence: Option<Fence>,
    detail: Option<String>,
    forced: Option<bool>,
    segment: Option<u64>,
    damaged_from: Option<u64>,
    omitted: Option<u64>,
    carried_from: Option<u64>,
    is_refusal: bool,
}

impl AuditEntry {
    pub(crate) fn new(action: &'static str, who: &Principal) -> Self {
        Self {
            action: Cow::Borrowed(action),
            actor: who.id().to_owned(),
            name: None,
            fence: None,
            detail: None,
            forced: None,
            segment: None,
            damaged_from: None,
            omitted: None,
            carried_from: None,
            is_refusal: false,
        }
    }

    /// A request that was refused. Of many in a minute by one actor, some are only counted.
    pub(crate) fn refusal(action: &'static str, who: &Principal) -> Self {
        Self { is_refusal: true, ..Self::new(action, who) }
    }

    pub(crate) fn name(mut self, name: &Name) -> Self {
        self.name = Some(name.to_string());
        self
    }

    pub(crate) fn fence(self, fence: Fence) -> Self {
        self.fence_if_any(Some(fence))
    }

    pub(crate) fn fence_if_any(mut self, fence: Option<Fence>) -> Self {
        self.fence = fence;
        self
    }

    pub(crate) fn detail(mut self, detail: &str) -> Self {
        self.detail = Some(detail.to_owned());
        self
    }

    /// Whether the change was forced on a holder that may be working.
    pub(crate) fn forced(mut self, forced: bool) -> Self {
        self.forced = Some(forced);
        self
    }

    fn segment(mut self, number: u64) -> Self {
        self.segment = Some(number);
        self
    }

    fn damaged_from(mut self, number: u64) -> Self {
        self.damaged_from = Some(number);
        self
    }

    fn omitted(mut self, actor: String, omitted: u64) -> Self {
        self.actor = actor;
        self.omitted = Some(omitted);
        self
    }
}

impl Audit {
    /// Continues the log in this directory; without one, nothing is recorded. A last line that a
    /// power loss cut short is removed, and the next line says so. A damaged segment is set aside.
    ///
    /// # Errors
    /// The folder or the disk does not allow it. Damage is no error.
    pub(crate) async fn open(
        folder: Option<&Path>,
        state_db: &Arc<StateDb>,
        clock: SharedClock,
        random: &SharedRandom,
        limits: SegmentLimits,
    ) -> Result<Self, String> {
        let Some(folder) = folder else {
            return Ok(Self { lines: None, set_aside: 0 });
        };
        let log = open::open(folder, state_db, random, limits, &writer::format_time(&clock)).await?;
        let saver = HeadSaver::new(Arc::downgrade(state_db));
        let writer = AuditWriter::new(log, saver, clock);
        let (lines, queue) = sync_channel(MAX_QUEUED_LINES);
        thread::Builder::new()
            .name("audit".to_owned())
            .spawn(move || writer.run(&queue))
            .map_err(|error| error.to_string())?;
        Ok(Self { lines: Some(lines), set_aside: segments::count_set_aside(folder) })
    }

    /// Records a change that has happened, without waiting.
    pub(crate) fn record(&self, entry: AuditEntry) {
        let lines = self.lines.as_ref();
        if lines.is_some_and(|lines| lines.try_send(AuditMessage::Entry(entry, None)).is_err()) {
            tracing::error!("the audit log cannot keep up: a line is lost");
        }
    }

    /// Records a change before it happens. False if the line is not on the disk; the change must
    /// then not happen.
    pub(crate) async fn record_before(&self, entry: AuditEntry) -> bool {
        let Some(lines) = &self.lines else { return true };
        let (reply, written) = oneshot::channel();
        lines.try_send(AuditMessage::Entry(entry, Some(reply))).is_ok() && written.await.is_ok()
    }

    /// Waits until all lines are on the disk and the head after them is queued to be saved.
    pub(crate) async fn flush(&self) {
        let Some(lines) = &self.lines else { return };
        let (reply, written) = oneshot::channel();
        if lines.try_send(AuditMessage::Flush(reply)).is_ok() {
            let _ = written.await;
        }
    }
}

impl fmt::Debug for Audit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Audit")
    }
}
