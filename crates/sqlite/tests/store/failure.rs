//! Disk failures: an uncertain outcome is reported as unknown, and the file stays usable.

use leasehold_sqlite::{SqliteOptions, SqliteStore};

use crate::fixture::{Fixture, TestClient};
use crate::process::Process;

#[tokio::test]
async fn commit_that_fails_on_disk_is_unknown_and_keeps_the_file_intact() {
    let context = Fixture::new();
    drop(SqliteStore::open(SqliteOptions::new(context.path())).unwrap());
    // A limit on the size of files makes writing fail inside COMMIT, as a failing disk does.
    let process = Process::start_in_shell("trap '' XFSZ; ulimit -f 400", "fill", &context.path());
    let message = process.next_message().expect("it must run into the limit");
    assert!(message.starts_with("Unreachable unknown=true"), "{message}");
    drop(process);
    let store = SqliteStore::open(SqliteOptions::new(context.path())).unwrap();
    TestClient::new("a", "job").expect_granted(&store).await;
    let whole: String =
        context.raw_connection().query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(whole, "ok");
}

#[test]
fn a_full_disk_is_overloaded_and_nothing_was_done() {
    if !can_mount() {
        return;
    }
    let context = Fixture::new();
    let folder = context.path().with_file_name("disk");
    std::fs::create_dir(&folder).unwrap();
    let mount = format!("mount -t tmpfs -o size=600k none '{}' || exit 3", folder.display());
    let process = Process::start_in_namespace(&mount, "fill", &folder.join("locks.db"));
    let message = process.next_message().expect("it must run into the limit");
    assert_eq!(message, "Overloaded unknown=false there=false");
}

#[test]
fn read_only_disk_is_reported() {
    if !can_mount() {
        return;
    }
    for with_file in [false, true] {
        let context = Fixture::new();
        let folder = context.path().with_file_name("disk");
        std::fs::create_dir(&folder).unwrap();
        drop(SqliteStore::open(SqliteOptions::new(context.path())).unwrap());
        let (disk, file) = (folder.display(), context.path());
        let copy = if with_file { file.display().to_string() } else { "/dev/null".to_owned() };
        let to = if with_file { "locks.db" } else { "something-else" };
        let mount = format!(
            "mount -t tmpfs none '{disk}' && cp '{copy}' '{disk}/{to}' && mount -o remount,ro '{disk}' || exit 3"
        );
        let process = Process::start_in_namespace(&mount, "refused", &folder.join("locks.db"));
        let message = process.next_message().expect("it must be refused");
        assert!(message.starts_with("ReadOnly unknown=false"), "with_file={with_file}: {message}");
    }
}

/// Whether this test may mount a small filesystem; not every machine allows it.
fn can_mount() -> bool {
    let tried =
        std::process::Command::new("unshare").args(["-rm", "mount", "-t", "tmpfs", "none", "/mnt"]).status();
    let can = tried.is_ok_and(|status| status.success());
    if !can {
        eprintln!("skipped: this machine does not let its users mount anything");
    }
    can
}
