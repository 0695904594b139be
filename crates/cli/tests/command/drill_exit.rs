//! Exit codes of `leasehold drill` when its report cannot be written: a violation is still 1.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

/// A history of two writes; the second one is stale.
const STALE_HISTORY: &str = r#"{"at":1,"who":"target","what":"applied","place":1,"name":"job:1","writer":"a","write":1,"fence":"8"}
{"at":2,"who":"target","what":"applied","place":2,"name":"job:1","writer":"b","write":1,"fence":"7"}
"#;
const CLEAN_HISTORY: &str = r#"{"at":1,"who":"director","what":"quiet"}
"#;

/// Runs the command; returns its exit code and standard error.
fn run_with_stdout(args: &[&str], out: Stdio) -> (i32, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    command.args(args).env_remove("LEASEHOLD_STORE");
    let ended = command.stdout(out).stderr(Stdio::piped()).spawn().unwrap();
    let ended = ended.wait_with_output().unwrap();
    let err = String::from_utf8(ended.stderr).unwrap();
    (ended.status.code().unwrap_or(-1), err)
}

fn write_history(folder: &Path, history: &str) -> String {
    let path = folder.join("history.jsonl");
    std::fs::write(&path, history).unwrap();
    path.display().to_string()
}

/// A pipe whose read end is closed.
fn closed_pipe() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

#[test]
fn a_stale_write_is_exit_1_although_the_page_cannot_be_written() {
    let folder = tempfile::tempdir().unwrap();
    let html = folder.path().join("missing").join("page.html");
    let html = html.display().to_string();
    for (history, code) in [(STALE_HISTORY, 1), (CLEAN_HISTORY, 2)] {
        let path = write_history(folder.path(), history);
        let (ended, err) = run_with_stdout(&["drill", "report", &path, "--html", &html], Stdio::null());
        assert_eq!(ended, code, "{err}");
        assert!(err.contains("cannot write") && err.contains("missing"), "{err}");
    }
}

#[test]
fn a_stale_write_is_exit_1_although_the_report_is_not_read() {
    let folder = tempfile::tempdir().unwrap();
    // A reader that closes the pipe early does not make a clean report an error.
    for (history, full, unheard) in [(STALE_HISTORY, 1, 1), (CLEAN_HISTORY, 2, 0)] {
        let path = write_history(folder.path(), history);
        let disk = File::options().write(true).open("/dev/full").unwrap();
        assert_eq!(run_with_stdout(&["drill", "report", &path], disk.into()).0, full);
        assert_eq!(run_with_stdout(&["drill", "report", &path], closed_pipe()).0, unheard);
    }
}

/// The time is too short for any job to end.
#[test]
fn lost_jobs_are_exit_1_although_the_report_is_not_read() {
    let lost = [
        "drill", "plane", "--jobs", "2", "--runs", "0", "--faults", "none", "--work", "60s", "--within", "1s",
    ];
    let (code, err) = run_with_stdout(&lost, closed_pipe());
    assert_eq!(code, 1, "{err}");
}
