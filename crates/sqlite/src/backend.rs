//! The `Store` implementation: sends each operation to the right worker thread and priority. And the
//! `Backend` implementation: opens a store by URL.
//!
//! The rules of the lock are not here. Each method clones its request, queues a job for the
//! worker, and waits for the result. The modules `acquire`, `renew`, `release` and
//! `inspect` say what the job does.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::store::{
    AcquireRequest, AcquireResponse, Backend, BackendInfo, Capabilities, Documents, Examination, LeaseList,
    Promise, PromiseReport, ReleaseAuthority, ReleaseRequest, ReleaseResponse, RenewRequest, RenewResponse,
    SharedStore, Store, StoreError, StoreErrorKind, StoreLocation, WakeListener,
};
use leasehold_core::testbed::SimProfile;
use leasehold_core::{Name, Token};

use crate::connection::{self, Session, StoreConfig, folder_of, with_suffix};
use crate::examine::examine;
use crate::filesystem::Filesystem;
use crate::options::{Durability, SqliteOptions};
use crate::wake::WakeSender;
use crate::worker::{Priority, Worker};
use crate::{acquire, boot, error, inspect, promise, release, renew, step};

pub(crate) const CAPABILITIES: Capabilities = Capabilities::new("sqlite", Promise::Durable)
    .with_list()
    .with_queue()
    .with_cross_process()
    .with_documents(true)
    .with_fence_survives_loss();

/// Leases in one SQLite file that several processes on one host share.
///
/// Dropping it ends its threads and closes the file. The leases stay in the file.
pub struct SqliteStore {
    config: Arc<StoreConfig>,
    filesystem: Filesystem,
    // Renewals, releases, acquires, and changes of documents.
    pub(crate) writer: Worker,
    // A second connection, so that a long listing does not delay a renewal.
    pub(crate) reader: Worker,
    pub(crate) wake_sender: Arc<WakeSender>,
}

impl SqliteStore {
    /// Opens the file. Creates the file, its folder and its tables if they are missing.
    ///
    /// Blocks for a few milliseconds, or for up to [`SqliteOptions::busy_timeout`] if other
    /// processes keep the file locked.
    ///
    /// # Errors
    /// The file cannot be used: it has another format or a newer schema, is not writable, or is
    /// on a network filesystem. Nothing was changed then, except that an empty file and its
    /// folder may have been created.
    pub fn open(options: SqliteOptions) -> Result<Self, StoreError> {
        let boot = options.boot.clone().map_or_else(boot::read_boot_id, Ok)?;
        let (options, filesystem) = create_and_resolve(options)?;
        let setting = Arc::new(StoreConfig { options, boot });
        let options = &setting.options;
        let post = WakeSender::new(with_suffix(&options.path, ".wake"), Arc::clone(&options.random));
        let start = || Worker::start(Session::open(&setting)?, Arc::clone(&options.clock));
        Ok(Self {
            writer: start()?,
            reader: start()?,
            filesystem,
            wake_sender: Arc::new(post),
            config: Arc::clone(&setting),
        })
    }

    /// The canonical path of the file, with links resolved.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.config.options.path
    }
}

/// Creates the file if it is missing and resolves links in its path.
fn create_and_resolve(mut options: SqliteOptions) -> Result<(SqliteOptions, Filesystem), StoreError> {
    if options.path.as_os_str().is_empty() {
        return Err(StoreError::not_done(
            StoreErrorKind::Misconfigured,
            "the database's path is empty: name a file",
        ));
    }
    connection::create_folder(&options.path)?;
    let folder = folder_of(&options.path);
    Filesystem::detect(folder)?.check(folder, options.network_filesystem)?;
    connection::create_file(&options.path, &*options.random)?;
    // SQLite puts its log beside the file that a link points to, and wake-ups go beside it too. All
    // users must agree on that path.
    options.path = options.path.canonicalize().map_err(|error| {
        error::prepare_error(error, format_args!("cannot find the database {}", options.path.display()))
    })?;
    // Check again: the path may have been a link to another filesystem.
    let folder = folder_of(&options.path);
    let filesystem = Filesystem::detect(folder)?;
    filesystem.check(folder, options.network_filesystem)?;
    Ok((options, filesystem))
}

#[async_trait]
impl Store for SqliteStore {
    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    fn describe(&self) -> String {
        format!("sqlite:{}", self.path().display())
    }

    async fn acquire(
        &self,
        request: &AcquireRequest,
        within: Duration,
    ) -> Result<AcquireResponse, StoreError> {
        // Before the job is queued.
        CAPABILITIES.check_acquire(request)?;
        let (request, post) = (request.clone(), Arc::clone(&self.wake_sender));
        self.writer
            .run(Priority::Normal, within, move |session, left| {
                // Look up the socket before the write lock is taken, so that other
                // processes do not wait for it.
                let address = request.queue.and_then(|_| post.address());
                let owner = step::owner_hash(&request.token);
                // A waiter that polls again usually needs no write: try a read first (see
                // `acquire::answer_poll_by_read`).
                if session.known_waiters.contains(&owner)
                    && let Some(answer) = session
                        .read(left, |step| acquire::answer_poll_by_read(step, &request, address.as_deref()))?
                {
                    return Ok(answer);
                }
                let answer = session.write(left, |step| acquire::run(step, &request, address.as_deref()));
                let waits = matches!(&answer, Ok(AcquireResponse::Busy(busy)) if busy.queued);
                let until = request.queue.filter(|_| waits).map(|stay| session.now() + stay);
                session.known_waiters.set_waiting(&owner, until);
                answer
            })
            .await
    }

    async fn renew(
        &self,
        batch: &[RenewRequest],
        within: Duration,
    ) -> Vec<Result<RenewResponse, StoreError>> {
        if batch.is_empty() {
            return Vec::new();
        }
        let (items, count) = (batch.to_vec(), batch.len());
        let renewed = self
            .writer
            .run(Priority::High, within, move |session, left| {
                session.write(left, |step| renew::run(step, &items))
            })
            .await;
        match renewed {
            Ok(answers) => answers,
            // The batch is one transaction, so all its items share the error.
            Err(failure) => {
                let failure = Arc::new(failure);
                (0..count).map(|_| Err(repeat_error(&failure))).collect()
            }
        }
    }

    async fn release(
        &self,
        request: &ReleaseRequest,
        within: Duration,
    ) -> Result<ReleaseResponse, StoreError> {
        CAPABILITIES.check_names(&request.names)?;
        let (request, post) = (request.clone(), Arc::clone(&self.wake_sender));
        self.writer
            .run(Priority::High, within, move |session, left| {
                // The release removes the queue entry, so a later acquire of
                // this token must write again.
                if let ReleaseAuthority::Owner(token) | ReleaseAuthority::Waiter(token) = &request.authority {
                    session.known_waiters.set_waiting(&step::owner_hash(token), None);
                }
                let (given, wake) = session.write(left, |step| release::run(step, &request, &post))?;
                if let Some(wake) = wake {
                    // After the commit: a waiter woken earlier would not yet find its lease.
                    post.send(&wake);
                }
                Ok(given)
            })
            .await
    }

    async fn inspect(&self, name: &Name, within: Duration) -> Result<LeaseList, StoreError> {
        let name = name.clone();
        self.reader
            .run(Priority::High, within, move |session, left| {
                session.read(left, |step| inspect::inspect_name(step, &name))
            })
            .await
    }

    async fn list(&self, prefix: &str, limit: usize, within: Duration) -> Result<LeaseList, StoreError> {
        let prefix = prefix.to_owned();
        self.reader
            .run(Priority::Normal, within, move |session, left| {
                session.read(left, |step| inspect::list_prefix(step, &prefix, limit))
            })
            .await
    }

    fn listen(&self, _name: &Name, token: &Token) -> WakeListener {
        // Opened on the first listen: a store value that never waits needs
        // neither socket nor thread.
        self.wake_sender.ensure_socket();
        self.wake_sender.wakers().listen(step::owner_hash(token))
    }

    fn documents(&self) -> Option<&dyn Documents> {
        Some(self)
    }

    async fn promise(&self, _within: Duration) -> Result<PromiseReport, StoreError> {
        Ok(promise::report(self.filesystem, self.config.options.durability))
    }
}

/// Copies an error for one more item of the batch.
fn repeat_error(failure: &Arc<StoreError>) -> StoreError {
    let repeat = if failure.unknown { StoreError::unknown } else { StoreError::not_done };
    repeat(failure.kind, failure.message().to_owned()).with_source(SharedError(Arc::clone(failure)))
}

/// Lets several errors share one source.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct SharedError(Arc<StoreError>);

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore")
            .field("path", &self.path())
            .field("durability", &self.config.options.durability)
            .finish_non_exhaustive()
    }
}

/// Opens `sqlite:PATH` and bare paths.
#[derive(Debug, Clone, Copy)]
pub struct SqliteBackend;

impl Backend for SqliteBackend {
    fn info(&self) -> BackendInfo {
        BackendInfo::new("SQLite", &["sqlite"], &["sqlite:PATH"])
            .with_summary("one SQLite file", "processes of one host")
            .with_paths()
            .with_examines(
                "what the file is on, rights, free space, journal mode, damage, schema, the boot clock",
            )
            .with_rights_advice(
                "let this user read and write the file, the files beside it whose names begin with its name, and \
                 their folder",
            )
            .with_capabilities(CAPABILITIES)
    }

    fn parse(&self, url: &str) -> Result<Box<dyn StoreLocation>, StoreError> {
        Ok(Box::new(SqliteOptions::parse(url)?))
    }

    #[cfg(feature = "testbed")]
    fn testbed(&self) -> Option<&'static dyn leasehold_core::testbed::TestbedFactory> {
        Some(&crate::testkit::SqliteTestbeds)
    }

    fn sim_profile(&self) -> Option<SimProfile> {
        Some(SimProfile::new("sqlite").with_seed_share(400))
    }
}

impl fmt::Display for SqliteOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let query = match self.durability {
            Durability::Normal => "",
            Durability::Full => "?durability=full",
        };
        write!(f, "sqlite:{}{query}", self.path.display())
    }
}

#[async_trait]
impl StoreLocation for SqliteOptions {
    fn expose_url(&self) -> String {
        // A path contains no secret.
        self.to_string()
    }

    fn open(&self) -> Result<SharedStore, StoreError> {
        Ok(Arc::new(SqliteStore::open(self.clone())?))
    }

    async fn examine(&self, _within: Duration) -> Result<Examination, StoreError> {
        let options = self.clone();
        // On a blocking thread: it reads the file system, which may be slow or remote.
        let examined = tokio::task::spawn_blocking(move || examine(&options)).await;
        examined.map_err(|error| {
            StoreError::not_done(StoreErrorKind::Corrupt, format!("the examination ended early: {error}"))
        })
    }

    fn exists(&self) -> Option<bool> {
        Some(self.path.exists())
    }
}
