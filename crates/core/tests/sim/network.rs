//! The network to the store: messages are delayed, lost, refused, cut off and repeated.

use std::time::Duration;

use leasehold_core::clock::Moment;
use leasehold_core::store::StoreErrorKind;

use crate::clock::{MS, Nanos, SEC};
use crate::judge::Fact;
use crate::simulation::{SimEvent, Simulation};
use crate::store::{StoreReply, StoreRequest, reply_text};

/// The longest delay of a message. Tombstones live for 60 s, "longer than any request can still be
/// on its way".
pub(crate) const MAX_STORE_DELAY: Nanos = 30 * SEC;

/// The receiver of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallOwner {
    Attempt(u64),
    Hold(u64),
}

/// One call of a client to the store.
#[derive(Debug)]
pub(crate) struct StoreCall {
    pub(crate) client: usize,
    /// A restarted client does not receive responses to calls from before its crash.
    pub(crate) incarnation: u32,
    pub(crate) asker: CallOwner,
    pub(crate) verb: StoreRequest,
    /// On the client's clock, taken before anything was sent.
    pub(crate) sent_at: Moment,
    /// Answered, timed out, or without a receiver.
    pub(crate) settled: bool,
    /// The response will not arrive.
    mute: bool,
    reply: Option<StoreReply>,
}

impl Simulation {
    /// Sends a message and starts its timeout.
    pub(crate) fn send(
        &mut self,
        client: usize,
        asker: CallOwner,
        verb: StoreRequest,
        within: Duration,
    ) -> usize {
        let clock = self.clients[client].clock;
        let sent_at = clock.read(self.now);
        let id = self.calls.len();
        let faults = if self.healing { Default::default() } else { self.plan.faults };
        let mut call = StoreCall {
            client,
            incarnation: self.clients[client].incarnation,
            asker,
            verb,
            sent_at,
            settled: false,
            mute: self.random.chance(faults.mute),
            reply: None,
        };
        let soon = self.random.between(MS / 10, 5 * MS);
        let budget = u64::try_from(within.as_nanos()).unwrap_or(MAX_STORE_DELAY);
        let mut travel = self.random.between(MS / 10, 10 * MS);
        if self.random.chance(faults.slow) {
            travel = if self.random.chance(300) {
                self.random.between(0, MAX_STORE_DELAY)
            } else {
                self.random.between(budget / 4, budget + budget / 4)
            };
        }
        let mut arrives = !self.random.chance(faults.drop);
        if self.random.chance(faults.refuse) {
            arrives = false;
            self.fail(&mut call, id, soon, false);
        } else if self.random.chance(faults.reset) {
            self.fail(&mut call, id, soon, true);
        }
        let label = call.verb.label();
        self.calls.push(call);
        self.history.note(self.now, label, (client, id as u64), travel, || {
            format!("{asker:?} sends {:?}", self.calls[id].verb)
        });
        if arrives {
            self.after(travel, SimEvent::Deliver { call: id, copy: 0 });
            if self.random.chance(faults.repeat) {
                let later = travel
                    + self.random.between(0, if self.random.chance(500) { SEC } else { MAX_STORE_DELAY });
                self.after(later.min(MAX_STORE_DELAY).max(travel), SimEvent::Deliver { call: id, copy: 1 });
            }
        }
        self.at(clock.true_time_of(sent_at + within), SimEvent::TimeUp { call: id });
        id
    }

    /// The client learns of a network failure.
    fn fail(&mut self, call: &mut StoreCall, id: usize, soon: Nanos, unknown: bool) {
        call.mute = true;
        call.reply = Some(StoreReply::Failed { cause: StoreErrorKind::Unreachable, unknown });
        self.after(soon, SimEvent::Answer { call: id });
    }

    pub(crate) fn deliver(&mut self, id: usize, copy: u32) {
        let who = (self.calls[id].client, id as u64);
        if self.store.down_until > self.now {
            self.history.note(self.now, "down", who, u64::from(copy), || "lost at the store's door".into());
            return;
        }
        let done = self.store.apply(&self.calls[id].verb, self.now);
        let mark = done.after.as_ref().map_or(0, |record| record.fence.get() ^ record.expires);
        self.history.note(self.now, "applied", who, mark, || {
            let lease = done.after.as_ref().map(|record| {
                format!(
                    "fence {} of {:?} until {:.6}",
                    record.fence,
                    record.owner,
                    record.expires as f64 / 1e9
                )
            });
            let label = self.calls[id].verb.label();
            format!("{label} copy {copy}: {}; lease now {lease:?}", reply_text(&done.reply))
        });
        let fact = Fact::Applied {
            at: self.now,
            verb: &self.calls[id].verb,
            repeated: copy > 0,
            late: self.calls[id].settled || self.calls[id].incarnation != self.clients[who.0].incarnation,
            done: &done,
        };
        self.judge.judge_fact(self.now, &fact);
        if let Some(token) = &done.woken {
            let faults = if self.healing { 0 } else { self.plan.faults.hint };
            let found = self.clients.iter().enumerate().find_map(|(client, state)| {
                let waits = state.attempts.values().find(|attempt| attempt.ask.token == *token)?;
                Some((client, waits.id))
            });
            if let Some((client, attempt)) = found.filter(|_| !self.random.chance(faults)) {
                let by = self.random.between(MS / 10, 5 * MS);
                self.after(by, SimEvent::Hint { client, attempt });
            }
        }
        let call = &mut self.calls[id];
        if copy == 0 && !call.mute {
            call.reply = Some(done.reply);
            let back = self.random.between(MS / 10, 10 * MS);
            self.after(back, SimEvent::Answer { call: id });
        }
    }

    pub(crate) fn answer(&mut self, id: usize) {
        let Some(reply) = self.calls[id].reply.take() else {
            return;
        };
        self.settle(id, reply);
    }

    /// A missing response is an unknown outcome, never a refusal.
    pub(crate) fn time_up(&mut self, id: usize) {
        let (cause, unknown) = (StoreErrorKind::TimedOut, true);
        self.settle(id, StoreReply::Failed { cause, unknown });
    }

    fn settle(&mut self, id: usize, reply: StoreReply) {
        let call = &mut self.calls[id];
        let client = call.client;
        if call.settled || call.incarnation != self.clients[client].incarnation {
            return;
        }
        call.settled = true;
        let asker = call.asker;
        self.history.note(self.now, "heard", (client, id as u64), 0, || reply_text(&reply));
        match asker {
            CallOwner::Attempt(attempt) => self.asked(client, attempt, reply),
            CallOwner::Hold(hold) => self.heard(client, hold, id, reply),
        }
    }
}
