//! What `examine` finds in good, missing and bad files.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use leasehold_core::store::{Finding, Severity, Store};
use leasehold_sqlite::{Durability, SqliteOptions, SqliteStore, examine};
use rusqlite::Connection;

/// Findings at this path, without those that come from the machine that runs the tests.
fn codes(path: &Path) -> Vec<(&'static str, Severity)> {
    let found = examine(&SqliteOptions::new(path)).findings;
    let own =
        |finding: &&Finding| !["sqlite.container-layer", "sqlite.memory-filesystem"].contains(&finding.code);
    found.iter().filter(own).map(|finding| (finding.code, finding.severity)).collect()
}

fn create_store(folder: &Path) -> PathBuf {
    let path = folder.join("locks.db");
    SqliteStore::open(SqliteOptions::new(&path)).unwrap();
    path
}

#[test]
fn a_good_file_has_no_findings() {
    let folder = tempfile::tempdir().unwrap();
    let path = create_store(folder.path());
    assert_eq!(codes(&path), []);
    assert!(examine(&SqliteOptions::new(&path)).round_trip.is_some());
}

#[tokio::test]
async fn the_examination_promises_what_the_store_promises() {
    let folder = tempfile::tempdir().unwrap();
    for durability in [Durability::Normal, Durability::Full] {
        let options = SqliteOptions::new(folder.path().join("locks.db")).durability(durability);
        let store = SqliteStore::open(options.clone()).unwrap();
        let promised = store.promise(Duration::from_secs(5)).await.unwrap();
        assert_eq!(examine(&options).promised, Some(promised));
    }
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
    // A dropped store closes its file on its own thread, and changing the journal mode needs
    // exclusive access. So retry while busy.
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

    // Without a lock to grant, `doctor` must not try one.
    let fatal = |path: &Path| {
        let found = examine(&SqliteOptions::new(path)).findings;
        found.iter().any(|finding| finding.fatal)
    };
    sql(&path("other.db"), "CREATE TABLE t (x)");
    let private = |path: &Path| fs::set_permissions(path, PermissionsExt::from_mode(0o600)).unwrap();
    private(&path("other.db"));
    assert_eq!(codes(&path("other.db")), breaks("sqlite.foreign"));
    assert!(fatal(&path("other.db")));

    fs::write(path("text.db"), "this is no database, and is longer than one hundred bytes, which is what SQLite reads of a file first of all").unwrap();
    private(&path("text.db"));
    assert_eq!(codes(&path("text.db")), breaks("sqlite.unreadable"));
    assert!(fatal(&path("text.db")));

    fs::create_dir(path("folder.db")).unwrap();
    assert_eq!(codes(&path("folder.db")), breaks("sqlite.file"));
    assert!(fatal(&path("folder.db")));

    let newer = create_store(folder.path());
    let version = Connection::open(&newer)
        .and_then(|db| db.pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0)))
        .unwrap();
    sql(&newer, "PRAGMA user_version = 99");
    assert_eq!(codes(&newer), breaks("sqlite.schema"));
    assert!(fatal(&newer));
    sql(&newer, &format!("PRAGMA user_version = {version}; PRAGMA journal_mode = DELETE"));
    assert_eq!(codes(&newer), breaks("sqlite.journal"));
    assert!(!fatal(&newer));
    sql(&newer, "PRAGMA journal_mode = WAL; UPDATE meta SET value = 'x' WHERE key = 'boot'");
    assert_eq!(codes(&newer), [("sqlite.other-boot", Severity::Note)]);
    sql(&newer, "DELETE FROM meta");
    fs::set_permissions(&newer, PermissionsExt::from_mode(0o666)).unwrap();
    assert_eq!(codes(&newer), breaks("sqlite.permission"));
    fs::set_permissions(&newer, PermissionsExt::from_mode(0o644)).unwrap();
    assert_eq!(codes(&newer), [("sqlite.permission", Severity::Note)]);
}

#[test]
fn damaged_file_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let path = create_store(folder.path());
    // Move everything from the log into the file, then overwrite a table's pages.
    Connection::open(&path).unwrap().execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
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
