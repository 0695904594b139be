//! The client's side: what it can start, and how it handles a response.

use super::config::{DataLoss, DeadlineFrom, ModelConfig, OnFailure};
use super::coverage::{CoverageEvent, CoverageSet};
use super::network::Message;
use super::promise::Breaches;
use super::state::{ClientPhase, ModelClient, ModelState};

/// What a client starts by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientStep {
    /// A new acquire, with a clock that lags this much.
    Acquire {
        /// See [`ModelClient::lag`].
        lag: u8,
    },
    /// The same acquire again, because its response has not come.
    RetryAcquire,
    /// The acquire ends while its outcome is unknown.
    GiveUp,
    /// A renewal of its hold.
    Renew,
    /// A fenced write.
    Write,
    /// The hold is released.
    Release,
}

impl ModelClient {
    /// Ends the current acquire or hold.
    fn end_acquire(&mut self) {
        self.phase = ClientPhase::Idle;
        self.attempt += 1;
        self.lag = 0;
    }
}

impl ModelState {
    /// A client starts something; `None` if it cannot now.
    pub(super) fn start_client_step(
        mut self,
        who: usize,
        what: ClientStep,
        config: &ModelConfig,
        sights: &CoverageSet,
    ) -> Option<Self> {
        let token = self.token_of(who)?;
        let client = self.clients.get_mut(who)?;
        let calm = self.now >= config.faults_end();
        let message = match (what, client.phase) {
            (ClientStep::Acquire { lag }, ClientPhase::Idle) if !calm && client.attempt < config.attempts => {
                client.lag = lag;
                let sent_at = self.now - lag;
                client.phase = ClientPhase::Acquiring { asks: 1, sent_at };
                let floor = client.fence_floor;
                Some(Message::Acquire { token, sent_at, floor })
            }
            (ClientStep::RetryAcquire, ClientPhase::Acquiring { asks, .. })
                if !calm && asks < config.requests_per_acquire =>
            {
                let sent_at = self.now - client.lag;
                client.phase = ClientPhase::Acquiring { asks: asks + 1, sent_at };
                let floor = client.fence_floor;
                Some(Message::Acquire { token, sent_at, floor })
            }
            (ClientStep::GiveUp, ClientPhase::Acquiring { .. }) => {
                client.end_acquire();
                // Without undo nothing is owed any more, so a lease of this token is an orphan at once.
                if !config.rules.undoes_unknown_acquires {
                    client.settled |= token.bit();
                }
                config.rules.undoes_unknown_acquires.then_some(Message::Release {
                    token,
                    tombstone: true,
                    undo: true,
                })
            }
            (ClientStep::Renew, ClientPhase::Holding { .. }) if !calm => {
                let sent_at = self.now - client.lag;
                let ClientPhase::Holding { grant, awaits, renewals, .. } = &mut client.phase else {
                    return None;
                };
                *renewals = renewals.checked_sub(1)?;
                *awaits = Some(sent_at);
                let fence = grant.fence;
                Some(Message::Renew { token, sent_at, fence })
            }
            (ClientStep::Write, ClientPhase::Holding { .. }) if !calm => self.write(who, config)?,
            (ClientStep::Release, ClientPhase::Holding { tombstone, .. }) => {
                client.end_acquire();
                Some(Message::Release { token, tombstone, undo: false })
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

    /// The work sends a write, after checking its deadline (unless that rule is broken).
    fn write(&mut self, who: usize, config: &ModelConfig) -> Option<Option<Message>> {
        let in_time = self.is_within_deadline(who);
        let ClientPhase::Holding { grant, writes, .. } = &mut self.clients.get_mut(who)?.phase else {
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

    /// Delivers a response to its client. Returns the client's next message, if any.
    pub(super) fn client_receives(
        &mut self,
        message: Message,
        config: &ModelConfig,
        sights: &CoverageSet,
    ) -> Option<Message> {
        let token = message.token()?;
        let who = usize::from(token.client);
        let clock = self.clock(who);
        let client = self.clients.get_mut(who)?;
        let undo = Message::Release { token, tombstone: true, undo: true };
        match (message, client.phase) {
            (Message::Granted { sent_at, grant, .. }, ClientPhase::Acquiring { asks, sent_at: latest }) => {
                let deadline = config.deadline(match config.rules.deadline {
                    DeadlineFrom::Sending => sent_at,
                    DeadlineFrom::Reply => clock,
                    DeadlineFrom::LatestRequest => latest,
                });
                // Kept only where it has an effect; otherwise it would only multiply the states.
                if config.data_loss != DataLoss::Never {
                    client.fence_floor = client.fence_floor.max(grant.fence);
                }
                // A grant past its deadline is useless; undoing it frees the name.
                if clock >= deadline {
                    sights.record(CoverageEvent::GrantTooLate);
                    client.end_acquire();
                    return Some(undo);
                }
                client.phase = ClientPhase::Holding {
                    grant,
                    deadline,
                    awaits: None,
                    renewals: config.renewals,
                    writes: config.writes,
                    tombstone: asks > 1 && config.rules.release_tombstone,
                };
                None
            }
            (Message::Busy { .. }, ClientPhase::Acquiring { asks, .. }) => {
                client.end_acquire();
                // An earlier request of this acquire may still arrive, and would be granted without an owner.
                if asks > 1 && config.rules.undoes_unknown_acquires {
                    return Some(undo);
                }
                client.settled |= token.bit();
                None
            }
            (Message::Renewed { sent_at, .. }, ClientPhase::Holding { .. }) => {
                self.confirm_renewal(who, sent_at, config, sights);
                None
            }
            (Message::NotOwned { .. }, ClientPhase::Holding { .. }) => {
                sights.record(CoverageEvent::NotOwned);
                client.end_acquire();
                None
            }
            _ => None,
        }
    }

    /// A confirmed renewal moves the deadline.
    fn confirm_renewal(&mut self, who: usize, sent_at: u8, config: &ModelConfig, sights: &CoverageSet) {
        let clock = self.clock(who);
        let Some(client) = self.clients.get_mut(who) else {
            return;
        };
        let ClientPhase::Holding { deadline, awaits, .. } = &mut client.phase else {
            return;
        };
        let was_past = clock >= *deadline;
        if was_past && config.on_failure == OnFailure::Fence {
            client.end_acquire();
            return;
        }
        // A response to an older renewal must not shorten the deadline; see the `max` below.
        let counted_from = match config.rules.deadline {
            DeadlineFrom::Reply => clock,
            DeadlineFrom::Sending | DeadlineFrom::LatestRequest => sent_at,
        };
        let reached = config.deadline(counted_from);
        if reached > *deadline {
            sights.record(CoverageEvent::Renewed);
        }
        *deadline = reached.max(*deadline);
        *awaits = None;
        if was_past && clock < *deadline {
            sights.record(CoverageEvent::ProvenAgain);
        }
    }

    /// Removes what can make no difference any more, so that states that differ only in it are equal.
    pub(super) fn normalise(&mut self, config: &ModelConfig, sights: &CoverageSet) {
        // A hold past its deadline can do nothing, because every use compares first. So it ends here, even
        // if its client is paused.
        if config.on_failure == OnFailure::Fence && config.rules.checks_at_use {
            for who in 0..self.clients.len() {
                let past = !self.is_within_deadline(who);
                if let Some(client) = self.clients.get_mut(who)
                    && past
                    && matches!(client.phase, ClientPhase::Holding { .. })
                {
                    client.end_acquire();
                }
            }
        }
        if self.store.lease.is_some() && self.live_lease().is_none() {
            sights.record(CoverageEvent::Expiry);
            // With a clock that steps back, or a renewal that does not check, it could still be used.
            if config.rules.renew_needs_live_lease && config.clock_step >= 0 {
                self.store.lease = None;
            }
        }
        let clients = self.clients;
        self.network.retain(|message| !is_ignored(message, &clients, config));
    }
}

/// Whether the client no longer waits for this response. The real client ignores such responses.
fn is_ignored(message: &Message, clients: &[ModelClient], config: &ModelConfig) -> bool {
    let Some(token) = message.token() else {
        return false;
    };
    let client = clients.get(usize::from(token.client)).filter(|client| client.attempt == token.attempt);
    let phase = client.map_or(ClientPhase::Absent, |client| client.phase);
    match message {
        Message::Granted { sent_at, .. } | Message::Busy { sent_at, .. } => {
            let any = config.rules.deadline == DeadlineFrom::LatestRequest;
            !matches!(phase, ClientPhase::Acquiring { sent_at: awaited, .. } if any || awaited == *sent_at)
        }
        Message::Renewed { sent_at, .. } | Message::NotOwned { sent_at, .. } => {
            !matches!(phase, ClientPhase::Holding { awaits, .. } if awaits == Some(*sent_at))
        }
        _ => false,
    }
}
