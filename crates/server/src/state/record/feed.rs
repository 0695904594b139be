//! The most recent events in a bounded ring, with a wake-up for event streams.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use leasehold::Name;
use leasehold::event::Event;
use tokio::sync::watch;

use super::EventView;

/// One event, encoded for sending.
#[derive(Debug)]
pub(crate) struct FeedEvent {
    seq: u64,
    /// The lock's name; `None` for policy events, which every caller may read without the reason.
    pub(crate) name: Option<Name>,
    pub(crate) label: &'static str,
    /// The event as JSON, encoded once for all streams.
    json: String,
    /// The same without an operator's reason, for callers that may not read everything.
    json_without_reason: Option<String>,
    pub(crate) id: String,
}

/// The ring of recent events.
#[derive(Debug)]
pub(crate) struct Feed {
    /// Identifies this run of the daemon; event ids of another run cannot be resumed.
    epoch: String,
    limit: usize,
    ring: Mutex<VecDeque<Arc<FeedEvent>>>,
    /// The sequence number of the newest event.
    newest: watch::Sender<u64>,
}

/// Some events before the requested position are no longer kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EventsMissed;

impl Feed {
    pub(crate) fn new(epoch: u64, limit: usize) -> Self {
        Self {
            epoch: format!("{epoch:016x}"),
            limit: limit.max(1),
            ring: Mutex::default(),
            newest: watch::Sender::new(0),
        }
    }

    pub(crate) fn on(&self, event: &Event) {
        let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        let seq = *self.newest.borrow() + 1;
        let id = self.id(seq);
        let view = EventView::of(event, id.clone());
        if ring.len() == self.limit {
            ring.pop_front();
        }
        ring.push_back(Arc::new(FeedEvent {
            seq,
            name: event.name.clone(),
            label: event.what.label(),
            json: encode(&view),
            json_without_reason: view.without_reason(&event.what).as_ref().map(encode),
            id,
        }));
        // Sent while the ring is locked, so that sequence numbers follow the ring's order.
        self.newest.send_replace(seq);
    }

    /// A receiver that changes when a new event arrives.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }

    /// The sequence number of the newest event.
    pub(crate) fn newest(&self) -> u64 {
        *self.newest.borrow()
    }

    fn id(&self, seq: u64) -> String {
        format!("{}-{seq}", self.epoch)
    }

    /// The sequence number of an event id.
    ///
    /// # Errors
    /// The id is from another run of the daemon, or is not an event id.
    pub(crate) fn parse_event_id(&self, id: &str) -> Result<u64, EventsMissed> {
        let (epoch, seq) = id.split_once('-').ok_or(EventsMissed)?;
        let seq = seq.parse().map_err(|_| EventsMissed)?;
        if epoch == self.epoch && seq <= self.newest() { Ok(seq) } else { Err(EventsMissed) }
    }

    /// Up to `most` events after `seq`, and whether some before them are no longer kept.
    pub(crate) fn after(&self, seq: u64, most: usize) -> (Vec<Arc<FeedEvent>>, Option<EventsMissed>) {
        let ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(oldest) = ring.front().map(|entry| entry.seq) else {
            return (Vec::new(), None);
        };
        let missed = (seq + 1 < oldest).then_some(EventsMissed);
        let skip = usize::try_from((seq + 1).saturating_sub(oldest)).unwrap_or(usize::MAX);
        let found = ring.iter().skip(skip).take(most).cloned().collect();
        (found, missed)
    }
}

fn encode(view: &EventView) -> String {
    serde_json::to_string(view).unwrap_or_default()
}

impl FeedEvent {
    pub(crate) fn seq(&self) -> u64 {
        self.seq
    }

    /// The event as JSON for a caller that sees the reasons of policy changes, or does not.
    pub(crate) fn json(&self, sees_reasons: bool) -> &str {
        match &self.json_without_reason {
            Some(json) if !sees_reasons => json,
            _ => &self.json,
        }
    }
}

#[cfg(test)]
mod tests {
    use leasehold::Holder;
    use leasehold::clock::{BootClock, Clock as _};
    use leasehold::event::EventKind;

    use super::*;

    /// The problems of a refused file quote it, and a reason is free text of an operator.
    #[test]
    fn finding_11_texts_of_policy_events_are_for_readers_of_everything() {
        let feed = Feed::new(1, 8);
        let kinds = [
            (EventKind::PolicyRefused { problem: "line 3: secret".into() }, None),
            (
                EventKind::PolicyChanged { change: "class.a.ttl: 1s -> 2s (set: root: secret)".into() },
                Some("class.a.ttl: 1s -> 2s (set)"),
            ),
            (
                EventKind::PolicyChanged { change: "class.b (added: /srv/secret)".into() },
                Some("class.b (added)"),
            ),
        ];
        for (what, public) in kinds {
            let (at, wall) = (BootClock.now(), BootClock.wall());
            let (class, holder) = ("a".into(), Holder::new("host:1").unwrap());
            feed.on(&Event { seq: 0, at, wall, name: None, class, holder, fence: None, hold: 0, what });
            let (events, _) = feed.after(feed.newest() - 1, 1);
            assert!(events[0].json(true).contains("secret"), "{}", events[0].json(true));
            let shown: EventView = serde_json::from_str(events[0].json(false)).unwrap();
            assert_eq!(shown.detail.get("change").and_then(|text| text.as_str()), public, "{shown:?}");
            assert!(!events[0].json(false).contains("secret"), "{}", events[0].json(false));
        }
    }
}
