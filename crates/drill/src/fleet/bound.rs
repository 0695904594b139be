//! Processes that are not ours by code, such as `redis-server`, bound to the director's life.
//!
//! A director that is killed with -9 cleans nothing up. So the server is started through this program: it asks the kernel to
//! kill it when its parent dies, and then becomes the server. The order survives the change, because the process stays
//! the same.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use rustix::process::{Signal, getppid, set_parent_process_death_signal};

/// The hidden word by which this program is asked to bind itself and become another one; the director's process id and
/// that program's words follow.
pub const BOUND: &str = "__drill-bound";

/// Binds itself to its parent and becomes the program named by these words. Comes back only if it cannot.
#[must_use]
pub fn main(mut words: impl Iterator<Item = OsString>) -> ExitCode {
    let director = words.next().and_then(|word| word.to_str()?.parse::<i32>().ok());
    let Some(program) = words.next() else {
        eprintln!("{BOUND}: wants the director's process id and a program");
        return ExitCode::from(2);
    };
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        eprintln!("{BOUND}: {error}");
        return ExitCode::from(2);
    }
    // It may have died before the order was given.
    if director.is_none() || getppid().map(rustix::process::Pid::as_raw_pid) != director {
        return ExitCode::from(2);
    }
    let error = Command::new(&program).args(words).exec();
    eprintln!("{}: {error}", program.display());
    ExitCode::from(2)
}
