//! Histories in files.

use std::io::Write;
use std::path::Path;

use anyhow::Context;
use leasehold_drill::history::{Entry, History, Record};

/// Writes a history as `NAME.jsonl` into this folder.
pub(crate) fn keep(folder: &Path, name: &str, history: &History) -> anyhow::Result<()> {
    let path = folder.join(format!("{name}.jsonl"));
    let write = || -> std::io::Result<()> {
        std::fs::create_dir_all(folder)?;
        let mut out = std::io::BufWriter::new(std::fs::File::create(&path)?);
        for record in &history.records {
            serde_json::to_writer(&mut out, record)?;
            out.write_all(b"\n")?;
        }
        // Whoever reads it must know that lines were lost on the way: it can never be called clean.
        if !history.damage.is_empty() {
            let gap = Record {
                at: history.records.iter().map(|record| record.at).max().unwrap_or(0),
                who: "director".to_owned(),
                what: Entry::Gap {
                    lines: u64::try_from(history.damage.len()).unwrap_or(u64::MAX),
                },
            };
            serde_json::to_writer(&mut out, &gap)?;
            out.write_all(b"\n")?;
        }
        out.flush()
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use leasehold_drill::history::{Damage, read};

    use super::*;

    #[test]
    fn a_damaged_history_stays_one() {
        let folder = tempfile::tempdir().unwrap();
        let kept = |history: &History| {
            keep(folder.path(), "h", history).unwrap();
            let file = std::fs::File::open(folder.path().join("h.jsonl")).unwrap();
            read(std::io::BufReader::new(file)).unwrap()
        };
        let mut history = History::default();
        history.records.push(Record {
            at: 1,
            who: "w".into(),
            what: Entry::Quiet,
        });
        assert_eq!(kept(&history).lacks(), None);
        history.damage.push(Damage {
            line: 2,
            why: "torn".into(),
        });
        assert!(kept(&history).lacks().is_some());
    }
}
