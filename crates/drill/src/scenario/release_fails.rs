//! Releases fail. First the reply to the first try is lost and the second try succeeds; then the
//! store is away for all tries.

use std::time::Duration;

use super::context::{ScenarioContext, between, format_secs, transition};
use super::verdict_builder::VerdictBuilder;
use super::{DRILL_TTL, EVENT_TIMEOUT};
use crate::fleet::DrillError;
use crate::history::{History, HistoryEntry, HistoryRecord};

// Classes with `release.attempts = 2`.
const TWO_TRY_CLASSES: &[&str] = &["scheduler", "workflow"];
// Release attempts: two, two and one.
const RELEASE_CLASSES: &[&str] = &["scheduler", "workflow", "approval"];
// The class of the waiters. It is fail-closed, so they are refused while the store is away.
const WAITER_CLASS: &str = "scheduler";
// One write of 1.5 s. The first renewal comes after 1 s, so the next request after it is the
// release.
const WORK_STEPS_AND_DELAY_MS: (u32, u64) = (1, 1500);
// A grant this long before the end of the lease proves that a release, and not the expiry, freed
// the name.
const MIN_TIME_BEFORE_EXPIRY: Duration = Duration::from_millis(300);
// `release.timeout` of the drills' classes; a test compares the two.
const RELEASE_TRY_TIMEOUT: Duration = Duration::from_millis(300);
// Fewer timeouts of a second try may be due to a slow disk. This many in a row are a broken
// promise.
const MAX_ROUNDS: u32 = 3;
// A second try that ends sooner after the repair had no time to succeed.
const MIN_TIME_AFTER_REPAIR: Duration = Duration::from_millis(100);

pub(super) async fn run(scene: &mut ScenarioContext, draft: &mut VerdictBuilder) -> Result<(), DrillError> {
    // One release beforehand loads the script. Otherwise the server's NOSCRIPT error would be the
    // reply that gets lost.
    let warm = scene.worker_spec("warm", "scheduler", "job:warm").turns(1);
    scene.workers.start(warm).await?;
    scene.require_event(0, "warm", "released").await?;
    for class in TWO_TRY_CLASSES {
        let mut go = 1;
        while !fail_first_try(scene, draft, class, go).await? {
            go += 1;
        }
    }
    for class in RELEASE_CLASSES {
        fail_all_tries(scene, draft, class).await?;
    }
    Ok(())
}

/// Lets the first release try fail and the second succeed. Returns false if the second try timed
/// out, which must happen several times in a row to count.
async fn fail_first_try(
    context: &mut ScenarioContext,
    draft: &mut VerdictBuilder,
    class: &str,
    go: u32,
) -> Result<bool, DrillError> {
    let who = format!("{class}-twice-{go}");
    let orders = context.worker_spec(&who, class, &format!("job:{who}"));
    context
        .workers
        .start(orders.steps(WORK_STEPS_AND_DELAY_MS.0, WORK_STEPS_AND_DELAY_MS.1).turns(1))
        .await?;
    context.require_event(0, &who, "renewed").await?;
    let during = context.history.position();
    let what = context.testbed.fail_next_request().await?;
    context.record_fault(&format!("{class}: {what}"));
    let failed = context.wait_for_event(during, EVENT_TIMEOUT, &who, "release_failed").await;
    context.testbed.heal().await?;
    let healed = context.record_repair("the store is well again");
    // Each of these events ends the release.
    let ends = |record: &HistoryRecord| {
        let seen = transition(record).map(|seen| seen.event.as_str());
        record.who == who && matches!(seen, Some("released" | "debt" | "already_lost"))
    };
    context.history.wait_for(during, EVENT_TIMEOUT, ends).await;
    let history = context.history.snapshot();
    if repaired_too_late(&who, healed, &history) {
        return Err(DrillError::WaitTimedOut(format!(
            "to heal the store before the second try of {class} ends"
        )));
    }
    if go < MAX_ROUNDS && second_try_timed_out(&who, &history) {
        return Ok(false);
    }
    promise_second_try((class, go), &who, failed.is_some(), &history, draft);
    Ok(true)
}

/// The times at which release tries of this client failed.
fn release_failure_times<'a>(who: &'a str, history: &'a History) -> impl Iterator<Item = u64> + 'a {
    let failed =
        |record: &HistoryRecord| transition(record).is_some_and(|seen| seen.event == "release_failed");
    let of_it = history.records.iter().filter(move |record| record.who == who);
    of_it.filter(move |record| failed(record)).map(|record| record.at)
}

/// Whether the second try ended before the store was reachable, or just after. Then the director
/// was too slow, not the client.
fn repaired_too_late(who: &str, healed: u64, history: &History) -> bool {
    let second = release_failure_times(who, history).nth(1);
    second.is_some_and(|second| between(healed, second) < MIN_TIME_AFTER_REPAIR)
}

/// Whether the second try timed out instead of being refused. A disk that is busy with other work
/// causes that too.
fn second_try_timed_out(who: &str, history: &History) -> bool {
    let mut failures = release_failure_times(who, history);
    let tries = failures.next().zip(failures.next());
    tries.is_some_and(|(first, second)| between(first, second) >= RELEASE_TRY_TIMEOUT * 9 / 10)
}

/// Adds the promises of a release whose first try failed. `go` is the number of rounds it took.
fn promise_second_try(
    (class, go): (&str, u32),
    who: &str,
    failed: bool,
    history: &History,
    draft: &mut VerdictBuilder,
) {
    let has = |event: &str| {
        let mut of_it = history.records.iter().filter(|record| record.who == who);
        of_it.any(|record| transition(record).is_some_and(|seen| seen.event == event))
    };
    draft.promise(
        &format!("{class}: the first try to release fails"),
        failed,
        if failed { "it did" } else { "it did not" },
    );
    draft.promise(
        &format!("{class}: the second try gives the lease back, and nothing is owed"),
        has("released") && !has("debt") && !has("already_lost"),
        describe_release(go, has("released"), has("debt")),
    );
}

/// Describes the result. Earlier rounds without a result are mentioned.
fn describe_release(go: u32, released: bool, owed: bool) -> String {
    let what = match (released, owed) {
        (_, true) => "it was owed",
        (true, false) => "released",
        (false, false) => "it was not given back",
    };
    match go - 1 {
        0 => what.to_owned(),
        before => format!("{what}; {before} time(s) before, the second try ran out of time"),
    }
}

/// Lets every release try fail while the lease has most of its time left.
async fn fail_all_tries(
    context: &mut ScenarioContext,
    draft: &mut VerdictBuilder,
    class: &str,
) -> Result<(), DrillError> {
    let (job, waiter) = (format!("job:{class}"), format!("waits-{class}"));
    let before = context.history.position();
    let owes = context.worker_spec(class, class, &job).turns(1);
    context.workers.start(owes.steps(WORK_STEPS_AND_DELAY_MS.0, WORK_STEPS_AND_DELAY_MS.1)).await?;
    context.wait_until_working(before, class).await?;
    let waits = context.worker_spec(&waiter, WAITER_CLASS, &job).rest(20);
    context.workers.start(waits).await?;
    let renewed = context.require_event(before, class, "renewed").await?;

    let during = context.history.position();
    context.testbed.cut_off().await?;
    let cut = context.record_fault(&format!("{class}: no release is answered"));
    let told = context
        .history
        .wait_for(during, EVENT_TIMEOUT, |record| {
            record.who == class
                && matches!(record.what, HistoryEntry::Reported { value: Some(_), lost: false, .. })
        })
        .await;
    if told.as_ref().is_some_and(|told| told.at < cut) {
        return Err(DrillError::WaitTimedOut(format!("to cut off the store before {class} ends its work")));
    }
    draft.promise_within(
        &format!("{class}: the work's result is handed on although its release fails"),
        cut,
        told.as_ref(),
        EVENT_TIMEOUT,
    );
    let owed = context.wait_for_event(during, EVENT_TIMEOUT, class, "debt").await;
    context.testbed.heal().await?;
    let healed = context.record_repair("releases are answered again");
    context.wait_for_event(during, EVENT_TIMEOUT, class, "debt_cleared").await;
    context.wait_for_event(during, EVENT_TIMEOUT, &waiter, "acquired").await;
    let history = context.history.snapshot();
    let lease = (renewed.at - transition(&renewed).and_then(|seen| seen.span).unwrap_or(0), healed);
    promise_debt_collected(class, &waiter, owed.as_ref(), lease, &history, draft);
    Ok(())
}

/// Adds the promises of a debt: it is reported, it is collected before the lease expires, and that
/// lets the waiter in. `prolonged` is when the last confirmed renewal was sent, `healed` when the
/// store was reachable again.
fn promise_debt_collected(
    class: &str,
    waiter: &str,
    owed: Option<&HistoryRecord>,
    (prolonged, healed): (u64, u64),
    history: &History,
    draft: &mut VerdictBuilder,
) {
    let of = |who: &str, event: &str| {
        let from = owed.map_or(prolonged, |owed| owed.at);
        history.records.iter().find(|record| {
            record.who == who
                && record.at >= from
                && transition(record).is_some_and(|seen| seen.event == event)
        })
    };
    draft.promise(
        &format!("{class}: the debt is reported"),
        owed.is_some(),
        owed.map_or_else(
            || "it was not".to_owned(),
            |owed| format!("{} before the store was back", format_secs(between(owed.at, healed))),
        ),
    );
    let cleared = of(class, "debt_cleared");
    let how = cleared.and_then(transition).and_then(|seen| seen.detail.as_deref());
    draft.promise(
        &format!("{class}: the debt is collected in the background, before the lease ends"),
        how == Some("released"),
        cleared.map_or_else(
            || "never cleared".to_owned(),
            |cleared| {
                let after = format_secs(between(healed, cleared.at));
                format!("{} {after} after the store was back", how.unwrap_or_default())
            },
        ),
    );
    // The earliest possible expiry: a lease renewed at `prolonged` lasts at least one TTL from
    // then.
    let end = prolonged.saturating_add(u64::try_from(DRILL_TTL.as_nanos()).unwrap_or(u64::MAX));
    let next = of(waiter, "acquired");
    draft.promise(
        &format!("{class}: the next one does not wait for the lease's end"),
        next.is_some_and(|next| between(next.at, end) >= MIN_TIME_BEFORE_EXPIRY),
        next.map_or_else(
            || "never granted".to_owned(),
            |next| {
                format!(
                    "busy for {} after the store was back; granted {} before the lease's end",
                    format_secs(between(healed, next.at)),
                    format_secs(between(next.at, end))
                )
            },
        ),
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::POLICIES;
    use crate::scenario::test_history::{SECOND_NANOS, event_at, history_of};

    fn kept(cleared: Option<&str>, granted: u64) -> bool {
        let owed = event_at(2, "scheduler", "debt", None);
        let mut records = vec![owed.clone()];
        records.extend(cleared.map(|how| event_at(2, "scheduler", "debt_cleared", Some(how))));
        records.push(event_at(granted, "waits", "acquired", None));
        let mut draft = VerdictBuilder::default();
        let lease = (SECOND_NANOS, 2 * SECOND_NANOS);
        promise_debt_collected("scheduler", "waits", Some(&owed), lease, &history_of(records), &mut draft);
        draft.promises.iter().all(|promise| promise.kept)
    }

    #[test]
    fn an_expired_debt_was_not_collected() {
        assert!(kept(Some("released"), 3));
        assert!(!kept(Some("expired"), 3));
        assert!(!kept(None, 3));
        assert!(!kept(Some("released"), 4), "the next one waited for the lease's end");
    }

    #[test]
    fn a_second_try_gives_back_and_owes_nothing() {
        let kept = |failed, events: &[&str]| {
            let records = events.iter().map(|what| event_at(1, "w", what, None)).collect();
            let mut draft = VerdictBuilder::default();
            promise_second_try(("scheduler", 1), "w", failed, &history_of(records), &mut draft);
            draft.promises.iter().all(|promise| promise.kept)
        };
        assert!(kept(true, &["release_failed", "released"]));
        assert!(!kept(true, &["release_failed", "release_failed", "debt"]));
        assert!(!kept(false, &["released"]), "nothing failed");
        assert!(!kept(true, &["release_failed", "already_lost"]));
    }

    #[test]
    fn a_second_try_before_the_repair_is_the_hosts_fault() {
        let late = |failures: &[u64]| {
            let records = failures.iter().map(|at| event_at(*at, "w", "release_failed", None));
            repaired_too_late("w", 3 * SECOND_NANOS, &history_of(records.collect()))
        };
        assert!(late(&[1, 2]), "it was over before the store was well");
        assert!(late(&[1, 3]), "and just then");
        assert!(!late(&[1, 4]), "it had a second");
        assert!(!late(&[1]), "there was none: that is to be judged");
        assert!(!late(&[]));
    }

    #[test]
    fn only_a_second_try_that_timed_out_is_repeated() {
        let slow = |failures: &[u64]| {
            let failed = |at: &u64| HistoryRecord {
                at: *at * SECOND_NANOS / 1000,
                ..event_at(0, "w", "release_failed", None)
            };
            second_try_timed_out("w", &history_of(failures.iter().map(failed).collect()))
        };
        assert!(slow(&[1_000, 1_285]), "the store says so just before it is over");
        assert!(!slow(&[1_000, 1_200]), "it was refused");
        assert!(!slow(&[1_000]), "there was none: that is to be judged");
        assert!(!slow(&[]));
        assert!(!describe_release(1, true, false).contains("ran out"));
        assert!(
            describe_release(2, true, false).contains("1 time(s) before, the second try ran out"),
            "it is told"
        );
        let told = format!("timeout = \"{}ms\"", RELEASE_TRY_TIMEOUT.as_millis());
        for class in TWO_TRY_CLASSES {
            let rules = POLICIES.split(&format!("[class.{class}]")).nth(1).unwrap();
            let release = rules.split("release = ").nth(1).unwrap().lines().next().unwrap();
            assert!(release.contains(&told), "{class}: {release}");
        }
    }
}
