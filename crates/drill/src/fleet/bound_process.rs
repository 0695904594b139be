//! Starts programs such as `redis-server` so that they die with the director.
//!
//! A director that is killed with SIGKILL cannot clean up. So the server is started through this
//! program. It asks the kernel to kill it when its parent dies, and then replaces itself with the
//! server by `exec`. The request survives `exec`.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use rustix::process::{Signal, getppid, set_parent_process_death_signal};

/// The hidden argument that selects this mode. The director's process id and the program with its
/// arguments follow.
pub const BOUND_ARG: &str = "__drill-bound";

/// Binds this process to its parent and replaces it with the given program. Returns only on
/// failure.
#[must_use]
pub fn main(mut words: impl Iterator<Item = OsString>) -> ExitCode {
    let director = words.next().and_then(|word| word.to_str()?.parse::<i32>().ok());
    let Some(program) = words.next() else {
        eprintln!("{BOUND_ARG}: wants the director's process id and a program");
        return ExitCode::from(2);
    };
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        eprintln!("{BOUND_ARG}: {error}");
        return ExitCode::from(2);
    }
    // The parent may have died before the request reached the kernel; then nothing would ever kill
    // this process.
    if director.is_none() || getppid().map(rustix::process::Pid::as_raw_pid) != director {
        return ExitCode::from(2);
    }
    let error = Command::new(&program).args(words).exec();
    eprintln!("{}: {error}", program.display());
    ExitCode::from(2)
}
