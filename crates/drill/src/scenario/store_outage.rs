//! The store is unreachable for longer than a TTL. All classes are tested at once, each against its
//! own policy.

use std::time::Duration;

use super::context::{ScenarioContext, between, format_secs, transition};
use super::verdict_builder::VerdictBuilder;
use super::{DRILL_TTL, EVENT_TIMEOUT};
use crate::fleet::DrillError;
use crate::history::{History, HistoryEntry, HistoryRecord, RecordedOutcome};

const FAIL_CLOSED_CLASSES: &[&str] = &["scheduler", "workflow-critical", "approval", TICK_CLASS, "admission"];
// Never releases early, so each TTL window has one grant (a tick). Two workers compete for its
// name.
const TICK_CLASS: &str = "reconciler";
// Stores count in whole milliseconds.
const STORE_TIME_GRAIN: Duration = Duration::from_millis(2);
const FAIL_OPEN_CLASS: &str = "workflow";

pub(super) async fn run(context: &mut ScenarioContext, draft: &mut VerdictBuilder) -> Result<(), DrillError> {
    for class in FAIL_CLOSED_CLASSES.iter().chain([&FAIL_OPEN_CLASS]) {
        let orders = context.worker_spec(class, class, &format!("job:{class}")).rest(100);
        context.workers.start(orders).await?;
    }
    for class in FAIL_CLOSED_CLASSES.iter().chain([&FAIL_OPEN_CLASS]) {
        context.wait_until_working(0, class).await?;
    }
    // Started after the first worker has had its tick. From here on both workers compete.
    let other = context.worker_spec("reconciler-2", TICK_CLASS, &format!("job:{TICK_CLASS}"));
    context.workers.start(other).await?;

    let during = context.history.position();
    context.testbed.cut_off().await?;
    let cut = context
        .record_fault(&format!("the store answers no client for {}", format_secs(context.options.outage)));
    context.sleep(context.options.outage).await;
    for class in FAIL_CLOSED_CLASSES {
        let refused = context
            .history
            .wait_for(during, EVENT_TIMEOUT, |record| {
                record.who == *class && is_answer(record, RecordedOutcome::Unavailable)
            })
            .await;
        draft.promise(
            &format!("{class} (fail-closed): work pauses while the store is away"),
            refused.is_some(),
            count_records(context, during, class, "acquires refused", |record| {
                is_answer(record, RecordedOutcome::Unavailable)
            }),
        );
    }
    let fell = context.wait_for_event(during, EVENT_TIMEOUT, FAIL_OPEN_CLASS, "fell_back").await;
    draft.promise(
        "workflow (fail-open): work goes on with a local lock, and each time is counted",
        fell.is_some(),
        count_records(context, during, FAIL_OPEN_CLASS, "fall-backs counted", |record| {
            transition(record).is_some_and(|seen| seen.event == "fell_back")
        }),
    );

    let after = context.history.position();
    context.testbed.heal().await?;
    let healed = context.record_repair("the store answers again");
    draft.promise(
        "the outage was as long as it was asked for",
        between(cut, healed) >= context.options.outage,
        format_secs(between(cut, healed)),
    );
    for class in FAIL_CLOSED_CLASSES.iter().chain([&FAIL_OPEN_CLASS]) {
        // By class and not by worker: the two workers of the tick class share a name.
        let back = context.history.wait_for(after, EVENT_TIMEOUT, |record| {
            transition(record).is_some_and(|seen| seen.event == "acquired" && seen.class == *class)
        });
        let back = back.await;
        draft.promise(
            &format!("{class}: back to normal when the store is"),
            back.is_some(),
            back.map_or_else(
                || "no lease was granted again".to_owned(),
                |back| format!("a lease again after {}", format_secs(between(healed, back.at))),
            ),
        );
    }
    // Wait for two ticks, which is one whole window with a reachable store.
    let mut ticks = 0;
    let seen = context.history.wait_for(after, EVENT_TIMEOUT, |record| {
        let tick =
            transition(record).is_some_and(|seen| seen.event == "acquired" && seen.class == TICK_CLASS);
        ticks += u32::from(tick);
        ticks == 2
    });
    seen.await;
    promise_one_tick_per_window(&context.history.snapshot(), draft);
    Ok(())
}

/// Adds the promise that two ticks are at least one TTL apart, from the request of the first to the
/// grant of the next. A delay can only make that longer.
fn promise_one_tick_per_window(history: &History, draft: &mut VerdictBuilder) {
    let mut ticks: Vec<_> = history
        .records
        .iter()
        .filter_map(|record| transition(record).map(|seen| (record.at, seen)))
        .filter(|(_, seen)| seen.event == "acquired" && seen.class == TICK_CLASS)
        .map(|(at, seen)| (at, at.saturating_sub(seen.span.unwrap_or(0))))
        .collect();
    ticks.sort_unstable();
    let gaps = ticks.windows(2).filter_map(|pair| match pair {
        [(_, asked), (granted, _)] => Some(between(*asked, *granted)),
        _ => None,
    });
    let closest = gaps.min();
    draft.promise_untimed(
        "reconciler: one tick in each window, whichever client holds it",
        closest.is_none_or(|closest| closest + STORE_TIME_GRAIN >= DRILL_TTL),
        closest.map_or_else(
            || format!("{} ticks", ticks.len()),
            |closest| format!("{} ticks, the closest {} apart", ticks.len(), format_secs(closest)),
        ),
    );
    draft.promise(
        "reconciler: its windows follow each other",
        ticks.len() > 2,
        format!("{} ticks", ticks.len()),
    );
}

fn is_answer(record: &HistoryRecord, wanted: RecordedOutcome) -> bool {
    matches!(record.what, HistoryEntry::Answered { answer, .. } if answer == wanted)
}

fn count_records(
    context: &ScenarioContext,
    from: usize,
    who: &str,
    what: &str,
    fits: impl Fn(&HistoryRecord) -> bool,
) -> String {
    let history = context.history.snapshot();
    let since = history.records.get(from..).unwrap_or_default();
    let number = since.iter().filter(|record| record.who == who && fits(record)).count();
    format!("{number} {what}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::test_history::{event_at, history_of};

    #[test]
    fn two_ticks_in_one_window_break_the_promise() {
        let tick = |at, who: &str| {
            let mut record = event_at(at, who, "acquired", None);
            if let HistoryEntry::Event(seen) = &mut record.what {
                seen.class = TICK_CLASS.into();
            }
            record
        };
        let kept = |seconds: &[u64]| {
            let records = seconds.iter().map(|at| tick(*at, "w")).collect();
            let mut draft = VerdictBuilder::default();
            promise_one_tick_per_window(&history_of(records), &mut draft);
            draft.promises.iter().all(|promise| promise.kept)
        };
        assert!(kept(&[1, 4, 8]));
        assert!(!kept(&[1, 4, 6, 10]), "two seconds apart");
        assert!(!kept(&[1, 4]), "and then no more");
    }
}
