//! What each class demands, compared with what was found.

use std::time::Duration;

use leasehold::clock::{BootClock, Clock};
use leasehold::policy::{Class, PolicyBook, RenewPlan, check_store};
use leasehold::store::{Examination, Finding, Promise};

use crate::lease::short;

/// A round trip that takes more than this share of a time-out leaves too little for a bad day.
const SHARE: u32 = 4;

/// Adds what does not fit.
pub(super) fn judge(book: &PolicyBook, found: &mut Examination) {
    for name in book.classes() {
        let Ok(class) = book.class(&name, BootClock.now()) else {
            continue;
        };
        demand(&class, found);
        distance(&class, found);
    }
}

/// A class that demands more than the store promises is refused at every acquire; better to hear it now.
fn demand(class: &Class, found: &mut Examination) {
    if class.requires == Promise::Volatile {
        return;
    }
    match &found.promised {
        Some(promised) => {
            if let Err(invalid) = check_store(class, promised) {
                found.found(Finding::breaks(
                    "class.requires",
                    format!(
                        "class {} is refused: it requires {} and the store promises only {}, {}",
                        class.name,
                        class.requires,
                        promised.promise,
                        reasons(&promised.because)
                    ),
                    "mend what limits the store, use one that promises more, or lower requires if losing a lease is acceptable",
                ));
                tracing::debug!(%invalid, "refused");
            }
        }
        None => found.found(Finding::breaks(
            "class.requires",
            format!(
                "class {} is refused: it requires {} and what the store promises is not known",
                class.name, class.requires
            ),
            "mend what keeps the store from saying it",
        )),
    }
}

fn reasons(because: &[String]) -> String {
    if because.is_empty() {
        "which is all it can".into()
    } else {
        format!("because {}", because.join("; "))
    }
}

/// The store must be near enough for the class's times.
fn distance(class: &Class, found: &mut Examination) {
    let Some(trip) = found.round_trip else { return };
    let timeout = class.acquire.timeout.min(class.renew.timeout);
    if trip.saturating_mul(SHARE) > timeout {
        found.found(Finding::breaks(
            "class.distance",
            format!(
                "class {}: a round trip takes {} and a call is given up after {}: on a bad day every renewal fails",
                class.name,
                short_trip(trip),
                short(timeout)
            ),
            format!("use a nearer store, or time-outs of at least {}", short_trip(trip * SHARE)),
        ));
    } else if let Some(plan) = RenewPlan::of(class)
        && plan.usable.saturating_sub(plan.retry_ended) < trip
    {
        found.found(Finding::risk(
            "class.distance",
            format!(
                "class {}: its renewal and one retry end {} before its deadline, less than one round trip of {}",
                class.name,
                short_trip(plan.usable.saturating_sub(plan.retry_ended)),
                short_trip(trip)
            ),
            "give it a longer ttl, or renew earlier",
        ));
    }
}

fn short_trip(time: Duration) -> String {
    format!("{:.1}ms", time.as_secs_f64() * 1000.0)
}

#[cfg(test)]
mod tests {
    use leasehold::store::{Promised, Severity};

    use super::*;

    fn judged(policy: &str, trip: Duration, promise: Option<Promise>) -> Vec<Finding> {
        let book = PolicyBook::from_text(policy, "p.toml").unwrap();
        let mut found = Examination {
            round_trip: Some(trip),
            promised: promise.map(|promise| Promised {
                promise,
                because: vec!["appendonly is off".into()],
            }),
            ..Examination::default()
        };
        judge(&book, &mut found);
        found.findings
    }

    #[test]
    fn a_class_that_demands_too_much_is_refused_with_the_reason() {
        let policy = "[class.report]\nttl = \"60s\"\nrequires = \"durable\"\n";
        let trip = Duration::from_millis(1);
        assert_eq!(judged(policy, trip, Some(Promise::Durable)), []);
        for promise in [Some(Promise::Volatile), None] {
            let found = judged(policy, trip, promise);
            assert_eq!(found.len(), 1, "{found:?}");
            assert_eq!(
                (found[0].code, found[0].severity),
                ("class.requires", Severity::Breaks)
            );
            assert!(found[0].what.contains("class report is refused"), "{found:?}");
        }
        let said = &judged(policy, trip, Some(Promise::Volatile))[0].what;
        assert!(said.contains("appendonly is off"), "{said}");
    }

    #[test]
    fn a_store_that_is_too_far_away_is_seen() {
        let found = judged("", Duration::from_millis(600), Some(Promise::Durable));
        assert!(
            found.iter().all(|finding| finding.code == "class.distance"),
            "{found:?}"
        );
        assert!(found.iter().any(|finding| finding.severity == Severity::Breaks));
    }
}
