//! The holder of each class is killed with SIGKILL during its work.

use super::context::{ScenarioContext, transition};
use super::verdict_builder::VerdictBuilder;
use super::{ALL_CLASSES, DRILL_TTL, EVENT_TIMEOUT, HOST_SLACK};
use crate::fleet::DrillError;
use crate::history::{History, HistoryEntry};

pub(super) async fn run(context: &mut ScenarioContext, draft: &mut VerdictBuilder) -> Result<(), DrillError> {
    for class in ALL_CLASSES {
        for who in ["a", "b"] {
            let orders = context.worker_spec(&format!("{class}-{who}"), class, &format!("job:{class}"));
            // Endless work: otherwise the victim might have released its lease just before the
            // kill.
            context.workers.start(orders.steps(1, 50).endless()).await?;
        }
    }
    for class in ALL_CLASSES {
        let granted = context.history.wait_for(0, EVENT_TIMEOUT, |record| {
            transition(record).is_some_and(|seen| seen.event == "acquired" && seen.class == *class)
        });
        let granted = granted.await;
        let first =
            granted.ok_or_else(|| DrillError::WaitTimedOut(format!("for the first grant of {class}")))?;
        context.wait_until_working(0, &first.who).await?;
    }

    let after = context.history.position();
    context.record_fault("kill -9 of the holder of each class");
    let mut killed = Vec::new();
    for class in ALL_CLASSES {
        let victim = holder_at(&context.history.snapshot(), class, u64::MAX);
        let victim =
            victim.ok_or_else(|| DrillError::WaitTimedOut(format!("for a client to hold {class}")))?;
        let died = context.now_nanos();
        context.workers.kill(&victim).await;
        killed.push((*class, victim, died));
    }
    for (class, victim, died) in killed {
        let granted = context
            .history
            .wait_for(after, EVENT_TIMEOUT, |record| is_takeover(record, class, &victim, died));
        granted.await;
        promise_takeover(class, &victim, died, &context.history.snapshot(), draft);
    }
    Ok(())
}

/// Adds the promises that the victim held the name, and that another worker was granted it in time.
fn promise_takeover(class: &str, victim: &str, died: u64, history: &History, draft: &mut VerdictBuilder) {
    draft.promise(
        &format!("{class}: the one that is killed holds the name"),
        holder_at(history, class, died).as_deref() == Some(victim),
        victim,
    );
    let records = &history.records;
    draft.promise_within(
        &format!("{class}: another worker takes over within the TTL (and what a loaded host adds)"),
        died,
        records.iter().find(|record| is_takeover(record, class, victim, died)),
        DRILL_TTL + HOST_SLACK,
    );
}

fn is_takeover(record: &crate::history::HistoryRecord, class: &str, victim: &str, died: u64) -> bool {
    let seen = transition(record);
    record.who != victim
        && record.at >= died
        && seen.is_some_and(|seen| seen.event == "acquired" && seen.class == class)
}

/// The holder of the class's only name at this time, according to the history.
fn holder_at(history: &History, class: &str, at: u64) -> Option<String> {
    let mut lines: Vec<_> = history.records.iter().filter(|record| record.at <= at).collect();
    lines.sort_by_key(|record| record.at);
    let mut holder = None;
    for record in lines {
        let gone = match &record.what {
            HistoryEntry::Releasing { .. } => true,
            HistoryEntry::Event(seen) if seen.class == class && seen.event == "acquired" => {
                holder = Some(&record.who);
                false
            }
            HistoryEntry::Event(seen) => matches!(seen.event.as_str(), "abandoned" | "not_owned"),
            _ => false,
        };
        if gone && holder == Some(&record.who) {
            holder = None;
        }
    }
    holder.cloned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::HistoryRecord;
    use crate::scenario::test_history::{SECOND_NANOS, event_at, history_of, record_at};

    fn kept(before: Option<HistoryRecord>) -> bool {
        let mut records = vec![event_at(1, "a", "acquired", None)];
        records.extend(before);
        records.push(event_at(5, "b", "acquired", None));
        let mut draft = VerdictBuilder::default();
        promise_takeover("scheduler", "a", 3 * SECOND_NANOS, &history_of(records), &mut draft);
        draft.promises.iter().all(|promise| promise.kept)
    }

    #[test]
    fn a_victim_that_holds_nothing_breaks_the_promise() {
        assert!(kept(None));
        assert!(!kept(Some(record_at(2, "a", HistoryEntry::Releasing { attempt: 1 }))));
        assert!(!kept(Some(event_at(2, "a", "abandoned", Some("deadline")))));
        // Records after the kill concern other clients.
        assert!(kept(Some(record_at(4, "c", HistoryEntry::Releasing { attempt: 1 }))));
    }
}
