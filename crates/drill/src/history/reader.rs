//! Reading a history back: lines from anywhere, even from a process that was killed in the middle of one.

use std::io::{self, BufRead, Read};

use super::record::{Entry, Record};

/// The longest line that is read; longer ones are damage.
pub const MOST_LINE: usize = 64 * 1024;
/// The most records of one history; a file with more is refused, not cut.
pub const MOST_RECORDS: usize = 4_000_000;

/// A line that could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// Its number, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub why: String,
}

/// A history as it was read.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct History {
    /// In the order of the file.
    pub records: Vec<Record>,
    /// Lines that could not be read. The last line of a killed process may be torn; anything else makes a verdict
    /// of *clean* worthless.
    pub damage: Vec<Damage>,
}

impl History {
    /// What is missing at first: the writer's bound was reached or lines could not be read.
    #[must_use]
    pub fn lacks(&self) -> Option<String> {
        if let Some(Damage { line, why }) = self.damage.first() {
            return Some(format!("line {line} {why}"));
        }
        self.records.iter().find_map(|record| match record.what {
            Entry::Gap { lines } => Some(format!("{lines} lines were not written down by {}", record.who)),
            _ => None,
        })
    }
}

/// Reads a history, in bounded memory.
///
/// # Errors
/// The source cannot be read, or has more than [`MOST_RECORDS`] lines.
pub fn read(mut from: impl BufRead) -> io::Result<History> {
    let mut history = History::default();
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        let limit = u64::try_from(MOST_LINE).unwrap_or(u64::MAX).saturating_add(1);
        let got = from.by_ref().take(limit).read_until(b'\n', &mut line)?;
        if got == 0 {
            break;
        }
        if number > MOST_RECORDS {
            return Err(io::Error::other(format!(
                "the history has more than {MOST_RECORDS} lines; drill for a shorter time"
            )));
        }
        let whole = line.last() == Some(&b'\n');
        if !whole && line.len() > MOST_LINE {
            from.skip_until(b'\n')?;
        }
        let text = line.trim_ascii();
        if text.is_empty() {
            continue;
        }
        let parsed = if line.len() > MOST_LINE {
            Err("is longer than a record can be".to_owned())
        } else {
            serde_json::from_slice(text).map_err(|error| format!("cannot be read: {error}"))
        };
        match parsed {
            Ok(record) => history.records.push(record),
            Err(why) => history.damage.push(Damage { line: number, why }),
        }
    }
    Ok(history)
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_core::Fence;

    #[test]
    fn what_was_written_is_read_back() {
        let record = Record {
            at: 7,
            who: "w1".into(),
            what: Entry::Claimed {
                attempt: 3,
                until: 9,
                proven_until: Some(8),
                fence: Fence::new(5),
            },
        };
        let line = serde_json::to_string(&record).unwrap();
        assert_eq!(
            line,
            r#"{"at":7,"who":"w1","what":"claimed","attempt":3,"until":9,"proven_until":8,"fence":"5"}"#
        );
        let history = read(format!("{line}\n\n{line}\n").as_bytes()).unwrap();
        assert_eq!(history.records, [record.clone(), record]);
        assert_eq!(history.lacks(), None);
    }

    #[test]
    fn a_torn_line_is_damage_and_the_rest_is_read() {
        let text = "{\"at\":1,\"who\":\"w\",\"what\":\"quiet\"}\n{\"at\":2,\"wh";
        let history = read(text.as_bytes()).unwrap();
        assert_eq!(history.records.len(), 1);
        assert_eq!(history.damage[0].line, 2);
        assert!(history.lacks().is_some());
    }

    #[test]
    fn an_endless_line_costs_no_memory_and_the_next_one_is_read() {
        let mut text = vec![b'x'; 10 * MOST_LINE];
        text.extend_from_slice(b"\n{\"at\":1,\"who\":\"w\",\"what\":\"quiet\"}\n");
        let history = read(&text[..]).unwrap();
        assert_eq!(history.records.len(), 1, "{:?}", history.damage);
        assert_eq!(history.damage.len(), 1);
    }
}
