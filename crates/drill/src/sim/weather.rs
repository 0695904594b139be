//! What happens to messages between clients and daemon: they are delayed, cut, swallowed, repeated and held back.
//!
//! Each side writes a request or an answer in one piece, so a piece is a message, and what may happen to a message is drawn for
//! each. What a broken connection means is left to the real code at its two ends.

use std::io;

use super::dice::Dice;
use super::drift::{MS, Nanos, SEC};
use super::plan::Odds;
use super::wire::{LATEST, Opening, Over, Packet, Side, WAY};
use super::world::{Event, State};

/// Messages are numbered from here on, apart from those to the store.
const FIRST: u64 = 1 << 40;

impl State {
    /// A client wants a connection; `to` hears of it, or never does.
    pub(super) fn knock(&mut self, slot: usize, life: u32, to: Opening) {
        let (number, dice, odds) = self.fate();
        let (there, back) = (way(&dice), way(&dice));
        let cut = self.hosts.get(slot).and_then(|host| host.cut);
        if cut == Some(true) {
            self.count("network: a connection is asked for behind a silent partition");
            return;
        }
        let refused = dice.chance(odds.refuse);
        if refused || cut.is_some() {
            if refused {
                self.wire.struck.push(number);
                self.count("network: a connection is refused");
            } else {
                self.count("network: a connection is refused by a partition");
            }
            let opened = Err(io::ErrorKind::ConnectionRefused.into());
            let packet = Packet::Opened {
                slot,
                life,
                to,
                opened,
            };
            return self.after(back, Event::Wire(packet));
        }
        let packet = Packet::Knock { slot, life, back, to };
        self.after(there, Event::Wire(packet));
    }

    /// The number of the next message, what is drawn for it, and what may happen to it.
    fn fate(&mut self) -> (u64, Dice, Odds) {
        let number = FIRST + self.wire.sent;
        self.wire.sent += 1;
        let quiet = self.healed || self.plan.spared.contains(&number);
        let odds = self.plan.daemon.as_ref().filter(|_| !quiet);
        let odds = odds.map_or_else(Odds::default, |daemon| daemon.odds);
        (number, Dice::keyed(self.plan.seed, [0x417e, number, 0]), odds)
    }

    /// One side sends something.
    pub(super) fn transmit(&mut self, conn: u64, side: Side, data: &[u8]) {
        let Some(there) = self.wire.conns.get(&conn) else {
            return;
        };
        let daemon = self.hosts.get(there.daemon.slot);
        if side == Side::Client && daemon.is_some_and(|host| host.alive && host.life != there.life) {
            // The system under the next daemon does not know this connection, and says so.
            return self.cut(conn, Side::Client, 2 * WAY);
        }
        if there.swallowed {
            return;
        }
        match side {
            Side::Client => self.request(conn, data),
            Side::Daemon => self.answer(conn, data),
        }
    }

    fn request(&mut self, conn: u64, data: &[u8]) {
        let (number, dice, odds) = self.fate();
        let mut travel = way(&dice);
        let soon = way(&dice);
        let rolls = [odds.drop, odds.reset, odds.mute, odds.slow, odds.repeat]
            .map(|per_mille| dice.chance(per_mille));
        let [drop, reset, mute, slow, repeat] = rolls;
        if rolls.contains(&true) {
            self.wire.struck.push(number);
        }
        match self.partition(conn, &dice) {
            Way::Open => {}
            Way::Late(by) => travel = by,
            Way::Lost => return,
            Way::Refused => return self.cut(conn, Side::Client, soon),
        }
        if drop {
            self.count("network: a connection goes silent under a request");
            return self.swallow(conn);
        }
        if reset && dice.chance(400) {
            self.count("network: a connection is cut before the request arrives");
            self.cut(conn, Side::Daemon, soon);
            return self.cut(conn, Side::Client, soon);
        }
        if slow {
            self.count("network: a request is late");
            travel = late(&dice);
        }
        let arrives = self.carry(conn, Side::Daemon, travel, data.to_vec());
        if reset {
            self.count("network: a connection is cut after the request was forwarded");
            let after = arrives.saturating_sub(self.now) + dice.between(0, 2 * MS);
            self.cut(conn, Side::Client, after);
            // The daemon may notice in the middle of its work, long after its client has asked again, or only when it answers.
            if dice.chance(600) {
                let most = if dice.chance(400) { 2 * SEC } else { 20 * MS };
                self.cut(conn, Side::Daemon, after + dice.between(0, most));
            }
        } else if mute {
            self.count("network: an answer is swallowed");
            if let Some(conn) = self.wire.conns.get_mut(&conn) {
                conn.mute = true;
            }
        }
        if repeat {
            self.count("network: a request arrives twice");
            self.wire.repeated = true;
            let later = dice.between(0, if dice.chance(500) { SEC } else { LATEST });
            let at = (arrives + later).min(self.now + LATEST).max(arrives);
            let data = data.to_vec();
            self.at(at, Event::Wire(Packet::Again { data }));
        }
    }

    fn answer(&mut self, conn: u64, data: &[u8]) {
        if data.starts_with(b"HTTP/1.1 500") {
            self.count("daemon: answers that something went wrong inside");
        }
        let (_, dice, odds) = self.fate();
        let Some(there) = self.wire.conns.get(&conn) else {
            return;
        };
        if there.ghost {
            return self.cut(conn, Side::Daemon, MS);
        }
        if there.mute {
            return;
        }
        let mut travel = way(&dice);
        match self.partition(conn, &dice) {
            Way::Open => {}
            Way::Late(by) => travel = by,
            Way::Lost => return,
            Way::Refused => return self.cut(conn, Side::Daemon, travel),
        }
        if dice.chance(odds.slow / 2) {
            self.count("network: an answer is late");
            travel = late(&dice);
        }
        self.carry(conn, Side::Client, travel, data.to_vec());
    }

    /// What a partition does to a message of this connection. One that is silent may be over before the systems at both ends
    /// have given up: then what was sent meanwhile arrives late.
    fn partition(&mut self, conn: u64, dice: &Dice) -> Way {
        let slot = self.wire.conns.get(&conn).map(|conn| conn.client.slot);
        let Some(host) = slot.and_then(|slot| self.hosts.get(slot)) else {
            return Way::Open;
        };
        let ends = host.cut_until.saturating_sub(self.now);
        match host.cut {
            None => Way::Open,
            Some(false) => {
                self.count("network: a partition refuses a message");
                Way::Refused
            }
            Some(true) if dice.chance(500) => {
                self.count("network: a partition holds a message back");
                Way::Late((ends + dice.between(MS, SEC)).min(LATEST))
            }
            Some(true) => {
                self.count("network: a partition swallows a message");
                self.swallow(conn);
                Way::Lost
            }
        }
    }

    fn swallow(&mut self, conn: u64) {
        if let Some(conn) = self.wire.conns.get_mut(&conn) {
            conn.swallowed = true;
        }
    }

    /// Everything that this process has open falls silent: its machine is gone.
    pub(super) fn swallow_all(&mut self, slot: usize) {
        for conn in self.wire.conns.values_mut() {
            conn.swallowed |= conn.daemon.slot == slot || conn.client.slot == slot;
        }
    }

    /// Bytes set out; answers when they arrive.
    pub(super) fn carry(&mut self, conn: u64, to: Side, travel: Nanos, data: Vec<u8>) -> Nanos {
        let now = self.now;
        let Some(end) = self.wire.conns.get_mut(&conn).map(|conn| conn.end(to)) else {
            return now;
        };
        let at = (now + travel).max(end.last);
        end.last = at;
        let slot = end.slot;
        let packet = Packet::Bytes {
            slot,
            conn,
            side: to,
            data,
        };
        self.at(at, Event::Wire(packet));
        at
    }

    /// This side hears that the connection is cut.
    pub(super) fn cut(&mut self, conn: u64, side: Side, by: Nanos) {
        let Some(slot) = self.wire.conns.get_mut(&conn).map(|conn| conn.end(side).slot) else {
            return;
        };
        let over = Over::Reset;
        let packet = Packet::End {
            slot,
            conn,
            side,
            over,
        };
        self.after(by, Event::Wire(packet));
    }
}

enum Way {
    Open,
    Late(Nanos),
    Lost,
    Refused,
}

fn way(dice: &Dice) -> Nanos {
    dice.between(MS / 10, WAY)
}

fn late(dice: &Dice) -> Nanos {
    if dice.chance(300) {
        dice.between(0, LATEST)
    } else {
        dice.between(10 * MS, 1_500 * MS)
    }
}
