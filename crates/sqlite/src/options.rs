//! Which file, and how it is treated: what the caller may choose, and what follows from each choice.
//!
//! Options are plain data. Nothing is looked at or changed before
//! [`SqliteStore::open`](crate::SqliteStore::open) gets them.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use leasehold_core::Invalid;
use leasehold_core::clock::{BootClock, SharedClock};
use leasehold_core::rng::{OsRandom, SharedRandom};

/// When an acknowledged step is on the disk. Either way it survives the death of every process that uses the
/// file; the difference is a power cut or a crash of the whole machine (see ADR 0005).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Durability {
    /// The disk is waited for at checkpoints, and whenever a fence runs ahead of the wall clock. A power cut
    /// may lose the last steps: their leases end with the boot anyway, and the time in the fence keeps it
    /// growing.
    #[default]
    Normal,
    /// The disk is waited for at every step. Choose it if the wall clock may come back wrong after a power
    /// cut.
    Full,
}

impl Durability {
    pub(crate) const fn pragma(self) -> &'static str {
        match self {
            Self::Normal => "NORMAL",
            Self::Full => "FULL",
        }
    }
}

impl FromStr for Durability {
    type Err = Invalid;
    fn from_str(text: &str) -> Result<Self, Invalid> {
        match text {
            "normal" => Ok(Self::Normal),
            "full" => Ok(Self::Full),
            _ => Err(Invalid::new("durability", text, "must be `normal` or `full`")),
        }
    }
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Normal => "normal",
            Self::Full => "full",
        })
    }
}

/// Which file, and how it is treated.
///
/// Every process that shares the file may choose for itself; only the path has to agree.
#[derive(Debug, Clone)]
pub struct SqliteOptions {
    /// The database file; its folder is made if it is missing.
    pub(crate) path: PathBuf,
    /// What leases expire by. Every process of a file must see the same clock.
    pub(crate) clock: SharedClock,
    /// Names of sockets and the jitter of retries come from here.
    pub(crate) random: SharedRandom,
    /// Stands for the boot in tests; `None` reads the kernel's.
    pub(crate) boot: Option<String>,
    /// The longest a step waits for another process's step, however long its caller would wait.
    pub(crate) busy_timeout: Duration,
    /// When a step is on the disk.
    pub(crate) durability: Durability,
    /// The operator answers for the locks of a network filesystem.
    pub(crate) network_filesystem: bool,
}

impl SqliteOptions {
    /// The defaults for this file: the boot clock, the kernel's boot id, up to 5 s of waiting for other
    /// processes, [`Durability::Normal`], no network filesystems.
    #[must_use]
    pub fn new(path: impl AsRef<Path>) -> Self {
        Self {
            path: path.as_ref().to_path_buf(),
            clock: BootClock::shared(),
            random: OsRandom::shared(),
            boot: None,
            busy_timeout: Duration::from_secs(5),
            durability: Durability::default(),
            network_filesystem: false,
        }
    }

    /// With another clock. All processes that share the file need one that shows the same time.
    #[must_use]
    pub fn clock(mut self, clock: SharedClock) -> Self {
        self.clock = clock;
        self
    }

    /// With another source of randomness.
    #[must_use]
    pub fn random(mut self, random: SharedRandom) -> Self {
        self.random = random;
        self
    }

    /// With this boot id instead of the kernel's: a file last used under another one has all its leases,
    /// waiters and tombstones void.
    #[must_use]
    pub fn boot_id(mut self, boot: impl Into<String>) -> Self {
        self.boot = Some(boot.into());
        self
    }

    /// The longest a step waits for other processes' steps before it answers *overloaded, nothing was
    /// changed*. The `within` of a call limits it further.
    #[must_use]
    pub fn busy_timeout(mut self, limit: Duration) -> Self {
        self.busy_timeout = limit;
        self
    }

    /// With this durability.
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Uses the file even on a network or FUSE filesystem. Their file locks often do not lock, and another
    /// host's boot clock means nothing here: allow it only for a filesystem that this one host uses alone.
    #[must_use]
    pub fn allow_network_filesystem(mut self, allow: bool) -> Self {
        self.network_filesystem = allow;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durability_reads_what_it_writes() {
        for each in [Durability::Normal, Durability::Full] {
            assert_eq!(each.to_string().parse::<Durability>().unwrap(), each);
        }
        let said = "off".parse::<Durability>().unwrap_err().to_string();
        assert!(said.contains("normal") && said.contains("full"), "{said}");
    }
}
