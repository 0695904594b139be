//! The store: the real reference table on a clock of its own, seen from outside before and after each message.

use std::collections::HashMap;

use leasehold_core::memory::Table;
use leasehold_core::store::{Answer, Ask, Busy, Cause, Claim, Given, Giving, Grant, Renewal, Renewed};
use leasehold_core::word::{Fence, Name, Token};

use crate::clock::{DriftingClock, Nanos};
use crate::plan::Mistake;

/// A message to the store.
#[derive(Debug, Clone)]
pub(crate) enum Verb {
    Ask(Ask),
    Renew(Renewal),
    Release(Giving),
}

impl Verb {
    pub(crate) fn name(&self) -> &Name {
        match self {
            Self::Ask(ask) => &ask.name,
            Self::Renew(renewal) => &renewal.name,
            Self::Release(giving) => &giving.name,
        }
    }

    /// Whose message it is. Operators' claims are not simulated.
    pub(crate) fn token(&self) -> &Token {
        match self {
            Self::Ask(ask) => &ask.token,
            Self::Renew(renewal) => &renewal.token,
            Self::Release(giving) => match &giving.claim {
                Claim::Owner(token) => token,
                other => unreachable!("only owners release here, not {other:?}"),
            },
        }
    }

    pub(crate) fn label(&self) -> &'static str {
        match self {
            Self::Ask(_) => "ask",
            Self::Renew(_) => "renew",
            Self::Release(_) => "release",
        }
    }
}

/// What a client hears.
#[derive(Debug, Clone)]
pub(crate) enum Reply {
    Asked(Answer),
    Renewed(Renewed),
    Given(Given),
    Failed { cause: Cause, unknown: bool },
}

/// A live lease as it truly is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) fence: Fence,
    pub(crate) owner: Token,
    /// In true time.
    pub(crate) expires: Nanos,
}

/// One message carried out.
#[derive(Debug)]
pub(crate) struct Applied {
    pub(crate) before: Option<Record>,
    pub(crate) after: Option<Record>,
    pub(crate) reply: Reply,
    pub(crate) woken: Option<Token>,
}

/// The store.
#[derive(Debug)]
pub(crate) struct Engine {
    table: Table,
    clock: DriftingClock,
    /// Whose lease was last granted, by name: the table itself does not show tokens.
    owners: HashMap<Name, (Fence, Token)>,
    /// For [`Mistake::FenceRepeated`].
    first: HashMap<Token, Fence>,
    mistake: Mistake,
    /// Away until then.
    pub(crate) down_until: Nanos,
}

impl Engine {
    pub(crate) fn new(clock: DriftingClock, mistake: Mistake) -> Self {
        Self {
            table: Table::default(),
            clock,
            owners: HashMap::new(),
            first: HashMap::new(),
            mistake,
            down_until: 0,
        }
    }

    /// The live lease of a name.
    pub(crate) fn record(&self, name: &Name, at: Nanos) -> Option<Record> {
        let now = self.clock.read(at);
        let lease = self.table.inspect(name, now)?;
        let (fence, owner) = self.owners.get(name).cloned()?;
        Some(Record {
            fence,
            owner,
            expires: self.clock.when(now + lease.remaining?),
        })
    }

    pub(crate) fn forget(&mut self) {
        self.table.lose_everything();
    }

    pub(crate) fn apply(&mut self, verb: &Verb, at: Nanos) -> Applied {
        let before = self.record(verb.name(), at);
        let (reply, woken) = match verb {
            Verb::Ask(ask) => (self.ask(ask, at), None),
            Verb::Renew(renewal) => (self.renew(renewal, before.as_ref(), at), None),
            Verb::Release(giving) => self.release(giving, before.as_ref(), at),
        };
        let shown = self.table.inspect(verb.name(), self.clock.read(at));
        if let Some(fence) = shown.and_then(|lease| lease.fence) {
            let known = self.owners.get(verb.name()).map(|(fence, _)| *fence);
            if known != Some(fence) {
                let owner = woken.as_ref().unwrap_or(verb.token()).clone();
                self.owners.insert(verb.name().clone(), (fence, owner));
            }
        }
        Applied {
            before,
            after: self.record(verb.name(), at),
            reply,
            woken,
        }
    }

    fn micros(&self, at: Nanos) -> u64 {
        1_700_000_000_000_000 + self.clock.read(at).as_nanos() / 1_000
    }

    fn ask(&mut self, ask: &Ask, at: Nanos) -> Reply {
        let now = self.clock.read(at);
        let answer = if self.mistake == Mistake::PlainCounter {
            let blind = Ask {
                floor: None,
                ..ask.clone()
            };
            self.table.acquire(&blind, now, 0)
        } else {
            self.table.acquire(ask, now, self.micros(at))
        };
        match answer {
            Ok(Answer::Granted(grant)) if self.mistake == Mistake::FenceRepeated => {
                let fence = *self.first.entry(ask.token.clone()).or_insert(grant.fence);
                Reply::Asked(Answer::Granted(Grant { fence, ..grant }))
            }
            Ok(answer) => Reply::Asked(answer),
            Err(failure) => Reply::Failed {
                cause: failure.cause,
                unknown: failure.unknown,
            },
        }
    }

    fn renew(&mut self, renewal: &Renewal, live: Option<&Record>, at: Nanos) -> Reply {
        let now = self.clock.read(at);
        match (self.mistake, live) {
            (Mistake::RenewWithoutComparing, Some(live)) => {
                let any = Renewal {
                    token: live.owner.clone(),
                    fence: live.fence,
                    ..renewal.clone()
                };
                Reply::Renewed(self.table.renew(&any, now))
            }
            (Mistake::RenewRevives, None)
                if self
                    .owners
                    .get(&renewal.name)
                    .is_some_and(|(_, owner)| *owner == renewal.token) =>
            {
                let again = Ask::new(renewal.name.clone(), renewal.token.clone(), renewal.ttl);
                match self.table.acquire(&again, now, self.micros(at)) {
                    Ok(Answer::Granted(_)) => Reply::Renewed(Renewed::Extended { was_left: None }),
                    _ => Reply::Renewed(Renewed::NotOwned),
                }
            }
            _ => Reply::Renewed(self.table.renew(renewal, now)),
        }
    }

    fn release(&mut self, giving: &Giving, live: Option<&Record>, at: Nanos) -> (Reply, Option<Token>) {
        let (now, micros) = (self.clock.read(at), self.micros(at));
        let micros = if self.mistake == Mistake::PlainCounter {
            0
        } else {
            micros
        };
        let mut giving = giving.clone();
        if let (Mistake::ReleaseWithoutComparing, Some(live)) = (self.mistake, live) {
            giving.claim = Claim::Seen(live.fence);
        }
        let (given, woken) = self.table.release(&giving, now, micros, |_| true);
        (Reply::Given(given), woken)
    }
}

/// A short word for a reply, for the history.
pub(crate) fn word(reply: &Reply) -> String {
    match reply {
        Reply::Asked(Answer::Granted(grant)) => format!("granted {}", grant.fence),
        Reply::Asked(Answer::Busy(Busy {
            holder, remaining, ..
        })) => {
            format!("busy: {holder} for {remaining:?}")
        }
        Reply::Asked(Answer::Void) => "void".to_owned(),
        Reply::Renewed(renewed) => format!("{renewed:?}"),
        Reply::Given(given) => format!("{given:?}"),
        Reply::Failed { cause, unknown } => format!("failed ({cause}, unknown {unknown})"),
    }
}
