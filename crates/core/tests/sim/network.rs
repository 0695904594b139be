//! The way to the store and back: messages are delayed, lost, refused, cut off and repeated.

use std::time::Duration;

use leasehold_core::clock::Moment;
use leasehold_core::store::Cause;

use crate::clock::{MS, Nanos, SEC};
use crate::court::Fact;
use crate::engine::{Reply, Verb, word};
use crate::world::{Event, World};

/// The latest that any message arrives. Tombstones live for 60 s, "longer than any request can still be on its way".
pub(crate) const LATEST: Nanos = 30 * SEC;

/// Who waits for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asker {
    Attempt(u64),
    Hold(u64),
}

/// One call of a client to the store.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) client: usize,
    /// A client that died and came back does not hear answers to its former life.
    pub(crate) incarnation: u32,
    pub(crate) asker: Asker,
    pub(crate) verb: Verb,
    /// On the client's clock, taken before anything was sent.
    pub(crate) sent_at: Moment,
    /// Answered, timed out, or nobody waits any more.
    pub(crate) settled: bool,
    /// The answer will not arrive.
    mute: bool,
    reply: Option<Reply>,
}

impl World {
    /// Sends a message and starts the clock on it.
    pub(crate) fn send(&mut self, client: usize, asker: Asker, verb: Verb, within: Duration) -> usize {
        let clock = self.clients[client].clock;
        let sent_at = clock.read(self.now);
        let id = self.calls.len();
        let faults = if self.healing {
            Default::default()
        } else {
            self.plan.faults
        };
        let mut call = Call {
            client,
            incarnation: self.clients[client].incarnation,
            asker,
            verb,
            sent_at,
            settled: false,
            mute: self.dice.chance(faults.mute),
            reply: None,
        };
        let soon = self.dice.between(MS / 10, 5 * MS);
        let budget = u64::try_from(within.as_nanos()).unwrap_or(LATEST);
        let mut travel = self.dice.between(MS / 10, 10 * MS);
        if self.dice.chance(faults.slow) {
            travel = if self.dice.chance(300) {
                self.dice.between(0, LATEST)
            } else {
                self.dice.between(budget / 4, budget + budget / 4)
            };
        }
        let mut arrives = !self.dice.chance(faults.drop);
        if self.dice.chance(faults.refuse) {
            arrives = false;
            self.fail(&mut call, id, soon, false);
        } else if self.dice.chance(faults.reset) {
            self.fail(&mut call, id, soon, true);
        }
        let label = call.verb.label();
        self.calls.push(call);
        self.history
            .note(self.now, label, (client, id as u64), travel, || {
                format!("{asker:?} sends {:?}", self.calls[id].verb)
            });
        if arrives {
            self.after(travel, Event::Deliver { call: id, copy: 0 });
            if self.dice.chance(faults.repeat) {
                let later = travel
                    + self
                        .dice
                        .between(0, if self.dice.chance(500) { SEC } else { LATEST });
                self.after(
                    later.min(LATEST).max(travel),
                    Event::Deliver { call: id, copy: 1 },
                );
            }
        }
        self.at(clock.when(sent_at + within), Event::TimeUp { call: id });
        id
    }

    /// The client learns of a failure on the way.
    fn fail(&mut self, call: &mut Call, id: usize, soon: Nanos, unknown: bool) {
        call.mute = true;
        call.reply = Some(Reply::Failed {
            cause: Cause::Unreachable,
            unknown,
        });
        self.after(soon, Event::Answer { call: id });
    }

    pub(crate) fn deliver(&mut self, id: usize, copy: u32) {
        let who = (self.calls[id].client, id as u64);
        if self.engine.down_until > self.now {
            self.history.note(self.now, "down", who, u64::from(copy), || {
                "lost at the store's door".into()
            });
            return;
        }
        let done = self.engine.apply(&self.calls[id].verb, self.now);
        let mark = done
            .after
            .as_ref()
            .map_or(0, |record| record.fence.get() ^ record.expires);
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
            format!("{label} copy {copy}: {}; lease now {lease:?}", word(&done.reply))
        });
        let fact = Fact::Applied {
            at: self.now,
            verb: &self.calls[id].verb,
            repeated: copy > 0,
            late: self.calls[id].settled || self.calls[id].incarnation != self.clients[who.0].incarnation,
            done: &done,
        };
        self.court.hear(self.now, &fact);
        if let Some(token) = &done.woken {
            let faults = if self.healing { 0 } else { self.plan.faults.hint };
            let found = self.clients.iter().enumerate().find_map(|(client, state)| {
                let waits = state
                    .attempts
                    .values()
                    .find(|attempt| attempt.ask.token == *token)?;
                Some((client, waits.id))
            });
            if let Some((client, attempt)) = found.filter(|_| !self.dice.chance(faults)) {
                let by = self.dice.between(MS / 10, 5 * MS);
                self.after(by, Event::Hint { client, attempt });
            }
        }
        let call = &mut self.calls[id];
        if copy == 0 && !call.mute {
            call.reply = Some(done.reply);
            let back = self.dice.between(MS / 10, 10 * MS);
            self.after(back, Event::Answer { call: id });
        }
    }

    pub(crate) fn answer(&mut self, id: usize) {
        let Some(reply) = self.calls[id].reply.take() else {
            return;
        };
        self.settle(id, reply);
    }

    /// Silence is an unknown outcome, never a no.
    pub(crate) fn time_up(&mut self, id: usize) {
        let (cause, unknown) = (Cause::TimedOut, true);
        self.settle(id, Reply::Failed { cause, unknown });
    }

    fn settle(&mut self, id: usize, reply: Reply) {
        let call = &mut self.calls[id];
        let client = call.client;
        if call.settled || call.incarnation != self.clients[client].incarnation {
            return;
        }
        call.settled = true;
        let asker = call.asker;
        self.history
            .note(self.now, "heard", (client, id as u64), 0, || word(&reply));
        match asker {
            Asker::Attempt(attempt) => self.asked(client, attempt, id, reply),
            Asker::Hold(hold) => self.heard(client, hold, id, reply),
        }
    }
}
