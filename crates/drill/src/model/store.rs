//! The store's four sentences (ask, renew, release, forget) and the target's one, as steps of the model.
//!
//! They are written from the semantics, not taken from the code; a test asks them and the reference store the same
//! questions, so that the two cannot drift apart unnoticed.

use super::config::{Config, FenceFrom, Forgets};
use super::network::Message;
use super::promise::Breaches;
use super::sight::{Sight, Sights};
use super::state::{Grant, Lease, Memory, State, Token};

/// How many fences the time floor leaves between two ticks. In a real store these are microseconds: far more than
/// there are grants. Here it must exceed the grants of one tick.
pub const FENCES_PER_TICK: u8 = 8;

impl State {
    /// A message reaches the store; what it answers, if anything.
    pub(super) fn store_hears(
        &mut self,
        message: Message,
        config: &Config,
        sights: &Sights,
    ) -> Option<Message> {
        match message {
            Message::Ask {
                token,
                sent_at,
                floor,
            } => self.ask(token, sent_at, floor, config, sights),
            Message::Renew {
                token,
                sent_at,
                fence,
            } => Some(self.renew(token, sent_at, fence, config)),
            Message::Release { token, tombstone, .. } => {
                self.release(token, tombstone, config);
                None
            }
            _ => None,
        }
    }

    fn ask(
        &mut self,
        token: Token,
        sent_at: u8,
        floor: u8,
        config: &Config,
        sights: &Sights,
    ) -> Option<Message> {
        if self.is_void(token) {
            sights.saw(Sight::Voided);
            return None;
        }
        let expires = self.expiry(config);
        if let Some(mut lease) = self.live_lease() {
            if lease.token != token {
                return Some(Message::Busy { token, sent_at });
            }
            sights.saw(Sight::AskedAgain);
            lease.expires = expires;
            self.store.lease = Some(lease);
            let grant = lease.grant;
            return Some(Message::Granted {
                token,
                sent_at,
                grant,
            });
        }
        let grant = Grant {
            fence: self.next_fence(token, floor, config),
            order: self.granted.order + 1,
        };
        if grant.fence <= self.granted.fence {
            self.breaches.mark(Breaches::FENCE);
        }
        self.granted = Grant {
            fence: self.granted.fence.max(grant.fence),
            order: grant.order,
        };
        self.store.last = grant.fence;
        if config.rules.fence == FenceFrom::SameForOwner {
            self.store.last_owner = Some(token.client);
        }
        self.store.lease = Some(Lease {
            token,
            grant,
            expires,
        });
        Some(Message::Granted {
            token,
            sent_at,
            grant,
        })
    }

    fn next_fence(&self, token: Token, floor: u8, config: &Config) -> u8 {
        let next = self.store.last + 1;
        match config.rules.fence {
            FenceFrom::Counter => next,
            FenceFrom::CounterAndFloor => next.max(floor + 1),
            FenceFrom::SameForOwner if self.store.last_owner == Some(token.client) => self.store.last,
            FenceFrom::SameForOwner | FenceFrom::CounterAndTime => {
                next.max(self.store_clock() * FENCES_PER_TICK).max(floor + 1)
            }
        }
    }

    fn renew(&mut self, token: Token, sent_at: u8, fence: u8, config: &Config) -> Message {
        let now = self.store_clock();
        let expires = self.expiry(config);
        let rules = config.rules;
        if let Some(lease) = self.store.lease.as_mut() {
            let own = lease.token == token && lease.grant.fence == fence;
            let alive = lease.expires > now;
            if (own || !rules.renew_compares) && (alive || !rules.renew_needs_life) {
                lease.expires = expires;
                return Message::Renewed { token, sent_at };
            }
        }
        Message::NotOwned { token, sent_at }
    }

    fn release(&mut self, token: Token, tombstone: bool, config: &Config) {
        if tombstone
            && config.rules.tombstone
            && let Some(voided) = self.store.voided.get_mut(usize::from(token.client))
        {
            *voided |= token.bit();
        }
        if let Some(client) = self.clients.get_mut(usize::from(token.client)) {
            client.settled |= token.bit();
        }
        let Some(lease) = self.live_lease() else {
            return;
        };
        if lease.token == token || !config.rules.release_compares {
            self.store.lease = None;
        }
    }

    /// The store loses what it had acknowledged.
    pub(super) fn forget(&mut self, config: &Config, sights: &Sights) {
        let kept = match config.forgets {
            Forgets::Never => return,
            Forgets::Flush => Memory::default(),
            Forgets::LaggingReplica => self.replica,
        };
        if self.live_lease().is_some() && kept.lease != self.store.lease {
            sights.saw(Sight::Forgot);
        }
        self.store = kept;
    }

    /// A write reaches the target.
    pub(super) fn target_hears(&mut self, grant: Grant, config: &Config, sights: &Sights) {
        let target = &mut self.target;
        if config.rules.target_enforces && grant.fence < target.fence {
            sights.saw(Sight::WriteRefused);
            return;
        }
        sights.saw(Sight::WriteApplied);
        if grant.fence < target.fence || grant.order < target.order {
            self.breaches.mark(Breaches::WRITE);
        }
        target.fence = target.fence.max(grant.fence);
        target.order = target.order.max(grant.order);
    }

    fn is_void(&self, token: Token) -> bool {
        self.store
            .voided
            .get(usize::from(token.client))
            .is_some_and(|voided| voided & token.bit() != 0)
    }

    fn expiry(&self, config: &Config) -> u8 {
        if config.rules.lease_ends {
            self.store_clock() + config.ttl
        } else {
            u8::MAX
        }
    }
}
