//! Exit codes of `leasehold drill` when what it has to say cannot be written: a broken promise is 1 all the same.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

/// Two writes, the second of which is stale.
const STALE: &str = r#"{"at":1,"who":"target","what":"applied","place":1,"name":"job:1","writer":"a","write":1,"fence":"8"}
{"at":2,"who":"target","what":"applied","place":2,"name":"job:1","writer":"b","write":1,"fence":"7"}
"#;
const CLEAN: &str = r#"{"at":1,"who":"director","what":"quiet"}
"#;

/// The code, and what was said on standard error.
fn ran(args: &[&str], out: Stdio) -> (i32, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    command.args(args).env_remove("LEASEHOLD_STORE");
    let ended = command.stdout(out).stderr(Stdio::piped()).spawn().unwrap();
    let ended = ended.wait_with_output().unwrap();
    let err = String::from_utf8(ended.stderr).unwrap();
    (ended.status.code().unwrap_or(-1), err)
}

fn written(folder: &Path, history: &str) -> String {
    let path = folder.join("history.jsonl");
    std::fs::write(&path, history).unwrap();
    path.display().to_string()
}

/// The end of a pipe that nobody reads.
fn unread() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

#[test]
fn a_stale_write_is_told_of_although_the_page_cannot_be_written() {
    let folder = tempfile::tempdir().unwrap();
    let html = folder.path().join("missing").join("page.html");
    let html = html.display().to_string();
    for (history, code) in [(STALE, 1), (CLEAN, 2)] {
        let path = written(folder.path(), history);
        let (ended, err) = ran(&["drill", "report", &path, "--html", &html], Stdio::null());
        assert_eq!(ended, code, "{err}");
        assert!(err.contains("cannot write") && err.contains("missing"), "{err}");
    }
}

#[test]
fn a_stale_write_is_told_of_although_nobody_reads_the_report() {
    let folder = tempfile::tempdir().unwrap();
    // Whoever reads only the first lines of a clean report makes it no error.
    for (history, full, unheard) in [(STALE, 1, 1), (CLEAN, 2, 0)] {
        let path = written(folder.path(), history);
        let disk = File::options().write(true).open("/dev/full").unwrap();
        assert_eq!(ran(&["drill", "report", &path], disk.into()).0, full);
        assert_eq!(ran(&["drill", "report", &path], unread()).0, unheard);
    }
}

/// No job can end in so little time.
#[test]
fn jobs_that_are_lost_are_told_of_although_nobody_reads_the_report() {
    let lost = [
        "drill", "plane", "--jobs", "2", "--runs", "0", "--faults", "none", "--work", "60s", "--within", "1s",
    ];
    let (code, err) = ran(&lost, unread());
    assert_eq!(code, 1, "{err}");
}

#[test]
fn a_simulation_that_broke_a_promise_says_so_although_its_history_cannot_be_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("missing").join("history.jsonl");
    let path = path.display().to_string();
    let args = [
        "drill",
        "simulate",
        "--mistake",
        "unfenced-target",
        "--history",
        &path,
    ];
    let (code, err) = ran(&args, Stdio::null());
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("cannot write"), "{err}");
    assert_eq!(ran(&args, unread()).0, 1);
}
