//! The lines of the audit log and their hash chain.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use leasehold::Fence;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::AuditEntry;
use super::line_file::{Disk, LineFile};

/// The `prev` of the first line.
const GENESIS: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// One line. The hash covers the fields in this order, so the order is part of the format.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AuditLine {
    seq: u64,
    at: String,
    actor: String,
    action: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fence: Option<Fence>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    forced: Option<bool>,
    prev: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hash: Option<String>,
}

impl AuditLine {
    fn seal(&mut self) -> String {
        self.hash = None;
        let text = serde_json::to_string(self).unwrap_or_default();
        let hash: String = Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
        self.hash = Some(hash.clone());
        hash
    }
}

/// The file and the end of its chain.
pub(super) struct Chain<D> {
    head: ChainHead,
    file: LineFile<D>,
}

impl<D: Disk> Chain<D> {
    pub(super) fn new(last: ChainHead, file: LineFile<D>) -> Self {
        Self { head: last, file }
    }

    /// Appends the next line, and syncs it if `synced`. On an error no part of the line stays in
    /// the file.
    pub(super) fn append(&mut self, act: AuditEntry, at: String, synced: bool) -> io::Result<()> {
        let mut line = AuditLine {
            seq: self.head.lines + 1,
            at,
            actor: act.actor,
            action: act.action.to_owned(),
            name: act.name,
            fence: act.fence,
            detail: act.detail,
            forced: act.forced,
            prev: self.head.hash.clone(),
            hash: None,
        };
        let hash = line.seal();
        let mut text = serde_json::to_string(&line).unwrap_or_default();
        text.push('\n');
        self.file.append_line(&text, synced)?;
        // Only after the write succeeded: a failed line must not become the next line's `prev`.
        self.head = ChainHead { lines: line.seq, hash };
        Ok(())
    }
}

/// Removes a last line without a newline and returns its length. Each line is written together with
/// its newline, so an unterminated one was cut short by a power loss. No caller was told that it is
/// durable.
pub(super) fn truncate_partial_line(path: &Path) -> io::Result<u64> {
    let file = File::options().read(true).write(true).open(path)?;
    let whole = file.metadata()?.len();
    let mut reader = BufReader::new(&file);
    let (mut ended, mut piece) = (0, Vec::new());
    loop {
        piece.clear();
        let read = reader.read_until(b'\n', &mut piece)?;
        if read == 0 || piece.last() != Some(&b'\n') {
            break;
        }
        ended += u64::try_from(read).unwrap_or(u64::MAX);
    }
    if ended < whole {
        file.set_len(ended)?;
        file.sync_data()?;
    }
    Ok(whole.saturating_sub(ended))
}

/// The end of a verified chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainHead {
    /// The number of lines in the log.
    pub lines: u64,
    /// The hash of the last line; the next line's `prev`.
    pub hash: String,
}

/// Verifies an audit log from its first line to its last.
///
/// # Errors
/// The first line at which the chain is broken, or why the file cannot be read.
pub fn verify(path: &Path) -> Result<ChainHead, String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    let mut last = ChainHead { lines: 0, hash: GENESIS.to_owned() };
    for (at, text) in BufReader::new(file).lines().enumerate() {
        let broken = |why: &str| format!("line {}: {why}", at + 1);
        let text = text.map_err(|error| broken(&error.to_string()))?;
        let mut line: AuditLine =
            serde_json::from_str(&text).map_err(|_| broken("is not a line of an audit log"))?;
        let claimed = line.hash.clone().unwrap_or_default();
        if line.seq != last.lines + 1 || line.prev != last.hash {
            return Err(broken("does not follow the line before it: a line was taken out, put in or moved"));
        }
        if line.seal() != claimed {
            return Err(broken("was changed after it was written"));
        }
        last = ChainHead { lines: line.seq, hash: claimed };
    }
    Ok(last)
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::auth::Principal;

    /// A disk that fails on command.
    struct FailingDisk {
        file: File,
        faults: Arc<Mutex<VecDeque<DiskFault>>>,
    }

    #[derive(Debug, Clone, Copy, PartialEq)]
    enum DiskFault {
        /// The disk is full after this many bytes.
        Full(usize),
        Unsynced,
        Uncut,
    }

    impl FailingDisk {
        fn take_fault(&mut self, fails: impl Fn(DiskFault) -> bool) -> Option<DiskFault> {
            self.faults.lock().unwrap().pop_front_if(|order| fails(*order))
        }
    }

    impl Disk for FailingDisk {
        fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
            match self.take_fault(|order| matches!(order, DiskFault::Full(_))) {
                Some(DiskFault::Full(room)) => {
                    self.file.append(&bytes[..room])?;
                    Err(io::ErrorKind::StorageFull.into())
                }
                _ => self.file.append(bytes),
            }
        }

        fn sync(&mut self) -> io::Result<()> {
            let fails = self.take_fault(|order| order == DiskFault::Unsynced);
            fails.map_or(Ok(()), |_| Err(io::ErrorKind::Other.into()))
        }

        fn truncate(&mut self, length: u64) -> io::Result<()> {
            let fails = self.take_fault(|order| order == DiskFault::Uncut);
            fails.map_or_else(|| self.file.truncate(length), |_| Err(io::ErrorKind::Other.into()))
        }
    }

    /// Whatever fails: confirmed lines are in the file, failed lines are not, and the log can be
    /// opened again.
    #[test]
    fn disk_failures_leave_the_chain_valid() {
        let who = Principal::new("ci", []);
        for orders in [
            vec![DiskFault::Full(40)],
            vec![DiskFault::Full(0), DiskFault::Full(7)],
            vec![DiskFault::Unsynced],
            vec![DiskFault::Unsynced, DiskFault::Uncut, DiskFault::Uncut, DiskFault::Full(12)],
            vec![DiskFault::Full(40), DiskFault::Uncut, DiskFault::Uncut, DiskFault::Uncut],
        ] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("audit.jsonl");
            let file = File::options().append(true).create_new(true).open(&path).unwrap();
            let disk = FailingDisk { file, faults: Arc::default() };
            let ordered = Arc::clone(&disk.faults);
            let mut chain = Chain::new(verify(&path).unwrap(), LineFile::new(disk, 0));
            let mut kept = 0;
            for number in 0..8 {
                if number == 2 {
                    ordered.lock().unwrap().extend(&orders);
                }
                let act = AuditEntry::new("break", &who).detail(&format!("reason {number}"));
                kept += u64::from(chain.append(act, String::new(), true).is_ok());
            }
            assert!(ordered.lock().unwrap().is_empty(), "{orders:?}");
            assert!((3..8).contains(&kept), "{orders:?}: {kept}");
            let found = verify(&path).map(|end| end.lines);
            assert_eq!(found, Ok(kept), "{orders:?}");
        }
    }
}
