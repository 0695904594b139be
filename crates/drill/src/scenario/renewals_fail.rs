//! Renewals fail during long tasks of every class. `workflow` continues, all other classes fence. A
//! class without renewals ends at its deadline in any case.

use super::context::{ScenarioContext, between, format_secs, transition};
use super::verdict_builder::VerdictBuilder;
use super::{DRILL_TTL, EVENT_TIMEOUT, HOST_SLACK};
use crate::fleet::DrillError;
use crate::history::{History, HistoryEntry, HistoryRecord};

const FENCED_CLASSES: &[&str] = &["scheduler", "workflow-critical", "approval", "reconciler"];
const CONTINUE_CLASS: &str = "workflow";
const NEVER_RENEWED_CLASS: &str = "admission";

pub(super) async fn run(context: &mut ScenarioContext, draft: &mut VerdictBuilder) -> Result<(), DrillError> {
    for class in FENCED_CLASSES.iter().chain([&CONTINUE_CLASS]) {
        let orders = context.worker_spec(class, class, &format!("job:{class}"));
        context.workers.start(orders.steps(60, 150)).await?;
    }
    // Wait for one renewal, so that the deadline is no longer that of the grant.
    for class in FENCED_CLASSES.iter().chain([&CONTINUE_CLASS]) {
        context.require_event(0, class, "renewed").await?;
    }
    let never =
        context.worker_spec(NEVER_RENEWED_CLASS, NEVER_RENEWED_CLASS, &format!("job:{NEVER_RENEWED_CLASS}"));
    context.workers.start(never.steps(60, 150)).await?;
    context.wait_until_working(0, NEVER_RENEWED_CLASS).await?;

    let during = context.history.position();
    context.testbed.cut_off().await?;
    let cut = context.record_fault("no renewal is answered");
    // Renewals that are refused at once are counted; others wait for their timeout.
    let at_once = context.testbed.refuses_at_once();
    for class in FENCED_CLASSES {
        let stopped = context.wait_for_event(during, EVENT_TIMEOUT, class, "abandoned").await;
        let history = context.history.snapshot();
        promise_fenced(class, cut, stopped.as_ref(), &history, at_once, draft);
    }
    context.wait_for_event(0, EVENT_TIMEOUT, NEVER_RENEWED_CLASS, "abandoned").await;
    promise_never_renewed(&context.history.snapshot(), draft);
    let unproven = context.wait_for_event(during, EVENT_TIMEOUT, CONTINUE_CLASS, "unproven").await;
    // It continues if it checks its hold again after the lease became unproven.
    let worked = match &unproven {
        Some(unproven) => context
            .history
            .wait_for(during, EVENT_TIMEOUT, |record| {
                record.at > unproven.at && record.who == CONTINUE_CLASS && is_claim(record)
            })
            .await
            .is_some(),
        None => false,
    };
    draft.promise(
        "workflow: work goes on, and says that it cannot prove its lease",
        worked,
        if unproven.is_some() { "unproven, and went on" } else { "never said so" },
    );
    let after = context.history.position();
    context.testbed.heal().await?;
    context.record_repair("renewals are answered again");
    let over = context
        .history
        .wait_for(after, EVENT_TIMEOUT, |record| {
            record.who == CONTINUE_CLASS
                && transition(record)
                    .is_some_and(|seen| matches!(seen.event.as_str(), "proven_again" | "overlap_ended"))
        })
        .await;
    let overlap = over.as_ref().and_then(transition).and_then(|seen| seen.span);
    draft.promise(
        "workflow: the overlap is measured",
        overlap.is_some_and(|overlap| overlap > 0),
        overlap.map_or_else(|| "not measured".to_owned(), |overlap| format_secs(between(0, overlap))),
    );
    Ok(())
}

/// Adds the promise that a fencing class stopped before its lease could end. Where renewals fail at
/// once, the third failure must be the reason.
fn promise_fenced(
    class: &str,
    cut: u64,
    stopped: Option<&HistoryRecord>,
    history: &History,
    at_once: bool,
    draft: &mut VerdictBuilder,
) {
    let by = if at_once { "at the third failure" } else { "at the third failure or at the deadline" };
    let what = format!("{class}: fenced {by}, before the lease can end");
    let Some(stopped) = stopped else {
        draft.promise(&what, false, "it was never fenced");
        return;
    };
    let looks = history.records.iter();
    let looks = looks.filter(|record| record.who == class && record.at < stopped.at && is_claim(record));
    let last = looks.map(|record| record.at).max().unwrap_or(cut);
    let why = transition(stopped).and_then(|seen| seen.detail.as_deref());
    draft.promise(
        &what,
        between(cut, last) <= DRILL_TTL && (!at_once || why == Some("max_failures")),
        format!(
            "last look {} after the fault, fenced after {} ({})",
            format_secs(between(cut, last)),
            format_secs(between(cut, stopped.at)),
            why.unwrap_or_default()
        ),
    );
}

/// Adds the promises of a class without renewals: its hold ends at the deadline of the grant.
fn promise_never_renewed(history: &History, draft: &mut VerdictBuilder) {
    let mut renewals = 0;
    let (mut granted, mut stopped) = (None, None);
    for record in history.records.iter().filter(|record| record.who == NEVER_RENEWED_CLASS) {
        match transition(record).map(|seen| seen.event.as_str()) {
            Some("acquired") if granted.is_none() => granted = Some(record.at),
            Some("abandoned") if stopped.is_none() => stopped = Some(record),
            Some("renewed" | "renew_failed") => renewals += 1,
            _ => {}
        }
    }
    draft.promise_untimed("admission: never renewed", renewals == 0, format!("{renewals} renewals"));
    draft.promise_within(
        "admission: fenced at the deadline of its grant",
        granted.unwrap_or(0),
        stopped.filter(|record| {
            transition(record).is_some_and(|seen| seen.detail.as_deref() == Some("deadline"))
        }),
        DRILL_TTL + HOST_SLACK,
    );
}

fn is_claim(record: &HistoryRecord) -> bool {
    matches!(record.what, HistoryEntry::Claimed { .. })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::test_history::{event_at, history_of};

    fn kept(stopped: Option<HistoryRecord>, at_once: bool) -> bool {
        let mut draft = VerdictBuilder::default();
        let history = history_of(stopped.iter().cloned().collect());
        promise_fenced("scheduler", 1, stopped.as_ref(), &history, at_once, &mut draft);
        draft.promises.iter().all(|promise| promise.kept)
    }

    #[test]
    fn a_class_that_is_never_fenced_breaks_its_promise() {
        let fenced = |why: &str| Some(event_at(2, "scheduler", "abandoned", Some(why)));
        assert!(kept(fenced("max_failures"), true));
        assert!(kept(fenced("deadline"), false));
        assert!(!kept(None, true) && !kept(None, false), "without `abandoned`");
        assert!(!kept(fenced("deadline"), true), "three refusals come long before the deadline");
    }

    #[test]
    fn a_class_without_renewals_ends_at_its_deadline() {
        let kept = |records: Vec<HistoryRecord>| {
            let mut draft = VerdictBuilder::default();
            promise_never_renewed(&history_of(records), &mut draft);
            draft.promises.iter().all(|promise| promise.kept)
        };
        let of = |what: &str, at, why| event_at(at, NEVER_RENEWED_CLASS, what, why);
        let granted = || of("acquired", 1, None);
        let over = || of("abandoned", 4, Some("deadline"));
        assert!(kept(vec![granted(), over()]));
        assert!(!kept(vec![granted()]), "it goes on");
        assert!(!kept(vec![granted(), of("renewed", 2, None), over()]));
        assert!(!kept(vec![granted(), of("abandoned", 9, Some("deadline"))]), "late");
    }
}
