//! Opens the audit log at the start of the daemon.
//!
//! Only the newest segment is verified, so the start takes the same time however long the log is.
//! A damaged segment is set aside: a lock service must not stay down because its log is damaged.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use leasehold_core::rng::SharedRandom;

use super::AuditEntry;
use super::head::{self, ChainHead};
use super::key::{AuditKey, has_entry};
use super::line::HEAD_MISSING;
use super::segments::{self, NEWEST_SEGMENT, SegmentFile, SegmentLimits, SegmentedLog};
use super::verify::{LogWalk, is_unkeyed, verify_unkeyed};
use crate::state::state_db::StateDb;

/// Opens the log in this folder and records what was found wrong with it.
///
/// # Errors
/// The folder or the disk does not allow it.
pub(super) async fn open(
    folder: &Path,
    state_db: &StateDb,
    random: &SharedRandom,
    limits: SegmentLimits,
    at: &str,
) -> Result<SegmentedLog, String> {
    let newest = folder.join(NEWEST_SEGMENT);
    let describe = |error: io::Error| format!("{}: {error}", newest.display());
    let mut notes = Vec::new();
    let mut remarks =
        DamageRemarks { unusable_newest: set_aside_unusable(&newest).map_err(describe)?, key: None };
    warn_if_readable(&newest);
    let mut files = segments::open_all(folder).map_err(describe)?;
    let key_path = segments::key_path(folder);
    let had_key = has_entry(&key_path);
    let head = match state_db.read(head::load).await? {
        Some(head) => head,
        None => {
            let (head, missing) = first_head(&files, had_key);
            // Only the newest segment is verified; nothing says where the others should end.
            files.drain(..files.len().saturating_sub(1));
            if let Some(detail) = missing {
                let note = segments::write_damage_note(folder, detail).map_err(describe)?;
                tracing::error!("audit log: {detail}; noted in {note}");
                notes.push(segments::daemon_entry(HEAD_MISSING).detail(detail));
            } else {
                // Durable before there is a key: from then on, a missing head was removed.
                let saved = head.clone();
                state_db.write_confirmed(move |db| head::save(db, &saved)).await?;
                head::sync_file(folder).map_err(describe)?;
            }
            head
        }
    };
    let loaded = AuditKey::load_or_create(&key_path, random)?;
    remarks.key = loaded.damage;
    if remarks.key.is_none() && !had_key && head.seq > 0 {
        remarks.key = Some("audit.key was missing, and a new key was made".to_owned());
    }
    if let Some(exposure) = loaded.opened_to_others {
        tracing::error!("audit log: {exposure}");
        notes.push(segments::daemon_entry("key-exposed").detail(&exposure));
    }
    let key = loaded.key;
    files.retain(|file| file.number.is_none_or(|number| number >= head.segment));
    let (end, opening) = verify_newest(folder, &key, &head, &files, &remarks).map_err(describe)?;
    // After the verification: a damaged segment is kept as it was found, with its incomplete last line.
    if opening.is_none() && newest.try_exists().map_err(describe)? {
        let cut = truncate_partial_line(&newest).map_err(describe)?;
        if cut > 0 {
            let detail = format!("the last line was cut off after {cut} bytes, and is removed");
            notes.push(segments::daemon_entry("mended").detail(&detail));
        }
        remove_if_empty(&newest).map_err(describe)?;
    }
    let is_resumable = opening.is_none()
        && end.segment > 0
        && newest.try_exists().map_err(describe)?
        && files
            .last()
            .is_some_and(|file| file.number.is_none() && !file.reader().is_ok_and(|file| is_unkeyed(&file)));
    let mut log = if is_resumable {
        SegmentedLog::resume(folder, key, limits, end).map_err(describe)?
    } else {
        if opening.is_none() && newest.try_exists().map_err(describe)? {
            segments::close_newest(folder, end.segment).map_err(describe)?;
        }
        let opening = opening.unwrap_or_else(segments::opening);
        SegmentedLog::begin(folder, key, limits, &end, opening, at.to_owned()).map_err(describe)?
    };
    for note in notes {
        log.append(note, at, true).map_err(describe)?;
    }
    log.remove_oldest(at);
    Ok(log)
}

/// What was wrong before any line was read.
struct DamageRemarks {
    /// The newest segment could not be opened, and was set aside.
    unusable_newest: Option<String>,
    /// There is another key than before.
    key: Option<String>,
}

/// Renames a newest segment that cannot be read and written, and says why.
fn set_aside_unusable(newest: &Path) -> io::Result<Option<String>> {
    let Ok(found) = fs::symlink_metadata(newest) else { return Ok(None) };
    let opened = if found.is_file() {
        File::options().read(true).append(true).open(newest).map(|_| ())
    } else {
        // A link could lead the log into another file.
        Err(io::Error::other("is not a regular file"))
    };
    let Err(why) = opened else { return Ok(None) };
    let kept = segments::set_aside(newest)?;
    Ok(Some(format!("{NEWEST_SEGMENT}: {why}; kept as {kept}")))
}

/// Only a warning: a program that copies the log may read it.
fn warn_if_readable(newest: &Path) {
    let mode = fs::metadata(newest).map_or(0, |found| found.permissions().mode());
    if mode & 0o077 != 0 {
        let (path, mode) = (newest.display(), mode & 0o777);
        tracing::warn!(
            "{path} has mode {mode:03o}: others can read who did what; run chmod 600 on it if they should not"
        );
    }
}

/// The head of a log that has none, and what is missing. Without a key this is the first start, or the
/// first one after a version without a key. With a key there was a head.
fn first_head(files: &[SegmentFile], had_key: bool) -> (ChainHead, Option<&'static str>) {
    let last = files.last().and_then(|last| last.reader().ok());
    let unkeyed = last.filter(is_unkeyed);
    match unkeyed {
        // A broken one stays without a head, and is set aside.
        Some(file) if !had_key => (verify_unkeyed(file).unwrap_or_else(|_| ChainHead::empty()), None),
        None if !had_key && files.is_empty() => (ChainHead::empty(), None),
        _ => (
            ChainHead::empty(),
            Some("daemon.db has no head of this log: lines that were removed before now are not missed"),
        ),
    }
}

/// Verifies the segments from the head's on. Returns the end of the chain, and after a damage the
/// first line of the next segment, which records it.
fn verify_newest(
    folder: &Path,
    key: &AuditKey,
    head: &ChainHead,
    files: &[SegmentFile],
    remarks: &DamageRemarks,
) -> io::Result<(ChainHead, Option<AuditEntry>)> {
    let mut walk = LogWalk::new(key, head);
    let numbers = segment_numbers(head, files);
    let broken = files.iter().zip(&numbers).enumerate().find_map(|(at, (file, number))| {
        let why = walk.verify_next(file).err()?;
        Some((*number, at, format!("{}: {why}", file.file_name())))
    });
    let broken = broken.or_else(|| Some((head.segment.max(1), 0, walk.check_end().err()?)));
    let verified = walk.end.unwrap_or_else(ChainHead::empty);
    // Lines after the head may have been in it.
    let unusable = remarks
        .unusable_newest
        .as_ref()
        .map(|_| (verified.segment + 1, files.len(), "the lines in it are not verified".to_owned()));
    let Some((damaged_from, first_file, why)) = broken.or(unusable) else { return Ok((verified, None)) };
    let DamageRemarks { unusable_newest, key: key_remark } = remarks;
    let remarks = [unusable_newest, key_remark].into_iter().flatten();
    let mut detail = remarks.cloned().chain([why]).collect::<Vec<_>>().join("; ");
    let damaged_files = files.get(first_file..).unwrap_or_default();
    for file in damaged_files {
        detail = format!("{detail}; kept as {}", segments::set_aside(&file.path)?);
    }
    if damaged_files.is_empty() && unusable_newest.is_none() {
        detail = format!("{detail}; noted in {}", segments::write_damage_note(folder, &detail)?);
    }
    tracing::error!("audit log: {detail}; a new segment begins");
    let last = numbers.into_iter().chain([damaged_from, head.segment, verified.segment]).max();
    let known = if verified.seq > head.seq { verified } else { head.clone() };
    let end = ChainHead { segment: last.unwrap_or(damaged_from), ..known };
    Ok((end, Some(segments::opening().damaged_from(damaged_from).detail(&detail))))
}

/// The number of each segment. The newest one has none in its name, and its lines may be damaged.
fn segment_numbers(head: &ChainHead, files: &[SegmentFile]) -> Vec<u64> {
    let mut next = head.segment.max(1);
    let number = |file: &SegmentFile| {
        let number = file.number.unwrap_or(next);
        next = number + 1;
        number
    };
    files.iter().map(number).collect()
}

/// Removes a last line without a newline and returns its length. Each line is written together with
/// its newline, so an unterminated one was cut short by a power loss. No caller was told that it is
/// durable.
fn truncate_partial_line(path: &Path) -> io::Result<u64> {
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

/// A crash can leave a segment without a line; it is as if it had not begun.
fn remove_if_empty(path: &Path) -> io::Result<()> {
    if fs::metadata(path)?.len() == 0 { fs::remove_file(path) } else { Ok(()) }
}
