//! Opens the audit log at the start of the daemon.
//!
//! Only the newest segment is verified, so the start takes the same time however long the log is.
//! A damaged segment is set aside: a lock service must not stay down because its log is damaged.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use leasehold_core::rng::SharedRandom;

use super::AuditEntry;
use super::head::{self, ChainHead};
use super::key::AuditKey;
use super::segments::{self, NEWEST_SEGMENT, SegmentFile, SegmentLimits, SegmentedLog};
use super::verify::{LogWalk, is_unkeyed, verify_unkeyed};
use crate::state::state_db::{StateDb, create_private_file};

/// Opens the log in this folder and records what was found wrong with it.
///
/// # Errors
/// A file cannot be used.
pub(super) async fn open(
    folder: &Path,
    state_db: &StateDb,
    random: &SharedRandom,
    limits: SegmentLimits,
    at: &str,
) -> Result<SegmentedLog, String> {
    let newest = folder.join(NEWEST_SEGMENT);
    let describe = |error: io::Error| format!("{}: {error}", newest.display());
    let key = AuditKey::load_or_create(&segments::key_path(folder), random)?;
    let mut notes = Vec::new();
    if newest.try_exists().map_err(describe)? {
        create_private_file(&newest).map_err(|why| format!("{}: {why}", newest.display()))?;
        let cut = truncate_partial_line(&newest).map_err(describe)?;
        if cut > 0 {
            let detail = format!("the last line was cut off after {cut} bytes, and is removed");
            notes.push(segments::daemon_entry("mended").detail(&detail));
        }
        remove_if_empty(&newest).map_err(describe)?;
    }
    let mut files = segments::open_all(folder).map_err(describe)?;
    let head = match state_db.read(head::load).await? {
        Some(head) => head,
        None => {
            let (head, note) = first_head(&files).map_err(describe)?;
            notes.extend(note);
            // Only the newest segment is verified; nothing says where the others should end.
            files.drain(..files.len().saturating_sub(1));
            // Saved before the first keyed line is written: a keyed log without a head has lost it.
            let saved = head.clone();
            state_db.write_confirmed(move |db| head::save(db, &saved)).await?;
            head
        }
    };
    files.retain(|file| file.number.is_none_or(|number| number >= head.segment));
    let (end, opening) = verify_newest(&key, &head, &files).map_err(describe)?;
    let is_resumable = opening.is_none()
        && end.segment > 0
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

/// The head of a log that has none yet: a new log, or one of a version without a key.
fn first_head(files: &[SegmentFile]) -> io::Result<(ChainHead, Option<AuditEntry>)> {
    let Some(last) = files.last() else { return Ok((ChainHead::empty(), None)) };
    let file = last.reader()?;
    if is_unkeyed(&file) {
        // A broken one stays without a head, and is set aside.
        return Ok((verify_unkeyed(file).unwrap_or_else(|_| ChainHead::empty()), None));
    }
    let detail = "the daemon's database has no head of this log: lines removed before would not be missed";
    tracing::error!("audit log: {detail}");
    Ok((ChainHead::empty(), Some(segments::daemon_entry("head-missing").detail(detail))))
}

/// Verifies the segments from the head's on. Returns the end of the chain, and after a damage the
/// first line of the next segment, which records it.
fn verify_newest(
    key: &AuditKey,
    head: &ChainHead,
    files: &[SegmentFile],
) -> io::Result<(ChainHead, Option<AuditEntry>)> {
    let mut walk = LogWalk::new(key, head);
    let numbers = segment_numbers(head, files);
    let broken = files.iter().zip(&numbers).enumerate().find_map(|(at, (file, number))| {
        let why = walk.verify_next(file).err()?;
        Some((*number, at, format!("{}: {why}", file.file_name())))
    });
    let broken = broken.or_else(|| Some((head.segment.max(1), 0, walk.check_end().err()?)));
    let verified = walk.end.unwrap_or_else(ChainHead::empty);
    let Some((damaged_from, first_file, mut detail)) = broken else { return Ok((verified, None)) };
    for file in files.get(first_file..).unwrap_or_default() {
        detail = format!("{detail}; kept as {}", segments::set_aside(file)?);
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
