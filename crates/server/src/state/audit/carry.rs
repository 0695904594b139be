//! Administrative lines outlive the segment that they were written to.
//!
//! A caller that may only acquire and release locks can fill any number of segments. The removal of the
//! oldest one must not take the trace of an administrator with it.

use std::borrow::Cow;
use std::collections::VecDeque;

use super::AuditEntry;
use super::key::AuditKey;
use super::line::{AuditLine, SEGMENT_OPEN, SEGMENT_REMOVE};
use super::segments::SegmentFile;
use super::verify::{is_unkeyed, verify_lines, verify_unkeyed_lines};

/// Lines that a caller with rights on locks and jobs alone can write in any number.
const ORDINARY_ACTIONS: [&str; 10] = [
    "acquire",
    "hold",
    "release",
    "end",
    "job.command",
    "job.cancel",
    "job.retry",
    "run.command",
    "run.cancel",
    "run.rerun",
];

/// Lines of removed segments to write again, oldest first.
#[derive(Debug)]
pub(super) struct CarriedLines {
    lines: VecDeque<(AuditLine, u64)>,
    bytes: u64,
    max_bytes: u64,
}

impl CarriedLines {
    /// Beyond `max_bytes` the oldest lines are dropped.
    pub(super) fn new(max_bytes: u64) -> Self {
        Self { lines: VecDeque::new(), bytes: 0, max_bytes }
    }

    /// Adds the administrative lines of a segment that is removed.
    ///
    /// # Errors
    /// The first line that is not as it was written. A line is sealed anew, so none is taken from there on.
    pub(super) fn read(&mut self, segment: &SegmentFile, key: &AuditKey) -> Result<(), String> {
        let file = segment.reader().map_err(|error| error.to_string())?;
        let mut keep = |line: AuditLine| self.keep(line);
        if is_unkeyed(&file) {
            return verify_unkeyed_lines(file, &mut keep).map(|_| ());
        }
        verify_lines(file, key, None, &mut keep).map(|_| ()).map_err(|broken| broken.why)
    }

    fn keep(&mut self, line: AuditLine) {
        // The opening of a segment says something only if it records damage.
        let is_bookkeeping =
            line.action == SEGMENT_REMOVE || (line.action == SEGMENT_OPEN && line.damaged_from.is_none());
        if is_bookkeeping || ORDINARY_ACTIONS.contains(&line.action.as_str()) {
            return;
        }
        let bytes = u64::try_from(line.text().len()).unwrap_or(u64::MAX);
        self.bytes += bytes;
        self.lines.push_back((line, bytes));
        while self.bytes > self.max_bytes {
            let Some((_, dropped)) = self.lines.pop_front() else { break };
            self.bytes -= dropped;
        }
    }

    /// The lines as they are written again, each with the time at which it was written first.
    pub(super) fn into_entries(self) -> impl Iterator<Item = (AuditEntry, String)> {
        self.lines.into_iter().map(|(line, _)| {
            let entry = AuditEntry {
                action: Cow::Owned(line.action),
                actor: line.actor,
                name: line.name,
                fence: line.fence,
                detail: line.detail,
                forced: line.forced,
                segment: line.segment,
                damaged_from: line.damaged_from,
                omitted: line.omitted,
                carried_from: Some(line.carried_from.unwrap_or(line.seq)),
                is_refusal: false,
            };
            (entry, line.at)
        })
    }
}
