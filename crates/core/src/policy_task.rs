//! The policy refresh task: ends overrides, reloads the policy file and evaluates escalation rules.
//!
//! There is one task per client. It only calls: `policy/` decides what changes, and `life/` decides
//! what a change means for a hold.

use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::client::ClientInner;
use crate::clock::Moment;
use crate::event::{Event, EventKind, EventSubject, Observer};
use crate::keeper::KeeperCommand;
use crate::policy::{Change, FileWatch, PolicyBook, Signal};

// `FileWatch::poll` and `PolicyBook::evaluate` both expect a call about once a second.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);

/// Counts events for the escalation rules.
#[derive(Debug)]
pub(crate) struct EscalationObserver(pub(crate) Arc<PolicyBook>);

impl Observer for EscalationObserver {
    fn on_event(&self, event: &Event) {
        let signal = match event.what {
            EventKind::FellBack { .. } => Signal::Fallback,
            EventKind::Duplicate | EventKind::FenceRefused { .. } | EventKind::OverlapConfirmed => {
                Signal::Duplicates
            }
            EventKind::Abandoned { .. } => Signal::Abandoned,
            EventKind::NotOwned { .. } => Signal::NotOwned,
            EventKind::Debt { .. } => Signal::ReleaseFailed,
            EventKind::Unavailable { .. } => Signal::Unavailable,
            _ => return,
        };
        self.0.count_signal(&event.class, signal, event.at);
    }
}

/// Starts the task. It ends with the client.
pub(crate) fn spawn(inner: &Arc<ClientInner>, file: Option<FileWatch>) {
    // A weak reference: the task must not keep a dropped client alive.
    tokio::spawn(run(Arc::downgrade(inner), file));
}

async fn run(client: Weak<ClientInner>, mut file: Option<FileWatch>) {
    let Some((clock, mut changes)) =
        client.upgrade().map(|inner| (Arc::clone(&inner.context.clock), inner.policies.changes()))
    else {
        return;
    };
    let mut handed_on = 0;
    loop {
        let next = match client.upgrade() {
            Some(inner) => next_refresh(&inner, file.is_some(), clock.now()),
            None => return,
        };
        tokio::select! {
            biased;
            changed = changes.changed() => if changed.is_err() { return },
            () = clock.sleep_until(next) => {}
        }
        let Some(inner) = client.upgrade() else { return };
        refresh(&inner, file.as_mut(), clock.now());
        // `refresh` itself may have changed policies; its change must not wake this loop again.
        changes.mark_unchanged();
        let version = inner.policies.version();
        if version != handed_on {
            handed_on = version;
            // Sent once per version: the keeper reads the classes in force itself.
            inner.keeper.send(KeeperCommand::PoliciesChanged);
        }
    }
}

// Without file and rules a minute is enough: overrides end by their timestamps for readers, and a
// dropped client is noticed within that time.
fn next_refresh(inner: &ClientInner, file: bool, now: Moment) -> Moment {
    let expiry = inner.policies.next_change(now).unwrap_or(Moment::FAR);
    if file || inner.policies.has_rules() {
        expiry.min(now + REFRESH_INTERVAL)
    } else {
        expiry.min(now + REFRESH_INTERVAL * 60)
    }
}

fn refresh(inner: &ClientInner, file: Option<&mut FileWatch>, now: Moment) {
    let mut changes = inner.policies.take_ended_changes(now);
    changes.extend(inner.policies.evaluate(now));
    match file.and_then(|file| file.poll(now)) {
        Some(Ok(reloaded)) => changes.extend(reloaded),
        Some(Err(problem)) => {
            let class = "policy".into();
            let subject = EventSubject { name: None, class: &class, fence: None, hold: 0, holder: None };
            inner.context.events.emit(&subject, EventKind::PolicyRefused { problem: problem.to_string() });
        }
        None => {}
    }
    changes.iter().for_each(|change| emit_change(inner, change));
}

/// Emits one event for a policy change.
pub(crate) fn emit_change(inner: &ClientInner, change: &Change) {
    let subject = EventSubject { name: None, class: &change.class, fence: None, hold: 0, holder: None };
    inner.context.events.emit(&subject, EventKind::PolicyChanged { change: change.to_string() });
}
