//! Polls the store, and follows a daemon's events, on threads of their own.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use leasehold::clock::{BootClock, Clock, ClockExt, Moment};
use leasehold::store::Lease;

use super::TopArgs;
use crate::config::Settings;
use crate::events::{DaemonEvent, EventFollower, StreamItem};
use crate::session::StoreSession;

/// The most locks that `top` lists.
pub(super) const MAX_LISTED_LOCKS: usize = 2000;
// The shortest poll interval: faster changes are not visible, but would load the store.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The result of one poll.
#[derive(Debug)]
pub(super) struct PollResult {
    pub(super) sent: Moment,
    pub(super) answered: Moment,
    /// The leases and whether there are more, or the error text.
    pub(super) listing: Result<(Vec<Lease>, bool), String>,
}

/// Polls until the receiver is dropped.
#[derive(Debug)]
pub(super) struct Poller {
    results: Receiver<PollResult>,
    /// Events of a daemon; `None` for a plain store.
    events: Option<Receiver<DaemonEvent>>,
}

impl Poller {
    /// Polls once, so that an error is reported at once, then starts the threads.
    pub(super) fn start(settings: &Settings, args: &TopArgs) -> anyhow::Result<Self> {
        let session = StoreSession::open(settings)?;
        let (prefix, every) = (args.prefix.clone(), args.every.max(MIN_POLL_INTERVAL));
        session.list(&prefix, 1)?;
        // Bounded: while the terminal is blocked, the thread waits instead of piling up listings.
        let (sender, looks) = sync_channel(4);
        std::thread::Builder::new()
            .name("top-poll".into())
            .spawn(move || poll_loop(&session, &prefix, every, &sender))?;
        Ok(Self { results: looks, events: follow_events(settings, args)? })
    }

    pub(super) fn has_daemon_events(&self) -> bool {
        self.events.is_some()
    }

    /// The next event of the daemon, without waiting.
    pub(super) fn next_event(&self) -> Option<DaemonEvent> {
        self.events.as_ref()?.try_recv().ok()
    }

    /// The next poll result, without waiting.
    pub(super) fn next(&self) -> Option<PollResult> {
        self.results.try_recv().ok()
    }
}

/// Follows a daemon's events on another thread; `None` for a plain store.
fn follow_events(settings: &Settings, args: &TopArgs) -> anyhow::Result<Option<Receiver<DaemonEvent>>> {
    let session = StoreSession::open(settings)?;
    let Some(mut follower) = EventFollower::open(&session.url, &args.prefix)? else {
        return Ok(None);
    };
    session.call(follower.connect())?;
    let (sender, told) = sync_channel(64);
    std::thread::Builder::new().name("top-follow".into()).spawn(move || {
        loop {
            // Lost connections are not shown here: the failing polls show them.
            if let StreamItem::Event(told) = session.block_on(follower.next())
                && sender.send(told).is_err()
            {
                return;
            }
        }
    })?;
    Ok(Some(told))
}

fn poll_loop(session: &StoreSession, prefix: &str, every: Duration, sender: &SyncSender<PollResult>) {
    loop {
        let sent = BootClock.now();
        let listing = session.call(session.store.list(prefix, MAX_LISTED_LOCKS, session.timeout));
        let look = PollResult {
            sent,
            answered: BootClock.now(),
            listing: listing
                .map(|listing| (listing.leases, listing.truncated))
                .map_err(|error| format!("{error:#}")),
        };
        if sender.send(look).is_err() {
            return;
        }
        session.block_on(BootClock.sleep(every));
    }
}
