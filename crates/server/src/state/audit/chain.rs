//! Appends sealed lines to one segment of the audit log.

use std::io;

use super::AuditEntry;
use super::head::ChainHead;
use super::key::AuditKey;
use super::line::AuditLine;
use super::line_file::{Disk, LineFile};

/// The newest segment and the end of the chain.
pub(super) struct Chain<D> {
    key: AuditKey,
    head: ChainHead,
    file: LineFile<D>,
}

impl<D: Disk> Chain<D> {
    pub(super) fn new(key: AuditKey, head: ChainHead, file: LineFile<D>) -> Self {
        Self { key, head, file }
    }

    /// Continues a file whose lines end at `head`. They may be in the page cache only, if the process before
    /// was killed: the head that covers them must not be saved before they are on the disk.
    pub(super) fn resume(key: AuditKey, head: ChainHead, mut file: LineFile<D>) -> io::Result<Self> {
        file.sync()?;
        Ok(Self { key, head, file })
    }

    /// Appends the next line, and syncs it if `synced`. On an error no part of the line stays in
    /// the file.
    pub(super) fn append(&mut self, entry: AuditEntry, at: String, synced: bool) -> io::Result<()> {
        let mut line = AuditLine::new(self.head.seq + 1, at, entry, self.head.mac.clone());
        let mac = line.seal(&self.key);
        self.file.append_line(&line.text(), synced)?;
        // Only after the write succeeded: a failed line must not become the next line's `prev`.
        self.head = ChainHead { segment: self.head.segment, seq: line.seq, mac };
        Ok(())
    }

    pub(super) fn sync(&mut self) -> io::Result<()> {
        self.file.sync()
    }

    /// The last line. It may not be on the disk yet.
    pub(super) fn head(&self) -> &ChainHead {
        &self.head
    }

    /// The size of the segment in bytes.
    pub(super) fn segment_length(&self) -> u64 {
        self.file.length()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::fs::File;
    use std::sync::{Arc, Mutex};

    use leasehold_core::rng::OsRandom;

    use super::super::verify::verify_segment;
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
            let key =
                AuditKey::load_or_create(&folder.path().join("audit.key"), &OsRandom::shared()).unwrap().key;
            let mut chain = Chain::new(key.clone(), ChainHead::empty(), LineFile::new(disk, 0));
            let opening = AuditEntry::new("segment.open", &who).segment(1);
            chain.append(opening, String::new(), true).unwrap();
            let mut kept = 1;
            for number in 0..8 {
                if number == 2 {
                    ordered.lock().unwrap().extend(&orders);
                }
                let act = AuditEntry::new("break", &who).detail(&format!("reason {number}"));
                kept += u64::from(chain.append(act, String::new(), true).is_ok());
            }
            assert!(ordered.lock().unwrap().is_empty(), "{orders:?}");
            assert!((4..9).contains(&kept), "{orders:?}: {kept}");
            let found = verify_segment(File::open(&path).unwrap(), &key, None).unwrap().unwrap();
            assert_eq!(found.end.seq, kept, "{orders:?}");
        }
    }

    /// A killed daemon leaves lines in the page cache; a power loss would then remove what the head covers.
    #[test]
    fn finding_15_resumed_lines_are_on_the_disk_before_the_head_covers_them() {
        let folder = tempfile::tempdir().unwrap();
        let file = File::options().append(true).create_new(true).open(folder.path().join("log")).unwrap();
        let disk = FailingDisk { file, faults: Arc::default() };
        let faults = Arc::clone(&disk.faults);
        faults.lock().unwrap().push_back(DiskFault::Unsynced);
        let key =
            AuditKey::load_or_create(&folder.path().join("audit.key"), &OsRandom::shared()).unwrap().key;
        assert!(Chain::resume(key, ChainHead::empty(), LineFile::new(disk, 0)).is_err());
        assert!(faults.lock().unwrap().is_empty());
    }
}
