//! Options of the store: the file, and how it is used.
//!
//! Options are plain data. [`SqliteStore::open`](crate::SqliteStore::open) is
//! the first to touch the file.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use leasehold_core::InvalidInput;
use leasehold_core::clock::{BootClock, SharedClock};
use leasehold_core::rng::{OsRandom, SharedRandom};
use leasehold_core::store::{StoreError, StoreErrorKind};

/// When an acknowledged step is on the disk. With both values it survives the
/// death of every process that uses the file. They differ after a power cut or a
/// crash of the machine (see ADR 0005).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Durability {
    /// Waits for the disk at checkpoints, after each change of a document, and whenever a fence is
    /// ahead of the wall clock. A power cut may lose the last steps of leases. They end with the
    /// boot anyway, and the time in the fence keeps it growing.
    #[default]
    Normal,
    /// Waits for the disk at every step. Choose it if the wall clock may be
    /// wrong after a power cut.
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
    type Err = InvalidInput;
    fn from_str(text: &str) -> Result<Self, InvalidInput> {
        match text {
            "normal" => Ok(Self::Normal),
            "full" => Ok(Self::Full),
            _ => Err(InvalidInput::new("durability", text, "must be `normal` or `full`")),
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

/// The database file, and how this store value uses it.
///
/// Processes that share the file may choose different options; only the path has to agree.
#[derive(Debug, Clone)]
pub struct SqliteOptions {
    /// The database file; a missing folder is created.
    pub(crate) path: PathBuf,
    /// Clock by which leases expire. Every process that uses the file must see the same one.
    pub(crate) clock: SharedClock,
    /// Source of socket names and retry jitter.
    pub(crate) random: SharedRandom,
    /// Replaces the kernel's boot id in tests; `None` reads the kernel's.
    pub(crate) boot: Option<String>,
    /// Upper limit of a step's wait for the write lock, even if its caller allows more.
    pub(crate) busy_timeout: Duration,
    pub(crate) durability: Durability,
    /// Set by an operator who vouches for the file locks of a network filesystem.
    pub(crate) network_filesystem: bool,
}

impl SqliteOptions {
    /// Defaults for this file: the boot clock, the kernel's boot id, a busy timeout of 5 s,
    /// [`Durability::Normal`], and no network filesystems.
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

    /// Parses `sqlite:PATH`, `sqlite:///PATH` or a path, with `?durability=full` or `normal` after
    /// it. A relative path becomes absolute here.
    ///
    /// # Errors
    /// The URL names no file, or has a host or an unknown option.
    pub fn parse(url: &str) -> Result<Self, StoreError> {
        let refuse = |why: &str| StoreError::not_done(StoreErrorKind::Misconfigured, why);
        let rest = url.strip_prefix("sqlite:").unwrap_or(url);
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let path = match path.strip_prefix("//") {
            Some(path) if path.starts_with('/') => path,
            Some(_) => {
                return Err(refuse(
                    "a SQLite file has no host: write sqlite:///PATH for a path from the root, or sqlite:PATH for \
                     one from here",
                ));
            }
            None => path,
        };
        if path.is_empty() {
            return Err(refuse("it names no file; write sqlite:PATH"));
        }
        // Several leading slashes are reduced to one: `sqlite://a` would print as a URL with a
        // host.
        let rooted = path.starts_with('/').then(|| format!("/{}", path.trim_start_matches('/')));
        let durability = match query {
            "" | "durability=normal" => Durability::Normal,
            "durability=full" => Durability::Full,
            _ => {
                return Err(refuse(
                    "what follows its ? is not known; durability=normal and durability=full are",
                ));
            }
        };
        let path = std::path::absolute(rooted.as_deref().unwrap_or(path))
            .map_err(|error| refuse(&error.to_string()))?;
        Ok(Self::new(path).durability(durability))
    }

    /// The database file, as given.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Replaces the clock. All processes that share the file need clocks that show the same time.
    #[must_use]
    pub fn clock(mut self, clock: SharedClock) -> Self {
        self.clock = clock;
        self
    }

    /// Replaces the source of randomness.
    #[must_use]
    pub fn random(mut self, random: SharedRandom) -> Self {
        self.random = random;
        self
    }

    /// Replaces the kernel's boot id. If the file was last used under another id, its leases,
    /// waiters and tombstones are void.
    #[must_use]
    pub fn boot_id(mut self, boot: impl Into<String>) -> Self {
        self.boot = Some(boot.into());
        self
    }

    /// Sets how long a step waits for other processes before it answers *overloaded, nothing was
    /// changed*. The `within` of a call limits it further.
    #[must_use]
    pub fn busy_timeout(mut self, limit: Duration) -> Self {
        self.busy_timeout = limit;
        self
    }

    /// Sets when an acknowledged step is on the disk; the default is [`Durability::Normal`].
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Accepts a network or FUSE filesystem. Their file locks often do not work, and another host's
    /// boot clock means nothing here. Allow it only if this host alone uses the filesystem.
    #[must_use]
    pub fn allow_network_filesystem(mut self, allow: bool) -> Self {
        self.network_filesystem = allow;
        self
    }
}
