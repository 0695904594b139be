//! Writes histories to files.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use anyhow::Context;
use leasehold_core::atomic_file::{self, FileAccess};
use leasehold_drill::history::{History, HistoryEntry, HistoryRecord};

/// Writes a history to `NAME.jsonl` in this folder.
pub(crate) fn write_history(folder: &Path, name: &str, history: &History) -> anyhow::Result<()> {
    let path = folder.join(format!("{name}.jsonl"));
    let write = || -> std::io::Result<()> {
        std::fs::create_dir_all(folder)?;
        atomic_file::replace_with(&path, FileAccess::Umask, |file| write_records(file, history))
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

fn write_records(file: &mut File, history: &History) -> std::io::Result<()> {
    let mut out = std::io::BufWriter::new(file);
    for record in &history.records {
        serde_json::to_writer(&mut out, record)?;
        out.write_all(b"\n")?;
    }
    // A reader must learn that records were lost: such a history can never be judged clean.
    if !history.damage.is_empty() {
        let gap = HistoryRecord {
            at: history.records.iter().map(|record| record.at).max().unwrap_or(0),
            who: "director".to_owned(),
            what: HistoryEntry::Gap { lines: u64::try_from(history.damage.len()).unwrap_or(u64::MAX) },
        };
        serde_json::to_writer(&mut out, &gap)?;
        out.write_all(b"\n")?;
    }
    out.flush()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use leasehold_drill::history::{DamagedLine, read};

    use super::*;

    #[test]
    fn a_damaged_history_stays_damaged_when_written() {
        let folder = tempfile::tempdir().unwrap();
        let kept = |history: &History| {
            write_history(folder.path(), "h", history).unwrap();
            let file = std::fs::File::open(folder.path().join("h.jsonl")).unwrap();
            read(std::io::BufReader::new(file)).unwrap()
        };
        let mut history = History::default();
        history.records.push(HistoryRecord { at: 1, who: "w".into(), what: HistoryEntry::Quiet });
        assert_eq!(kept(&history).missing(), None);
        history.damage.push(DamagedLine { line: 2, why: "torn".into() });
        assert!(kept(&history).missing().is_some());
    }
}
