//! The entry point of the two helper processes. One hidden argument serves all programs that use this crate.

use std::ffi::OsString;
use std::process::ExitCode;

use crate::{gate, guardian};

/// The hidden first argument for which a program must call [`helper_main`] with the arguments after it.
pub const HELPER_ARGUMENT: &str = "__supervise";

/// The second argument: which helper this process is.
pub(crate) const GUARDIAN_ROLE: &str = "guardian";
pub(crate) const GATE_ROLE: &str = "gate";

/// The exit code of a helper that was called with wrong arguments, or whose parent died (as in env(1)).
pub(crate) const FAILED: u8 = 125;

/// Runs a helper process. `report` prints a message for people.
pub fn helper_main(mut arguments: impl Iterator<Item = OsString>, report: fn(&str)) -> ExitCode {
    match arguments.next().as_deref().and_then(|role| role.to_str()) {
        Some(GUARDIAN_ROLE) => guardian::main(arguments, report),
        Some(GATE_ROLE) => gate::main(arguments, report),
        _ => {
            report("this is a part of leasehold's supervisor; use `leasehold run`");
            ExitCode::from(FAILED)
        }
    }
}
