//! The store answers nobody for longer than a TTL: every class at once, each as its policy says.

use std::time::Duration;

use super::draft::Draft;
use super::scene::{Scene, between, secs, transition};
use super::{PATIENCE, TTL};
use crate::fleet::Error;
use crate::history::{Answer, Entry, History, Record};

/// Fail-closed classes and the fail-open one, each with a worker and a name of its own.
const CLOSED: &[&str] = &["scheduler", "workflow-critical", "approval", TICKS, "admission"];
/// Keeps its lease until it has run out, so that there is one tick in each window; it has two workers on its name.
const TICKS: &str = "reconciler";
/// A store counts in whole milliseconds.
const WHOLE: Duration = Duration::from_millis(2);
const OPEN: &str = "workflow";

pub(super) async fn play(scene: &mut Scene, draft: &mut Draft) -> Result<(), Error> {
    for class in CLOSED.iter().chain([&OPEN]) {
        let orders = scene.orders(class, class, &format!("job:{class}")).rest(100);
        scene.crew.start(orders).await?;
    }
    for class in CLOSED.iter().chain([&OPEN]) {
        scene.at_work(0, class).await?;
    }
    // Only now: the first one has had its tick, and both try again and again from here on.
    let other = scene.orders("reconciler-2", TICKS, &format!("job:{TICKS}"));
    scene.crew.start(other).await?;

    let during = scene.tape.place();
    scene.stage.cut().await?;
    let cut = scene.fault(&format!(
        "the store answers nobody for {}",
        secs(scene.options.outage)
    ));
    scene.rest(scene.options.outage).await;
    for class in CLOSED {
        let refused = scene
            .tape
            .wait(during, PATIENCE, |record| {
                record.who == *class && answered(record, Answer::Unavailable)
            })
            .await;
        draft.promise(
            &format!("{class} (fail-closed): work pauses while the store is away"),
            refused.is_some(),
            count(scene, during, class, "acquires refused", |record| {
                answered(record, Answer::Unavailable)
            }),
        );
    }
    let fell = scene.look(during, PATIENCE, OPEN, "fell_back").await;
    draft.promise(
        "workflow (fail-open): work goes on with a local lock, and each time is counted",
        fell.is_some(),
        count(scene, during, OPEN, "fall-backs counted", |record| {
            transition(record).is_some_and(|seen| seen.event == "fell_back")
        }),
    );

    let after = scene.tape.place();
    scene.stage.heal().await?;
    let healed = scene.mend("the store answers again");
    draft.promise(
        "the outage was as long as it was asked for",
        between(cut, healed) >= scene.options.outage,
        secs(between(cut, healed)),
    );
    for class in CLOSED.iter().chain([&OPEN]) {
        // Whichever of the two it is: they share the name.
        let back = scene.tape.wait(after, PATIENCE, |record| {
            transition(record).is_some_and(|seen| seen.event == "acquired" && seen.class == *class)
        });
        let back = back.await;
        draft.promise(
            &format!("{class}: back to normal when the store is"),
            back.is_some(),
            back.map_or_else(
                || "no lease was granted again".to_owned(),
                |back| format!("a lease again after {}", secs(between(healed, back.at))),
            ),
        );
    }
    // A whole window with the store well.
    let mut ticks = 0;
    let seen = scene.tape.wait(after, PATIENCE, |record| {
        let tick = transition(record).is_some_and(|seen| seen.event == "acquired" && seen.class == TICKS);
        ticks += u32::from(tick);
        ticks == 2
    });
    seen.await;
    one_tick_per_window(&scene.tape.history(), draft);
    Ok(())
}

/// No two ticks of the class are closer than its TTL: from when the first was asked for to when the next was granted. No delay
/// can make that shorter.
fn one_tick_per_window(history: &History, draft: &mut Draft) {
    let mut ticks: Vec<_> = history
        .records
        .iter()
        .filter_map(|record| transition(record).map(|seen| (record.at, seen)))
        .filter(|(_, seen)| seen.event == "acquired" && seen.class == TICKS)
        .map(|(at, seen)| (at, at.saturating_sub(seen.span.unwrap_or(0))))
        .collect();
    ticks.sort_unstable();
    let gaps = ticks.windows(2).filter_map(|pair| match pair {
        [(_, asked), (granted, _)] => Some(between(*asked, *granted)),
        _ => None,
    });
    let closest = gaps.min();
    draft.always(
        "reconciler: one tick in each window, whoever has it",
        closest.is_none_or(|closest| closest + WHOLE >= TTL),
        closest.map_or_else(
            || format!("{} ticks", ticks.len()),
            |closest| format!("{} ticks, the closest {} apart", ticks.len(), secs(closest)),
        ),
    );
    draft.promise(
        "reconciler: its windows follow each other",
        ticks.len() > 2,
        format!("{} ticks", ticks.len()),
    );
}

fn answered(record: &Record, wanted: Answer) -> bool {
    matches!(record.what, Entry::Answered { answer, .. } if answer == wanted)
}

fn count(scene: &Scene, from: usize, who: &str, what: &str, fits: impl Fn(&Record) -> bool) -> String {
    let history = scene.tape.history();
    let since = history.records.get(from..).unwrap_or_default();
    let number = since
        .iter()
        .filter(|record| record.who == who && fits(record))
        .count();
    format!("{number} {what}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::script::{event, history};

    #[test]
    fn two_ticks_in_one_window_are_one_too_many() {
        let tick = |at, who: &str| {
            let mut record = event(at, who, "acquired", None);
            if let Entry::Event(seen) = &mut record.what {
                seen.class = TICKS.into();
            }
            record
        };
        let kept = |seconds: &[u64]| {
            let records = seconds.iter().map(|at| tick(*at, "w")).collect();
            let mut draft = Draft::default();
            one_tick_per_window(&history(records), &mut draft);
            draft.promises.iter().all(|promise| promise.kept)
        };
        assert!(kept(&[1, 4, 8]));
        assert!(!kept(&[1, 4, 6, 10]), "two seconds apart");
        assert!(!kept(&[1, 4]), "and then no more");
    }
}
