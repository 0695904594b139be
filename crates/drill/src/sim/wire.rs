//! Connections between clients and daemon: what has arrived at each end, who is let in, how they end.
//!
//! What happens on the way is [`weather`](super::weather).

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::task::Waker;

use tokio::sync::oneshot;

use super::drift::{MS, Nanos, SEC};
use super::world::{Event, State};

/// The latest that any message arrives: see the store's network.
pub(super) const LATEST: Nanos = 30 * SEC;
/// The longest way of a message to which nothing happens.
pub(super) const WAY: Nanos = 3 * MS;

/// An end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Client,
    Daemon,
}

impl Side {
    fn other(self) -> Self {
        match self {
            Self::Client => Self::Daemon,
            Self::Daemon => Self::Client,
        }
    }
}

/// How a connection ended for one side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Over {
    /// The other side has closed it.
    Closed,
    /// It was cut.
    Reset,
}

/// Where an answer to a client that wants a connection goes.
pub(super) type Opening = oneshot::Sender<io::Result<u64>>;

/// What travels.
#[derive(Debug)]
pub(super) enum Packet {
    /// A client wants a connection.
    Knock {
        slot: usize,
        life: u32,
        back: Nanos,
        to: Opening,
    },
    /// The client hears whether it has one.
    Opened {
        slot: usize,
        life: u32,
        to: Opening,
        opened: io::Result<u64>,
    },
    /// The daemon can take a connection.
    Enter { slot: usize, life: u32, conn: u64 },
    /// Bytes arrive.
    Bytes {
        slot: usize,
        conn: u64,
        side: Side,
        data: Vec<u8>,
    },
    /// The end of a connection arrives.
    End {
        slot: usize,
        conn: u64,
        side: Side,
        over: Over,
    },
    /// Something on the way sends a request again, on a connection of its own whose answers nobody reads.
    Again { data: Vec<u8> },
}

impl Packet {
    /// The process in which it happens. A connection is opened by the system under the daemon, paused or not.
    pub(super) fn inside(&self) -> Option<usize> {
        match self {
            Self::Opened { slot, .. }
            | Self::Enter { slot, .. }
            | Self::Bytes { slot, .. }
            | Self::End { slot, .. } => Some(*slot),
            Self::Knock { .. } | Self::Again { .. } => None,
        }
    }
}

/// Who has something to do now.
#[derive(Debug)]
pub(super) enum Woken {
    Nobody,
    Task {
        slot: usize,
        waker: Option<Waker>,
    },
    Opened {
        slot: usize,
        life: u32,
        to: Opening,
        opened: io::Result<u64>,
    },
}

/// One side's view of a connection.
#[derive(Debug, Default)]
pub(super) struct End {
    pub(super) slot: usize,
    inbox: VecDeque<u8>,
    over: Option<Over>,
    waker: Option<Waker>,
    /// Nothing arrives before what was sent earlier.
    pub(super) last: Nanos,
    /// Nobody reads here any more.
    gone: bool,
}

impl End {
    /// Something arrives, if anyone still reads.
    fn hear(&mut self, slot: usize, what: impl FnOnce(&mut Self)) -> Woken {
        if self.gone {
            return Woken::Nobody;
        }
        what(self);
        let waker = self.waker.take();
        Woken::Task { slot, waker }
    }
}

#[derive(Debug, Default)]
pub(super) struct Conn {
    pub(super) client: End,
    pub(super) daemon: End,
    /// Which life of the daemon it leads to.
    pub(super) life: u32,
    /// Nobody reads the answers.
    pub(super) ghost: bool,
    /// Nothing arrives any more, and nobody is told.
    pub(super) swallowed: bool,
    /// What the daemon says does not arrive.
    pub(super) mute: bool,
}

impl Conn {
    pub(super) fn end(&mut self, side: Side) -> &mut End {
        match side {
            Side::Client => &mut self.client,
            Side::Daemon => &mut self.daemon,
        }
    }
}

/// All connections.
#[derive(Debug, Default)]
pub(super) struct Wire {
    pub(super) conns: BTreeMap<u64, Conn>,
    next: u64,
    /// Messages so far.
    pub(super) sent: u64,
    /// Connections that the daemon has not taken yet.
    queue: VecDeque<u64>,
    acceptor: Option<Waker>,
    /// Messages that met a fault, by number.
    pub(super) struck: Vec<u64>,
    /// A request arrived twice. What the daemon asked its store for on its behalf cannot be told apart.
    pub(super) repeated: bool,
}

impl State {
    /// This side is done with the connection; answers with a waker to be dropped outside the lock.
    pub(super) fn hang_up(&mut self, conn: u64, side: Side) -> Option<Waker> {
        let now = self.now;
        let there = self.wire.conns.get_mut(&conn)?;
        let mine = there.end(side);
        if mine.gone {
            return None;
        }
        mine.gone = true;
        let waker = mine.waker.take();
        let swallowed = there.swallowed;
        let other = there.end(side.other());
        let (slot, at) = (other.slot, (now + WAY).max(other.last));
        if other.gone {
            self.wire.conns.remove(&conn);
        } else if !swallowed {
            let (side, over) = (side.other(), Over::Closed);
            let packet = Packet::End {
                slot,
                conn,
                side,
                over,
            };
            self.at(at, Event::Wire(packet));
        }
        waker
    }

    /// A process is gone, and the system closes its connections, one after the other: in which order its runtime drops them
    /// depends on what else this thread has run. Wakers are to be dropped outside the lock.
    pub(super) fn hang_up_all(&mut self, slot: usize) -> Vec<Waker> {
        let side = if self.plan.daemon_slot() == Some(slot) {
            Side::Daemon
        } else {
            Side::Client
        };
        let mine = self.wire.conns.iter_mut();
        let mine = mine.filter_map(|(conn, there)| (there.end(side).slot == slot).then_some(*conn));
        let mine: Vec<_> = mine.collect();
        mine.into_iter()
            .filter_map(|conn| self.hang_up(conn, side))
            .collect()
    }

    /// A packet arrives. What is handed back happens outside the lock.
    pub(super) fn packet(&mut self, packet: Packet) -> Woken {
        match packet {
            Packet::Knock { slot, life, back, to } => {
                let opened = match self.enter(slot, false) {
                    Some(conn) => Ok(conn),
                    None => Err(io::ErrorKind::ConnectionRefused.into()),
                };
                let packet = Packet::Opened {
                    slot,
                    life,
                    to,
                    opened,
                };
                self.after(back, Event::Wire(packet));
                Woken::Nobody
            }
            Packet::Opened {
                slot,
                life,
                to,
                opened,
            } => Woken::Opened {
                slot,
                life,
                to,
                opened,
            },
            Packet::Enter { slot, life, conn } => {
                let there = self.hosts.get(slot);
                if !there.is_some_and(|host| host.alive && host.life == life) {
                    self.cut(conn, Side::Client, MS);
                    return Woken::Nobody;
                }
                self.wire.queue.push_back(conn);
                let waker = self.wire.acceptor.take();
                Woken::Task { slot, waker }
            }
            Packet::Bytes {
                slot,
                conn,
                side,
                data,
            } => match self.wire.conns.get_mut(&conn) {
                Some(there) if !there.swallowed => there.end(side).hear(slot, |end| end.inbox.extend(data)),
                _ => Woken::Nobody,
            },
            Packet::End {
                slot,
                conn,
                side,
                over,
            } => match self.wire.conns.get_mut(&conn) {
                Some(there) => there.end(side).hear(slot, |end| {
                    if over == Over::Reset {
                        end.inbox.clear();
                    }
                    end.over = end.over.or(Some(over));
                }),
                None => Woken::Nobody,
            },
            Packet::Again { data } => {
                if let Some(conn) = self.enter(usize::MAX, true) {
                    self.carry(conn, Side::Daemon, WAY, data);
                    // It does not wait for ever either.
                    self.cut(conn, Side::Daemon, LATEST);
                }
                Woken::Nobody
            }
        }
    }

    /// A new connection, if the daemon is there.
    fn enter(&mut self, client: usize, ghost: bool) -> Option<u64> {
        let slot = self.plan.clients;
        let host = self.hosts.get(slot).filter(|host| host.alive)?;
        let life = host.life;
        let conn = self.wire.next;
        self.wire.next += 1;
        let mut there = Conn {
            life,
            ghost,
            ..Conn::default()
        };
        there.client.slot = client;
        there.client.gone = ghost;
        there.daemon.slot = slot;
        self.wire.conns.insert(conn, there);
        self.after(0, Event::Wire(Packet::Enter { slot, life, conn }));
        Some(conn)
    }

    /// The next connection for the daemon, or where to leave the waker: the old one is handed back.
    pub(super) fn accept(&mut self, waker: &Waker) -> Result<u64, Option<Waker>> {
        match self.wire.queue.pop_front() {
            Some(conn) => Ok(conn),
            None => Err(self.wire.acceptor.replace(waker.clone())),
        }
    }

    /// The daemon is gone: those who were about to be let in are not.
    pub(super) fn shut(&mut self) -> Option<Waker> {
        let queue = std::mem::take(&mut self.wire.queue);
        for conn in queue {
            if let Some(conn) = self.wire.conns.get_mut(&conn) {
                conn.daemon.gone = true;
            }
            self.cut(conn, Side::Client, MS);
        }
        self.wire.acceptor.take()
    }

    /// What has come for this side: bytes into `room`, or that nothing more comes; else where to leave the waker.
    pub(super) fn receive(&mut self, conn: u64, side: Side, most: usize, waker: &Waker) -> Received {
        let Some(there) = self.wire.conns.get_mut(&conn) else {
            return Received::Over(Over::Closed);
        };
        let end = there.end(side);
        if !end.inbox.is_empty() {
            let some = most.min(end.inbox.len());
            return Received::Bytes(end.inbox.drain(..some).collect());
        }
        match end.over {
            Some(over) => Received::Over(over),
            None => Received::Nothing {
                _before: end.waker.replace(waker.clone()),
            },
        }
    }

    /// This side's connection has been cut.
    pub(super) fn is_cut(&mut self, conn: u64, side: Side) -> bool {
        let there = self.wire.conns.get_mut(&conn);
        there.is_none_or(|conn| conn.end(side).over == Some(Over::Reset))
    }
}

/// What one side finds when it reads.
#[derive(Debug)]
pub(super) enum Received {
    Bytes(Vec<u8>),
    Over(Over),
    /// Nothing yet; with the waker that was there before, to be dropped outside the lock.
    Nothing {
        _before: Option<Waker>,
    },
}
