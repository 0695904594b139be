//! Keeps the policies up to date: overrides that expire, a file that changes, rules that escalate.
//!
//! One task per client. It only carries: what changes is decided in `policy/`, what a change means for a hold in `life/`.

use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::client::Inner;
use crate::clock::Moment;
use crate::event::{Event, Observer, Subject, What};
use crate::keeper::Command;
use crate::policy::{Change, FileWatch, PolicyBook, Signal};

/// How often the file is looked at and the rules are judged.
const LOOK: Duration = Duration::from_secs(1);

/// Feeds the stream to the escalation rules.
#[derive(Debug)]
pub(crate) struct Signals(pub(crate) Arc<PolicyBook>);

impl Observer for Signals {
    fn on(&self, event: &Event) {
        let signal = match event.what {
            What::FellBack { .. } => Signal::Fallback,
            What::Duplicate | What::FenceRefused { .. } | What::OverlapConfirmed => Signal::Duplicates,
            What::Abandoned { .. } => Signal::Abandoned,
            What::NotOwned { .. } => Signal::NotOwned,
            What::Debt { .. } => Signal::ReleaseFailed,
            What::Unavailable { .. } => Signal::Unavailable,
            _ => return,
        };
        self.0.count(&event.class, signal, event.at);
    }
}

/// Starts the task; it ends with the client.
pub(crate) fn spawn(inner: &Arc<Inner>, file: Option<FileWatch>) {
    tokio::spawn(run(Arc::downgrade(inner), file));
}

async fn run(client: Weak<Inner>, mut file: Option<FileWatch>) {
    let Some((clock, mut changes)) = client
        .upgrade()
        .map(|inner| (Arc::clone(&inner.tools.clock), inner.book.changes()))
    else {
        return;
    };
    let mut handed_on = 0;
    loop {
        let next = match client.upgrade() {
            Some(inner) => next_look(&inner, file.is_some(), clock.now()),
            None => return,
        };
        tokio::select! {
            biased;
            changed = changes.changed() => if changed.is_err() { return },
            () = clock.sleep_until(next) => {}
        }
        let Some(inner) = client.upgrade() else { return };
        look(&inner, file.as_mut(), clock.now());
        changes.mark_unchanged();
        let version = inner.book.version();
        if version != handed_on {
            handed_on = version;
            inner.keeper.send(Command::Policies);
        }
    }
}

/// When there is something to do by time alone. A client that is gone is noticed within one look, too.
fn next_look(inner: &Inner, file: bool, now: Moment) -> Moment {
    let expiry = inner.book.next_change(now).unwrap_or(Moment::FAR);
    if file || inner.book.has_rules() {
        expiry.min(now + LOOK)
    } else {
        expiry.min(now + LOOK * 60)
    }
}

fn look(inner: &Inner, file: Option<&mut FileWatch>, now: Moment) {
    let mut changes = inner.book.expire(now);
    changes.extend(inner.book.evaluate(now));
    match file.and_then(|file| file.check(now)) {
        Some(Ok(reloaded)) => changes.extend(reloaded),
        Some(Err(problem)) => {
            let class = "policy".into();
            let subject = Subject {
                name: None,
                class: &class,
                fence: None,
                hold: 0,
                holder: None,
            };
            inner.tools.events.emit(
                &subject,
                What::PolicyRefused {
                    problem: problem.to_string(),
                },
            );
        }
        None => {}
    }
    changes.iter().for_each(|change| tell(inner, change));
}

/// Every change is an event.
pub(crate) fn tell(inner: &Inner, change: &Change) {
    let subject = Subject {
        name: None,
        class: &change.class,
        fence: None,
        hold: 0,
        holder: None,
    };
    inner.tools.events.emit(
        &subject,
        What::PolicyChanged {
            change: change.to_string(),
        },
    );
}
