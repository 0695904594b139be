//! The client: a program opens it once and acquires locks from it.

use std::future::Future;
use std::panic::Location;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::acquire::acquire;
use crate::breaker::Breaker;
use crate::clock::{BootClock, SharedClock};
use crate::context::Context;
use crate::error::{Busy, Error, RunError};
use crate::event::{EventKind, EventStream, EventSubject, Observer};
use crate::fence_floors::FenceFloors;
use crate::gate::{CallSite, Gate};
use crate::hold::Hold;
use crate::keeper::{Keeper, KeeperHandle};
use crate::observe::Log;
use crate::policy::{FileWatch, PolicyBook};
use crate::policy_task;
use crate::request::{Request, RequestOptions};
use crate::rng::{OsRandom, SharedRandom};
use crate::store::{Mode, SharedStore};
use crate::types::{Fence, Holder, InvalidInput, Name};

// Bounds the concurrent acquire requests of one client. Further acquires queue here instead of in
// the store's connection.
const MAX_CONCURRENT_ACQUIRES: usize = 256;

/// The result of an acquire that the store, or the policy, decided.
#[derive(Debug)]
#[must_use = "a hold that is not kept is released at once"]
pub enum Acquired {
    /// The caller holds the lock.
    Held(Hold),
    /// Another holder has the lock.
    Busy(Busy),
}

impl Acquired {
    /// Returns the hold, if the lock was acquired.
    #[must_use]
    pub fn held(self) -> Option<Hold> {
        match self {
            Self::Held(hold) => Some(hold),
            Self::Busy(_) => None,
        }
    }
}

#[derive(Debug)]
pub(crate) struct ClientInner {
    pub(crate) context: Context,
    pub(crate) policies: Arc<PolicyBook>,
    pub(crate) gate: Gate,
    pub(crate) keeper: KeeperHandle,
    pub(crate) acquire_slots: Arc<Semaphore>,
    // Cancelled at shutdown: it ends waiting acquires and refuses new ones.
    pub(crate) closing: CancellationToken,
}

/// A client of one store. Cheap to clone; clones share everything.
#[derive(Debug, Clone)]
pub struct Locks {
    pub(crate) inner: Arc<ClientInner>,
}

impl Locks {
    /// Configures a client of this store, by default with the built-in classes, the boot clock and
    /// log output.
    pub fn builder(store: SharedStore) -> LocksBuilder {
        LocksBuilder {
            store,
            book: None,
            file: None,
            clock: BootClock::shared(),
            random: OsRandom::shared(),
            holder: None,
            log: true,
            observers: Vec::new(),
        }
    }

    /// Selects a class. Each acquire looks the class up again, so a policy change applies at once.
    #[must_use]
    pub fn class(&self, class: &str) -> ClassLocks {
        ClassLocks {
            inner: Arc::clone(&self.inner),
            class: class.into(),
            options: RequestOptions::default(),
            existing_names: false,
        }
    }

    /// Acquires the lock that the request describes.
    ///
    /// # Errors
    /// The acquire could not be decided: see [`Error`].
    #[track_caller]
    pub fn acquire(&self, request: Request) -> impl Future<Output = Result<Acquired, Error>> + Send + use<> {
        let (inner, place) = (Arc::clone(&self.inner), Location::caller());
        async move { acquire(&inner, request, place).await }
    }

    /// The classes in force, for reading and for overrides.
    #[must_use]
    pub fn policies(&self) -> &Arc<PolicyBook> {
        &self.inner.policies
    }

    /// The store that this client uses, for inspection and listing.
    #[must_use]
    pub fn store(&self) -> &SharedStore {
        &self.inner.context.store
    }

    /// The holder name that this client writes into its leases.
    #[must_use]
    pub fn holder(&self) -> &Holder {
        &self.inner.context.holder
    }

    /// The highest fences that this client has seen. A program that sends acquires of its own to
    /// the store shares them.
    #[must_use]
    pub fn fence_floors(&self) -> &FenceFloors {
        &self.inner.context.floors
    }

    /// The clock that decides every deadline of this client.
    #[must_use]
    pub fn clock(&self) -> &SharedClock {
        &self.inner.context.clock
    }

    /// The number of names that this process holds or waits for.
    #[must_use]
    pub fn local_name_count(&self) -> usize {
        self.inner.gate.len()
    }

    /// Reports that a target refused a stale fence: evidence that a write came after its lease was
    /// lost.
    pub fn report_fence_refused(&self, class: &str, name: &Name, offered: Fence, newest: Fence) {
        self.emit_report(class, Some(name), Some(offered), EventKind::FenceRefused { newest });
    }

    /// Reports that the same work was completed twice downstream. Escalation rules count it.
    pub fn report_duplicate(&self, class: &str, name: &Name) {
        self.emit_report(class, Some(name), None, EventKind::Duplicate);
    }

    fn emit_report(&self, class: &str, name: Option<&Name>, fence: Option<Fence>, what: EventKind) {
        let class: Arc<str> = class.into();
        self.inner
            .context
            .events
            .emit(&EventSubject { name, class: &class, fence, hold: 0, holder: None }, what);
    }
}

/// A client restricted to one class, with options for its requests.
#[derive(Debug, Clone)]
pub struct ClassLocks {
    inner: Arc<ClientInner>,
    class: Arc<str>,
    options: RequestOptions,
    existing_names: bool,
}

impl ClassLocks {
    /// Overrides how long to wait for a busy name; zero is one try.
    #[must_use]
    pub fn wait(mut self, wait: Duration) -> Self {
        self.options.wait = Some(wait);
        self
    }

    /// Overrides the time to live of the lease.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.options.ttl = Some(ttl);
        self
    }

    /// Overrides the time that the work needs to stop after its cancellation.
    #[must_use]
    pub fn stop_grace(mut self, grace: Duration) -> Self {
        self.options.stop_grace = Some(grace);
        self
    }

    /// Accepts names with invisible characters. For programs whose stored documents are locked by their ids: an id
    /// that was accepted before such names were refused must stay usable. New ids are the program's to check, with
    /// [`Name::check_visible`].
    #[must_use]
    pub fn existing_names(mut self) -> Self {
        self.existing_names = true;
        self
    }

    /// Acquires the lock of this name.
    ///
    /// # Errors
    /// The acquire could not be decided: see [`Error`]. Contention is not an error but
    /// [`Acquired::Busy`].
    #[track_caller]
    pub fn acquire<N>(&self, name: N) -> impl Future<Output = Result<Acquired, Error>> + Send + use<N>
    where
        N: TryInto<Name>,
        InvalidInput: From<N::Error>,
    {
        let place = Location::caller();
        let (inner, request) = (Arc::clone(&self.inner), self.request(name));
        async move { acquire(&inner, request?, place).await }
    }

    /// Acquires, runs the work under the hold, and releases. The lease is renewed meanwhile; if it
    /// is lost, the work is dropped. A failed release never changes the work's result.
    ///
    /// # Errors
    /// The name is busy, the acquire could not be decided, or the lease was lost (with the work's
    /// result, if it had one).
    #[track_caller]
    pub fn run<N, F, T>(
        &self,
        name: N,
        work: F,
    ) -> impl Future<Output = Result<T, RunError<T>>> + use<N, F, T>
    where
        N: TryInto<Name>,
        InvalidInput: From<N::Error>,
        F: AsyncFnOnce(&Hold) -> T,
    {
        let place = Location::caller();
        let (inner, request) = (Arc::clone(&self.inner), self.request(name));
        async move { run(&inner, request?, place, work).await }
    }

    fn request<N>(&self, name: N) -> Result<Request, Error>
    where
        N: TryInto<Name>,
        InvalidInput: From<N::Error>,
    {
        let name = name.try_into().map_err(InvalidInput::from)?;
        Ok(Request {
            name,
            class: Arc::clone(&self.class),
            mode: Mode::Exclusive,
            options: self.options,
            token: None,
            token_source: None,
            existing_name: self.existing_names,
        })
    }
}

async fn run<F, T>(
    inner: &Arc<ClientInner>,
    request: Request,
    place: CallSite,
    work: F,
) -> Result<T, RunError<T>>
where
    F: AsyncFnOnce(&Hold) -> T,
{
    let hold = match acquire(inner, request, place).await? {
        Acquired::Held(hold) => hold,
        Acquired::Busy(busy) => return Err(RunError::Busy(busy)),
    };
    let result = hold.run(work(&hold)).await;
    // Also after a loss: the keeper then skips the release and frees the local gate.
    hold.release().await;
    result.map_err(|(lost, result)| RunError::Lost { lost, result })
}

/// Configures and opens [`Locks`].
#[derive(Debug)]
#[must_use = "nothing is opened until `build`"]
pub struct LocksBuilder {
    store: SharedStore,
    book: Option<Arc<PolicyBook>>,
    file: Option<PathBuf>,
    clock: SharedClock,
    random: SharedRandom,
    holder: Option<Holder>,
    log: bool,
    observers: Vec<Arc<dyn Observer>>,
}

impl LocksBuilder {
    /// Uses these classes instead of the built-in ones.
    pub fn policies(mut self, book: impl Into<Arc<PolicyBook>>) -> Self {
        self.book = Some(book.into());
        self
    }

    /// Uses the built-in classes as changed and extended by this file. The file is watched: a
    /// change applies within about two seconds. An invalid file is refused with an event and
    /// changes nothing.
    pub fn policy_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.file = Some(path.into());
        self
    }

    /// Replaces the clock, for tests.
    pub fn clock(mut self, clock: SharedClock) -> Self {
        self.clock = clock;
        self
    }

    /// Replaces the source of randomness, for tests.
    pub fn random(mut self, random: SharedRandom) -> Self {
        self.random = random;
        self
    }

    /// Sets the holder name; the default is `host:pid`.
    pub fn holder(mut self, holder: Holder) -> Self {
        self.holder = Some(holder);
        self
    }

    /// Adds an observer of the event stream.
    pub fn observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observers.push(observer);
        self
    }

    /// Disables log output: the caller reads the event stream itself.
    pub fn without_log(mut self) -> Self {
        self.log = false;
        self
    }

    /// Starts the keeper. Must be called on a tokio runtime; the keeper lives as long as that
    /// runtime.
    ///
    /// # Errors
    /// The policy file cannot be read or is invalid.
    pub fn build(self) -> Result<Locks, InvalidInput> {
        let holder = self.holder.unwrap_or_else(Holder::of_this_process);
        let book = match (self.book, &self.file) {
            (Some(book), _) => book,
            (None, Some(path)) => Arc::new(PolicyBook::from_file(path)?),
            (None, None) => Arc::new(PolicyBook::builtin()),
        };
        let file = self.file.map(|path| FileWatch::new(Arc::clone(&book), path));
        let mut observers = self.observers;
        if self.log {
            observers.push(Arc::new(Log));
        }
        observers.push(Arc::new(policy_task::EscalationObserver(Arc::clone(&book))));
        let events = Arc::new(EventStream::new(Arc::clone(&self.clock), holder.clone(), observers));
        let context = Context {
            store: self.store,
            clock: self.clock,
            random: self.random,
            events,
            breaker: Arc::new(Mutex::new(Breaker::default())),
            floors: Arc::new(FenceFloors::default()),
            holder,
            ids: Arc::new(AtomicU64::new(1)),
        };
        let keeper = Keeper::spawn(context.clone(), Arc::clone(&book));
        let inner = Arc::new(ClientInner {
            context,
            policies: book,
            gate: Gate::default(),
            keeper,
            acquire_slots: Arc::new(Semaphore::new(MAX_CONCURRENT_ACQUIRES)),
            closing: CancellationToken::new(),
        });
        policy_task::spawn(&inner, file);
        Ok(Locks { inner })
    }
}
