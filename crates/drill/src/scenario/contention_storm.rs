//! Hundreds of clients acquire one name, each once. Every client gets it, waiters are not woken in
//! vain, and the queue order is kept.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_core::acquire::MAX_POLL_INTERVAL;

use super::context::{ScenarioContext, between, format_secs, transition};
use super::verdict_builder::VerdictBuilder;
use crate::fleet::DrillError;
use crate::history::{History, HistoryEntry, RecordedOutcome};

const CLIENTS_PER_PROCESS: u32 = 50;
// Acquire requests per grant: the first, the one after the wake-up, and some retries on a busy
// host.
const MAX_REQUESTS_PER_GRANT: f64 = 6.0;
// Requests per second of waiting: waiters also poll, at least once a second with jitter.
const MAX_REQUESTS_PER_SECOND: f64 = 3.0;
// Total time per client before the drill reports starvation.
const MAX_TIME_PER_CLIENT: Duration = Duration::from_millis(400);
// Time for the last request to reach the store and get its place in the queue.
const QUEUE_SETTLE_TIME: Duration = Duration::from_secs(2);

pub(super) async fn run(context: &mut ScenarioContext, draft: &mut VerdictBuilder) -> Result<(), DrillError> {
    let all = context.options.waiters;
    // All clients enter the queue while the opener holds the name. Otherwise they would race for a
    // free lock.
    let opener = context.worker_spec("opener", "storm", "job:1").turns(1).endless();
    context.workers.start(opener.steps(1, 100)).await?;
    context.wait_until_working(0, "opener").await?;
    context.record_fault(&format!("{all} clients want one name"));
    let timeout = Duration::from_secs(30) + MAX_TIME_PER_CLIENT * all;
    let mut left = all;
    let mut process = 0;
    while left > 0 {
        let clients = left.min(CLIENTS_PER_PROCESS);
        let orders = context.worker_spec(&format!("p{process:02}"), "storm", "job:1");
        let orders = orders.clients(clients).steps(1, 1).rest(1).turns(1);
        let before = context.history.position();
        context.workers.start(orders).await?;
        // Processes start one after the other, so that the order of their requests is certain.
        let mut acquire = clients;
        let asked = context.history.wait_for(before, timeout, |record| {
            acquire -= u32::from(matches!(record.what, HistoryEntry::Asked { .. }));
            acquire == 0
        });
        let asked = asked.await;
        asked.ok_or_else(|| {
            DrillError::WaitTimedOut(format!("for {clients} clients to ask; {acquire} did not"))
        })?;
        (left, process) = (left - clients, process + 1);
    }
    context.sleep(QUEUE_SETTLE_TIME).await;
    let from = context.record_repair("all are in line, and the holder lets go");
    let opened = context.workers.end_worker("opener").await.is_clean();
    let mut waiting = all;
    let last = context
        .history
        .wait_for(0, timeout, |record| {
            let granted = transition(record).is_some_and(|seen| seen.event == "acquired");
            waiting -= u32::from(granted && record.who != "opener");
            waiting == 0
        })
        .await;
    draft.promise(
        "no client starves: every client is granted the name",
        opened && last.is_some(),
        match &last {
            Some(last) => format!("{all} of {all} within {}", format_secs(between(from, last.at))),
            None => format!("{} of {all}", all - waiting),
        },
    );
    // Each client records its number of requests when it ends.
    let late = context.workers.end_all().await;
    let history = context.history.snapshot();
    let asks: u64 = history
        .records
        .iter()
        .filter(|record| record.who != "opener")
        .filter_map(|record| match record.what {
            HistoryEntry::Effort { asks } => Some(asks),
            _ => None,
        })
        .sum();
    let (waited, mean, worst) = queue_statistics(&history.records);
    let most = MAX_REQUESTS_PER_GRANT * f64::from(all) + MAX_REQUESTS_PER_SECOND * waited;
    draft.promise(
        "no herd: a release wakes one, not all",
        late.is_empty() && asks > 0 && asks as f64 <= most,
        format!(
            "{:.1} asks of the store per grant in {:.1} s of waiting each; were all woken each time, it would be {}",
            asks as f64 / f64::from(all.max(1)),
            waited / f64::from(all.max(1)),
            all / 2
        ),
    );
    promise_no_outage(&history, draft);
    // A waiter that is too slow to accept its hand-over loses its turn, so the bound is not zero.
    let bound = u64::from(CLIENTS_PER_PROCESS);
    draft.promise(
        "order kept: hardly anybody who asked more than a poll later is served before",
        worst <= bound,
        format!("overtaken {mean:.1} times on average, {worst} at most (bound {bound})"),
    );
    Ok(())
}

/// Adds the promise that no acquire was refused as unavailable: the store was reachable all the
/// time, however slow the host.
pub(super) fn promise_no_outage(history: &History, draft: &mut VerdictBuilder) {
    let refused = history
        .records
        .iter()
        .filter(|record| {
            matches!(record.what, HistoryEntry::Answered { answer: RecordedOutcome::Unavailable, .. })
        })
        .count();
    draft.promise_untimed(
        "contention is not an outage: no client sees the store as unavailable",
        refused == 0,
        format!("{refused} acquires refused"),
    );
}

/// Returns the total waiting time in seconds, and how often a client was overtaken: on average and
/// at most. A client is overtaken by a grant to one that asked clearly later. The store assigns
/// queue places up to a [`POLL`] after the request, so requests closer than that have no order. O(n
/// log n).
fn queue_statistics(records: &[crate::history::HistoryRecord]) -> (f64, f64, u64) {
    let mut asked: BTreeMap<&str, u64> = BTreeMap::new();
    let mut grants: Vec<(u64, u64)> = Vec::new();
    for record in records.iter().filter(|record| record.who != "opener") {
        match &record.what {
            // Only the first request counts: a client that got *busy* and retried has waited since
            // then.
            HistoryEntry::Asked { .. } => {
                asked.entry(&record.who).or_insert(record.at);
            }
            HistoryEntry::Event(seen) if seen.event == "acquired" => {
                if let Some(since) = asked.get(record.who.as_str()) {
                    grants.push((record.at, *since));
                }
            }
            _ => {}
        }
    }
    grants.sort_unstable();
    // A Fenwick tree over the request ranks, filled in the order of grants.
    let mut order: Vec<u64> = grants.iter().map(|(_, since)| *since).collect();
    order.sort_unstable();
    let mut tree = vec![0_u64; order.len() + 1];
    let (mut sum, mut worst) = (0, 0);
    for (served, (_, since)) in (0_u64..).zip(&grants) {
        let rank = order.partition_point(|other| other <= since);
        let beside = u64::try_from(MAX_POLL_INTERVAL.as_nanos()).unwrap_or(u64::MAX);
        let near = order.partition_point(|other| *other <= since.saturating_add(beside));
        let (mut at, mut before) = (near, 0);
        while at > 0 {
            before += tree.get(at).copied().unwrap_or(0);
            at &= at - 1;
        }
        // Already granted, but requested later.
        let over = served - before;
        sum += over;
        worst = worst.max(over);
        let mut at = rank;
        while let Some(slot) = tree.get_mut(at) {
            *slot += 1;
            at += at & at.wrapping_neg();
        }
    }
    let waited: u64 = grants.iter().map(|(at, since)| at.saturating_sub(*since)).sum();
    (waited as f64 / 1e9, sum as f64 / grants.len().max(1) as f64, worst)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{ClientEvent, HistoryRecord};

    fn records_of(grants: &[(&str, u64, u64)]) -> Vec<HistoryRecord> {
        let mut records = Vec::new();
        for (who, asked, granted) in grants {
            records.push(HistoryRecord {
                at: *asked,
                who: (*who).to_owned(),
                what: HistoryEntry::Asked { attempt: 1, name: "n".into(), class: "c".into() },
            });
            records.push(HistoryRecord {
                at: *granted,
                who: (*who).to_owned(),
                what: HistoryEntry::Event(ClientEvent {
                    seq: 0,
                    hold: 1,
                    event: "acquired".into(),
                    name: None,
                    class: "c".into(),
                    fence: None,
                    span: None,
                    detail: None,
                }),
            });
        }
        records
    }

    #[test]
    fn overtakings_are_counted_for_the_overtaken_client() {
        let overtaken = |grants: &[(&str, u64, u64)]| {
            let seconds: Vec<_> = grants
                .iter()
                .map(|(who, asked, granted)| (*who, asked * 2_000_000_000, granted * 2_000_000_000))
                .collect();
            let (_, mean, worst) = queue_statistics(&records_of(&seconds));
            (mean, worst)
        };
        assert_eq!(overtaken(&[("a", 1, 10), ("b", 2, 11), ("c", 3, 12)]), (0.0, 0));
        // `a` asked first and is granted last: overtaken twice.
        assert_eq!(overtaken(&[("a", 1, 12), ("b", 2, 10), ("c", 3, 11)]), (2.0 / 3.0, 2));
        assert_eq!(overtaken(&[("c", 3, 10), ("b", 2, 11), ("a", 1, 12)]), (1.0, 2));
        let second = 1_000_000_000;
        let (waited, ..) = queue_statistics(&records_of(&[("a", 0, second), ("b", 0, 2 * second)]));
        assert!((waited - 3.0).abs() < 1e-9, "{waited}");
    }
}
