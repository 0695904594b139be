//! A child process under the deadlines of one or more holds.
//!
//! The command runs in a process group of its own. When a hold is lost, or the caller asks for it, the
//! command and all its descendants get TERM, a grace period, then KILL. All of them are dead before
//! another holder can be granted the lock. A guardian process does the same if this process is stopped or
//! killed, and the command starts only after the guardian watches it. `leasehold run`, `leasehold elect`
//! and the plane's jobs use it (ADR 0009, ADR 0021).
//!
//! # Map
//!
//! - [`CommandSpec`], [`effective_grace`]: what to run, and how long it may take to stop.
//! - [`HeldCommand`]: the process exists and waits; [`RunningCommand`] waits for its end; [`Controls`] passes
//!   signals on and stops it.
//! - [`HELPER_ARGUMENT`], [`helper_main`]: the two helper processes, which the host's binary must provide.
//! - `child`, `gate`: the held start. `guardian`, `guardian_client`, `deadline_forwarder`: the guardian
//!   process, and this process's end of its pipes. `process_tree`: how descendants are found.
//!
//! Only for Linux: descendants are found through `/proc`. Without a helper program the command has no
//! guardian, and it survives the death of this process.
//!
//! Terms: see `docs/glossary.md`.

mod child;
mod command;
mod controls;
mod deadline_forwarder;
mod error;
mod gate;
mod guardian;
mod guardian_client;
mod held_command;
mod helper_process;
mod process_tree;
mod supervisor;

pub use child::was_stopped;
pub use command::{CommandSpec, Streams, effective_grace};
pub use controls::Controls;
pub use error::SuperviseError;
pub use held_command::{HeldCommand, PrepareOutcome};
pub use helper_process::{HELPER_ARGUMENT, helper_main};
pub use process_tree::RUN_ID_VARIABLE;
pub use supervisor::{CommandEnd, RunningCommand};

// Runs the README's code as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
