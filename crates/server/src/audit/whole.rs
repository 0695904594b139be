//! A file of whole lines, on a disk that may fail in the middle of one.

use std::fs::File;
use std::io::{self, Write};

/// What is asked of the disk.
pub(super) trait Disk: Send + 'static {
    /// Puts all of this behind what is there.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// What was appended outlives the machine.
    fn sync(&mut self) -> io::Result<()>;
    /// Takes out what is behind the first `length` bytes.
    fn cut(&mut self, length: u64) -> io::Result<()>;
}

impl Disk for File {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }

    fn cut(&mut self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }
}

/// The file.
pub(super) struct Whole<D> {
    disk: D,
    /// How much of it is whole lines.
    length: u64,
    /// There may be something behind those.
    spoiled: bool,
}

impl<D: Disk> Whole<D> {
    /// A file of so many bytes, all of them whole lines.
    pub(super) fn new(disk: D, length: u64) -> Self {
        Self {
            disk,
            length,
            spoiled: false,
        }
    }

    /// The line is in the file, and on the disk if that is wanted; or nothing of it is. As long as what is left of one that
    /// failed cannot be taken out, no other is written behind it.
    pub(super) fn write(&mut self, line: &str, synced: bool) -> io::Result<()> {
        self.clear()?;
        let mut written = self.disk.append(line.as_bytes());
        if synced {
            written = written.and_then(|()| self.disk.sync());
        }
        match &written {
            Ok(()) => self.length += u64::try_from(line.len()).unwrap_or(u64::MAX),
            Err(_) => {
                self.spoiled = true;
                // At once, should no other line follow; if that fails too, before the next one.
                let _ = self.clear();
            }
        }
        written
    }

    fn clear(&mut self) -> io::Result<()> {
        if self.spoiled {
            self.disk.cut(self.length)?;
            self.spoiled = false;
        }
        Ok(())
    }
}
