//! Hundreds of clients want one name, each once: nobody starves, nobody is woken for nothing, and the line is kept.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_core::acquire::POLL;

use super::draft::Draft;
use super::scene::{Scene, between, secs, transition};
use crate::fleet::Error;
use crate::history::{Answer, Entry, History};

/// Clients in one process.
const EACH: u32 = 50;
/// What a grant may cost in asks of the store: the first one, the one after being woken, and some that a busy host makes
/// late.
const ASKS_PER_GRANT: f64 = 6.0;
/// What waiting may cost: the safety net asks again after at most a second, jittered.
const ASKS_PER_SECOND: f64 = 3.0;
/// How long all of them together may take before it is called starving, for each client.
const EACH_TURN: Duration = Duration::from_millis(400);
/// From an ask on its way to a place in the line.
const SETTLE: Duration = Duration::from_secs(2);

pub(super) async fn play(scene: &mut Scene, draft: &mut Draft) -> Result<(), Error> {
    let all = scene.options.waiters;
    // Everybody gets into the line while somebody works: else it would be a race and not a line.
    let opener = scene.orders("opener", "storm", "job:1").turns(1).endless();
    scene.crew.start(opener.steps(1, 100)).await?;
    scene.at_work(0, "opener").await?;
    scene.fault(&format!("{all} clients want one name"));
    let patience = Duration::from_secs(30) + EACH_TURN * all;
    let mut left = all;
    let mut process = 0;
    while left > 0 {
        let clients = left.min(EACH);
        let orders = scene.orders(&format!("p{process:02}"), "storm", "job:1");
        let orders = orders.clients(clients).steps(1, 1).rest(1).turns(1);
        let before = scene.tape.place();
        scene.crew.start(orders).await?;
        // One after the other: who comes first must be beyond doubt.
        let mut asking = clients;
        let asked = scene.tape.wait(before, patience, |record| {
            asking -= u32::from(matches!(record.what, Entry::Asked { .. }));
            asking == 0
        });
        let asked = asked.await;
        asked.ok_or_else(|| Error::Waited(format!("for {clients} clients to ask; {asking} did not")))?;
        (left, process) = (left - clients, process + 1);
    }
    scene.rest(SETTLE).await;
    let from = scene.mend("all are in line, and the holder lets go");
    let opened = scene.crew.finish("opener").await.in_order();
    let mut waiting = all;
    let last = scene
        .tape
        .wait(0, patience, |record| {
            let granted = transition(record).is_some_and(|seen| seen.event == "acquired");
            waiting -= u32::from(granted && record.who != "opener");
            waiting == 0
        })
        .await;
    draft.promise(
        "nobody starves: every client is granted the name",
        opened && last.is_some(),
        match &last {
            Some(last) => format!("{all} of {all} within {}", secs(between(from, last.at))),
            None => format!("{} of {all}", all - waiting),
        },
    );
    // Whoever has had its turn says at its end how often it asked.
    let late = scene.crew.end().await;
    let history = scene.tape.history();
    let asks: u64 = history
        .records
        .iter()
        .filter(|record| record.who != "opener")
        .filter_map(|record| match record.what {
            Entry::Effort { asks } => Some(asks),
            _ => None,
        })
        .sum();
    let (waited, mean, worst) = line(&history.records);
    let most = ASKS_PER_GRANT * f64::from(all) + ASKS_PER_SECOND * waited;
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
    no_outage(&history, draft);
    // One that is slow to take what it was handed loses its turn, so it is not nobody.
    let bound = u64::from(EACH);
    draft.promise(
        "order kept: hardly anybody who asked more than a poll later is served before",
        worst <= bound,
        format!("overtaken {mean:.1} times on average, {worst} at most (bound {bound})"),
    );
    Ok(())
}

/// However long the line is and however slow the host: the store was there all the time.
pub(super) fn no_outage(history: &History, draft: &mut Draft) {
    let refused = history
        .records
        .iter()
        .filter(|record| {
            matches!(
                record.what,
                Entry::Answered {
                    answer: Answer::Unavailable,
                    ..
                }
            )
        })
        .count();
    draft.always(
        "contention is not an outage: nobody is told that the store is away",
        refused == 0,
        format!("{refused} acquires refused"),
    );
}

/// How long everybody waited together, in seconds; and how many that asked clearly later were granted before one that had
/// asked: on average and at most. A place in the line is given by the store, up to a [`POLL`] after the ask, so what is
/// closer than that has no order. O(n log n).
fn line(records: &[crate::history::Record]) -> (f64, f64, u64) {
    let mut asked: BTreeMap<&str, u64> = BTreeMap::new();
    let mut grants: Vec<(u64, u64)> = Vec::new();
    for record in records.iter().filter(|record| record.who != "opener") {
        match &record.what {
            // The first ask counts: one that came back busy has waited all the same.
            Entry::Asked { .. } => {
                asked.entry(&record.who).or_insert(record.at);
            }
            Entry::Event(seen) if seen.event == "acquired" => {
                if let Some(since) = asked.get(record.who.as_str()) {
                    grants.push((record.at, *since));
                }
            }
            _ => {}
        }
    }
    grants.sort_unstable();
    // Ranks by when they asked, counted in a tree from the first grant to the last.
    let mut order: Vec<u64> = grants.iter().map(|(_, since)| *since).collect();
    order.sort_unstable();
    let mut tree = vec![0_u64; order.len() + 1];
    let (mut sum, mut worst) = (0, 0);
    for (served, (_, since)) in (0_u64..).zip(&grants) {
        let rank = order.partition_point(|other| other <= since);
        let beside = u64::try_from(POLL.as_nanos()).unwrap_or(u64::MAX);
        let near = order.partition_point(|other| *other <= since.saturating_add(beside));
        let (mut at, mut before) = (near, 0);
        while at > 0 {
            before += tree.get(at).copied().unwrap_or(0);
            at &= at - 1;
        }
        // Served already, but asked later.
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
    (
        waited as f64 / 1e9,
        sum as f64 / grants.len().max(1) as f64,
        worst,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Record, Transition};

    fn story(grants: &[(&str, u64, u64)]) -> Vec<Record> {
        let mut records = Vec::new();
        for (who, asked, granted) in grants {
            records.push(Record {
                at: *asked,
                who: (*who).to_owned(),
                what: Entry::Asked {
                    attempt: 1,
                    name: "n".into(),
                    class: "c".into(),
                },
            });
            records.push(Record {
                at: *granted,
                who: (*who).to_owned(),
                what: Entry::Event(Transition {
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
    fn overtakings_are_counted_for_the_one_who_waits() {
        let overtaken = |grants: &[(&str, u64, u64)]| {
            let seconds: Vec<_> = grants
                .iter()
                .map(|(who, asked, granted)| (*who, asked * 2_000_000_000, granted * 2_000_000_000))
                .collect();
            let (_, mean, worst) = line(&story(&seconds));
            (mean, worst)
        };
        assert_eq!(overtaken(&[("a", 1, 10), ("b", 2, 11), ("c", 3, 12)]), (0.0, 0));
        // `a` came first and is served last: overtaken twice.
        assert_eq!(
            overtaken(&[("a", 1, 12), ("b", 2, 10), ("c", 3, 11)]),
            (2.0 / 3.0, 2)
        );
        assert_eq!(overtaken(&[("c", 3, 10), ("b", 2, 11), ("a", 1, 12)]), (1.0, 2));
        let second = 1_000_000_000;
        let (waited, ..) = line(&story(&[("a", 0, second), ("b", 0, 2 * second)]));
        assert!((waited - 3.0).abs() < 1e-9, "{waited}");
    }
}
