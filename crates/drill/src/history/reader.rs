//! Reads a history back, even one from a process that was killed while it wrote a line.

use std::io::{self, BufRead, Read};

use super::record::{HistoryEntry, HistoryRecord};

/// The longest line that is parsed; a longer one is recorded as damage.
pub const MAX_LINE_BYTES: usize = 64 * 1024;
/// The most records of one history. A longer file is refused, not cut.
pub const MAX_RECORDS: usize = 4_000_000;

/// A line that could not be parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DamagedLine {
    /// Line number, from 1.
    pub line: usize,
    /// The parser's complaint, for the report.
    pub why: String,
}

/// A parsed history.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct History {
    /// In the order of the file.
    pub records: Vec<HistoryRecord>,
    /// Lines that could not be parsed. A killed process may leave one torn last line. Any damage makes a
    /// *clean* verdict worthless.
    pub damage: Vec<DamagedLine>,
}

impl History {
    /// The first thing that is missing: an unreadable line, or records beyond the writer's limit.
    #[must_use]
    pub fn missing(&self) -> Option<String> {
        if let Some(DamagedLine { line, why }) = self.damage.first() {
            return Some(format!("line {line} {why}"));
        }
        self.records.iter().find_map(|record| match record.what {
            HistoryEntry::Gap { lines } => {
                Some(format!("{lines} lines were not written down by {}", record.who))
            }
            _ => None,
        })
    }
}

/// Reads a history in bounded memory.
///
/// # Errors
/// The source cannot be read, or has more than [`MAX_RECORDS`] lines.
pub fn read(mut from: impl BufRead) -> io::Result<History> {
    let mut history = History::default();
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        // One byte more than allowed, so that a line that is too long differs from one that just fits.
        let limit = u64::try_from(MAX_LINE_BYTES).unwrap_or(u64::MAX).saturating_add(1);
        let got = from.by_ref().take(limit).read_until(b'\n', &mut line)?;
        if got == 0 {
            break;
        }
        if number > MAX_RECORDS {
            return Err(io::Error::other(format!(
                "the history has more than {MAX_RECORDS} lines; drill for a shorter time"
            )));
        }
        let whole = line.last() == Some(&b'\n');
        // The rest of an endless line is skipped without being kept in memory.
        if !whole && line.len() > MAX_LINE_BYTES {
            from.skip_until(b'\n')?;
        }
        let text = line.trim_ascii();
        if text.is_empty() {
            continue;
        }
        let parsed = if line.len() > MAX_LINE_BYTES {
            Err("is longer than a record can be".to_owned())
        } else {
            serde_json::from_slice(text).map_err(|error| format!("cannot be read: {error}"))
        };
        match parsed {
            Ok(record) => history.records.push(record),
            Err(why) => history.damage.push(DamagedLine { line: number, why }),
        }
    }
    Ok(history)
}
