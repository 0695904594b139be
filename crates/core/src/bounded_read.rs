//! Reads files that others may have named: regular files only, and at most so many bytes.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

/// A file that was read whole.
#[derive(Debug)]
#[non_exhaustive]
pub struct BoundedFile {
    /// What it contains.
    pub bytes: Vec<u8>,
    /// Owner and mode of the file that was read. By name, another file could have come between.
    pub metadata: Metadata,
}

/// Reads a whole file of at most `limit` bytes.
///
/// # Errors
/// It cannot be opened or read, it is not a regular file, or it is longer.
pub fn read_bounded(path: &Path, limit: u64) -> io::Result<BoundedFile> {
    // Without blocking: opening a FIFO would wait for its writer.
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
    let file: File = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    let mut bytes = Vec::new();
    // The size may be wrong: files of /proc say zero, and others grow.
    let read = file.take(limit + 1).read_to_end(&mut bytes)?;
    if u64::try_from(read).is_ok_and(|read| read > limit) {
        let size = metadata.len().max(limit + 1);
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("it has {size} bytes; at most {limit} are allowed"),
        ));
    }
    Ok(BoundedFile { bytes, metadata })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_whole_up_to_the_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "12345").unwrap();
        let whole = read_bounded(&path, 5).unwrap();
        assert_eq!((whole.bytes.as_slice(), whole.metadata.len()), (b"12345".as_slice(), 5));
        let refused = read_bounded(&path, 4).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(refused.to_string(), "it has 5 bytes; at most 4 are allowed");
        // Files of /proc say that they are empty.
        let endless = read_bounded(Path::new("/proc/self/status"), 10).unwrap_err();
        assert_eq!(endless.to_string(), "it has 11 bytes; at most 10 are allowed");
    }

    #[test]
    fn devices_and_folders_are_not_read() {
        for path in ["/dev/zero", "/proc"] {
            let refused = read_bounded(Path::new(path), 10).unwrap_err();
            assert_eq!(refused.to_string(), "it is not a regular file", "{path}");
        }
    }
}
