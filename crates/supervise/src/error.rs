//! Why a command could not be run under supervision.

use std::io;

/// A command could not be started or waited for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SuperviseError {
    /// The guardian process could not be started.
    #[error("the guardian process could not be started: {0}")]
    GuardianStart(#[source] io::Error),
    /// The guardian process ended before it confirmed that it watches.
    #[error("the guardian process died at once")]
    GuardianDied,
    /// The guardian process did not confirm in time that it watches.
    #[error("the guardian process does not answer")]
    GuardianSilent,
    /// The guardian died too often to be an accident.
    #[error("it has died {0} times before")]
    GuardianRestarts(u32),
    /// The command's process could not be made.
    #[error("the command's process could not be made: {0}")]
    Spawn(#[source] io::Error),
    /// The command's exit status could not be read.
    #[error("the command cannot be waited for: {0}")]
    Wait(#[source] io::Error),
}
