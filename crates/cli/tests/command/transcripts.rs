//! The transcripts of `docs/cli` and of the first steps, run: what is printed there is what is printed here.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// The working folder is the whole process's.
static FOLDER: Mutex<()> = Mutex::new(());

/// Each page on a store, a home and a folder of its own.
fn page(name: &str) {
    let _mine = FOLDER.lock().unwrap_or_else(PoisonError::into_inner);
    let home = tempfile::tempdir().unwrap();
    let bin = Path::new(env!("CARGO_BIN_EXE_leasehold"));
    // A page may call it within itself.
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(
        bin.parent()
            .map(Path::to_path_buf)
            .into_iter()
            .chain(std::env::split_paths(&path)),
    )
    .unwrap();
    let page = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs")
        .join(name);
    // Relative paths in a page are seen from an empty folder, not from the page's.
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
    page("guide/first-steps.md");
}

#[test]
fn run() {
    page("cli/run.md");
}

#[test]
fn scripts() {
    page("cli/scripts.md");
}

#[test]
fn looking() {
    page("cli/looking.md");
}

#[test]
fn breaking() {
    page("cli/break.md");
}

#[test]
fn policy() {
    page("cli/policy.md");
}

#[test]
fn doctor() {
    page("cli/doctor.md");
}

#[test]
fn config() {
    page("cli/config.md");
}
