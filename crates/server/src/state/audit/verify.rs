//! Verifies the chain of the audit log over its segments.

use std::fs::File;
use std::io::{BufRead, BufReader, Seek};
use std::path::Path;

use super::head::{self, ChainHead, GENESIS};
use super::key::AuditKey;
use super::line::{AuditLine, HEAD_MISSING, SEGMENT_OPEN, SEGMENT_REMOVE};
use super::segments::{self, SegmentFile};

/// Each retry reads the whole log again.
const MAX_VERIFY_RETRIES: u32 = 8;

/// What the first line of a segment says about the segments before it.
#[derive(Debug)]
struct SegmentOpening {
    seq: u64,
    prev: String,
    damaged_from: Option<u64>,
}

/// A segment whose lines are all as they were written.
#[derive(Debug)]
pub(super) struct VerifiedSegment {
    opening: SegmentOpening,
    pub(super) end: ChainHead,
    /// The newest segment that a line says was removed.
    removed: Option<u64>,
    has_head: bool,
    /// A line says that the head was missing, and when.
    recorded_damage: Vec<String>,
}

/// A segment with a line that was changed, inserted, removed or moved.
#[derive(Debug)]
pub(super) struct BrokenSegment {
    pub(super) why: String,
    /// The last line before the first broken one.
    pub(super) end: Option<ChainHead>,
}

/// Verifies one segment from its first line to its last; `None` if it has no complete line. The
/// line with the number of the head must be the head.
pub(super) fn verify_segment(
    file: File,
    key: &AuditKey,
    head: Option<&ChainHead>,
) -> Result<Option<VerifiedSegment>, BrokenSegment> {
    verify_lines(file, key, head, &mut |_| {})
}

/// Like [`verify_segment`], and passes each line on once it is verified.
pub(super) fn verify_lines(
    file: File,
    key: &AuditKey,
    head: Option<&ChainHead>,
    visit: &mut dyn FnMut(AuditLine),
) -> Result<Option<VerifiedSegment>, BrokenSegment> {
    let mut verified: Option<VerifiedSegment> = None;
    for (at, text) in complete_lines(file).enumerate() {
        let end = verified.as_ref().map(|segment| segment.end.clone());
        let broken = |why: &str| BrokenSegment { why: format!("line {}: {why}", at + 1), end: end.clone() };
        let text = text.map_err(|error| broken(&error.to_string()))?;
        let mut line: AuditLine =
            serde_json::from_slice(&text).map_err(|_| broken("is not a line of an audit log"))?;
        let claimed = line.mac.take().unwrap_or_default();
        let follows = end.as_ref().is_none_or(|end| line.seq == end.seq + 1 && line.prev == end.mac);
        if !follows {
            return Err(broken("does not follow the line before it: a line was removed, inserted or moved"));
        }
        if line.seal(key) != claimed {
            return Err(broken(
                "was changed after it was written, or sealed with another key (--key names the key to use)",
            ));
        }
        let is_head = head.is_some_and(|head| head.seq == line.seq);
        if is_head && head.is_some_and(|head| head.mac != claimed) {
            return Err(broken("is not the line that the daemon remembers: the log was replaced"));
        }
        if let Some(segment) = &mut verified {
            segment.end = ChainHead { segment: segment.end.segment, seq: line.seq, mac: claimed };
            segment.has_head |= is_head;
            if line.action == SEGMENT_REMOVE {
                segment.removed = segment.removed.max(line.segment);
            }
            if line.action == HEAD_MISSING && line.carried_from.is_none() {
                segment.recorded_damage.push(describe_recorded(&line));
            }
            visit(line);
            continue;
        }
        let Some(number) = line.segment.filter(|_| line.action == SEGMENT_OPEN) else {
            return Err(broken("does not open a segment: lines before it were removed"));
        };
        let end = ChainHead { segment: number, seq: line.seq, mac: claimed };
        let recorded_damage = line.damaged_from.iter().map(|_| describe_recorded(&line)).collect();
        let opening =
            SegmentOpening { seq: line.seq, prev: line.prev.clone(), damaged_from: line.damaged_from };
        visit(line);
        verified = Some(VerifiedSegment { opening, end, removed: None, has_head: is_head, recorded_damage });
    }
    Ok(verified)
}

fn describe_recorded(line: &AuditLine) -> String {
    format!("recorded at {}: {}", line.at, line.detail.as_deref().unwrap_or_default())
}

/// Verifies a log that a version without a key has written. It becomes segment 1.
pub(super) fn verify_unkeyed(file: File) -> Result<ChainHead, String> {
    verify_unkeyed_lines(file, &mut |_| {})
}

/// Like [`verify_unkeyed`], and passes each line on once it is verified.
pub(super) fn verify_unkeyed_lines(
    file: File,
    visit: &mut dyn FnMut(AuditLine),
) -> Result<ChainHead, String> {
    let mut end = ChainHead { segment: 1, seq: 0, mac: GENESIS.to_owned() };
    for (at, text) in complete_lines(file).enumerate() {
        let broken = |why: &str| format!("line {}: {why}", at + 1);
        let text = text.map_err(|error| broken(&error.to_string()))?;
        let mut line: AuditLine =
            serde_json::from_slice(&text).map_err(|_| broken("is not a line of an audit log"))?;
        let claimed = line.hash.clone().unwrap_or_default();
        if line.seq != end.seq + 1 || line.prev != end.mac {
            return Err(broken("does not follow the line before it: a line was removed, inserted or moved"));
        }
        if line.unkeyed_hash() != claimed {
            return Err(broken("was changed after it was written"));
        }
        end = ChainHead { segment: 1, seq: line.seq, mac: claimed };
        visit(line);
    }
    Ok(end)
}

/// Whether the first line was written by a version without a key.
pub(super) fn is_unkeyed(file: &File) -> bool {
    let mut text = Vec::new();
    let read = BufReader::new(file).read_until(b'\n', &mut text);
    let rewound = (&mut &*file).rewind();
    let line = serde_json::from_slice::<AuditLine>(&text);
    read.is_ok() && rewound.is_ok() && line.is_ok_and(|line| line.hash.is_some() && line.mac.is_none())
}

/// The lines that end with a newline. A last line without one was cut short, or is being written.
fn complete_lines(file: File) -> impl Iterator<Item = std::io::Result<Vec<u8>>> {
    let mut reader = BufReader::new(file);
    std::iter::from_fn(move || {
        let mut text = Vec::new();
        match reader.read_until(b'\n', &mut text) {
            Ok(_) if text.last() == Some(&b'\n') => Some(Ok(text)),
            Ok(_) => None,
            Err(error) => Some(Err(error)),
        }
    })
}

/// Verifies segments in their order, and that the head is in them.
#[derive(Debug)]
pub(super) struct LogWalk<'a> {
    key: &'a AuditKey,
    head: &'a ChainHead,
    pub(super) end: Option<ChainHead>,
    /// The oldest segment that the log must have: the first one, or those set aside before it.
    oldest: Option<u64>,
    removed: u64,
    has_head: bool,
    /// The end of the chain has no MAC.
    ends_unkeyed: bool,
    segments: usize,
    /// Damage that an earlier start has found and recorded.
    recorded_damage: Vec<String>,
}

impl<'a> LogWalk<'a> {
    pub(super) fn new(key: &'a AuditKey, head: &'a ChainHead) -> Self {
        Self {
            key,
            head,
            end: None,
            oldest: None,
            removed: 0,
            has_head: head.seq == 0,
            ends_unkeyed: false,
            segments: 0,
            recorded_damage: Vec::new(),
        }
    }

    /// Verifies the next segment. On an error, `end` is the last line before the broken one.
    pub(super) fn verify_next(&mut self, segment: &SegmentFile) -> Result<(), String> {
        let file = segment.reader().map_err(|error| error.to_string())?;
        if self.end.is_none() && is_unkeyed(&file) {
            let end = verify_unkeyed(file)?;
            self.has_head |= end == *self.head;
            self.oldest = Some(1);
            self.end = Some(end);
            self.ends_unkeyed = true;
            self.segments += 1;
            return Ok(());
        }
        let verified = verify_segment(file, self.key, Some(self.head)).map_err(|broken| {
            self.end = broken.end.or(self.end.take());
            broken.why
        })?;
        let Some(VerifiedSegment { opening, end, removed, has_head, recorded_damage }) = verified else {
            return Ok(());
        };
        if segment.number.is_some_and(|number| number != end.segment) {
            return Err(format!("is segment {} under the name of another", end.segment));
        }
        let first = opening.damaged_from.unwrap_or(end.segment);
        if let Some(before) = &self.end {
            if first != before.segment + 1 {
                return Err(format!("segment {} is missing", before.segment + 1));
            }
            let follows = opening.seq == before.seq + 1 && opening.prev == before.mac;
            if !follows && opening.damaged_from.is_none() {
                return Err("does not follow the segment before it".to_owned());
            }
        }
        if opening.damaged_from.is_some() {
            // The head may still be in a segment that was set aside just before a crash.
            self.has_head |= (first..end.segment).contains(&self.head.segment);
        }
        self.recorded_damage.extend(recorded_damage);
        self.oldest = self.oldest.or(Some(first));
        self.removed = self.removed.max(removed.unwrap_or(0));
        // A save of the head can be lost, and its segment be removed as the oldest one meanwhile.
        self.has_head |= has_head || self.removed >= self.head.segment;
        self.ends_unkeyed = false;
        self.segments += 1;
        self.end = Some(end);
        Ok(())
    }

    /// Checks that the verified segments reach to the head.
    pub(super) fn check_end(&self) -> Result<(), String> {
        if let Some(end) = self.end.as_ref().filter(|end| end.segment == self.head.segment)
            && end.seq < self.head.seq
        {
            return Err(format!("lines {} to {} at its end are missing", end.seq + 1, self.head.seq));
        }
        // Unkeyed lines count only up to the head: anyone can append to them.
        if !self.has_head || (self.ends_unkeyed && self.end.as_ref() != Some(self.head)) {
            return Err(if self.ends_unkeyed {
                "its lines have no seals although the daemon had a key: it was written anew, or is of an earlier version"
                    .to_owned()
            } else {
                format!("segment {}, which the daemon remembers, is missing", self.head.segment)
            });
        }
        Ok(())
    }

    /// Checks that segments missing at the beginning were removed by the daemon itself.
    fn check_beginning(&self) -> Result<(), String> {
        match self.oldest {
            Some(oldest) if oldest > 1 && self.removed < oldest - 1 => {
                Err(format!("segment {} is missing, and no line says that the daemon removed it", oldest - 1))
            }
            _ => Ok(()),
        }
    }
}

/// A verified audit log.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerifiedAudit {
    /// The number of the last line, counted from the first line ever written.
    pub lines: u64,
    /// The number of segments.
    pub segments: usize,
}

/// Why an audit log is not verified.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AuditError {
    /// A line or a segment was changed, inserted, removed or moved.
    #[error("{0}")]
    Broken(String),
    /// The log, its key or its head cannot be read.
    #[error("{0}")]
    Unusable(String),
}

/// Verifies all segments of the audit log in a daemon's state folder, or beside the file `path`.
/// The key is read from `key`, or from the folder. The daemon may be running.
///
/// # Errors
/// The first place at which the log is broken, or what cannot be read.
pub fn verify(path: &Path, key: Option<&Path>) -> Result<VerifiedAudit, AuditError> {
    let folder = if path.is_dir() { path } else { path.parent().unwrap_or(path) };
    // A file name alone has an empty parent.
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let key = AuditKey::load(key.unwrap_or(&segments::key_path(folder))).map_err(|why| {
        AuditError::Unusable(format!(
            "{why}; without the key nothing can be verified: name a copy of it with --key (a key that the daemon could not use is kept as audit.key.damaged-1)"
        ))
    })?;
    let mut retries = MAX_VERIFY_RETRIES;
    loop {
        let names = segments::names(folder);
        let verified = verify_once(folder, &key);
        // A running daemon has closed or removed a segment meanwhile.
        let is_stale = names != segments::names(folder) && retries > 0;
        if !is_stale || !matches!(verified, Err(AuditError::Broken(_))) {
            return verified;
        }
        retries -= 1;
    }
}

fn verify_once(folder: &Path, key: &AuditKey) -> Result<VerifiedAudit, AuditError> {
    // The head first: lines that a running daemon writes meanwhile come after it.
    let head = head::load_from_file(&folder.join("daemon.db")).map_err(AuditError::Unusable)?;
    let unusable = |error: std::io::Error| AuditError::Unusable(format!("{}: {error}", folder.display()));
    let mut walk = LogWalk::new(key, &head);
    for segment in segments::open_all(folder).map_err(unusable)? {
        let broken = |why| AuditError::Broken(format!("{}: {why}", segment.file_name()));
        walk.verify_next(&segment).map_err(broken)?;
    }
    walk.check_end().and_then(|()| walk.check_beginning()).map_err(AuditError::Broken)?;
    match walk.recorded_damage.first() {
        Some(damage) => Err(AuditError::Broken(damage.clone())),
        None => Ok(VerifiedAudit { lines: walk.end.map_or(0, |end| end.seq), segments: walk.segments }),
    }
}
