//! The store's operations (acquire, renew, release, lose data) and the target's one, as model steps.
//!
//! They are written from the semantics, not taken from the code. A test sends the same requests to
//! them and to the reference store, so that the two cannot diverge unnoticed.

use super::config::{DataLoss, FenceFrom, ModelConfig};
use super::coverage::{CoverageEvent, CoverageSet};
use super::network::Message;
use super::promise::Breaches;
use super::state::{ModelGrant, ModelLease, ModelState, ModelToken, StoreMemory};

/// Fences that the time floor leaves between two ticks. In a real store these are microseconds, far
/// more than there are grants. Here the number must exceed the grants of one tick.
pub const FENCES_PER_TICK: u8 = 8;

impl ModelState {
    /// Delivers a message to the store. Returns its response, if any.
    pub fn store_receives(
        &mut self,
        message: Message,
        config: &ModelConfig,
        sights: &CoverageSet,
    ) -> Option<Message> {
        match message {
            Message::Acquire { token, sent_at, floor } => {
                self.store_acquire(token, sent_at, floor, config, sights)
            }
            Message::Renew { token, sent_at, fence } => Some(self.store_renew(token, sent_at, fence, config)),
            Message::Release { token, tombstone, .. } => {
                self.store_release(token, tombstone, config);
                None
            }
            _ => None,
        }
    }

    fn store_acquire(
        &mut self,
        token: ModelToken,
        sent_at: u8,
        floor: u8,
        config: &ModelConfig,
        sights: &CoverageSet,
    ) -> Option<Message> {
        if self.has_tombstone(token) {
            sights.record(CoverageEvent::TombstoneHit);
            return None;
        }
        let expires = self.expiry(config);
        if let Some(mut lease) = self.live_lease() {
            if lease.token != token {
                return Some(Message::Busy { token, sent_at });
            }
            // The owner asks again: same grant, extended lease. A new fence would void its own writes.
            sights.record(CoverageEvent::RequestRepeatedByOwner);
            lease.expires = expires;
            self.store.lease = Some(lease);
            let grant = lease.grant;
            return Some(Message::Granted { token, sent_at, grant });
        }
        let grant =
            ModelGrant { fence: self.next_fence(token, floor, config), order: self.latest_grant.order + 1 };
        // The ghost `granted` survives data loss, so it detects a fence that the store issues again.
        if grant.fence <= self.latest_grant.fence {
            self.breaches.mark(Breaches::FENCE);
        }
        self.latest_grant =
            ModelGrant { fence: self.latest_grant.fence.max(grant.fence), order: grant.order };
        self.store.last_fence = grant.fence;
        if config.rules.fence == FenceFrom::SameForOwner {
            self.store.last_owner = Some(token.client);
        }
        self.store.lease = Some(ModelLease { token, grant, expires });
        Some(Message::Granted { token, sent_at, grant })
    }

    fn next_fence(&self, token: ModelToken, floor: u8, config: &ModelConfig) -> u8 {
        let next = self.store.last_fence + 1;
        match config.rules.fence {
            FenceFrom::Counter => next,
            FenceFrom::CounterAndFloor => next.max(floor + 1),
            FenceFrom::SameForOwner if self.store.last_owner == Some(token.client) => self.store.last_fence,
            FenceFrom::SameForOwner | FenceFrom::CounterAndTime => {
                next.max(self.store_clock() * FENCES_PER_TICK).max(floor + 1)
            }
        }
    }

    fn store_renew(&mut self, token: ModelToken, sent_at: u8, fence: u8, config: &ModelConfig) -> Message {
        let now = self.store_clock();
        let expires = self.expiry(config);
        let rules = config.rules;
        if let Some(lease) = self.store.lease.as_mut() {
            let own = lease.token == token && lease.grant.fence == fence;
            let alive = lease.expires > now;
            if (own || !rules.renew_compares) && (alive || !rules.renew_needs_live_lease) {
                lease.expires = expires;
                return Message::Renewed { token, sent_at };
            }
        }
        Message::NotOwned { token, sent_at }
    }

    fn store_release(&mut self, token: ModelToken, tombstone: bool, config: &ModelConfig) {
        if tombstone
            && config.rules.tombstone
            && let Some(voided) = self.store.tombstones.get_mut(usize::from(token.client))
        {
            *voided |= token.bit();
        }
        // Even a release that finds no lease settles the acquire: any later lease of it is an orphan.
        if let Some(client) = self.clients.get_mut(usize::from(token.client)) {
            client.settled |= token.bit();
        }
        // An expired record stays. It can live again if the clock steps back, which breaks I6.
        let Some(lease) = self.live_lease() else {
            return;
        };
        if lease.token == token || !config.rules.release_compares {
            self.store.lease = None;
        }
    }

    /// The store loses acknowledged writes.
    pub fn lose_data(&mut self, config: &ModelConfig, sights: &CoverageSet) {
        let kept = match config.data_loss {
            DataLoss::Never => return,
            DataLoss::Flush => StoreMemory::default(),
            DataLoss::LaggingReplica => self.replica,
        };
        if self.live_lease().is_some() && kept.lease != self.store.lease {
            sights.record(CoverageEvent::DataLost);
        }
        self.store = kept;
    }

    /// Delivers a write to the target.
    pub(super) fn target_receives(&mut self, grant: ModelGrant, config: &ModelConfig, sights: &CoverageSet) {
        let target = &mut self.target;
        if config.rules.target_enforces && grant.fence < target.fence {
            sights.record(CoverageEvent::WriteRefused);
            return;
        }
        sights.record(CoverageEvent::WriteApplied);
        // The true order too: a repeated fence passes the target although its write is stale.
        if grant.fence < target.fence || grant.order < target.order {
            self.breaches.mark(Breaches::WRITE);
        }
        target.fence = target.fence.max(grant.fence);
        target.order = target.order.max(grant.order);
    }

    fn has_tombstone(&self, token: ModelToken) -> bool {
        self.store.tombstones.get(usize::from(token.client)).is_some_and(|voided| voided & token.bit() != 0)
    }

    fn expiry(&self, config: &ModelConfig) -> u8 {
        if config.rules.leases_expire { self.store_clock() + config.ttl } else { u8::MAX }
    }
}
