//! The way to the store and back: messages are delayed, lost, refused, cut off and repeated.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use leasehold_core::Token;
use leasehold_core::store::{Answer, Cause};
use tokio::sync::oneshot;

use super::dice::Dice;
use super::drift::{MS, Nanos, SEC};
use super::engine::{Reply, Service, Verb};
use super::mistake::Mistake;
use super::world::{Event, State};

/// The latest that any message arrives. Tombstones live for 60 s, "longer than any request can still be on its way".
const LATEST: Nanos = 30 * SEC;

/// A message on its way.
#[derive(Debug)]
struct Call {
    slot: usize,
    life: u32,
    epoch: u32,
    verb: Verb,
    /// Who waits for the answer, until it is sent.
    to: Option<oneshot::Sender<Reply>>,
    back: Nanos,
    /// The store has seen it.
    seen: bool,
}

/// Messages on their way, and what happened to those that met a fault.
#[derive(Debug, Default)]
pub(super) struct Network {
    calls: BTreeMap<u64, Call>,
    sent: u64,
    /// Messages that met a fault, by number.
    pub(super) struck: Vec<u64>,
    /// Tokens, by their random part, with an ask that the store has seen twice: what the second one was granted, nobody may know of.
    pub(super) repeated: BTreeSet<String>,
}

impl State {
    /// Sends a message to the store; `to` hears of it, or never does.
    pub(super) fn send(
        &mut self,
        slot: usize,
        life: u32,
        verb: Verb,
        within: Duration,
        to: oneshot::Sender<Reply>,
    ) {
        // Behind a daemon, which acquire a question belongs to is not known here.
        if let Verb::Ask(ask) = &verb
            && self.plan.daemon.is_none()
        {
            self.orphans.asks(slot, life, ask);
        }
        let number = self.network.sent;
        self.network.sent += 1;
        let dice = Dice::keyed(self.plan.seed, [0x3e55, number, 0]);
        let quiet = self.healed || self.plan.spared.contains(&number);
        let odds = if quiet { Default::default() } else { self.plan.odds };
        let mut travel = dice.between(MS / 10, 10 * MS);
        let back = dice.between(MS / 10, 10 * MS);
        let soon = dice.between(MS / 10, 5 * MS);
        let budget = u64::try_from(within.as_nanos()).unwrap_or(LATEST);
        let rolls = [
            odds.drop,
            odds.refuse,
            odds.reset,
            odds.mute,
            odds.slow,
            odds.repeat,
        ]
        .map(|per_mille| dice.chance(per_mille));
        let [drop, refuse, reset, mute, slow, repeat] = rolls;
        if rolls.contains(&true) {
            self.network.struck.push(number);
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
                self.count(fault);
            }
        }
        if slow {
            travel = if dice.chance(300) {
                dice.between(0, LATEST)
            } else {
                dice.between(budget / 4, budget + budget / 4)
            };
        }
        let mut to = Some(to);
        let cut = self.hosts.get(slot).and_then(|host| host.cut);
        // What the client hears of the way there: that nothing was done, or that nobody knows.
        let heard = match (cut, refuse, reset) {
            (Some(false), ..) | (None, true, _) => Some(false),
            (None, false, true) => Some(true),
            _ => None,
        };
        if let Some(to) = heard.and_then(|_| to.take()) {
            let unknown = heard == Some(true) && self.plan.mistake != Mistake::SilenceIsANo;
            let reply = Reply::Failed {
                cause: Cause::Unreachable,
                unknown,
            };
            self.after(
                soon,
                Event::Answer {
                    slot,
                    life,
                    to,
                    reply,
                },
            );
        }
        if cut.is_some() || drop || heard == Some(false) {
            return;
        }
        self.network.calls.insert(
            number,
            Call {
                slot,
                life,
                epoch: self.engine.epoch,
                verb,
                to: to.filter(|_| !mute),
                back,
                seen: false,
            },
        );
        self.after(
            travel,
            Event::Deliver {
                call: number,
                copy: false,
            },
        );
        if repeat {
            let later = dice.between(0, if dice.chance(500) { SEC } else { LATEST });
            let later = (travel + later).min(LATEST).max(travel);
            self.after(
                later,
                Event::Deliver {
                    call: number,
                    copy: true,
                },
            );
        }
    }

    /// A message arrives.
    pub(super) fn deliver(&mut self, number: u64, copy: bool) {
        let (now, epoch) = (self.now, self.engine.epoch);
        let Some(call) = self.network.calls.get_mut(&number) else {
            return;
        };
        let (slot, life, back) = (call.slot, call.life, call.back);
        // A connection that is gone, or a store that says nothing: the sender's patience ends by itself.
        if call.epoch != epoch || self.engine.service == Service::Silent {
            return;
        }
        let to = if copy { None } else { call.to.take() };
        let verb = call.verb.clone();
        // One whose first copy nobody has seen is only late, and its sender reckons with that.
        let again = std::mem::replace(&mut call.seen, true);
        let reply = match self.engine.turned_away(&verb, now) {
            Some(reply) => reply,
            None => {
                let (hosts, bells) = (&self.hosts, &self.bells);
                let alive = |token: &Token| match hosts.iter().find(|host| host.serves) {
                    Some(daemon) => daemon.alive && bells.contains_key(token.random()),
                    None => hosts
                        .iter()
                        .enumerate()
                        .any(|(slot, host)| host.alive && host.who(slot) == token.holder()),
                };
                let (reply, woken) = self.engine.apply(&verb, (slot, life), now, alive);
                if let (Verb::Ask(ask), true) = (&verb, again) {
                    self.network.repeated.insert(ask.token.random().to_owned());
                }
                match (&verb, &reply) {
                    (Verb::Ask(ask), Reply::Asked(Answer::Granted(_))) => {
                        self.owns(&ask.name, &ask.token, ((slot, life), again));
                    }
                    (Verb::Ask(ask), Reply::Asked(Answer::Busy(_))) if again => {
                        self.engine.places.returns(&ask.token);
                    }
                    (Verb::Release(giving), _) => {
                        if let Some(token) = &woken {
                            let by = self.engine.places.of(token).unwrap_or((slot, life));
                            self.owns(&giving.name, token, (by, false));
                        }
                    }
                    _ => {}
                }
                self.watch_leases(Some(&verb));
                if let Some(token) = woken {
                    self.ring(token.holder(), token.random().to_owned(), number);
                }
                reply
            }
        };
        if let Some(to) = to {
            self.after(
                back,
                Event::Answer {
                    slot,
                    life,
                    to,
                    reply,
                },
            );
        }
    }

    /// Tells the waiter, unless the hint is lost.
    fn ring(&mut self, holder: &str, bell: String, number: u64) {
        let dice = Dice::keyed(self.plan.seed, [0xbe11, number, 0]);
        let odds = if self.healed { 0 } else { self.plan.odds.hint };
        let by = dice.between(MS / 10, 5 * MS);
        if self.deaf || dice.chance(odds) {
            return self.count("store: a hint is lost");
        }
        let daemon = self.plan.daemon.is_some();
        let found = self
            .hosts
            .iter()
            .enumerate()
            .filter(|(_, host)| host.alive && host.cut.is_none())
            // Where there is a daemon, only it listens to the store.
            .find(|(slot, host)| host.serves || (!daemon && host.who(*slot) == holder))
            .map(|(slot, host)| (slot, host.life));
        if let Some((slot, life)) = found {
            self.after(by, Event::Hint { slot, life, bell });
        }
    }
}
