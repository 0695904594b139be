//! The only place where time is judged.
//!
//! A lease confirmed by an answer was granted at some moment after its request was *sent*; nothing more is known.
//! So the holder counts from the sending, and takes off what two clocks may drift apart and what the work needs to
//! stop. A model check refutes both "count from the answer" and a margin of one clock error only: keep both terms.

use std::time::Duration;

use crate::clock::Moment;
use crate::policy::Class;

/// The instant after which the holder of a lease, confirmed by a request sent at `sent_at` for `ttl`, must not act.
#[must_use]
pub fn deadline(sent_at: Moment, ttl: Duration, class: &Class) -> Moment {
    sent_at + ttl.saturating_sub(class.drift).saturating_sub(class.stop_grace)
}

/// The instant by which the store has surely let go of a lease that it may last have touched at `touched`.
#[must_use]
pub fn surely_over(touched: Moment, kept: Duration, drift: Duration) -> Moment {
    touched + kept + drift
}

/// How far the store's remaining time is from what this clock expects: `Some((by, ahead))` if it is more than
/// the drift explains. `sent_at` and `now` enclose the moment at which the store looked.
#[must_use]
pub fn clock_jump(
    last_sent: Moment,
    last_answered: Moment,
    kept: Duration,
    sent_at: Moment,
    now: Moment,
    was_left: Duration,
    class: &Class,
) -> Option<(Duration, bool)> {
    let most = kept.saturating_sub(sent_at.since(last_answered)) + class.drift;
    let least = kept
        .saturating_sub(now.since(last_sent))
        .saturating_sub(class.drift);
    if was_left > most {
        Some((was_left - most, false))
    } else if was_left < least {
        Some((least - was_left, true))
    } else {
        None
    }
}
