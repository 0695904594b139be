//! What can be wrong with a file, or with the place where it is or would be. Nothing is made and nothing is changed.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use leasehold_core::clock::{BootClock, Clock};
use leasehold_core::store::{Examination, Finding};
use rusqlite::{Connection, OpenFlags};
use rustix::fs::{Access, access, statvfs};

use crate::boot;
use crate::connection::folder_of;
use crate::filesystem::{self, Filesystem};
use crate::schema::{APPLICATION, VERSION, boot_of};

/// Below this, nothing can be written for long.
const FULL: u64 = 1 << 20;
/// Below this, the log of a busy store may not fit.
const TIGHT: u64 = 64 << 20;
/// How long a look may wait for other processes.
const WAIT: Duration = Duration::from_secs(2);

/// Examines a file. Blocks for as long as reading it takes.
#[must_use]
pub fn examine(path: &Path) -> Examination {
    let mut out = Examination::default();
    let place = existing(path);
    out.fact("file", path.display().to_string());
    host(&mut out);
    if let Some(folder) = &place {
        lies_on(folder, &mut out);
        space(folder, &mut out);
    }
    match fs::metadata(path) {
        Ok(found) if !found.is_file() => out.found(Finding::breaks(
            "sqlite.file",
            format!("{} is not a file", path.display()),
            "name the database file itself",
        )),
        Ok(found) => {
            permissions(path, found.permissions().mode(), &mut out);
            contents(path, &mut out);
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            missing(path, place.as_deref(), &mut out)
        }
        Err(error) => out.found(Finding::breaks(
            "sqlite.permission",
            format!("{} cannot be looked at: {error}", path.display()),
            "let this user into every folder above it",
        )),
    }
    out.sort();
    out
}

/// The folder that the file is in or would be in, or the nearest one above that exists.
fn existing(path: &Path) -> Option<PathBuf> {
    let true_path = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    let mut folder = folder_of(&true_path);
    while !folder.is_dir() {
        folder = folder.parent()?;
    }
    Some(folder.to_path_buf())
}

/// The clock that leases live by.
fn host(out: &mut Examination) {
    if let Err(failure) = boot::read() {
        out.found(Finding::breaks(
            "sqlite.boot-clock",
            failure.message().to_owned(),
            "mount /proc and run without a time namespace that shifts the boot clock",
        ));
    }
}

fn lies_on(folder: &Path, out: &mut Examination) {
    let shown = folder.display();
    match Filesystem::of(folder) {
        Ok(Filesystem::Shared(kind)) => out.found(Finding::breaks(
            "sqlite.network-filesystem",
            format!("{shown} is on {kind}: file locks cannot be trusted there, and other hosts' clocks differ"),
            "put the file on a local disk, or use a store with a server for several hosts",
        )),
        Ok(Filesystem::Memory) => out.found(Finding::breaks(
            "sqlite.memory-filesystem",
            format!("{shown} is in memory: a reboot takes the fence counters away, and then only the wall clock keeps fences growing"),
            "put the file on a disk, e.g. under /var/lib",
        )),
        Ok(Filesystem::Local) if filesystem::is_layered(folder) => out.found(Finding::risk(
            "sqlite.container-layer",
            format!("{shown} is in a container's own layer: other containers do not see it, and it goes with the container"),
            "put the file on a volume that all of them mount",
        )),
        Ok(Filesystem::Local) => {}
        Err(failure) => out.found(Finding::risk(
            "sqlite.filesystem",
            format!("cannot see what {shown} is on: {}", failure.message()),
            "let this user into the folder",
        )),
    }
}

fn space(folder: &Path, out: &mut Examination) {
    let Ok(found) = statvfs(folder) else { return };
    let free = found.f_bavail.saturating_mul(found.f_frsize);
    out.fact("free", format!("{} MiB", free >> 20));
    let what = format!("{} KiB are free on the disk of {}", free >> 10, folder.display());
    if free < FULL {
        out.found(Finding::breaks(
            "sqlite.disk-space",
            format!("{what}: no lock can be granted or renewed"),
            "make room on the disk",
        ));
    } else if free < TIGHT {
        out.found(Finding::risk(
            "sqlite.disk-space",
            format!("{what}: the log of a busy store may need more"),
            "make room on the disk",
        ));
    }
}

fn permissions(path: &Path, mode: u32, out: &mut Examination) {
    let shown = path.display();
    if mode & 0o002 != 0 {
        out.found(Finding::breaks(
            "sqlite.permission",
            format!(
                "everyone on this host can write {shown} (mode {:o}): anyone can end anyone's lock",
                mode & 0o777
            ),
            format!("run chmod o-w {shown}"),
        ));
    } else if mode & 0o004 != 0 {
        out.found(Finding::note(
            "sqlite.permission",
            format!(
                "everyone on this host can read {shown} (mode {:o}): names and holders, not tokens",
                mode & 0o777
            ),
            format!("run chmod o-r {shown} if that matters"),
        ));
    }
    let folder = folder_of(path);
    for (what, place, need) in [
        ("the file", path, Access::READ_OK | Access::WRITE_OK),
        (
            "its folder, where the log goes,",
            folder,
            Access::WRITE_OK | Access::EXEC_OK,
        ),
    ] {
        if let Err(error) = access(place, need) {
            out.found(Finding::breaks(
                "sqlite.permission",
                format!(
                    "{what} {} cannot be written by this user: {error}",
                    place.display()
                ),
                "give this user the right, or mount the disk for writing",
            ));
        }
    }
}

fn missing(path: &Path, place: Option<&Path>, out: &mut Examination) {
    out.found(Finding::note(
        "sqlite.missing",
        format!("{} is not there yet; the first use makes it", path.display()),
        "run `leasehold store init` to make it now",
    ));
    if let Some(folder) = place
        && let Err(error) = access(folder, Access::WRITE_OK | Access::EXEC_OK)
    {
        out.found(Finding::breaks(
            "sqlite.permission",
            format!("{} cannot be written by this user: {error}", folder.display()),
            "give this user the right to make the file there, or name another place",
        ));
    }
}

fn contents(path: &Path, out: &mut Examination) {
    let looked = look(path, out);
    if let Err(error) = looked {
        out.found(Finding::breaks(
            "sqlite.unreadable",
            format!("{} cannot be read as a database: {error}", path.display()),
            "give Leasehold a file of its own, or restore this one",
        ));
    }
}

fn look(path: &Path, out: &mut Examination) -> rusqlite::Result<()> {
    // Reading needs the log's index, which only a writer can make.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(path, flags)?;
    db.busy_timeout(WAIT)?;
    let number = |name| db.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let (application, version) = (number("application_id")?, number("user_version")?);
    let tables: i64 = db.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    out.fact("schema", version.to_string());
    match (application, version, tables) {
        (0, 0, 0) => {
            out.found(Finding::note(
                "sqlite.empty",
                format!("{} is empty; the first use makes its tables", path.display()),
                "run `leasehold store init` to make them now",
            ));
            return Ok(());
        }
        (APPLICATION, VERSION, _) => {}
        (APPLICATION, other, _) => {
            out.found(Finding::breaks(
                "sqlite.schema",
                format!(
                    "{} has schema version {other}, and this build knows {VERSION}",
                    path.display()
                ),
                "update this program, or give it a file of its own",
            ));
            return Ok(());
        }
        _ => {
            out.found(Finding::breaks(
                "sqlite.foreign",
                format!("{} is another program's database", path.display()),
                "give Leasehold a file of its own",
            ));
            return Ok(());
        }
    }
    let journal: String = db.pragma_query_value(None, "journal_mode", |row| row.get(0))?;
    if journal != "wal" {
        out.found(Finding::breaks(
            "sqlite.journal",
            format!("the journal mode is {journal}, not wal: readers hold up holders that renew, and a step may be lost"),
            format!("run sqlite3 {} 'PRAGMA journal_mode = WAL'", path.display()),
        ));
    }
    // The middle of several looks: what a step costs before anything is written.
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
        out.found(Finding::breaks(
            "sqlite.corrupt",
            format!("{} is damaged: {}", path.display(), check.replace('\n', " ")),
            "stop everyone who uses it, move it away, and let the first use make a new one",
        ));
    }
    if let (Some(theirs), Ok(ours)) = (boot_of(&db)?, boot::read())
        && theirs != ours
    {
        out.found(Finding::note(
            "sqlite.other-boot",
            "it was last used before the last reboot, or on another host: its leases are void",
            "nothing; if another host uses it now, give each host a file of its own",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use leasehold_core::store::Severity;

    use super::*;
    use crate::{SqliteOptions, SqliteStore};

    /// What was found at this path, without what is so of the machine that runs the tests.
    fn codes(path: &Path) -> Vec<(&'static str, Severity)> {
        let found = examine(path).findings;
        let own = |finding: &&Finding| {
            !["sqlite.container-layer", "sqlite.memory-filesystem"].contains(&finding.code)
        };
        found
            .iter()
            .filter(own)
            .map(|finding| (finding.code, finding.severity))
            .collect()
    }

    fn made(folder: &Path) -> PathBuf {
        let path = folder.join("locks.db");
        SqliteStore::open(SqliteOptions::new(&path)).unwrap();
        path
    }

    #[test]
    fn a_good_file_has_no_findings() {
        let folder = tempfile::tempdir().unwrap();
        let path = made(folder.path());
        assert_eq!(codes(&path), []);
        assert!(examine(&path).round_trip.is_some());
    }

    #[test]
    fn a_missing_file_is_a_note_and_is_not_made() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/er/locks.db");
        assert_eq!(codes(&path), [("sqlite.missing", Severity::Note)]);
        assert!(!folder.path().join("deep").exists());
    }

    #[test]
    fn each_bad_file_has_its_finding() {
        let folder = tempfile::tempdir().unwrap();
        // A store that was just dropped closes its file on a thread of its own, and the journal is changed by whoever is alone.
        let sql = |path: &Path, sql: &str| {
            let db = Connection::open(path).unwrap();
            while let Err(error) = db.execute_batch(sql) {
                let busy = Some(rusqlite::ErrorCode::DatabaseBusy);
                assert_eq!(error.sqlite_error_code(), busy, "{error}");
                std::thread::yield_now();
            }
        };
        let path = |name: &str| folder.path().join(name);
        let breaks = |code| vec![(code, Severity::Breaks)];

        sql(&path("other.db"), "CREATE TABLE t (x)");
        let private = |path: &Path| fs::set_permissions(path, PermissionsExt::from_mode(0o600)).unwrap();
        private(&path("other.db"));
        assert_eq!(codes(&path("other.db")), breaks("sqlite.foreign"));

        fs::write(path("text.db"), "this is no database, and is longer than one hundred bytes, which is what SQLite reads of a file first of all").unwrap();
        private(&path("text.db"));
        assert_eq!(codes(&path("text.db")), breaks("sqlite.unreadable"));

        fs::create_dir(path("folder.db")).unwrap();
        assert_eq!(codes(&path("folder.db")), breaks("sqlite.file"));

        let newer = made(folder.path());
        sql(&newer, "PRAGMA user_version = 99");
        assert_eq!(codes(&newer), breaks("sqlite.schema"));
        sql(
            &newer,
            &format!("PRAGMA user_version = {VERSION}; PRAGMA journal_mode = DELETE"),
        );
        assert_eq!(codes(&newer), breaks("sqlite.journal"));
        sql(
            &newer,
            "PRAGMA journal_mode = WAL; UPDATE meta SET value = 'x' WHERE key = 'boot'",
        );
        assert_eq!(codes(&newer), [("sqlite.other-boot", Severity::Note)]);
        sql(&newer, "DELETE FROM meta");
        fs::set_permissions(&newer, PermissionsExt::from_mode(0o666)).unwrap();
        assert_eq!(codes(&newer), breaks("sqlite.permission"));
        fs::set_permissions(&newer, PermissionsExt::from_mode(0o644)).unwrap();
        assert_eq!(codes(&newer), [("sqlite.permission", Severity::Note)]);
    }

    #[test]
    fn a_damaged_file_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let path = made(folder.path());
        // Everything into the file itself, then nonsense over a table's page.
        Connection::open(&path)
            .unwrap()
            .execute_batch("PRAGMA wal_checkpoint(TRUNCATE)")
            .unwrap();
        let mut bytes = fs::read(&path).unwrap();
        let end = bytes.len();
        bytes[4096..end].fill(0xa5);
        fs::write(&path, bytes).unwrap();
        let found = codes(&path);
        assert!(
            found.iter().any(|(code, severity)| {
                ["sqlite.corrupt", "sqlite.unreadable"].contains(code) && *severity == Severity::Breaks
            }),
            "{found:?}"
        );
    }

    #[test]
    fn memory_is_a_bad_place() {
        let shm = Path::new("/dev/shm");
        if Filesystem::of(shm).ok() == Some(Filesystem::Memory) {
            let found = examine(&shm.join("leasehold-nowhere/locks.db")).findings;
            assert_eq!(found[0].code, "sqlite.memory-filesystem");
        }
    }
}
