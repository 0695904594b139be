//! Faults on the network between clients and daemon: messages are delayed, reset, dropped, repeated
//! and held back.
//!
//! Each side writes a request or response in one piece, so one piece is one message. Faults are
//! drawn per message. The real code at both ends decides what a broken connection means.

use std::io;

use leasehold_core::Token;

use super::daemon_network::{
    ConnectReply, MAX_PACKET_DELAY, MAX_TRAVEL_TIME, Packet, SimConnectionEnd, SimSide,
};
use super::drift::{MS, Nanos, SEC};
use super::plan::FaultOdds;
use super::random::SimRandom;
use super::world::{SimEvent, WorldState};

// Numbered apart from the messages to the store, because both share the plan's list of spared ones.
const FIRST_PACKET_NUMBER: u64 = 1 << 40;

/// Whether one of these requests has the token in its head or body.
fn names_token(requests: &[Vec<u8>], token: &Token) -> bool {
    let token = token.expose().as_bytes();
    requests.iter().any(|data| data.windows(token.len()).any(|part| part == token))
}

impl WorldState {
    /// A client opens a connection. `to` receives the result, or never does.
    pub(super) fn connect(&mut self, slot: usize, life: u32, to: ConnectReply) {
        let (number, random, odds) = self.draw_packet_faults();
        let (there, back) = (travel_time(&random), travel_time(&random));
        let cut = self.hosts.get(slot).and_then(|host| host.partition);
        // `to` is dropped here, so the connector waits until its caller's timeout.
        if cut == Some(true) {
            self.count_fault("network: a connection is asked for behind a silent partition");
            return;
        }
        let refused = random.chance(odds.refuse);
        if refused || cut.is_some() {
            if refused {
                self.daemon_network.faulted.push(number);
                self.count_fault("network: a connection is refused");
            } else {
                self.count_fault("network: a connection is refused by a partition");
            }
            let opened = Err(io::ErrorKind::ConnectionRefused.into());
            let packet = Packet::Connected { slot, life, to, opened };
            return self.schedule_after(back, SimEvent::Packet(packet));
        }
        let packet = Packet::Connect { slot, life, back, to };
        self.schedule_after(there, SimEvent::Packet(packet));
    }

    /// The number of the next message, its random source, and its fault probabilities.
    fn draw_packet_faults(&mut self) -> (u64, SimRandom, FaultOdds) {
        let number = FIRST_PACKET_NUMBER + self.daemon_network.sent;
        self.daemon_network.sent += 1;
        let quiet = self.faults_ended || self.plan.spared_messages.contains(&number);
        let odds = self.plan.daemon.as_ref().filter(|_| !quiet);
        let odds = odds.map_or_else(FaultOdds::default, |daemon| daemon.odds);
        (number, SimRandom::keyed(self.plan.seed, [0x417e, number, 0]), odds)
    }

    /// Whether a client's request with this token arrived at the daemon twice, so that this may be what the copy led to.
    pub(super) fn is_token_repeated(&self, token: &Token) -> bool {
        names_token(&self.daemon_network.repeated, token)
    }

    /// Whether a client's request with this token arrived after the client had given up on it.
    pub(super) fn is_token_late(&self, token: &Token) -> bool {
        names_token(&self.daemon_network.late, token)
    }

    /// One side sends a message.
    pub(super) fn transmit(&mut self, conn: u64, side: SimSide, data: &[u8]) {
        let Some(there) = self.daemon_network.conns.get(&conn) else {
            return;
        };
        let daemon = self.hosts.get(there.daemon.slot);
        if side == SimSide::Client && daemon.is_some_and(|host| host.alive && host.life != there.life) {
            // The next daemon's system does not know the connection and answers with a reset.
            return self.reset_connection(conn, SimSide::Client, 2 * MAX_TRAVEL_TIME);
        }
        if there.blackholed {
            return;
        }
        match side {
            SimSide::Client => self.send_request(conn, data),
            SimSide::Daemon => self.send_response(conn, data),
        }
    }

    fn send_request(&mut self, conn: u64, data: &[u8]) {
        let (number, random, odds) = self.draw_packet_faults();
        let mut travel = travel_time(&random);
        let soon = travel_time(&random);
        let rolls = [odds.drop, odds.reset, odds.mute, odds.slow, odds.repeat]
            .map(|per_mille| random.chance(per_mille));
        let [drop, reset, mute, slow, repeat] = rolls;
        if rolls.contains(&true) {
            self.daemon_network.faulted.push(number);
        }
        match self.partition_effect(conn, &random) {
            PartitionEffect::Open => {}
            PartitionEffect::Late(by) => travel = by,
            PartitionEffect::Lost => return,
            PartitionEffect::Refused => return self.reset_connection(conn, SimSide::Client, soon),
        }
        if drop {
            self.count_fault("network: a connection goes silent under a request");
            return self.blackhole(conn);
        }
        // Two kinds of reset: before the request arrives, and after, when the outcome is unknown.
        if reset && random.chance(400) {
            self.count_fault("network: a connection is cut before the request arrives");
            self.reset_connection(conn, SimSide::Daemon, soon);
            return self.reset_connection(conn, SimSide::Client, soon);
        }
        if slow {
            self.count_fault("network: a request is late");
            travel = late_delay(&random);
        }
        let arrives = self.send_bytes(conn, SimSide::Daemon, travel, data.to_vec());
        if reset {
            self.count_fault("network: a connection is cut after the request was forwarded");
            let after = arrives.saturating_sub(self.now) + random.between(0, 2 * MS);
            self.reset_connection(conn, SimSide::Client, after);
            // The daemon may notice during its work, after its client has asked again, or when it responds.
            if random.chance(600) {
                let most = if random.chance(400) { 2 * SEC } else { 20 * MS };
                self.reset_connection(conn, SimSide::Daemon, after + random.between(0, most));
            }
        } else if mute {
            self.count_fault("network: an answer is swallowed");
            if let Some(conn) = self.daemon_network.conns.get_mut(&conn) {
                conn.drops_responses = true;
            }
        }
        if repeat {
            self.count_fault("network: a request arrives twice");
            let later = random.between(0, if random.chance(500) { SEC } else { MAX_PACKET_DELAY });
            let at = (arrives + later).min(self.now + MAX_PACKET_DELAY).max(arrives);
            let data = data.to_vec();
            self.daemon_network.repeated.push(data.clone());
            self.schedule_at(at, SimEvent::Packet(Packet::Duplicate { data }));
        }
    }

    fn send_response(&mut self, conn: u64, data: &[u8]) {
        if data.starts_with(b"HTTP/1.1 500") {
            self.count_fault("daemon: answers that something went wrong inside");
        }
        let (_, random, odds) = self.draw_packet_faults();
        let Some(there) = self.daemon_network.conns.get(&conn) else {
            return;
        };
        // The network device that repeated the request does not read the response.
        if there.is_duplicate {
            return self.reset_connection(conn, SimSide::Daemon, MS);
        }
        if there.drops_responses {
            return;
        }
        let mut travel = travel_time(&random);
        match self.partition_effect(conn, &random) {
            PartitionEffect::Open => {}
            PartitionEffect::Late(by) => travel = by,
            PartitionEffect::Lost => return,
            PartitionEffect::Refused => return self.reset_connection(conn, SimSide::Daemon, travel),
        }
        if random.chance(odds.slow / 2) {
            self.count_fault("network: an answer is late");
            travel = late_delay(&random);
        }
        self.send_bytes(conn, SimSide::Client, travel, data.to_vec());
    }

    /// What a partition does to a message of this connection.
    fn partition_effect(&mut self, conn: u64, random: &SimRandom) -> PartitionEffect {
        let slot = self.daemon_network.conns.get(&conn).map(|conn| conn.client.slot);
        let Some(host) = slot.and_then(|slot| self.hosts.get(slot)) else {
            return PartitionEffect::Open;
        };
        let ends = host.partition_until.saturating_sub(self.now);
        match host.partition {
            None => PartitionEffect::Open,
            Some(false) => {
                self.count_fault("network: a partition refuses a message");
                PartitionEffect::Refused
            }
            // A silent partition may end before both systems give up. Then the message arrives late.
            Some(true) if random.chance(500) => {
                self.count_fault("network: a partition holds a message back");
                PartitionEffect::Late((ends + random.between(MS, SEC)).min(MAX_PACKET_DELAY))
            }
            Some(true) => {
                self.count_fault("network: a partition swallows a message");
                self.blackhole(conn);
                PartitionEffect::Lost
            }
        }
    }

    fn blackhole(&mut self, conn: u64) {
        if let Some(conn) = self.daemon_network.conns.get_mut(&conn) {
            conn.blackholed = true;
        }
    }

    /// Silences every connection of a process whose machine has vanished.
    pub(super) fn blackhole_all(&mut self, slot: usize) {
        for conn in self.daemon_network.conns.values_mut() {
            conn.blackholed |= conn.daemon.slot == slot || conn.client.slot == slot;
        }
    }

    /// Sends bytes; returns when they arrive.
    pub(super) fn send_bytes(&mut self, conn: u64, to: SimSide, travel: Nanos, data: Vec<u8>) -> Nanos {
        let now = self.now;
        let Some(end) = self.daemon_network.conns.get_mut(&conn).map(|conn| conn.endpoint(to)) else {
            return now;
        };
        // A connection keeps its order: later bytes never overtake earlier ones.
        let at = (now + travel).max(end.last_arrival);
        end.last_arrival = at;
        let slot = end.slot;
        let packet = Packet::Bytes { slot, conn, side: to, data };
        self.schedule_at(at, SimEvent::Packet(packet));
        at
    }

    /// Tells this side that the connection was reset.
    pub(super) fn reset_connection(&mut self, conn: u64, side: SimSide, by: Nanos) {
        let Some(slot) = self.daemon_network.conns.get_mut(&conn).map(|conn| conn.endpoint(side).slot) else {
            return;
        };
        let over = SimConnectionEnd::Reset;
        let packet = Packet::Closed { slot, conn, side, over };
        self.schedule_after(by, SimEvent::Packet(packet));
    }
}

enum PartitionEffect {
    Open,
    Late(Nanos),
    Lost,
    Refused,
}

fn travel_time(random: &SimRandom) -> Nanos {
    random.between(MS / 10, MAX_TRAVEL_TIME)
}

fn late_delay(random: &SimRandom) -> Nanos {
    if random.chance(300) { random.between(0, MAX_PACKET_DELAY) } else { random.between(10 * MS, 1_500 * MS) }
}
