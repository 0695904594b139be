//! The client: what a program opens once and takes locks from.

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
use crate::error::{Busy, Error, RunError};
use crate::event::{Events, Observer, Subject, What};
use crate::floor::Floors;
use crate::gate::{Gate, Place};
use crate::hold::Hold;
use crate::keeper::{Handle, Keeper};
use crate::observe::Log;
use crate::policy::{FileWatch, PolicyBook};
use crate::request::{Request, Tweaks};
use crate::rng::{OsRandom, SharedRandom};
use crate::steward;
use crate::store::{Mode, SharedStore};
use crate::tools::Tools;
use crate::word::{Fence, Holder, Invalid, Name};

/// How many asks of one client may be on their way at once. Beyond it, acquires queue here and not in the store.
const ASKING: usize = 256;

/// The answer to an acquire.
#[derive(Debug)]
#[must_use = "a hold that is not kept is released at once"]
pub enum Acquired {
    /// It is yours.
    Held(Hold),
    /// Someone else has it.
    Busy(Busy),
}

impl Acquired {
    /// The hold, if there is one.
    #[must_use]
    pub fn held(self) -> Option<Hold> {
        match self {
            Self::Held(hold) => Some(hold),
            Self::Busy(_) => None,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) tools: Tools,
    pub(crate) book: Arc<PolicyBook>,
    pub(crate) gate: Gate,
    pub(crate) keeper: Handle,
    pub(crate) asking: Semaphore,
    /// Fires when the client shuts down: for acquires that begin then, and for those that wait.
    pub(crate) closing: CancellationToken,
}

/// Locks of one store. Cheap to clone; clones share everything.
#[derive(Debug, Clone)]
pub struct Locks {
    pub(crate) inner: Arc<Inner>,
}

impl Locks {
    /// Locks on this store, with the built-in classes, the real clock and a log.
    pub fn builder(store: SharedStore) -> Builder {
        Builder {
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

    /// Locks under this class. The class is looked up with each acquire, so a policy that changes counts at once.
    #[must_use]
    pub fn class(&self, class: &str) -> ClassLocks {
        ClassLocks {
            inner: Arc::clone(&self.inner),
            class: class.into(),
            tweaks: Tweaks::default(),
        }
    }

    /// Acquires as the request says.
    ///
    /// # Errors
    /// No answer: see [`Error`].
    #[track_caller]
    pub fn acquire(&self, request: Request) -> impl Future<Output = Result<Acquired, Error>> + Send + use<> {
        let (inner, place) = (Arc::clone(&self.inner), Location::caller());
        async move { acquire(&inner, request, place).await }
    }

    /// The classes in force.
    #[must_use]
    pub fn policies(&self) -> &Arc<PolicyBook> {
        &self.inner.book
    }

    /// The store.
    #[must_use]
    pub fn store(&self) -> &SharedStore {
        &self.inner.tools.store
    }

    /// Who this client says it is.
    #[must_use]
    pub fn holder(&self) -> &Holder {
        &self.inner.tools.holder
    }

    /// The clock everything here goes by.
    #[must_use]
    pub fn clock(&self) -> &SharedClock {
        &self.inner.tools.clock
    }

    /// Names that this process holds or waits for.
    #[must_use]
    pub fn names_here(&self) -> usize {
        self.inner.gate.len()
    }

    /// Tells the stream that a target refused a stale fence: the proof that fencing is needed, and works.
    pub fn fence_refused(&self, class: &str, name: &Name, offered: Fence, newest: Fence) {
        self.report(class, Some(name), Some(offered), What::FenceRefused { newest });
    }

    /// Tells the stream that something ended twice downstream. Escalation rules listen to it.
    pub fn duplicate(&self, class: &str, name: &Name) {
        self.report(class, Some(name), None, What::Duplicate);
    }

    fn report(&self, class: &str, name: Option<&Name>, fence: Option<Fence>, what: What) {
        let class: Arc<str> = class.into();
        self.inner.tools.events.emit(
            &Subject {
                name,
                class: &class,
                fence,
                hold: 0,
                holder: None,
            },
            what,
        );
    }
}

/// Locks under one class.
#[derive(Debug, Clone)]
pub struct ClassLocks {
    inner: Arc<Inner>,
    class: Arc<str>,
    tweaks: Tweaks,
}

impl ClassLocks {
    /// Wait this long for a busy name instead of what the class says; zero is one try.
    #[must_use]
    pub fn wait(mut self, wait: Duration) -> Self {
        self.tweaks.wait = Some(wait);
        self
    }

    /// A lease of this length instead of the class's.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.tweaks.ttl = Some(ttl);
        self
    }

    /// The work needs this long to stop.
    #[must_use]
    pub fn stop_grace(mut self, grace: Duration) -> Self {
        self.tweaks.stop_grace = Some(grace);
        self
    }

    /// Acquires.
    ///
    /// # Errors
    /// No answer: see [`Error`]. Contention is not an error but [`Acquired::Busy`].
    #[track_caller]
    pub fn acquire<N>(&self, name: N) -> impl Future<Output = Result<Acquired, Error>> + Send + use<N>
    where
        N: TryInto<Name>,
        Invalid: From<N::Error>,
    {
        let place = Location::caller();
        let (inner, request) = (Arc::clone(&self.inner), self.request(name));
        async move { acquire(&inner, request?, place).await }
    }

    /// Acquires, runs the work under the hold, and releases. The hold is renewed meanwhile; on loss the work is
    /// dropped. A release that fails never changes the work's result.
    ///
    /// # Errors
    /// Busy, no answer, or lost (with the work's result, if it had one).
    #[track_caller]
    pub fn run<N, F, T>(
        &self,
        name: N,
        work: F,
    ) -> impl Future<Output = Result<T, RunError<T>>> + use<N, F, T>
    where
        N: TryInto<Name>,
        Invalid: From<N::Error>,
        F: AsyncFnOnce(&Hold) -> T,
    {
        let place = Location::caller();
        let (inner, request) = (Arc::clone(&self.inner), self.request(name));
        async move { run(&inner, request?, place, work).await }
    }

    fn request<N>(&self, name: N) -> Result<Request, Error>
    where
        N: TryInto<Name>,
        Invalid: From<N::Error>,
    {
        let name = name.try_into().map_err(Invalid::from)?;
        Ok(Request {
            name,
            class: Arc::clone(&self.class),
            mode: Mode::Exclusive,
            tweaks: self.tweaks,
            token: None,
            heirs: None,
        })
    }
}

async fn run<F, T>(inner: &Arc<Inner>, request: Request, place: Place, work: F) -> Result<T, RunError<T>>
where
    F: AsyncFnOnce(&Hold) -> T,
{
    let hold = match acquire(inner, request, place).await? {
        Acquired::Held(hold) => hold,
        Acquired::Busy(busy) => return Err(RunError::Busy(busy)),
    };
    let result = hold.run(work(&hold)).await;
    hold.release().await;
    result.map_err(|(lost, result)| RunError::Lost { lost, result })
}

/// Sets up [`Locks`].
#[derive(Debug)]
#[must_use = "nothing is opened until `build`"]
pub struct Builder {
    store: SharedStore,
    book: Option<Arc<PolicyBook>>,
    file: Option<PathBuf>,
    clock: SharedClock,
    random: SharedRandom,
    holder: Option<Holder>,
    log: bool,
    observers: Vec<Arc<dyn Observer>>,
}

impl Builder {
    /// These classes instead of the built-in ones.
    pub fn policies(mut self, book: impl Into<Arc<PolicyBook>>) -> Self {
        self.book = Some(book.into());
        self
    }

    /// The built-in classes as this file changes and adds to them. The file is watched: a change counts within about two
    /// second, a bad one is refused with an event and changes nothing.
    pub fn policy_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.file = Some(path.into());
        self
    }

    /// Another clock, for tests.
    pub fn clock(mut self, clock: SharedClock) -> Self {
        self.clock = clock;
        self
    }

    /// Another source of randomness, for tests.
    pub fn random(mut self, random: SharedRandom) -> Self {
        self.random = random;
        self
    }

    /// Who this client says it is; by default `host:pid`.
    pub fn holder(mut self, holder: Holder) -> Self {
        self.holder = Some(holder);
        self
    }

    /// One more reader of the event stream.
    pub fn observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observers.push(observer);
        self
    }

    /// No log lines: the caller reads the stream itself.
    pub fn without_log(mut self) -> Self {
        self.log = false;
        self
    }

    /// Starts the keeper. Must be called on a tokio runtime; the keeper lives as long as that runtime.
    ///
    /// # Errors
    /// The policy file cannot be read or does not make sense.
    pub fn build(self) -> Result<Locks, Invalid> {
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
        observers.push(Arc::new(steward::Signals(Arc::clone(&book))));
        let events = Arc::new(Events::new(Arc::clone(&self.clock), holder.clone(), observers));
        let tools = Tools {
            store: self.store,
            clock: self.clock,
            random: self.random,
            events,
            breaker: Arc::new(Mutex::new(Breaker::default())),
            floors: Arc::new(Floors::default()),
            holder,
            ids: Arc::new(AtomicU64::new(1)),
        };
        let keeper = Keeper::spawn(tools.clone(), Arc::clone(&book));
        let inner = Arc::new(Inner {
            tools,
            book,
            gate: Gate::default(),
            keeper,
            asking: Semaphore::new(ASKING),
            closing: CancellationToken::new(),
        });
        steward::spawn(&inner, file);
        Ok(Locks { inner })
    }
}
