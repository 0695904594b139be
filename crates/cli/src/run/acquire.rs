//! Getting the lock, with what people want to know while they wait.

use std::io::IsTerminal;
use std::time::Duration;

use leasehold::clock::{BootClock, ClockExt};
use leasehold::policy::duration::human;
use leasehold::{Acquired, Busy, ClassLocks, Error, Hold, Locks, Name};
use rustix::process::Signal;

use super::signals::Signals;
use super::talk::Talk;
use crate::lease::short;
use crate::say::say;

/// Waiting shorter than this is not worth a word.
const NOTICEABLE: Duration = Duration::from_millis(500);

/// How it went.
pub(crate) enum Got {
    /// It is ours.
    Held(Hold),
    /// Someone else has it.
    Busy(Busy),
    /// No answer.
    Failed(Error),
    /// We were asked to end first.
    Interrupted(Signal),
}

/// Acquires. A signal that asks us to end takes back what was asked.
pub(crate) async fn acquire(
    locks: &Locks,
    under: &ClassLocks,
    name: &Name,
    signals: &mut Signals,
    talk: &mut Talk,
) -> Got {
    let asking = under.acquire(name);
    let result = tokio::select! {
        biased;
        result = asking => result,
        signal = signals.ending() => return Got::Interrupted(signal),
        never = tell_waiting(locks, name) => match never {},
    };
    talk.rest();
    match result {
        Ok(Acquired::Held(hold)) => Got::Held(hold),
        Ok(Acquired::Busy(busy)) => Got::Busy(busy),
        Err(error) => Got::Failed(error),
    }
}

/// One line, for someone who looks on.
async fn tell_waiting(locks: &Locks, name: &Name) -> std::convert::Infallible {
    BootClock.sleep(NOTICEABLE).await;
    if std::io::stderr().is_terminal()
        && let Ok(Some(lease)) = locks.store().inspect(name, NOTICEABLE).await
    {
        let age = lease
            .age
            .map_or_else(String::new, |age| format!(" for {}", short(age)));
        say(&format!("waiting for {name}, held by {}{age}", lease.holder));
    }
    std::future::pending().await
}

/// Who has it, and what to do.
pub(crate) fn about_busy(busy: &Busy) -> String {
    let waited = if busy.waited < Duration::from_millis(10) {
        "without waiting".to_owned()
    } else {
        format!("after waiting {}", short(busy.waited))
    };
    format!(
        "{busy}; gave up {waited}, the command did not run\n\
         wait longer with -w, or see `leasehold show {}`",
        busy.name
    )
}

/// Why there is no answer, and what to do.
pub(crate) fn about_failure(error: &Error, store: String) -> anyhow::Error {
    match error {
        Error::Unavailable {
            name,
            class,
            cause,
            message,
            retry_after,
        } => anyhow::anyhow!(
            "cannot lock {name}: {store} is unavailable ({cause}: {message})\n\
             class {class} is fail-closed, so the command did not run\n\
             mend the store or the way to it and try again after {}",
            human(*retry_after)
        ),
        other => anyhow::anyhow!("{other}"),
    }
}
