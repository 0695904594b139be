//! `simulate`: builds the simulator's program and runs it.
//!
//! xtask does not link the simulator: it would then have to be built for every other task.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::Path;

use anyhow::Context;

use crate::process;

/// Returns only if the program cannot be started.
pub(crate) fn main(arguments: &[OsString], caller_dir: &Path) -> anyhow::Result<bool> {
    let program = process::build_program("simulate")?;
    // Replaces this process, so that exit code and signals are the program's own. A relative `--history` is the caller's.
    let failed = process::command(&program).args(arguments).current_dir(caller_dir).exec();
    Err(failed).with_context(|| format!("cannot start {}", program.display()))
}
