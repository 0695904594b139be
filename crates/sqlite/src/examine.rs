//! Findings about a database file and its place, for `leasehold doctor`.
//! Creates and changes nothing.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use leasehold_core::clock::{BootClock, Clock};
use leasehold_core::shell;
use leasehold_core::store::{Examination, Finding};
use rusqlite::{Connection, OpenFlags};
use rustix::fs::{Access, access, statvfs};

use crate::connection::folder_of;
use crate::filesystem::{self, Filesystem};
use crate::options::{Durability, SqliteOptions};
use crate::schema::{APPLICATION_ID, SCHEMA_VERSION, stored_boot_id};
use crate::{boot, promise};

/// Less free space than this stops writes soon.
const MIN_FREE_BYTES: u64 = 1 << 20;
/// Less free space than this may not hold the log of a busy store, which is
/// truncated only above this size.
const LOW_FREE_BYTES: u64 = 64 << 20;
/// How long the examination waits for other processes' locks.
const EXAMINE_BUSY_TIMEOUT: Duration = Duration::from_secs(2);

/// Examines a file and the place where it is or would be. Blocks while it reads the file.
#[must_use]
pub fn examine(options: &SqliteOptions) -> Examination {
    let path = options.path();
    let mut out = Examination::default();
    let place = nearest_existing_folder(path);
    out.add_fact("file", path.display().to_string());
    check_boot_clock(&mut out);
    if let Some(folder) = &place {
        check_filesystem(folder, options.durability, &mut out);
        check_free_space(folder, &mut out);
    }
    match fs::metadata(path) {
        Ok(found) if !found.is_file() => out.add_finding(
            Finding::breaks(
                "sqlite.file",
                format!("{} is not a file", path.display()),
                "name the database file itself",
            )
            .fatal(),
        ),
        Ok(found) => {
            check_permissions(path, found.permissions().mode(), &mut out);
            check_contents(path, &mut out);
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            report_missing_file(path, place.as_deref(), &mut out)
        }
        Err(error) => out.add_finding(Finding::breaks(
            "sqlite.permission",
            format!("{} cannot be looked at: {error}", path.display()),
            "let this user into every folder above it",
        )),
    }
    out.sort_findings();
    out
}

/// The file's folder, or its nearest ancestor that exists.
fn nearest_existing_folder(path: &Path) -> Option<PathBuf> {
    let true_path = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    let mut folder = folder_of(&true_path);
    while !folder.is_dir() {
        folder = folder.parent()?;
    }
    Some(folder.to_path_buf())
}

/// Checks the boot clock, by which leases expire.
fn check_boot_clock(out: &mut Examination) {
    if let Err(failure) = boot::read_boot_id() {
        out.add_finding(Finding::breaks(
            "sqlite.boot-clock",
            failure.message().to_owned(),
            "mount /proc and run without a time namespace that shifts the boot clock",
        ));
    }
}

fn check_filesystem(folder: &Path, durability: Durability, out: &mut Examination) {
    let shown = folder.display();
    let filesystem = Filesystem::detect(folder);
    out.promised = filesystem.as_ref().ok().map(|filesystem| promise::report(*filesystem, durability));
    match filesystem {
        Ok(Filesystem::Shared(kind)) => out.add_finding(Finding::breaks(
            "sqlite.network-filesystem",
            format!("{shown} is on {kind}: file locks cannot be trusted there, and other hosts' clocks differ"),
            "put the file on a local disk, or use a store with a server for several hosts",
        )),
        Ok(Filesystem::Memory) => out.add_finding(Finding::breaks(
            "sqlite.memory-filesystem",
            format!("{shown} is in memory: a reboot takes the fence counters away, and then only the wall clock keeps fences growing"),
            "put the file on a disk, e.g. under /var/lib",
        )),
        // An overlay is local, and it works: whether it is wrong depends on which processes
        // share the file. Hence a risk.
        Ok(Filesystem::Local) if filesystem::is_container_layer(folder) => out.add_finding(Finding::risk(
            "sqlite.container-layer",
            format!("{shown} is in a container's own layer: other containers do not see it, and it goes with the container"),
            "put the file on a volume that all of them mount",
        )),
        Ok(Filesystem::Local) => {}
        Err(failure) => out.add_finding(Finding::risk(
            "sqlite.filesystem",
            format!("cannot see what {shown} is on: {}", failure.message()),
            "let this user into the folder",
        )),
    }
}

fn check_free_space(folder: &Path, out: &mut Examination) {
    let Ok(found) = statvfs(folder) else { return };
    let free = found.f_bavail.saturating_mul(found.f_frsize);
    out.add_fact("free", format!("{} MiB", free >> 20));
    let what = format!("{} KiB are free on the disk of {}", free >> 10, folder.display());
    if free < MIN_FREE_BYTES {
        out.add_finding(Finding::breaks(
            "sqlite.disk-space",
            format!("{what}: no lock can be granted or renewed"),
            "make room on the disk",
        ));
    } else if free < LOW_FREE_BYTES {
        out.add_finding(Finding::risk(
            "sqlite.disk-space",
            format!("{what}: the log of a busy store may need more"),
            "make room on the disk",
        ));
    }
}

fn check_permissions(path: &Path, mode: u32, out: &mut Examination) {
    let shown = path.display();
    if mode & 0o002 != 0 {
        out.add_finding(Finding::breaks(
            "sqlite.permission",
            format!(
                "everyone on this host can write {shown} (mode {:o}): anyone can end anyone's lock",
                mode & 0o777
            ),
            format!("run chmod o-w {}", shell::quote_argument(&path.to_string_lossy())),
        ));
    } else if mode & 0o004 != 0 {
        out.add_finding(Finding::note(
            "sqlite.permission",
            format!(
                "everyone on this host can read {shown} (mode {:o}): names and holders, not tokens",
                mode & 0o777
            ),
            format!("run chmod o-r {} if that matters", shell::quote_argument(&path.to_string_lossy())),
        ));
    }
    let folder = folder_of(path);
    for (what, place, need) in [
        // Every user of the file creates or opens `-wal` and `-shm` beside it, so the
        // folder must be writable too.
        ("the file", path, Access::READ_OK | Access::WRITE_OK),
        ("its folder, where the log goes,", folder, Access::WRITE_OK | Access::EXEC_OK),
    ] {
        if let Err(error) = access(place, need) {
            out.add_finding(Finding::breaks(
                "sqlite.permission",
                format!("{what} {} cannot be written by this user: {error}", place.display()),
                "give this user the right, or mount the disk for writing",
            ));
        }
    }
}

fn report_missing_file(path: &Path, place: Option<&Path>, out: &mut Examination) {
    out.add_finding(Finding::note(
        "sqlite.missing",
        format!("{} is not there yet; the first use makes it", path.display()),
        "run `leasehold store init` to make it now",
    ));
    if let Some(folder) = place
        && let Err(error) = access(folder, Access::WRITE_OK | Access::EXEC_OK)
    {
        out.add_finding(Finding::breaks(
            "sqlite.permission",
            format!("{} cannot be written by this user: {error}", folder.display()),
            "give this user the right to make the file there, or name another place",
        ));
    }
}

fn check_contents(path: &Path, out: &mut Examination) {
    let looked = examine_database(path, out);
    if let Err(error) = looked {
        out.add_finding(
            Finding::breaks(
                "sqlite.unreadable",
                format!("{} cannot be read as a database: {error}", path.display()),
                "give Leasehold a file of its own, or restore this one",
            )
            .fatal(),
        );
    }
}

fn examine_database(path: &Path, out: &mut Examination) -> rusqlite::Result<()> {
    // Open for writing although this only reads: in WAL mode, only a writer can
    // create a missing index file.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(path, flags)?;
    db.busy_timeout(EXAMINE_BUSY_TIMEOUT)?;
    let number = |name| db.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let (application, version) = (number("application_id")?, number("user_version")?);
    let tables: i64 = db.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    out.add_fact("schema", version.to_string());
    match (application, version, tables) {
        (0, 0, 0) => {
            out.add_finding(Finding::note(
                "sqlite.empty",
                format!("{} is empty; the first use makes its tables", path.display()),
                "run `leasehold store init` to make them now",
            ));
            return Ok(());
        }
        (APPLICATION_ID, SCHEMA_VERSION, _) => {}
        (APPLICATION_ID, other, _) => {
            out.add_finding(
                Finding::breaks(
                    "sqlite.schema",
                    format!(
                        "{} has schema version {other}, and this build knows {SCHEMA_VERSION}",
                        path.display()
                    ),
                    "update this program, or give it a file of its own",
                )
                .fatal(),
            );
            return Ok(());
        }
        _ => {
            out.add_finding(
                Finding::breaks(
                    "sqlite.foreign",
                    format!("{} is another program's database", path.display()),
                    "give Leasehold a file of its own",
                )
                .fatal(),
            );
            return Ok(());
        }
    }
    let journal: String = db.pragma_query_value(None, "journal_mode", |row| row.get(0))?;
    // The mode is stored in the file, so an operator's tool can change it for all users.
    if journal != "wal" {
        out.add_finding(Finding::breaks(
            "sqlite.journal",
            format!("the journal mode is {journal}, not wal: readers hold up holders that renew, and a step may be lost"),
            format!("run sqlite3 {} 'PRAGMA journal_mode = WAL'", shell::quote(&path.display().to_string())),
        ));
    }
    // The median of several reads: the cost of a step without its write.
    let mut took: Vec<Duration> = Vec::new();
    for _ in 0..7 {
        let before = BootClock.now();
        db.query_row("SELECT count(*) FROM meta", [], |row| row.get::<_, i64>(0))?;
        took.push(BootClock.now().since(before));
    }
    took.sort_unstable();
    out.round_trip = took.get(took.len() / 2).copied();
    let check: String = db.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if check != "ok" {
        out.add_finding(Finding::breaks(
            "sqlite.corrupt",
            format!("{} is damaged: {}", path.display(), check.replace('\n', " ")),
            "stop everyone who uses it, move it away, and let the first use make a new one",
        ));
    }
    if let (Some(theirs), Ok(ours)) = (stored_boot_id(&db)?, boot::read_boot_id())
        && theirs != ours
    {
        out.add_finding(Finding::note(
            "sqlite.other-boot",
            "it was last used before the last reboot, or on another host: its leases are void",
            "nothing; if another host uses it now, give each host a file of its own",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_filesystem_is_reported() {
        let shm = Path::new("/dev/shm");
        if Filesystem::detect(shm).ok() == Some(Filesystem::Memory) {
            let found = examine(&SqliteOptions::new(shm.join("leasehold-nowhere/locks.db"))).findings;
            assert_eq!(found[0].code, "sqlite.memory-filesystem");
        }
    }
}
