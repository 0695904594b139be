//! The files of the audit log: the newest segment is `audit.jsonl`, a closed one `audit-000001.jsonl`.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Seek};
use std::os::unix::fs::{DirEntryExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use leasehold_core::atomic_file::{FileAccess, replace_durably, sync_folder};

use super::AuditEntry;
use super::carry::CarriedLines;
use super::chain::Chain;
use super::head::ChainHead;
use super::key::{AuditKey, has_entry};
use super::line::{SEGMENT_OPEN, SEGMENT_REMOVE};
use super::line_file::LineFile;
use crate::auth::Principal;

/// The file name of the newest segment.
pub(super) const NEWEST_SEGMENT: &str = "audit.jsonl";
const DAMAGED_FILE_MARK: &str = ".damaged-";

/// The bounds of the log on the disk.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SegmentLimits {
    /// The size at which a segment is closed.
    pub(crate) max_bytes: u64,
    /// The number of segments that are kept, the newest one included.
    pub(crate) max_segments: usize,
}

/// A segment to read.
#[derive(Debug)]
pub(super) struct SegmentFile {
    /// The number in the file's name; `None` for the newest segment.
    pub(super) number: Option<u64>,
    pub(super) path: PathBuf,
    opened: Option<File>,
}

impl SegmentFile {
    pub(super) fn reader(&self) -> io::Result<File> {
        match &self.opened {
            Some(file) => file.try_clone().and_then(|mut file| file.rewind().map(|()| file)),
            None => File::open(&self.path),
        }
    }

    fn inode(&self) -> u64 {
        self.reader().and_then(|file| file.metadata()).map_or(0, |found| found.ino())
    }

    pub(super) fn file_name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }
}

pub(super) fn key_path(folder: &Path) -> PathBuf {
    folder.join("audit.key")
}

fn closed_path(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("audit-{number:06}.jsonl"))
}

/// All segments, oldest first.
pub(super) fn open_all(folder: &Path) -> io::Result<Vec<SegmentFile>> {
    let path = folder.join(NEWEST_SEGMENT);
    // Opened before the folder is listed: a running daemon may close this segment meanwhile, and it
    // must be read once.
    let newest = match File::open(&path) {
        Ok(file) => Some(file),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    let newest_inode = newest.as_ref().map(|file| file.metadata().map(|found| found.ino())).transpose()?;
    let mut segments = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("audit-")?.strip_suffix(".jsonl"));
        let Some(number) = number.and_then(|number| number.parse().ok()) else { continue };
        if Some(entry.ino()) != newest_inode {
            segments.push(SegmentFile { number: Some(number), path: entry.path(), opened: None });
        }
    }
    segments.sort_by_key(|segment| segment.number);
    segments.extend(newest.map(|file| SegmentFile { number: None, path, opened: Some(file) }));
    Ok(segments)
}

/// The names of all segments, to see whether another process has changed them.
pub(super) fn names(folder: &Path) -> Vec<String> {
    let segments = open_all(folder).unwrap_or_default();
    segments.iter().map(|segment| format!("{} {}", segment.file_name(), segment.inode())).collect()
}

/// How many damaged files, and notes about missing ones, are still in the folder.
pub(super) fn count_set_aside(folder: &Path) -> usize {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_name().to_string_lossy().contains(DAMAGED_FILE_MARK)).count()
}

/// Renames a damaged file, so that it is kept but not read any more. Returns its new name.
pub(super) fn set_aside(path: &Path) -> io::Result<String> {
    let (kept, name) = unused_name(path)?;
    fs::rename(path, &kept)?;
    sync_folder(&kept)?;
    Ok(name)
}

/// Writes a note in place of what is missing: there is no damaged file to keep, and the damage must stay
/// visible until somebody has looked. Returns the note's name.
pub(super) fn write_damage_note(folder: &Path, why: &str) -> io::Result<String> {
    let (path, name) = unused_name(&folder.join("audit.missing"))?;
    replace_durably(&path, FileAccess::Private, format!("{why}\n").as_bytes())?;
    Ok(name)
}

fn unused_name(path: &Path) -> io::Result<(PathBuf, String)> {
    let file_name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut copy = 1_u32;
    loop {
        let name = format!("{file_name}{DAMAGED_FILE_MARK}{copy}");
        let unused = path.with_file_name(&name);
        if !has_entry(&unused) {
            return Ok((unused, name));
        }
        copy += 1;
    }
}

/// Renames the newest segment to its closed name.
pub(super) fn close_newest(folder: &Path, number: u64) -> io::Result<()> {
    let closed = closed_path(folder, number);
    let newest = folder.join(NEWEST_SEGMENT);
    if closed.try_exists()? {
        // An earlier attempt has closed it and could not begin the next one.
        return if newest.try_exists()? { Err(ErrorKind::AlreadyExists.into()) } else { Ok(()) };
    }
    fs::rename(newest, &closed)?;
    sync_folder(&closed)
}

/// The log as the daemon writes it: the newest segment and the names of the closed ones.
pub(super) struct SegmentedLog {
    folder: PathBuf,
    key: AuditKey,
    limits: SegmentLimits,
    chain: Chain<File>,
}

impl SegmentedLog {
    /// Continues the newest segment, whose lines are verified and end at `head`.
    pub(super) fn resume(
        folder: &Path,
        key: AuditKey,
        limits: SegmentLimits,
        head: ChainHead,
    ) -> io::Result<Self> {
        let file = File::options().append(true).open(folder.join(NEWEST_SEGMENT))?;
        let length = file.metadata()?.len();
        let chain = Chain::resume(key.clone(), head, LineFile::new(file, length))?;
        Ok(Self { folder: folder.to_owned(), key, limits, chain })
    }

    /// Begins the segment after `end` with `opening`; there is no newest segment.
    pub(super) fn begin(
        folder: &Path,
        key: AuditKey,
        limits: SegmentLimits,
        end: &ChainHead,
        opening: AuditEntry,
        at: String,
    ) -> io::Result<Self> {
        let chain = write_opening(folder, &key, end, opening, at)?;
        publish_segment(folder)?;
        Ok(Self { folder: folder.to_owned(), key, limits, chain })
    }

    /// Appends a line, to a new segment if this one is full. The error leaves the log as it was.
    pub(super) fn append(&mut self, entry: AuditEntry, at: &str, synced: bool) -> io::Result<()> {
        if self.chain.segment_length() >= self.limits.max_bytes {
            self.begin_next(at)?;
        }
        self.chain.append(entry, at.to_owned(), synced)
    }

    pub(super) fn sync(&mut self) -> io::Result<()> {
        self.chain.sync()
    }

    pub(super) fn head(&self) -> &ChainHead {
        self.chain.head()
    }

    fn begin_next(&mut self, at: &str) -> io::Result<()> {
        self.chain.sync()?;
        let end = self.chain.head().clone();
        // Written under another name first: until it is complete, the old segment stays the newest.
        let next = write_opening(&self.folder, &self.key, &end, opening(), at.to_owned())?;
        close_newest(&self.folder, end.segment)?;
        publish_segment(&self.folder)?;
        self.chain = next;
        self.remove_oldest(at);
        Ok(())
    }

    /// Removes segments beyond the limit. Each removal is on the disk before its segment goes, and the
    /// administrative lines of the segment are written again before that.
    pub(super) fn remove_oldest(&mut self, at: &str) {
        let removed = || -> io::Result<()> {
            let segments = open_all(&self.folder)?;
            let excess = segments.len().saturating_sub(self.limits.max_segments.max(1));
            let excess: Vec<_> = segments.iter().take(excess).filter(|one| one.number.is_some()).collect();
            // Half a segment: the log must have room for new lines.
            let mut carried = CarriedLines::new(self.limits.max_bytes / 2);
            let mut details = Vec::new();
            for segment in &excess {
                let damage = carried.read(segment, &self.key).err();
                let damage = damage.map(|why| format!("; the rest of it was damaged: {why}"));
                details.push(damage.unwrap_or_default());
            }
            for (entry, at) in carried.into_entries() {
                self.chain.append(entry, at, false)?;
            }
            for (segment, damage) in excess.iter().zip(details) {
                let detail = format!("at most {} segments are kept{damage}", self.limits.max_segments);
                let entry = daemon_entry(SEGMENT_REMOVE).segment(segment.number.unwrap_or(0)).detail(&detail);
                self.chain.append(entry, at.to_owned(), true)?;
                fs::remove_file(&segment.path)?;
            }
            Ok(())
        }();
        if let Err(error) = removed {
            tracing::error!(%error, "old segments of the audit log could not be removed");
        }
    }
}

/// The first line of a segment.
pub(super) fn opening() -> AuditEntry {
    daemon_entry(SEGMENT_OPEN)
}

/// A line about the log itself.
pub(super) fn daemon_entry(action: &'static str) -> AuditEntry {
    AuditEntry::new(action, &Principal::new("daemon", []))
}

fn unpublished_path(folder: &Path) -> PathBuf {
    folder.join("audit.jsonl.new")
}

/// Writes the first line of the segment after `end` to an unpublished file.
fn write_opening(
    folder: &Path,
    key: &AuditKey,
    end: &ChainHead,
    opening: AuditEntry,
    at: String,
) -> io::Result<Chain<File>> {
    let path = unpublished_path(folder);
    match fs::remove_file(&path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = File::options().append(true).create_new(true).mode(0o600).open(path)?;
    let number = end.segment + 1;
    let head = ChainHead { segment: number, ..end.clone() };
    let mut chain = Chain::new(key.clone(), head, LineFile::new(file, 0));
    chain.append(opening.segment(number), at, true)?;
    Ok(chain)
}

/// Makes the unpublished segment the newest one.
fn publish_segment(folder: &Path) -> io::Result<()> {
    let newest = folder.join(NEWEST_SEGMENT);
    fs::rename(unpublished_path(folder), &newest)?;
    sync_folder(&newest)
}
