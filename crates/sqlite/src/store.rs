//! The store itself: each verb of the contract, brought to the right thread and lane.
//!
//! There is no rule of the lock in here. A verb clones what it was asked, puts the step that answers it into
//! the worker's queue, and waits. What the step does stands in the file of that name.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::store::{
    Answer, Ask, Capabilities, Cause, Claim, Failure, Given, Giving, Lease, Listener, Listing, Promise,
    Promised, Renewal, Renewed, Store,
};
use leasehold_core::{Name, Token};

use crate::connection::{self, Session, Setting, beside, folder_of};
use crate::filesystem::Filesystem;
use crate::options::{Durability, SqliteOptions};
use crate::wake::Post;
use crate::worker::{Lane, Worker};
use crate::{acquire, boot, error, inspect, release, renew, step};

/// Leases in one SQLite file that several processes on one host share.
///
/// Dropping it ends its threads and closes the file; leases stay as they are, in the file.
pub struct SqliteStore {
    setting: Arc<Setting>,
    filesystem: Filesystem,
    /// Changes things.
    writer: Worker,
    /// Looks at things. Apart from the writer, so that a long listing delays no renewal.
    reader: Worker,
    /// Wakes waiters, here and in other processes.
    post: Arc<Post>,
}

impl SqliteStore {
    /// Opens the file, making it, its folder and its tables if they are not there.
    ///
    /// It blocks for a few milliseconds at most, unless other processes are busy with the file: then for up
    /// to [`SqliteOptions::busy_timeout`].
    ///
    /// # Errors
    /// The file cannot be used: it is something else, newer, not writable, or on a network filesystem.
    /// Nothing was changed then, beyond an empty file and its folder.
    pub fn open(options: SqliteOptions) -> Result<Self, Failure> {
        let boot = options.boot.clone().map_or_else(boot::read, Ok)?;
        let (options, filesystem) = locate(options)?;
        let setting = Arc::new(Setting { options, boot });
        let options = &setting.options;
        let post = Post::new(beside(&options.path, ".wake"), Arc::clone(&options.random));
        let start = || Worker::start(Session::open(&setting)?, Arc::clone(&options.clock));
        Ok(Self {
            writer: start()?,
            reader: start()?,
            filesystem,
            post: Arc::new(post),
            setting: Arc::clone(&setting),
        })
    }

    /// The file, as the kernel names it.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.setting.options.path
    }
}

/// Makes the file if need be and finds its true path: SQLite puts its log beside the file that a link leads
/// to.
fn locate(mut options: SqliteOptions) -> Result<(SqliteOptions, Filesystem), Failure> {
    if options.path.as_os_str().is_empty() {
        return Err(Failure::not_done(
            Cause::Misconfigured,
            "the database's path is empty: name a file",
        ));
    }
    connection::create_folder(&options.path)?;
    let folder = folder_of(&options.path);
    Filesystem::of(folder)?.check(folder, options.network_filesystem)?;
    connection::create(&options)?;
    options.path = options.path.canonicalize().map_err(|error| {
        error::preparing(
            error,
            format_args!("cannot find the database {}", options.path.display()),
        )
    })?;
    // Once more: a link may have led elsewhere.
    let folder = folder_of(&options.path);
    let filesystem = Filesystem::of(folder)?;
    filesystem.check(folder, options.network_filesystem)?;
    Ok((options, filesystem))
}

#[async_trait]
impl Store for SqliteStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new("sqlite", Promise::Durable)
            .with_list()
            .with_queue()
            .with_cross_process()
            .with_fence_survives_loss()
    }

    fn describe(&self) -> String {
        format!("sqlite:{}", self.path().display())
    }

    async fn acquire(&self, ask: &Ask, within: Duration) -> Result<Answer, Failure> {
        acquire::check(ask)?;
        let (ask, post) = (ask.clone(), Arc::clone(&self.post));
        self.writer
            .ask(Lane::Second, within, move |session, left| {
                // Found before the step begins: nobody else should wait while a socket is looked for.
                let address = ask.queue.and_then(|_| post.address());
                let owner = step::owner(&ask.token);
                if session.waiting.has(&owner)
                    && let Some(answer) =
                        session.read(left, |step| acquire::look(step, &ask, address.as_deref()))?
                {
                    return Ok(answer);
                }
                let answer = session.write(left, |step| acquire::run(step, &ask, address.as_deref()));
                let waits = matches!(&answer, Ok(Answer::Busy(busy)) if busy.queued);
                session.waiting.set(&owner, waits);
                answer
            })
            .await
    }

    async fn renew(&self, batch: &[Renewal], within: Duration) -> Vec<Result<Renewed, Failure>> {
        if batch.is_empty() {
            return Vec::new();
        }
        let (items, count) = (batch.to_vec(), batch.len());
        let asked = self
            .writer
            .ask(Lane::First, within, move |session, left| {
                session.write(left, |step| renew::run(step, &items))
            })
            .await;
        match asked {
            Ok(answers) => answers.into_iter().map(Ok).collect(),
            // One transaction, one fate.
            Err(failure) => {
                let failure = Arc::new(failure);
                (0..count).map(|_| Err(again(&failure))).collect()
            }
        }
    }

    async fn release(&self, giving: &Giving, within: Duration) -> Result<Given, Failure> {
        let (giving, post) = (giving.clone(), Arc::clone(&self.post));
        self.writer
            .ask(Lane::First, within, move |session, left| {
                if let Claim::Owner(token) | Claim::Place(token) = &giving.claim {
                    session.waiting.set(&step::owner(token), false);
                }
                let (given, wake) = session.write(left, |step| release::run(step, &giving, &post))?;
                if let Some(wake) = wake {
                    post.send(&wake);
                }
                Ok(given)
            })
            .await
    }

    async fn inspect(&self, name: &Name, within: Duration) -> Result<Option<Lease>, Failure> {
        let name = name.clone();
        self.reader
            .ask(Lane::First, within, move |session, left| {
                session.read(left, |step| inspect::one(step, &name))
            })
            .await
    }

    async fn list(&self, prefix: &str, limit: usize, within: Duration) -> Result<Listing, Failure> {
        let prefix = prefix.to_owned();
        self.reader
            .ask(Lane::Second, within, move |session, left| {
                session.read(left, |step| inspect::all(step, &prefix, limit))
            })
            .await
    }

    fn listen(&self, _name: &Name, token: &Token) -> Listener {
        self.post.receive();
        self.post.wakers().listen(step::owner(token))
    }

    async fn promise(&self, _within: Duration) -> Result<Promised, Failure> {
        let mut because = vec![
            "there is one copy, on one host's disk: use a consensus store if leases must outlive the host"
                .to_owned(),
        ];
        if self.filesystem == Filesystem::Memory {
            because.push(
                "the file is in memory and a reboot takes its fence counters away: put it on a disk unless the \
                 wall clock can be trusted to go on"
                    .to_owned(),
            );
        } else if self.setting.options.durability == Durability::Normal {
            because.push(
                "after a power cut, fences go on growing only if the wall clock does: choose durability `full` if \
                 it may come back wrong"
                    .to_owned(),
            );
        }
        Ok(Promised {
            promise: Promise::Durable,
            because,
        })
    }
}

/// The same failure once more.
fn again(failure: &Arc<Failure>) -> Failure {
    let repeat = if failure.unknown {
        Failure::unknown
    } else {
        Failure::not_done
    };
    repeat(failure.cause, failure.message().to_owned()).with_source(Shared(Arc::clone(failure)))
}

/// A failure as the source of others.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Shared(Arc<Failure>);

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore")
            .field("path", &self.path())
            .field("durability", &self.setting.options.durability)
            .finish_non_exhaustive()
    }
}
