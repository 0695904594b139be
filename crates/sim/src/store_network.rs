//! The network between processes and the store. It delays, loses, refuses, resets and repeats
//! messages.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use leasehold_core::Token;
use leasehold_core::store::{AcquireResponse, StoreErrorKind};
use tokio::sync::oneshot;

use super::drift::{MS, Nanos, SEC};
use super::engine::{StoreHealth, StoreReply, StoreRequest};
use super::mistake::Mistake;
use super::random::SimRandom;
use super::world::{SimEvent, WorldState};

// Tombstones live for 60 s, which must be longer than any request can be late.
const MAX_STORE_DELAY: Nanos = 30 * SEC;

/// A request that is under way.
#[derive(Debug)]
struct StoreCall {
    slot: usize,
    life: u32,
    epoch: u32,
    sent: Nanos,
    verb: StoreRequest,
    // Taken when the reply is sent; `None` if the reply is to be lost.
    to: Option<oneshot::Sender<StoreReply>>,
    reply_delay: Nanos,
    // The store has executed one copy of it.
    executed: bool,
}

/// Requests under way, and a record of those that met a fault.
#[derive(Debug, Default)]
pub(super) struct StoreNetwork {
    calls: BTreeMap<u64, StoreCall>,
    sent: u64,
    // Numbers of the messages that met a fault.
    pub(super) faulted: Vec<u64>,
    // Random parts of tokens whose acquire request the store has executed twice. The client need not
    // know of a lease granted to the second copy.
    pub(super) repeated: BTreeSet<String>,
}

impl WorldState {
    /// Sends a request to the store. `to` receives the reply, or never does.
    pub(super) fn send_to_store(
        &mut self,
        slot: usize,
        life: u32,
        verb: StoreRequest,
        within: Duration,
        to: oneshot::Sender<StoreReply>,
    ) {
        // A daemon's request cannot be assigned to one acquire of a client here.
        if let StoreRequest::Acquire(request) = &verb
            && self.plan.daemon.is_none()
        {
            self.orphans.request_sent(slot, life, request);
        }
        let number = self.store_network.sent;
        self.store_network.sent += 1;
        // Keyed by the message's number, so sparing one message changes no other.
        let random = SimRandom::keyed(self.plan.seed, [0x3e55, number, 0]);
        let quiet = self.faults_ended || self.plan.spared_messages.contains(&number);
        let odds = if quiet { Default::default() } else { self.plan.odds };
        let mut travel = random.between(MS / 10, 10 * MS);
        let back = random.between(MS / 10, 10 * MS);
        let soon = random.between(MS / 10, 5 * MS);
        let budget = u64::try_from(within.as_nanos()).unwrap_or(MAX_STORE_DELAY);
        let rolls = [odds.drop, odds.refuse, odds.reset, odds.mute, odds.slow, odds.repeat]
            .map(|per_mille| random.chance(per_mille));
        let [drop, refuse, reset, mute, slow, repeat] = rolls;
        // Recorded even where a partition hides the fault: the shrinker tries to spare the message.
        if rolls.contains(&true) {
            self.store_network.faulted.push(number);
        }
        for (happens, fault) in rolls.into_iter().zip([
            "store: a message vanishes",
            "store: a message is refused on the way",
            "store: a connection is cut under a message",
            "store: an answer vanishes",
            "store: a message is late",
            "store: a message arrives twice",
        ]) {
            if happens {
                self.count_fault(fault);
            }
        }
        if slow {
            travel = if random.chance(300) {
                random.between(0, MAX_STORE_DELAY)
            } else {
                random.between(budget / 4, budget + budget / 4)
            };
        }
        let mut to = Some(to);
        let cut = self.hosts.get(slot).and_then(|host| host.partition);
        // What the client learns on the way out: definitely not done (false) or unknown (true).
        let early_failure = match (cut, refuse, reset) {
            (Some(false), ..) | (None, true, _) => Some(false),
            (None, false, true) => Some(true),
            _ => None,
        };
        if let Some(to) = early_failure.and_then(|_| to.take()) {
            let unknown = early_failure == Some(true) && self.plan.mistake != Mistake::SilenceIsANo;
            let reply = StoreReply::Failed { cause: StoreErrorKind::Unreachable, unknown };
            self.schedule_after(soon, SimEvent::Reply { slot, life, to, reply });
        }
        if cut.is_some() || drop || early_failure == Some(false) {
            return;
        }
        self.store_network.calls.insert(
            number,
            StoreCall {
                slot,
                life,
                epoch: self.engine.epoch,
                sent: self.now,
                verb,
                to: to.filter(|_| !mute),
                reply_delay: back,
                executed: false,
            },
        );
        self.schedule_after(travel, SimEvent::Deliver { call: number, copy: false });
        if repeat {
            let later = random.between(0, if random.chance(500) { SEC } else { MAX_STORE_DELAY });
            // The copy arrives neither before the original nor later than any message may.
            let later = (travel + later).min(MAX_STORE_DELAY).max(travel);
            self.schedule_after(later, SimEvent::Deliver { call: number, copy: true });
        }
    }

    /// Delivers a request to the store.
    pub(super) fn deliver_to_store(&mut self, number: u64, copy: bool) {
        let (now, epoch) = (self.now, self.engine.epoch);
        let Some(call) = self.store_network.calls.get_mut(&number) else {
            return;
        };
        let (slot, life, back, sent) = (call.slot, call.life, call.reply_delay, call.sent);
        // A lost connection or a silent store sends no reply: the caller's timeout has to end the call.
        if call.epoch != epoch || self.engine.health == StoreHealth::Silent {
            return;
        }
        let to = if copy { None } else { call.to.take() };
        let verb = call.verb.clone();
        // A copy whose original was never executed is merely late, and its sender expects that.
        let again = std::mem::replace(&mut call.executed, true);
        let reply = match self.engine.rejection(&verb, now) {
            Some(reply) => reply,
            None => {
                let before = self.leases_before(&verb);
                let (hosts, bells) = (&self.hosts, &self.wake_keys);
                // The daemon waits for its clients. A waiter is alive while the daemon listens for its token.
                let alive = |token: &Token| match hosts.iter().find(|host| host.is_daemon) {
                    Some(daemon) => daemon.alive && bells.contains_key(token.random()),
                    None => hosts
                        .iter()
                        .enumerate()
                        .any(|(slot, host)| host.alive && host.process_name(slot) == token.holder()),
                };
                let (reply, woken) = self.engine.apply(&verb, (slot, life), now, alive);
                if let (StoreRequest::Acquire(request), true) = (&verb, again) {
                    self.store_network.repeated.insert(request.token.random().to_owned());
                }
                match (&verb, &reply) {
                    (StoreRequest::Acquire(request), StoreReply::Acquire(AcquireResponse::Granted(_))) => {
                        self.record_owner(request.names.first(), &request.token, ((slot, life), again));
                    }
                    (StoreRequest::Acquire(request), StoreReply::Acquire(AcquireResponse::Busy(_)))
                        if again =>
                    {
                        self.engine.queue_entries.mark_rejoined(&request.token);
                    }
                    (StoreRequest::Release(release), _) => {
                        if let Some(token) = &woken {
                            let by = self.engine.queue_entries.process_of(token).unwrap_or((slot, life));
                            self.record_owner(release.names.first(), token, (by, false));
                        }
                    }
                    _ => {}
                }
                let stale = again || to.as_ref().is_none_or(oneshot::Sender::is_closed);
                self.record_executions(&verb, &reply, &before, (slot, life, sent, stale));
                self.observe_leases(Some(&verb));
                if let Some(token) = woken {
                    self.send_hint(token.holder(), token.random().to_owned(), number);
                }
                reply
            }
        };
        if let Some(to) = to {
            self.schedule_after(back, SimEvent::Reply { slot, life, to, reply });
        }
    }

    /// Wakes the waiter, unless the hint is lost.
    fn send_hint(&mut self, holder: &str, wake_key: String, number: u64) {
        let random = SimRandom::keyed(self.plan.seed, [0xbe11, number, 0]);
        let odds = if self.faults_ended { 0 } else { self.plan.odds.hint };
        let by = random.between(MS / 10, 5 * MS);
        if self.drops_hints || random.chance(odds) {
            return self.count_fault("store: a hint is lost");
        }
        let daemon = self.plan.daemon.is_some();
        let found = self
            .hosts
            .iter()
            .enumerate()
            .filter(|(_, host)| host.alive && host.partition.is_none())
            // Where there is a daemon, only the daemon listens to the store.
            .find(|(slot, host)| host.is_daemon || (!daemon && host.process_name(*slot) == holder))
            .map(|(slot, host)| (slot, host.life));
        if let Some((slot, life)) = found {
            self.schedule_after(by, SimEvent::Hint { slot, life, wake_key });
        }
    }
}
