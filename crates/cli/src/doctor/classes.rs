//! Compares what each class requires with what the examination found.

use std::time::Duration;

use leasehold::clock::{BootClock, Clock};
use leasehold::policy::{Class, PolicyBook, RenewPlan, check_store};
use leasehold::store::{Examination, Finding, Promise};

use crate::lease::short_duration;

// A timeout should cover this many round trips; with fewer, a latency spike makes every call fail.
const MIN_TIMEOUT_ROUND_TRIPS: u32 = 4;

/// Adds a finding for each class that does not fit the store.
pub(super) fn check_classes(book: &PolicyBook, found: &mut Examination) {
    for name in book.classes() {
        let Ok(class) = book.class(&name, BootClock.now()) else {
            continue;
        };
        check_promise(&class, found);
        check_latency(&class, found);
    }
}

// Such a class is refused at every acquire. The doctor says so before the first one.
fn check_promise(class: &Class, found: &mut Examination) {
    // Every store promises at least this.
    if class.requires == Promise::Volatile {
        return;
    }
    match &found.promised {
        Some(promised) => {
            if let Err(invalid) = check_store(class, promised) {
                found.add_finding(Finding::breaks(
                    "class.requires",
                    format!(
                        "class {} is refused: it requires {} and the store promises only {}, {}",
                        class.name,
                        class.requires,
                        promised.promise,
                        reason_text(&promised.limits)
                    ),
                    "fix what limits the store, use one that promises more, or lower requires if losing a lease is acceptable",
                ));
                tracing::debug!(%invalid, "refused");
            }
        }
        None => found.add_finding(Finding::breaks(
            "class.requires",
            format!(
                "class {} is refused: it requires {} and what the store promises is not known",
                class.name, class.requires
            ),
            "fix the other findings about the store, then run leasehold doctor again",
        )),
    }
}

fn reason_text(because: &[String]) -> String {
    if because.is_empty() { "which is all it can".into() } else { format!("because {}", because.join("; ")) }
}

/// Checks that the store's latency suits the class's timeouts.
fn check_latency(class: &Class, found: &mut Examination) {
    let Some(trip) = found.round_trip else { return };
    let timeout = class.acquire.timeout.min(class.renew.timeout);
    if trip.saturating_mul(MIN_TIMEOUT_ROUND_TRIPS) > timeout {
        found.add_finding(Finding::breaks(
            "class.distance",
            format!(
                "class {}: a round trip takes {} and a call is given up after {}: on a bad day every renewal fails",
                class.name,
                trip_millis(trip),
                short_duration(timeout)
            ),
            format!("use a nearer store, or time-outs of at least {}", trip_millis(trip * MIN_TIMEOUT_ROUND_TRIPS)),
        ));
    } else if let Some(plan) = RenewPlan::of(class)
        && plan.usable.saturating_sub(plan.retry_ended) < trip
    {
        found.add_finding(Finding::risk(
            "class.distance",
            format!(
                "class {}: its renewal and one retry end {} before its deadline, less than one round trip of {}",
                class.name,
                trip_millis(plan.usable.saturating_sub(plan.retry_ended)),
                trip_millis(trip)
            ),
            "give it a longer ttl, or renew earlier",
        ));
    }
}

fn trip_millis(time: Duration) -> String {
    format!("{:.1}ms", time.as_secs_f64() * 1000.0)
}

#[cfg(test)]
mod tests {
    use leasehold::store::{PromiseReport, Severity};

    use super::*;

    fn findings(policy: &str, trip: Duration, promise: Option<Promise>) -> Vec<Finding> {
        let book = PolicyBook::from_text(policy, "p.toml").unwrap();
        let mut found = Examination::default();
        found.round_trip = Some(trip);
        found.promised =
            promise.map(|promise| PromiseReport::new(promise).with_limits(vec!["appendonly is off".into()]));
        check_classes(&book, &mut found);
        found.findings
    }

    #[test]
    fn a_class_that_requires_too_much_is_reported_with_the_reason() {
        let policy = "[class.report]\nttl = \"60s\"\nrequires = \"durable\"\n";
        let trip = Duration::from_millis(1);
        assert_eq!(findings(policy, trip, Some(Promise::Durable)), []);
        for promise in [Some(Promise::Volatile), None] {
            let found = findings(policy, trip, promise);
            assert_eq!(found.len(), 1, "{found:?}");
            assert_eq!((found[0].code, found[0].severity), ("class.requires", Severity::Breaks));
            assert!(found[0].what.contains("class report is refused"), "{found:?}");
        }
        let message = &findings(policy, trip, Some(Promise::Volatile))[0].what;
        assert!(message.contains("appendonly is off"), "{message}");
    }

    #[test]
    fn a_slow_store_is_reported() {
        let found = findings("", Duration::from_millis(600), Some(Promise::Durable));
        assert!(found.iter().all(|finding| finding.code == "class.distance"), "{found:?}");
        assert!(found.iter().any(|finding| finding.severity == Severity::Breaks));
    }
}
