//! The guard that a successful acquire returns.

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::clock::{Moment, SharedClock};
use crate::error::{Lost, NoFence};
use crate::event::Loss;
use crate::keeper::{Command, Handle};
use crate::life::{Life, Outcome, State};
use crate::word::{Fence, Name};

/// Against whom a hold is exclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exclusivity {
    /// Against everyone who asks the store.
    Distributed,
    /// Against this process only: the store could not be asked and the class is fail-open.
    LocalOnly,
}

/// How sure a hold is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Standing {
    /// The lease is confirmed.
    Proven,
    /// Work goes on without a lease that can be proven.
    Unproven,
    /// There never was one.
    LocalOnly,
    /// It is over.
    Lost(Loss),
}

/// What keeper and guard share about one hold. The keeper writes it, the guard reads it at the moment of use.
#[derive(Debug)]
pub(crate) struct Shared {
    view: Mutex<View>,
    cancel: CancellationToken,
}

#[derive(Debug, Clone, Copy)]
struct View {
    standing: Standing,
    /// Not to be passed, whatever the standing says: the keeper may be late.
    deadline: Moment,
    /// `max_hold` is over: the same end, for another reason.
    limit: Moment,
    /// The lease's own deadline has passed although the class lets work go on.
    proven_until: Moment,
    fence: Option<Fence>,
}

impl Shared {
    pub(crate) fn new(life: &Life) -> Arc<Self> {
        let shared = Self {
            view: Mutex::new(View {
                standing: Standing::Proven,
                deadline: Moment::ZERO,
                limit: Moment::FAR,
                proven_until: Moment::ZERO,
                fence: None,
            }),
            cancel: CancellationToken::new(),
        };
        shared.update(life);
        Arc::new(shared)
    }

    /// Takes over what the machine says.
    pub(crate) fn update(&self, life: &Life) {
        let mut view = self.lock();
        view.fence = life.fence();
        view.deadline = life.deadline();
        view.limit = life.limit();
        match life.state() {
            State::Proven { deadline } => {
                view.standing = Standing::Proven;
                view.proven_until = deadline;
            }
            State::Unproven { .. } => view.standing = Standing::Unproven,
            State::LocalOnly { .. } => view.standing = Standing::LocalOnly,
            State::Lost(loss) => view.standing = Standing::Lost(loss),
            // The guard is gone or about to be: what it last saw stays.
            State::Releasing { .. } | State::Owing { .. } | State::Done(_) => {}
        }
    }

    /// Fires the cancellation. The view already says why.
    pub(crate) fn cancel(&self) {
        self.cancel.cancel();
    }

    fn lock(&self) -> MutexGuard<'_, View> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The comparison made at the moment of use.
    fn judge(&self, now: Moment) -> Standing {
        let view = self.lock();
        match view.standing {
            Standing::Lost(loss) => Standing::Lost(loss),
            // In the machine's order, so that guard and event give the same reason.
            _ if now >= view.limit => Standing::Lost(Loss::MaxHold),
            _ if now >= view.deadline => Standing::Lost(Loss::Deadline),
            Standing::Proven if now >= view.proven_until => Standing::Unproven,
            standing => standing,
        }
    }
}

/// A held lock.
///
/// **Dropping it** hands the lease to the background, which releases it with the same bounds and the same bookkeeping
/// as [`release`](Self::release): it never blocks and never panics, but when it has happened only `release` can tell.
/// If the process ends first, the lease runs out by its TTL.
pub struct Hold {
    pub(crate) id: u64,
    pub(crate) name: Name,
    pub(crate) class: Arc<str>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) keeper: Handle,
    pub(crate) clock: SharedClock,
}

impl Hold {
    /// What is held.
    #[must_use]
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// The class it is held under.
    #[must_use]
    pub fn class(&self) -> &str {
        &self.class
    }

    /// May work go on? Reads the clock: call it right before each protected step. A process that slept through its
    /// lease finds out here, before it does anything.
    ///
    /// # Errors
    /// The hold is over: stop.
    pub fn check(&self) -> Result<(), Lost> {
        match self.shared.judge(self.clock.now()) {
            Standing::Lost(reason) => Err(self.lost_for(reason)),
            _ => Ok(()),
        }
    }

    /// How sure it is, now.
    #[must_use]
    pub fn standing(&self) -> Standing {
        self.shared.judge(self.clock.now())
    }

    /// Against whom it is exclusive, now.
    #[must_use]
    pub fn exclusivity(&self) -> Exclusivity {
        match self.standing() {
            Standing::LocalOnly => Exclusivity::LocalOnly,
            _ => Exclusivity::Distributed,
        }
    }

    /// The number to send with each protected write. Checks first.
    ///
    /// # Errors
    /// The hold is over, or it is local only and no store has issued a fence.
    pub fn fence(&self) -> Result<Fence, NoFence> {
        self.check()?;
        self.shared.lock().fence.ok_or_else(|| NoFence::LocalOnly {
            name: self.name.clone(),
        })
    }

    /// Like [`fence`](Self::fence), for targets that take a write twice: a local-only hold answers `None`.
    ///
    /// # Errors
    /// The hold is over.
    pub fn unfenced(&self) -> Result<Option<Fence>, Lost> {
        self.check()?;
        Ok(self.shared.lock().fence)
    }

    /// How long work may go on without another confirmed renewal; zero if the hold is over.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        let now = self.clock.now();
        match self.shared.judge(now) {
            Standing::Lost(_) => Duration::ZERO,
            _ => self.shared.lock().deadline.since(now),
        }
    }

    /// How long nobody else can be granted the name: what is left of the confirmed lease, and zero if there is none that can
    /// be proven. Shorter than [`remaining`](Self::remaining) only where the class lets work go on without proof.
    #[must_use]
    pub fn proven_for(&self) -> Duration {
        let now = self.clock.now();
        match self.shared.judge(now) {
            Standing::Proven => {
                let view = self.shared.lock();
                view.proven_until.min(view.deadline).since(now)
            }
            _ => Duration::ZERO,
        }
    }

    /// Code that wants `name` locked and gets this hold passed is covered by it, if it is the same name and still good.
    /// Locks are not reentrant: this is how to call such code while holding.
    ///
    /// # Errors
    /// It is another name's, or it is over.
    pub fn cover(&self, name: &Name) -> Result<&Self, NotCovered> {
        if self.name != *name {
            return Err(NotCovered::OtherName {
                held: self.name.clone(),
                wanted: name.clone(),
            });
        }
        self.check()?;
        Ok(self)
    }

    /// Ends when the hold is lost, and says why. Does not depend on the keeper being alive: the deadline is watched
    /// here too.
    pub async fn lost(&self) -> Lost {
        loop {
            let now = self.clock.now();
            if let Standing::Lost(reason) = self.shared.judge(now) {
                return self.lost_for(reason);
            }
            let deadline = self.shared.lock().deadline;
            tokio::select! {
                // In this order and not at random: a run repeats from its seed.
                biased;
                () = self.shared.cancel.cancelled() => {
                    if let Standing::Lost(reason) = self.shared.judge(self.clock.now()) {
                        return self.lost_for(reason);
                    }
                    // Cancelled is final; a standing that does not say why yet is about to.
                    tokio::task::yield_now().await;
                }
                // The deadline may have moved on by then: look again.
                () = self.clock.sleep_until(deadline) => {}
            }
        }
    }

    /// Fires once when the hold is lost, for code that takes a token.
    #[must_use]
    pub fn cancellation(&self) -> CancellationToken {
        self.shared.cancel.child_token()
    }

    /// Runs `work` as long as the hold is good. The hold is checked before every step of the work, so a process that
    /// wakes up past its deadline runs none; on loss the work is dropped where it stands.
    ///
    /// # Errors
    /// Lost, with the work's result if it had one by then.
    pub async fn run<T>(&self, work: impl Future<Output = T>) -> Result<T, (Lost, Option<T>)> {
        let mut work = pin!(work);
        let mut lost = pin!(self.lost());
        std::future::poll_fn(|cx| {
            if let Poll::Ready(lost) = lost.as_mut().poll(cx) {
                return Poll::Ready(Err((lost, None)));
            }
            // Timers can be late after a pause; the comparison is not.
            if let Err(lost) = self.check() {
                return Poll::Ready(Err((lost, None)));
            }
            match work.as_mut().poll(cx) {
                Poll::Ready(out) => Poll::Ready(match self.check() {
                    Ok(()) => Ok(out),
                    Err(lost) => Err((lost, Some(out))),
                }),
                Poll::Pending => Poll::Pending,
            }
        })
        .await
    }

    /// Gives the lease back and says how that went. The release itself does not depend on this future: if it is
    /// dropped, the release goes on. It never fails: what could not be confirmed is [`Outcome::Debt`].
    pub async fn release(self) -> Outcome {
        let (answer, outcome) = oneshot::channel();
        self.keeper.send(Command::Release {
            id: self.id,
            answer: Some(answer),
        });
        match outcome.await {
            Ok(outcome) => outcome,
            // The keeper died with it: nobody can say more than that the lease runs out.
            Err(_) => Outcome::Skipped,
        }
    }

    fn lost_for(&self, reason: Loss) -> Lost {
        Lost {
            name: self.name.clone(),
            reason,
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        // After `release` this is a repetition that the machine ignores.
        self.keeper.send(Command::Release {
            id: self.id,
            answer: None,
        });
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold")
            .field("name", &self.name)
            .field("class", &self.class)
            .field("standing", &self.standing())
            .field("fence", &self.shared.lock().fence)
            .finish_non_exhaustive()
    }
}

/// A hold does not cover what was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotCovered {
    /// It is another name's.
    #[error("a hold of {held} does not cover {wanted}")]
    OtherName {
        /// What is held.
        held: Name,
        /// What is wanted.
        wanted: Name,
    },
    /// It is over.
    #[error(transparent)]
    Lost(#[from] Lost),
}
