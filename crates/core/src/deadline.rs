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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::PolicyBook;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn class() -> Class {
        let at = Moment::ZERO;
        let mut class = (*PolicyBook::builtin().class("scheduler", at).unwrap()).clone();
        class.drift = ms(100);
        class.stop_grace = ms(1_000);
        class
    }

    /// Kept for 10 s since an answer between 1.0 and 1.2 s, looked at between 4.0 and 4.5 s: 6.5 to 7.2 s are left, and what
    /// clocks drift.
    fn jump(was_left: u64) -> Option<(Duration, bool)> {
        let at = |millis| Moment::ZERO + ms(millis);
        clock_jump(
            at(1_000),
            at(1_200),
            ms(10_000),
            at(4_000),
            at(4_500),
            ms(was_left),
            &class(),
        )
    }

    #[test]
    fn all_that_drift_explains_is_no_jump() {
        for was_left in [6_400, 6_500, 7_000, 7_200, 7_300] {
            assert_eq!(jump(was_left), None, "{was_left}");
        }
    }

    #[test]
    fn a_jump_is_what_drift_does_not_explain() {
        assert_eq!(jump(7_301), Some((ms(1), false)));
        assert_eq!(jump(9_300), Some((ms(2_000), false)));
        assert_eq!(jump(6_399), Some((ms(1), true)));
        assert_eq!(jump(400), Some((ms(6_000), true)));
    }

    #[test]
    fn a_deadline_leaves_room_for_drift_and_for_the_work_to_stop() {
        let sent_at = Moment::ZERO + ms(500);
        assert_eq!(deadline(sent_at, ms(10_000), &class()), sent_at + ms(8_900));
        assert_eq!(deadline(sent_at, ms(50), &class()), sent_at);
    }

    #[test]
    fn a_lease_is_surely_over_after_its_time_and_the_drift() {
        let touched = Moment::ZERO + ms(500);
        assert_eq!(surely_over(touched, ms(10_000), ms(100)), touched + ms(10_100));
    }
}
