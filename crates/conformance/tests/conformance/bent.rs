//! A store with one defect, chosen by name: what the cases must notice. Everything else is the memory store's.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold_core::store::{
    Answer, Ask, Capabilities, Cause, Claim, Failure, Given, Giving, Lease, Listener, Listing, Mode, Renewal,
    Renewed, SharedStore, Store, Wakers,
};
use leasehold_core::{Fence, Name, Token, Ttl};

/// The defect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bug {
    ReleaseWithoutComparing,
    ReleaseDoesNothing,
    AlwaysReleased,
    SeenBreaksAnyGrant,
    BreakDoesNothing,
    RenewWithoutComparingToken,
    RenewWithoutComparingFence,
    RenewRevives,
    RenewDoesNothing,
    RenewShortens,
    RenewOnlyOnce,
    BatchReversed,
    WasLeftIsTheNewTtl,
    FenceRepeats,
    FenceNearItsEnd,
    FloorIgnored,
    UndoWithoutTombstone,
    TombstoneForTheHolder,
    NewFenceWhenAskedAgain,
    AskingAgainExtendsNothing,
    AskingAgainIsBusy,
    EverybodyIsGranted,
    TtlIgnored,
    TtlHalved,
    LockDelayIgnored,
    AllNamesAreOne,
    CaseIgnored,
    ModesIgnored,
    QueuedIsALie,
    EverybodyIsQueued,
    WaitersAreStarved,
    AskingAgainGoesToTheEnd,
    EntryNeverRenewed,
    EntryNeverEnds,
    WaiterNeverForgotten,
    LeavingTheQueueReleases,
    ClaimNeverEnds,
    Deaf,
    WakesEverybody,
    SecretIsTheHolder,
    HolderIsHidden,
    ShowsWhatIsGone,
    ListFails,
    ListUnsorted,
    ListWithoutPrefix,
    LimitIgnored,
    TruncationUntold,
}

/// The memory store with a [`Bug`].
#[derive(Debug)]
pub(crate) struct Bent {
    bug: Bug,
    inner: SharedStore,
    /// Shared by all handles of a fixture, like the leases.
    memory: Arc<Mutex<Memories>>,
}

/// What the defects need to remember.
#[derive(Debug, Default)]
pub(crate) struct Memories {
    /// The last ask that was granted, by name.
    granted: HashMap<Name, (Ask, Fence)>,
    /// Asks that were told *busy*, by the holder's name (the cases give each waiter its own).
    waiting: HashMap<String, Ask>,
    renewed: HashSet<Token>,
    voided: HashSet<String>,
    shown: HashMap<Name, Lease>,
    wakers: Arc<Wakers>,
}

const WITHIN: Duration = Duration::from_secs(1);

impl Bent {
    pub(crate) fn shared(bug: Bug, inner: SharedStore, memory: &Arc<Mutex<Memories>>) -> SharedStore {
        Arc::new(Self {
            bug,
            inner,
            memory: Arc::clone(memory),
        })
    }

    fn is(&self, bug: Bug) -> bool {
        self.bug == bug
    }

    fn name(&self, name: &Name) -> Name {
        match self.bug {
            Bug::AllNamesAreOne => Name::new("one").unwrap(),
            Bug::CaseIgnored => Name::new(&name.as_str().to_lowercase()).unwrap(),
            _ => name.clone(),
        }
    }

    /// The token that the last grant of this name went to.
    fn owner(&self, name: &Name) -> Option<Token> {
        let memory = self.memory.lock().unwrap();
        memory.granted.get(name).map(|(ask, _)| ask.token.clone())
    }

    fn bend_ask(&self, ask: &Ask) -> Ask {
        let mut ask = ask.clone();
        ask.name = self.name(&ask.name);
        let asked_before = self
            .memory
            .lock()
            .unwrap()
            .waiting
            .contains_key(ask.token.holder());
        match self.bug {
            Bug::FloorIgnored => ask.floor = None,
            Bug::TtlIgnored => ask.ttl = Ttl::MAX,
            Bug::TtlHalved => ask.ttl = Ttl::new(ask.ttl.get() / 2).unwrap_or(ask.ttl),
            Bug::LockDelayIgnored => ask.lock_delay = Duration::ZERO,
            Bug::ModesIgnored => ask.mode = Mode::Exclusive,
            Bug::QueuedIsALie => ask.queue = None,
            Bug::EverybodyIsQueued => ask.queue = ask.queue.or(Some(Duration::from_secs(60))),
            Bug::EntryNeverRenewed if asked_before => ask.queue = None,
            Bug::EntryNeverEnds => ask.queue = ask.queue.map(|_| Duration::from_secs(86_400)),
            _ => {}
        }
        ask
    }

    fn bend_answer(&self, asked: &Ask, answer: Answer) -> Answer {
        let mut memory = self.memory.lock().unwrap();
        match answer {
            Answer::Granted(mut grant) => {
                match self.bug {
                    Bug::FenceRepeats => grant.fence = Fence::new(7).unwrap(),
                    Bug::FenceNearItsEnd => grant.fence = Fence::new(Fence::MAX.get() - 1_000_000).unwrap(),
                    _ => {}
                }
                memory
                    .granted
                    .insert(asked.name.clone(), (asked.clone(), grant.fence));
                Answer::Granted(grant)
            }
            Answer::Busy(mut busy) => {
                memory
                    .waiting
                    .insert(asked.token.holder().to_owned(), asked.clone());
                match self.bug {
                    Bug::EverybodyIsGranted => {
                        let fence = busy.fence.and_then(|fence| Fence::new(fence.get() + 1)).unwrap();
                        return Answer::Granted(leasehold_core::store::Grant { fence, ttl: None });
                    }
                    Bug::QueuedIsALie => busy.queued = true,
                    Bug::HolderIsHidden => busy.holder = "somebody".to_owned(),
                    Bug::SecretIsTheHolder => {
                        busy.holder = memory
                            .granted
                            .get(&asked.name)
                            .map_or(busy.holder, |(ask, _)| ask.token.expose().to_owned());
                    }
                    _ => {}
                }
                Answer::Busy(busy)
            }
            Answer::Void => Answer::Void,
        }
    }

    async fn renew_one(&self, renewal: &Renewal) -> Result<Renewed, Failure> {
        let mut bent = renewal.clone();
        bent.name = self.name(&renewal.name);
        let last = self.memory.lock().unwrap().granted.get(&bent.name).cloned();
        match (self.bug, last) {
            (Bug::RenewWithoutComparingToken, Some((ask, fence))) => {
                (bent.token, bent.fence) = (ask.token, fence)
            }
            (Bug::RenewWithoutComparingFence, Some((_, fence))) => bent.fence = fence,
            (Bug::LockDelayIgnored, _) => bent.lock_delay = Duration::ZERO,
            (Bug::TtlIgnored, _) => bent.ttl = Ttl::MAX,
            (Bug::RenewDoesNothing, _) => return Ok(Renewed::Extended { was_left: None }),
            (Bug::RenewOnlyOnce, _) if !self.memory.lock().unwrap().renewed.insert(bent.token.clone()) => {
                return Ok(Renewed::NotOwned);
            }
            // The fence that the cases are shown is not the inner store's.
            (Bug::FenceRepeats | Bug::FenceNearItsEnd, _) => {
                let shown = self.inner.inspect(&bent.name, WITHIN).await?;
                bent.fence = shown.and_then(|lease| lease.fence).unwrap_or(bent.fence);
            }
            _ => {}
        }
        if self.is(Bug::RenewShortens) {
            let giving = Giving::owned(bent.name.clone(), bent.token.clone());
            self.inner.release(&giving, WITHIN).await?;
            let ask = Ask::new(bent.name, bent.token, bent.ttl);
            self.inner.acquire(&ask, WITHIN).await?;
            return Ok(Renewed::Extended { was_left: None });
        }
        let renewed = self.inner.renew(&[bent.clone()], WITHIN).await.remove(0)?;
        Ok(match (self.bug, renewed) {
            (Bug::WasLeftIsTheNewTtl, Renewed::Extended { .. }) => Renewed::Extended {
                was_left: Some(bent.kept()),
            },
            (Bug::RenewRevives, Renewed::NotOwned) => {
                let ask = Ask::new(bent.name, bent.token, bent.ttl);
                match self.inner.acquire(&ask, WITHIN).await? {
                    Answer::Granted(_) => Renewed::Extended { was_left: None },
                    _ => Renewed::NotOwned,
                }
            }
            (_, renewed) => renewed,
        })
    }

    fn bend_giving(&self, giving: &Giving) -> Giving {
        let mut giving = giving.clone();
        giving.name = self.name(&giving.name);
        let owner = self.owner(&giving.name);
        match (self.bug, &giving.claim, owner) {
            (Bug::ReleaseWithoutComparing, Claim::Owner(_), Some(owner))
            | (
                Bug::SeenBreaksAnyGrant | Bug::FenceRepeats | Bug::FenceNearItsEnd,
                Claim::Seen(_),
                Some(owner),
            ) => {
                giving.claim = Claim::Owner(owner);
            }
            (Bug::UndoWithoutTombstone, ..) => giving.tombstone = None,
            _ => {}
        }
        giving
    }
}

#[async_trait::async_trait]
impl Store for Bent {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }

    async fn acquire(&self, ask: &Ask, within: Duration) -> Result<Answer, Failure> {
        let bent = self.bend_ask(ask);
        let mine = self.owner(&bent.name).as_ref() == Some(&bent.token);
        let shown = self.inner.inspect(&bent.name, within).await?;
        let holds = mine && shown.is_some();
        // Handed over and not confirmed yet counts as held, too.
        let handed = shown.is_some_and(|lease| lease.holder == bent.token.holder());
        match self.bug {
            Bug::TombstoneForTheHolder
                if self.memory.lock().unwrap().voided.contains(bent.token.holder()) =>
            {
                return Ok(Answer::Void);
            }
            Bug::AskingAgainIsBusy if holds => return Ok(Answer::Busy(Default::default())),
            Bug::WaitersAreStarved if bent.queue.is_some() => {
                return Ok(Answer::Busy(leasehold_core::store::Busy {
                    queued: true,
                    ..Default::default()
                }));
            }
            Bug::NewFenceWhenAskedAgain if holds => {
                self.inner
                    .release(&Giving::owned(bent.name.clone(), bent.token.clone()), within)
                    .await?;
            }
            Bug::AskingAgainExtendsNothing if holds || handed => {
                let fence = self
                    .inner
                    .inspect(&bent.name, within)
                    .await?
                    .and_then(|lease| lease.fence);
                return Ok(Answer::Granted(leasehold_core::store::Grant {
                    fence: fence.unwrap(),
                    ttl: None,
                }));
            }
            Bug::AskingAgainGoesToTheEnd if !holds && !handed => {
                self.inner
                    .release(&Giving::owned(bent.name.clone(), bent.token.clone()), within)
                    .await?;
            }
            _ => {}
        }
        let answer = self.inner.acquire(&bent, within).await?;
        if self.is(Bug::ShowsWhatIsGone)
            && let Some(lease) = self.inner.inspect(&bent.name, within).await?
        {
            self.memory.lock().unwrap().shown.insert(bent.name.clone(), lease);
        }
        Ok(self.bend_answer(&bent, answer))
    }

    async fn renew(&self, batch: &[Renewal], _within: Duration) -> Vec<Result<Renewed, Failure>> {
        let mut answers = Vec::new();
        for renewal in batch {
            answers.push(self.renew_one(renewal).await);
        }
        if self.is(Bug::BatchReversed) {
            answers.reverse();
        }
        answers
    }

    async fn release(&self, giving: &Giving, within: Duration) -> Result<Given, Failure> {
        let mut bent = self.bend_giving(giving);
        if let (Claim::Place(token), Bug::LeavingTheQueueReleases) = (&bent.claim, self.bug) {
            bent.claim = Claim::Owner(token.clone());
        }
        if let Claim::Owner(token) = &bent.claim {
            let waits = self.owner(&bent.name).as_ref() != Some(token);
            match self.bug {
                Bug::ReleaseDoesNothing => return Ok(Given::Released),
                Bug::WaiterNeverForgotten if waits => return Ok(Given::NotOwned),
                Bug::TombstoneForTheHolder if bent.tombstone.is_some() => {
                    self.memory
                        .lock()
                        .unwrap()
                        .voided
                        .insert(token.holder().to_owned());
                }
                _ => {}
            }
        } else if self.is(Bug::BreakDoesNothing) {
            return Ok(Given::Released);
        }
        let given = self.inner.release(&bent, within).await?;
        if self.is(Bug::WakesEverybody) {
            self.memory.lock().unwrap().wakers.wake_all();
        }
        if self.is(Bug::ClaimNeverEnds)
            && let Some(lease) = self.inner.inspect(&bent.name, within).await?
        {
            let next = self.memory.lock().unwrap().waiting.get(&lease.holder).cloned();
            if let Some(next) = next {
                self.inner.acquire(&next, within).await?;
            }
        }
        Ok(if self.is(Bug::AlwaysReleased) {
            Given::Released
        } else {
            given
        })
    }

    async fn inspect(&self, name: &Name, within: Duration) -> Result<Option<Lease>, Failure> {
        if self.is(Bug::ShowsWhatIsGone) {
            return Ok(self.memory.lock().unwrap().shown.get(name).cloned());
        }
        self.inner.inspect(&self.name(name), within).await
    }

    async fn list(&self, prefix: &str, limit: usize, within: Duration) -> Result<Listing, Failure> {
        let (prefix, limit) = match self.bug {
            Bug::ListFails => return Err(Failure::unknown(Cause::TimedOut, "cannot list")),
            Bug::ListWithoutPrefix => ("", limit),
            Bug::LimitIgnored => (prefix, usize::MAX),
            _ => (prefix, limit),
        };
        let mut listing = self.inner.list(prefix, limit, within).await?;
        match self.bug {
            Bug::ListUnsorted => listing.leases.reverse(),
            Bug::TruncationUntold => listing.truncated = false,
            Bug::ShowsWhatIsGone => {
                listing.leases = self.memory.lock().unwrap().shown.values().cloned().collect();
            }
            _ => {}
        }
        Ok(listing)
    }

    fn listen(&self, name: &Name, token: &Token) -> Listener {
        match self.bug {
            Bug::Deaf => Listener::silent(),
            Bug::WakesEverybody => self.memory.lock().unwrap().wakers.listen(token.random()),
            _ => self.inner.listen(name, token),
        }
    }
}
