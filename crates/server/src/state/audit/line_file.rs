//! A file that contains only complete lines, even if the disk fails in the middle of one.

use std::fs::File;
use std::io::{self, Write};

/// The disk operations that the log needs; tests inject failures here.
pub(super) trait Disk: Send + 'static {
    /// Appends all bytes.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Makes the appended bytes durable.
    fn sync(&mut self) -> io::Result<()>;
    /// Truncates the file to `length` bytes.
    fn truncate(&mut self, length: u64) -> io::Result<()>;
}

impl Disk for File {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }

    fn truncate(&mut self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }
}

/// A file that is truncated back to its last complete line after a failed write.
pub(super) struct LineFile<D> {
    disk: D,
    /// The length of the complete lines.
    length: u64,
    /// Bytes of a failed line may follow the complete ones.
    has_partial_line: bool,
}

impl<D: Disk> LineFile<D> {
    /// Wraps a file whose `length` bytes are all complete lines.
    pub(super) fn new(disk: D, length: u64) -> Self {
        Self { disk, length, has_partial_line: false }
    }

    /// Appends a line, and syncs it if `synced`. On an error the line is removed again. While that
    /// fails, no other line is written.
    pub(super) fn append_line(&mut self, line: &str, synced: bool) -> io::Result<()> {
        self.cut_partial_line()?;
        let mut written = self.disk.append(line.as_bytes());
        if synced {
            written = written.and_then(|()| self.disk.sync());
        }
        match &written {
            Ok(()) => self.length += u64::try_from(line.len()).unwrap_or(u64::MAX),
            Err(_) => {
                self.has_partial_line = true;
                // Try at once, in case no other line follows. If it fails, the next write tries
                // again.
                let _ = self.cut_partial_line();
            }
        }
        written
    }

    /// Makes all appended lines durable.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        self.disk.sync()
    }

    /// The length of the complete lines.
    pub(super) fn length(&self) -> u64 {
        self.length
    }

    fn cut_partial_line(&mut self) -> io::Result<()> {
        if self.has_partial_line {
            self.disk.truncate(self.length)?;
            self.has_partial_line = false;
        }
        Ok(())
    }
}
