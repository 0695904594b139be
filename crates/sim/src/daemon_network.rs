//! Connections between clients and daemon: received bytes, pending accepts and how they end.
//!
//! The faults on the way are in [`daemon_network_faults`](super::daemon_network_faults).

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::task::Waker;

use tokio::sync::oneshot;

use super::drift::{MS, Nanos, SEC};
use super::world::{SimEvent, WorldState};

/// The longest delay of any message; as on the store's network.
pub(super) const MAX_PACKET_DELAY: Nanos = 30 * SEC;
/// The longest travel time of a message without a fault.
pub(super) const MAX_TRAVEL_TIME: Nanos = 3 * MS;

/// An end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SimSide {
    Client,
    Daemon,
}

impl SimSide {
    fn other(self) -> Self {
        match self {
            Self::Client => Self::Daemon,
            Self::Daemon => Self::Client,
        }
    }
}

/// How a connection ended for one side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SimConnectionEnd {
    // The other side closed it.
    Closed,
    // The network reset it.
    Reset,
}

/// Receives the result of opening a connection.
pub(super) type ConnectReply = oneshot::Sender<io::Result<u64>>;

/// Something that travels between clients and daemon.
#[derive(Debug)]
pub(super) enum Packet {
    /// A client opens a connection.
    Connect { slot: usize, life: u32, back: Nanos, to: ConnectReply },
    /// The client learns whether it is open.
    Connected { slot: usize, life: u32, to: ConnectReply, opened: io::Result<u64> },
    /// The daemon can accept a connection.
    Incoming { slot: usize, life: u32, conn: u64 },
    /// Bytes arrive.
    Bytes { slot: usize, conn: u64, side: SimSide, data: Vec<u8> },
    /// The end of a connection arrives.
    Closed { slot: usize, conn: u64, side: SimSide, over: SimConnectionEnd },
    /// A network device sends a request again, on its own connection whose response it does not read.
    Duplicate { data: Vec<u8> },
}

impl Packet {
    /// The process that receives it.
    pub(super) fn process_slot(&self) -> Option<usize> {
        match self {
            Self::Connected { slot, .. }
            | Self::Incoming { slot, .. }
            | Self::Bytes { slot, .. }
            | Self::Closed { slot, .. } => Some(*slot),
            // The daemon's system opens connections, even while the daemon is paused.
            Self::Connect { .. } | Self::Duplicate { .. } => None,
        }
    }
}

/// What the simulation has to wake after a packet.
#[derive(Debug)]
pub(super) enum WakeTarget {
    Nothing,
    Task { slot: usize, waker: Option<Waker> },
    Connected { slot: usize, life: u32, to: ConnectReply, opened: io::Result<u64> },
}

/// One side of a connection.
#[derive(Debug, Default)]
pub(super) struct SimEndpoint {
    pub(super) slot: usize,
    inbox: VecDeque<u8>,
    ended: Option<SimConnectionEnd>,
    waker: Option<Waker>,
    // Arrival of the latest bytes; later ones do not arrive before.
    pub(super) last_arrival: Nanos,
    // This side was closed and reads no more.
    closed: bool,
}

impl SimEndpoint {
    /// Delivers something, unless this side is closed.
    fn receive_if_open(&mut self, slot: usize, what: impl FnOnce(&mut Self)) -> WakeTarget {
        if self.closed {
            return WakeTarget::Nothing;
        }
        what(self);
        let waker = self.waker.take();
        WakeTarget::Task { slot, waker }
    }
}

#[derive(Debug, Default)]
pub(super) struct SimConnection {
    pub(super) client: SimEndpoint,
    pub(super) daemon: SimEndpoint,
    // The life of the daemon that accepted it.
    pub(super) life: u32,
    // A repeated request's connection: the client end does not exist.
    pub(super) is_duplicate: bool,
    // Nothing arrives any more, and neither side learns of it.
    pub(super) blackholed: bool,
    // Responses of the daemon are dropped.
    pub(super) drops_responses: bool,
}

impl SimConnection {
    pub(super) fn endpoint(&mut self, side: SimSide) -> &mut SimEndpoint {
        match side {
            SimSide::Client => &mut self.client,
            SimSide::Daemon => &mut self.daemon,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct DaemonNetwork {
    pub(super) conns: BTreeMap<u64, SimConnection>,
    next: u64,
    // Number of messages so far.
    pub(super) sent: u64,
    // Connections that the daemon has not accepted yet.
    accept_queue: VecDeque<u64>,
    acceptor: Option<Waker>,
    // Numbers of the messages that met a fault.
    pub(super) faulted: Vec<u64>,
    // Requests that arrived twice. The daemon's own requests for them look like any others.
    pub(super) repeated: Vec<Vec<u8>>,
    // Requests that arrived after their client had closed the connection: it had given up on them.
    pub(super) late: Vec<Vec<u8>>,
}

impl WorldState {
    /// Closes one side. Returns a waker that must be dropped outside the lock.
    pub(super) fn close_end(&mut self, conn: u64, side: SimSide) -> Option<Waker> {
        let now = self.now;
        let there = self.daemon_network.conns.get_mut(&conn)?;
        let mine = there.endpoint(side);
        if mine.closed {
            return None;
        }
        mine.closed = true;
        let waker = mine.waker.take();
        let swallowed = there.blackholed;
        let other = there.endpoint(side.other());
        // The close must not overtake bytes that are under way.
        let (slot, at) = (other.slot, (now + MAX_TRAVEL_TIME).max(other.last_arrival));
        if other.closed {
            self.daemon_network.conns.remove(&conn);
        } else if !swallowed {
            let (side, over) = (side.other(), SimConnectionEnd::Closed);
            let packet = Packet::Closed { slot, conn, side, over };
            self.schedule_at(at, SimEvent::Packet(packet));
        }
        waker
    }

    /// Closes all connections of a dead process. The wakers must be dropped outside the lock.
    pub(super) fn close_all_of(&mut self, slot: usize) -> Vec<Waker> {
        let side = if self.plan.daemon_slot() == Some(slot) { SimSide::Daemon } else { SimSide::Client };
        // In the order of their numbers. The order in which a runtime drops its tasks depends on earlier
        // runs on this thread, and would make histories of one seed differ.
        let mine = self.daemon_network.conns.iter_mut();
        let mine = mine.filter_map(|(conn, there)| (there.endpoint(side).slot == slot).then_some(*conn));
        let mine: Vec<_> = mine.collect();
        mine.into_iter().filter_map(|conn| self.close_end(conn, side)).collect()
    }

    /// Delivers a packet. The returned wake-up happens outside the lock.
    pub(super) fn deliver_packet(&mut self, packet: Packet) -> WakeTarget {
        match packet {
            Packet::Connect { slot, life, back, to } => {
                let opened = match self.open_connection(slot, false) {
                    Some(conn) => Ok(conn),
                    None => Err(io::ErrorKind::ConnectionRefused.into()),
                };
                let packet = Packet::Connected { slot, life, to, opened };
                self.schedule_after(back, SimEvent::Packet(packet));
                WakeTarget::Nothing
            }
            Packet::Connected { slot, life, to, opened } => WakeTarget::Connected { slot, life, to, opened },
            Packet::Incoming { slot, life, conn } => {
                let there = self.hosts.get(slot);
                if !there.is_some_and(|host| host.alive && host.life == life) {
                    self.reset_connection(conn, SimSide::Client, MS);
                    return WakeTarget::Nothing;
                }
                self.daemon_network.accept_queue.push_back(conn);
                let waker = self.daemon_network.acceptor.take();
                WakeTarget::Task { slot, waker }
            }
            Packet::Bytes { slot, conn, side, data } => match self.daemon_network.conns.get_mut(&conn) {
                Some(there) if !there.blackholed => {
                    if side == SimSide::Daemon && there.client.closed && !there.is_duplicate {
                        self.daemon_network.late.push(data.clone());
                    }
                    there.endpoint(side).receive_if_open(slot, |end| end.inbox.extend(data))
                }
                _ => WakeTarget::Nothing,
            },
            Packet::Closed { slot, conn, side, over } => match self.daemon_network.conns.get_mut(&conn) {
                Some(there) => there.endpoint(side).receive_if_open(slot, |end| {
                    // As in TCP, a reset discards what was received and not yet read.
                    if over == SimConnectionEnd::Reset {
                        end.inbox.clear();
                    }
                    end.ended = end.ended.or(Some(over));
                }),
                None => WakeTarget::Nothing,
            },
            Packet::Duplicate { data } => {
                if let Some(conn) = self.open_connection(usize::MAX, true) {
                    self.send_bytes(conn, SimSide::Daemon, MAX_TRAVEL_TIME, data);
                    // The sender of the copy gives up too.
                    self.reset_connection(conn, SimSide::Daemon, MAX_PACKET_DELAY);
                }
                WakeTarget::Nothing
            }
        }
    }

    /// Opens a connection, if the daemon is up.
    fn open_connection(&mut self, client: usize, ghost: bool) -> Option<u64> {
        let slot = self.plan.clients;
        let host = self.hosts.get(slot).filter(|host| host.alive)?;
        let life = host.life;
        let conn = self.daemon_network.next;
        self.daemon_network.next += 1;
        let mut there = SimConnection { life, is_duplicate: ghost, ..SimConnection::default() };
        there.client.slot = client;
        there.client.closed = ghost;
        there.daemon.slot = slot;
        self.daemon_network.conns.insert(conn, there);
        self.schedule_after(0, SimEvent::Packet(Packet::Incoming { slot, life, conn }));
        Some(conn)
    }

    /// The next connection for the daemon. Otherwise stores the waker and returns the old one.
    pub(super) fn accept(&mut self, waker: &Waker) -> Result<u64, Option<Waker>> {
        match self.daemon_network.accept_queue.pop_front() {
            Some(conn) => Ok(conn),
            None => Err(self.daemon_network.acceptor.replace(waker.clone())),
        }
    }

    /// The daemon is gone: connections that it has not accepted are reset.
    pub(super) fn stop_listening(&mut self) -> Option<Waker> {
        let queue = std::mem::take(&mut self.daemon_network.accept_queue);
        for conn in queue {
            if let Some(conn) = self.daemon_network.conns.get_mut(&conn) {
                conn.daemon.closed = true;
            }
            self.reset_connection(conn, SimSide::Client, MS);
        }
        self.daemon_network.acceptor.take()
    }

    /// Reads what has arrived on this side; otherwise stores the waker.
    pub(super) fn receive(&mut self, conn: u64, side: SimSide, most: usize, waker: &Waker) -> ReadOutcome {
        let Some(there) = self.daemon_network.conns.get_mut(&conn) else {
            return ReadOutcome::Ended(SimConnectionEnd::Closed);
        };
        let end = there.endpoint(side);
        if !end.inbox.is_empty() {
            let some = most.min(end.inbox.len());
            return ReadOutcome::Bytes(end.inbox.drain(..some).collect());
        }
        match end.ended {
            Some(over) => ReadOutcome::Ended(over),
            None => ReadOutcome::Pending { _before: end.waker.replace(waker.clone()) },
        }
    }

    /// Whether the connection was reset for this side.
    pub(super) fn is_reset(&mut self, conn: u64, side: SimSide) -> bool {
        let there = self.daemon_network.conns.get_mut(&conn);
        there.is_none_or(|conn| conn.endpoint(side).ended == Some(SimConnectionEnd::Reset))
    }
}

/// The result of a read.
#[derive(Debug)]
pub(super) enum ReadOutcome {
    Bytes(Vec<u8>),
    Ended(SimConnectionEnd),
    /// With the replaced waker, which must be dropped outside the lock.
    Pending {
        _before: Option<Waker>,
    },
}
