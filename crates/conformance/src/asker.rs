//! Someone who asks for a lease: the vocabulary that the cases are written in.

use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use leasehold_core::rng::OsRandom;
use leasehold_core::store::{
    Answer, Ask, Busy, Claim, Failure, Given, Giving, Lease, Renewal, Renewed, SharedStore,
};
use leasehold_core::{Fence, Holder, Name, Token, Ttl};

/// How long one call may take. Generous: the cases judge answers, not speed.
pub const WITHIN: Duration = Duration::from_secs(15);

/// What is added to a lease's life before it counts as run out: stores round to milliseconds.
pub const SLACK: Duration = Duration::from_millis(50);

/// A time to live that no case outlives.
pub fn long() -> Ttl {
    // Between the constants that bound it, like `Fixture::brief`.
    Ttl::new(Duration::from_secs(120)).unwrap_or(Ttl::MAX)
}

/// One token on one name of one store.
#[derive(Debug, Clone)]
pub struct Asker {
    /// Where it asks.
    pub store: SharedStore,
    /// What it asks for.
    pub name: Name,
    /// As whom it asks.
    pub token: Token,
}

/// What an asker got.
#[derive(Debug, Clone, Copy)]
pub struct Got {
    /// The grant's fence.
    pub fence: Fence,
    /// How long the lease lives: what was asked for, or what the store gave instead.
    pub lives: Duration,
}

impl Asker {
    /// A fresh token of the holder `who`, in the class `conformance`.
    pub fn new(store: &SharedStore, name: &str, who: &str) -> anyhow::Result<Self> {
        Ok(Self {
            store: SharedStore::clone(store),
            name: Name::new(name)?,
            token: Token::fresh(&Holder::new(who)?, "conformance", &OsRandom),
        })
    }

    /// The ask without anything special.
    pub fn plain(&self, ttl: Ttl) -> Ask {
        Ask::new(self.name.clone(), self.token.clone(), ttl)
    }

    /// Asks exactly this.
    pub async fn put(&self, ask: &Ask) -> anyhow::Result<Answer> {
        self.store
            .acquire(ask, WITHIN)
            .await
            .with_context(|| format!("acquire of {:?} by {:?}", self.name, self.token))
    }

    /// Asks.
    pub async fn ask(&self, ttl: Ttl) -> anyhow::Result<Answer> {
        self.put(&self.plain(ttl)).await
    }

    /// Asks, and is to get it.
    pub async fn gets(&self, ttl: Ttl) -> anyhow::Result<Got> {
        self.gets_by(&self.plain(ttl)).await
    }

    /// Asks exactly this, and is to get it.
    pub async fn gets_by(&self, ask: &Ask) -> anyhow::Result<Got> {
        match self.put(ask).await? {
            Answer::Granted(grant) => Ok(Got {
                fence: grant.fence,
                lives: grant.ttl.unwrap_or_else(|| ask.kept()),
            }),
            other => bail!(
                "{:?} asked for {:?}, which is free, and got {other:?}",
                self.token,
                self.name
            ),
        }
    }

    /// Asks, and is to be told that it is busy.
    pub async fn finds_busy(&self) -> anyhow::Result<Busy> {
        match self.ask(long()).await? {
            Answer::Busy(busy) => Ok(busy),
            other => bail!(
                "I1: {:?} asked for {:?}, which another holds, and got {other:?}",
                self.token,
                self.name
            ),
        }
    }

    /// Asks and registers as a waiter for `keep`; is to be told that it is busy.
    pub async fn queues(&self, keep: Duration) -> anyhow::Result<Busy> {
        match self.put(&self.queueing(keep)).await? {
            Answer::Busy(busy) => Ok(busy),
            other => bail!(
                "I1: {:?} queued for {:?}, which another holds, and got {other:?}",
                self.token,
                self.name
            ),
        }
    }

    /// The ask that registers as a waiter for `keep`.
    pub fn queueing(&self, keep: Duration) -> Ask {
        Ask {
            queue: Some(keep),
            ..self.plain(long())
        }
    }

    /// Renews.
    pub async fn renews(&self, fence: Fence, ttl: Ttl) -> anyhow::Result<Renewed> {
        let renewal = self.renewal(fence, ttl);
        one(self.store.renew(&[renewal], WITHIN).await)?
            .with_context(|| format!("renewal of {:?} by {:?}", self.name, self.token))
    }

    /// A renewal of this asker's lease.
    pub fn renewal(&self, fence: Fence, ttl: Ttl) -> Renewal {
        Renewal {
            name: self.name.clone(),
            token: self.token.clone(),
            fence,
            ttl,
            lock_delay: Duration::ZERO,
        }
    }

    /// Is to hold the lease with this fence still: shown by a renewal.
    pub async fn still_holds(&self, fence: Fence) -> anyhow::Result<()> {
        match self.renews(fence, long()).await? {
            Renewed::Extended { .. } => Ok(()),
            Renewed::NotOwned => bail!(
                "I4: {:?} lost {:?} (fence {fence}) to something that must change nothing",
                self.token,
                self.name
            ),
        }
    }

    /// Gives back.
    pub async fn gives(&self) -> anyhow::Result<Given> {
        self.hands_in(&Giving::owned(self.name.clone(), self.token.clone()))
            .await
    }

    /// Gives back, and is to have had it.
    pub async fn lets_go(&self) -> anyhow::Result<()> {
        match self.gives().await? {
            Given::Released => Ok(()),
            Given::NotOwned => bail!(
                "{:?} holds {:?} and gave it back, and the store says that it is not its own",
                self.token,
                self.name
            ),
        }
    }

    /// Gives back and leaves a tombstone.
    pub async fn undoes(&self) -> anyhow::Result<Given> {
        self.hands_in(&Giving::undo(self.name.clone(), self.token.clone()))
            .await
    }

    /// Leaves the queue, and nothing else.
    pub async fn leaves(&self) -> anyhow::Result<()> {
        match self
            .hands_in(&Giving::place(self.name.clone(), self.token.clone()))
            .await?
        {
            Given::NotOwned => Ok(()),
            Given::Released => bail!(
                "{:?} only left the queue of {:?}, and a lease was released",
                self.token,
                self.name
            ),
        }
    }

    /// Breaks the grant with this fence, as an operator.
    pub async fn breaks(&self, fence: Fence) -> anyhow::Result<Given> {
        self.hands_in(&Giving {
            name: self.name.clone(),
            claim: Claim::Seen(fence),
            tombstone: None,
        })
        .await
    }

    /// Gives back exactly this.
    pub async fn hands_in(&self, giving: &Giving) -> anyhow::Result<Given> {
        self.store
            .release(giving, WITHIN)
            .await
            .with_context(|| format!("release of {:?}", self.name))
    }

    /// What the store shows of the name.
    pub async fn sees(&self) -> anyhow::Result<Option<Lease>> {
        self.store
            .inspect(&self.name, WITHIN)
            .await
            .with_context(|| format!("inspect of {:?}", self.name))
    }
}

/// The one answer to a batch of one.
pub fn one<T>(mut answers: Vec<Result<T, Failure>>) -> anyhow::Result<Result<T, Failure>> {
    match (answers.pop(), answers.len()) {
        (Some(answer), 0) => Ok(answer),
        (_, rest) => Err(anyhow!("a batch of one renewal got {} answers", rest + 1)),
    }
}
