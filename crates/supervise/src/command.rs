//! What to run, and how.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use leasehold_core::policy::Class;

/// A command and the way it is supervised.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct CommandSpec {
    /// The program and its arguments.
    pub argv: Vec<OsString>,
    /// Environment variables, besides the ones that every supervised command gets.
    pub environment: Vec<(&'static str, OsString)>,
    /// The variables of this process that the command inherits; `None` for all of them.
    pub inherited: Option<Vec<OsString>>,
    /// Where its standard streams go.
    pub streams: Streams,
    /// From TERM to KILL. The holds must have been acquired with this stop grace.
    pub grace: Duration,
    /// The binary that calls [`helper_main`](crate::helper_main). `None`: no guardian, and no held start.
    pub helper: Option<PathBuf>,
    /// This process runs no other children meanwhile. It then adopts orphans, which finds descendants that
    /// left the group and cleared their environment. [`HeldCommand::prepare`](crate::HeldCommand::prepare)
    /// must then be called on the main thread.
    pub sole: bool,
}

impl CommandSpec {
    /// A command with the environment and the streams of this process, without a guardian.
    #[must_use]
    pub fn new(argv: Vec<OsString>, grace: Duration) -> Self {
        Self {
            argv,
            environment: Vec::new(),
            inherited: None,
            streams: Streams::Inherited,
            grace,
            helper: None,
            sole: false,
        }
    }
}

/// The standard streams of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Streams {
    /// The streams of this process.
    Inherited,
    /// Nothing to read; output and errors go to [`Controls`](crate::Controls).
    Captured,
}

/// The time from TERM to KILL: as requested, as the class says, or a default.
#[must_use]
pub fn effective_grace(requested: Option<Duration>, ttl: Option<Duration>, class: &Class) -> Duration {
    // Classes usually have a grace of 0, because a future stops when it is dropped. A process needs time.
    let ttl = ttl.unwrap_or(class.ttl.get());
    requested
        .or(Some(class.stop_grace).filter(|grace| !grace.is_zero()))
        .unwrap_or_else(|| Class::process_grace(ttl))
}
