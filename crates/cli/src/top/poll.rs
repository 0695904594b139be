//! Looking at the store, on a thread of its own.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use leasehold::clock::{BootClock, Clock, ClockExt, Moment};
use leasehold::store::Lease;

use super::TopArgs;
use crate::args::Place;
use crate::desk::Desk;
use crate::events::{Follower, News, Told};

/// More locks than this nobody can look at.
pub(super) const LIMIT: usize = 2000;
/// Oftener than this nobody can see.
const SOONEST: Duration = Duration::from_millis(100);

/// One look.
#[derive(Debug)]
pub(super) struct Look {
    /// When the store was asked.
    pub(super) sent: Moment,
    /// When it answered.
    pub(super) at: Moment,
    /// What was seen, and whether there was more; or why nothing was.
    pub(super) seen: Result<(Vec<Lease>, bool), String>,
}

/// Looks again and again until nobody takes what it saw.
#[derive(Debug)]
pub(super) struct Poller {
    looks: Receiver<Look>,
    /// What a daemon tells; nothing comes from a plain store.
    told: Option<Receiver<Told>>,
}

impl Poller {
    /// Looks once, so that an error shows at once, and then goes on.
    pub(super) fn start(place: &Place, args: &TopArgs) -> anyhow::Result<Self> {
        let desk = Desk::open(place)?;
        let (prefix, every) = (args.prefix.clone(), args.every.max(SOONEST));
        desk.list(&prefix, 1)?;
        let (sender, looks) = sync_channel(4);
        std::thread::Builder::new()
            .name("top-poll".into())
            .spawn(move || poll(&desk, &prefix, every, &sender))?;
        Ok(Self {
            looks,
            told: follow(place, args)?,
        })
    }

    /// A daemon tells what happens.
    pub(super) fn is_told(&self) -> bool {
        self.told.is_some()
    }

    /// What a daemon told meanwhile, if anything.
    pub(super) fn heard(&self) -> Option<Told> {
        self.told.as_ref()?.try_recv().ok()
    }

    /// What was seen meanwhile, if anything.
    pub(super) fn next(&self) -> Option<Look> {
        self.looks.try_recv().ok()
    }
}

/// Follows a daemon's events on another thread.
fn follow(place: &Place, args: &TopArgs) -> anyhow::Result<Option<Receiver<Told>>> {
    let desk = Desk::open(place)?;
    let Some(mut follower) = Follower::of(&desk.url, &args.prefix)? else {
        return Ok(None);
    };
    desk.ask(follower.begin())?;
    let (sender, told) = sync_channel(64);
    std::thread::Builder::new()
        .name("top-follow".into())
        .spawn(move || {
            loop {
                // That it is not heard shows in the looks at it.
                if let News::Told(told) = desk.wait(follower.next())
                    && sender.send(told).is_err()
                {
                    return;
                }
            }
        })?;
    Ok(Some(told))
}

fn poll(desk: &Desk, prefix: &str, every: Duration, sender: &SyncSender<Look>) {
    loop {
        let sent = BootClock.now();
        let listing = desk.ask(desk.store.list(prefix, LIMIT, desk.within));
        let look = Look {
            sent,
            at: BootClock.now(),
            seen: listing
                .map(|listing| (listing.leases, listing.truncated))
                .map_err(|error| format!("{error:#}")),
        };
        if sender.send(look).is_err() {
            return;
        }
        desk.wait(BootClock.sleep(every));
    }
}
