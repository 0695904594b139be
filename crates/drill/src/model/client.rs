//! The client's side: what it may begin, and what an answer does to it.

use super::config::{Config, DeadlineFrom, Forgets, OnFailure};
use super::network::Message;
use super::promise::Breaches;
use super::sight::{Sight, Sights};
use super::state::{Client, Phase, State};

/// What a client begins by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begin {
    /// A new acquire, with a clock that is this far behind.
    Ask {
        /// See [`Client::lag`].
        lag: u8,
    },
    /// The same acquire again: the answer has not come.
    AskAgain,
    /// The acquire is given up, its outcome unknown.
    GiveUp,
    /// A renewal.
    Renew,
    /// A fenced write.
    Write,
    /// The hold is given back.
    Release,
}

impl Client {
    /// The present acquire or hold is over.
    fn end(&mut self) {
        self.phase = Phase::Idle;
        self.attempt += 1;
        self.lag = 0;
    }
}

impl State {
    /// A client begins something; `None` if it cannot now.
    pub(super) fn begin(mut self, who: usize, what: Begin, config: &Config, sights: &Sights) -> Option<Self> {
        let token = self.token_of(who)?;
        let client = self.clients.get_mut(who)?;
        let calm = self.now >= config.calm_from();
        let message = match (what, client.phase) {
            (Begin::Ask { lag }, Phase::Idle) if !calm && client.attempt < config.attempts => {
                client.lag = lag;
                let sent_at = self.now - lag;
                client.phase = Phase::Asking { asks: 1, sent_at };
                let floor = client.floor;
                Some(Message::Ask {
                    token,
                    sent_at,
                    floor,
                })
            }
            (Begin::AskAgain, Phase::Asking { asks, .. }) if !calm && asks < config.asks => {
                let sent_at = self.now - client.lag;
                client.phase = Phase::Asking {
                    asks: asks + 1,
                    sent_at,
                };
                let floor = client.floor;
                Some(Message::Ask {
                    token,
                    sent_at,
                    floor,
                })
            }
            (Begin::GiveUp, Phase::Asking { .. }) => {
                client.end();
                if !config.rules.undoes {
                    client.settled |= token.bit();
                }
                config.rules.undoes.then_some(Message::Release {
                    token,
                    tombstone: true,
                    undo: true,
                })
            }
            (Begin::Renew, Phase::Holding { .. }) if !calm => {
                let sent_at = self.now - client.lag;
                let Phase::Holding {
                    grant,
                    awaits,
                    renewals,
                    ..
                } = &mut client.phase
                else {
                    return None;
                };
                *renewals = renewals.checked_sub(1)?;
                *awaits = Some(sent_at);
                let fence = grant.fence;
                Some(Message::Renew {
                    token,
                    sent_at,
                    fence,
                })
            }
            (Begin::Write, Phase::Holding { .. }) if !calm => self.write(who, config)?,
            (Begin::Release, Phase::Holding { tombstone, .. }) => {
                client.end();
                Some(Message::Release {
                    token,
                    tombstone,
                    undo: false,
                })
            }
            _ => return None,
        };
        if let Some(message) = message
            && (self.network.len() >= usize::from(config.in_flight) || !self.network.send(message))
        {
            return None;
        }
        self.normalise(config, sights);
        Some(self)
    }

    /// The work sends a write, having made sure that it may (or not, if the rule is broken).
    fn write(&mut self, who: usize, config: &Config) -> Option<Option<Message>> {
        let in_time = self.in_time(who);
        let Phase::Holding { grant, writes, .. } = &mut self.clients.get_mut(who)?.phase else {
            return None;
        };
        *writes = writes.checked_sub(1)?;
        let grant = *grant;
        if !in_time {
            if config.on_failure == OnFailure::Fence && config.rules.checks_at_use {
                return None;
            }
            self.breaches.mark(Breaches::WORK);
        }
        Some(Some(Message::Write { grant }))
    }

    /// An answer reaches its client; what it sends in return, if anything.
    pub(super) fn client_hears(
        &mut self,
        message: Message,
        config: &Config,
        sights: &Sights,
    ) -> Option<Message> {
        let token = message.token()?;
        let who = usize::from(token.client);
        let clock = self.clock(who);
        let client = self.clients.get_mut(who)?;
        let undo = Message::Release {
            token,
            tombstone: true,
            undo: true,
        };
        match (message, client.phase) {
            (
                Message::Granted { sent_at, grant, .. },
                Phase::Asking {
                    asks,
                    sent_at: latest,
                },
            ) => {
                let deadline = config.deadline(match config.rules.deadline {
                    DeadlineFrom::Sending => sent_at,
                    DeadlineFrom::Reply => clock,
                    DeadlineFrom::LatestAsk => latest,
                });
                if config.forgets != Forgets::Never {
                    client.floor = client.floor.max(grant.fence);
                }
                if clock >= deadline {
                    sights.saw(Sight::TooLate);
                    client.end();
                    return Some(undo);
                }
                client.phase = Phase::Holding {
                    grant,
                    deadline,
                    awaits: None,
                    renewals: config.renewals,
                    writes: config.writes,
                    tombstone: asks > 1 && config.rules.release_tombstone,
                };
                None
            }
            (Message::Busy { .. }, Phase::Asking { asks, .. }) => {
                client.end();
                // An earlier ask of this acquire may still arrive, and be granted to nobody.
                if asks > 1 && config.rules.undoes {
                    return Some(undo);
                }
                client.settled |= token.bit();
                None
            }
            (Message::Renewed { sent_at, .. }, Phase::Holding { .. }) => {
                self.prove(who, sent_at, config, sights);
                None
            }
            (Message::NotOwned { .. }, Phase::Holding { .. }) => {
                sights.saw(Sight::NotOwned);
                client.end();
                None
            }
            _ => None,
        }
    }

    /// A confirmed renewal moves the deadline.
    fn prove(&mut self, who: usize, sent_at: u8, config: &Config, sights: &Sights) {
        let clock = self.clock(who);
        let Some(client) = self.clients.get_mut(who) else {
            return;
        };
        let Phase::Holding { deadline, awaits, .. } = &mut client.phase else {
            return;
        };
        let was_past = clock >= *deadline;
        if was_past && config.on_failure == OnFailure::Fence {
            client.end();
            return;
        }
        let counted_from = match config.rules.deadline {
            DeadlineFrom::Reply => clock,
            DeadlineFrom::Sending | DeadlineFrom::LatestAsk => sent_at,
        };
        let reached = config.deadline(counted_from);
        if reached > *deadline {
            sights.saw(Sight::Renewed);
        }
        *deadline = reached.max(*deadline);
        *awaits = None;
        if was_past && clock < *deadline {
            sights.saw(Sight::ProvenAgain);
        }
    }

    /// Drops what can make no difference any more, so that states which differ only in that are one state.
    pub(super) fn normalise(&mut self, config: &Config, sights: &Sights) {
        // A hold past its deadline can do nothing: every use of it compares first. So it ends here, whether or not
        // its client is awake to notice.
        if config.on_failure == OnFailure::Fence && config.rules.checks_at_use {
            for who in 0..self.clients.len() {
                let past = !self.in_time(who);
                if let Some(client) = self.clients.get_mut(who)
                    && past
                    && matches!(client.phase, Phase::Holding { .. })
                {
                    client.end();
                }
            }
        }
        if self.store.lease.is_some() && self.live_lease().is_none() {
            sights.saw(Sight::Expiry);
            // A clock that steps back, or a renewal that does not look, could still see it.
            if config.rules.renew_needs_life && config.clock_step >= 0 {
                self.store.lease = None;
            }
        }
        let clients = self.clients;
        self.network
            .retain(|message| !is_unheard(message, &clients, config));
    }
}

/// Whether an answer's client no longer waits for it: the real client drops answers of calls that it has given up.
fn is_unheard(message: &Message, clients: &[Client], config: &Config) -> bool {
    let Some(token) = message.token() else {
        return false;
    };
    let client = clients
        .get(usize::from(token.client))
        .filter(|client| client.attempt == token.attempt);
    let phase = client.map_or(Phase::Absent, |client| client.phase);
    match message {
        Message::Granted { sent_at, .. } | Message::Busy { sent_at, .. } => {
            let any = config.rules.deadline == DeadlineFrom::LatestAsk;
            !matches!(phase, Phase::Asking { sent_at: awaited, .. } if any || awaited == *sent_at)
        }
        Message::Renewed { sent_at, .. } | Message::NotOwned { sent_at, .. } => {
            !matches!(phase, Phase::Holding { awaits, .. } if awaits == Some(*sent_at))
        }
        _ => false,
    }
}
