//! Acquires the lock for `run` and `elect`, with a notice for people while they wait.

use std::io::IsTerminal;
use std::time::Duration;

use leasehold::clock::{BootClock, ClockExt};
use leasehold::policy::duration::human;
use leasehold::{Acquired, Busy, ClassLocks, Error, Hold, Locks, Name};
use rustix::process::Signal;

use super::event_printer::EventPrinter;
use super::signals::Signals;
use crate::lease::short_duration;
use crate::message::{print_message, show_command};

// Shorter waits are not announced: the line would be noise.
const WAIT_NOTICE_DELAY: Duration = Duration::from_millis(500);

pub(crate) enum HoldOutcome {
    Held(Hold),
    Busy(Busy),
    Failed(Error),
    /// A signal asked leasehold to end before the acquire was over.
    Interrupted(Signal),
}

/// Acquires the lock. A signal that asks leasehold to end cancels the request.
pub(crate) async fn acquire(
    locks: &Locks,
    class_locks: &ClassLocks,
    name: &Name,
    signals: &mut Signals,
    printer: &mut EventPrinter,
) -> HoldOutcome {
    // Dropping the acquire future cancels it; the client then undoes what the store may have granted.
    let acquire = class_locks.acquire(name);
    let result = tokio::select! {
        biased;
        result = acquire => result,
        signal = signals.next_ending() => return HoldOutcome::Interrupted(signal),
        never = announce_waiting(locks, name) => match never {},
    };
    printer.print_pending();
    match result {
        Ok(Acquired::Held(hold)) => HoldOutcome::Held(hold),
        Ok(Acquired::Busy(busy)) => HoldOutcome::Busy(busy),
        Err(error) => HoldOutcome::Failed(error),
    }
}

/// Prints one line about the current holder if standard error is a terminal. Never returns.
async fn announce_waiting(locks: &Locks, name: &Name) -> std::convert::Infallible {
    BootClock.sleep(WAIT_NOTICE_DELAY).await;
    if std::io::stderr().is_terminal()
        && let Ok(found) = locks.store().inspect(name, WAIT_NOTICE_DELAY).await
        && let Some(lease) = found.into_first()
    {
        let age = lease.age.map_or_else(String::new, |age| format!(" for {}", short_duration(age)));
        print_message(&format!("waiting for {name}, held by {}{age}", lease.holder));
    }
    std::future::pending().await
}

/// The message for a busy lock.
pub(crate) fn busy_message(busy: &Busy) -> String {
    let waited = if busy.waited < Duration::from_millis(10) {
        "without waiting".to_owned()
    } else {
        format!("after waiting {}", short_duration(busy.waited))
    };
    format!(
        "{busy}; gave up {waited}, the command did not run\n\
         wait longer with -w, or see `{}`",
        show_command(busy.name.as_str())
    )
}

/// The error for an acquire without a result.
pub(crate) fn acquire_error(error: &Error, store: String) -> anyhow::Error {
    match error {
        Error::Unavailable { name, class, cause, message, retry_after, .. } => anyhow::anyhow!(
            "cannot lock {name}: {store} is unavailable ({cause}: {message})\n\
             class {class} is fail-closed, so the command did not run\n\
             check the store and the network (leasehold doctor) and try again after {}",
            human(*retry_after)
        ),
        other => anyhow::anyhow!("{other}"),
    }
}
