//! Runs the transcripts of `docs/cli` and of the first steps, and compares their output.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;
use std::sync::{Mutex, PoisonError};

// The working directory belongs to the whole process, so only one page runs at a time.
static WORKING_DIRECTORY_LOCK: Mutex<()> = Mutex::new(());

/// Runs one page with its own store, home and folder.
fn run_page(name: &str) {
    let _mine = WORKING_DIRECTORY_LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    let home = tempfile::tempdir().unwrap();
    let bin = Path::new(env!("CARGO_BIN_EXE_leasehold"));
    // A page may start `leasehold` from its own scripts.
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(
        bin.parent().map(Path::to_path_buf).into_iter().chain(std::env::split_paths(&path)),
    )
    .unwrap();
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    // Relative paths in a page refer to an empty folder, not to the page's own.
    std::env::set_current_dir(home.path()).unwrap();
    trycmd::TestCases::new()
        .env("HOME", home.path().to_str().unwrap())
        .env("XDG_STATE_HOME", home.path().join("state").to_str().unwrap())
        .env("XDG_CONFIG_HOME", home.path().join("config").to_str().unwrap())
        .env("NO_COLOR", "1")
        .env("COLUMNS", "100")
        .env("PATH", path.to_str().unwrap())
        .register_bin("leasehold", bin)
        .case(page);
}

#[test]
fn first_steps() {
    run_page("guide/first-steps.md");
}

#[test]
fn run() {
    run_page("cli/run.md");
}

#[test]
fn scripts() {
    run_page("cli/scripts.md");
}

#[test]
fn looking() {
    run_page("cli/looking.md");
}

#[test]
fn breaking() {
    run_page("cli/break.md");
}

#[test]
fn policy() {
    run_page("cli/policy.md");
}

#[test]
fn doctor() {
    run_page("cli/doctor.md");
}

#[test]
fn config() {
    run_page("cli/config.md");
}
