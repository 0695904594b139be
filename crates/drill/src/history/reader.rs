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

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_core::Fence;

    #[test]
    fn a_written_record_is_read_back() {
        let record = HistoryRecord {
            at: 7,
            who: "w1".into(),
            what: HistoryEntry::Claimed { attempt: 3, until: 9, proven_until: Some(8), fence: Fence::new(5) },
        };
        let line = serde_json::to_string(&record).unwrap();
        assert_eq!(
            line,
            r#"{"at":7,"who":"w1","what":"claimed","attempt":3,"until":9,"proven_until":8,"fence":"5"}"#
        );
        let history = read(format!("{line}\n\n{line}\n").as_bytes()).unwrap();
        assert_eq!(history.records, [record.clone(), record]);
        assert_eq!(history.missing(), None);
    }

    #[test]
    fn a_torn_line_is_damage_and_the_rest_is_read() {
        let text = "{\"at\":1,\"who\":\"w\",\"what\":\"quiet\"}\n{\"at\":2,\"wh";
        let history = read(text.as_bytes()).unwrap();
        assert_eq!(history.records.len(), 1);
        assert_eq!(history.damage[0].line, 2);
        assert!(history.missing().is_some());
    }

    #[test]
    fn an_endless_line_costs_no_memory_and_the_next_one_is_read() {
        let mut text = vec![b'x'; 10 * MAX_LINE_BYTES];
        text.extend_from_slice(b"\n{\"at\":1,\"who\":\"w\",\"what\":\"quiet\"}\n");
        let history = read(&text[..]).unwrap();
        assert_eq!(history.records.len(), 1, "{:?}", history.damage);
        assert_eq!(history.damage.len(), 1);
    }
}
