//! The memory store with one selected defect, which the cases must detect.

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold_core::store::{
    AcquireRequest, AcquireResponse, BusyLease, Capabilities, Documents, Grant, Lease, LeaseList, Mode,
    ReleaseAuthority, ReleaseRequest, ReleaseResponse, RenewRequest, RenewResponse, SharedStore, Store,
    StoreError, StoreErrorKind, WakeListener, WakeRegistry,
};
use leasehold_core::{Fence, Name, NameSet, Token, Ttl};

use crate::mutant_documents::{DocumentBug, DocumentMemory, MutantDocuments};

/// The defect of a mutant store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bug {
    ReleaseWithoutComparing,
    ReleaseDoesNothing,
    AlwaysReleased,
    OperatorBreaksAnyGrant,
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
    AlwaysGranted,
    TtlIgnored,
    TtlHalved,
    LockDelayIgnored,
    AllNamesAreOne,
    CaseIgnored,
    InvisibleCharactersGranted,
    ModesIgnored,
    AcquiresFirstNameOnly,
    RenewsFirstNameOnly,
    ReleasesFirstNameOnly,
    FalselyQueued,
    AlwaysQueued,
    WaitersAreStarved,
    AskingAgainGoesToTheEnd,
    EntryNeverRenewed,
    EntryNeverEnds,
    WaiterNeverForgotten,
    LeavingTheQueueReleases,
    ClaimNeverEnds,
    NeverWakes,
    WakesAll,
    SecretIsTheHolder,
    HolderIsHidden,
    ShowsEndedLeases,
    ListFails,
    ListUnsorted,
    ListWithoutPrefix,
    LimitIgnored,
    TruncationNotReported,
    Documents(DocumentBug),
}

/// The memory store with a [`Bug`].
#[derive(Debug)]
pub(crate) struct MutantStore {
    bug: Bug,
    inner: SharedStore,
    /// Shared by all handles of a fixture, like the leases.
    memory: Arc<Mutex<MutantState>>,
    documents: Option<MutantDocuments>,
}

/// State that the defects need.
#[derive(Debug, Default)]
pub(crate) struct MutantState {
    /// The last granted request, by name.
    granted: HashMap<Name, (AcquireRequest, Fence)>,
    /// Requests that got *busy*, by holder name (the cases give each waiter its own).
    waiting: HashMap<String, AcquireRequest>,
    renewed: HashSet<Token>,
    voided: HashSet<String>,
    shown: HashMap<Name, Lease>,
    wakers: Arc<WakeRegistry>,
    documents: Arc<Mutex<DocumentMemory>>,
}

const CALL_TIMEOUT: Duration = Duration::from_secs(1);

impl MutantStore {
    pub(crate) fn shared(bug: Bug, inner: SharedStore, memory: &Arc<Mutex<MutantState>>) -> SharedStore {
        let documents = match bug {
            Bug::Documents(bug) => Some(MutantDocuments {
                bug,
                inner: Arc::clone(&inner),
                memory: Arc::clone(&memory.lock().unwrap().documents),
            }),
            _ => None,
        };
        Arc::new(Self { bug, inner, memory: Arc::clone(memory), documents })
    }

    fn has_bug(&self, bug: Bug) -> bool {
        self.bug == bug
    }

    /// The names as this store understands them; with the defect `first_only`, the first one.
    fn names(&self, names: &NameSet, first_only: Bug) -> NameSet {
        if self.has_bug(first_only) {
            return names.first().into();
        }
        names.try_map(|name| Ok::<_, Infallible>(self.name(name))).unwrap()
    }

    fn name(&self, name: &Name) -> Name {
        match self.bug {
            Bug::AllNamesAreOne => Name::new("one").unwrap(),
            Bug::CaseIgnored => Name::new(&name.as_str().to_lowercase()).unwrap(),
            _ => name.clone(),
        }
    }

    async fn live_lease(&self, name: &Name) -> Result<Option<Lease>, StoreError> {
        Ok(self.inner.inspect(name, CALL_TIMEOUT).await?.into_first())
    }

    /// The token of the last grant of this name.
    fn owner(&self, name: &Name) -> Option<Token> {
        let memory = self.memory.lock().unwrap();
        memory.granted.get(name).map(|(request, _)| request.token.clone())
    }

    fn mutate_request(&self, request: &AcquireRequest) -> AcquireRequest {
        let mut request = request.clone();
        request.names = self.names(&request.names, Bug::AcquiresFirstNameOnly);
        let asked_before = self.memory.lock().unwrap().waiting.contains_key(request.token.holder());
        match self.bug {
            Bug::FloorIgnored => request.floor = None,
            Bug::TtlIgnored => request.ttl = Ttl::MAX,
            Bug::TtlHalved => request.ttl = Ttl::new(request.ttl.get() / 2).unwrap_or(request.ttl),
            Bug::LockDelayIgnored => request.lock_delay = Duration::ZERO,
            Bug::ModesIgnored => request.mode = Mode::Exclusive,
            Bug::FalselyQueued => request.queue = None,
            Bug::AlwaysQueued => request.queue = request.queue.or(Some(Duration::from_secs(60))),
            Bug::EntryNeverRenewed if asked_before => request.queue = None,
            Bug::EntryNeverEnds => request.queue = request.queue.map(|_| Duration::from_secs(86_400)),
            _ => {}
        }
        request
    }

    fn mutate_response(&self, asked: &AcquireRequest, answer: AcquireResponse) -> AcquireResponse {
        let mut memory = self.memory.lock().unwrap();
        match answer {
            AcquireResponse::Granted(mut grant) => {
                match self.bug {
                    Bug::FenceRepeats => grant.fence = Fence::new(7).unwrap(),
                    Bug::FenceNearItsEnd => grant.fence = Fence::new(Fence::MAX.get() - 1_000_000).unwrap(),
                    _ => {}
                }
                memory.granted.insert(asked.names.first().clone(), (asked.clone(), grant.fence));
                AcquireResponse::Granted(grant)
            }
            AcquireResponse::Busy(mut busy) => {
                memory.waiting.insert(asked.token.holder().to_owned(), asked.clone());
                match self.bug {
                    Bug::AlwaysGranted => {
                        let fence = busy.fence.and_then(|fence| Fence::new(fence.get() + 1)).unwrap();
                        return AcquireResponse::Granted(Grant::new(fence));
                    }
                    Bug::FalselyQueued => busy.queued = true,
                    Bug::HolderIsHidden => busy.holder = "somebody".to_owned(),
                    Bug::SecretIsTheHolder => {
                        busy.holder = memory
                            .granted
                            .get(asked.names.first())
                            .map_or(busy.holder, |(request, _)| request.token.expose().to_owned());
                    }
                    _ => {}
                }
                AcquireResponse::Busy(busy)
            }
            other => other,
        }
    }

    async fn renew_one(&self, renewal: &RenewRequest) -> Result<RenewResponse, StoreError> {
        let mut bent = renewal.clone();
        bent.names = self.names(&renewal.names, Bug::RenewsFirstNameOnly);
        let last = self.memory.lock().unwrap().granted.get(bent.names.first()).cloned();
        match (self.bug, last) {
            (Bug::RenewWithoutComparingToken, Some((request, fence))) => {
                (bent.token, bent.fence) = (request.token, fence)
            }
            (Bug::RenewWithoutComparingFence, Some((_, fence))) => bent.fence = fence,
            (Bug::LockDelayIgnored, _) => bent.lock_delay = Duration::ZERO,
            (Bug::TtlIgnored, _) => bent.ttl = Ttl::MAX,
            (Bug::RenewDoesNothing, _) => {
                return Ok(RenewResponse::extended(None));
            }
            (Bug::RenewOnlyOnce, _) if !self.memory.lock().unwrap().renewed.insert(bent.token.clone()) => {
                return Ok(RenewResponse::NotOwned);
            }
            // The cases see another fence than the inner store's.
            (Bug::FenceRepeats | Bug::FenceNearItsEnd, _) => {
                let shown = self.live_lease(bent.names.first()).await?;
                bent.fence = shown.and_then(|lease| lease.fence).unwrap_or(bent.fence);
            }
            _ => {}
        }
        if self.has_bug(Bug::RenewShortens) {
            let giving = ReleaseRequest::by_owner(bent.names.clone(), bent.token.clone());
            self.inner.release(&giving, CALL_TIMEOUT).await?;
            let request = AcquireRequest::new(bent.names, bent.token, bent.ttl);
            self.inner.acquire(&request, CALL_TIMEOUT).await?;
            return Ok(RenewResponse::extended(None));
        }
        let renewed = self.inner.renew(&[bent.clone()], CALL_TIMEOUT).await.remove(0)?;
        Ok(match (self.bug, renewed) {
            (Bug::WasLeftIsTheNewTtl, RenewResponse::Extended { .. }) => {
                RenewResponse::extended(bent.store_ttl())
            }
            (Bug::RenewRevives, RenewResponse::NotOwned) => {
                let request = AcquireRequest::new(bent.names, bent.token, bent.ttl);
                match self.inner.acquire(&request, CALL_TIMEOUT).await? {
                    AcquireResponse::Granted(_) => RenewResponse::extended(None),
                    _ => RenewResponse::NotOwned,
                }
            }
            (_, renewed) => renewed,
        })
    }

    fn mutate_release(&self, request: &ReleaseRequest) -> ReleaseRequest {
        let mut request = request.clone();
        request.names = self.names(&request.names, Bug::ReleasesFirstNameOnly);
        let owner = self.owner(request.names.first());
        match (self.bug, &request.authority, owner) {
            (Bug::ReleaseWithoutComparing, ReleaseAuthority::Owner(_), Some(owner))
            | (
                Bug::OperatorBreaksAnyGrant | Bug::FenceRepeats | Bug::FenceNearItsEnd,
                ReleaseAuthority::Operator(_),
                Some(owner),
            ) => {
                request.authority = ReleaseAuthority::Owner(owner);
            }
            (Bug::UndoWithoutTombstone, ..) => request.tombstone = None,
            _ => {}
        }
        request
    }
}

#[async_trait::async_trait]
impl Store for MutantStore {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn documents(&self) -> Option<&dyn Documents> {
        match (&self.documents, self.bug) {
            (_, Bug::Documents(DocumentBug::NoDocuments)) => None,
            (Some(mutant), _) => Some(mutant),
            (None, _) => self.inner.documents(),
        }
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }

    async fn acquire(
        &self,
        request: &AcquireRequest,
        within: Duration,
    ) -> Result<AcquireResponse, StoreError> {
        let bent = self.mutate_request(request);
        let mine = self.owner(bent.names.first()).as_ref() == Some(&bent.token);
        let shown = self.live_lease(bent.names.first()).await?;
        let holds = mine && shown.is_some();
        // A hand-over that is not yet confirmed counts as held, too.
        let handed = shown.is_some_and(|lease| lease.holder == bent.token.holder());
        if self.has_bug(Bug::InvisibleCharactersGranted) && bent.check_visible().is_err() {
            return Ok(AcquireResponse::Granted(Grant::new(Fence::new(1).unwrap())));
        }
        match self.bug {
            Bug::TombstoneForTheHolder
                if self.memory.lock().unwrap().voided.contains(bent.token.holder()) =>
            {
                return Ok(AcquireResponse::Void);
            }
            Bug::AskingAgainIsBusy if holds => return Ok(AcquireResponse::Busy(Default::default())),
            Bug::WaitersAreStarved if bent.queue.is_some() => {
                return Ok(AcquireResponse::Busy(BusyLease::default().with_queued(true)));
            }
            Bug::NewFenceWhenAskedAgain if holds => {
                self.inner
                    .release(&ReleaseRequest::by_owner(bent.names.clone(), bent.token.clone()), within)
                    .await?;
            }
            Bug::AskingAgainExtendsNothing if holds || handed => {
                let fence = self.live_lease(bent.names.first()).await?.and_then(|lease| lease.fence);
                return Ok(AcquireResponse::Granted(Grant::new(fence.unwrap())));
            }
            Bug::AskingAgainGoesToTheEnd if !holds && !handed => {
                self.inner
                    .release(&ReleaseRequest::by_owner(bent.names.clone(), bent.token.clone()), within)
                    .await?;
            }
            _ => {}
        }
        let answer = self.inner.acquire(&bent, within).await?;
        if self.has_bug(Bug::ShowsEndedLeases)
            && let Some(lease) = self.live_lease(bent.names.first()).await?
        {
            self.memory.lock().unwrap().shown.insert(bent.names.first().clone(), lease);
        }
        Ok(self.mutate_response(&bent, answer))
    }

    async fn renew(
        &self,
        batch: &[RenewRequest],
        _within: Duration,
    ) -> Vec<Result<RenewResponse, StoreError>> {
        let mut answers = Vec::new();
        for renewal in batch {
            answers.push(self.renew_one(renewal).await);
        }
        if self.has_bug(Bug::BatchReversed) {
            answers.reverse();
        }
        answers
    }

    async fn release(
        &self,
        request: &ReleaseRequest,
        within: Duration,
    ) -> Result<ReleaseResponse, StoreError> {
        let mut bent = self.mutate_release(request);
        if let (ReleaseAuthority::Waiter(token), Bug::LeavingTheQueueReleases) = (&bent.authority, self.bug) {
            bent.authority = ReleaseAuthority::Owner(token.clone());
        }
        if let ReleaseAuthority::Owner(token) = &bent.authority {
            let waits = self.owner(bent.names.first()).as_ref() != Some(token);
            match self.bug {
                Bug::ReleaseDoesNothing => return Ok(ReleaseResponse::Released),
                Bug::WaiterNeverForgotten if waits => return Ok(ReleaseResponse::NotOwned),
                Bug::TombstoneForTheHolder if bent.tombstone.is_some() => {
                    self.memory.lock().unwrap().voided.insert(token.holder().to_owned());
                }
                _ => {}
            }
        } else if self.has_bug(Bug::BreakDoesNothing) {
            return Ok(ReleaseResponse::Released);
        }
        let given = self.inner.release(&bent, within).await?;
        if self.has_bug(Bug::WakesAll) {
            self.memory.lock().unwrap().wakers.wake_all();
        }
        if self.has_bug(Bug::ClaimNeverEnds)
            && let Some(lease) = self.live_lease(bent.names.first()).await?
        {
            let next = self.memory.lock().unwrap().waiting.get(&lease.holder).cloned();
            if let Some(next) = next {
                self.inner.acquire(&next, within).await?;
            }
        }
        Ok(if self.has_bug(Bug::AlwaysReleased) { ReleaseResponse::Released } else { given })
    }

    async fn inspect(&self, name: &Name, within: Duration) -> Result<LeaseList, StoreError> {
        if self.has_bug(Bug::ShowsEndedLeases) {
            return Ok(LeaseList::new(self.memory.lock().unwrap().shown.get(name).cloned()));
        }
        self.inner.inspect(&self.name(name), within).await
    }

    async fn list(&self, prefix: &str, limit: usize, within: Duration) -> Result<LeaseList, StoreError> {
        let (prefix, limit) = match self.bug {
            Bug::ListFails => return Err(StoreError::unknown(StoreErrorKind::TimedOut, "cannot list")),
            Bug::ListWithoutPrefix => ("", limit),
            Bug::LimitIgnored => (prefix, usize::MAX),
            _ => (prefix, limit),
        };
        let mut listing = self.inner.list(prefix, limit, within).await?;
        match self.bug {
            Bug::ListUnsorted => listing.leases.reverse(),
            Bug::TruncationNotReported => listing.truncated = false,
            Bug::ShowsEndedLeases => {
                listing.leases = self.memory.lock().unwrap().shown.values().cloned().collect();
            }
            _ => {}
        }
        Ok(listing)
    }

    fn listen(&self, name: &Name, token: &Token) -> WakeListener {
        match self.bug {
            Bug::NeverWakes => WakeListener::never(),
            Bug::WakesAll => self.memory.lock().unwrap().wakers.listen(token.random()),
            _ => self.inner.listen(name, token),
        }
    }
}
